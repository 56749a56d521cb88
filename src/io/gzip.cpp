#include "io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "base/byte_reader.h"
#include "base/fail.h"

namespace aeshna {

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name, std::uint64_t limit) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK)
    fail(ErrorCode::OutOfMemory, "{}: zlib could not start", name);  // 16: gzip only
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, inflateEnd);

  std::vector<std::byte> result;
  std::array<std::byte, 1 << 16> block;
  std::size_t given = 0;  // input handed to zlib
  for (bool finished = false; !finished;) {
    if (stream.avail_in == 0 && given < bytes.size()) {
      const std::size_t count = std::min<std::size_t>(bytes.size() - given, std::numeric_limits<uInt>::max());
      stream.next_in =
          reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + given));  // zlib does not write it
      stream.avail_in = static_cast<uInt>(count);
      given += count;
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    const std::size_t produced = block.size() - stream.avail_out;
    if (produced > limit - result.size()) {
      fail(ErrorCode::LimitExceeded, "{}: more than {} bytes after decompression", name, limit);
    }
    result.insert(result.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(produced));

    const std::size_t consumed = given - stream.avail_in;
    if (status == Z_STREAM_END) {
      finished = consumed == bytes.size();
      // RFC 1952, 2.2: a file is a sequence of members.
      if (!finished && inflateReset(&stream) != Z_OK) fail(ErrorCode::Internal, "{}: zlib could not be reset", name);
    } else if (status == Z_BUF_ERROR || (status == Z_OK && produced == 0 && consumed == bytes.size())) {
      fail(ErrorCode::CorruptFile, "{}: the gzip data ends early, after {} bytes", name, bytes.size());
    } else if (status == Z_MEM_ERROR) {
      fail(ErrorCode::OutOfMemory, "{}: zlib is out of memory", name);
    } else if (status != Z_OK) {
      fail(ErrorCode::CorruptFile, "{}: bad gzip data near byte {}: {}", name, consumed,
           stream.msg != nullptr ? stream.msg : "not in gzip format");
    }
  }
  return result;
}

std::vector<std::byte> read_file_maybe_gzip(const std::filesystem::path& path, std::uint64_t limit) {
  std::vector<std::byte> bytes = read_file(path, limit);
  return is_gzip(bytes) ? gunzip(bytes, path.string(), limit) : bytes;
}

}  // namespace aeshna
