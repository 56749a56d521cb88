#include "io/hub/http.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <mutex>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "base/env.h"
#include "base/fail.h"

namespace aeshna {
namespace {

// The part of libcurl's binary interface that is used here, which has been stable since libcurl.so.4 (2006). Declared by hand: its package of
// headers brings those of a dozen other libraries along.
enum Option : int {
  kWriteData = 10001,
  kUrl = 10002,
  kErrorBuffer = 10010,
  kWriteFunction = 20011,
  kUserAgent = 10018,
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kHttpHeader = 10023,
  kHeaderData = 10029,
  kFollowLocation = 52,
  kConnectTimeout = 78,
  kHeaderFunction = 20079,
  kHttpGet = 80,
  kBufferSize = 98,
  kNoSignal = 99,
  kTimeoutMs = 155,
  kNoProxy = 10177,
  kProtocols = 181,
};
enum Info : int { kRedirectUrl = 0x100000 + 31 };
constexpr long kHttpAndHttps = 1 | 2;
constexpr long kGlobalDefault = 3;
constexpr int kOk = 0;  // CURLE_OK

struct List;  // curl_slist
using WriteCallback = std::size_t (*)(char*, std::size_t, std::size_t, void*);

struct Curl {
  int (*global_init)(long) = nullptr;
  void* (*easy_init)() = nullptr;
  void (*easy_cleanup)(void*) = nullptr;
  void (*easy_reset)(void*) = nullptr;
  int (*easy_setopt)(void*, int, ...) = nullptr;
  int (*easy_perform)(void*) = nullptr;
  int (*easy_getinfo)(void*, int, ...) = nullptr;
  const char* (*easy_strerror)(int) = nullptr;
  List* (*slist_append)(List*, const char*) = nullptr;
  void (*slist_free_all)(List*) = nullptr;
};

// ---- opening it

#ifdef _WIN32
void* open_library(const std::string& name, std::string& why) {
  // Not from the current folder.
  void* library = ::LoadLibraryExA(name.c_str(), nullptr, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  if (library == nullptr) why = formatted("{}: error {}", name, ::GetLastError());
  return library;
}
void* symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(::GetProcAddress(static_cast<HMODULE>(library), name));
}
constexpr std::array kNames = {"libcurl.dll", "libcurl-x64.dll"};
#else
void* open_library(const std::string& name, std::string& why) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) why = ::dlerror();
  return library;
}
void* symbol(void* library, const char* name) { return ::dlsym(library, name); }
#ifdef __APPLE__
constexpr std::array kNames = {"libcurl.4.dylib", "/usr/lib/libcurl.4.dylib"};
#else
constexpr std::array kNames = {"libcurl.so.4", "libcurl-gnutls.so.4"};
#endif
#endif

Curl load_curl() {
  std::string why;
  void* library = nullptr;
  if (const std::string own = env_libcurl(); !own.empty()) {
    library = open_library(own, why);
  } else {
    for (std::size_t i = 0; i < kNames.size() && library == nullptr; ++i) {
      std::string reason;
      library = open_library(kNames[i], reason);
      if (why.empty()) why = reason;
    }
  }
  const auto absent = [&] {
    fail(ErrorCode::Unsupported,
         "downloads need libcurl, which cannot be used ({}). Install it (Debian and Ubuntu: libcurl4t64 or libcurl4), "
         "or fetch the files "
         "otherwise and give their folder",
         why);
  };
  if (library == nullptr) absent();
  Curl curl;
  const auto find = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(symbol(library, name));
    if (function == nullptr) {
      why = formatted("it has no {}", name);
      absent();
    }
  };
  find(curl.global_init, "curl_global_init");
  find(curl.easy_init, "curl_easy_init");
  find(curl.easy_cleanup, "curl_easy_cleanup");
  find(curl.easy_reset, "curl_easy_reset");
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_perform, "curl_easy_perform");
  find(curl.easy_getinfo, "curl_easy_getinfo");
  find(curl.easy_strerror, "curl_easy_strerror");
  find(curl.slist_append, "curl_slist_append");
  find(curl.slist_free_all, "curl_slist_free_all");
  if (curl.global_init(kGlobalDefault) != kOk) {
    why = "it cannot be initialised";
    absent();
  }
  return curl;
}

/// Never closed. A search that failed is made again.
const Curl& curl() {
  static const Curl loaded = load_curl();
  return loaded;
}

// ---- one request

constexpr std::size_t kMaxHeaders = 64 << 10;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

struct Transfer {
  HttpReply reply;
  const Http::Body& body;
  std::size_t header_bytes = 0;
  std::exception_ptr thrown;
};

/// A line of the head. Several heads come when a server says "100 Continue" first.
std::size_t on_header(char* data, std::size_t, std::size_t count, void* context) {
  Transfer& t = *static_cast<Transfer*>(context);
  try {
    t.header_bytes += count;
    if (t.header_bytes > kMaxHeaders) fail(ErrorCode::LimitExceeded, "the head of the answer is too long");
    const std::string_view line = trimmed({data, count});
    if (line.starts_with("HTTP/")) {
      t.reply.headers.clear();
      t.reply.status = 0;
      const std::size_t at = line.find(' ');
      if (at != std::string_view::npos && line.size() >= at + 4) {
        for (const char c : line.substr(at + 1, 3)) t.reply.status = t.reply.status * 10 + (c - '0');
      }
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
      t.reply.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return count;
  } catch (...) {  // not through C
    t.thrown = std::current_exception();
    return 0;
  }
}

std::size_t on_body(char* data, std::size_t, std::size_t count, void* context) {
  Transfer& t = *static_cast<Transfer*>(context);
  try {
    t.body(t.reply, std::as_bytes(std::span(data, count)));
    return count;
  } catch (...) {
    t.thrown = std::current_exception();
    return 0;
  }
}

HttpReply::Failure failure_of(int code) {
  switch (code) {
    case kOk:
      return HttpReply::Failure::None;
    case 5:  // CURLE_COULDNT_RESOLVE_PROXY, _HOST, CURLE_COULDNT_CONNECT
    case 6:
    case 7:
      return HttpReply::Failure::Unreachable;
    case 1:  // a protocol that is not there, a malformed URL
    case 3:
    case 53:  // TLS: engine, own certificate, cipher, the server's certificate, certificates of authorities
    case 58:
    case 59:
    case 60:
    case 77:
    case 83:
    case 90:
    case 91:
      return HttpReply::Failure::Refused;
    default:
      return HttpReply::Failure::Broken;
  }
}

}  // namespace

std::optional<Origin> origin_of(std::string_view url) {
  Origin origin;
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  origin.scheme = lower(url.substr(0, colon));
  if (origin.scheme != "http" && origin.scheme != "https") return std::nullopt;
  std::string_view authority = url.substr(colon + 3);
  authority = authority.substr(0, authority.find_first_of("/?#"));
  const bool strange =
      std::ranges::any_of(authority, [](unsigned char c) { return c <= 32 || c >= 127 || c == '@' || c == '\\'; });
  if (strange) return std::nullopt;
  const std::size_t bracket = authority.find(']');
  const std::size_t port = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  origin.host = lower(authority.substr(0, port));
  if (origin.host.empty()) return std::nullopt;
  origin.port = origin.scheme == "https" ? "443" : "80";
  if (port != std::string_view::npos) origin.port = authority.substr(port + 1);
  if (origin.port.empty() || origin.port.size() > 5 ||
      !std::ranges::all_of(origin.port, [](unsigned char c) { return std::isdigit(c) != 0; }))
    return std::nullopt;
  return origin;
}

std::string url_escaped(std::string_view text, bool slashes) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 128 && (std::isalnum(byte) != 0 || std::string_view("-._~").contains(c));
    if (plain || (slashes && c == '/')) {
      result += c;
    } else {
      result += formatted("%{:02X}", byte);
    }
  }
  return result;
}

Http::Http() : handle_(curl().easy_init()) {
  if (handle_ == nullptr) fail(ErrorCode::OutOfMemory, "libcurl cannot begin a transfer");
}

Http::~Http() { curl().easy_cleanup(handle_); }

HttpReply Http::get(const HttpRequest& request, const Body& body) {
  const Curl& c = curl();
  Transfer transfer{.reply = {}, .body = body, .thrown = {}};
  std::array<char, 256> error{};  // CURL_ERROR_SIZE
  List* headers = nullptr;
  for (const std::string& line : request.headers) headers = c.slist_append(headers, line.c_str());
  const std::unique_ptr<List, void (*)(List*)> free_headers(headers, c.slist_free_all);

  c.easy_reset(handle_);  // connections stay
  int code = kOk;
  const auto set = [&](Option option, auto value) {
    if (code == kOk) code = c.easy_setopt(handle_, option, value);
  };
  set(kUrl, request.url.c_str());
  set(kErrorBuffer, error.data());
  set(kHttpGet, 1L);
  set(kFollowLocation, 0L);
  set(kProtocols, kHttpAndHttps);
  set(kNoSignal, 1L);  // no SIGALRM for time limits
  set(kUserAgent, "aeshna/" AESHNA_VERSION);
  set(kHttpHeader, headers);
  if (const auto origin = origin_of(request.url); origin && origin->loopback())
    set(kNoProxy, "*");  // it is not the proxy's
  set(kBufferSize, 256L << 10);
  set(kConnectTimeout, std::max(1L, static_cast<long>(request.stall_seconds)));
  set(kLowSpeedLimit, 1L);
  set(kLowSpeedTime, std::max(1L, static_cast<long>(request.stall_seconds)));
  set(kTimeoutMs, static_cast<long>(request.seconds * 1000));
  set(kHeaderFunction, static_cast<WriteCallback>(on_header));
  set(kHeaderData, static_cast<void*>(&transfer));
  set(kWriteFunction, static_cast<WriteCallback>(on_body));
  set(kWriteData, static_cast<void*>(&transfer));
  if (code == kOk) code = c.easy_perform(handle_);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);

  HttpReply reply = std::move(transfer.reply);
  reply.failure = failure_of(code);
  if (code != kOk) reply.reason = error[0] != '\0' ? error.data() : c.easy_strerror(code);
  char* location = nullptr;
  if (code == kOk && c.easy_getinfo(handle_, kRedirectUrl, &location) == kOk && location != nullptr)
    reply.location = location;
  c.easy_setopt(handle_, kErrorBuffer, nullptr);  // which ends here
  return reply;
}

}  // namespace aeshna
