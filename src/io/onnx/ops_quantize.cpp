// Linear quantization: integers with a scale and a zero point.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"
#include "io/onnx/product.h"
#include "io/onnx/window.h"

namespace aeshna::onnx {
namespace {

/// Products of differences of 8-bit integers that an f32 sum holds exactly: n * 255 * 255 < 2^24.
constexpr std::int64_t kExactTerms = 256;
constexpr std::int64_t kMaxParts = 4096;  // that a sum is cut into

struct Range {
  double low, high;
};
Range range_of(Context& c, DType dtype, int bits) {
  if (bits == 4) return dtype == DType::i8 ? Range{-8, 7} : Range{0, 15};
  switch (dtype) {
    case DType::i8:
      return {-128, 127};
    case DType::u8:
      return {0, 255};
    case DType::i16:
      return {-32768, 32767};
    case DType::u16:
      return {0, 65535};
    default:
      c.refuse(formatted("quantized to {}", dtype_name(dtype)));
  }
}

/// Operand i (a scale or zero point) so that it broadcasts to x: one for all, one for each index of `axis`, or one for each block along it.
Value spread_over(Context& c, std::size_t i, const Shape& x, std::int64_t axis, std::int64_t block) {
  const Value v = c.in(i);
  const int rank = x.rank();
  if (block < 0 || block > INT32_MAX) c.refuse(formatted("blocks of {}", block));
  if (v.shape().elements() == 1 && block == 0) return reshaped(v, {});
  const int at = c.axis(axis, rank);
  if (block > 0) {
    if (v.shape().rank() != rank) c.refuse("scales of blocks have another rank than the operand");
    const Value all = repeat_interleave(v, block, at);
    if (all.shape()[at] < x[at]) c.refuse("there are fewer blocks than the operand needs");
    return all.shape()[at] == x[at] ? all : slice(all, {at}, {0}, {x[at]});
  }
  if (v.shape().rank() != 1 || v.shape()[0] != x[at])
    c.refuse(formatted("{} scales or zero points for an axis of {}", v.shape().to_string(), x[at]));
  Ints dims(static_cast<std::size_t>(rank), 1);
  dims[static_cast<std::size_t>(at)] = x[at];
  return reshape(v, dims);
}

/// round(x / scale) + zero point, saturated.
Value quantized(Value scaled, std::optional<Value> zero, Range range, DType dtype) {
  Value q = round(cast(scaled, DType::f32));
  if (zero) q = q + cast(*zero, DType::f32);
  return cast(cast(clamp(q, range.low, range.high), DType::i32), dtype);
}

Values quantize_linear(Context& c) {
  const std::int64_t axis = c.integer("axis", 1), block = c.integer("block_size", 0);
  c.ignore("saturate");  // of 8-bit floats
  DType dtype = DType::u8;
  int bits = 0;
  if (c.has(2)) {
    dtype = c.dtype(2);
    bits = c.bits(2);
    c.ignore("output_dtype");
  } else if (c.has_attribute("output_dtype") && c.integer("output_dtype") != 0) {
    dtype = c.element("output_dtype");
    bits = c.result_bits;
  }
  c.result_bits = bits;
  const Range range = range_of(c, dtype, bits);
  const Value x = c.in(0);
  const Value scale = spread_over(c, 1, x.shape(), axis, block);
  std::optional<Value> zero;
  if (c.has(2)) zero = spread_over(c, 2, x.shape(), axis, block);
  const Value wide = is_float(x.dtype()) ? x : cast(x, scale.dtype());
  return {quantized(wide / scale, zero, range, dtype)};
}

Values dequantize_linear(Context& c) {
  const std::int64_t axis = c.integer("axis", 1), block = c.integer("block_size", 0);
  const Value x = c.in(0);
  const Value scale = spread_over(c, 1, x.shape(), axis, block);
  if (is_float(x.dtype())) {  // 8-bit floats, which are known values here
    const Value y = cast(x, scale.dtype());
    return {c.has(2) ? (y - cast(spread_over(c, 2, x.shape(), axis, block), scale.dtype())) * scale : y * scale};
  }
  Value d = widen(x);
  if (c.has(2)) d = d - widen(spread_over(c, 2, x.shape(), axis, block));
  return {cast(d, scale.dtype()) * scale};
}

Values dynamic_quantize(Context& c) {
  const Value x = c.in(0);
  const Value high = maximum(reduce_max(x), 0), low = minimum(reduce_min(x), 0);
  const Value scale = mul(high - low, 1.0 / 255);
  const Value zero = round(clamp(neg(low) / scale, 0, 255));
  const Value y = clamp(round(x / scale) + zero, 0, 255);
  return {cast(cast(y, DType::i32), DType::u8), scale, cast(cast(zero, DType::i32), DType::u8)};
}

/// Operand i as i32 without its zero point, operand `zero`.
Value centered(Context& c, std::size_t i, std::size_t zero, bool rows) {
  const Value x = widen(c.in(i));
  if (!c.has(zero)) return x;
  Value z = widen(c.in(zero));
  if (z.shape().elements() == 1) {
    z = reshaped(z, {});
  } else if (z.shape().rank() == 1) {  // one for each row of a, for each column of b
    z = reshape(z, rows ? Ints{z.shape()[0], 1} : Ints{1, z.shape()[0]});
  }
  return x - z;
}

/// The product of differences of 8-bit integers, as i32: f32 products of so few terms that they are exact.
Value exact_product(Value a, Value b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) return product(a, b);
  const std::int64_t k = a.shape()[a.shape().rank() - 1];
  if (k > kMaxParts * kExactTerms) throw Refusal{formatted("sums of {} integers", k)};
  Value y;
  for (std::int64_t start = 0; start < k || !y; start += kExactTerms) {
    const std::int64_t end = std::min(start + kExactTerms, k);
    const Value part =
        matmul(cast(slice(a, {-1}, {start}, {end}), DType::f32), cast(slice(b, {-2}, {start}, {end}), DType::f32));
    y = y ? y + cast(part, DType::i32) : cast(part, DType::i32);
  }
  return y;
}

/// The convolution of differences of 8-bit integers, as i32.
Value exact_convolution(Context& c, Value x, Value w) {
  const Geometry g = window_geometry(c, kernel_of(c, w.shape()), spatial(x.shape()));
  const std::int64_t groups = c.integer("group", 1), channels = w.shape()[1];
  std::int64_t area = 1;
  for (const std::int64_t k : g.kernel) area *= k;
  const std::int64_t step = std::max<std::int64_t>(kExactTerms / area, 1);
  if (area > kExactTerms || (groups > 1 && channels > step) || channels > kMaxParts * step)
    c.refuse(formatted("{} terms in a sum; {} are exact", area * channels, kExactTerms));
  if (groups > 1 || channels <= step)
    return cast(round(convolution(cast(x, DType::f32), cast(w, DType::f32), g, groups)), DType::i32);
  Value y;
  for (std::int64_t start = 0; start < channels; start += step) {
    const std::int64_t end = std::min(start + step, channels);
    const Value part = convolution(cast(slice(x, {1}, {start}, {end}), DType::f32),
                                   cast(slice(w, {1}, {start}, {end}), DType::f32), g, 1);
    y = y ? y + cast(round(part), DType::i32) : cast(round(part), DType::i32);
  }
  return y;
}

Values matmul_integer(Context& c) { return {exact_product(centered(c, 0, 2, true), centered(c, 1, 3, false))}; }

Values conv_integer(Context& c) {
  const Value x = centered(c, 0, 2, true);
  Value w = widen(c.in(1));
  if (c.has(3)) {
    Ints dims(static_cast<std::size_t>(w.shape().rank()), 1);
    dims[0] = c.shape(3).elements();
    w = w - reshape(widen(c.in(3)), dims);
  }
  return {exact_convolution(c, x, w)};
}

/// The product or convolution of quantized operands a (0 to 2) and b (3 to 5), quantized as 6 and 7 say.
Value requantized(Context& c, Value y, Value b_scale) {
  const Value scale = reshaped(c.in(1), {}) * b_scale / reshaped(c.in(6), {});
  const DType dtype = c.dtype(7);
  return quantized(cast(y, DType::f32) * cast(scale, DType::f32), reshaped(c.in(7), {}), range_of(c, dtype, c.bits(7)),
                   dtype);
}

Values qlinear_matmul(Context& c) {
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{6}, std::size_t{7}}) {
    if (c.shape(i).elements() != 1) c.refuse("scales by row are not supported");
  }
  Value scale = c.in(4);
  if (scale.shape().elements() == 1) scale = reshaped(scale, {});
  return {requantized(c, exact_product(centered(c, 0, 2, true), centered(c, 3, 5, false)), scale)};
}

Values qlinear_conv(Context& c) {
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{6}, std::size_t{7}}) {
    if (c.shape(i).elements() != 1) c.refuse("its scales and zero points must be single");
  }
  const Value x = centered(c, 0, 2, true);
  Value w = widen(c.in(3));
  const auto along = [&](Value v, std::size_t axis) {
    Ints dims(static_cast<std::size_t>(w.shape().rank()), 1);
    dims[axis] = v.shape().elements();
    return reshape(v, dims);
  };
  w = w - along(widen(c.in(5)), 0);
  Value y = exact_convolution(c, x, w);
  if (c.has(8)) y = y + along(c.in(8), 1);
  return {requantized(c, y, along(c.in(4), 1))};
}

/// com.microsoft: A [..., K] times blocks of 4-bit integers [N, blocks, bytes], two to a byte, the first in the low half.
Values matmul_nbits(Context& c) {
  const std::int64_t k = c.integer("K"), n = c.integer("N"), bits = c.integer("bits", 4),
                     block = c.integer("block_size");
  c.ignore("accuracy_level");
  if (bits != 4) c.refuse(formatted("{} bits; 4 are supported", bits));
  if (block < 16 || block > 65536 || block % 2 != 0 || k < 1 || n < 1 || k > (1 << 24))
    c.refuse(formatted("blocks of {}, K = {}, N = {}", block, k, n));
  const std::int64_t blocks = (k + block - 1) / block;
  const auto unpacked = [&](const Literal& packed, std::int64_t rows, std::int64_t columns, std::int64_t row_bytes,
                            std::string_view what) {
    if (packed.type().dtype != DType::u8 || packed.type().shape.elements() != rows * row_bytes)
      c.refuse(formatted("{} is {}", what, packed.type().to_string()));
    std::vector<std::byte> values(static_cast<std::size_t>(rows * columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const auto byte = static_cast<unsigned>(packed.bytes()[static_cast<std::size_t>(r * row_bytes + i / 2)]);
        values[static_cast<std::size_t>(r * columns + i)] = static_cast<std::byte>((byte >> (i % 2 * 4)) & 15);
      }
    }
    return c.graph.constant(Literal({DType::u8, Shape{rows, columns}}, std::move(values)));
  };
  if (n > (std::int64_t{1} << 31) / (blocks * block)) c.refuse("more than 2^31 weights");
  const Value q = unpacked(c.known(1, "the weight"), n, blocks * block, blocks * block / 2, "the weight");
  const Value scale = reshape(c.in(2), {n, blocks, 1});
  Value w = cast(reshape(q, {n, blocks, block}), scale.dtype());
  if (!c.has(3)) {
    w = sub(w, 8);
  } else if (c.dtype(3) == DType::u8) {
    const std::int64_t row_bytes = (blocks + 1) / 2;
    w = w - cast(reshape(unpacked(c.known(3, "the zero points"), n, blocks, row_bytes, "zero_points"), {n, blocks, 1}),
                 scale.dtype());
  } else {
    w = w - reshape(c.in(3), {n, blocks, 1});
  }
  if (c.has(4)) c.refuse("g_idx is not supported");
  w = slice(reshape(w * scale, {n, blocks * block}), {1}, {0}, {k});
  Value y = matmul(c.in(0), w, false, true);
  if (c.has(5)) y = y + c.in(5);
  return {y};
}

}  // namespace

std::span<const Op> quantize_ops() {
  static constexpr std::array table = {
      Op{"ConvInteger", conv_integer, 10, false},
      Op{"DequantizeLinear", dequantize_linear, 10},
      Op{"DynamicQuantizeLinear", dynamic_quantize, 11},
      Op{"MatMulInteger", matmul_integer, 10},
      Op{"MatMulNBits", matmul_nbits, 1, false, "com.microsoft"},
      Op{"QLinearConv", qlinear_conv, 10, false},
      Op{"QLinearMatMul", qlinear_matmul, 10},
      Op{"QuantizeLinear", quantize_linear, 10},
  };
  return table;
}

}  // namespace aeshna::onnx
