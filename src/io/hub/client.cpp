#include "io/hub/client.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/env.h"
#include "base/fail.h"
#include "base/shown.h"

namespace aeshna::hub {
namespace {

constexpr std::size_t kMaxText = 32 << 20;
constexpr int kMaxRedirects = 5;
constexpr std::size_t kShown = 200;  // bytes of what a server wrote that a message repeats

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

bool Retries::again(const HttpReply& reply) {
  if (--left_ <= 0) return false;
  double seconds = options_.retry_seconds * static_cast<double>(1 << std::min(all_ - left_ - 1, 16));
  double asked = 0;
  const std::string_view header = reply.header("retry-after");
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), asked);
  if (error == std::errc() && asked > 0) seconds = std::max(seconds, asked);
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 30.0)));
  return true;
}

bool is_transient(const HttpReply& reply) {
  if (reply.failure != HttpReply::Failure::None) return reply.failure != HttpReply::Failure::Refused;
  return reply.status == 408 || reply.status == 429 || (reply.status >= 500 && reply.status != 501);
}

std::string reason_of(const HttpReply& reply) {
  if (reply.failure != HttpReply::Failure::None) return reply.reason;
  const std::string_view said = reply.header("x-error-message");
  return formatted("status {}{}{}", reply.status, said.empty() ? "" : ": ", shown(said, kShown));
}

Client::Client(const HubOptions& options) : options_(options), url_(options.url), token_(options.token) {
  if (url_.empty()) url_ = env_hub_url();
  if (url_.empty()) url_ = "https://huggingface.co";
  while (url_.ends_with('/')) url_.pop_back();
  const std::optional<Origin> origin = origin_of(url_);
  if (!origin || url_.find_first_of("?#") != std::string::npos)
    fail(ErrorCode::InvalidArgument, "'{}' is no URL of a hub (https://HOST)", shown(url_, kShown));
  origin_ = *origin;
  if (token_.empty()) token_ = env_hub_token();
  if (!std::ranges::all_of(token_, [](unsigned char c) { return c > 32 && c < 127; }))
    fail(ErrorCode::InvalidArgument, "the token for {} has characters that no token has", url_);
  if (!token_.empty() && origin_.scheme != "https" && !origin_.loopback()) {
    fail(ErrorCode::InvalidArgument, "a token would go to {} without encryption: use https, or no token (HF_TOKEN)",
         url_);
  }
}

HttpReply Client::get(const std::string& url, const std::vector<std::string>& headers, double seconds,
                      const Http::Body& body) {
  std::string at = url;
  for (int hops = 0;; ++hops) {
    const std::optional<Origin> origin = origin_of(at);
    if (!origin) fail(ErrorCode::Io, "{} leads to '{}', which is no URL", url, shown(at, kShown));
    HttpRequest request{.url = at, .headers = headers, .stall_seconds = options_.stall_seconds, .seconds = seconds};
    if (!token_.empty() && *origin == origin_) request.headers.push_back("Authorization: Bearer " + token_);
    std::size_t ignored = 0;
    HttpReply reply = http_.get(request, [&](const HttpReply& head, std::span<const std::byte> bytes) {
      if (!is_redirect(head.status)) return body(head, bytes);
      ignored += bytes.size();
      if (ignored > kMaxText) fail(ErrorCode::LimitExceeded, "{}: a redirect with an endless body", url);
    });
    if (reply.failure != HttpReply::Failure::None || !is_redirect(reply.status)) return reply;
    if (reply.location.empty()) fail(ErrorCode::Io, "{}: status {} without a place to go to", url, reply.status);
    if (hops == kMaxRedirects) fail(ErrorCode::Io, "{}: more than {} redirects", url, kMaxRedirects);
    const std::optional<Origin> next = origin_of(reply.location);
    if (next && origin->scheme == "https" && next->scheme != "https")
      fail(ErrorCode::Io, "{} leads from https to '{}', which is not encrypted", url, shown(reply.location, kShown));
    at = reply.location;
  }
}

Client::Answer Client::text(const std::string& url, const std::string& model, int attempts, double seconds) {
  Retries retries(options_, attempts);
  for (;;) {
    Answer answer;
    answer.reply =
        get(url, {"Accept: application/json"}, seconds, [&](const HttpReply&, std::span<const std::byte> bytes) {
          if (answer.text.size() + bytes.size() > kMaxText)
            fail(ErrorCode::LimitExceeded, "{}: an answer of more than {} MiB", url, kMaxText >> 20);
          answer.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        });
    answer.reached = answer.reply.failure == HttpReply::Failure::None && answer.reply.status == 200;
    if (answer.reached) return answer;
    if (!is_transient(answer.reply)) refuse(answer.reply, model, url);
    if (!retries.again(answer.reply)) return answer;
  }
}

void Client::refuse(const HttpReply& reply, const std::string& model, const std::string& url) const {
  const std::string_view code = reply.header("x-error-code");
  if (reply.failure == HttpReply::Failure::None) {
    const std::string why = reason_of(reply);
    if (code == "GatedRepo" || reply.status == 403) {
      fail(ErrorCode::Io,
           "{}: access is refused ({}). The model may be gated: accept its terms at {}/{}, and give a token of that "
           "account (HF_TOKEN, "
           "or --token-file)",
           model, why, url_, model);
    }
    if (reply.status == 401) {
      fail(ErrorCode::Io, "{}: access is refused ({}). There is no such model, or it is private or gated and {}", model,
           why, token_.empty() ? "needs a token (HF_TOKEN, or --token-file)" : "the token is not one that may read it");
    }
    if (reply.status == 404) {
      const bool revision = code == "RevisionNotFound";
      fail(ErrorCode::NotFound, "{}: {} ({})", model, revision ? "there is no such revision" : "not found", why);
    }
  }
  fail(ErrorCode::Io, "{}: {}: {}", model, url, reason_of(reply));
}

}  // namespace aeshna::hub
