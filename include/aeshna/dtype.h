#pragma once
#include <cstdint>
#include <string_view>

namespace aeshna {

/// Element types of tensors: ONNX's numeric scalars and GGUF's quantized blocks.
/// Which of them a device computes with, stores only, or refuses is decided by the compiler (docs/semantics.md).
enum class DType : std::uint8_t {
  f32, f16, bf16, f64,
  i8, i16, i32, i64,
  u8, u16, u32, u64,
  boolean,
  i4, u4, f8e4m3, f8e5m2,
  q4_0, q4_1, q5_0, q8_0, q4_K, q6_K,
};

/// Storage facts of a dtype: `block_bytes` bytes hold `block_elements` elements.
struct DTypeInfo {
  std::string_view name;  ///< as written in text graphs and messages
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  enum class Kind : std::uint8_t { Float, Signed, Unsigned, Bool, Quantized } kind;
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
/// Throws Error(InvalidArgument) that names the text when it is no dtype.
DType parse_dtype(std::string_view name);

inline bool is_float(DType d) { return dtype_info(d).kind == DTypeInfo::Kind::Float; }
inline bool is_integer(DType d) {
  const auto kind = dtype_info(d).kind;
  return kind == DTypeInfo::Kind::Signed || kind == DTypeInfo::Kind::Unsigned;
}

}  // namespace aeshna
