#include "base/philox.h"

#include <cmath>
#include <numbers>

#include "base/fail.h"

namespace aeshna {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

float uniform_from_bits(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

double normal_from_bits(std::uint32_t word0, std::uint32_t word1) {
  const double radius = 1.0 - static_cast<double>(uniform_from_bits(word0));  // in (0, 1], exact in f32 too
  const double turn = uniform_from_bits(word1);
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * turn);
}

std::uint32_t PhiloxStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32_10({static_cast<std::uint32_t>(index_), static_cast<std::uint32_t>(index_ >> 32),
                            static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                           {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    ++index_;
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

double PhiloxStream::next_uniform() { return uniform_from_bits(next_u32()); }

double PhiloxStream::next_normal() {
  const std::uint32_t word0 = next_u32();
  return normal_from_bits(word0, next_u32());
}

std::uint64_t PhiloxStream::next_below(std::uint64_t n) {
  AESHNA_CHECK(n > 0);
  const std::uint64_t threshold = (0 - n) % n;  // 2^64 mod n: words below it would favour small results
  for (;;) {
    const std::uint64_t low = next_u32();
    const std::uint64_t word = low | static_cast<std::uint64_t>(next_u32()) << 32;
    if (word >= threshold) return word % n;
  }
}

}  // namespace aeshna
