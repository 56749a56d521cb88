// Elementwise operations, activations, and quantization, which NNEF defines as rounding in place.
#include <array>
#include <cmath>
#include <numbers>

#include "io/elementary.h"
#include "io/nnef/operation.h"

namespace aeshna::nnef {
namespace {

template <Value (*F)(Operand)>
Results unary(Call& c) {
  return {F(c.tensor("x"))};
}

template <Value (*F)(Operand, Operand)>
Results binary(Call& c) {
  return {aligned(F, c.tensor("x"), c.tensor("y"))};
}

Results copy_op(Call& c) { return {c.tensor("x")}; }

Results power(Call& c) {
  const Value x = c.tensor("x");
  if (const std::optional<double> exponent = c.known("y")) {
    if (*exponent == 2) return {mul(x, x)};
    if (*exponent == 0.5) return {sqrt(x)};
    if (*exponent == -0.5) return {rsqrt(x)};
    if (*exponent == -1) return {recip(x)};
  }
  return {aligned(pow, x, c.tensor("y"))};
}

Results square(Call& c) {
  const Value x = c.tensor("x");
  return {mul(x, x)};
}
Results reciprocal_square(Call& c) {
  const Value x = c.tensor("x");
  return {recip(mul(x, x))};
}
Results log2_op(Call& c) { return {mul(log(c.tensor("x")), std::numbers::log2e)}; }
Results round_op(Call& c) { return {round_half_away(c.tensor("x"))}; }

Results select_op(Call& c) {
  Value condition = c.tensor("condition"), a = c.tensor("true_value"), b = c.tensor("false_value");
  const int rank = std::max({condition.shape().rank(), a.shape().rank(), b.shape().rank()});
  return {select(left_aligned(condition, rank), left_aligned(a, rank), left_aligned(b, rank))};
}

Results clamp_op(Call& c) { return {aligned(maximum, aligned(minimum, c.tensor("x"), c.tensor("b")), c.tensor("a"))}; }

// ---- functions that are no ops

Results tan_op(Call& c) {
  const Value x = c.tensor("x");
  return {sin(x) / cos(x)};
}
/// With e = exp(x) - 1: (e + e / (e + 1)) / 2, exact near 0; beyond 80 it is exp(x) / 2 in two factors, since e overflows first.
template <Value (*F)(Value)>
Results elementary(Call& c) {
  return {F(c.tensor("x"))};
}

// ---- activations

Value elu_of(Value x, double alpha) { return select(less(x, 0.0), mul(expm1(minimum(x, 0.0)), alpha), x); }
Results elu_op(Call& c) { return {elu_of(c.tensor("x"), c.number("alpha"))}; }
Results selu_op(Call& c) { return {mul(elu_of(c.tensor("x"), c.number("alpha")), c.number("lambda"))}; }
Results softabs_op(Call& c) {
  const Value x = c.tensor("x");
  return {sqrt(add(mul(x, x), c.number("epsilon")))};
}
Results prelu_op(Call& c) {
  Value x = c.tensor("x"), alpha = c.tensor("alpha");
  align(x, alpha);
  return {select(less(x, 0.0), mul(alpha, x), x)};
}
Results leaky_relu_op(Call& c) {
  const Value x = c.tensor("x");
  return {select(less(x, 0.0), mul(x, c.number("alpha")), x)};
}

Results add_n_op(Call& c) {
  const std::vector<Value> parts = c.tensors("x");
  if (parts.empty()) c.wrong("nothing to add");
  Value total = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].shape() != total.shape())
      c.wrong(formatted("shapes {} and {} differ", total.shape().to_string(), parts[i].shape().to_string()));
    total = total + parts[i];
  }
  return {total};
}

Results copy_n_op(Call& c) {
  const Value x = c.tensor("x");
  const std::int64_t times = c.integer("times");
  if (times < 1 || times > (1 << 16)) c.wrong(formatted("{} copies", times));
  return {make_array(std::vector<Any>(static_cast<std::size_t>(times), Any(x)))};
}

// ---- quantization

std::int64_t bits_of(const Call& c) {
  const std::int64_t bits = c.integer("bits");
  if (bits < 1 || bits > 24) c.refuse(formatted("{} bits; 1 to 24 can be computed in f32", bits));
  return bits;
}

/// x between low and high, on one of `levels` + 1 values that divide the range evenly.
Value on_levels(Value x, Value low, Value high, double levels) {
  const Value clamped = aligned(maximum, aligned(minimum, x, high), low);
  const Value range = left_aligned(aligned(sub, high, low), x.shape().rank());
  const Value base = left_aligned(low, x.shape().rank());
  const Value q = round_half_away(mul((clamped - base) / range, levels));
  return div(q, levels) * range + base;
}

Results min_max_linear_quantize(Call& c) {
  const double levels = std::exp2(bits_of(c)) - 1 - (c.flag("signed") && c.flag("symmetric") ? 1 : 0);
  if (levels < 1) c.wrong("no levels to quantize to");
  return {on_levels(c.tensor("x"), c.tensor("min"), c.tensor("max"), levels)};
}
Results linear_quantize(Call& c) {
  return {on_levels(c.tensor("x"), c.tensor("min"), c.tensor("max"), std::exp2(bits_of(c)) - 1)};
}

Results zero_point_linear_quantize(Call& c) {
  const std::int64_t bits = bits_of(c);
  const bool is_signed = c.flag("signed");
  const double high = std::exp2(is_signed ? bits - 1 : bits) - 1;
  const double low = !is_signed ? 0 : c.flag("symmetric") ? -high : -high - 1;
  const Value x = c.tensor("x");
  const Value scale = left_aligned(c.tensor("scale"), x.shape().rank());
  const Value zero = left_aligned(cast(c.tensor("zero_point"), DType::f32), x.shape().rank());
  return {(clamp(round_half_away(x / scale) + zero, low, high) - zero) * scale};
}

Results logarithmic_quantize(Call& c) {
  const double levels = std::exp2(bits_of(c)) - 1;
  const Value x = c.tensor("x");
  // A power of two must not become the next one because its logarithm is rounded up.
  const std::optional<double> known = c.known("max");
  const Value top =
      known ? c.graph.constant(std::ceil(std::log2(*known)))
            : left_aligned(ceil(sub(mul(log(c.tensor("max")), std::numbers::log2e), 1e-5)), x.shape().rank());
  const Value exponent = maximum(minimum(mul(log(abs(x)), std::numbers::log2e), top), sub(top, levels));
  return {mul(sign(x), exp(mul(round_half_away(exponent), std::numbers::ln2)))};
}

constexpr const char* kUnary = "(x: tensor<scalar>) -> (y: tensor<scalar>)";
constexpr const char* kBinary = "(x: tensor<scalar>, y: tensor<scalar>) -> (z: tensor<scalar>)";
constexpr const char* kCompare = "(x: tensor<scalar>, y: tensor<scalar>) -> (z: tensor<logical>)";
constexpr const char* kLogical = "(x: tensor<logical>, y: tensor<logical>) -> (z: tensor<logical>)";

}  // namespace

std::span<const Operation> pointwise_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"copy", "<?>(x: tensor<?>) -> (y: tensor<?>)", copy_op},
      {"neg", kUnary, unary<neg>},
      {"rcp", kUnary, unary<recip>},
      {"exp", kUnary, unary<exp>},
      {"log", kUnary, unary<log>},
      {"sin", kUnary, unary<sin>},
      {"cos", kUnary, unary<cos>},
      {"tan", kUnary, tan_op},
      {"sinh", kUnary, elementary<sinh_of>},
      {"cosh", kUnary, elementary<cosh_of>},
      {"tanh", kUnary, unary<tanh>},
      {"asin", kUnary, elementary<asin_of>},
      {"acos", kUnary, elementary<acos_of>},
      {"atan", kUnary, elementary<atan_of>},
      {"asinh", kUnary, elementary<asinh_of>},
      {"acosh", kUnary, elementary<acosh_of>},
      {"atanh", kUnary, elementary<atanh_of>},
      {"abs", kUnary, unary<abs>},
      {"sign", kUnary, unary<sign>},
      {"floor", kUnary, unary<floor>},
      {"ceil", kUnary, unary<ceil>},
      {"round", kUnary, round_op, "halves go away from zero"},
      {"sqr", kUnary, square},
      {"sqrt", kUnary, unary<sqrt>},
      {"rsqr", kUnary, reciprocal_square},
      {"rsqrt", kUnary, unary<rsqrt>},
      {"log2", kUnary, log2_op},
      {"not", "(x: tensor<logical>) -> (y: tensor<logical>)", unary<logical_not>},
      {"add", kBinary, binary<add>},
      {"sub", kBinary, binary<sub>},
      {"mul", kBinary, binary<mul>},
      {"div", kBinary, binary<div>},
      {"pow", kBinary, power},
      {"min", kBinary, binary<minimum>},
      {"max", kBinary, binary<maximum>},
      {"lt", kCompare, binary<less>},
      {"gt", kCompare, binary<greater>},
      {"le", kCompare, binary<less_equal>},
      {"ge", kCompare, binary<greater_equal>},
      {"eq", kCompare, binary<equal>},
      {"ne", kCompare, binary<not_equal>},
      {"and", kLogical, binary<logical_and>},
      {"or", kLogical, binary<logical_or>},
      {"select",
       "<?>(condition: tensor<logical>, true_value: tensor<?>, false_value: tensor<?>) -> (output: tensor<?>)",
       select_op},
      {"clamp", "(x: tensor<scalar>, a: tensor<scalar>, b: tensor<scalar>) -> (y: tensor<scalar>)", clamp_op},
      {"relu", kUnary, unary<relu>},
      {"sigmoid", kUnary, unary<sigmoid>},
      {"softplus", kUnary, unary<softplus>},
      {"silu", kUnary, unary<silu>},
      {"gelu", kUnary, unary<gelu_erf>, "the exact function, not an approximation of it"},
      {"elu", "(x: tensor<scalar>, alpha: scalar = 1.0) -> (y: tensor<scalar>)", elu_op},
      {"selu", "(x: tensor<scalar>, alpha: scalar = 1.67326319, lambda: scalar = 1.05070102) -> (y: tensor<scalar>)",
       selu_op},
      {"softabs", "(x: tensor<scalar>, epsilon: scalar) -> (y: tensor<scalar>)", softabs_op},
      {"prelu", "(x: tensor<scalar>, alpha: tensor<scalar>) -> (y: tensor<scalar>)", prelu_op},
      {"leaky_relu", "(x: tensor<scalar>, alpha: scalar) -> (y: tensor<scalar>)", leaky_relu_op},
      {"add_n", "(x: tensor<scalar>[]) -> (y: tensor<scalar>)", add_n_op},
      {"copy_n", "<?>(x: tensor<?>, times: integer) -> (y: tensor<?>[])", copy_n_op},
      {"linear_quantize",
       "(x: tensor<scalar>, min: tensor<scalar>, max: tensor<scalar>, bits: integer) -> (y: tensor<scalar>)",
       linear_quantize, "1 to 24 bits"},
      {"min_max_linear_quantize",
       "(x: tensor<scalar>, min: tensor<scalar>, max: tensor<scalar>, bits: integer, signed: logical, symmetric: "
       "logical) -> (y: tensor<scalar>)",
       min_max_linear_quantize, "1 to 24 bits"},
      {"zero_point_linear_quantize",
       "(x: tensor<scalar>, zero_point: tensor<integer>, scale: tensor<scalar>, bits: integer, signed: logical, "
       "symmetric: logical) -> (y: "
       "tensor<scalar>)",
       zero_point_linear_quantize, "1 to 24 bits"},
      {"logarithmic_quantize", "(x: tensor<scalar>, max: tensor<scalar>, bits: integer) -> (y: tensor<scalar>)",
       logarithmic_quantize, "1 to 24 bits"},
  });
  return table;
}

}  // namespace aeshna::nnef
