#include "base/byte_reader.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#ifdef _WIN32
#include <io.h>
#include <process.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

#include "base/fail.h"
#include "base/format.h"

namespace aeshna {

// ---- ByteReader

void ByteReader::corrupt(std::string message) const {
  fail(ErrorCode::CorruptFile, "{}: {} (at byte {})", name_, message, position_);
}

void ByteReader::seek(std::uint64_t position, std::string_view what) {
  if (position > bytes_.size())
    corrupt(formatted("{} would be at byte {}, past the end at {}", what, position, bytes_.size()));
  position_ = position;
}

std::span<const std::byte> ByteReader::take(std::uint64_t count, std::string_view what) {
  if (count > remaining()) corrupt(formatted("{} needs {} bytes, but {} remain", what, count, remaining()));
  const auto taken = bytes_.subspan(position_, count);
  position_ += count;
  return taken;
}

std::string_view ByteReader::text(std::uint64_t count, std::string_view what) {
  const auto taken = take(count, what);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

namespace {
template <class T>
T little(std::span<const std::byte> bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(static_cast<T>(value << (sizeof(T) > 1 ? 8 : 0)) | static_cast<T>(bytes[i]));
  return value;
}
}  // namespace

std::uint8_t ByteReader::u8(std::string_view what) { return little<std::uint8_t>(take(1, what)); }
std::uint16_t ByteReader::u16(std::string_view what) { return little<std::uint16_t>(take(2, what)); }
std::uint32_t ByteReader::u32(std::string_view what) { return little<std::uint32_t>(take(4, what)); }
std::uint64_t ByteReader::u64(std::string_view what) { return little<std::uint64_t>(take(8, what)); }
std::uint32_t ByteReader::u32_big(std::string_view what) { return std::byteswap(u32(what)); }
float ByteReader::f32(std::string_view what) { return std::bit_cast<float>(u32(what)); }

// ---- whole files

namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string reason(int error) { return std::generic_category().message(error); }

/// Makes a rename durable; best effort, since some file systems refuse to sync a directory.
void sync_directory([[maybe_unused]] const std::filesystem::path& directory) {
#ifndef _WIN32
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(::fsync(descriptor));
  ::close(descriptor);
#endif
}

int process_id() {
#ifdef _WIN32
  return _getpid();
#else
  return static_cast<int>(::getpid());
#endif
}

/// A file in `directory` that did not exist before.
std::pair<File, std::filesystem::path> create_temporary(const std::filesystem::path& directory, const std::string& name) {
  for (int attempt = 0;; ++attempt) {
    std::filesystem::path path = directory / formatted(".{}.{}-{}.tmp", name, process_id(), attempt);
    errno = 0;
    if (File file{std::fopen(path.string().c_str(), "wbx")}) return {std::move(file), std::move(path)};
    if (errno != EEXIST || attempt == 1000) fail(ErrorCode::Io, "cannot write '{}': {}", path.string(), reason(errno));
  }
}

}  // namespace

bool sync_to_disk(std::FILE* file) {
#ifdef _WIN32
  return _commit(_fileno(file)) == 0;
#else
  return ::fsync(::fileno(file)) == 0;
#endif
}

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit) {
  errno = 0;
  File file{std::fopen(path.string().c_str(), "rb")};
  if (!file) {
    fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::NotFound : ErrorCode::Io, "cannot open '{}': {}", path.string(), reason(errno));
  }
  const auto too_large = [&] {
    fail(ErrorCode::LimitExceeded, "'{}' is larger than the {} bytes allowed", path.string(), limit);
  };
  std::error_code ignored;
  const std::uint64_t size = std::filesystem::is_regular_file(path, ignored) ? std::filesystem::file_size(path, ignored) : 0;
  if (!ignored && size > limit) too_large();
  std::vector<std::byte> bytes;
  // The size is a hint only: pipes have none, and a file may grow while it is read.
  std::vector<std::byte> piece;
  if (!ignored) bytes.reserve(size);
  piece.resize(std::size_t{1} << 16);
  for (;;) {
    const std::size_t got = std::fread(piece.data(), 1, piece.size(), file.get());
    if (got > limit - bytes.size()) too_large();
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));
    if (got < piece.size()) break;
  }
  if (std::ferror(file.get())) fail(ErrorCode::Io, "cannot read '{}': {}", path.string(), reason(errno));
  return bytes;
}

void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts,
                       Durable durable) {
  write_file_atomic(
      path,
      [&](const WriteBytes& write) {
        for (const auto part : parts) write(part);
      },
      durable);
}

void write_file_atomic(const std::filesystem::path& path, const std::function<void(const WriteBytes&)>& produce,
                       Durable durable) {
  std::error_code status_error;
  // Through a symbolic link the file it points at is replaced, not the link.
  const bool link = std::filesystem::is_symlink(path, status_error);
  const std::filesystem::path target = link ? std::filesystem::weakly_canonical(path, status_error) : path;
  const auto status = std::filesystem::status(target, status_error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorCode::Io, "cannot write '{}': it is no regular file", path.string());
  }
  const std::filesystem::path directory = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  auto [file, temporary] = create_temporary(directory, target.filename().string());

  const auto remove_temporary = [&] {
    file.reset();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  };
  const auto give_up = [&](int error) {
    remove_temporary();
    fail(ErrorCode::Io, "cannot write '{}': {}; the previous file, if any, is unchanged", path.string(), reason(error));
  };
  errno = 0;
  try {
    produce([&](std::span<const std::byte> part) {
      errno = 0;
      if (!part.empty() && std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) give_up(errno);
    });
  } catch (...) {
    remove_temporary();
    throw;
  }
  errno = 0;
  if (std::fflush(file.get()) != 0 || (durable == Durable::Yes && !sync_to_disk(file.get()))) give_up(errno);
  if (std::fclose(file.release()) != 0) give_up(errno);
  std::error_code renamed;
  std::filesystem::rename(temporary, target, renamed);
  if (renamed) give_up(renamed.value());
  if (durable == Durable::Yes) sync_directory(directory);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  write_file_atomic(path, std::span(&bytes, 1));
}

}  // namespace aeshna
