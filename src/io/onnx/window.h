#pragma once
// The windows of convolutions and pools.
#include "io/onnx/translate.h"

namespace aeshna::onnx {

/// One entry for each spatial axis.
struct Geometry {
  Ints kernel, stride, dilation, before, after;
  std::size_t axes() const { return kernel.size(); }
  std::int64_t span(std::size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
  /// Windows along an axis of `extent`.
  std::int64_t windows(std::size_t i, std::int64_t extent) const {
    return (extent + before[i] + after[i] - span(i)) / stride[i] + 1;
  }
};

/// From the attributes auto_pad, dilations, pads and strides, for an operand with these spatial extents; checked.
Geometry window_geometry(Context& c, const Ints& kernel, const Ints& extents);
/// The attribute kernel_shape, or that of the weight.
Ints kernel_of(Context& c, const Shape& weight);
Ints spatial(const Shape& x);

/// Convolution over one to three spatial axes.
Value convolution(Value x, Value w, const Geometry& g, std::int64_t groups);

}  // namespace aeshna::onnx
