#pragma once
// Scans, orders and caches: the geometry of their kernel templates (lower_scan.cpp, lower_sort.cpp, lower_cache.cpp).
#include <cstdint>
#include <string>
#include <vector>

#include "base/caps.h"
#include "ir/kernel.h"
#include "ir/op.h"

namespace aeshna {

std::vector<OpDef> sort_ops();  ///< sort.cpp: sort topk, their passes, place; part of order_ops()

/// The attr axis of an op, checked against the rank of its first operand.
int infer_axis(const InferContext& ctx);
/// Error(DTypeMismatch) unless the operand is a float, i32 or u32.
void need_number(const InferContext& ctx, const TensorType& x);

std::vector<Candidate> lower_scan(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_sort_chunks(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_sort_merge(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_place(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_cache(const FusedKernel& kernel, const Caps& caps);

/// Elements that sort_chunks sorts at most in shared memory: 16 KiB, which every device has.
inline constexpr std::int64_t kSortChunk = 2048;
/// Elements that a workgroup of sort_merge makes: run is a multiple of it.
inline constexpr std::int64_t kMergeTile = 1024;

/// An axis in the middle: a dense tensor is [outer, extent, inner].
struct AxisSplit {
  std::int64_t outer = 1, extent = 1, inner = 1;
};
AxisSplit split_axis(const Shape& shape, std::int64_t axis);

}  // namespace aeshna
