#pragma once
// Between a width and its heads, by views: nothing is copied where attention reads and writes.
#include "aeshna/nn.h"

namespace aeshna::nn {

/// x [B, S, heads * head_dim] -> [B, heads, S, head_dim].
inline Value split_heads(Value x, std::int64_t heads, std::int64_t head_dim, const Loc& loc) {
  const Value split = reshape({x, loc}, {x.shape()[0], x.shape()[1], heads, head_dim}, loc);
  return permute({split, loc}, {0, 2, 1, 3}, loc);
}

/// x [B, heads, S, head_dim] -> [B, S, heads * head_dim].
inline Value join_heads(Value x, const Loc& loc) {
  const Shape& shape = x.shape();
  return reshape({permute({x, loc}, {0, 2, 1, 3}, loc), loc}, {shape[0], shape[2], shape[1] * shape[3]}, loc);
}

}  // namespace aeshna::nn
