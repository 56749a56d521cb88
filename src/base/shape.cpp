#include "aeshna/shape.h"

#include <limits>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

namespace {
std::string dims_text(std::span<const std::int64_t> dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return text + "]";
}
}  // namespace

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    fail(ErrorCode::InvalidArgument, "shape {} has rank {}; the most is {}", dims_text(dims), dims.size(), kMaxRank);
  }
  for (const std::int64_t dim : dims) {
    if (dim < 0) fail(ErrorCode::InvalidArgument, "shape {} has the negative dimension {}", dims_text(dims), dim);
  }
  std::ranges::copy(dims, dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

std::int64_t Shape::elements() const {
  // A zero anywhere makes the tensor empty, however large the others are.
  if (std::ranges::contains(dims(), 0)) return 0;
  std::int64_t count = 1;
  for (const std::int64_t dim : dims()) {
    if (__builtin_mul_overflow(count, dim, &count)) {
      fail(ErrorCode::LimitExceeded, "the number of elements of shape {} does not fit 64 bits", to_string());
    }
  }
  return count;
}

Shape Shape::with(int axis, std::int64_t extent) const {
  AESHNA_CHECK(axis >= 0 && axis < rank_);
  if (extent < 0) fail(ErrorCode::InvalidArgument, "negative extent {} for axis {} of shape {}", extent, axis, to_string());
  Shape result = *this;
  result.dims_[static_cast<std::size_t>(axis)] = extent;
  return result;
}

int Shape::axis(std::int64_t axis) const {
  if (axis < -rank_ || axis >= rank_) {
    fail(ErrorCode::InvalidArgument, "axis {} is out of range for shape {} of rank {}", axis, to_string(), rank_);
  }
  return static_cast<int>(axis < 0 ? axis + rank_ : axis);
}

std::string Shape::to_string() const { return dims_text(dims()); }

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  for (int i = 1; i <= rank; ++i) {  // from the last axis
    const std::int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1) {
      fail(ErrorCode::ShapeMismatch, "shapes {} and {} do not broadcast: {} against {} on axis {} from the end", a.to_string(),
           b.to_string(), x, y, i);
    }
    dims[static_cast<std::size_t>(rank - i)] = x == 1 ? y : x;
  }
  return Shape(std::span(dims.data(), static_cast<std::size_t>(rank)));
}

std::array<std::int64_t, Shape::kMaxRank> dense_strides(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxRank> strides{};
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = stride;
    // An empty tensor has no element to reach, so its strides need not count the empty axis.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[i], 1), &stride))
      fail(ErrorCode::LimitExceeded, "strides of shape {} do not fit 64 bits", shape.to_string());
  }
  return strides;
}

std::string TensorType::to_string() const { return std::string(dtype_name(dtype)) + shape.to_string(); }

std::int64_t TensorType::bytes() const {
  const DTypeInfo& info = dtype_info(dtype);
  const std::int64_t elements = shape.elements();
  if (info.kind == DTypeInfo::Kind::Quantized) {
    if (shape.rank() == 0 || shape[shape.rank() - 1] % info.block_elements != 0) {
      fail(ErrorCode::InvalidArgument, "{}: the last axis of a {} tensor must hold whole blocks of {} elements", to_string(),
           info.name, info.block_elements);
    }
  }
  // 4-bit integers are packed over the whole tensor, with a last half-filled byte (ONNX).
  const std::int64_t blocks = ceil_div<std::int64_t>(elements, info.block_elements), size = info.block_bytes;
  if (blocks <= std::numeric_limits<std::int64_t>::max() / size) return blocks * size;
  fail(ErrorCode::LimitExceeded, "bytes of {}: {} * {} does not fit 64 bits", to_string(), blocks, size);
}

}  // namespace aeshna
