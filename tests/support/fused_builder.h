#pragma once
// Fused kernels by hand, for kernel tests.
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/device_types.h"
#include "ir/kernel.h"
#include "ir/op.h"

namespace aeshna::test {

/// Row-major strides of a dense tensor with these extents.
inline std::vector<std::int64_t> dense(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  return strides;
}

struct FusedBuilder {
  using Id = std::uint32_t;
  FusedKernel kernel;
  Body* body = &kernel.body;

  static FusedBuilder pointwise(std::vector<std::int64_t> space) {
    FusedBuilder builder;
    builder.kernel.kind = FusedKernel::Kind::Pointwise;
    builder.kernel.space = std::move(space);
    return builder;
  }
  static FusedBuilder reduction(std::vector<std::int64_t> outer, const std::vector<std::int64_t>& inner) {
    FusedBuilder builder = pointwise(std::move(outer));
    builder.kernel.kind = FusedKernel::Kind::Reduction;
    builder.kernel.outer_rank = static_cast<std::uint32_t>(builder.kernel.space.size());
    builder.kernel.space.insert(builder.kernel.space.end(), inner.begin(), inner.end());
    return builder;
  }
  FusedBuilder() = default;
  FusedBuilder(FusedBuilder&& other) noexcept : kernel(std::move(other.kernel)) {}

  Id operand(DType dtype, std::int64_t elements, bool written = false) {
    kernel.operands.push_back(
        {.value = {}, .dtype = dtype, .elements = elements, .written = written, .in_place_of = {}});
    return static_cast<Id>(kernel.operands.size() - 1);
  }
  Id push(Instr instr) {
    body->instrs.push_back(std::move(instr));
    return static_cast<Id>(body->instrs.size() - 1);
  }
  Id load(Id operand, Access access) {
    Instr instr;
    instr.kind = Instr::Kind::Load;
    instr.dtype = compute_dtype(kernel.operands[operand].dtype);
    instr.operand = operand;
    instr.access = std::move(access);
    return push(std::move(instr));
  }
  /// A new operand that is dense over the whole space.
  Id input(DType dtype = DType::f32) {
    return load(operand(dtype, points()), {.strides = dense(kernel.space), .guards = {}});
  }
  Id literal(double value, DType dtype = DType::f32) {
    Instr instr;
    instr.literal = value;
    instr.dtype = dtype;
    return push(std::move(instr));
  }
  Id index(std::uint32_t dim, std::int64_t stride = 1, std::int64_t offset = 0) {
    Instr instr;
    instr.kind = Instr::Kind::Index;
    instr.dtype = DType::i32;
    instr.dim = dim;
    instr.access = {.strides = {stride}, .offset = offset, .guards = {}};
    return push(std::move(instr));
  }
  Id op(std::string_view name, std::vector<Id> args, DType dtype = DType::f32) {
    Instr instr;
    instr.kind = Instr::Kind::Op;
    instr.op = &find_op(name);
    instr.dtype = dtype;
    instr.args = std::move(args);
    return push(std::move(instr));
  }
  Id reduce(ReduceKind kind, Id arg, DType dtype = DType::f32) {
    Instr instr;
    instr.kind = Instr::Kind::Reduce;
    instr.reduce = kind;
    instr.dtype = dtype;
    instr.args = {arg};
    return push(std::move(instr));
  }
  void store(Id operand, Id value, Access access, bool outer = false) {
    kernel.body.stores.push_back({.operand = operand, .value = value, .access = std::move(access), .outer = outer});
  }
  /// A new operand that is dense over the whole space (or over the outer one).
  Id output(Id value, bool outer = false, std::optional<DType> dtype = {}) {
    const std::vector<std::int64_t> extents(kernel.space.begin(),
                                            outer ? kernel.space.begin() + kernel.outer_rank : kernel.space.end());
    std::int64_t elements = 1;
    for (std::int64_t extent : extents) elements *= extent;
    const Id result = operand(dtype.value_or(kernel.body.instrs[value].dtype), elements, true);
    store(result, value, {.strides = dense(extents), .guards = {}}, outer);
    return result;
  }
  std::int64_t points() const {
    std::int64_t points = 1;
    for (std::int64_t extent : kernel.space) points *= extent;
    return points;
  }
};

}  // namespace aeshna::test
