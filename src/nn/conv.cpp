// Convolutions with their parameters.
#include "nn/layer.h"

namespace aeshna::nn {

Value conv(Value x, std::int64_t out, std::vector<std::int64_t> kernel, std::string_view name, ConvLayerOptions options,
           Loc loc) {
  const Layer layer("conv", name, x, loc);
  const int spatial = x.shape().rank() - 2;
  layer.require_shape(spatial == 1 || spatial == 2, "needs an input [N, C, L] or [N, C, H, W], not {}",
                      x.type().to_string());
  if (kernel.size() == 1) kernel.resize(static_cast<std::size_t>(spatial), kernel[0]);
  layer.require(std::ssize(kernel) == spatial, "has a kernel of {} axes for {} spatial axes", kernel.size(), spatial);
  for (const std::int64_t extent : kernel)
    layer.require(extent >= 1, "needs kernel extents of at least 1, not {}", extent);
  const std::int64_t in = x.shape()[1], groups = options.groups;
  layer.require(out >= 1, "needs at least one output channel, not {}", out);
  layer.require(groups >= 1 && in % groups == 0 && out % groups == 0,
                "cannot split {} input and {} output channels into {} groups", in, out, groups);
  std::vector<std::int64_t> dims{out, in / groups};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  const Value weight = layer.parameter("weight", Shape(dims), options.init, options.trainable);
  std::optional<Value> bias;
  if (options.bias) bias = layer.parameter("bias", {out}, Init::zeros(), options.trainable);
  return aeshna::conv(layer.at(x), layer.at(weight),
                      {.stride = options.stride,
                       .padding = options.padding,
                       .dilation = options.dilation,
                       .padding_after = options.padding_after,
                       .groups = groups},
                      bias);
}

Value res_block(Value x, std::int64_t channels, std::string_view name, ResBlockOptions options, Loc loc) {
  const Layer layer("res_block", name, x, loc);
  layer.require_shape(x.shape().rank() == 4, "needs an input [N, C, H, W], not {}", x.type().to_string());
  layer.require(options.groups >= 0, "cannot have {} groups", options.groups);
  const auto normalized = [&](Value v, const std::string& number, const std::string& whole) {
    if (options.groups > 0) {
      return group_norm(v, options.groups, layer.part(whole.empty() ? "norm" + number : whole),
                        {.trainable = options.trainable}, loc);
    }
    return batch_norm(v, layer.part(whole.empty() ? "bn" + number : whole),
                      {.training = options.training, .trainable = options.trainable}, loc);
  };
  const auto convolved = [&](Value v, std::int64_t extent, std::int64_t stride, std::string_view part) {
    return conv(v, channels, {extent}, layer.part(part),
                {.stride = {stride},
                 .padding = {extent / 2},
                 .bias = false,
                 .init = Init::kaiming_normal(),
                 .trainable = options.trainable},
                loc);
  };
  Value y = relu(layer.at(normalized(convolved(x, 3, options.stride, "conv1"), "1", "")));
  y = normalized(convolved(y, 3, 1, "conv2"), "2", "");
  Value skip = x;
  if (options.stride != 1 || x.shape()[1] != channels)
    skip = normalized(convolved(x, 1, options.stride, "downsample.0"), "", "downsample.1");
  return relu(layer.at(add(layer.at(y), layer.at(skip))));
}

}  // namespace aeshna::nn
