#pragma once
// Facts about accesses and bodies that lowering (ops/) and code generation share.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/kernel.h"

namespace aeshna {

/// True if 4 consecutive coordinates of `dim` can be moved as one vector through this access: stride 1 there, every
/// other stride and the offset divisible by 4, no guard on `dim`.
bool vector_access(const Access& access, std::size_t dim);
/// True if the access does not depend on `dim` (stride 0 and no guard on it).
bool uniform_access(const Access& access, std::size_t dim);

/// The same of a Load of `body`, with what its indices add; `dim` is never an outer dimension of a Reduction.
bool vector_load(const Body& body, const Instr& load, std::size_t dim);
bool uniform_load(const Body& body, const Instr& load, std::size_t dim);

/// How the instructions of a Reduction's body depend on its space.
struct ReductionLevels {
  std::vector<bool> outer;           ///< per instruction: depends on inner coordinates through Reduce alone
  std::vector<std::uint32_t> level;  ///< per instruction: number of Reduce on its deepest path, itself included
  std::uint32_t levels = 0;          ///< number of passes that reduce
};
ReductionLevels reduction_levels(const FusedKernel& kernel);

/// Product of extents (checked).
std::int64_t points_of(std::span<const std::int64_t> extents);

/// Fills KernelSpec.flops and bytes: each operand moved once (or once per point if that is less), each op counted by
/// its cost.
void estimate(KernelSpec& spec);

}  // namespace aeshna
