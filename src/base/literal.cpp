#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "aeshna/quantize.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/half.h"
#include "base/quant.h"

namespace aeshna {

static_assert(std::endian::native == std::endian::little, "literals are kept in little-endian storage format");

namespace {

template <class T>
T load(std::span<const std::byte> bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::vector<std::byte>& bytes, std::int64_t index, T value) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
}

double load_element(DType dtype, std::span<const std::byte> bytes, std::int64_t i) {
  switch (dtype) {
    case DType::f32: return load<float>(bytes, i);
    case DType::f16: return f16_to_f32(load<std::uint16_t>(bytes, i));
    case DType::bf16: return bf16_to_f32(load<std::uint16_t>(bytes, i));
    case DType::f64: return load<double>(bytes, i);
    case DType::i8: return load<std::int8_t>(bytes, i);
    case DType::i16: return load<std::int16_t>(bytes, i);
    case DType::i32: return load<std::int32_t>(bytes, i);
    case DType::i64: return static_cast<double>(load<std::int64_t>(bytes, i));
    case DType::u8: return load<std::uint8_t>(bytes, i);
    case DType::u16: return load<std::uint16_t>(bytes, i);
    case DType::u32: return load<std::uint32_t>(bytes, i);
    case DType::u64: return static_cast<double>(load<std::uint64_t>(bytes, i));
    case DType::boolean: return load<std::uint8_t>(bytes, i) != 0 ? 1 : 0;
    case DType::f8e4m3:
    case DType::f8e5m2: return decode_f8(dtype, load<std::uint8_t>(bytes, i));
    case DType::u4:
    case DType::i4: {  // two to a byte, the first in the low half
      const int nibble = (load<std::uint8_t>(bytes, i / 2) >> (i % 2 * 4)) & 15;
      return dtype == DType::i4 && nibble >= 8 ? nibble - 16 : nibble;
    }
    default: {  // quantized: by its block
      const DTypeInfo& info = dtype_info(dtype);
      const auto block = static_cast<std::size_t>(i) / info.block_elements;
      std::array<float, 256> values;
      dequantize_blocks(dtype, bytes.subspan(block * info.block_bytes, info.block_bytes),
                        std::span(values).first(info.block_elements));
      return values[static_cast<std::size_t>(i) % info.block_elements];
    }
  }
}

/// Throws unless `value` is an integer in [low, high]; both bounds are exact doubles, `high` may be exclusive.
template <class T>
void store_integer(std::vector<std::byte>& bytes, std::int64_t i, double value, DType dtype) {
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double past = std::ldexp(1.0, std::numeric_limits<T>::digits);  // exact, unlike max() for 64 bits
  if (!(value >= low && value < past) || value != std::trunc(value)) {
    fail(ErrorCode::OutOfRange, "{} (element {}) is no {}", value, i, dtype_name(dtype));
  }
  store(bytes, i, static_cast<T>(value));
}

void store_element(DType dtype, std::vector<std::byte>& bytes, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f32: return store(bytes, i, static_cast<float>(value));
    case DType::f16: return store(bytes, i, f32_to_f16(static_cast<float>(round_to_float(dtype, value))));
    case DType::bf16: return store(bytes, i, f32_to_bf16(static_cast<float>(round_to_float(dtype, value))));
    case DType::f64: return store(bytes, i, value);
    case DType::i8: return store_integer<std::int8_t>(bytes, i, value, dtype);
    case DType::i16: return store_integer<std::int16_t>(bytes, i, value, dtype);
    case DType::i32: return store_integer<std::int32_t>(bytes, i, value, dtype);
    case DType::i64: return store_integer<std::int64_t>(bytes, i, value, dtype);
    case DType::u8: return store_integer<std::uint8_t>(bytes, i, value, dtype);
    case DType::u16: return store_integer<std::uint16_t>(bytes, i, value, dtype);
    case DType::u32: return store_integer<std::uint32_t>(bytes, i, value, dtype);
    case DType::u64: return store_integer<std::uint64_t>(bytes, i, value, dtype);
    case DType::boolean:
      if (value != 0 && value != 1) fail(ErrorCode::OutOfRange, "{} (element {}) is no bool", value, i);
      return store(bytes, i, static_cast<std::uint8_t>(value));
    case DType::f8e4m3:
    case DType::f8e5m2: return store(bytes, i, encode_f8(dtype, value));
    case DType::i4:
    case DType::u4: {
      const double low = dtype == DType::i4 ? -8 : 0;
      if (!(value >= low && value <= low + 15) || value != std::trunc(value)) {
        fail(ErrorCode::OutOfRange, "{} (element {}) is no {}", value, i, dtype_name(dtype));
      }
      const int nibble = static_cast<int>(value) & 15;
      bytes[static_cast<std::size_t>(i / 2)] |= static_cast<std::byte>(nibble << (i % 2 * 4));
      return;
    }
    default: fail(ErrorCode::Unsupported, "a {} literal cannot be made from numbers; quantize() makes one", dtype_name(dtype));
  }
}

}  // namespace

Literal::Literal(TensorType type, std::vector<std::byte> bytes) : type_(std::move(type)) {
  const std::int64_t expected = type_.bytes();
  if (static_cast<std::int64_t>(bytes.size()) != expected) {
    fail(ErrorCode::InvalidArgument, "a literal of type {} needs {} bytes, but there are {}", type_.to_string(), expected,
         bytes.size());
  }
  bytes_ = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Literal Literal::scalar(double value, DType dtype) { return from_doubles({dtype, {}}, std::span(&value, 1)); }

Literal Literal::from_doubles(TensorType type, std::span<const double> values) {
  const std::int64_t elements = type.shape.elements();
  if (static_cast<std::int64_t>(values.size()) != elements) {
    fail(ErrorCode::ShapeMismatch, "a literal of type {} needs {} values, but there are {}", type.to_string(), elements,
         values.size());
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
  for (std::int64_t i = 0; i < elements; ++i) store_element(type.dtype, bytes, i, values[static_cast<std::size_t>(i)]);
  return Literal(std::move(type), std::move(bytes));
}

double Literal::at(std::int64_t index) const {
  const std::int64_t elements = bytes_ ? type_.shape.elements() : 0;
  if (index < 0 || index >= elements) {
    fail(ErrorCode::OutOfRange, "element {} of a literal of type {} with {} elements", index, type_.to_string(), elements);
  }
  return load_element(type_.dtype, *bytes_, index);
}

std::vector<double> Literal::to_doubles() const {
  std::vector<double> values(bytes_ ? static_cast<std::size_t>(type_.shape.elements()) : 0);
  if (is_quantized(type_.dtype)) {
    std::vector<float> decoded(values.size());
    dequantize_blocks(type_.dtype, bytes(), decoded);
    std::ranges::copy(decoded, values.begin());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_element(type_.dtype, *bytes_, static_cast<std::int64_t>(i));
  return values;
}

Literal quantize(const Literal& values, DType dtype) {
  const TensorType type{dtype, values.type().shape};
  if (!is_quantized(dtype)) fail(ErrorCode::InvalidArgument, "[quantize] {} is no quantized dtype", dtype_name(dtype));
  if (!is_float(values.type().dtype))
    fail(ErrorCode::DTypeMismatch, "[quantize] only float values are quantized, found {}", values.type().to_string());
  std::vector<std::byte> blocks(static_cast<std::size_t>(type.bytes()));
  const std::vector<double> source = values.to_doubles();
  std::vector<float> floats(source.size());
  std::ranges::transform(source, floats.begin(), [](double v) { return static_cast<float>(v); });
  try {
    quantize_blocks(dtype, floats, blocks);
  } catch (Error& error) {
    throw error.context(formatted("quantize a literal of type {} to {}", values.type().to_string(), dtype_name(dtype)));
  }
  return Literal(type, std::move(blocks));
}

Literal dequantize(const Literal& blocks, DType dtype) {
  if (!is_quantized(blocks.type().dtype))
    fail(ErrorCode::DTypeMismatch, "[dequantize] {} is not quantized", blocks.type().to_string());
  if (!is_float(dtype)) fail(ErrorCode::InvalidArgument, "[dequantize] to {}; only floats hold the values", dtype_name(dtype));
  return Literal::from_doubles({dtype, blocks.type().shape}, blocks.to_doubles());
}

bool operator==(const Literal& a, const Literal& b) {
  return a.type_ == b.type_ && (a.bytes_ == b.bytes_ || std::ranges::equal(a.bytes(), b.bytes()));
}

}  // namespace aeshna
