#include "base/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/fail.h"

namespace aeshna {

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the high payload bits, and at least one
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {  // normal: rebias the exponent, round the low 13 bits to even
    const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude < 0x33000000u) return sign;  // below half of the smallest subnormal (2^-25 ties to zero)
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126u - exponent;  // 14..24
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t quotient = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t up = rest > half || (rest == half && (quotient & 1u)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (quotient + up));
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

namespace {
/// A binary floating-point format: significand bits (the hidden one included), smallest normal exponent, largest finite value.
struct Format {
  int precision;
  int min_exponent;
  double largest;
  bool infinities;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {11, -14, 65504, true};
    case DType::bf16: return {8, -126, 0x1.fep127, true};
    case DType::f8e4m3: return {4, -6, 448, false};
    case DType::f8e5m2: return {3, -14, 57344, true};
    default: internal_error("dtype is a float narrower than f32");
  }
}

/// Decodes a float of one byte.
double f8_value(std::uint8_t bits, int mantissa_bits, int bias, bool infinities) {
  const int exponent_mask = (1 << (7 - mantissa_bits)) - 1;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits >> mantissa_bits) & exponent_mask;
  const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_mask) {
    if (infinities && mantissa == 0) return sign * std::numeric_limits<double>::infinity();
    if (infinities || mantissa == (1 << mantissa_bits) - 1) return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// Encodes a value that the format holds exactly: the encodings of one sign are ordered by magnitude.
std::uint8_t f8_bits(double value, int mantissa_bits, int bias, bool infinities) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
  const double magnitude = std::fabs(value);
  std::uint8_t low = 0;
  std::uint8_t high = 0x7f;
  while (low < high) {
    const auto middle = static_cast<std::uint8_t>((low + high) / 2);
    const double decoded = f8_value(middle, mantissa_bits, bias, infinities);
    if (std::isnan(decoded) || decoded >= magnitude) high = middle;
    else low = static_cast<std::uint8_t>(middle + 1);
  }
  return static_cast<std::uint8_t>(sign | low);
}
}  // namespace

double round_to_float(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<float>(value);  // the hardware's own rounding, for speed
  if (dtype == DType::f64 || !std::isfinite(value) || value == 0) {
    const bool overflow = std::isinf(value) && dtype == DType::f8e4m3;
    return overflow ? std::copysign(std::numeric_limits<double>::quiet_NaN(), value) : value;
  }
  const Format format = format_of(dtype);
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int scale = exponent - (format.precision - 1);  // exponent of one unit in the last place
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -scale)), scale);
  if (std::fabs(rounded) <= format.largest) return rounded;
  return std::copysign(format.infinities ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN(),
                       value);
}

std::uint8_t encode_f8(DType dtype, double value) {
  const double rounded = round_to_float(dtype, value);
  return dtype == DType::f8e4m3 ? f8_bits(rounded, 3, 7, false) : f8_bits(rounded, 2, 15, true);
}

double decode_f8(DType dtype, std::uint8_t bits) {
  return dtype == DType::f8e4m3 ? f8_value(bits, 3, 7, false) : f8_value(bits, 2, 15, true);
}

}  // namespace aeshna
