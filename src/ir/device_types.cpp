// The device forms of tensors.
#include "ir/device_types.h"

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
    case DType::q6_K: return DType::f32;
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: return DType::i32;
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64: return DType::u32;
    case DType::boolean: return DType::boolean;
    default:
      fail(ErrorCode::Unsupported, "dtype {} has no form on the device yet (f32, f16, bf16, quantized blocks, integers and bool have)",
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
  return checked_mul(ceil_div(static_cast<std::uint64_t>(elements), std::uint64_t{unit.elements}), std::uint64_t{unit.bytes},
                     "tensor bytes");
}

std::uint64_t device_bytes(const TensorType& type) { return device_bytes(type.dtype, type.shape.elements()); }

}  // namespace aeshna
