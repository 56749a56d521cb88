// Scalar functions with stated bounds. Vulkan allows its own exp, log, sin, cos and tanh errors of thousands of ulp
// and lets a driver assume that NaN does not occur; here only + - * (correctly rounded), / (2.5 ulp), fma-free, and
// integers are used. Bounds are in units of the last place of the exact result, for normal results (denormals may
// flush to zero); NaN in, NaN out. tests/kernels/math_test.cpp measures every bound. A block starts at "//@ names" and
// uses earlier blocks, or common.glsl's.
//@ ae_scale
// x * 2^n for n in [-252, 254], in two steps so that neither factor leaves the normal range.
float ae_scale(float x, int n) {
  int half_n = n >> 1;
  return x * uintBitsToFloat(uint(half_n + 127) << 23) * uintBitsToFloat(uint(n - half_n + 127) << 23);
}
//@ ae_exp_minus_one_reduced
// e^r - 1 for |r| <= ln(2)/2; polynomial of Cephes' expf (S. Moshier).
float ae_exp_minus_one_reduced(float r) {
  float p = 1.9875691500e-4;
  p = p * r + 1.3981999507e-3;
  p = p * r + 8.3334519073e-3;
  p = p * r + 4.1665795894e-2;
  p = p * r + 1.6666665459e-1;
  p = p * r + 5.0000001201e-1;
  return p * r * r + r;
}
//@ ae_reduce_ln2
// x - n ln(2); the high part of ln(2) has 9 bits, so that n times it is exact.
float ae_reduce_ln2(float x, float n) {
  precise float high = x - n * 0.693359375;
  precise float r = high + n * 2.12194440e-4;
  return r;
}
//@ ae_exp
// 1.5 ulp. exp(-inf) = 0, exp(inf) = inf.
float ae_exp(float x) {
  float inside = min(max(x, -104.0), 89.0);  // no branches: what NaN becomes here is not used below
  float n = floor(inside * 1.44269504 + 0.5);
  float y = ae_scale(1.0 + ae_exp_minus_one_reduced(ae_reduce_ln2(inside, n)), int(n));
  y = x > 88.722839 ? ae_infinity() : y;
  y = x < -103.972084 ? 0.0 : y;
  return ae_isnan(x) ? x : y;
}
//@ ae_expm1
// 2 ulp. expm1(-inf) = -1.
float ae_expm1(float x) {
  if (ae_isnan(x) || x == 0.0) return x;
  if (x > 40.0) return ae_exp(x);
  if (x < -17.5) return -1.0;
  float n = floor(x * 1.44269504 + 0.5);
  float q = ae_exp_minus_one_reduced(ae_reduce_ln2(x, n));
  if (n == 0.0) return q;
  float scale = uintBitsToFloat(uint(int(n) + 127) << 23);
  return scale * q + (scale - 1.0);
}
//@ ae_log_reduced
// log(1 + f) + tail + n ln(2) for 1 + f in [sqrt(1/2), sqrt(2)]; polynomial of Cephes' logf.
float ae_log_reduced(float f, float tail, float n) {
  float z = f * f;
  float p = 7.0376836292e-2;
  p = p * f - 1.1514610310e-1;
  p = p * f + 1.1676998740e-1;
  p = p * f - 1.2420140846e-1;
  p = p * f + 1.4249322787e-1;
  p = p * f - 1.6668057665e-1;
  p = p * f + 2.0000714765e-1;
  p = p * f - 2.4999993993e-1;
  p = p * f + 3.3333331174e-1;
  precise float y = p * f * z;
  y = y - n * 2.12194440e-4;
  y = y + tail;
  y = y - 0.5 * z;
  y = f + y;
  y = y + n * 0.693359375;
  return y;
}
//@ ae_log
// 1.5 ulp. log(0) = -inf, log of a negative number is NaN. Denormals are taken apart as integers.
float ae_log(float x) {
  uint bits = floatBitsToUint(x);
  bool denormal = bits < 0x00800000u;
  uint scaled = denormal ? floatBitsToUint(float(bits)) : bits;
  scaled += 0x3f800000u - 0x3f3504f3u;  // moves sqrt(1/2) to a power of two
  int exponent = int(scaled >> 23) - 127 - (denormal ? 149 : 0);
  float m = uintBitsToFloat((scaled & 0x007fffffu) + 0x3f3504f3u);
  float y = ae_log_reduced(m - 1.0, 0.0, float(exponent));
  y = bits >= 0x7f800000u ? (bits == 0x7f800000u ? x : ae_nan()) : y;
  return (bits & 0x7fffffffu) == 0u ? -ae_infinity() : y;
}
//@ ae_log1p
// 2 ulp. log1p(-1) = -inf, below -1 NaN.
float ae_log1p(float x) {
  if (ae_isnan(x) || x < -1.0) return ae_nan();
  if (x == -1.0) return -ae_infinity();
  if (ae_isinf(x) || abs(x) < 5.9604645e-8) return x;
  if (x > -0.29289 && x < 0.41421) return ae_log_reduced(x, 0.0, 0.0);
  precise float u = 1.0 + x;
  precise float lost = x >= 1.0 ? 1.0 - (u - x) : x - (u - 1.0);  // what rounding took from 1 + x
  uint bits = floatBitsToUint(u) + (0x3f800000u - 0x3f3504f3u);
  int exponent = int(bits >> 23) - 127;
  float m = uintBitsToFloat((bits & 0x007fffffu) + 0x3f3504f3u);
  return ae_log_reduced(m - 1.0, lost / u, float(exponent));
}
//@ ae_sin_reduced ae_cos_reduced
// |r| <= pi/4; polynomials of Cephes' sinf and cosf.
float ae_sin_reduced(float r) {
  float z = r * r;
  float p = -1.9515295891e-4;
  p = p * z + 8.3321608736e-3;
  p = p * z - 1.6666654611e-1;
  return p * z * r + r;
}
float ae_cos_reduced(float r) {
  float z = r * r;
  float p = 2.443315711809948e-5;
  p = p * z - 1.388731625493765e-3;
  p = p * z + 4.166664568298827e-2;
  return p * z * z - 0.5 * z + 1.0;
}
//@ AeQuadrant ae_quadrant
// x = quadrant * pi/2 + rest, quadrant modulo 4.
struct AeQuadrant {
  int quadrant;
  float rest;
};
// The whole finite range: Cody and Waite's three-part pi/2 while the quotient has at most 8 bits, beyond that the 24
// bits of x times 192 bits of 2/pi (Payne and Hanek).
AeQuadrant ae_quadrant(float x) {
  AeQuadrant result;
  if (abs(x) < 400.0) {
    float n = floor(x * 0.636619772 + 0.5);
    precise float r = x - n * 1.57080078125;  // 16 bits of pi/2: the product is exact
    r = r + n * 4.454399459064007e-6;          // 16 more
    r = r + n * 5.564431554416771e-11;
    result.quadrant = int(n) & 3;
    result.rest = r;
    return result;
  }
  const uint two_over_pi[6] = uint[6](0x3c439041u, 0xdb629599u, 0xf534ddc0u, 0xfc2757d1u, 0x4e441529u, 0xa2f9836eu);
  uint bits = floatBitsToUint(x);
  int exponent = int((bits >> 23) & 255u) - 128;
  uint mantissa = (bits << 8) | 0x80000000u;
  uint product[7];
  uint carry = 0u;
  for (int i = 0; i < 6; ++i) {
    uint high, low, overflow;
    umulExtended(two_over_pi[i], mantissa, high, low);
    product[i] = uaddCarry(low, carry, overflow);
    carry = high + overflow;
  }
  product[6] = carry;
  int word = 4 - (exponent >> 5);
  int shift = exponent & 31;
  uint high = product[word + 2];
  uint low = product[word + 1];
  if (shift != 0) {
    high = (high << shift) | (low >> (32 - shift));
    low = (low << shift) | (product[word] >> (32 - shift));
  }
  int quadrant = int(high >> 30);
  high = (high << 2) | (low >> 30);
  low = low << 2;
  bool negative = (bits >> 31) != 0u;
  if ((high >> 31) != 0u) {  // fraction above 1/2: the next quadrant, from the other side
    quadrant += 1;
    negative = !negative;
    high = ~high;
    low = ~low;
    low += 1u;
    if (low == 0u) high += 1u;
  }
  if ((bits >> 31) != 0u) quadrant = -quadrant;
  int leading = high != 0u ? 31 - findMSB(high) : 32 + (low != 0u ? 31 - findMSB(low) : 31);
  if (leading >= 32) {
    high = low << (leading - 32);
  } else if (leading > 0) {
    high = (high << leading) | (low >> (32 - leading));
  }
  uint scaled, unused;
  umulExtended(high, 0xc90fdaa2u, scaled, unused);  // times pi/4
  float rest = float(scaled) * uintBitsToFloat(uint(127 - 31 - leading) << 23);
  result.quadrant = quadrant & 3;
  result.rest = negative ? -rest : rest;
  return result;
}
//@ ae_sin
// 2.5 ulp for every finite x; NaN for infinities.
float ae_sin(float x) {
  if (!ae_isfinite(x)) return ae_nan();
  if (x == 0.0) return x;
  AeQuadrant q = ae_quadrant(x);
  float y = (q.quadrant & 1) == 0 ? ae_sin_reduced(q.rest) : ae_cos_reduced(q.rest);
  return (q.quadrant & 2) == 0 ? y : -y;
}
//@ ae_cos
// 2.5 ulp for every finite x; NaN for infinities.
float ae_cos(float x) {
  if (!ae_isfinite(x)) return ae_nan();
  AeQuadrant q = ae_quadrant(x);
  float y = (q.quadrant & 1) == 0 ? ae_cos_reduced(q.rest) : ae_sin_reduced(q.rest);
  return ((q.quadrant + 1) & 2) == 0 ? y : -y;
}
//@ ae_tanh
// 3 ulp. No overflow: exp is taken of at most 18.2.
float ae_tanh(float x) {
  float t = abs(x);
  if (ae_isnan(x)) return x;
  if (t < 0.625) {
    float z = x * x;
    float p = -5.70498872745e-3;
    p = p * z + 2.06390887954e-2;
    p = p * z - 5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z - 3.33332819422e-1;
    return p * z * x + x;
  }
  float y = t > 9.1 ? 1.0 : 1.0 - 2.0 / (ae_exp(2.0 * t) + 1.0);
  return ae_copysign(y, x);
}
//@ ae_erf
// 2 ulp; after N. Juffa.
float ae_erf(float x) {
  float t = abs(x);
  if (ae_isnan(x)) return x;
  float s = x * x;
  if (t > 0.927734375) {
    if (t > 4.0) return ae_copysign(1.0, x);
    float r = -1.72853470e-5 * t + 3.83197126e-4;
    r = r * s + (-3.88396438e-3 * t + 2.42546219e-2);
    r = r * t - 1.06777877e-1;
    r = r * t - 6.34846687e-1;
    r = r * t - 1.28717512e-1;
    r = r * t - t;
    return ae_copysign(1.0 - ae_exp(r), x);
  }
  float r = -5.96761703e-4;
  r = r * s + 4.99119423e-3;
  r = r * s - 2.67681349e-2;
  r = r * s + 1.12819925e-1;
  r = r * s - 3.76125336e-1;
  r = r * s + 1.28379166e-1;
  return r * x + x;
}
//@ ae_sigmoid
// 4 ulp, without overflow on either side.
float ae_sigmoid(float x) {
  float e = ae_exp(-abs(x));
  float numerator = x < 0.0 ? e : 1.0;
  return numerator / (1.0 + e);
}
//@ ae_silu
// 5 ulp; x sigmoid(x). Flushes to zero below -87.3, where sigmoid does.
float ae_silu(float x) { return x * ae_sigmoid(x); }
//@ ae_gelu_erf
// |error| <= 3e-7 |x|; x/2 (1 + erf(x / sqrt(2))).
float ae_gelu_erf(float x) { return 0.5 * x * (1.0 + ae_erf(x * 0.707106781)); }
//@ ae_gelu_tanh
// |error| <= 3e-7 |x|; x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
float ae_gelu_tanh(float x) { return x * ae_sigmoid(1.59576912 * x * (1.0 + 0.044715 * x * x)); }
//@ ae_softplus
// 3 ulp; log(1 + e^x).
float ae_softplus(float x) { return ae_log1p(ae_exp(-abs(x))) + (x > 0.0 ? x : 0.0); }
//@ ae_two_product_error
// a * b = p + error exactly (Dekker; halves by bits, since fma need not be fused), for a product far from over- and
// underflow.
float ae_two_product_error(float a, float b, float p) {
  float a_high = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u);
  float b_high = uintBitsToFloat(floatBitsToUint(b) & 0xfffff000u);
  precise float a_low = a - a_high;
  precise float b_low = b - b_high;
  precise float error = a_high * b_high - p;
  error = error + a_high * b_low;
  error = error + a_low * b_high;
  error = error + a_low * b_low;
  return error;
}
//@ ae_div
// To nearest wherever operands, quotient and product stay between 1e-28 and 1e30, so that what is rounded afterwards (a
// quantized value, an index) is the same on every device; elsewhere the device's own division (2.5 ulp, which Vulkan promises up to
// b = 2^126 only: beyond it inf / b gave NaN).
float ae_div(float a, float b) {
  float scale = abs(b) > 8e37 ? 0.25 : 1.0;
  float q = (a * scale) / (b * scale);
  precise float p = q * b;
  precise float rest = (a - p) - ae_two_product_error(q, b, p);
  precise float better = q + rest / b;
  float smallest = min(min(abs(p), abs(q)), abs(b));
  float largest = max(max(abs(p), abs(q)), abs(b));
  return smallest > 1e-28 && largest < 1e30 ? better : q;
}
//@ ae_pow
// 4 ulp. IEEE 754 special cases: pow(x, 0) = 1 and pow(1, y) = 1 even for NaN, a negative base needs an integer
// exponent.
float ae_pow(float a, float b) {
  if (b == 0.0 || a == 1.0) return 1.0;
  if (ae_isnan(a) || ae_isnan(b)) return ae_nan();
  float base = abs(a);
  bool negative = (floatBitsToUint(a) >> 31) != 0u;
  bool integer = abs(b) >= 8388608.0 || floor(b) == b;
  bool odd = integer && abs(b) < 16777216.0 && (int(b) & 1) != 0;
  if (negative && !integer && base != 0.0 && !ae_isinf(a)) return ae_nan();
  float y;
  if (base == 0.0) {
    y = b < 0.0 ? ae_infinity() : 0.0;
  } else if (ae_isinf(a)) {
    y = b < 0.0 ? 0.0 : ae_infinity();
  } else if (base == 1.0) {
    y = 1.0;
  } else if (ae_isinf(b)) {
    y = (base > 1.0) == (b > 0.0) ? ae_infinity() : 0.0;
  } else {
    // log(base) = n ln(2) + 2 atanh(s), s = (m - 1) / (m + 1), as an unevaluated sum high + low.
    uint bits = floatBitsToUint(base);
    int exponent = 0;
    if (bits < 0x00800000u) {
      bits = floatBitsToUint(float(bits));
      exponent = -149;
    }
    bits += 0x3f800000u - 0x3f3504f3u;
    exponent += int(bits >> 23) - 127;
    float n = float(exponent);
    float m = uintBitsToFloat((bits & 0x007fffffu) + 0x3f3504f3u);
    precise float f = m - 1.0;
    precise float d = m + 1.0;
    precise float d_low = (1.0 - d) + m;
    precise float s = f / d;
    precise float p = s * d;
    precise float s_low = (((f - p) - ae_two_product_error(s, d, p)) - s * d_low) / d;
    precise float z = s * s;
    float series = 0.2371;
    series = series * z + 0.28571013;
    series = series * z + 0.40000004;
    series = series * z + 0.66666667;
    precise float tail = 2.0 * s_low + s * z * series;
    precise float high = n * 0.693359375;
    precise float low = n * -2.12194440e-4;
    precise float two_s = 2.0 * s;
    precise float sum = high + two_s;  // |high| > |two_s| or high = 0
    precise float rest = exponent == 0 ? 0.0 : (high - sum) + two_s;
    rest = rest + (low + tail);
    precise float log_high = sum + rest;
    precise float log_low = (sum - log_high) + rest;
    precise float product = b * log_high;
    if (product > 100.0) {
      y = ae_infinity();
    } else if (product < -120.0) {
      y = 0.0;
    } else {
      precise float correction = ae_two_product_error(b, log_high, product) + b * log_low;
      y = ae_exp(product);
      if (ae_isfinite(y)) y = y + y * correction;
    }
  }
  return negative && odd ? -y : y;
}
//@ ae_round
// Half to even.
float ae_round(float x) { return roundEven(x); }
//@ ae_sqrt
// 3 ulp. sqrt(-0) = -0, below 0 NaN.
float ae_sqrt(float x) {
  float y = x == 0.0 || ae_isinf(x) ? x : sqrt(x);
  return ae_isnan(x) || x < 0.0 ? ae_nan() : y;
}
//@ ae_rsqrt
// 4 ulp. rsqrt(0) = inf, below 0 NaN.
float ae_rsqrt(float x) {
  float y = x == 0.0 ? ae_infinity() : ae_isinf(x) ? 0.0 : inversesqrt(x);
  return ae_isnan(x) || x < 0.0 ? ae_nan() : y;
}
//@ ae_fmod
// Exact, in integers: the sign of a. NaN for b = 0 or an infinite a.
float ae_fmod(float a, float b) {
  uint ua = floatBitsToUint(a) & 0x7fffffffu;
  uint ub = floatBitsToUint(b) & 0x7fffffffu;
  if (ub == 0u || ua >= 0x7f800000u || ub > 0x7f800000u) return ae_nan();
  if (ua < ub) return a;
  int ea = max(int(ua >> 23), 1);
  int eb = max(int(ub >> 23), 1);
  uint ma = (ua & 0x007fffffu) | (ua >= 0x00800000u ? 0x00800000u : 0u);
  uint mb = (ub & 0x007fffffu) | (ub >= 0x00800000u ? 0x00800000u : 0u);
  uint rest = ma % mb;
  for (int left = ea - eb; left > 0 && rest != 0u; left -= 8) rest = (rest << min(left, 8)) % mb;
  uint sign = floatBitsToUint(a) & 0x80000000u;
  if (rest == 0u) return uintBitsToFloat(sign);
  int shift = 23 - findMSB(rest);
  int exponent = eb - shift;
  uint bits = exponent >= 1 ? (uint(exponent) << 23) | ((rest << shift) & 0x007fffffu) : rest << (eb - 1);
  return uintBitsToFloat(sign | bits);
}
//@ ae_mod
// Exact floor-mod up to one rounding: the sign of b.
float ae_mod(float a, float b) {
  float m = ae_fmod(a, b);
  if (ae_isnan(m)) return m;
  if (m == 0.0) return ae_copysign(0.0, b);
  return (m < 0.0) != (b < 0.0) ? m + b : m;
}
//@ ae_f32_to_i32
// Truncates; saturates out of range; NaN gives 0. (GLSL's own conversion is undefined there.)
int ae_f32_to_i32(float x) {
  if (ae_isnan(x)) return 0;
  if (x >= 2147483648.0) return 2147483647;
  if (x < -2147483648.0) return int(0x80000000u);
  return int(x);
}
//@ ae_f32_to_u32
uint ae_f32_to_u32(float x) {
  if (ae_isnan(x) || x < 1.0) return 0u;
  if (x >= 4294967296.0) return 0xffffffffu;
  return uint(x);
}
//@ ae_philox
// Philox4x32-10 (Salmon et al., SC'11): the same words as base/philox.h.
uvec4 ae_philox(uvec4 counter, uvec2 key) {
  for (int i = 0; i < 10; ++i) {
    uint high0, low0, high1, low1;
    umulExtended(0xD2511F53u, counter.x, high0, low0);
    umulExtended(0xCD9E8D57u, counter.z, high1, low1);
    counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}
//@ ae_random ae_random4
// Random bits of element i: word i % 4 of the block with counter (i / 4, step, stream, 0).
uint ae_random(uint element, uint step, uint stream, uvec2 seed) {
  return ae_philox(uvec4(element >> 2, step, stream, 0u), seed)[element & 3u];
}
// Of the elements i .. i + 3; i must be a multiple of 4.
uvec4 ae_random4(uint element, uint step, uint stream, uvec2 seed) {
  return ae_philox(uvec4(element >> 2, step, stream, 0u), seed);
}
