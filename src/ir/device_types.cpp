// The device forms of tensors.
#include "ir/device_types.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

DType compute_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q8_0:
    case DType::q4_K:
    case DType::q6_K:
      return DType::f32;
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return DType::i32;
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return DType::u32;
    case DType::boolean:
      return DType::boolean;
    default:
      fail(ErrorCode::Unsupported,
           "dtype {} has no form on the device yet (f32, f16, bf16, quantized blocks, integers and bool have)",
           dtype_name(dtype));
  }
}

DeviceUnit device_unit(DType dtype) {
  if (is_half(dtype)) return {2, 4};
  if (is_quantized(dtype)) {
    const DTypeInfo& info = dtype_info(dtype);
    const std::uint32_t blocks = quant_unit_blocks(dtype);
    return {blocks * info.block_elements, blocks * info.block_bytes};
  }
  compute_dtype(dtype);
  return {1, 4};
}

std::uint64_t device_bytes(DType dtype, std::int64_t elements) {
  const DeviceUnit unit = device_unit(dtype);
  return checked_mul(ceil_div(static_cast<std::uint64_t>(elements), std::uint64_t{unit.elements}),
                     std::uint64_t{unit.bytes}, "tensor bytes");
}

std::uint64_t device_bytes(const TensorType& type) { return device_bytes(type.dtype, type.shape.elements()); }

std::int64_t part_elements(const TensorType& type, const Caps& caps) {
  if (device_bytes(type) <= caps.max_buffer_size) return 0;
  const DeviceUnit unit = device_unit(type.dtype);
  const std::uint64_t units = std::min(caps.max_buffer_size, caps.max_storage_range) / unit.bytes;
  if (units == 0) {
    fail(ErrorCode::LimitExceeded, "type {}: max_buffer_size of {} is {}, max_storage_range {}", type.to_string(), caps.device_name,
         caps.max_buffer_size, caps.max_storage_range);
  }
  const auto most = static_cast<std::int64_t>(std::min<std::uint64_t>(units, INT64_MAX / unit.elements)) * unit.elements;
  const std::int64_t aligned =
      std::lcm<std::int64_t>(std::max(caps.storage_alignment, 1u), unit.bytes) / unit.bytes * unit.elements;
  std::int64_t row = type.shape.elements();
  for (const std::int64_t extent : type.shape) {
    row /= extent;
    if (row > most) continue;
    const std::int64_t rows = std::lcm<std::int64_t>(row, unit.elements);
    if (rows > most) continue;
    const std::int64_t better = std::lcm(rows, aligned);
    return better <= most ? most / better * better : most / rows * rows;
  }
  return most;
}

std::vector<TensorPart> tensor_parts(const TensorType& type, const Caps& caps) {
  const std::int64_t elements = type.shape.elements(), part = part_elements(type, caps);
  if (part == 0) return {{0, elements, 0, device_bytes(type)}};
  std::vector<TensorPart> parts;
  for (std::int64_t first = 0; first < elements; first += part) {
    const std::int64_t count = std::min(part, elements - first);
    parts.push_back({first, count, device_bytes(type.dtype, first), device_bytes(type.dtype, count)});
  }
  return parts;
}

}  // namespace aeshna
