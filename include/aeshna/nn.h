#pragma once
// Layers: small functions that create named parameters and append ops.
#include <cstdint>
#include <string_view>
#include <vector>

#include "aeshna/ops.h"

namespace aeshna::nn {

struct LinearOptions {
  bool bias = true;
  std::optional<Init> init = {};
};
/// Parameters "<name>.weight" [out, in] and "<name>.bias" [out].
Value linear(Value x, std::int64_t out, std::string_view name, LinearOptions options = {}, Loc loc = Loc::current());

/// Linear + ReLU for every hidden width, then a linear of `out`. Parameters "<name>.<i>.weight" and ".bias".
Value mlp(Value x, const std::vector<std::int64_t>& hidden, std::int64_t out, std::string_view name, Loc loc = Loc::current());

}  // namespace aeshna::nn
