// Elementwise arithmetic and activations.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/format.h"
#include "io/elementary.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void need_float(Context& c, std::size_t i = 0) {
  if (!is_float(c.dtype(i))) c.refuse(formatted("operand {} is {}; floats are supported", i, dtype_name(c.dtype(i))));
}

template <Value (*F)(Operand)>
Values unary(Context& c) {
  need_float(c);
  c.ignore("consumed_inputs");
  return {F(c.in(0))};
}

template <Value (*F)(Operand)>
Values unary_any(Context& c) {  // integers too
  return {in_wide(c.in(0), [](Value x) { return F(x); })};
}

/// Rounding leaves integers as they are.
template <Value (*F)(Operand)>
Values rounding(Context& c) {
  return {is_float(c.dtype(0)) ? F(c.in(0)) : c.in(0)};
}

template <Value (*F)(Operand, Operand)>
Values binary(Context& c) {
  const Value b = second_operand(c);
  if (c.dtype(0) == DType::boolean) c.refuse("arithmetic on booleans");
  return {in_wide(c.in(0), b, [](Value x, Value y) { return F(x, y); })};
}

template <Value (*F)(Operand, Operand)>
Values fold_all(Context& c) {
  if (c.inputs() == 0) c.refuse("no operands");
  c.ignore("consumed_inputs");
  Value y = c.in(0);
  for (std::size_t i = 1; i < c.inputs(); ++i) y = in_wide(y, c.in(i), [](Value a, Value b) { return F(a, b); });
  return {y};
}

Values mean_of(Context& c) { return {div(fold_all<add>(c)[0], static_cast<double>(c.inputs()))}; }

/// b^e for integers, exact modulo 2^32: a product for each bit of the exponent. Negative exponents give 0, or +-1 for such a base.
Value integer_power(Value base, Value exponent) {
  const auto dims = broadcast_shapes(base.shape(), exponent.shape());
  Value result = expand(base.graph().constant(1, base.dtype()), dims_of(dims));
  Value square = base, rest = maximum(exponent, 0);
  for (int bit = 0; bit < 31; ++bit) {
    result = mul(result, select(equal(mod(rest, 2), 1), square, 1));
    if (bit < 30) {
      square = mul(square, square);
      rest = div(rest, 2);
    }
  }
  const Value odd = equal(mod(exponent, 2), 1);
  const Value inverse =
      select(equal(base, 1), 1, select(equal(base, -1), select(odd, -1, mul(exponent, 0) + 1.0), mul(exponent, 0)));
  return select(less(exponent, 0), inverse, result);
}

/// The exponent as a small integer, if it is one for all elements.
std::optional<int> known_exponent(Context& c) {
  const Literal* e = c.if_known(1);
  if (e == nullptr || e->type().shape.elements() != 1 || e->type().shape.rank() > c.rank(0)) return std::nullopt;
  const double v = e->at(0);
  return v == std::floor(v) && v >= 1 && v <= 8 ? std::optional(static_cast<int>(v)) : std::nullopt;
}

Values power(Context& c) {
  const DType dtype = c.dtype(0);
  const Value base = c.in(0);
  if (const std::optional<int> n = known_exponent(c); n && (*n <= 3 || !is_float(dtype))) {
    c.ignore("broadcast"), c.ignore("axis");
    return {in_wide(base, [&](Value x) {
      Value y = x;
      for (int i = 1; i < *n; ++i) y = mul(y, x);
      return y;
    })};
  }
  const Value exponent = second_operand(c);
  if (is_float(dtype)) {
    const Value e = exponent.dtype() == dtype ? exponent : cast(exponent, dtype);
    return {pow(base, e)};
  }
  if (is_integer(exponent.dtype())) {
    const Value wide = widen(base);
    const Value e = widen(exponent);
    return {cast(integer_power(wide, e.dtype() == wide.dtype() ? e : cast(e, wide.dtype())), dtype)};
  }
  // An integer to a float: exact as long as the result has 24 bits; f32 holds no more of it either way.
  const Value y = pow(cast(base, DType::f32), exponent);
  const Value nearest = round(y);
  const Value whole = less(abs(y - nearest), mul(abs(y), 1e-5));  // 2^3 may come out as 7.9999995
  return {cast(select(whole, nearest, y), dtype)};
}

Values modulo(Context& c) {
  const bool truncated = c.flag("fmod", false);
  if (!truncated && is_float(c.dtype(0))) c.refuse("floats need fmod = 1");
  return {in_wide(c.in(0), c.in(1), [&](Value a, Value b) { return truncated ? fmod(a, b) : mod(a, b); })};
}

// ---- activations

Values leaky_relu(Context& c) {
  const double alpha = c.number("alpha", 0.01);
  c.ignore("consumed_inputs");
  const Value x = c.in(0);
  return {select(less(x, 0), mul(x, alpha), x)};
}

Values prelu(Context& c) {
  const Value x = c.in(0);
  Value slope = c.in(1);
  c.ignore("consumed_inputs");
  if (c.opset < 7 && slope.shape().rank() == 1 && x.shape().rank() > 1 &&
      slope.shape()[0] != 1) {  // one for each channel
    Ints dims(static_cast<std::size_t>(x.shape().rank()), 1);
    dims[1] = slope.shape()[0];
    slope = reshape(slope, dims);
  }
  return {in_wide(x, slope, [](Value a, Value b) { return select(less(a, 0), mul(a, b), a); })};
}

Values elu(Context& c) {
  const double alpha = c.number("alpha", 1);
  c.ignore("consumed_inputs");
  const Value x = c.in(0);
  return {select(less(x, 0), mul(expm1(minimum(x, 0)), alpha), x)};
}

Values selu(Context& c) {
  const double alpha = c.number("alpha", c.opset >= 6 ? 1.67326319217681884765625 : 1.6732);
  const double gamma = c.number("gamma", c.opset >= 6 ? 1.05070102214813232421875 : 1.0507);
  c.ignore("consumed_inputs");
  const Value x = c.in(0);
  return {mul(select(less(x, 0), mul(expm1(minimum(x, 0)), alpha), x), gamma)};
}

Values celu(Context& c) {
  const double alpha = c.number("alpha", 1);
  const Value x = c.in(0);
  return {maximum(x, 0) + mul(expm1(minimum(div(x, alpha), 0)), alpha)};
}

Values hard_sigmoid(Context& c) {
  const double alpha = c.number("alpha", 0.2), beta = c.number("beta", 0.5);
  c.ignore("consumed_inputs");
  return {clamp(add(mul(c.in(0), alpha), beta), 0, 1)};
}

Values hard_swish(Context& c) {
  const Value x = c.in(0);
  return {x * clamp(add(mul(x, 1.0 / 6), 0.5), 0, 1)};
}

Values thresholded_relu(Context& c) {
  const Value x = c.in(0);
  return {select(greater(x, c.number("alpha", 1)), x, 0)};
}

Values shrink(Context& c) {
  const double lambda = c.number("lambd", 0.5), bias = c.number("bias", 0);
  return {in_wide(c.in(0), [&](Value x) {
    const Value wide = is_float(x.dtype()) ? x : cast(x, DType::f32);
    return select(less(wide, -lambda), add(wide, bias), select(greater(wide, lambda), sub(wide, bias), 0));
  })};
}

Values softsign(Context& c) {
  const Value x = c.in(0);
  return {x / add(abs(x), 1)};
}

Values mish(Context& c) {
  const Value x = c.in(0);
  return {x * tanh(softplus(x))};
}

Values gelu(Context& c) {
  const std::string how = c.text("approximate", "none");
  if (how != "none" && how != "tanh") c.refuse("approximate is '" + how + "'");
  return {how == "tanh" ? gelu_tanh(c.in(0)) : gelu_erf(c.in(0))};
}

// ---- trigonometry, from what the vocabulary has

Values tangent(Context& c) { return {sin(c.in(0)) / cos(c.in(0))}; }
template <Value (*F)(Value)>
Values elementary(Context& c) {
  return {F(c.in(0))};
}

Values clip(Context& c) {
  c.ignore("consumed_inputs");
  std::optional<Value> low, high;
  const Value x = c.in(0);
  if (c.opset < 11) {
    const double lowest = c.number("min", -kInf), highest = c.number("max", kInf);
    if (lowest > -kInf) low = c.constant(lowest, x.dtype());
    if (highest < kInf) high = c.constant(highest, x.dtype());
  } else {
    low = c.maybe(1);
    high = c.maybe(2);
  }
  return {in_wide(x, [&](Value y) {
    if (low && high && is_float(y.dtype()) && low->shape().elements() == 1 && high->shape().elements() == 1 &&
        c.if_known(1) != nullptr && c.if_known(2) != nullptr && c.number(1, "min") <= c.number(2, "max")) {
      return clamp(y, reshaped(*low, {}), reshaped(*high, {}));
    }
    if (low) y = maximum(y, widen(*low));
    if (high) y = minimum(y, widen(*high));
    return y;
  })};
}

// ---- casts

Value cast_to(Context& c, Value x, DType to, int bits) {
  if (bits == 4) {  // wraps, as a cast to eight bits does; floats are rounded towards zero first
    const double low = to == DType::i8 ? -8 : 0;
    if (is_float(x.dtype())) {
      return cast(clamp(cast(x, DType::f32), low, low + 15), to);
    }
    return cast(add(mod(sub(widen(x), low), 16), low), to);
  }
  if (x.dtype() == to) return x;
  if (is_float(x.dtype()) && is_integer(to) && dtype_info(to).block_bytes < 4)
    return cast(cast(x, DType::i32), to);  // wraps
  (void)c;
  return cast(x, to);
}

Values cast_op(Context& c) {
  const DType to = c.element("to");
  c.ignore("saturate");  // of 8-bit floats, which are no results on a device
  if ((to == DType::f8e4m3 || to == DType::f8e5m2) && c.if_known(0) == nullptr)
    c.refuse("8-bit floats are not computed with");
  return {cast_to(c, c.in(0), to, c.result_bits)};
}

Values cast_like(Context& c) {
  c.ignore("saturate");
  const DType to = c.dtype(1);
  c.result_bits = c.bits(1);
  return {cast_to(c, c.in(0), to, c.result_bits)};
}

Values identity(Context& c) {
  c.result_bits = c.bits(0);
  return {c.in(0)};
}

Values dropout_op(Context& c) {
  c.number("ratio", 0.5);
  c.ignore("seed");
  c.ignore("consumed_inputs");
  if (c.opset < 7 && c.integer("is_test", 0) == 0 && c.wants(1)) c.refuse("the mask of opset 6");
  const Value x = c.in(0);
  if (c.opset >= 12 && c.has(2) && c.number(2, "training_mode") != 0) {
    const double ratio = c.has(1) ? c.number(1, "the ratio") : 0.5;
    if (!(ratio >= 0 && ratio < 1)) c.refuse(formatted("a ratio of {}", ratio));
    if (ratio > 0) {  // drawn by the session's own generator, anew in each step
      const Value kept = random_bernoulli(c.graph, x.shape(), 1 - ratio);
      return {select(kept, mul(x, 1 / (1 - ratio)), 0), kept};
    }
  }
  return {x, c.wants(1) ? c.filled(x.shape(), 1, c.opset >= 10 ? DType::boolean : x.dtype()) : Value()};
}

Values is_nan(Context& c) {
  const Value x = c.in(0);
  return {not_equal(x, x)};
}

Values is_inf(Context& c) {
  const bool negative = c.flag("detect_negative", true), positive = c.flag("detect_positive", true);
  const Value x = c.in(0);
  const Value infinite = logical_and(logical_not(is_finite(x)), equal(x, x));
  if (negative && positive) return {infinite};
  if (!negative && !positive) return {logical_and(infinite, logical_not(infinite))};
  return {logical_and(infinite, positive ? greater(x, 0) : less(x, 0))};
}

}  // namespace

std::span<const Op> math_ops() {
  static constexpr std::array table = {
      Op{"Abs", unary_any<abs>},
      Op{"Acos", elementary<acos_of>, 7},
      Op{"Acosh", elementary<acosh_of>, 9},
      Op{"Add", binary<add>},
      Op{"Asin", elementary<asin_of>, 7},
      Op{"Asinh", elementary<asinh_of>, 9},
      Op{"Atan", elementary<atan_of>, 7},
      Op{"Atanh", elementary<atanh_of>, 9},
      Op{"Cast", cast_op, 6},
      Op{"CastLike", cast_like, 15},
      Op{"Ceil", rounding<ceil>},
      Op{"Celu", celu, 12},
      Op{"Clip", clip},
      Op{"Cos", unary<cos>, 7},
      Op{"Cosh", elementary<cosh_of>, 9},
      Op{"Div", binary<div>},
      Op{"Dropout", dropout_op, 1, false},
      Op{"Elu", elu},
      Op{"Erf", unary<erf>, 9},
      Op{"Exp", unary<exp>},
      Op{"Floor", rounding<floor>},
      Op{"Gelu", gelu, 20},
      Op{"HardSigmoid", hard_sigmoid},
      Op{"HardSwish", hard_swish, 14},
      Op{"Identity", identity},
      Op{"IsInf", is_inf, 10},
      Op{"IsNaN", is_nan, 9},
      Op{"LeakyRelu", leaky_relu},
      Op{"Log", unary<log>},
      Op{"Max", fold_all<maximum>},
      Op{"Mean", mean_of},
      Op{"Min", fold_all<minimum>},
      Op{"Mish", mish, 18},
      Op{"Mod", modulo, 10},
      Op{"Mul", binary<mul>},
      Op{"Neg", unary_any<neg>},
      Op{"PRelu", prelu},
      Op{"Pow", power},
      Op{"Reciprocal", unary<recip>},
      Op{"Relu", unary_any<relu>},
      Op{"Round", unary<round>, 11},
      Op{"Selu", selu},
      Op{"Shrink", shrink, 9},
      Op{"Sigmoid", unary<sigmoid>},
      Op{"Sign", unary_any<sign>, 9},
      Op{"Sin", unary<sin>, 7},
      Op{"Sinh", elementary<sinh_of>, 9},
      Op{"Softplus", unary<softplus>},
      Op{"Softsign", softsign},
      Op{"Sqrt", unary<sqrt>},
      Op{"Sub", binary<sub>},
      Op{"Sum", fold_all<add>},
      Op{"Tan", tangent, 7},
      Op{"Tanh", unary<tanh>},
      Op{"ThresholdedRelu", thresholded_relu, 10},
  };
  return table;
}

}  // namespace aeshna::onnx
