#include "aeshna/dtype.h"

#include <array>
#include <string>

#include "base/fail.h"

namespace aeshna {

namespace {
using enum DTypeInfo::Kind;
/// In the order of the enumeration. Block sizes of the quantized types are GGUF's.
constexpr std::array<DTypeInfo, 23> kDTypes = {{
    {"f32", 1, 4, Float},       {"f16", 1, 2, Float},       {"bf16", 1, 2, Float},      {"f64", 1, 8, Float},
    {"i8", 1, 1, Signed},       {"i16", 1, 2, Signed},      {"i32", 1, 4, Signed},      {"i64", 1, 8, Signed},
    {"u8", 1, 1, Unsigned},     {"u16", 1, 2, Unsigned},    {"u32", 1, 4, Unsigned},    {"u64", 1, 8, Unsigned},
    {"bool", 1, 1, Bool},       {"i4", 2, 1, Signed},       {"u4", 2, 1, Unsigned},     {"f8e4m3", 1, 1, Float},
    {"f8e5m2", 1, 1, Float},    {"q4_0", 32, 18, Quantized}, {"q4_1", 32, 20, Quantized}, {"q5_0", 32, 22, Quantized},
    {"q8_0", 32, 34, Quantized}, {"q4_K", 256, 144, Quantized}, {"q6_K", 256, 210, Quantized},
}};
static_assert(static_cast<std::size_t>(DType::q6_K) + 1 == kDTypes.size());
}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  AESHNA_CHECK(index < kDTypes.size());
  return kDTypes[index];
}

DType parse_dtype(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
    known += (i == 0 ? "" : " ") + std::string(kDTypes[i].name);
  }
  fail(ErrorCode::InvalidArgument, "'{}' is no dtype (known: {})", name, known);
}

}  // namespace aeshna
