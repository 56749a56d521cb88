#include "ir/access.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {

bool vector_access(const Access& access, std::size_t dim) {
  if (dim >= access.strides.size() || access.strides[dim] != 1 || access.offset % 4 != 0) return false;
  for (std::size_t d = 0; d < access.strides.size(); ++d) {
    if (d != dim && access.strides[d] % 4 != 0) return false;
  }
  return std::ranges::none_of(access.guards, [&](const Access::Guard& guard) { return guard.dim == dim; });
}

bool uniform_access(const Access& access, std::size_t dim) {
  return (dim >= access.strides.size() || access.strides[dim] == 0) &&
         std::ranges::none_of(access.guards, [&](const Access::Guard& guard) { return guard.dim == dim; });
}

ReductionLevels reduction_levels(const FusedKernel& kernel) {
  const auto& instrs = kernel.body.instrs;
  ReductionLevels result;
  result.outer.resize(instrs.size());
  result.level.resize(instrs.size());
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    bool outer = true;
    for (std::uint32_t arg : instr.args) {
      AESHNA_CHECK(arg < i);
      outer = outer && result.outer[arg];
      result.level[i] = std::max(result.level[i], result.level[arg]);
    }
    switch (instr.kind) {
      case Instr::Kind::Load:
      case Instr::Kind::Random:
        for (std::size_t d = kernel.outer_rank; d < kernel.space.size(); ++d)
          outer = outer && uniform_access(instr.access, d);
        break;
      case Instr::Kind::Index:
        outer = instr.dim < kernel.outer_rank;
        break;
      case Instr::Kind::Reduce:
        outer = true;
        result.levels = std::max(result.levels, ++result.level[i]);
        break;
      default:
        break;
    }
    result.outer[i] = outer;
  }
  return result;
}

std::int64_t points_of(std::span<const std::int64_t> extents) {
  std::int64_t points = 1;
  for (std::int64_t extent : extents) points = checked_mul(points, extent, "elements of an iteration space");
  return points;
}

void estimate(KernelSpec& spec) {
  const FusedKernel& kernel = *spec.fused;
  const auto points = static_cast<double>(points_of(kernel.space));
  for (const KernelOperand& operand : kernel.operands)
    spec.bytes += bytes_per_element(operand.dtype) * std::min(points, static_cast<double>(operand.elements));
  for (const Instr& instr : kernel.body.instrs) {
    if (instr.kind == Instr::Kind::Op) spec.flops += points * instr.op->pointwise.cost;
    if (instr.kind == Instr::Kind::Reduce) spec.flops += points;
    if (instr.kind == Instr::Kind::Random) spec.flops += points * 60;
  }
}

}  // namespace aeshna
