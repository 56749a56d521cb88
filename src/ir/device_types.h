#pragma once
// What a tensor is on a device: the dtype that kernels compute with, and its bytes.
#include <cstdint>

#include "aeshna/shape.h"

namespace aeshna {

/// The dtype a kernel computes with for values of this dtype (f32, i32, u32, boolean).
DType compute_dtype(DType dtype);
/// Bytes of a tensor on the device: f32/i32/u32 and every narrower or wider integer and boolean take one 32-bit word per
/// element. Throws Error(Unsupported) naming the dtype for what has no device form yet.
std::uint64_t device_bytes(const TensorType& type);

}  // namespace aeshna
