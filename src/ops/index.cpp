// Reading by index. gather_elements is the primitive: in a fused kernel it is a load whose address depends on data, so that an
// embedding, its scale and the norm behind it are one kernel. Indices outside the axis, negative ones too, give 0 and make the
// step fail through a check sink that the public functions add; memory is never touched out of bounds.
#include <cstdint>
#include <limits>

#include "base/format.h"
#include "base/quant.h"
#include "ir/leaf.h"
#include "ops/families.h"
#include "ops/indices.h"
#include "ops/lower.h"

namespace aeshna {

void need_index(const InferContext& ctx, std::size_t input, std::string_view name) {
  if (is_index(ctx.inputs[input].dtype)) return;
  ctx.fail(ErrorCode::DTypeMismatch,
           formatted("{} must be i32 or i64, not {}", name, dtype_name(ctx.inputs[input].dtype)));
}

int need_axis(const InferContext& ctx, int rank) {
  const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
  if (axis < 0 || axis >= rank) {
    ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, rank));
  }
  return static_cast<int>(axis);
}

std::string describe_range(std::int64_t extent, std::int64_t axis) {
  return formatted("[0, {}) of axis {}", extent, axis);
}

void check_indices(std::string_view op, Value indices, std::int64_t extent, std::int64_t axis, const Loc& line) {
  if (indices.shape().elements() == 0) return;
  if (is_constant(indices.node())) {
    for (const double index : indices.node().attrs.get<Literal>("value").to_doubles()) {
      if (index >= 0 && index < static_cast<double>(extent)) continue;
      op_error(ErrorCode::OutOfRange, op, formatted("index {} is outside {}", index, describe_range(extent, axis)),
               line);
    }
    return;
  }
  const auto at = [&](Value v) { return Operand(v, line); };
  Value outside = less(at(indices), Operand(0, line));
  if (extent <= std::numeric_limits<std::int32_t>::max())  // indices are i32: none lies beyond a longer axis
    outside = logical_or(at(outside), at(greater_equal(at(indices), Operand(extent, line))));
  const Value any = greater(at(sum(at(cast(at(outside), DType::i32)))), Operand(0, line));
  any.graph().add("check", {&any, 1},
                  {{"code", std::string("out_of_range")},
                   {"what", formatted("an index of {} outside {}", op, describe_range(extent, axis))}},
                  line);
}

namespace {

using Ints = std::vector<std::int64_t>;

/// Elements of quantized tensors are f32.
DType element_type(DType dtype) { return is_quantized(dtype) ? DType::f32 : dtype; }

bool inside(double index, std::int64_t extent) { return index >= 0 && index < static_cast<double>(extent); }

// ---- gather_elements

std::vector<TensorType> infer_gather_elements(const InferContext& ctx) {
  const TensorType &x = ctx.inputs[0], &index = ctx.inputs[1];
  need_index(ctx, 1, "indices");
  if (x.shape.rank() != index.shape.rank()) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("the operand and the indices must have equal ranks, not {} and {}",
                                                 x.shape.rank(), index.shape.rank()));
  }
  const int axis = need_axis(ctx, x.shape.rank());
  const std::int64_t count = index.shape[axis];
  return {{element_type(x.dtype), guarded(ctx, [&] {
                                    return broadcast_shapes(x.shape.with(axis, 1), index.shape.with(axis, 1));
                                  }).with(axis, count)}};
}

OpDef gather_elements_op() {
  OpDef op;
  op.name = "gather_elements";
  op.doc =
      "y[..., i, ...] = x[..., index[..., i, ...], ...] along attr axis; the other axes broadcast; outside the axis: "
      "0.";
  op.kind = OpKind::Gather;
  op.reads_quantized = true;
  op.min_inputs = op.max_inputs = 2;
  op.lower = lower_pointwise;
  op.infer = infer_gather_elements;
  op.eval = [](const EvalContext& ctx) {
    const HostTensor &x = *ctx.inputs[0], &index = *ctx.inputs[1];
    HostTensor& y = ctx.results[0];
    const int axis = static_cast<int>(ctx.node.attrs.get<std::int64_t>("axis"));
    const std::int64_t extent = x.type.shape[axis];
    const std::int64_t stride = dense_strides(x.type.shape)[static_cast<std::size_t>(axis)];
    Strides fixed = dense_strides(x.type.shape);
    for (int d = 0; d < x.type.shape.rank(); ++d) {
      if (d == axis || x.type.shape[d] == 1) fixed[static_cast<std::size_t>(d)] = 0;
    }
    std::size_t n = 0;
    walk<2>(y.type.shape, {fixed, broadcast_strides(index.type.shape, y.type.shape)}, [&](const auto& at) {
      const double i = index.data[static_cast<std::size_t>(at[1])];
      y.data[n++] =
          inside(i, extent) ? x.data[static_cast<std::size_t>(at[0] + static_cast<std::int64_t>(i) * stride)] : 0;
    });
  };
  op.gradient = GradientKind::Rule;
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    if (is_quantized(in[0].dtype())) return {Value(), Value()};  // frozen
    const Shape x = in[0].shape();
    const std::int64_t axis = c.like.attrs.get<std::int64_t>("axis");
    const Expr g(c, dy[0]);
    const Expr zeros = expand_to(g.number(0), g.shape().with(static_cast<int>(axis), x[static_cast<int>(axis)]));
    return {sum_to(apply("scatter_add", {zeros, {c, in[1]}, g}, {{"axis", axis}}), x).value, Value()};
  };
  op.cases = [] {
    const auto one = [](Shape x, Shape index, std::int64_t axis, DType dtype = DType::f32) {
      const auto last = static_cast<double>(x[static_cast<int>(axis)] - 1);
      OpCase c{.inputs = {{dtype, x}, {DType::i32, index}},
               .attrs = {{"axis", axis}},
               .ranges = {{-2, 2}, {0, last}},
               .values = {}};
      if (dtype != DType::f32) c.ranges[0] = {0, 1};
      c.gradient = dtype == DType::f32;
      return c;
    };
    std::vector<OpCase> cases = {one({5, 7}, {5, 3}, 1),        // torch.gather
                                 one({5, 7}, {9, 7}, 0),        // along the first axis, repeats
                                 one({11, 8}, {6, 1}, 0),       // whole rows: vectors
                                 one({11, 6}, {1031, 1}, 0),    // many repeats of each row
                                 one({3, 5, 7}, {1, 4, 1}, 1),  // a middle axis, one index list
                                 one({3, 5, 8}, {3, 4, 1}, 1),  // an index list per batch
                                 one({1, 5, 4}, {3, 2, 4}, 1),  // x broadcasts
                                 one({2, 5, 1, 3}, {1, 3, 4, 3}, 1),
                                 one({64}, {16}, 0),
                                 one({1}, {3}, 0),
                                 one({4, 3}, {0, 3}, 0),
                                 one({4, 0}, {2, 1}, 0),
                                 one({5, 4}, {3, 4}, 0, DType::i32),
                                 one({5, 4}, {3, 1}, 0, DType::boolean)};
    cases[12].ranges[0] = {-100, 100};
    OpCase outside = one({3, 4}, {8, 1}, 0);  // outside: 0, and nothing is read
    outside.values = {{}, {0, -1, 3, 2147483647, 2, -2147483648, 1, 4}};
    cases.push_back(outside);
    OpCase nothing = one({0, 3}, {2, 3}, 0);
    nothing.ranges[1] = {0, 1};
    cases.push_back(nothing);
    return cases;
  };
  return op;
}

// ---- gather, embedding: whole slices

std::vector<TensorType> infer_gather(const InferContext& ctx) {
  const TensorType &x = ctx.inputs[0], &indices = ctx.inputs[1];
  need_index(ctx, 1, "indices");
  const int axis = need_axis(ctx, x.shape.rank());
  Ints dims(x.shape.begin(), x.shape.begin() + axis);
  dims.insert(dims.end(), indices.shape.begin(), indices.shape.end());
  dims.insert(dims.end(), x.shape.begin() + axis + 1, x.shape.end());
  return {{element_type(x.dtype), guarded(ctx, [&] { return Shape(dims); })}};
}

void eval_gather(const EvalContext& ctx, int axis) {
  const HostTensor &x = *ctx.inputs[0], &indices = *ctx.inputs[1];
  const Shape& shape = x.type.shape;
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  std::size_t n = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const double index : indices.data) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const bool ok = inside(index, shape[axis]);
        const std::int64_t at = ok ? (o * shape[axis] + static_cast<std::int64_t>(index)) * inner + i : 0;
        ctx.results[0].data[n++] = ok ? x.data[static_cast<std::size_t>(at)] : 0;
      }
    }
  }
}

Value expand_gather(const BuildContext& c, std::span<const Value> in, int axis) {
  const Shape x = in[0].shape();
  Ints one(static_cast<std::size_t>(x.rank()), 1);
  one[static_cast<std::size_t>(axis)] = in[1].shape().elements();
  const Expr y =
      apply("gather_elements", {{c, in[0]}, reshape_to({c, in[1]}, Shape(one))}, {{"axis", std::int64_t{axis}}});
  return reshape_to(y, c.like.results[0].shape).value;
}

OpDef gather_op() {
  OpDef op;
  op.name = "gather";
  op.doc =
      "x[:axis] ++ indices ++ x[axis + 1:]: slices of x along attr axis (NumPy take); an index outside the axis gives "
      "0.";
  op.kind = OpKind::Composite;
  op.reads_quantized = op.moves_elements = true;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Expansion;
  op.infer = infer_gather;
  op.eval = [](const EvalContext& ctx) {
    eval_gather(ctx, static_cast<int>(ctx.node.attrs.get<std::int64_t>("axis")));
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    return {expand_gather(c, in, static_cast<int>(c.like.attrs.get<std::int64_t>("axis")))};
  };
  op.cases = [] {
    const auto one = [](Shape x, Shape indices, std::int64_t axis) {
      const auto last = static_cast<double>(x[static_cast<int>(axis)] - 1);
      return OpCase{.inputs = {f32_type(x), {DType::i32, indices}},
                    .attrs = {{"axis", axis}},
                    .ranges = {{-2, 2}, {0, last}},
                    .values = {}};
    };
    std::vector<OpCase> cases = {one({7, 5}, {3}, 0), one({7, 5}, {2, 3}, 1), one({3, 5, 4}, {2, 3}, 1),
                                 one({6}, {}, 0),     one({6}, {2, 2, 2}, 0), one({4, 3}, {0}, 0),
                                 one({1, 1}, {4}, 1), one({2, 3, 4}, {3}, 2)};
    cases[3].inputs[1].dtype = DType::i64;
    return cases;
  };
  return op;
}

OpDef embedding_op() {
  OpDef op;
  op.name = "embedding";
  op.doc = "Rows of table [V, D] by ids [...]: [..., D]; an id outside [0, V) gives a row of zeros.";
  op.kind = OpKind::Composite;
  op.reads_quantized = op.moves_elements = true;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Expansion;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const TensorType &table = ctx.inputs[0], &ids = ctx.inputs[1];
    need_index(ctx, 1, "ids");
    if (table.shape.rank() != 2)
      ctx.fail(ErrorCode::ShapeMismatch, formatted("the table must be [V, D], not {}", table.to_string()));
    Ints dims(ids.shape.begin(), ids.shape.end());
    dims.push_back(table.shape[1]);
    return {{element_type(table.dtype), guarded(ctx, [&] { return Shape(dims); })}};
  };
  op.eval = [](const EvalContext& ctx) { eval_gather(ctx, 0); };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    return {expand_gather(c, in, 0)};
  };
  op.cases = [] {
    const auto one = [](std::int64_t v, std::int64_t d, Shape ids) {
      return OpCase{.inputs = {f32_type({v, d}), {DType::i32, ids}},
                    .attrs = {},
                    .ranges = {{-2, 2}, {0, static_cast<double>(v - 1)}},
                    .values = {}};
    };
    return std::vector<OpCase>{one(11, 8, {2, 5}), one(11, 7, {13}), one(3, 4, {}), one(5, 1, {6}), one(4, 4, {0, 3})};
  };
  return op;
}

// ---- one_hot

OpDef one_hot_op() {
  OpDef op;
  op.name = "one_hot";
  op.doc = "indices [...] -> f32 [..., attr depth]: 1 at the index, else 0; an index outside [0, depth) gives zeros.";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Zero;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_index(ctx, 0, "indices");
    const std::int64_t depth = ctx.attrs.get<std::int64_t>("depth");
    if (depth < 1) ctx.fail(ErrorCode::InvalidArgument, formatted("depth must be at least 1, not {}", depth));
    Ints dims(ctx.inputs[0].shape.begin(), ctx.inputs[0].shape.end());
    dims.push_back(depth);
    return {{DType::f32, guarded(ctx, [&] { return Shape(dims); })}};
  };
  op.eval = [](const EvalContext& ctx) {
    const std::int64_t depth = ctx.node.attrs.get<std::int64_t>("depth");
    std::int64_t row = 0;
    for (const double index : ctx.inputs[0]->data) {
      if (inside(index, depth))
        ctx.results[0].data[static_cast<std::size_t>(row * depth + static_cast<std::int64_t>(index))] = 1;
      ++row;
    }
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Shape shape = c.like.results[0].shape;
    const std::int64_t last = shape.rank() - 1;
    const Expr classes(c, c.add("iota", {}, {{"dims", Ints(shape.begin(), shape.end())}, {"axis", last}}));
    const Expr indices = reshape_to({c, in[0]}, shape.with(static_cast<int>(last), 1));
    return {cast_to(apply("equal", {cast_to(classes, in[0].dtype()), indices}), DType::f32).value};
  };
  op.cases = [] {
    const auto one = [](Shape indices, std::int64_t depth, DType dtype = DType::i32) {
      return OpCase{.inputs = {{dtype, indices}},
                    .attrs = {{"depth", depth}},
                    .ranges = {{-1, static_cast<double>(depth)}},
                    .values = {}};
    };
    return std::vector<OpCase>{one({5}, 7), one({2, 3}, 4), one({}, 1), one({0}, 3), one({6}, 3, DType::i64)};
  };
  return op;
}

std::int64_t resolve_axis(std::string_view op, const Operand& x, std::int64_t axis) {
  const int rank = resolve_value(op, x).shape().rank();
  if (axis < -rank || axis >= rank) {
    op_error(ErrorCode::InvalidArgument, op,
             formatted("axis {} is out of range for {}", axis, x.value().type().to_string()), x.line());
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace

std::vector<OpDef> index_ops() { return {gather_elements_op(), gather_op(), embedding_op(), one_hot_op()}; }

// ---- public functions

Value gather_elements(Operand x, Operand indices, std::int64_t axis) {
  axis = resolve_axis("gather_elements", x, axis);
  const Value y = build("gather_elements", {x, indices}, {{"axis", axis}});
  check_indices("gather_elements", indices.value(), x.value().shape()[static_cast<int>(axis)], axis, x.line());
  return y;
}

Value gather(Operand x, Operand indices, std::int64_t axis) {
  axis = resolve_axis("gather", x, axis);
  const Value y = build("gather", {x, indices}, {{"axis", axis}});
  check_indices("gather", indices.value(), x.value().shape()[static_cast<int>(axis)], axis, x.line());
  return y;
}

Value embedding(Operand table, Operand ids) {
  const Value y = build("embedding", {table, ids});
  check_indices("embedding", ids.value(), table.value().shape()[0], 0, table.line());
  return y;
}

Value one_hot(Operand indices, std::int64_t depth) {
  const Value y = build("one_hot", {indices}, {{"depth", depth}});
  check_indices("one_hot", indices.value(), depth, indices.value().shape().rank(), indices.line());
  return y;
}

}  // namespace aeshna
