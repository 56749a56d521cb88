#pragma once
// The only way our own parsers touch the bytes of a file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna {

/// Little- or big-endian reads from a bounded span; every overrun is Error(CorruptFile) naming `what`, the offset and the file.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }
  const std::string& name() const { return name_; }
  void seek(std::uint64_t position, std::string_view what);
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);
  std::string_view text(std::uint64_t count, std::string_view what);
  std::uint8_t u8(std::string_view what);
  std::uint16_t u16(std::string_view what);
  std::uint32_t u32(std::string_view what);
  std::uint64_t u64(std::string_view what);
  std::uint32_t u32_big(std::string_view what);
  float f32(std::string_view what);
  [[noreturn]] void corrupt(std::string message) const;

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
  std::uint64_t position_ = 0;
};

/// Whole file; Error(Io/NotFound) names path and reason. `limit` bounds the size (Error(LimitExceeded)).
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit = UINT64_MAX);
enum class Durable : bool { No, Yes };  ///< No: not flushed to disk; for caches whose entries are verified when read
/// Writes to a temporary file in the same directory, flushes it to disk and renames it over `path`. On any failure (full disk
/// included) the old file is untouched, the temporary one is removed, and Error(Io) names path and reason.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts,
                       Durable durable = Durable::Yes);
void write_file_atomic(const std::filesystem::path& path, std::string_view text);
/// The same for what need not be in memory at once: `produce` hands over the bytes in order. What it throws leaves the old file too.
using WriteBytes = std::function<void(std::span<const std::byte>)>;
void write_file_atomic(const std::filesystem::path& path, const std::function<void(const WriteBytes&)>& produce,
                       Durable durable = Durable::Yes);
/// Asks the system to put what was flushed on the medium. False with errno set when it cannot.
bool sync_to_disk(std::FILE* file);

}  // namespace aeshna
