// Normalization, and operations that have no function: leaves, which the importer makes, and regions, which are not supported.
#include <array>

#include "io/nnef/window.h"

namespace aeshna::nnef {
namespace {

Value local_average(Call& c, const Value& x) {
  return box(c, x, windows_around(c, c.ints("size"), dims_of(x.shape())), Border::Constant, true);
}

/// input / max(sigma + bias, epsilon)
Value divided(Call& c, const Value& x, Value sigma) {
  if (const double bias = c.number("bias"); bias != 0) sigma = add(sigma, bias);
  return x / maximum(sigma, c.number("epsilon"));
}

Results local_response(Call& c) {
  const Value x = c.tensor("input");
  const Value sigma = add(mul(local_average(c, mul(x, x)), c.number("alpha")), c.number("bias"));
  return {x / pow(sigma, c.number("beta"))};
}
Results local_mean(Call& c) {
  const Value x = c.tensor("input");
  return {x - local_average(c, x)};
}
Results local_variance(Call& c) {
  const Value x = c.tensor("input");
  return {divided(c, x, sqrt(local_average(c, mul(x, x))))};
}
Results local_contrast(Call& c) {
  const Value x = c.tensor("input"), centered = x - local_average(c, x);
  return {divided(c, centered, sqrt(local_average(c, mul(centered, centered))))};
}

Value summed(Call& c, const Value& x) {
  const Ints axes = c.axes("axes", x.shape().rank());
  return axes.empty() ? x : sum(x, axes, true);
}
Results l1_normalization(Call& c) {
  const Value x = c.tensor("input");
  return {divided(c, x, summed(c, abs(x)))};
}
Results l2_normalization(Call& c) {
  const Value x = c.tensor("input");
  return {divided(c, x, sqrt(summed(c, mul(x, x))))};
}

/// Statistics per channel, written [1, C], are what batch_norm takes; others are computed as they are defined.
Results batch_normalization(Call& c) {
  const Value x = c.tensor("input");
  std::array<Value, 4> stats = {c.tensor("mean"), c.tensor("variance"), c.tensor("scale"), c.tensor("offset")};
  const double epsilon = c.number("epsilon");
  const int rank = x.shape().rank();
  bool per_channel = rank >= 2 && epsilon > 0;
  for (const Value& s : stats)
    per_channel = per_channel && s.shape().rank() == 2 && s.shape()[0] == 1 && s.shape()[1] == x.shape()[1];
  if (per_channel) {
    for (Value& s : stats) s = reshape(s, {x.shape()[1]});
    return {batch_norm(x, stats[0], stats[1], stats[2], stats[3], epsilon)};
  }
  for (Value& s : stats) {
    if (s.shape().rank() > rank)
      c.wrong(formatted("statistics of {} for {}", s.shape().to_string(), x.shape().to_string()));
    s = left_aligned(s, rank);
  }
  return {(x - stats[0]) * stats[2] / sqrt(add(stats[1], epsilon)) + stats[3]};
}

constexpr const char* kByAxes =
    "(input: tensor<scalar>, axes: integer[], bias: scalar = 0.0, epsilon: scalar = 0.0) -> (output: tensor<scalar>)";
constexpr const char* kBySize =
    "(input: tensor<scalar>, size: integer[], bias: scalar = 0.0, epsilon: scalar = 0.0) -> (output: tensor<scalar>)";
constexpr const char* kRegions = "no op for regions of interest";

#define NNEF_REGIONS \
  "(input: tensor<scalar>, rois: tensor<scalar>, batch_index: tensor<integer>, output_size: integer[]"

}  // namespace

std::span<const Operation> norm_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"local_response_normalization",
       "(input: tensor<scalar>, size: integer[], alpha: scalar = 1.0, beta: scalar = 0.5, bias: scalar = 1.0) -> "
       "(output: tensor<scalar>)",
       local_response},
      {"local_mean_normalization", "(input: tensor<scalar>, size: integer[]) -> (output: tensor<scalar>)", local_mean},
      {"local_variance_normalization", kBySize, local_variance},
      {"local_contrast_normalization", kBySize, local_contrast},
      {"l1_normalization", kByAxes, l1_normalization},
      {"l2_normalization", kByAxes, l2_normalization},
      {"batch_normalization",
       "(input: tensor<scalar>, mean: tensor<scalar>, variance: tensor<scalar>, offset: tensor<scalar>, scale: "
       "tensor<scalar>, epsilon: scalar) -> (output: "
       "tensor<scalar>)",
       batch_normalization},
  });
  return table;
}

std::span<const Operation> region_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"avg_roi_pool", NNEF_REGIONS ") -> (output: tensor<scalar>)", nullptr, kRegions},
      {"max_roi_pool", NNEF_REGIONS ") -> (output: tensor<scalar>)", nullptr, kRegions},
      {"roi_resample", NNEF_REGIONS ", method: string = 'symmetric') -> (output: tensor<scalar>)", nullptr, kRegions},
      {"avg_roi_align",
       NNEF_REGIONS ", sampling_rate: integer[], resize_method: string = 'symmetric') -> (output: tensor<scalar>)",
       nullptr, kRegions},
      {"max_roi_align",
       NNEF_REGIONS ", sampling_rate: integer[], resize_method: string = 'symmetric') -> (output: tensor<scalar>)",
       nullptr, kRegions},
  });
  return table;
}

std::span<const Operation> leaf_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"external", "<? = scalar>(shape: integer[]) -> (output: tensor<?>)", nullptr, "an input of the graph", true},
      {"variable", "<? = scalar>(shape: integer[], label: string) -> (output: tensor<?>)", nullptr,
       "a parameter, from LABEL.dat", true},
      {"constant", "<? = scalar>(shape: integer[], value: ?[]) -> (output: tensor<?>)", nullptr, "", true},
      {"update", "<?>(variable: tensor<?>, value: tensor<?>) -> (result: tensor<?>)", nullptr,
       "the variable has the value from the next step on", true},
  });
  return table;
}

}  // namespace aeshna::nnef
