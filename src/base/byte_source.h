#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aeshna {

/// A file whose parts are read when they are asked for, or bytes in memory that stand for one.
class ByteSource {
 public:
  explicit ByteSource(std::filesystem::path path);  ///< Error(NotFound/Io) with path and reason
  ByteSource(std::vector<std::byte> bytes, std::string name)
      : name_(std::move(name)), memory_(std::move(bytes)), size_(memory_.size()) {}
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> memory() const { return memory_; }  ///< empty for a file
  std::ifstream open() const;                                    ///< a file's bytes from its beginning
  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t count, std::string_view what) const;

 private:
  std::string name_;
  std::filesystem::path path_;     ///< empty: in memory
  std::vector<std::byte> memory_;  ///< the whole file, in memory only
  std::uint64_t size_ = 0;
};

}  // namespace aeshna
