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

/// Thrown out of a transfer that cannot be gone on from.
struct StartOver {};

}  // namespace

void download(Client& client, const HubOptions& options, const std::string& model, const std::string& url,
              const RemoteFile& file, const fs::path& partial, const fs::path& target,
              const std::function<void(std::uint64_t)>& on_bytes) {
  const auto corrupt = [&](std::string_view what) {
    fail(ErrorCode::CorruptFile, "{}: {} {}", model, file.path, what);
  };
  Partial part(partial, file);
  Retries retries(options, options.attempts);
  std::uint64_t furthest = part.size();
  std::string etag;  // of the answer that the bytes are from, if it was in this run
  bool resumed = part.size() > 0, ranges = true;
  on_bytes(part.size());

  for (;;) {
    HttpReply reply;
    if (part.size() < file.size || file.size == 0) {
      // Compressed bytes would be others than those that are listed.
      std::vector<std::string> headers = {"Accept-Encoding: identity"};
      if (part.size() > 0 && ranges) {
        headers.push_back(formatted("Range: bytes={}-", part.size()));
        if (!etag.empty() && !etag.starts_with("W/")) headers.push_back("If-Range: " + etag);
      } else {
        part.restart();
      }
      const std::uint64_t begin = part.size();
      bool started = false;
      const auto start = [&](const HttpReply& head) {
        started = true;
        const std::string tag(head.header("etag"));
        if (head.status == 206) {
          if (!continues_at(head.header("content-range"), begin, file.size) || (!etag.empty() && tag != etag))
            throw StartOver();
          if (begin > 0) resumed = true;
        } else {
          part.restart();  // a server that gives the whole file
          const auto length = parse_count(head.header("content-length"));
          if (length && *length != file.size)
            corrupt(formatted("has {} bytes, where the hub lists {}", *length, file.size));
        }
        etag = tag;
      };
      try {
        reply = client.get(url, headers, 0, [&](const HttpReply& head, std::span<const std::byte> bytes) {
          if (head.status != 200 && head.status != 206) return;
          if (!started) start(head);
          if (bytes.size() > file.size - part.size())
            corrupt(formatted("has more than the {} bytes that the hub lists", file.size));
          part.append(bytes);
          if (part.size() > furthest) {
            furthest = part.size();
            retries.progress();
          }
          on_bytes(part.size());
        });
      } catch (const StartOver&) {
        ranges = false;
        part.remove();
        etag.clear();
        if (!retries.again(reply)) corrupt("cannot be gone on with where it was cut");
        continue;
      } catch (const Error& e) {
        // Neither more nor other bytes than listed are worth keeping.
        if (e.code() == ErrorCode::CorruptFile) part.remove();
        throw;
      }
      part.close();
      const bool answered = reply.failure == HttpReply::Failure::None;
      if (answered && reply.status == 416) {  // the range is beyond what the server has
        ranges = false;
        part.remove();
        if (!retries.again(reply)) client.refuse(reply, model, url);
        continue;
      }
      if (answered && reply.status != 200 && reply.status != 206) {
        if (!is_transient(reply) || !retries.again(reply)) client.refuse(reply, model, url);
        continue;
      }
    }
    if (part.size() < file.size) {
      if (reply.failure == HttpReply::Failure::None) reply.reason = "it ended early";
      if (reply.failure == HttpReply::Failure::Refused || !retries.again(reply)) {
        fail(ErrorCode::Io, "{}: {} was cut after {} of {} bytes ({}); what is there is kept, run it again to go on",
             model, file.path, part.size(), file.size, reply.reason);
      }
      continue;
    }
    const std::optional<std::string> difference = part.difference();
    if (!difference) break;
    part.remove();
    if (!resumed) corrupt(*difference + "; nothing of it is kept");
    resumed = ranges = false;  // its parts may have been of different files: once more, as a whole
    etag.clear();
  }
  part.move_to(target);
}

}  // namespace aeshna::hub
