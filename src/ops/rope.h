#pragma once
// The angles of rotary position embedding.
#include <cstdint>
#include <source_location>
#include <vector>

#include "aeshna/ops.h"

namespace aeshna {

/// Radians per position of each of the rotary_dim / 2 pairs, and the factor on what is rotated (YaRN's attention scaling).
struct RopeFrequencies {
  std::vector<double> frequencies;
  double magnitude = 1;
};
RopeFrequencies rope_frequencies(std::int64_t rotary_dim, const RopeOptions& options,
                                 const std::source_location& line = std::source_location::current());

}  // namespace aeshna
