#include "base/hash.h"

#include <bit>
#include <cstring>

#include "base/format.h"

namespace aeshna {

namespace {
// The multipliers of xxHash64.
constexpr std::uint64_t kP1 = 0x9E3779B185EBCA87ull;
constexpr std::uint64_t kP2 = 0xC2B2AE3D27D4EB4Full;
constexpr std::uint64_t kP3 = 0x165667B19E3779F9ull;
constexpr std::uint64_t kP4 = 0x85EBCA77C2B2AE63ull;
constexpr std::uint64_t kP5 = 0x27D4EB2F165667C5ull;

void mix(std::uint64_t& a, std::uint64_t& b, std::uint64_t word) {
  a ^= std::rotl(word * kP2, 31) * kP1;
  a = std::rotl(a, 27) * kP1 + kP4;
  b = (b + word * kP3) * kP5;
  b ^= b >> 32;
  b = std::rotl(b, 17) * kP2;
}

std::uint64_t avalanche(std::uint64_t h) {
  h = (h ^ (h >> 33)) * kP2;
  h = (h ^ (h >> 29)) * kP3;
  return h ^ (h >> 32);
}
}  // namespace

Hasher& Hasher::add(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      mix(a_, b_, word);
    }
  }
  for (; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8 && at + i < bytes.size(); ++i) word |= static_cast<std::uint64_t>(bytes[at + i]) << (8 * i);
    mix(a_, b_, word);
  }
  mix(a_, b_, bytes.size());  // so that the last word's padding is no data
  return *this;
}

Hasher& Hasher::add(std::string_view text) {
  mix(a_, b_, text.size());
  return add(std::as_bytes(std::span(text)));
}

Hasher& Hasher::add(std::uint64_t value) {
  mix(a_, b_, value);
  return *this;
}

Hasher::Key Hasher::key() const { return {avalanche(a_ ^ std::rotl(b_, 32)), avalanche(b_ + kP1 * a_)}; }

std::string Hasher::hex() const {
  const Key k = key();
  return formatted("{:016x}{:016x}", k[0], k[1]);
}

}  // namespace aeshna
