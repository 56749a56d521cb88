#pragma once
// A client of plain sockets, which can also misbehave.
#ifndef _WIN32
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace aeshna::test {

struct HttpResponse {
  int status = 0;                              ///< 0: the connection was closed without one
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< without chunks' frames
  bool whole = false;                          ///< it ended as its header says
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};  // a test that hangs fails
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  /// False: the server has closed.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  bool send(std::string_view method, std::string_view path, std::string_view body = "", std::string_view more = "") {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(more);
    if (method == "POST")
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    return send(text + "\r\n" + std::string(body));
  }

  HttpResponse response() {
    HttpResponse r;
    const std::string head = take_until("\r\n\r\n");
    if (head.empty()) return r;
    r.status = std::stoi(head.substr(head.find(' ')));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at);
      const std::size_t colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
      r.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
      if (end + 4 >= head.size()) break;
    }
    if (r.status < 200 || r.status == 204) {
      r.whole = true;
    } else if (r.headers.contains("transfer-encoding")) {
      while (true) {
        const std::string size = take_until("\r\n");
        if (size.empty()) return r;
        const std::size_t count = std::stoul(size, nullptr, 16);
        if (!fill(count + 2)) return r;
        r.body += buffer_.substr(0, count);
        buffer_.erase(0, count + 2);
        if (count == 0) break;
      }
      r.whole = true;
    } else if (r.headers.contains("content-length")) {
      const std::size_t count = std::stoul(r.headers["content-length"]);
      r.whole = fill(count);
      r.body = buffer_.substr(0, count);
      buffer_.erase(0, count);
    } else {
      while (fill(buffer_.size() + 1)) {}
      r.body = std::exchange(buffer_, {});
      r.whole = true;
    }
    return r;
  }
  /// What comes until `end` has come, with it; empty: the connection was closed before.
  std::string take_until(std::string_view end) {
    std::size_t at;
    while ((at = buffer_.find(end)) == std::string::npos)
      if (!fill(buffer_.size() + 1)) return "";
    std::string text = buffer_.substr(0, at + end.size());
    buffer_.erase(0, at + end.size());
    return text;
  }
  /// The server has closed; false: it sends something, or nothing for a long time.
  bool closed() { return !fill(buffer_.size() + 1) && !timed_out_; }

 private:
  bool fill(std::size_t count) {
    char block[4096];
    while (buffer_.size() < count) {
      const ssize_t got = ::recv(socket_, block, sizeof block, 0);
      timed_out_ = got < 0 && errno == EAGAIN;
      EXPECT_FALSE(timed_out_) << "the server sends nothing";
      if (got <= 0) return false;
      buffer_.append(block, static_cast<std::size_t>(got));
    }
    return true;
  }
  int socket_;
  bool timed_out_ = false;
  std::string buffer_;
};

/// One request on a connection of its own.
inline HttpResponse http(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body = "",
                         std::string_view more = "") {
  HttpClient client(port);
  client.send(method, path, body, more);
  return client.response();
}

}  // namespace aeshna::test
#endif
