#pragma once
// OpenAI's API over HTTP/1.1. docs/serve.md says what a client may expect.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "aeshna/generate.h"
#include "serve/engine.h"

namespace aeshna::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";                 ///< an address, or "localhost"
  std::uint16_t port = 0;                         ///< 0: a free one
  std::string api_key = {};                       ///< asked for in "Authorization: Bearer"; empty: not
  std::string cors = {};                          ///< origin whose pages may use the answers, "*": all; empty: none
  SamplingOptions sampling = {.temperature = 1};  ///< of requests that say nothing about it; their seeds are drawn
  std::uint64_t body_bytes = 1 << 20;
  std::uint32_t header_bytes = 16 << 10;
  std::size_t connections = 256;
  std::chrono::milliseconds idle{30'000};  ///< a connection without a request, and for the request's header to arrive
  std::chrono::milliseconds transfer{30'000};           ///< for a body to arrive, and for what is written to be taken
  std::chrono::milliseconds keep_alive{15'000};         ///< a stream in which nothing happens gets a comment
  std::function<void(std::string_view line)> log = {};  ///< a line for each request, on the server's thread
};

/// Listens from its construction on, on a thread of its own.
class Server {
 public:
  /// `engine` must outlive it. Error(InvalidArgument) for a host that is no address, Error(Io) where it cannot listen.
  Server(Engine& engine, ServerOptions options);
  ~Server();  ///< stop() without grace
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  std::string url() const;  ///< "http://127.0.0.1:8080"
  /// Takes no more requests, lets those in work end, cuts them off after `grace`, and returns when all is closed.
  void stop(std::chrono::milliseconds grace = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether only this machine can reach the address: 127.0.0.0/8, ::1, "localhost". Error(InvalidArgument) if it is none.
bool is_loopback(const std::string& host);

}  // namespace aeshna::serve
