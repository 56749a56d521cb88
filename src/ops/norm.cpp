// Normalization. layer_norm, rms_norm, group_norm, instance_norm and batch_norm_training share one core that differs only in
// the view of x, the axes of the statistics and the shape of scale and bias in that view.
//
// Statistics are a corrected two-pass: m0 = mean(x), then c = mean(x - m0) and mean((x - m0)^2) together, so that
// x - mean = (x - m0) - c keeps its digits when |mean| is far above the deviation, where mean itself cannot (its last bit is
// as large as that of x). The fuser makes one kernel of the reductions and of the normalized result.
#include <cmath>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

enum class Form : std::uint8_t { Layer, Rms, Group, Instance, Batch };

/// How a form sees x.
struct Layout {
  Shape x;
  Shape view;   ///< x reshaped, so that statistics are over whole axes
  Ints axes;    ///< of the statistics, in the view
  Shape kept;   ///< the view with those axes 1
  Shape stats;  ///< shape of the statistics as results
  Shape scale;  ///< shape of scale and bias
  Shape param;  ///< the same, aligned with the end of the view
  std::int64_t count = 1;
  bool scale_per_row = false;  ///< scale is constant over the axes of the statistics
};

Layout layout_of(Form form, const Shape& x, const Attrs& attrs) {
  Layout l;
  l.x = l.view = x;
  Ints param;
  const auto spatial = [&](int first) {
    for (int d = first; d < l.view.rank(); ++d) l.axes.push_back(d);
  };
  switch (form) {
    case Form::Layer:
    case Form::Rms:
      spatial(static_cast<int>(attrs.get<std::int64_t>("axis")));
      for (const std::int64_t axis : l.axes) param.push_back(x[static_cast<int>(axis)]);
      l.scale = Shape(param);
      break;
    case Form::Group: {
      const std::int64_t groups = attrs.get<std::int64_t>("groups");
      std::int64_t area = 1;
      for (int d = 2; d < x.rank(); ++d) area *= x[d];
      l.view = {x[0], groups, x[1] / groups, area};
      l.axes = {2, 3};
      param = {groups, x[1] / groups, 1};
      l.scale = {x[1]};
      l.stats = {x[0], groups};
      break;
    }
    case Form::Instance:
      spatial(2);
      l.scale = {x[1]};
      l.stats = {x[0], x[1]};
      break;
    case Form::Batch:
      l.axes = {0};
      spatial(2);
      l.scale = l.stats = {x[1]};
      break;
  }
  if (form == Form::Instance || form == Form::Batch) {
    param.assign(static_cast<std::size_t>(x.rank() - 1), 1);
    param[0] = x[1];
    l.scale_per_row = true;
  }
  l.param = Shape(param);
  l.kept = l.view;
  for (const std::int64_t axis : l.axes) {
    l.count *= l.view[static_cast<int>(axis)];
    l.kept = l.kept.with(static_cast<int>(axis), 1);
  }
  if (form == Form::Layer || form == Form::Rms) l.stats = l.kept;
  return l;
}

// ---- infer

void check_epsilon(const InferContext& ctx) {
  const double eps = ctx.attrs.get<double>("epsilon");
  if (!(eps > 0) || !std::isfinite(eps))
    ctx.fail(ErrorCode::InvalidArgument, formatted("epsilon must be positive and finite, not {}", eps));
}

void check_float(const InferContext& ctx) {
  const DType dtype = ctx.inputs[0].dtype;
  if (!is_float(dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(dtype)));
}

/// Operands from `first` on must have x's dtype and this shape.
void check_params(const InferContext& ctx, std::size_t first, std::initializer_list<const char*> names, Shape shape) {
  for (const char* name : names) {
    if (first >= ctx.inputs.size()) return;
    const TensorType want{ctx.inputs[0].dtype, shape}, &got = ctx.inputs[first++];
    if (got != want) {
      ctx.fail(got.dtype != want.dtype ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
               formatted("{} must be {}, not {}", name, want.to_string(), got.to_string()));
    }
  }
}

void check_rank(const InferContext& ctx, int least, const char* layout) {
  const TensorType& x = ctx.inputs[0];
  if (x.shape.rank() < least)
    ctx.fail(ErrorCode::ShapeMismatch, formatted("needs {} (rank >= {}), not {}", layout, least, x.to_string()));
}

std::vector<TensorType> infer(Form form, const InferContext& ctx) {
  check_float(ctx);
  check_epsilon(ctx);
  const TensorType& x = ctx.inputs[0];
  const Shape& shape = x.shape;
  switch (form) {
    case Form::Layer:
    case Form::Rms: {
      const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
      if (axis < 0 || axis >= shape.rank())
        ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, shape.rank()));
      break;
    }
    case Form::Group: {
      check_rank(ctx, 2, "[N, C, ...]");
      const std::int64_t groups = ctx.attrs.get<std::int64_t>("groups");
      if (groups < 1 || shape[1] % groups != 0) {
        ctx.fail(ErrorCode::InvalidArgument, formatted("groups {} do not divide the {} channels", groups, shape[1]));
      }
      break;
    }
    case Form::Instance:
      check_rank(ctx, 3, "[N, C, spatial...]");
      break;
    case Form::Batch:
      check_rank(ctx, 2, "[N, C, ...]");
      break;
  }
  const Layout l = guarded(ctx, [&] {
    shape.elements();
    return layout_of(form, shape, ctx.attrs);
  });
  if (l.count == 0) {
    ctx.fail(
        ErrorCode::ShapeMismatch,
        formatted("nothing to normalize over: {} has no elements along the axes of the statistics", x.to_string()));
  }
  if (form == Form::Batch && l.count == 1) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("needs more than one value per channel in training: {} has one", x.to_string()));
  }
  check_params(ctx, 1, {"scale", "bias"}, l.scale);
  const TensorType stats{x.dtype, l.stats};
  if (form == Form::Rms) return {x, stats};
  return {x, stats, stats};
}

// ---- eval

void eval(Form form, const EvalContext& ctx) {
  const HostTensor& x = *ctx.inputs[0];
  const Layout l = layout_of(form, x.type.shape, ctx.node.attrs);
  const double eps = ctx.node.attrs.get<double>("epsilon"), n = static_cast<double>(l.count);
  const Strides row = broadcast_strides(l.kept, l.view), param = broadcast_strides(l.param, l.view);
  const auto rows = static_cast<std::size_t>(l.kept.elements());
  std::vector<double> mean(rows), square(rows), rstd(rows);
  const auto each = [&](auto&& f) {
    std::size_t i = 0;
    walk<2>(l.view, {row, param},
            [&](const auto& at) { f(i++, static_cast<std::size_t>(at[0]), static_cast<std::size_t>(at[1])); });
  };
  if (form != Form::Rms) each([&](std::size_t i, std::size_t r, std::size_t) { mean[r] += x.data[i] / n; });
  each([&](std::size_t i, std::size_t r, std::size_t) {
    const double d = x.data[i] - mean[r];
    square[r] += d * d / n;
  });
  for (std::size_t r = 0; r < rows; ++r) rstd[r] = 1 / std::sqrt(square[r] + eps);
  each([&](std::size_t i, std::size_t r, std::size_t p) {
    double y = (x.data[i] - mean[r]) * rstd[r];
    if (ctx.inputs.size() > 1) y *= ctx.inputs[1]->data[p];
    if (ctx.inputs.size() > 2) y += ctx.inputs[2]->data[p];
    ctx.results[0].data[i] = y;
  });
  if (form == Form::Rms) {
    ctx.results[1].data = rstd;
  } else {
    ctx.results[1].data = mean;
    ctx.results[2].data = form == Form::Batch ? square : rstd;
  }
}

// ---- expand and vjp

Expr row_sum(const Layout& l, const Expr& x) { return reduce("sum", x, l.axes, true); }
Expr row_mean(const Layout& l, const Expr& x) { return row_sum(l, x) * (1 / static_cast<double>(l.count)); }

std::vector<Value> expand(Form form, const BuildContext& c, std::span<const Value> in) {
  const Layout l = layout_of(form, in[0].shape(), c.like.attrs);
  const double eps = c.like.attrs.get<double>("epsilon");
  Expr d = reshape_to({c, in[0]}, l.view), mean, square;
  if (form == Form::Rms) {
    square = row_mean(l, d * d);
  } else {
    const Expr first = row_mean(l, d);
    d = d - first;
    const Expr rest = row_mean(l, d);
    square = row_mean(l, d * d) - rest * rest;
    d = d - rest;
    mean = first + rest;
  }
  const Expr rstd = apply("rsqrt", {square + eps});
  Expr y = d * rstd;
  if (in.size() > 1) y = y * reshape_to({c, in[1]}, l.param);
  if (in.size() > 2) y = y + reshape_to({c, in[2]}, l.param);
  std::vector<Value> results = {reshape_to(y, l.x).value};
  if (form != Form::Rms) results.push_back(reshape_to(mean, l.stats).value);
  results.push_back(reshape_to(form == Form::Batch ? square : rstd, l.stats).value);
  return results;
}

/// With g = dy * scale and xhat = (x - mean) * rstd:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without the mean(g) for rms_norm;
///   dscale = sum(dy * xhat) and dbias = sum(dy) over all axes that scale lacks.
/// The mean and rstd of the forward pass are its results, so that the row sums here are one level of one kernel.
std::vector<Value> vjp(Form form, const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
                       std::span<const Value> dys) {
  const Layout l = layout_of(form, in[0].shape(), c.like.attrs);
  const double n = static_cast<double>(l.count);
  const std::size_t last = out.size() - 1;
  const Expr x = reshape_to({c, in[0]}, l.view), stat = reshape_to({c, out[last]}, l.kept);
  const Expr rstd = form == Form::Batch ? apply("rsqrt", {stat + c.like.attrs.get<double>("epsilon")}) : stat;
  const Expr d = form == Form::Rms ? x : x - reshape_to({c, out[1]}, l.kept);
  const Expr xhat = d * rstd;
  std::vector<Value> gradients(in.size());
  Expr dx;
  const auto contribute = [&](const Expr& term) { dx = dx.context != nullptr ? dx + term : term; };
  if (dys[0]) {
    const Expr dy = reshape_to({c, dys[0]}, l.view);
    std::optional<Expr> scale;
    if (in.size() > 1) scale = reshape_to({c, in[1]}, l.param);
    const auto param_gradient = [&](const Expr& term) { return reshape_to(sum_to(term, l.param), l.scale).value; };
    if (l.scale_per_row) {  // the row sums serve dx, dscale and dbias
      const Expr sum = row_sum(l, dy), product = row_sum(l, dy * xhat);
      const Expr factor = scale ? rstd * *scale : rstd;
      contribute((dy - sum * (1 / n) - xhat * (product * (1 / n))) * factor);
      if (in.size() > 1) gradients[1] = param_gradient(product);
      if (in.size() > 2) gradients[2] = param_gradient(sum);
    } else {
      const Expr g = scale ? dy * *scale : dy;
      const Expr moved = form == Form::Rms ? g : g - row_mean(l, g);
      contribute((moved - xhat * row_mean(l, g * xhat)) * rstd);
      if (in.size() > 1) gradients[1] = param_gradient(dy * xhat);
      if (in.size() > 2) gradients[2] = param_gradient(dy);
    }
  }
  if (form != Form::Rms && dys[1]) contribute(expand_to(reshape_to({c, dys[1]}, l.kept) * (1 / n), l.view));
  if (dys[last]) {
    const Expr ds = reshape_to({c, dys[last]}, l.kept);
    contribute(form == Form::Batch ? d * (ds * (2 / n)) : xhat * (ds * rstd * rstd * (-1 / n)));
  }
  gradients[0] = reshape_to(dx, l.x).value;
  return gradients;
}

// ---- cases

OpCase norm_case(Form form, Shape x, Attrs attrs, int params) {
  attrs.set("epsilon", 1e-3);
  const Layout l = layout_of(form, x, attrs);
  OpCase c{.inputs = {f32_type(x)}, .attrs = attrs, .ranges = {}, .values = {}};
  for (int i = 0; i < params; ++i) c.inputs.push_back(f32_type(l.scale));
  c.rtol = c.atol = 4e-6;
  return c;
}

std::vector<OpCase> cases(Form form) {
  const auto layer = [&](Shape x, std::int64_t axis, int params) {
    return norm_case(form, x, {{"axis", axis}}, params);
  };
  const auto group = [&](Shape x, std::int64_t groups, int params) {
    return norm_case(form, x, {{"groups", groups}}, params);
  };
  const auto plain = [&](Shape x, int params) { return norm_case(form, x, {}, params); };
  std::vector<OpCase> cases;
  switch (form) {
    case Form::Layer:
      cases = {layer({5, 7}, 1, 2),    layer({7}, 0, 2),       layer({2, 3, 5}, 2, 1),
               layer({2, 3, 4}, 1, 2), layer({3, 8}, 1, 0),    layer({4, 1}, 1, 2),
               layer({0, 3}, 1, 2),    layer({2, 1031}, 1, 2), layer({17, 64}, 1, 2)};
      break;
    case Form::Rms:
      cases = {layer({5, 7}, 1, 1), layer({7}, 0, 1),    layer({2, 3, 4}, 1, 1), layer({3, 8}, 1, 0),
               layer({4, 1}, 1, 1), layer({0, 3}, 1, 1), layer({2, 1031}, 1, 1)};
      break;
    case Form::Group:
      cases = {group({2, 6, 3, 5}, 3, 2), group({2, 6, 3, 5}, 1, 2), group({3, 4, 5}, 4, 1),     group({3, 6}, 2, 2),
               group({2, 4, 1, 1}, 4, 2), group({0, 4, 3}, 2, 2),    group({2, 8, 16, 16}, 2, 0)};
      break;
    case Form::Instance:
      cases = {plain({2, 3, 4, 5}, 2), plain({3, 1, 7}, 1), plain({2, 2, 1, 1}, 2), plain({0, 3, 4}, 2),
               plain({2, 3, 2, 3, 3}, 0)};
      break;
    case Form::Batch:
      cases = {plain({5, 3, 2, 3}, 2), plain({7, 4}, 2), plain({2, 1, 1}, 2), plain({3, 17, 5}, 1),
               plain({1, 3, 4, 5}, 0)};
      break;
  }
  OpCase offset = cases[0];  // far from zero: the naive E[x^2] - E[x]^2 would be off by ten times the variance
  offset.ranges = {{9999, 10001}};
  offset.gradient = false;  // central differences lose their digits
  cases.push_back(offset);
  return cases;
}

OpDef record(std::string name, std::string doc, Form form) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Composite;
  op.max_inputs = form == Form::Rms ? 2 : 3;
  op.gradient = GradientKind::Rule;
  op.infer = [form](const InferContext& ctx) { return infer(form, ctx); };
  op.eval = [form](const EvalContext& ctx) { eval(form, ctx); };
  op.expand = [form](const BuildContext& c, std::span<const Value> in) { return expand(form, c, in); };
  op.vjp = [form](const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
                  std::span<const Value> dys) { return vjp(form, c, in, out, dys); };
  op.cases = [form] { return cases(form); };
  return op;
}

// ---- batch_norm with given statistics

Shape channel_shape(const Shape& x) {
  Ints dims(static_cast<std::size_t>(x.rank() - 1), 1);
  dims[0] = x[1];
  return Shape(dims);
}

/// (x - mean) * (scale / sqrt(variance + epsilon)) + bias. The mean is not folded into the bias: x - mean is exact where the two
/// are close, and bias - mean * scale would lose what they differ in.
OpDef batch_norm_op() {
  OpDef op;
  op.name = "batch_norm";
  op.doc =
      "(x - mean) * scale / sqrt(variance + epsilon) + bias per channel of x [N, C, ...]; operands x, mean, variance, "
      "scale?, "
      "bias? of [C].";
  op.kind = OpKind::Composite;
  op.min_inputs = 3;
  op.max_inputs = 5;
  op.gradient = GradientKind::Rule;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    check_float(ctx);
    check_epsilon(ctx);
    check_rank(ctx, 2, "[N, C, ...]");
    check_params(ctx, 1, {"mean", "variance", "scale", "bias"}, {ctx.inputs[0].shape[1]});
    return {ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor& x = *ctx.inputs[0];
    const double eps = ctx.node.attrs.get<double>("epsilon");
    std::size_t i = 0;
    walk<1>(x.type.shape, {broadcast_strides(channel_shape(x.type.shape), x.type.shape)}, [&](const auto& at) {
      const auto operand = [&](std::size_t k, double none) {
        return k < ctx.inputs.size() ? ctx.inputs[k]->data[static_cast<std::size_t>(at[0])] : none;
      };
      ctx.results[0].data[i] =
          (x.data[i] - operand(1, 0)) * operand(3, 1) / std::sqrt(operand(2, 0) + eps) + operand(4, 0);
      ++i;
    });
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Shape param = channel_shape(in[0].shape());
    const auto operand = [&](std::size_t k) { return reshape_to({c, in[k]}, param); };
    Expr factor = apply("rsqrt", {operand(2) + c.like.attrs.get<double>("epsilon")});
    if (in.size() > 3) factor = factor * operand(3);
    Expr y = (Expr(c, in[0]) - operand(1)) * factor;
    if (in.size() > 4) y = y + operand(4);
    return {y.value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dys) -> std::vector<Value> {
    const Shape param = channel_shape(in[0].shape()), channels = in[1].shape();
    const auto operand = [&](std::size_t k) { return reshape_to({c, in[k]}, param); };
    const Expr dy(c, dys[0]), rstd = apply("rsqrt", {operand(2) + c.like.attrs.get<double>("epsilon")});
    const Expr factor = in.size() > 3 ? rstd * operand(3) : rstd;
    const Expr xhat = (Expr(c, in[0]) - operand(1)) * rstd;
    const Expr sum = sum_to(dy, param), product = sum_to(dy * xhat, param);
    std::vector<Value> gradients = {(dy * factor).value, reshape_to(-(sum * factor), channels).value,
                                    reshape_to(product * factor * rstd * -0.5, channels).value};
    if (in.size() > 3) gradients.push_back(reshape_to(product, channels).value);
    if (in.size() > 4) gradients.push_back(reshape_to(sum, channels).value);
    return gradients;
  };
  op.cases = [] {
    const auto one = [](Shape x, int params) {
      OpCase c{.inputs = {f32_type(x)}, .attrs = {{"epsilon", 1e-3}}, .ranges = {}, .values = {}};
      for (int i = 0; i < params; ++i) c.inputs.push_back(f32_type({x[1]}));
      c.ranges = {{-2, 2}, {-1, 1}, {0.2, 3}};
      c.rtol = c.atol = 4e-6;
      return c;
    };
    std::vector<OpCase> cases = {one({2, 3, 4, 5}, 4), one({5, 7}, 4), one({2, 3, 2, 2, 3}, 3), one({3, 4, 5}, 2),
                                 one({0, 3, 2}, 4)};
    cases.push_back(cases[0]);
    cases.back().ranges = {{9999, 10001}, {9999.5, 10000.5}, {0.2, 3}};
    cases.back().gradient = false;
    return cases;
  };
  return op;
}

}  // namespace

std::vector<OpDef> norm_ops() {
  return {
      record("layer_norm",
             "(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from attr axis on; results y, mean, "
             "1/deviation. Operands x, scale?, bias?.",
             Form::Layer),
      record(
          "rms_norm",
          "x / sqrt(mean(x^2) + epsilon) * scale over the axes from attr axis on; results y, 1/deviation. Operands x, "
          "scale?.",
          Form::Rms),
      record("group_norm",
             "As layer_norm over the channels of a group (attr groups) and all positions of x [N, C, ...]; scale? and "
             "bias? "
             "per channel.",
             Form::Group),
      record("instance_norm",
             "As layer_norm over all positions of each channel of x [N, C, ...]; scale? and bias? per channel.",
             Form::Instance),
      record("batch_norm_training",
             "As layer_norm over batch and positions of each channel of x [N, C, ...]; results y, mean, (biased) "
             "variance.",
             Form::Batch),
      batch_norm_op()};
}

// ---- public functions

namespace {

using Param = std::optional<Value>;

/// op(x, scale, bias): a bias alone gets a scale of ones.
Value build_norm(std::string_view op, const Operand& x, Param scale, const Param& bias, Attrs attrs,
                 std::vector<Value> operands = {}) {
  operands.insert(operands.begin(), resolve_value(op, x));
  Graph& graph = operands[0].graph();
  if (bias && !scale) {
    const std::vector<double> ones(static_cast<std::size_t>(bias->shape().elements()), 1.0);
    scale = graph.constant(Literal::from_doubles(bias->type(), ones), x.line());
  }
  for (const Param& param : {scale, bias}) {
    if (param) operands.push_back(*param);
  }
  for (const Value& operand : operands) {
    if (!operand || &operand.graph() != &graph)
      op_error(ErrorCode::InvalidArgument, op, "the operands belong to different graphs", x.line());
  }
  return graph.add(op, operands, std::move(attrs), x.line());
}

Attrs last_axes(std::string_view op, const Operand& x, std::int64_t axes, double eps) {
  const int rank = resolve_value(op, x).shape().rank();
  if (axes < 1 || axes > rank)
    op_error(ErrorCode::InvalidArgument, op, formatted("cannot normalize over the last {} axes of rank {}", axes, rank),
             x.line());
  return {{"axis", rank - axes}, {"epsilon", eps}};
}

}  // namespace

Value layer_norm(Operand x, Param scale, Param bias, double eps, std::int64_t axes) {
  return build_norm("layer_norm", x, scale, bias, last_axes("layer_norm", x, axes, eps));
}

Value rms_norm(Operand x, Param scale, double eps, std::int64_t axes) {
  return build_norm("rms_norm", x, scale, {}, last_axes("rms_norm", x, axes, eps));
}

Value group_norm(Operand x, std::int64_t groups, Param scale, Param bias, double eps) {
  return build_norm("group_norm", x, scale, bias, {{"groups", groups}, {"epsilon", eps}});
}

Value instance_norm(Operand x, Param scale, Param bias, double eps) {
  return build_norm("instance_norm", x, scale, bias, {{"epsilon", eps}});
}

Value batch_norm(Operand x, Value mean, Value variance, Param scale, Param bias, double eps) {
  return build_norm("batch_norm", x, scale, bias, {{"epsilon", eps}}, {mean, variance});
}

Value batch_norm_training(Operand x, Value running_mean, Value running_variance, Param scale, Param bias,
                          double momentum, double eps) {
  const char* const op = "batch_norm_training";
  if (!(momentum >= 0 && momentum <= 1))
    op_error(ErrorCode::InvalidArgument, op, formatted("momentum must be in [0, 1], not {}", momentum), x.line());
  const Value y = build_norm(op, x, scale, bias, {{"epsilon", eps}});
  Graph& graph = y.graph();
  const Layout l = layout_of(Form::Batch, y.shape(), y.node().attrs);
  const double n = static_cast<double>(l.count);
  // As in PyTorch the running variance is unbiased, what the batch is normalized with is not.
  const std::tuple<Value, std::uint32_t, double, const char*> updates[] = {
      {running_mean, 1, 1.0, "running_mean"}, {running_variance, 2, n / (n - 1), "running_variance"}};
  for (const auto& [running, result, factor, name] : updates) {
    const Value batch = graph.value({y.id().node, result});
    if (!running || &running.graph() != &graph || running.type() != batch.type()) {
      op_error(ErrorCode::ShapeMismatch, op,
               formatted("{} must be a state of type {}{}", name, batch.type().to_string(),
                         running ? ", not " + running.type().to_string() : ""),
               x.line());
    }
    const auto at = [&](Operand o) {
      return o.is_number() ? Operand(o.number(), x.line()) : Operand(o.value(), x.line());
    };
    const Value kept = mul(at(running), at(1 - momentum)), added = mul(at(batch), at(momentum * factor));
    graph.assign(running, add(at(kept), at(added)), x.line());
  }
  return y;
}

}  // namespace aeshna
