#include "io/hub/download.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/sha.h"

namespace aeshna::hub {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// The bytes that are there, and their hash so far.
class Partial {
 public:
  Partial(fs::path path, const RemoteFile& file) : path_(std::move(path)), file_(file) {
    std::error_code error;
    const std::uint64_t there = fs::file_size(path_, error);
    restart();
    if (error || there == 0 || there > file_.size) return;
    add_file(*hash_, path_);
    size_ = there;
  }

  std::uint64_t size() const { return size_; }

  void restart() {
    out_.reset();
    size_ = 0;
    if (file_.lfs) {
      hash_ = std::make_unique<Sha256>();
    } else {
      hash_ = std::make_unique<Sha1>();
      const std::string head = formatted("blob {}", file_.size) + '\0';
      hash_->add(std::as_bytes(std::span(head)));
    }
  }

  void append(std::span<const std::byte> bytes) {
    if (!out_) {
      errno = 0;
      out_.reset(std::fopen(path_.string().c_str(), size_ == 0 ? "wb" : "ab"));
      if (!out_) refuse(errno);
    }
    errno = 0;
    if (std::fwrite(bytes.data(), 1, bytes.size(), out_.get()) != bytes.size()) refuse(errno);
    hash_->add(bytes);
    size_ += bytes.size();
  }

  /// What was written so far is in the file, as far as the system can.
  void close() {
    if (!out_) return;
    errno = 0;
    if (std::fflush(out_.get()) != 0 || !sync_to_disk(out_.get())) refuse(errno);
    out_.reset();
  }

  /// nullopt: it is the listed content; else what it is. Nothing may be appended afterwards.
  std::optional<std::string> difference() {
    const std::string hash = hash_->hex();
    if (hash == file_.hash) return std::nullopt;
    return formatted("has the {} {}, where the hub lists {}", file_.lfs ? "SHA-256" : "SHA-1 of git", hash, file_.hash);
  }

  void remove() {
    restart();
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

  void move_to(const fs::path& target) {
    if (file_.size == 0) write_file_atomic(path_, "");
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) fail(ErrorCode::Io, "cannot rename '{}' to '{}': {}", path_.string(), target.string(), error.message());
  }

 private:
  /// What is there may be damaged at its end: it is checked when the download goes on.
  [[noreturn]] void refuse(int error) {
    out_.reset();
    fail(ErrorCode::Io, "cannot write '{}' ({} of {} bytes): {}", path_.string(), size_, file_.size,
         std::generic_category().message(error));
  }

  fs::path path_;
  const RemoteFile& file_;
  std::unique_ptr<std::FILE, CloseFile> out_;
  std::unique_ptr<Sha> hash_;
  std::uint64_t size_ = 0;
};

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "bytes 100-199/200": whether that is what was asked for.
bool continues_at(std::string_view content_range, std::uint64_t begin, std::uint64_t size) {
  if (!content_range.starts_with("bytes ")) return false;
  content_range.remove_prefix(6);
  const std::size_t dash = content_range.find('-'), slash = content_range.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return false;
  const std::string_view total = content_range.substr(slash + 1);
  return parse_count(content_range.substr(0, dash)) == begin && (total == "*" || parse_count(total) == size);
}

/// Thrown out of a transfer whose bytes do not go on from those that are there.
struct StartOver {};

bool answered(const HttpReply& reply) { return reply.failure == HttpReply::Failure::None; }
bool has_content(const HttpReply& reply) { return reply.status == 200 || reply.status == 206; }

class Download {
 public:
  Download(Client& client, const HubOptions& options, const std::string& model, const std::string& url,
           const RemoteFile& file, const fs::path& partial, const std::function<void(std::uint64_t)>& on_bytes)
      : client_(client),
        model_(model),
        url_(url),
        file_(file),
        on_bytes_(on_bytes),
        part_(partial, file),
        retries_(options, options.attempts),
        furthest_(part_.size()),
        resumed_(part_.size() > 0) {}

  void run(const fs::path& target) {
    for (;;) {
      on_bytes_(part_.size());
      fetch_rest();
      const std::optional<std::string> difference = part_.difference();
      if (!difference) return part_.move_to(target);
      part_.remove();
      if (!resumed_) corrupt(*difference + "; nothing of it is kept");
      begin_anew();  // its parts may have been of different files: once more, as a whole
      resumed_ = false;
    }
  }

 private:
  [[noreturn]] void corrupt(std::string_view what) const {
    fail(ErrorCode::CorruptFile, "{}: {} {}", model_, file_.path, what);
  }

  void fetch_rest() {
    while (part_.size() < file_.size) {
      const HttpReply reply = attempt();
      if (part_.size() == file_.size) return;
      const bool refused = answered(reply) && !has_content(reply) && reply.status != 416;
      if (refused && !is_transient(reply)) client_.refuse(reply, model_, url_);
      if (reply.failure != HttpReply::Failure::Refused && retries_.again(reply)) continue;
      if (refused) client_.refuse(reply, model_, url_);
      fail(ErrorCode::Io, "{}: {} was cut after {} of {} bytes ({}); what is there is kept, run it again to go on",
           model_, file_.path, part_.size(), file_.size, answered(reply) ? "it ended early" : reply.reason);
    }
  }

  HttpReply attempt() {
    // Compressed bytes would be others than those that are listed.
    std::vector<std::string> headers = {"Accept-Encoding: identity"};
    if (part_.size() > 0) {
      headers.push_back(formatted("Range: bytes={}-", part_.size()));
      if (!etag_.empty() && !etag_.starts_with("W/")) headers.push_back("If-Range: " + etag_);
    }
    bool started = false;
    HttpReply reply;
    try {
      reply = client_.get(url_, headers, 0, [&](const HttpReply& head, std::span<const std::byte> bytes) {
        if (!has_content(head)) return;
        if (!started) start(head);
        started = true;
        append(bytes);
      });
    } catch (const StartOver&) {
      begin_anew();
      reply.failure = HttpReply::Failure::Broken;
      reply.reason = "it could not be gone on with where it was cut";
    } catch (const Error& e) {
      // Neither more nor other bytes than listed are worth keeping.
      if (e.code() == ErrorCode::CorruptFile) part_.remove();
      throw;
    }
    part_.close();
    if (answered(reply) && reply.status == 416) begin_anew();  // what is there is more than the server has
    return reply;
  }

  /// The head of an answer with bytes: where they belong.
  void start(const HttpReply& head) {
    const std::string etag(head.header("etag"));
    if (head.status == 206) {
      const bool same = etag_.empty() || etag == etag_;
      if (!same || !continues_at(head.header("content-range"), part_.size(), file_.size)) throw StartOver();
      resumed_ = true;
    } else {
      part_.restart();  // the whole file, whatever was asked for
      const auto length = parse_count(head.header("content-length"));
      if (length && *length != file_.size)
        corrupt(formatted("has {} bytes, where the hub lists {}", *length, file_.size));
    }
    etag_ = etag;
  }

  void append(std::span<const std::byte> bytes) {
    if (bytes.size() > file_.size - part_.size())
      corrupt(formatted("has more than the {} bytes that the hub lists", file_.size));
    part_.append(bytes);
    if (part_.size() > furthest_) {
      furthest_ = part_.size();
      retries_.progress();
    }
    on_bytes_(part_.size());
  }

  void begin_anew() {
    part_.remove();
    etag_.clear();
  }

  Client& client_;
  const std::string &model_, &url_;
  const RemoteFile& file_;
  const std::function<void(std::uint64_t)>& on_bytes_;
  Partial part_;
  Retries retries_;
  std::uint64_t furthest_;  ///< bytes that were ever there: less is no progress
  bool resumed_;            ///< the bytes may be of several answers
  std::string etag_;        ///< of the answer that they are from, if it was in this run
};

}  // namespace

void download(Client& client, const HubOptions& options, const std::string& model, const std::string& url,
              const RemoteFile& file, const fs::path& partial, const fs::path& target,
              const std::function<void(std::uint64_t)>& on_bytes) {
  Download(client, options, model, url, file, partial, on_bytes).run(target);
}

}  // namespace aeshna::hub
