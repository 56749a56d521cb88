#pragma once
// A hub of one model, "me/tiny", over a real socket. `before` may answer in its place.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "aeshna/hub.h"
#include "base/format.h"
#include "base/sha.h"
#include "io/hub/http.h"
#include "support/http_server.h"

/// Where there is no libcurl nothing can be downloaded.
#define AESHNA_NEED_LIBCURL()          \
  do {                                 \
    try {                              \
      const aeshna::Http http;         \
    } catch (const aeshna::Error& e) { \
      GTEST_SKIP() << e.what();        \
    }                                  \
  } while (false)

namespace aeshna::test {

template <class Hash>
std::string hash_of(const std::string& text) {
  Hash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

struct FakeHub {
  std::string commit = std::string(39, 'a') + "1";
  std::map<std::string, std::string> files = {};
  std::function<std::optional<HttpTestReply>(const HttpTestRequest&)> before = {};
  /// Files of more bytes are LFS files.
  std::size_t lfs_from = 100;
  HttpTestServer server{[this](const HttpTestRequest& request) { return answer(request); }};

  HubOptions options(const std::filesystem::path& cache) const {
    return {.url = server.url(), .cache = cache, .retry_seconds = 0.001, .stall_seconds = 2};
  }

  std::string entry(const std::string& path, const std::string& content) const {
    if (content.size() < lfs_from) {
      const std::string blob = formatted("blob {}", content.size()) + '\0' + content;
      return formatted(R"({{"type":"file","oid":"{}","size":{},"path":"{}"}})", hash_of<Sha1>(blob), content.size(),
                       path);
    }
    return formatted(
        R"({{"type":"file","oid":"{}","size":{},"path":"{}","lfs":{{"oid":"{}","size":{},"pointerSize":134}}}})",
        std::string(40, '0'), content.size(), path, hash_of<Sha256>(content), content.size());
  }
  std::string tree() const {
    std::string list = R"([{"type":"directory","oid":"0","size":0,"path":"sub"})";
    for (const auto& [path, content] : files) list += "," + entry(path, content);
    return list + "]";
  }

  /// The file with Range honoured.
  static HttpTestReply serve(const HttpTestRequest& request, const std::string& content, const std::string& etag = "") {
    HttpTestReply reply{.body = content};
    if (!etag.empty()) reply.headers.push_back("ETag: " + etag);
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) return reply;
    if (const auto condition = request.headers.find("if-range");
        condition != request.headers.end() && condition->second != etag)
      return reply;
    const std::size_t begin = std::stoul(range->second.substr(std::string("bytes=").size()));
    reply.status = 206;
    reply.body = content.substr(begin);
    reply.headers.push_back(formatted("Content-Range: bytes {}-{}/{}", begin, content.size() - 1, content.size()));
    return reply;
  }

  HttpTestReply answer(const HttpTestRequest& request) {
    if (before)
      if (auto reply = before(request)) return *reply;
    const std::string api = "/api/models/me/tiny", files_at = formatted("/me/tiny/resolve/{}/", commit);
    if (request.path == api + "/revision/main") return {.body = formatted(R"({{"id":"me/tiny","sha":"{}"}})", commit)};
    if (request.path == formatted("{}/tree/{}?recursive=true", api, commit)) return {.body = tree()};
    if (request.path.starts_with(files_at)) {
      const auto found = files.find(request.path.substr(files_at.size()));
      if (found != files.end()) return serve(request, found->second);
    }
    return {.status = 404, .body = "no"};
  }

  std::size_t count(const std::string& part) const {
    std::size_t n = 0;
    for (const HttpTestRequest& request : server.requests()) n += request.path.contains(part);
    return n;
  }
};

}  // namespace aeshna::test
