#pragma once
// What a tensor is on a device: the dtype that kernels compute with, and how its elements lie in 32-bit words.
#include <cstdint>
#include <vector>

#include "aeshna/shape.h"
#include "base/caps.h"
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

/// A tensor that exceeds Caps.max_buffer_size lies in several buffers, its parts: this many elements in each but the last, which
/// one descriptor covers. 0 where one buffer holds it. Parts are whole rows, of the outermost axes that allow it, and multiples of
/// Caps.storage_alignment where such rows fit; always whole units. Throws Error(LimitExceeded) where not even a unit fits.
std::int64_t part_elements(const TensorType& type, const Caps& caps);

struct TensorPart {
  std::int64_t first = 0, count = 0;  ///< elements
  std::uint64_t offset = 0, bytes = 0;  ///< in the tensor's device form
};
/// All parts; one (of no elements, perhaps) where one buffer holds the tensor.
std::vector<TensorPart> tensor_parts(const TensorType& type, const Caps& caps);

/// On the device, for estimates.
inline double bytes_per_element(DType dtype) {
  const DeviceUnit unit = device_unit(dtype);
  return static_cast<double>(unit.bytes) / unit.elements;
}

/// f16 and bf16: stored in 16 bits, computed with in f32 and rounded after each op.
inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace aeshna
