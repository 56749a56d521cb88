#include "base/quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "base/format.h"
#include "base/half.h"

namespace aeshna {

namespace {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;
using Values = std::span<const float>;

int byte_at(ConstBytes bytes, std::size_t i) { return std::to_integer<int>(bytes[i]); }
int signed_byte_at(ConstBytes bytes, std::size_t i) { return static_cast<std::int8_t>(byte_at(bytes, i)); }
std::byte to_byte(int value) { return static_cast<std::byte>(value & 0xff); }

float load_f16(ConstBytes bytes, std::size_t at) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + at, 2);
  return f16_to_f32(bits);
}

/// Stores a scale; the value that it has from then on.
float store_f16(Bytes bytes, std::size_t at, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  if ((bits & 0x7fffu) >= 0x7c00u) fail(ErrorCode::OutOfRange, "a block's scale or minimum {} is beyond f16", value);
  std::memcpy(bytes.data() + at, &bits, 2);
  return f16_to_f32(bits);
}

int nearest(double value) { return static_cast<int>(std::nearbyint(value)); }

/// The value of largest magnitude, with its sign.
template <class T>
T extreme(std::span<const T> x) {
  T largest = 0;
  for (const T v : x) {
    if (std::fabs(v) > std::fabs(largest)) largest = v;
  }
  return largest;
}

/// 1 / d, or 0 where that is no number (d is zero or nearly so, and f16 makes it zero).
float inverse(float d) { return std::isfinite(1.0f / d) ? 1.0f / d : 0.0f; }

// ---- blocks of 32. Element j of the low half shares a byte with element j + 16.

int quant(float scaled, float half, int most) { return std::min(most, static_cast<int>(scaled + half)); }

void quantize_q4_0(Values x, Bytes y) {
  const float d = extreme(x) / -8;
  const float id = inverse(d);
  store_f16(y, 0, d);
  for (std::size_t j = 0; j < 16; ++j)
    y[2 + j] = to_byte(quant(x[j] * id, 8.5f, 15) | quant(x[j + 16] * id, 8.5f, 15) << 4);
}

void dequantize_q4_0(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, 0);
  for (std::size_t j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((byte_at(x, 2 + j) & 15) - 8) * d;
    y[j + 16] = static_cast<float>((byte_at(x, 2 + j) >> 4) - 8) * d;
  }
}

void quantize_q4_1(Values x, Bytes y) {
  const auto [low, high] = std::ranges::minmax(x);
  const float d = (high - low) / 15;
  const float id = inverse(d);
  store_f16(y, 0, d);
  store_f16(y, 2, low);
  for (std::size_t j = 0; j < 16; ++j)
    y[4 + j] = to_byte(quant((x[j] - low) * id, 0.5f, 15) | quant((x[j + 16] - low) * id, 0.5f, 15) << 4);
}

void dequantize_q4_1(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, 0), m = load_f16(x, 2);
  for (std::size_t j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(byte_at(x, 4 + j) & 15) * d + m;
    y[j + 16] = static_cast<float>(byte_at(x, 4 + j) >> 4) * d + m;
  }
}

void quantize_q5_0(Values x, Bytes y) {
  const float d = extreme(x) / -16;
  const float id = inverse(d);
  store_f16(y, 0, d);
  std::uint32_t high = 0;  // bit i: bit 4 of element i
  for (std::size_t j = 0; j < 16; ++j) {
    const int a = quant(x[j] * id, 16.5f, 31), b = quant(x[j + 16] * id, 16.5f, 31);
    y[6 + j] = to_byte((a & 15) | (b & 15) << 4);
    high |= static_cast<std::uint32_t>(a >> 4) << j | static_cast<std::uint32_t>(b >> 4) << (j + 16);
  }
  std::memcpy(y.data() + 2, &high, 4);
}

void dequantize_q5_0(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, 0);
  std::uint32_t high;
  std::memcpy(&high, x.data() + 2, 4);
  for (std::size_t j = 0; j < 16; ++j) {
    const int a = (byte_at(x, 6 + j) & 15) | static_cast<int>(high >> j & 1) << 4;
    const int b = (byte_at(x, 6 + j) >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    y[j] = static_cast<float>(a - 16) * d;
    y[j + 16] = static_cast<float>(b - 16) * d;
  }
}

void quantize_q8_0(Values x, Bytes y) {
  const float d = std::fabs(extreme(x)) / 127;
  const float id = inverse(d);
  store_f16(y, 0, d);
  for (std::size_t j = 0; j < 32; ++j) y[2 + j] = to_byte(static_cast<int>(std::round(x[j] * id)));
}

void dequantize_q8_0(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, 0);
  for (std::size_t j = 0; j < 32; ++j) y[j] = static_cast<float>(signed_byte_at(x, 2 + j)) * d;
}

// ---- blocks of 256

/// Scale and offset of a group with quants 0 to 15, x ~ scale * q - offset, offset >= 0: weighted least squares for the
/// quants that 21 trial scales give; the best fit counts (ggml's make_qkx2_quants).
struct Affine {
  double scale = 0, offset = 0;
};

Affine fit_affine(Values x) {
  constexpr int kMost = 15;
  const std::size_t n = x.size();
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double typical = std::sqrt(squares / static_cast<double>(n));
  std::array<double, 32> weights{};
  double low = std::min(x[0], 0.0f), high = x[0], sum_w = 0, sum_x = 0;
  for (std::size_t i = 0; i < n; ++i) {
    weights[i] = typical + std::fabs(x[i]);
    low = std::min<double>(low, x[i]);
    high = std::max<double>(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (high - low < 1e-30) return {0, -low};
  Affine best{(high - low) / kMost, -low};
  double best_error = -1;
  for (int trial = -1; trial <= 20; ++trial) {  // -1: the scale that spans the group
    const double steps = trial < 0 ? kMost : kMost - 1 + 0.1 * static_cast<double>(trial);
    const double inverse_scale = steps / (high - low);
    std::array<double, 32> q{};
    double sum_q = 0, sum_qq = 0, sum_qx = 0;
    for (std::size_t i = 0; i < n; ++i) {
      q[i] = static_cast<double>(std::clamp(nearest(inverse_scale * (x[i] - low)), 0, kMost));
      sum_q += weights[i] * q[i];
      sum_qq += weights[i] * q[i] * q[i];
      sum_qx += weights[i] * q[i] * x[i];
    }
    Affine fit = best;
    if (trial >= 0) {
      const double determinant = sum_w * sum_qq - sum_q * sum_q;
      if (determinant <= 0) continue;
      fit = {(sum_w * sum_qx - sum_x * sum_q) / determinant, -(sum_qq * sum_x - sum_q * sum_qx) / determinant};
      if (fit.offset < 0) fit = {sum_qx / sum_qq, 0};
    }
    double error = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double difference = fit.scale * q[i] - fit.offset - x[i];
      error += weights[i] * difference * difference;
    }
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

/// Scale and minimum number `j` of a q4_K block, 6 bits each in 12 bytes.
std::pair<int, int> scale_and_minimum(ConstBytes scales, std::size_t j) {
  if (j < 4) return {byte_at(scales, j) & 63, byte_at(scales, j + 4) & 63};
  return {(byte_at(scales, j + 4) & 15) | (byte_at(scales, j - 4) >> 6) << 4,
          (byte_at(scales, j + 4) >> 4) | (byte_at(scales, j) >> 6) << 4};
}

void quantize_q4_K(Values x, Bytes y) {
  std::array<Affine, 8> groups;
  double most_scale = 0, most_offset = 0;
  for (std::size_t j = 0; j < 8; ++j) {
    groups[j] = fit_affine(x.subspan(j * 32, 32));
    most_scale = std::max(most_scale, groups[j].scale);
    most_offset = std::max(most_offset, groups[j].offset);
  }
  std::ranges::fill(y, std::byte{0});
  const float d = store_f16(y, 0, static_cast<float>(most_scale / 63)),
              d_offset = store_f16(y, 2, static_cast<float>(most_offset / 63));
  const Bytes scales = y.subspan(4, 12);
  for (std::size_t j = 0; j < 8; ++j) {
    const int scale = most_scale > 0 ? std::clamp(nearest(63 / most_scale * groups[j].scale), 0, 63) : 0;
    const int offset = most_offset > 0 ? std::clamp(nearest(63 / most_offset * groups[j].offset), 0, 63) : 0;
    if (j < 4) {
      scales[j] |= to_byte(scale);
      scales[j + 4] |= to_byte(offset);
    } else {
      scales[j + 4] |= to_byte((scale & 15) | (offset & 15) << 4);
      scales[j - 4] |= to_byte(scale >> 4 << 6);
      scales[j] |= to_byte(offset >> 4 << 6);
    }
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const auto [scale, offset] = scale_and_minimum(scales, i / 32);
    const float step = d * static_cast<float>(scale);
    if (step == 0) continue;
    const int q = std::clamp(
        nearest(std::clamp((static_cast<double>(x[i]) + d_offset * static_cast<float>(offset)) / step, -64.0, 64.0)), 0,
        15);
    y[16 + i / 64 * 32 + i % 32] |= to_byte(q << (i / 32 % 2 * 4));
  }
}

void dequantize_q4_K(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, 0), d_offset = load_f16(x, 2);
  for (std::size_t i = 0; i < 256; ++i) {
    const auto [scale, offset] = scale_and_minimum(x.subspan(4, 12), i / 32);
    const int q = byte_at(x, 16 + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15;
    y[i] = d * static_cast<float>(scale) * static_cast<float>(q) - d_offset * static_cast<float>(offset);
  }
}

/// Scale of a group with quants -32 to 31: the least squares, weighted by the squares of the values, of 19 trial scales
/// (ggml's make_qx_quants).
double fit_scale(Values x) {
  const double largest = extreme(x);
  if (std::fabs(largest) < 1e-30) return 0;
  double best_scale = 0, best = 0;
  for (const int trial : {0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const double inverse_scale = -(32 + 0.1 * static_cast<double>(trial)) / largest;
    double sum_qx = 0, sum_qq = 0;
    for (const double v : x) {
      const auto q = static_cast<double>(std::clamp(nearest(inverse_scale * v), -32, 31));
      sum_qx += v * v * v * q;
      sum_qq += v * v * q * q;
    }
    if (sum_qq > 0 && (trial == 0 || sum_qx * sum_qx > best * sum_qq)) {
      best_scale = sum_qx / sum_qq;
      best = best_scale * sum_qx;
    }
  }
  return best_scale;
}

constexpr std::size_t kQ6High = 128, kQ6Scales = 192, kQ6D = 208;

void quantize_q6_K(Values x, Bytes y) {
  std::array<double, 16> scales{};
  for (std::size_t j = 0; j < 16; ++j) scales[j] = fit_scale(x.subspan(j * 16, 16));
  std::ranges::fill(y, std::byte{0});
  const double largest = extreme(std::span<const double>(scales));
  if (std::fabs(largest) < 1e-30) return;
  const double inverse_scale = -128 / largest;
  const float d = store_f16(y, kQ6D, static_cast<float>(1 / inverse_scale));
  for (std::size_t i = 0; i < 256; ++i) {
    const int scale = std::clamp(nearest(inverse_scale * scales[i / 16]), -128, 127);
    y[kQ6Scales + i / 16] = to_byte(scale);
    const float step = d * static_cast<float>(scale);
    const int q =
        step == 0 ? 32 : std::clamp(nearest(std::clamp(static_cast<double>(x[i]) / step, -64.0, 64.0)), -32, 31) + 32;
    const std::size_t half = i / 128, group = i / 32 % 4, l = i % 32;
    y[half * 64 + group % 2 * 32 + l] |= to_byte((q & 15) << (group / 2 * 4));
    y[kQ6High + half * 32 + l] |= to_byte(q >> 4 << (group * 2));
  }
}

void dequantize_q6_K(ConstBytes x, std::span<float> y) {
  const float d = load_f16(x, kQ6D);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128, group = i / 32 % 4, l = i % 32;
    const int low = byte_at(x, half * 64 + group % 2 * 32 + l) >> (group / 2 * 4) & 15;
    const int high = byte_at(x, kQ6High + half * 32 + l) >> (group * 2) & 3;
    y[i] = d * static_cast<float>(signed_byte_at(x, kQ6Scales + i / 16)) * static_cast<float>((low | high << 4) - 32);
  }
}

/// More than any format's largest scale times its largest quant; smaller values that a format cannot hold are found by
/// their scale.
constexpr float kLargest = 0x1p28f;

struct Format {
  void (*quantize)(Values, Bytes);
  void (*dequantize)(ConstBytes, std::span<float>);
  std::size_t d_at;  ///< where the f16 is that a pair of blocks keeps in its first word
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return {quantize_q4_0, dequantize_q4_0, 0};
    case DType::q4_1:
      return {quantize_q4_1, dequantize_q4_1, 0};
    case DType::q5_0:
      return {quantize_q5_0, dequantize_q5_0, 0};
    case DType::q8_0:
      return {quantize_q8_0, dequantize_q8_0, 0};
    case DType::q4_K:
      return {quantize_q4_K, dequantize_q4_K, 0};
    case DType::q6_K:
      return {quantize_q6_K, dequantize_q6_K, kQ6D};
    default:
      fail(ErrorCode::Internal, "{} is no quantized dtype", dtype_name(dtype));
  }
}

/// Calls f(block index) for every block; the number of values and of bytes must be that of whole blocks.
template <class F>
void for_blocks(DType dtype, std::size_t values, std::size_t bytes, F&& f) {
  const DTypeInfo& info = dtype_info(dtype);
  AESHNA_CHECK(values % info.block_elements == 0 && values / info.block_elements * info.block_bytes == bytes);
  for (std::size_t block = 0; block < values / info.block_elements; ++block) f(block);
}

}  // namespace

std::uint32_t quant_unit_blocks(DType dtype) { return dtype_info(dtype).block_bytes % 4 == 0 ? 1 : 2; }

QuantPair quant_pair(DType dtype) {
  switch (dtype) {
    case DType::q8_0:
      return {4, true, false};
    case DType::q4_0:
    case DType::q5_0:
      return {16, true, false};
    case DType::q4_1:
      return {16, true, true};
    case DType::q4_K:
      return {32, false, true};
    case DType::q6_K:
      return {32, false, false};
    default:
      internal_error("no quantized dtype");
  }
}

void quantize_blocks(DType dtype, Values values, Bytes blocks) {
  const Format format = format_of(dtype);
  const DTypeInfo& info = dtype_info(dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i]) <= kLargest)) {
      fail(ErrorCode::OutOfRange, "element {} is {}; {} holds finite values of at most {} in magnitude", i, values[i],
           info.name, kLargest);
    }
  }
  for_blocks(dtype, values.size(), blocks.size(), [&](std::size_t block) {
    try {
      format.quantize(values.subspan(block * info.block_elements, info.block_elements),
                      blocks.subspan(block * info.block_bytes, info.block_bytes));
    } catch (Error& error) {
      throw error.context(formatted("elements {} to {} as {}", block * info.block_elements,
                                    (block + 1) * info.block_elements - 1, info.name));
    }
  });
}

void dequantize_blocks(DType dtype, ConstBytes blocks, std::span<float> values) {
  const Format format = format_of(dtype);
  const DTypeInfo& info = dtype_info(dtype);
  for_blocks(dtype, values.size(), blocks.size(), [&](std::size_t block) {
    format.dequantize(blocks.subspan(block * info.block_bytes, info.block_bytes),
                      values.subspan(block * info.block_elements, info.block_elements));
  });
}

void pack_blocks(DType dtype, ConstBytes blocks, std::span<std::uint32_t> words) {
  const std::size_t size = dtype_info(dtype).block_bytes, count = blocks.size() / size;
  auto* out = reinterpret_cast<std::byte*>(words.data());
  if (quant_unit_blocks(dtype) == 1) {
    AESHNA_CHECK(words.size_bytes() == blocks.size());
    std::memcpy(out, blocks.data(), blocks.size());
    return;
  }
  const std::size_t d_at = format_of(dtype).d_at;
  AESHNA_CHECK(words.size_bytes() == (count + 1) / 2 * 2 * size);
  if (count % 2 != 0) std::memset(out + (count - 1) * size, 0, 2 * size);
  for (std::size_t block = 0; block < count; ++block) {
    const std::byte* from = blocks.data() + block * size;
    std::byte* unit = out + block / 2 * 2 * size;
    std::memcpy(unit + block % 2 * 2, from + d_at, 2);
    std::byte* rest = unit + 4 + block % 2 * (size - 2);
    std::memcpy(rest, from, d_at);
    std::memcpy(rest + d_at, from + d_at + 2, size - 2 - d_at);
  }
}

void unpack_blocks(DType dtype, std::span<const std::uint32_t> words, Bytes blocks) {
  const std::size_t size = dtype_info(dtype).block_bytes, count = blocks.size() / size;
  const auto* in = reinterpret_cast<const std::byte*>(words.data());
  if (quant_unit_blocks(dtype) == 1) {
    AESHNA_CHECK(words.size_bytes() == blocks.size());
    std::memcpy(blocks.data(), in, blocks.size());
    return;
  }
  const std::size_t d_at = format_of(dtype).d_at;
  AESHNA_CHECK(words.size_bytes() == (count + 1) / 2 * 2 * size);
  for (std::size_t block = 0; block < count; ++block) {
    std::byte* to = blocks.data() + block * size;
    const std::byte* unit = in + block / 2 * 2 * size;
    const std::byte* rest = unit + 4 + block % 2 * (size - 2);
    std::memcpy(to + d_at, unit + block % 2 * 2, 2);
    std::memcpy(to, rest, d_at);
    std::memcpy(to + d_at + 2, rest + d_at, size - 2 - d_at);
  }
}

}  // namespace aeshna
