// Normalization layers: the ops with their parameters.
#include "nn/layer.h"

namespace aeshna::nn {

namespace {

/// Extents of the last axes.
Shape last_extents(const Layer& layer, std::int64_t axes) {
  const Shape& shape = layer.x().shape();
  layer.require(axes >= 1 && axes <= shape.rank(), "cannot normalize over the last {} axes of {}", axes,
                layer.x().type().to_string());
  return Shape(shape.dims().last(static_cast<std::size_t>(axes)));
}

std::int64_t channels(const Layer& layer) {
  const Value& x = layer.x();
  layer.require_shape(x.shape().rank() >= 2, "needs an input [N, C, ...], not {}", x.type().to_string());
  return x.shape()[1];
}

}  // namespace

Value layer_norm(Value x, std::string_view name, LayerNormOptions options, Loc loc) {
  const Layer layer("layer_norm", name, x, loc);
  const Shape shape = last_extents(layer, options.axes);
  std::optional<Value> scale, bias;
  if (options.affine) scale = layer.parameter("weight", shape, Init::constant(1), options.trainable);
  if (options.affine && options.bias) bias = layer.parameter("bias", shape, Init::zeros(), options.trainable);
  return aeshna::layer_norm(layer.at(x), scale, bias, options.eps, options.axes);
}

Value rms_norm(Value x, std::string_view name, RmsNormOptions options, Loc loc) {
  const Layer layer("rms_norm", name, x, loc);
  const Shape shape = last_extents(layer, options.axes);
  return aeshna::rms_norm(layer.at(x), layer.parameter("weight", shape, Init::constant(1), options.trainable),
                          options.eps, options.axes);
}

Value group_norm(Value x, std::int64_t groups, std::string_view name, GroupNormOptions options, Loc loc) {
  const Layer layer("group_norm", name, x, loc);
  const std::int64_t c = channels(layer);
  layer.require(groups >= 1 && c % groups == 0, "cannot split {} channels into {} groups", c, groups);
  std::optional<Value> scale, bias;
  if (options.affine) {
    scale = layer.parameter("weight", {c}, Init::constant(1), options.trainable);
    bias = layer.parameter("bias", {c}, Init::zeros(), options.trainable);
  }
  return aeshna::group_norm(layer.at(x), groups, scale, bias, options.eps);
}

Value batch_norm(Value x, std::string_view name, BatchNormOptions options, Loc loc) {
  const Layer layer("batch_norm", name, x, loc);
  const std::int64_t c = channels(layer);
  std::optional<Value> scale, bias;
  if (options.affine) {
    scale = layer.parameter("weight", {c}, Init::constant(1), options.trainable);
    bias = layer.parameter("bias", {c}, Init::zeros(), options.trainable);
  }
  Graph& graph = layer.graph();
  const Value mean = graph.state(layer.part("running_mean"), {c}, x.dtype(), Init::zeros(), loc);
  const Value variance = graph.state(layer.part("running_var"), {c}, x.dtype(), Init::constant(1), loc);
  if (!options.training) return aeshna::batch_norm(layer.at(x), mean, variance, scale, bias, options.eps);
  return batch_norm_training(layer.at(x), mean, variance, scale, bias, options.momentum, options.eps);
}

}  // namespace aeshna::nn
