#pragma once
// Philox4x32-10 (Salmon et al., SC'11): the one random generator, the same on CPU and GPU.
#include <array>
#include <cstdint>

namespace aeshna {

/// Four 32-bit words for (counter, key).
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);
/// 24 high bits of a word as a float in [0, 1).
float uniform_from_bits(std::uint32_t word);
/// Box-Muller of two words.
double normal_from_bits(std::uint32_t word0, std::uint32_t word1);

/// A host stream: key = seed, counter = (index, 0, stream low, stream high).
class PhiloxStream {
 public:
  PhiloxStream(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  std::uint32_t next_u32();
  double next_uniform();                       ///< [0, 1), 24 bits
  double next_normal();
  std::uint64_t next_below(std::uint64_t n);   ///< unbiased, n > 0

 private:
  std::uint64_t seed_, stream_;
  std::uint64_t index_ = 0;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace aeshna
