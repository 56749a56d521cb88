#pragma once
// What a tensor is on a device: the dtype that kernels compute with, and how its elements lie in 32-bit words.
#include <cstdint>

#include "aeshna/shape.h"
#include "base/quant.h"

namespace aeshna {

/// The dtype a kernel computes with for values of this dtype: f32 (for f16, bf16 and the quantized blocks too), i32, u32 or
/// boolean. Throws Error(Unsupported) naming the dtype for what has no device form yet.
DType compute_dtype(DType dtype);

/// The smallest run of elements that begins and ends at a word of device memory.
struct DeviceUnit {
  std::uint32_t elements = 1;
  std::uint32_t bytes = 4;  ///< a multiple of 4
};
/// f32, integers of every width and booleans: a word each. f16 and bf16: two to a word, the first in the low half. Quantized:
/// one block, or two where a block's bytes are not whole words (layout: base/quant.h).
DeviceUnit device_unit(DType dtype);

/// Bytes of `elements` consecutive elements that begin at a unit; whole units.
std::uint64_t device_bytes(DType dtype, std::int64_t elements);
std::uint64_t device_bytes(const TensorType& type);

/// On the device, for estimates.
inline double bytes_per_element(DType dtype) {
  const DeviceUnit unit = device_unit(dtype);
  return static_cast<double>(unit.bytes) / unit.elements;
}

/// f16 and bf16: stored in 16 bits, computed with in f32 and rounded after each op.
inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace aeshna
