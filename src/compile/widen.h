#pragma once
// f16 and bf16 hold values; what is more than one step of arithmetic (composites, kernels of their own, gradients) is computed in
// f32 from widened operands, and its results are rounded once.
#include <span>
#include <vector>

#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {

inline Value cast_value(const BuildContext& context, Value value, DType dtype) {
  if (!value || value.dtype() == dtype) return value;
  return context.add("cast", {value}, {{"dtype", dtype}});
}

/// The value as f32 if it is f16 or bf16; others, and empty ones, as they are.
inline Value widened(const BuildContext& context, Value value) {
  return value && is_half(value.dtype()) ? cast_value(context, value, DType::f32) : value;
}

inline std::vector<Value> widened(const BuildContext& context, std::span<const Value> values) {
  std::vector<Value> result;
  for (const Value& value : values) result.push_back(widened(context, value));
  return result;
}

inline bool any_half(std::span<const Value> values) {
  for (const Value& value : values) {
    if (value && is_half(value.dtype())) return true;
  }
  return false;
}

}  // namespace aeshna
