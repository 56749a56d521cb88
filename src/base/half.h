#pragma once
#include <cstdint>

#include "aeshna/dtype.h"

namespace aeshna {

std::uint16_t f32_to_f16(float value);  ///< ties to even; overflow to infinity; NaN stays NaN
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);  ///< ties to even; NaN stays NaN
float bf16_to_f32(std::uint16_t bits);

/// Rounds a double once (ties to even) to a value of a float dtype; overflow gives infinity, or NaN where the format has none.
double round_to_float(DType dtype, double value);
/// One-byte floats, f8e4m3 (no infinities, OCP "e4m3fn") and f8e5m2.
std::uint8_t encode_f8(DType dtype, double value);
double decode_f8(DType dtype, std::uint8_t bits);

}  // namespace aeshna
