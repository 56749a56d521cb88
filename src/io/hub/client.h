#pragma once
// One hub: who it is, what it may know, how often it is asked again.
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/hub.h"
#include "io/hub/http.h"

namespace aeshna::hub {

/// Attempts without progress, and the waits between them.
class Retries {
 public:
  explicit Retries(const HubOptions& options, int attempts) : options_(options), left_(attempts), all_(attempts) {}
  /// Sleeps, for as long as the reply asks for at least; false: no attempt is left.
  bool again(const HttpReply& reply);
  void progress() { left_ = all_; }

 private:
  const HubOptions& options_;
  int left_, all_;
};

/// Whether the same request may succeed later.
bool is_transient(const HttpReply& reply);
/// "no connection: ...", "status 503": for messages.
std::string reason_of(const HttpReply& reply);

class Client {
 public:
  /// Error(InvalidArgument) for a URL or a token that cannot be used; no message has the token in it.
  explicit Client(const HubOptions& options);

  const std::string& url() const { return url_; }
  const Origin& origin() const { return origin_; }

  /// One attempt, through five redirects at most. The token goes to the hub's own origin only; from https no redirect leads to http.
  HttpReply get(const std::string& url, const std::vector<std::string>& headers, double seconds,
                const Http::Body& body);

  struct Answer {
    HttpReply reply;
    std::string text;
    bool reached = false;  ///< else reply says what came in the way
  };
  /// A text of at most 32 MiB, in `attempts` attempts. What the hub refuses is thrown (refuse()).
  Answer text(const std::string& url, const std::string& model, int attempts, double seconds);
  /// For a status other than 200 and 206: NotFound, or Io, in words that help.
  [[noreturn]] void refuse(const HttpReply& reply, const std::string& model, const std::string& url) const;

 private:
  const HubOptions& options_;
  std::string url_, token_;
  Origin origin_;
  Http http_;
};

}  // namespace aeshna::hub
