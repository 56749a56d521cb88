// Reductions along axes, which stay with an extent of 1. Without axes nothing is reduced.
#include <algorithm>
#include <array>

#include "io/nnef/operation.h"

namespace aeshna::nnef {
namespace {

template <class F>
Value reduced(Call& c, Value x, F f) {
  const Ints axes = c.axes("axes", x.shape().rank());
  return axes.empty() ? x : f(x, axes);
}

Value sum_of(Value x, const Ints& axes) { return sum(x, axes, true); }
Value mean_of(Value x, const Ints& axes) { return mean(x, axes, true); }
Value max_of(Value x, const Ints& axes) { return reduce_max(x, axes, true); }
Value min_of(Value x, const Ints& axes) { return reduce_min(x, axes, true); }

template <Value (*F)(Value, const Ints&)>
Results reduction(Call& c) {
  return {reduced(c, c.tensor("input"), F)};
}

Results sum_op(Call& c) { return {reduced(c, c.tensor("input"), c.flag("normalize") ? mean_of : sum_of)}; }

template <Value (*F)(Value, const Ints&)>
Results logical_reduction(Call& c) {
  return {reduced(c, c.tensor("input"),
                  [](Value x, const Ints& axes) { return cast(F(cast(x, DType::i32), axes), DType::boolean); })};
}

/// The position counts row-major through the axes, which must follow each other for that.
template <Value (*F)(Operand, std::int64_t, bool)>
Results position(Call& c) {
  const Value x = c.tensor("input");
  const Ints axes = c.axes("axes", x.shape().rank());
  if (axes.empty()) c.wrong("no axes to look along");
  for (std::size_t i = 1; i < axes.size(); ++i) {
    if (axes[i] != axes[i - 1] + 1) c.refuse("axes that do not follow each other");
  }
  Ints joined = dims_of(x.shape()), kept = joined;
  for (const std::int64_t axis : axes) kept[static_cast<std::size_t>(axis)] = 1;
  joined.erase(joined.begin() + axes.front(), joined.begin() + axes.back() + 1);
  joined.insert(joined.begin() + axes.front(), -1);
  return {reshape(F(reshape(x, joined), axes.front(), true), kept)};
}

Results moments_op(Call& c) {
  const Value x = c.tensor("input"), average = reduced(c, x, mean_of), apart = x - average;
  return {average, reduced(c, mul(apart, apart), mean_of)};
}

Results softmax_op(Call& c) {
  const Value x = c.tensor("x");
  const Ints axes = c.axes("axes", x.shape().rank());
  if (axes.empty()) c.wrong("softmax along no axis");
  if (axes.size() == 1) return {softmax(x, axes[0])};
  const Value e = exp(x - max_of(x, axes));
  return {e / sum_of(e, axes)};
}

constexpr const char* kReduce = "(input: tensor<scalar>, axes: integer[]) -> (output: tensor<scalar>)";
constexpr const char* kLogical = "(input: tensor<logical>, axes: integer[]) -> (output: tensor<logical>)";
constexpr const char* kPosition = "(input: tensor<scalar>, axes: integer[]) -> (output: tensor<integer>)";

}  // namespace

std::span<const Operation> reduce_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"sum_reduce", "(input: tensor<scalar>, axes: integer[], normalize: logical = false) -> (output: tensor<scalar>)",
       sum_op},
      {"mean_reduce", kReduce, reduction<mean_of>},
      {"max_reduce", kReduce, reduction<max_of>},
      {"min_reduce", kReduce, reduction<min_of>},
      {"any_reduce", kLogical, logical_reduction<max_of>},
      {"all_reduce", kLogical, logical_reduction<min_of>},
      {"argmax_reduce", kPosition, position<argmax>, "axes that follow each other"},
      {"argmin_reduce", kPosition, position<argmin>, "axes that follow each other"},
      {"moments", "(input: tensor<scalar>, axes: integer[]) -> (mean: tensor<scalar>, variance: tensor<scalar>)",
       moments_op},
      {"softmax", "(x: tensor<scalar>, axes: integer[] = [1]) -> (y: tensor<scalar>)", softmax_op},
  });
  return table;
}

}  // namespace aeshna::nnef
