#pragma once
// GET over HTTP and HTTPS by the system's libcurl, which is opened when it is needed, as the Vulkan loader is: TLS, proxies and certificates are
// the system's. No redirect is followed here, since who may see a token is the caller's to decide.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna {

/// Whom a URL speaks to; what one origin may know, another may not.
struct Origin {
  std::string scheme, host;  ///< in lower case
  std::string port;          ///< "443", "80" where the URL has none
  friend bool operator==(const Origin&, const Origin&) = default;
  bool loopback() const { return host == "localhost" || host == "[::1]" || host.starts_with("127."); }
};
/// nullopt: no http or https URL of a plain form (with a user name in it, say).
std::optional<Origin> origin_of(std::string_view url);
/// Bytes other than letters, digits, "-", ".", "_" and "~" as %XX; '/' stays if `slashes`.
std::string url_escaped(std::string_view text, bool slashes);

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers = {};  ///< "Name: value"
  double stall_seconds = 30;              ///< without a byte, after which it has failed
  double seconds = 0;                     ///< in all; 0: no limit
};

struct HttpReply {
  enum class Failure : std::uint8_t {
    None,         ///< there is a status
    Unreachable,  ///< no connection came about
    Broken,       ///< the connection ended or stalled
    Refused,      ///< it will not get better: a certificate, a URL
  };
  Failure failure = Failure::None;
  std::string reason;  ///< of the failure, in libcurl's words
  long status = 0;
  std::map<std::string, std::string, std::less<>> headers;  ///< names in lower case
  std::string location;                                     ///< of a redirect, absolute
  std::string_view header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

/// A connection that is kept from one request to the next. Not for two threads at once.
class Http {
 public:
  /// Error(Unsupported) if there is no libcurl.
  Http();
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// `body` gets the bytes as they come, with status and headers known. What it throws ends the request and comes out here.
  using Body = std::function<void(const HttpReply& head, std::span<const std::byte> bytes)>;
  HttpReply get(const HttpRequest& request, const Body& body);

 private:
  void* handle_;
};

}  // namespace aeshna
