// Reductions over any set of axes. attrs: axes (sorted; none: x itself), keepdims. An empty sum is 0, an empty product 1,
// an empty max, min, mean or logsumexp an error when the graph is built.
#include <cmath>
#include <limits>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

struct Axis {
  Shape kept;     ///< x with every reduced extent 1
  Shape result;   ///< by keepdims
  Shape reduced;  ///< the reduced extents
  std::int64_t count = 1;
};

Axis split_axes(const Shape& x, const Attrs& attrs) {
  Axis a;
  a.kept = x;
  Ints left, reduced;
  const Ints& axes = attrs.get<Ints>("axes");
  std::size_t next = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (next < axes.size() && axes[next] == d) {
      a.kept = a.kept.with(d, 1);
      reduced.push_back(x[d]);
      ++next;
    } else {
      left.push_back(x[d]);
    }
  }
  a.reduced = Shape(reduced);
  a.count = a.reduced.elements();
  a.result = attrs.get<bool>("keepdims") ? a.kept : Shape(left);
  return a;
}

enum class Empty : std::uint8_t { Allowed, Refused };

Axis infer_axes(const InferContext& ctx, Empty empty) {
  const Shape& x = ctx.inputs[0].shape;
  const Ints& axes = ctx.attrs.get<Ints>("axes");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= x.rank()) {
      ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axes[i], x.rank()));
    }
    if (i > 0 && axes[i] <= axes[i - 1]) ctx.fail(ErrorCode::InvalidArgument, "axes must be sorted and distinct");
  }
  Axis a = split_axes(x, ctx.attrs);
  if (empty == Empty::Refused && a.count == 0) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("nothing to reduce: {} has no elements along the reduced axes", ctx.inputs[0].to_string()));
  }
  return a;
}

void need(const InferContext& ctx, bool ok, std::string_view what) {
  if (!ok)
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("is defined for {}, not for {}", what, dtype_name(ctx.inputs[0].dtype)));
}

bool is_number(DType d) {
  return is_float(d) || d == DType::i32 || d == DType::u32 || d == DType::i64 || d == DType::u64;
}

/// f(outer element index, linear index over the reduced axes, value) for every element.
template <class F>
void for_each_reduced(const HostTensor& x, const Attrs& attrs, F&& f) {
  const Axis a = split_axes(x.type.shape, attrs);
  const Strides outer = broadcast_strides(a.kept, x.type.shape);
  const Strides dense = dense_strides(a.reduced);
  Strides inner{};
  const Ints& axes = attrs.get<Ints>("axes");
  for (std::size_t i = 0; i < axes.size(); ++i) inner[static_cast<std::size_t>(axes[i])] = dense[i];
  std::size_t n = 0;
  walk<2>(x.type.shape, {outer, inner},
          [&](const auto& at) { f(static_cast<std::size_t>(at[0]), at[1], x.data[n++]); });
}

OpDef reduction(std::string name, std::string doc, ReduceKind kind) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Reduce;
  op.reduce = kind;
  op.gradient = GradientKind::Rule;
  op.lower = lower_reduction;
  op.infer = [empty = kind == ReduceKind::Sum || kind == ReduceKind::Prod ? Empty::Allowed : Empty::Refused](
                 const InferContext& ctx) -> std::vector<TensorType> {
    need(ctx, is_number(ctx.inputs[0].dtype), "floats, i32, u32, i64 or u64");
    return {{ctx.inputs[0].dtype, infer_axes(ctx, empty).result}};
  };
  return op;
}

OpCase reduce_case(Shape shape, Ints axes, bool keepdims = false, DType dtype = DType::f32) {
  OpCase c{.inputs = {{dtype, shape}},
           .attrs = {{"axes", std::move(axes)}, {"keepdims", keepdims}},
           .ranges = {},
           .values = {}};
  if (dtype == DType::f32) {  // rounding errors add like a random walk
    c.atol *= std::sqrt(std::max(1.0, static_cast<double>(split_axes(shape, c.attrs).count)));
  }
  if (dtype != DType::f32) c.ranges = {{0, 9}};
  c.gradient = dtype == DType::f32;
  return c;
}

/// Rows, columns, inner axes, all; extents 1, prime, beyond a workgroup, not a multiple of anything.
std::vector<OpCase> reduce_cases() {
  return {reduce_case({5, 7}, {1}),
          reduce_case({5, 7}, {0}, true),
          reduce_case({5, 7}, {0, 1}),
          reduce_case({}, {}),
          reduce_case({6}, {0}),
          reduce_case({1, 1}, {0}, true),
          reduce_case({3, 4, 5}, {1}),
          reduce_case({3, 4, 5}, {0, 2}, true),
          reduce_case({2, 3, 2, 5}, {1, 3}),
          reduce_case({0, 3}, {1}),
          reduce_case({3, 1, 2}, {1}),
          reduce_case({4, 1031}, {1}),
          reduce_case({2, 70001}, {1}),
          reduce_case({300, 3}, {0}),
          reduce_case({3, 5}, {1}, false, DType::i32),
          reduce_case({3, 5}, {0}, false, DType::u32)};
}

Expr keep(const BuildContext& c, Value v, const Shape& x) {
  return reshape_to({c, v}, split_axes(x, c.like.attrs).kept);
}

// ---- sum, max, min, prod

OpDef sum_op() {
  OpDef op = reduction("sum", "Sum over axes; empty: 0.", ReduceKind::Sum);
  op.eval = [](const EvalContext& ctx) {
    auto& y = ctx.results[0].data;
    for_each_reduced(*ctx.inputs[0], ctx.node.attrs, [&](std::size_t o, std::int64_t, double v) { y[o] += v; });
    for (double& v : y) v = wrap_integer(ctx.results[0].type.dtype, v);
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    const Shape x = in[0].shape();
    return {expand_to(keep(c, dy[0], x), x).value};
  };
  op.cases = [] {
    std::vector<OpCase> cases = reduce_cases();
    cases.push_back(reduce_case({3, 0}, {1}));
    cases.push_back(reduce_case({0}, {0}, true));
    return cases;
  };
  return op;
}

/// As torch.amax: every element equal to the extreme gets an equal share.
std::vector<Value> extreme_vjp(const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
                               std::span<const Value> dy) {
  const Shape shape = in[0].shape();
  const Expr x(c, in[0]);
  const Expr hit = apply("equal", {x, keep(c, out[0], shape)});
  const Expr ties = reduce("sum", cast_to(hit, in[0].dtype()), c.like.attrs.get<Ints>("axes"), true);
  return {where(hit, keep(c, dy[0], shape) / ties, 0).value};
}

OpDef extreme_op(ReduceKind kind) {
  const bool is_max = kind == ReduceKind::Max;
  OpDef op =
      reduction(is_max ? "max" : "min",
                is_max ? "Largest value over axes, NaN if any is; ties share the gradient equally. Empty: an error."
                       : "Smallest value over axes, NaN if any is; ties share the gradient equally. Empty: an error.",
                kind);
  op.eval = [is_max](const EvalContext& ctx) {
    auto& y = ctx.results[0].data;
    for_each_reduced(*ctx.inputs[0], ctx.node.attrs, [&](std::size_t o, std::int64_t i, double v) {
      if (i == 0 || std::isnan(v) || (!std::isnan(y[o]) && (is_max ? v > y[o] : v < y[o]))) y[o] = v;
    });
  };
  op.vjp = extreme_vjp;
  op.cases = [] {
    const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<OpCase> cases = reduce_cases();
    for (OpCase& c : cases)
      c.gradient = c.gradient && c.inputs[0].shape.elements() < 10000;  // more are too close to ties
    OpCase edge = reduce_case({4, 3}, {1});
    edge.values = {{-inf, -inf, -inf, 1, nan, 2, inf, -5, inf, 2, 2, 2}};
    edge.gradient = false;
    cases.push_back(edge);
    OpCase negative = reduce_case({3, 5}, {1}, false, DType::i32);
    negative.ranges = {{-9, -1}};
    cases.push_back(negative);
    return cases;
  };
  return op;
}

/// d/dx_i is the product of the others. With p the product of the elements that are not zero: p / x_i where no element is
/// zero, p at the only zero, 0 elsewhere. Exact with zeros; as accurate as the product itself otherwise.
std::vector<Value> prod_vjp(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                            std::span<const Value> dy) {
  const Shape shape = in[0].shape();
  const Ints axes = c.like.attrs.get<Ints>("axes");
  const DType dtype = in[0].dtype();
  const Expr x(c, in[0]);
  const Expr zero = apply("equal", {x, x.number(0)});
  const Expr own = cast_to(zero, dtype);  // 1 at zeros
  const Expr zeros = reduce("sum", own, axes, true);
  const Expr nonzero = where(zero, 1, x);
  const Expr others = reduce("prod", nonzero, axes, true) / nonzero;
  return {where(apply("equal", {zeros, own}), keep(c, dy[0], shape) * others, 0).value};
}

OpDef prod_op() {
  OpDef op = reduction("prod", "Product over axes; empty: 1.", ReduceKind::Prod);
  op.eval = [](const EvalContext& ctx) {
    HostTensor& y = ctx.results[0];
    const DType dtype = y.type.dtype;
    const auto integer_mul = find_op("mul").pointwise.eval_int;
    std::ranges::fill(y.data, 1.0);
    for_each_reduced(*ctx.inputs[0], ctx.node.attrs, [&](std::size_t o, std::int64_t, double v) {
      y.data[o] = is_integer(dtype) ? wrap_integer(dtype, integer_mul(y.data[o], v, 0)) : y.data[o] * v;
    });
  };
  op.vjp = prod_vjp;
  op.cases = [] {
    std::vector<OpCase> cases = reduce_cases();
    std::erase_if(cases, [](const OpCase& c) { return c.inputs[0].shape.elements() > 10000; });  // out of f32's range
    for (OpCase& c : cases) {
      c.rtol = 4e-6;
      if (c.inputs[0].dtype == DType::f32) c.ranges = {{0.9, 1.1}};  // long products stay in range
    }
    OpCase zeros = reduce_case({3, 4}, {1});
    zeros.values = {{0, 2, 3, -1.5, 0, 2, 0, 3, 1, 2, 3, 4}};
    cases.push_back(zeros);
    cases.push_back(reduce_case({3, 0}, {1}));
    return cases;
  };
  return op;
}

// ---- argmax, argmin

OpDef arg_op(ReduceKind kind) {
  const bool is_max = kind == ReduceKind::ArgMax;
  OpDef op =
      reduction(is_max ? "argmax" : "argmin",
                is_max ? "Index (i32) of the first maximum, linear over the axes in order; NaN counts as the largest."
                       : "Index (i32) of the first minimum, linear over the axes in order; NaN counts as the largest.",
                kind);
  op.gradient = GradientKind::Zero;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need(ctx, is_number(ctx.inputs[0].dtype), "floats, i32, u32, i64 or u64");
    const Axis a = infer_axes(ctx, Empty::Refused);
    if (a.count > INT32_MAX) ctx.fail(ErrorCode::LimitExceeded, "the index does not fit i32");
    return {{DType::i32, a.result}};
  };
  op.eval = [is_max](const EvalContext& ctx) {
    std::vector<double> best(ctx.results[0].data.size());
    const auto beats = [](double a, double b) { return !std::isnan(b) && (std::isnan(a) || a > b); };  // a above b
    for_each_reduced(*ctx.inputs[0], ctx.node.attrs, [&](std::size_t o, std::int64_t i, double v) {
      if (i != 0 && !(is_max ? beats(v, best[o]) : beats(best[o], v))) return;
      best[o] = v;
      ctx.results[0].data[o] = static_cast<double>(i);
    });
  };
  op.cases = [] {
    const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<OpCase> cases = reduce_cases();
    OpCase edge = reduce_case({6, 3}, {1});
    edge.values = {{2, 2, 2, 1, nan, nan, nan, nan, nan, -inf, -inf, -inf, inf, inf, 3, -1, 0.0, -0.0}};
    cases.push_back(edge);
    for (OpCase& c : cases) c.gradient = false;
    return cases;
  };
  return op;
}

// ---- composites

OpDef composite(std::string name, std::string doc) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Composite;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need(ctx, is_float(ctx.inputs[0].dtype), "floats");
    return {{ctx.inputs[0].dtype, infer_axes(ctx, Empty::Refused).result}};
  };
  op.cases = [] {
    std::vector<OpCase> cases = reduce_cases();
    std::erase_if(cases, [](const OpCase& c) { return c.inputs[0].dtype != DType::f32; });
    return cases;
  };
  return op;
}

OpDef mean_op() {
  OpDef op = composite("mean", "Arithmetic mean over axes, floats only. Empty: an error.");
  op.gradient = GradientKind::Expansion;
  op.eval = [](const EvalContext& ctx) {
    auto& y = ctx.results[0].data;
    const double n = static_cast<double>(split_axes(ctx.inputs[0]->type.shape, ctx.node.attrs).count);
    for_each_reduced(*ctx.inputs[0], ctx.node.attrs, [&](std::size_t o, std::int64_t, double v) { y[o] += v; });
    for (double& v : y) v /= n;
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const double n = static_cast<double>(split_axes(in[0].shape(), c.like.attrs).count);
    return {(apply("sum", {{c, in[0]}}, c.like.attrs) * (1 / n)).value};
  };
  return op;
}

/// v where it is finite, else 0: a shift that never makes inf - inf.
Expr finite_or_zero(const Expr& v) { return where(apply("is_finite", {v}), v, 0); }

OpDef logsumexp_op() {
  OpDef op = composite(
      "logsumexp", "log(sum(exp(x))) over axes, shifted by the maximum; a row of -inf gives -inf, one with +inf +inf.");
  op.gradient = GradientKind::Rule;
  op.eval = [](const EvalContext& ctx) {
    auto& y = ctx.results[0].data;
    const HostTensor& x = *ctx.inputs[0];
    std::vector<double> shift(y.size(), -std::numeric_limits<double>::infinity());
    for_each_reduced(x, ctx.node.attrs,
                     [&](std::size_t o, std::int64_t, double v) { shift[o] = std::fmax(shift[o], v); });
    for (double& s : shift) s = std::isfinite(s) ? s : 0;
    for_each_reduced(x, ctx.node.attrs, [&](std::size_t o, std::int64_t, double v) { y[o] += std::exp(v - shift[o]); });
    for (std::size_t o = 0; o < y.size(); ++o) y[o] = std::log(y[o]) + shift[o];
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Expr x(c, in[0]);
    const Ints axes = c.like.attrs.get<Ints>("axes");
    const Expr shift = finite_or_zero(reduce("max", x, axes, true));
    const Expr y = apply("log", {reduce("sum", apply("exp", {x - shift}), axes, true)}) + shift;
    return {reshape_to(y, c.like.results[0].shape).value};
  };
  // softmax(x), and zero for a row of -inf.
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
              std::span<const Value> dy) -> std::vector<Value> {
    const Shape shape = in[0].shape();
    const Expr x(c, in[0]);
    return {(keep(c, dy[0], shape) * apply("exp", {x - finite_or_zero(keep(c, out[0], shape))})).value};
  };
  op.cases = [cases = op.cases] {
    const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<OpCase> all = cases();
    OpCase edge = reduce_case({6, 3}, {1});
    edge.values = {{-inf, -inf, -inf, inf, 1, 2, 1e4, 1e4, 1e4, -1e4, -1e4, -1e4, nan, 1, 2, 89, 0, -inf}};
    edge.gradient = false;
    all.push_back(edge);
    return all;
  };
  return op;
}

}  // namespace

std::vector<OpDef> reduce_ops() {
  return {sum_op(),
          extreme_op(ReduceKind::Max),
          extreme_op(ReduceKind::Min),
          prod_op(),
          arg_op(ReduceKind::ArgMax),
          arg_op(ReduceKind::ArgMin),
          mean_op(),
          logsumexp_op()};
}

// ---- public functions

namespace {

Value build_reduction(std::string_view op, const Operand& x, const Axes& axes, bool keepdims) {
  const Value v = resolve_value(op, x);
  return build(op, {x}, {{"axes", resolve_axes(op, axes, v.shape().rank(), x.line())}, {"keepdims", keepdims}});
}

}  // namespace

Value sum(Operand x, const Axes& axes, bool keepdims) { return build_reduction("sum", x, axes, keepdims); }
Value mean(Operand x, const Axes& axes, bool keepdims) { return build_reduction("mean", x, axes, keepdims); }
Value reduce_max(Operand x, const Axes& axes, bool keepdims) { return build_reduction("max", x, axes, keepdims); }
Value reduce_min(Operand x, const Axes& axes, bool keepdims) { return build_reduction("min", x, axes, keepdims); }
Value prod(Operand x, const Axes& axes, bool keepdims) { return build_reduction("prod", x, axes, keepdims); }
Value argmax(Operand x, std::int64_t axis, bool keepdims) { return build_reduction("argmax", x, {axis}, keepdims); }
Value argmin(Operand x, std::int64_t axis, bool keepdims) { return build_reduction("argmin", x, {axis}, keepdims); }
Value logsumexp(Operand x, const Axes& axes, bool keepdims) { return build_reduction("logsumexp", x, axes, keepdims); }

}  // namespace aeshna
