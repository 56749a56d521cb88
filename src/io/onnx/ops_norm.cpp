// Normalizations.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

/// [C] as [C, 1, ...], to broadcast along axis 1 of a tensor of this rank.
Value channelwise(Value v, int rank) {
  Ints dims(static_cast<std::size_t>(std::max(rank - 1, 1)), 1);
  dims[0] = v.shape().elements();
  return reshape(v, dims);
}

Values batch_norm_op(Context& c) {
  const double eps = c.number("epsilon", 1e-5), momentum = c.number("momentum", 0.9);
  c.ignore("consumed_inputs");
  if (c.opset < 9) c.only("spatial", 1);
  const bool training = c.opset < 7 ? c.integer("is_test", 0) == 0 : c.opset >= 14 && c.flag("training_mode", false);
  if (c.opset < 7 && training && c.wants(1)) c.refuse("training mode of opset 6");
  const Value x = c.in(0), scale = c.in(1), bias = c.in(2), mean_in = c.in(3), var_in = c.in(4);
  if (x.shape().rank() < 2) c.refuse("an operand without channels");
  if (!training || c.opset < 7) {
    if (c.opset < 14 && c.wants(1)) c.refuse("training mode of old opsets");
    return {batch_norm(x, mean_in, var_in, scale, bias, eps)};
  }
  Axes axes(static_cast<std::size_t>(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  axes.erase(axes.begin() + 1);
  const Value m = mean(x, axes);
  const Value d = x - channelwise(m, x.shape().rank());
  const Value v = mean(mul(d, d), axes);
  const auto running = [&](Value old, Value now) { return mul(old, momentum) + mul(now, 1 - momentum); };
  return {batch_norm(x, m, v, scale, bias, eps), running(mean_in, m), running(var_in, v)};
}

Values instance_norm_op(Context& c) {
  c.ignore("consumed_inputs");
  const double eps = c.number("epsilon", 1e-5);
  return {instance_norm(c.in(0), c.in(1), c.in(2), eps)};
}

Values layer_norm_op(Context& c) {
  const int rank = c.rank(0), axis = c.axis(c.integer("axis", -1), rank);
  const double eps = c.number("epsilon", 1e-5);
  const std::int64_t stash = c.integer("stash_type", 1);
  if (stash != 1 && !(stash == 11 && c.dtype(0) == DType::f64)) c.refuse(formatted("stash_type is {}", stash));
  const Value x = c.in(0);
  const Ints dims = dims_of(x.shape());
  const Ints normalized(dims.begin() + axis, dims.end());
  const auto fits = [&](std::size_t i) { return !c.has(i) || dims_of(c.shape(i)) == normalized; };
  Value y;
  if (fits(1) && fits(2)) {
    y = layer_norm(x, c.maybe(1), c.maybe(2), eps, rank - axis);
  } else {
    y = layer_norm(x, {}, {}, eps, rank - axis);
    if (c.has(1)) y = mul(y, c.in(1));
    if (c.has(2)) y = add(y, c.in(2));
  }
  Values results = {y};
  if (c.wants(1) || c.wants(2)) {
    Axes axes;
    for (int i = axis; i < rank; ++i) axes.push_back(i);
    const Value wide = cast(x, DType::f32), m = mean(wide, axes, true), d = wide - m;
    results.push_back(m);
    results.push_back(rsqrt(add(mean(mul(d, d), axes, true), eps)));
  }
  return results;
}

Values rms_norm_op(Context& c) {
  const int rank = c.rank(0), axis = c.axis(c.integer("axis", -1), rank);
  const double eps = c.number("epsilon", 1e-5);
  c.only("stash_type", 1);
  return {rms_norm(c.in(0), c.maybe(1), eps, rank - axis)};
}

Values group_norm_op(Context& c) {
  const double eps = c.number("epsilon", 1e-5);
  const std::int64_t groups = c.integer("num_groups");
  c.only("stash_type", 1);
  const std::int64_t channels = c.rank(0) > 1 ? c.shape(0)[1] : 0;
  if (groups < 1 || channels % groups != 0) c.refuse(formatted("{} channels in {} groups", channels, groups));
  Value scale = c.in(1), bias = c.in(2);
  if (c.opset < 21 && channels != groups) {  // one for each group
    scale = repeat_interleave(scale, channels / groups, 0);
    bias = repeat_interleave(bias, channels / groups, 0);
  }
  return {group_norm(c.in(0), groups, scale, bias, eps)};
}

Values mean_variance(Context& c) {
  const Axes axes = c.axes(c.ints("axes", {0, 2, 3}), c.rank(0));
  const Value x = c.in(0);
  const Value d = x - mean(x, axes, true);
  return {d / add(sqrt(mean(mul(d, d), axes, true)), 1e-9)};
}

Values lp_norm(Context& c) {
  const std::int64_t p = c.integer("p", 2), axis = c.axis(c.integer("axis", -1), c.rank(0));
  const Value x = c.in(0);
  if (p != 1 && p != 2) c.refuse(formatted("p is {}", p));
  return {x / (p == 1 ? sum(abs(x), {axis}, true) : sqrt(sum(mul(x, x), {axis}, true)))};
}

}  // namespace

std::span<const Op> norm_ops() {
  static constexpr std::array table = {
      Op{"BatchNormalization", batch_norm_op},
      Op{"GroupNormalization", group_norm_op, 18},
      Op{"InstanceNormalization", instance_norm_op},
      Op{"LayerNormalization", layer_norm_op, 17},
      Op{"LpNormalization", lp_norm},
      Op{"MeanVarianceNormalization", mean_variance, 9},
      Op{"SimplifiedLayerNormalization", rms_norm_op},
  };
  return table;
}

}  // namespace aeshna::onnx
