#pragma once
#include "aeshna/attrs.h"

namespace aeshna {

/// The values as blocks of a quantized dtype, along the last axis, whose length must be a multiple of 32 (q4_0, q4_1, q5_0, q8_0) or
/// of 256 (q4_K, q6_K). The bytes are GGUF's. Nothing else quantizes: Weights::set and files take blocks as they are.
/// Throws Error(OutOfRange) for values that are not finite or beyond what the format can hold.
Literal quantize(const Literal& values, DType dtype);

/// The values that quantized blocks stand for; exact in f32.
Literal dequantize(const Literal& blocks, DType dtype = DType::f32);

}  // namespace aeshna
