#pragma once
// A web server of a test's own on a port of 127.0.0.1, which can also behave badly. POSIX.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace aeshna::test {

struct HttpTestRequest {
  std::string path;                            ///< with the query
  std::map<std::string, std::string> headers;  ///< names in lower case
  bool has(const std::string& name) const { return headers.contains(name); }
};

struct HttpTestReply {
  int status = 200;
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string body = {};
  std::int64_t send = -1;    ///< bytes of the body before the connection is cut; -1: all
  bool length = true;        ///< says Content-Length
  bool endless = false;      ///< the body again and again, until the client has enough
  double stall_seconds = 0;  ///< before the body, with the connection open
};

class HttpTestServer {
 public:
  using Handler = std::function<HttpTestReply(const HttpTestRequest&)>;
  explicit HttpTestServer(Handler handler);
  ~HttpTestServer();
  HttpTestServer(const HttpTestServer&) = delete;
  HttpTestServer& operator=(const HttpTestServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// All that were answered so far.
  std::vector<HttpTestRequest> requests() const;

 private:
  void serve(int connection);
  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<HttpTestRequest> requests_;
  std::vector<std::thread> workers_;
  std::thread accept_;
};

}  // namespace aeshna::test
