#include "io/elementary.h"

#include <numbers>

#include "aeshna/ops.h"

namespace aeshna {

namespace {
constexpr double kHuge = 1e9;  ///< from here on sqrt(x^2 +- 1) is |x|, and x^2 is still far from the largest f32
}

/// (e + e / (e + 1)) / 2 with e = expm1 |x|, exact near 0; far out e^(|x| / 2) squared, which overflows no earlier than the result.
Value sinh_of(Value x) {
  const Value size = abs(x), e = expm1(minimum(size, 80.0));
  const Value half = exp(mul(size, 0.5));
  return mul(sign(x), select(less(size, 80.0), mul(e + e / add(e, 1.0), 0.5), mul(mul(half, 0.5), half)));
}

Value cosh_of(Value x) {
  const Value half = exp(mul(abs(x), 0.5)), small = recip(half);
  return mul(half, 0.5) * half + mul(small, 0.5) * small;
}

/// log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), exact near 0; far out log |x| + log 2.
Value asinh_of(Value x) {
  const Value size = abs(x), near = minimum(size, kHuge), squared = mul(near, near);
  const Value small = log1p(near + squared / add(sqrt(add(squared, 1.0)), 1.0));
  return mul(sign(x), select(less(size, kHuge), small, add(log(size), std::numbers::ln2)));
}

/// log1p(t + sqrt(2 t + t^2)) with t = x - 1, exact near 1; far out log x + log 2.
Value acosh_of(Value x) {
  const Value t = sub(x, 1.0), near = minimum(t, kHuge);
  const Value small = log1p(near + sqrt(add(mul(near, 2.0), mul(near, near))));
  return select(less(t, kHuge), small, add(log(x), std::numbers::ln2));
}

/// Of |x|: for x near -1 the argument of log1p would lose its digits.
Value atanh_of(Value x) {
  const Value a = abs(x);
  return mul(sign(x), mul(log1p(mul(a, 2.0) / sub(1.0, a)), 0.5));
}

/// Reduced by pi / 2 and pi / 4 to [0, tan(pi / 8)], where a polynomial of degree 9 has f32's precision (Cephes, atanf); 2 ULP.
Value atan_of(Value x) {
  const Value a = minimum(abs(x), 1e30);
  const Value far = greater(a, 2.414213562373095), middle = greater(a, 0.4142135623730950);
  const Value reduced = select(far, neg(recip(maximum(a, 1.0))), select(middle, sub(a, 1.0) / add(a, 1.0), a));
  const Value base = select(far, std::numbers::pi / 2, select(middle, std::numbers::pi / 4, mul(a, 0.0)));
  const Value z = mul(reduced, reduced);
  const Value p =
      sub(mul(add(mul(sub(mul(z, 8.05374449538e-2), 1.38776856032e-1), z), 1.99777106478e-1), z), 3.33329491539e-1);
  return mul(sign(x), base + (mul(mul(p, z), reduced) + reduced));
}

/// atan(x / sqrt(1 - x^2)); the root makes it NaN outside [-1, 1].
Value asin_of(Value x) {
  const Value root = sqrt(mul(sub(1.0, x), add(x, 1.0)));
  return atan_of(x / maximum(root, 1e-30)) + mul(root, 0.0);
}

/// 2 atan(sqrt((1 - x) / (1 + x))) on [0, 1], pi minus that of -x below; exact near 1 and -1.
Value acos_of(Value x) {
  const Value size = abs(x);
  const Value half = atan_of(sqrt(sub(1.0, size) / add(size, 1.0)));
  return select(less(x, 0.0), sub(std::numbers::pi, mul(half, 2.0)), mul(half, 2.0));
}

}  // namespace aeshna
