#pragma once
// First values of parameters and states.
#include <cstdint>

#include "aeshna/graph.h"

namespace aeshna {

/// Value of a parameter or state leaf before the first step, from its "init" attributes. Random kinds are drawn from
/// Philox keyed by `seed`, on a stream given by the leaf's name alone, so that neither the order of construction nor
/// other leaves matter. fan_in = product of dims[1:], fan_out = dims[0] * product of dims[2:]. The state
/// "aeshna.seed" is the seed itself.
Literal initial_value(const Node& leaf, std::uint64_t seed);

}  // namespace aeshna
