#ifndef _WIN32
#include "support/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>

namespace aeshna::test {
namespace {

bool send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

HttpTestServer::HttpTestServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener_, generic, size), 0);
  EXPECT_EQ(::listen(listener_, 16), 0);
  EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
  port_ = ntohs(address.sin_port);
  accept_ = std::thread([this] {
    while (!stop_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection >= 0) workers_.emplace_back([this, connection] { serve(connection); });
    }
  });
}

HttpTestServer::~HttpTestServer() {
  stop_ = true;
  accept_.join();
  for (std::thread& worker : workers_) worker.join();
  ::close(listener_);
}

std::vector<HttpTestRequest> HttpTestServer::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

void HttpTestServer::serve(int connection) {
  std::string head;
  char piece[4096];
  while (!head.contains("\r\n\r\n")) {
    const ssize_t got = ::recv(connection, piece, sizeof piece, 0);
    if (got <= 0) break;
    head.append(piece, static_cast<std::size_t>(got));
  }
  HttpTestRequest request;
  std::size_t at = head.find("\r\n");
  if (const std::size_t path = head.find(' '); path < at)
    request.path = head.substr(path + 1, head.find(' ', path + 1) - path - 1);
  while (at != std::string::npos && at + 2 < head.size()) {
    const std::size_t end = head.find("\r\n", at + 2), colon = head.find(": ", at + 2);
    if (colon < end) {
      std::string name = head.substr(at + 2, colon - at - 2);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request.headers[name] = head.substr(colon + 2, end - colon - 2);
    }
    at = end;
  }
  HttpTestReply reply = handler_(request);
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(request);
  }
  std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " Status\r\nConnection: close\r\n";
  for (const std::string& header : reply.headers) text += header + "\r\n";
  if (reply.length && !reply.endless) text += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  send_all(connection, text + "\r\n");
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(reply.stall_seconds);
  while (!stop_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  do {
    if (!send_all(connection, reply.send < 0 ? reply.body : reply.body.substr(0, static_cast<std::size_t>(reply.send))))
      break;
  } while (reply.endless && !stop_);
  ::shutdown(connection, SHUT_WR);
  ::close(connection);
}

}  // namespace aeshna::test
#endif
