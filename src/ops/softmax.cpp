// softmax and log_softmax over one axis, shifted by the row's maximum. log_softmax is x - logsumexp(x), never log(softmax).
// A row of -inf gives NaN, as in PyTorch: masks are finite. A row with +inf gives NaN too.
#include <cmath>
#include <limits>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

std::vector<TensorType> infer(const InferContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  if (!is_float(x.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(x.dtype)));
  const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
  if (axis < 0 || axis >= x.shape.rank()) {
    ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, x.shape.rank()));
  }
  return {x};
}

/// f(first element, stride, count) for every row along the node's axis.
template <class F>
void for_each_row(const EvalContext& ctx, F&& f) {
  const Shape& shape = ctx.inputs[0]->type.shape;
  const int axis = static_cast<int>(ctx.node.attrs.get<std::int64_t>("axis"));
  const Strides strides = dense_strides(shape);
  walk<1>(shape.with(axis, shape[axis] == 0 ? 0 : 1), {strides},
          [&](const auto& at) { f(at[0], strides[static_cast<std::size_t>(axis)], shape[axis]); });
}

void eval(const EvalContext& ctx, bool logarithm) {
  const auto& x = ctx.inputs[0]->data;
  auto& y = ctx.results[0].data;
  for_each_row(ctx, [&](std::int64_t first, std::int64_t stride, std::int64_t count) {
    double shift = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(first + i * stride); };
    for (std::int64_t i = 0; i < count; ++i) shift = std::fmax(shift, x[at(i)]);
    for (std::int64_t i = 0; i < count; ++i) sum += std::exp(x[at(i)] - shift);
    for (std::int64_t i = 0; i < count; ++i) {
      y[at(i)] = logarithm ? x[at(i)] - shift - std::log(sum) : std::exp(x[at(i)] - shift) / sum;
    }
  });
}

Ints axes_of(const BuildContext& c) { return {c.like.attrs.get<std::int64_t>("axis")}; }

/// x minus the row maximum. The shift cancels in value and in gradient.
Expr shifted(const BuildContext& c, const Expr& x) {
  return x - apply("stop_gradient", {reduce("max", x, axes_of(c), true)});
}

std::vector<OpCase> cases(double rtol) {
  const auto one = [rtol](Shape shape, std::int64_t axis) {
    return OpCase{
        .inputs = {f32_type(shape)}, .attrs = {{"axis", axis}}, .ranges = {{-4, 4}}, .values = {}, .rtol = rtol};
  };
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<OpCase> cases = {one({5, 7}, 1), one({5, 7}, 0), one({3, 4, 5}, 1), one({1}, 0),     one({4, 1}, 1),
                               one({0, 3}, 1), one({3, 0}, 1), one({2, 1031}, 1), one({257, 3}, 0)};
  OpCase edge = one({6, 3}, 1);
  edge.values = {{-inf, -inf, -inf, 1e4, 1e4, 1e4, -1e4, 0, 1e4, -inf, 1, 2, nan, 1, 2, -89, 89, 0}};
  edge.gradient = false;
  cases.push_back(edge);
  return cases;
}

OpDef record(std::string name, std::string doc) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.infer = infer;
  return op;
}

OpDef softmax_op() {
  OpDef op = record("softmax", "exp(x - max) / sum(exp(x - max)) along attr axis.");
  op.eval = [](const EvalContext& ctx) { eval(ctx, false); };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    if (in[0].shape().elements() == 0) return {in[0]};
    const Expr e = apply("exp", {shifted(c, {c, in[0]})});
    return {(e / reduce("sum", e, axes_of(c), true)).value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value> out,
              std::span<const Value> dys) -> std::vector<Value> {
    const Expr y(c, out[0]), dy(c, dys[0]);
    return {(y * (dy - reduce("sum", dy * y, axes_of(c), true))).value};
  };
  op.cases = [] { return cases(4e-6); };
  return op;
}

OpDef log_softmax_op() {
  OpDef op = record("log_softmax", "x - logsumexp(x) along attr axis.");
  op.eval = [](const EvalContext& ctx) { eval(ctx, true); };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    if (in[0].shape().elements() == 0) return {in[0]};
    const Expr s = shifted(c, {c, in[0]});
    return {(s - apply("log", {reduce("sum", apply("exp", {s}), axes_of(c), true)})).value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value> out,
              std::span<const Value> dys) -> std::vector<Value> {
    const Expr y(c, out[0]), dy(c, dys[0]);
    return {(dy - apply("exp", {y}) * reduce("sum", dy, axes_of(c), true)).value};
  };
  op.cases = [] { return cases(2e-6); };
  return op;
}

Value build_softmax(std::string_view op, const Operand& x, std::int64_t axis) {
  const int rank = resolve_value(op, x).shape().rank();
  return build(op, {x}, {{"axis", axis < 0 ? axis + rank : axis}});
}

}  // namespace

std::vector<OpDef> softmax_ops() { return {softmax_op(), log_softmax_op()}; }

Value softmax(Operand x, std::int64_t axis) { return build_softmax("softmax", x, axis); }
Value log_softmax(Operand x, std::int64_t axis) { return build_softmax("log_softmax", x, axis); }

}  // namespace aeshna
