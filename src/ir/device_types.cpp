// The device forms of tensors: one 32-bit word per element.
#include "ir/device_types.h"

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

DType compute_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return DType::f32;
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: return DType::i32;
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64: return DType::u32;
    case DType::boolean: return DType::boolean;
    default: fail(ErrorCode::Unsupported, "dtype {} has no form on the device yet (f32, integers and bool have)", dtype_name(dtype));
  }
}

std::uint64_t device_bytes(const TensorType& type) {
  compute_dtype(type.dtype);
  return checked_mul(static_cast<std::uint64_t>(type.shape.elements()), std::uint64_t{4}, "tensor bytes");
}

}  // namespace aeshna
