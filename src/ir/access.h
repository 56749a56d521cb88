#pragma once
// Facts about accesses and bodies that lowering (ops/) and code generation share.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/kernel.h"

namespace aeshna {

/// True if 4 consecutive coordinates of `dim` can be moved as one vector through this access: stride 1 there, every
/// other stride and the offset divisible by 4, no guard on `dim`.
bool vector_access(const Access& access, std::size_t dim);
/// True if the access does not depend on `dim` (stride 0 and no guard on it).
bool uniform_access(const Access& access, std::size_t dim);

/// Extents of the space of one of a kernel's bodies.
std::vector<std::int64_t> body_space(const FusedKernel& kernel, const Body& body);
/// Matmul: number of leading dimensions before rows and columns.
std::size_t batch_rank(const FusedKernel& kernel);

/// Matmul: the last contracted dimension (`along_k`) or the last row (column) dimension in the space of `a` (`b`).
std::size_t product_vector_dim(const FusedKernel& kernel, bool is_a, bool along_k);

/// First and last element that an access touches over a space; nullopt when it touches none. Exact for dense tensors seen through
/// windows: where a guard's sum is part of the address, it bounds it.
struct Reach {
  std::int64_t low, high;
};
std::optional<Reach> reach(const Access& access, std::span<const std::int64_t> space);

/// Calls visit(body, operand, access) for every load and store.
template <class Kernel, class Visit>
void each_access(Kernel& kernel, Visit visit) {
  for (auto* body : {&kernel.a, &kernel.b, &kernel.body}) {
    for (auto& instr : body->instrs) {
      if (instr.kind == Instr::Kind::Load) visit(*body, instr.operand, instr.access);
    }
    for (auto& store : body->stores) visit(*body, store.operand, store.access);
  }
}
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
