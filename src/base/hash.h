#pragma once
// Hashes of cache keys and files. Not cryptographic: 128 bits against accident.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace aeshna {

/// Incremental 128-bit hash (two independent 64-bit lanes of xxHash64-like mixing; stable across machines and versions).
class Hasher {
 public:
  Hasher& add(std::span<const std::byte> bytes);
  Hasher& add(std::string_view text);  ///< length-prefixed
  Hasher& add(std::uint64_t value);
  using Key = std::array<std::uint64_t, 2>;
  Key key() const;
  std::string hex() const;  ///< key() as 32 digits
  std::uint64_t low() const { return a_; }

 private:
  std::uint64_t a_ = 0x9E3779B97F4A7C15ull, b_ = 0xC2B2AE3D27D4EB4Full;
};

}  // namespace aeshna
