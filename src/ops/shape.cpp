// Movement ops: the same elements at other coordinates. In fused kernels they are access maps, not kernels.
// Their attrs are fully resolved (non-negative, one entry per axis); the public functions resolve defaults and negatives.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

/// An attr with one entry per axis.
const Ints& per_axis(const InferContext& ctx, std::string_view name, int rank) {
  const Ints& values = ctx.attrs.get<Ints>(name);
  if (std::ssize(values) != rank) {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("{} must have one entry per axis: {} given for rank {}", name, values.size(), rank));
  }
  return values;
}

Shape attr_shape(const InferContext& ctx) {
  return guarded(ctx, [&] { return Shape(ctx.attrs.get<Ints>("dims")); });
}

/// y = x read with `strides` from `start`.
void gather(const HostTensor& x, HostTensor& y, const Strides& strides, std::int64_t start = 0) {
  std::size_t n = 0;
  walk<1>(y.type.shape, {strides}, [&](const auto& at) { y.data[n++] = x.data[static_cast<std::size_t>(at[0])]; },
          {start});
}

/// x written into y with `strides` from `start`.
void scatter(const HostTensor& x, HostTensor& y, const Strides& strides, std::int64_t start = 0) {
  std::size_t n = 0;
  walk<1>(x.type.shape, {strides}, [&](const auto& at) { y.data[static_cast<std::size_t>(at[0])] = x.data[n++]; },
          {start});
}

OpCase shape_case(std::vector<Shape> shapes, Attrs attrs, DType dtype = DType::f32) {
  OpCase c{.inputs = {}, .attrs = std::move(attrs), .ranges = {}, .values = {}};
  for (const Shape& shape : shapes) c.inputs.push_back({dtype, shape});
  if (dtype != DType::f32) c.ranges.assign(shapes.size(), {0, dtype == DType::boolean ? 1 : 100});
  c.gradient = dtype == DType::f32;
  c.rtol = c.atol = 0;
  return c;
}

// ---- reshape

OpDef reshape_op() {
  OpDef op = movement_record("reshape", "The same elements in row-major order under attr dims.", MovementKind::Reshape);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape shape = attr_shape(ctx);
    if (shape.elements() != ctx.inputs[0].shape.elements()) {
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("{} has {} elements, {} has {}", ctx.inputs[0].to_string(), ctx.inputs[0].shape.elements(),
                         shape.to_string(), shape.elements()));
    }
    return {{ctx.inputs[0].dtype, shape}};
  };
  op.eval = [](const EvalContext& ctx) { ctx.results[0].data = ctx.inputs[0]->data; };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {reshape_to({c, dy[0]}, in[0].shape()).value};
  };
  op.cases = [] -> std::vector<OpCase> {
    return {shape_case({{6, 4}}, {{"dims", Ints{2, 3, 4}}}), shape_case({{}}, {{"dims", Ints{1, 1}}}),
            shape_case({{1}}, {{"dims", Ints{}}}), shape_case({{0, 3}}, {{"dims", Ints{5, 0}}}),
            shape_case({{2, 3, 4}}, {{"dims", Ints{24}}}, DType::i32)};
  };
  return op;
}

// ---- permute

OpDef permute_op() {
  OpDef op = movement_record("permute", "Axis i of the result is axis axes[i] of x.", MovementKind::Permute);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape& x = ctx.inputs[0].shape;
    const Ints& axes = per_axis(ctx, "axes", x.rank());
    Ints dims;
    std::array<bool, Shape::kMaxRank> seen{};
    for (const std::int64_t axis : axes) {
      if (axis < 0 || axis >= x.rank()) {
        ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, x.rank()));
      }
      if (std::exchange(seen[static_cast<std::size_t>(axis)], true)) {
        ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is listed twice", axis));
      }
      dims.push_back(x[static_cast<int>(axis)]);
    }
    return {{ctx.inputs[0].dtype, Shape(dims)}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Strides dense = dense_strides(ctx.inputs[0]->type.shape);
    Strides strides{};
    const Ints& axes = ctx.node.attrs.get<Ints>("axes");
    for (std::size_t i = 0; i < axes.size(); ++i) strides[i] = dense[static_cast<std::size_t>(axes[i])];
    gather(*ctx.inputs[0], ctx.results[0], strides);
  };
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    const Ints& axes = c.like.attrs.get<Ints>("axes");
    Ints inverse(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i)
      inverse[static_cast<std::size_t>(axes[i])] = static_cast<std::int64_t>(i);
    return {c.add("permute", {dy[0]}, {{"axes", std::move(inverse)}})};
  };
  op.cases = [] -> std::vector<OpCase> {
    return {shape_case({{3, 5}}, {{"axes", Ints{1, 0}}}),
            shape_case({{2, 3, 5}}, {{"axes", Ints{2, 0, 1}}}),
            shape_case({{2, 3, 4, 5}}, {{"axes", Ints{0, 2, 1, 3}}}),
            shape_case({{}}, {{"axes", Ints{}}}),
            shape_case({{3, 0, 2}}, {{"axes", Ints{2, 1, 0}}}),
            shape_case({{2, 1, 2, 1, 2, 1, 2, 3}}, {{"axes", Ints{7, 6, 5, 4, 3, 2, 1, 0}}}),
            shape_case({{17, 19}}, {{"axes", Ints{1, 0}}}, DType::boolean)};
  };
  return op;
}

// ---- slice

std::int64_t slice_extent(std::int64_t start, std::int64_t end, std::int64_t step) {
  return end <= start ? 0 : (end - start - 1) / step + 1;
}

/// The transpose of slice. Padding cannot put gaps between elements, so a step s > 1 goes through [n] -> [n, 1] -> [n, s]
/// -> [n * s] -> [(n - 1) * s + 1] first.
Value slice_gradient(const BuildContext& c, Value dy, Shape x, const Ints& starts, const Ints& steps) {
  Expr g(c, dy);
  Ints before, after;
  for (int d = 0; d < x.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    std::int64_t n = g.shape()[d];
    if (n > 1 && steps[i] > 1) {
      std::int64_t outer = 1, inner = 1;
      for (int e = 0; e < d; ++e) outer *= g.shape()[e];
      for (int e = d + 1; e < x.rank(); ++e) inner *= g.shape()[e];
      const std::int64_t dense = (n - 1) * steps[i] + 1;
      const Shape target = g.shape().with(d, dense);
      g = spread(reshape_to(g, {outer, n, inner}), 1, steps[i]);  // flat: an axis more could be one too many
      g = reshape_to(g, target);
      n = dense;
    }
    before.push_back(n == 0 ? 0 : starts[i]);
    after.push_back(x[d] - n - before.back());
  }
  if (g.shape() == x) return g.value;
  return apply("pad", {g}, {{"before", std::move(before)}, {"after", std::move(after)}, {"value", 0.0}}).value;
}

OpDef slice_op() {
  OpDef op = movement_record(
      "slice",
      "Elements start, start + step, ... below end of every axis; attrs axes (all, in order), starts, ends, steps.",
      MovementKind::Slice);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape& x = ctx.inputs[0].shape;
    const Ints &axes = per_axis(ctx, "axes", x.rank()), &starts = per_axis(ctx, "starts", x.rank());
    const Ints &ends = per_axis(ctx, "ends", x.rank()), &steps = per_axis(ctx, "steps", x.rank());
    Ints dims;
    for (int d = 0; d < x.rank(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (axes[i] != d) ctx.fail(ErrorCode::InvalidArgument, "axes must list every axis in order");
      if (steps[i] < 1)
        ctx.fail(ErrorCode::InvalidArgument, formatted("step {} of axis {} is not positive", steps[i], d));
      if (starts[i] < 0 || starts[i] > x[d] || ends[i] < 0 || ends[i] > x[d]) {
        ctx.fail(ErrorCode::OutOfRange,
                 formatted("[{}, {}) of axis {} is outside its extent {}", starts[i], ends[i], d, x[d]));
      }
      dims.push_back(slice_extent(starts[i], ends[i], steps[i]));
    }
    return {{ctx.inputs[0].dtype, Shape(dims)}};
  };
  op.eval = [](const EvalContext& ctx) {
    Strides strides = dense_strides(ctx.inputs[0]->type.shape);
    const Ints &starts = ctx.node.attrs.get<Ints>("starts"), &steps = ctx.node.attrs.get<Ints>("steps");
    std::int64_t start = 0;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      start += starts[i] * strides[i];
      strides[i] *= steps[i];
    }
    gather(*ctx.inputs[0], ctx.results[0], strides, start);
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {slice_gradient(c, dy[0], in[0].shape(), c.like.attrs.get<Ints>("starts"), c.like.attrs.get<Ints>("steps"))};
  };
  op.cases = [] -> std::vector<OpCase> {
    const auto attrs = [](Ints starts, Ints ends, Ints steps) -> Attrs {
      Ints axes;
      for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
      return {{"axes", axes}, {"starts", starts}, {"ends", ends}, {"steps", steps}};
    };
    return {shape_case({{7}}, attrs({2}, {5}, {1})),
            shape_case({{7}}, attrs({1}, {7}, {3})),
            shape_case({{7}}, attrs({0}, {7}, {7})),
            shape_case({{5, 6}}, attrs({1, 0}, {4, 6}, {1, 2})),
            shape_case({{6, 7, 5}}, attrs({1, 2, 0}, {6, 7, 5}, {2, 3, 4})),
            shape_case({{4, 3}}, attrs({2, 0}, {2, 3}, {1, 1})),
            shape_case({{4, 3}}, attrs({3, 0}, {1, 3}, {2, 2})),
            shape_case({{}}, attrs({}, {}, {})),
            shape_case({{0, 3}}, attrs({0, 1}, {0, 3}, {1, 1})),
            shape_case({{9, 4}}, attrs({1, 1}, {9, 3}, {2, 1}), DType::i32)};
  };
  return op;
}

// ---- expand

OpDef expand_op() {
  OpDef op = movement_record("expand", "x broadcast to attr dims (NumPy rules).", MovementKind::Expand);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape shape = attr_shape(ctx);
    const Shape& x = ctx.inputs[0].shape;
    bool fits = x.rank() <= shape.rank();
    for (int d = 0; fits && d < x.rank(); ++d) fits = x[d] == 1 || x[d] == shape[d + shape.rank() - x.rank()];
    if (!fits)
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("cannot broadcast {} to {}", ctx.inputs[0].to_string(), shape.to_string()));
    return {{ctx.inputs[0].dtype, shape}};
  };
  op.eval = [](const EvalContext& ctx) {
    gather(*ctx.inputs[0], ctx.results[0], broadcast_strides(ctx.inputs[0]->type.shape, ctx.results[0].type.shape));
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {sum_to({c, dy[0]}, in[0].shape()).value};
  };
  op.cases = [] -> std::vector<OpCase> {
    std::vector<OpCase> cases = {shape_case({{3, 1}}, {{"dims", Ints{3, 5}}}),
                                 shape_case({{}}, {{"dims", Ints{4, 3}}}),
                                 shape_case({{5}}, {{"dims", Ints{2, 3, 5}}}),
                                 shape_case({{1, 3, 1}}, {{"dims", Ints{7, 3, 2}}}),
                                 shape_case({{1}}, {{"dims", Ints{0}}}),
                                 shape_case({{3}}, {{"dims", Ints{3}}}),
                                 shape_case({{2, 1}}, {{"dims", Ints{2, 3}}}, DType::boolean)};
    for (OpCase& c : cases) c.rtol = 2e-6, c.atol = 1e-6;  // the gradient is a sum
    return cases;
  };
  return op;
}

// ---- pad

OpDef pad_op() {
  OpDef op = movement_record("pad", "x inside a frame of attr value: before[i] and after[i] elements along axis i.",
                      MovementKind::Pad);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape& x = ctx.inputs[0].shape;
    const Ints &before = per_axis(ctx, "before", x.rank()), &after = per_axis(ctx, "after", x.rank());
    const double value = ctx.attrs.get<double>("value");
    const DType dtype = ctx.inputs[0].dtype;
    if (!is_float(dtype) &&
        (value != wrap_integer(dtype, std::trunc(value)) || (dtype == DType::boolean && value != 0 && value != 1))) {
      ctx.fail(ErrorCode::InvalidArgument, formatted("the value {} is no {} value", value, dtype_name(dtype)));
    }
    Ints dims;
    for (int d = 0; d < x.rank(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (before[i] < 0 || after[i] < 0) {
        ctx.fail(ErrorCode::InvalidArgument, formatted("negative padding ({}, {}) of axis {}", before[i], after[i], d));
      }
      const char* what = "the padded extent";
      dims.push_back(guarded(ctx, [&] { return checked_add(checked_add(x[d], before[i], what), after[i], what); }));
    }
    return {{dtype, Shape(dims)}};
  };
  op.eval = [](const EvalContext& ctx) {
    HostTensor& y = ctx.results[0];
    std::ranges::fill(y.data, ctx.node.attrs.get<double>("value"));
    const Strides strides = dense_strides(y.type.shape);
    const Ints& before = ctx.node.attrs.get<Ints>("before");
    std::int64_t start = 0;
    for (std::size_t i = 0; i < before.size(); ++i) start += before[i] * strides[i];
    scatter(*ctx.inputs[0], y, strides, start);
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    const Shape x = in[0].shape();
    Ints axes, starts = c.like.attrs.get<Ints>("before"), ends = starts;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      axes.push_back(static_cast<std::int64_t>(i));
      ends[i] += x[static_cast<int>(i)];
    }
    Ints steps(starts.size(), 1);
    return {c.add("slice", {dy[0]},
                  {{"axes", std::move(axes)},
                   {"starts", std::move(starts)},
                   {"ends", std::move(ends)},
                   {"steps", std::move(steps)}})};
  };
  op.cases = [] -> std::vector<OpCase> {
    const auto attrs = [](Ints before, Ints after, double value) -> Attrs {
      return {{"before", before}, {"after", after}, {"value", value}};
    };
    return {shape_case({{5}}, attrs({2}, {3}, 0)),
            shape_case({{3, 4}}, attrs({0, 1}, {2, 0}, -1.5)),
            shape_case({{2, 3, 5}}, attrs({1, 0, 3}, {0, 0, 1}, 7)),
            shape_case({{}}, attrs({}, {}, 0)),
            shape_case({{0, 2}}, attrs({1, 1}, {2, 0}, 4)),
            shape_case({{3, 3}}, attrs({1, 1}, {1, 1}, 9), DType::i32)};
  };
  return op;
}

// ---- concat

OpDef concat_op() {
  OpDef op = movement_record("concat", "The operands one after another along attr axis; their other extents agree.",
                      MovementKind::Concat);
  op.max_inputs = -1;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const TensorType& first = ctx.inputs[0];
    const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
    if (axis < 0 || axis >= first.shape.rank()) {
      ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, first.shape.rank()));
    }
    const int a = static_cast<int>(axis);
    std::int64_t extent = 0;
    for (const TensorType& input : ctx.inputs) {
      if (input.dtype != first.dtype) {
        ctx.fail(ErrorCode::DTypeMismatch,
                 formatted("the operands have different dtypes: {} and {}", first.to_string(), input.to_string()));
      }
      if (input.shape.rank() != first.shape.rank() || input.shape.with(a, 0) != first.shape.with(a, 0)) {
        ctx.fail(ErrorCode::ShapeMismatch,
                 formatted("{} and {} differ beyond axis {}", first.to_string(), input.to_string(), axis));
      }
      extent = guarded(ctx, [&] { return checked_add(extent, input.shape[a], "the concatenated extent"); });
    }
    return {{first.dtype, first.shape.with(a, extent)}};
  };
  op.eval = [](const EvalContext& ctx) {
    HostTensor& y = ctx.results[0];
    const Strides strides = dense_strides(y.type.shape);
    const auto axis = ctx.node.attrs.get<std::int64_t>("axis");
    std::int64_t start = 0;
    for (const HostTensor* x : ctx.inputs) {
      scatter(*x, y, strides, start);
      start += x->type.shape[static_cast<int>(axis)] * strides[static_cast<std::size_t>(axis)];
    }
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    const auto axis = static_cast<std::size_t>(c.like.attrs.get<std::int64_t>("axis"));
    std::vector<Value> parts;
    std::int64_t start = 0;
    for (const Value& x : in) {
      const Shape shape = x.shape();
      Ints axes, starts(static_cast<std::size_t>(shape.rank()), 0), ends = to_ints(shape), steps(starts.size(), 1);
      for (int d = 0; d < shape.rank(); ++d) axes.push_back(d);
      starts[axis] = start;
      ends[axis] = start += shape[static_cast<int>(axis)];
      parts.push_back(c.add("slice", {dy[0]},
                            {{"axes", std::move(axes)},
                             {"starts", std::move(starts)},
                             {"ends", std::move(ends)},
                             {"steps", std::move(steps)}}));
    }
    return parts;
  };
  op.cases = [] -> std::vector<OpCase> {
    return {shape_case({{3}, {4}}, {{"axis", std::int64_t{0}}}),
            shape_case({{2, 3}, {2, 5}, {2, 1}}, {{"axis", std::int64_t{1}}}),
            shape_case({{2, 3, 4}, {1, 3, 4}}, {{"axis", std::int64_t{0}}}),
            shape_case({{2, 0}, {2, 3}, {2, 0}}, {{"axis", std::int64_t{1}}}),
            shape_case({{5}}, {{"axis", std::int64_t{0}}}),
            shape_case({{7, 2}, {7, 3}}, {{"axis", std::int64_t{1}}}, DType::i32)};
  };
  return op;
}

// ---- iota

OpDef iota_op() {
  OpDef op;
  op.name = "iota";
  op.doc = "The coordinate along attr axis at every element of attr dims, as i32.";
  op.kind = OpKind::Index;
  op.min_inputs = op.max_inputs = 0;
  op.gradient = GradientKind::Zero;
  op.lower = lower_pointwise;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Shape shape = attr_shape(ctx);
    const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
    if (axis < 0 || axis >= shape.rank()) {
      ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for {}", axis, shape.to_string()));
    }
    if (shape[static_cast<int>(axis)] > INT32_MAX) ctx.fail(ErrorCode::LimitExceeded, "the coordinates do not fit i32");
    return {{DType::i32, shape}};
  };
  op.eval = [](const EvalContext& ctx) {
    HostTensor& y = ctx.results[0];
    Strides strides{};
    strides[static_cast<std::size_t>(ctx.node.attrs.get<std::int64_t>("axis"))] = 1;
    std::size_t n = 0;
    walk<1>(y.type.shape, {strides}, [&](const auto& at) { y.data[n++] = static_cast<double>(at[0]); });
  };
  op.cases = [] -> std::vector<OpCase> {
    return {shape_case({}, {{"dims", Ints{7}}, {"axis", std::int64_t{0}}}),
            shape_case({}, {{"dims", Ints{3, 5}}, {"axis", std::int64_t{0}}}),
            shape_case({}, {{"dims", Ints{3, 5, 2}}, {"axis", std::int64_t{1}}}),
            shape_case({}, {{"dims", Ints{0, 5}}, {"axis", std::int64_t{1}}})};
  };
  return op;
}

}  // namespace

OpDef movement_record(std::string name, std::string doc, MovementKind kind) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Movement;
  op.movement = kind;
  op.gradient = GradientKind::Rule;
  op.lower = lower_pointwise;
  return op;
}

std::vector<OpDef> shape_ops() {
  return {reshape_op(), permute_op(), slice_op(), expand_op(), pad_op(), concat_op(), iota_op()};
}

// ---- public functions

namespace {

Value add_unary(std::string_view op, const Operand& x, Attrs attrs, const Loc& loc) {
  const Value v = resolve_value(op, x);
  return v.graph().add(op, {&v, 1}, std::move(attrs), loc);
}

}  // namespace

Value reshape(Operand x, std::vector<std::int64_t> dims, Loc loc) {
  const Shape shape = resolve_value("reshape", x).shape();
  const auto unknown = std::ranges::find(dims, -1);
  if (unknown != dims.end()) {
    if (std::ranges::count(dims, -1) > 1) {
      op_error(ErrorCode::InvalidArgument, "reshape", "only one dimension may be -1", loc);
    }
    *unknown = 1;
    std::int64_t known = 0;
    try {
      known = Shape(dims).elements();
    } catch (const Error& e) {
      op_error(e.code(), "reshape", e.message(), loc);
    }
    if (known == 0 || shape.elements() % known != 0) {
      op_error(ErrorCode::ShapeMismatch, "reshape",
               formatted("{} has {} elements, which the given dimensions ({}) do not divide: -1 is undefined",
                         shape.to_string(), shape.elements(), known),
               loc);
    }
    *unknown = shape.elements() / known;
  }
  return add_unary("reshape", x, {{"dims", std::move(dims)}}, loc);
}

Value permute(Operand x, std::vector<std::int64_t> axes, Loc loc) {
  const int rank = resolve_value("permute", x).shape().rank();
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  return add_unary("permute", x, {{"axes", std::move(axes)}}, loc);
}

Value transpose(Operand x) {
  const int rank = resolve_value("transpose", x).shape().rank();
  if (rank < 2) op_error(ErrorCode::ShapeMismatch, "transpose", formatted("needs rank >= 2, not {}", rank), x.line());
  Ints axes;
  for (int d = 0; d < rank; ++d) axes.push_back(d);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return permute(x, std::move(axes), x.line());
}

Value slice(Operand x, const Axes& axes, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
            const std::vector<std::int64_t>& steps) {
  const Shape shape = resolve_value("slice", x).shape();
  const auto n = axes.empty() ? static_cast<std::size_t>(shape.rank()) : axes.size();
  if (starts.size() != n || ends.size() != n || (!steps.empty() && steps.size() != n)) {
    op_error(ErrorCode::InvalidArgument, "slice",
             formatted("axes, starts, ends and steps must have equal lengths: {}, {}, {}, {}", n, starts.size(),
                       ends.size(), steps.size()),
             x.line());
  }
  resolve_axes("slice", axes, shape.rank(), x.line());  // out of range or repeated
  Ints all, from(static_cast<std::size_t>(shape.rank()), 0), to = to_ints(shape), by(from.size(), 1);
  for (int d = 0; d < shape.rank(); ++d) all.push_back(d);
  for (std::size_t i = 0; i < n; ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : shape.axis(axes[i]);
    const auto d = static_cast<std::size_t>(axis);
    const std::int64_t extent = shape[axis];
    const auto clamped = [extent](std::int64_t v) {
      return std::clamp<std::int64_t>(v < 0 ? (v < -extent ? 0 : v + extent) : v, 0, extent);
    };
    from[d] = clamped(starts[i]);
    to[d] = clamped(ends[i]);
    if (!steps.empty()) by[d] = steps[i];
  }
  return add_unary(
      "slice", x,
      {{"axes", std::move(all)}, {"starts", std::move(from)}, {"ends", std::move(to)}, {"steps", std::move(by)}},
      x.line());
}

Value concat(const std::vector<Value>& parts, std::int64_t axis, Loc loc) {
  if (parts.empty()) op_error(ErrorCode::InvalidArgument, "concat", "needs at least one operand", loc);
  for (const Value& part : parts) {
    if (!part) op_error(ErrorCode::InvalidArgument, "concat", "an operand is empty", loc);
    if (&part.graph() != &parts[0].graph())
      op_error(ErrorCode::InvalidArgument, "concat", "the operands belong to different graphs", loc);
  }
  if (axis < 0) axis += parts[0].shape().rank();
  return parts[0].graph().add("concat", parts, {{"axis", axis}}, loc);
}

Value expand(Operand x, std::vector<std::int64_t> dims, Loc loc) {
  return add_unary("expand", x, {{"dims", std::move(dims)}}, loc);
}

Value pad(Operand x, const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after, double value) {
  return add_unary("pad", x, {{"before", before}, {"after", after}, {"value", value}}, x.line());
}

Value iota(Graph& graph, Shape shape, std::int64_t axis, Loc loc) {
  if (axis < 0) axis += shape.rank();
  return graph.add("iota", {}, {{"dims", to_ints(shape)}, {"axis", axis}}, loc);
}

}  // namespace aeshna
