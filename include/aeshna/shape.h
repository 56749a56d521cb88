#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "aeshna/dtype.h"

namespace aeshna {

/// Dimensions of a tensor, row-major, rank 0 to 8; a dimension may be 0.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  /// Throws Error(InvalidArgument) for more than 8 or for negative dimensions.
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }

  /// Product of the dimensions; throws Error(LimitExceeded) if it does not fit int64.
  std::int64_t elements() const;
  /// Replaces one dimension.
  Shape with(int axis, std::int64_t extent) const;
  /// Resolves a negative axis against this rank; throws Error(InvalidArgument) when out of range.
  int axis(std::int64_t axis) const;
  /// "[2, 3]"
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// NumPy broadcasting of two shapes; throws Error(ShapeMismatch) naming both.
Shape broadcast_shapes(const Shape& a, const Shape& b);

/// Row-major element strides of a dense tensor.
std::array<std::int64_t, Shape::kMaxRank> dense_strides(const Shape& shape);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
  /// "f32[2, 3]"
  std::string to_string() const;
  /// Bytes in a file or on the host (checked; last axis must hold whole blocks for quantized types).
  std::int64_t bytes() const;
};

}  // namespace aeshna
