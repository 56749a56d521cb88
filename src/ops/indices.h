#pragma once
// What ops that take indices share.
#include "ops/build.h"

namespace aeshna {

/// Dtypes of indices: i32, and i64 (32 bits on a device).
inline bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }
/// Fails unless operand `input`, called `name` in the message, holds indices.
void need_index(const InferContext& ctx, std::size_t input, std::string_view name);
/// Attr axis, which must be an axis of a tensor of this rank.
int need_axis(const InferContext& ctx, int rank);
/// "[0, extent) of axis 2", for messages.
std::string describe_range(std::int64_t extent, std::int64_t axis);

/// Makes every step fail in which an index lies outside [0, extent): Error(OutOfRange) naming `op` and the line. Constant indices
/// are checked at once.
void check_indices(std::string_view op, Value indices, std::int64_t extent, std::int64_t axis, const Loc& line);

}  // namespace aeshna
