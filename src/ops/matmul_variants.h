#pragma once
// The variants of the matrix product: one list each for tiles and for narrow products, from which lower_matmul chooses, and
// over which tests and benchmarks iterate.
#include <cstdint>
#include <span>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna {

/// matmul.glsl: a workgroup's tile of C and depth per step, a thread's share, copies of the tile in shared memory.
struct TileVariant {
  std::uint32_t bm, bn, bk, tm, tn, stages;
  std::uint32_t threads() const { return bm / tm * (bn / tn); }
  std::uint32_t shared_bytes() const { return stages * bk * (bm + bn) * 4; }
};

/// gemv.glsl: threads along the long operand and along the depth; of depth-contiguous operands long coordinates per thread, and pieces of the depth
/// that it reads at once.
struct GemvVariant {
  std::uint32_t tl, tk, ul, uk = 1;
  std::uint32_t threads() const { return tl * tk; }
};

/// Smallest first.
std::span<const TileVariant> tile_variants();
std::span<const GemvVariant> gemv_variants();

/// The spec of one variant with `parts` workgroups to each tile's sum, or why it cannot serve.
Candidate tile_candidate(const FusedKernel& kernel, const Caps& caps, const TileVariant& variant, std::uint32_t parts);
/// The same for a product with at most kGemvRows rows or columns.
Candidate gemv_candidate(const FusedKernel& kernel, const Caps& caps, const GemvVariant& variant, std::uint32_t parts);
inline constexpr std::int64_t kGemvRows = 8;

}  // namespace aeshna
