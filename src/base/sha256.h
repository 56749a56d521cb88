#pragma once
// SHA-256 (FIPS 180-4), by which a result file names the data that it was measured with.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace aeshna {

class Sha256 {
 public:
  Sha256& add(std::span<const std::byte> bytes);
  /// 64 digits. Nothing may be added afterwards.
  std::string hex();

 private:
  void block(const std::byte* bytes);
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};
  std::uint64_t length_ = 0;
};

/// Of a whole file, which is read in pieces. Error(NotFound or Io) names it.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace aeshna
