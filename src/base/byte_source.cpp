#include "base/byte_source.h"

#include <fstream>

#include "base/byte_reader.h"
#include "base/fail.h"

namespace aeshna {

ByteSource::ByteSource(std::filesystem::path path) : name_(path.string()), path_(std::move(path)) {
  std::error_code error;
  size_ = std::filesystem::file_size(path_, error);
  if (!error) return;
  const bool absent = error == std::errc::no_such_file_or_directory;
  fail(absent ? ErrorCode::NotFound : ErrorCode::Io, "cannot read {}: {}", name_, error.message());
}

std::ifstream ByteSource::open() const {
  std::ifstream in(path_, std::ios::binary);
  if (!in) fail(ErrorCode::Io, "cannot open {}", name_);
  return in;
}

std::vector<std::byte> ByteSource::read(std::uint64_t offset, std::uint64_t count, std::string_view what) const {
  if (count == 0) return {};
  if (path_.empty()) {
    ByteReader reader(memory_, name_);
    reader.seek(offset, what);
    const std::span<const std::byte> part = reader.take(count, what);
    return {part.begin(), part.end()};
  }
  std::vector<std::byte> bytes(count);
  std::ifstream in = open();
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
  if (!in) fail(ErrorCode::Io, "{}: cannot read the {} bytes of {}", name_, count, what);
  return bytes;
}

}  // namespace aeshna
