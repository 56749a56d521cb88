#pragma once
// The one place where a launch meets the device's limits.
#include <array>
#include <cstdint>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna::gpu {

/// Smallest fold (x, y, z) of a linear count of workgroups with x*y*z >= count and every factor within the limits; kernels
/// return for linear ids >= count (push word 0). {0,0,0} for 0: the caller skips the dispatch.
/// Throws Error(LimitExceeded) naming the limit when it cannot be folded or does not fit 32 bits.
std::array<std::uint32_t, 3> fold_groups(std::uint64_t count, const Caps& caps);

/// Throws Error(LimitExceeded) that names kernel, limit, needed and allowed: workgroup size, shared memory, push bytes,
/// number of bindings, descriptor ranges.
void check_launch(const KernelSpec& spec, std::uint32_t push_bytes, std::uint32_t bindings, const Caps& caps);

}  // namespace aeshna::gpu
