#pragma once
// The kernels behind scatter (ops/scatter.cpp): sorting keys, and adding runs of equal keys to their destinations.
#include <cstdint>
#include <vector>

#include "ir/op.h"

namespace aeshna {

constexpr std::int64_t kRadixBits = 4, kRadixDigits = 1 << kRadixBits;
constexpr std::int64_t kRadixTile = 4096;  ///< keys of one workgroup
constexpr std::int64_t kOrderTile = 1024;  ///< keys that index_order compares with at a time
constexpr std::int64_t kOrderSplit = 8;    ///< threads that count for one key

/// Slots of the sorted order that one invocation of scatter_runs walks at most: near the square root, so that neither a run within
/// a chunk nor the chunks of a long run take long.
std::int64_t scatter_chunk(std::int64_t items);

/// index_order radix_offsets radix_move scatter_runs scatter_joins
std::vector<OpDef> scatter_kernel_ops();

}  // namespace aeshna
