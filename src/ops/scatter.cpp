// Writing by index: scatter (the last of equal indices wins) and scatter_add, deterministic without float atomics.
//
// Both are first brought to x [O, L, D, C], updates [O, L, N, C] and keys [L * N]: O and C are axes along which the index does not
// vary (in front and behind), L those along which it does, D and N the axis itself. A key is lane * D + index, or L * D for an index
// outside the axis. Three ways, chosen by size:
//   dense: every element of x looks at all N indices of its lane; a fused expression;
//   rank:  each key counts the keys before it (index_order), which sorts them stably in one kernel of quadratic cost;
//   radix: a stable radix sort, 4 bits at a time.
// The sorted order makes runs of equal keys; scatter_runs adds each run to its element of x, in place, in ascending order.
#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ops/families.h"
#include "ops/indices.h"
#include "ops/lower_scatter.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// Comparisons up to which the dense form beats three or more dependent kernels.
constexpr std::int64_t kDense = std::int64_t{1} << 22;
/// Keys up to which quadratic ranking beats the radix sort: 2^28 comparisons are some 30 us of a large device.
constexpr std::int64_t kRank = 16384;

// ---- types and values

std::vector<TensorType> infer_scatter(const InferContext& ctx, bool add) {
  const TensorType &x = ctx.inputs[0], &index = ctx.inputs[1], &updates = ctx.inputs[2];
  need_index(ctx, 1, "indices");
  if (x.dtype != updates.dtype) {
    ctx.fail(ErrorCode::DTypeMismatch, formatted("the operand and the updates have different dtypes: {} and {}",
                                                 dtype_name(x.dtype), dtype_name(updates.dtype)));
  }
  if (add && !is_float(x.dtype) && !is_integer(x.dtype)) {
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for numbers, not for {}", dtype_name(x.dtype)));
  }
  if (x.shape.rank() != index.shape.rank() || x.shape.rank() != updates.shape.rank()) {
    ctx.fail(ErrorCode::ShapeMismatch, "the operand, the indices and the updates must have equal ranks");
  }
  const int axis = need_axis(ctx, x.shape.rank());
  if (index.shape[axis] != updates.shape[axis]) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("{} indices and {} updates along axis {}", index.shape[axis], updates.shape[axis], axis));
  }
  for (int d = 0; d < x.shape.rank(); ++d) {
    if (d == axis) continue;
    if (updates.shape[d] != x.shape[d]) {
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("axis {} of the updates is {}, that of the operand {}", d, updates.shape[d], x.shape[d]));
    }
    if (index.shape[d] != 1 && index.shape[d] != updates.shape[d]) {
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("axis {} of the indices is {}: neither 1 nor {}", d, index.shape[d], updates.shape[d]));
    }
  }
  return {x};
}

void eval_scatter(const EvalContext& ctx, bool add) {
  const HostTensor &x = *ctx.inputs[0], &index = *ctx.inputs[1], &updates = *ctx.inputs[2];
  auto& y = ctx.results[0].data;
  y = x.data;
  const int axis = static_cast<int>(ctx.node.attrs.get<std::int64_t>("axis"));
  Strides fixed = dense_strides(x.type.shape);
  const std::int64_t stride = fixed[static_cast<std::size_t>(axis)];
  fixed[static_cast<std::size_t>(axis)] = 0;
  std::size_t n = 0;
  walk<2>(updates.type.shape, {fixed, broadcast_strides(index.type.shape, updates.type.shape)}, [&](const auto& at) {
    const double u = updates.data[n++], i = index.data[static_cast<std::size_t>(at[1])];
    if (i < 0 || i >= static_cast<double>(x.type.shape[axis])) return;
    double& target = y[static_cast<std::size_t>(at[0] + static_cast<std::int64_t>(i) * stride)];
    target = add ? wrap_integer(x.type.dtype, target + u) : u;
  });
}

// ---- expansion

/// The node in canonical form.
struct Canonical {
  std::int64_t o = 1, l = 1, d = 1, n = 1, c = 1;
  Ints order;              ///< axes as O..., L..., axis, C...
  Expr x, index, updates;  ///< [O, L, D, C], [L, N], [O, L, N, C]
};

Expr permuted(const Expr& x, const Ints& axes) {
  return std::ranges::is_sorted(axes) ? x : apply("permute", {x}, {{"axes", axes}});
}

Canonical canonical(const BuildContext& context, std::span<const Value> in) {
  const Shape x = in[0].shape(), index = in[1].shape();
  const std::int64_t axis = context.like.attrs.get<std::int64_t>("axis");
  const auto varies = [&](std::int64_t a) { return index[static_cast<int>(a)] != 1; };
  Canonical r;
  r.d = x[static_cast<int>(axis)];
  r.n = index[static_cast<int>(axis)];
  Ints front, lanes, back;
  for (std::int64_t a = 0; a < x.rank(); ++a) {
    const std::int64_t extent = x[static_cast<int>(a)];
    if (a == axis) continue;
    if (varies(a)) {
      lanes.push_back(a);
      r.l *= extent;
    } else if (a < axis && lanes.empty()) {
      front.push_back(a);
      r.o *= extent;
    } else {
      back.push_back(a);
      r.c *= extent;
    }
  }
  r.order = front;
  r.order.insert(r.order.end(), lanes.begin(), lanes.end());
  r.order.push_back(axis);
  r.order.insert(r.order.end(), back.begin(), back.end());
  r.x = reshape_to(permuted({context, in[0]}, r.order), {r.o, r.l, r.d, r.c});
  r.index = reshape_to(permuted({context, in[1]}, r.order), {r.l, r.n});
  r.updates = reshape_to(permuted({context, in[2]}, r.order), {r.o, r.l, r.n, r.c});
  return r;
}

Expr restored(const Expr& y, const Canonical& r, const Shape& shape) {
  Ints dims, inverse(r.order.size());
  for (std::size_t i = 0; i < r.order.size(); ++i) {
    dims.push_back(shape[static_cast<int>(r.order[i])]);
    inverse[static_cast<std::size_t>(r.order[i])] = static_cast<std::int64_t>(i);
  }
  return permuted(reshape_to(y, Shape(dims)), inverse);
}

Expr iota_over(const BuildContext& c, Shape shape, std::int64_t axis) {
  return {c, c.add("iota", {}, {{"dims", Ints(shape.begin(), shape.end())}, {"axis", axis}})};
}

/// Every element of x against the N indices of its lane, over [O, L, D, C, N].
Expr dense(const BuildContext& c, const Canonical& r, bool add) {
  const Expr index = reshape_to(r.index, {1, r.l, 1, 1, r.n});
  const Expr rows = cast_to(iota_over(c, {1, 1, r.d, 1, 1}, 2), index.value.dtype());
  const Expr hit = apply("equal", {rows, index});  // [1, L, D, 1, N]
  if (add) {
    // [O, L, N, C] seen as [O, L, 1, C, N]
    const Expr updates = reshape_to(permuted(r.updates, {0, 1, 3, 2}), {r.o, r.l, 1, r.c, r.n});
    const Expr terms = where(hit, updates, 0);
    return r.x + (r.n == 1 ? reshape_to(terms, {r.o, r.l, r.d, r.c}) : reduce("sum", terms, {4}, false));
  }
  if (r.n == 1) {
    const Expr updates = reshape_to(r.updates, {r.o, r.l, 1, r.c});
    return where(reshape_to(hit, {1, r.l, r.d, 1}), updates, r.x);
  }
  const Expr last = where(hit, iota_over(c, {1, 1, 1, 1, r.n}, 4), Expr(c, c.scalar(-1, DType::i32)));
  const Expr winner = reshape_to(reduce("max", last, {4}, false), {1, r.l, r.d, 1});
  const Expr update =
      apply("gather_elements", {r.updates, winner}, {{"axis", std::int64_t{2}}});  // none: reads nothing
  return where(apply("greater_equal", {winner, winner.number(0)}), update, r.x);
}

struct Order {
  Expr order, sorted;
};

Order order_of(const BuildContext& c, const Canonical& r, bool radix) {
  const std::int64_t keys = checked_mul(r.l, r.d, "destinations of a scatter");
  const std::int64_t items = checked_mul(r.l, r.n, "indices of a scatter");
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (keys >= kLimit || items >= kLimit) {
    fail(ErrorCode::LimitExceeded, "[{}] {} indices over {} destinations at {}; both are numbered with 31 bits",
         c.like.op->name, items, keys, c.like.line.to_string());
  }
  const Expr in_range = apply("logical_and", {apply("greater_equal", {r.index, r.index.number(0)}),
                                              apply("less", {r.index, r.index.number(static_cast<double>(r.d))})});
  Expr key = cast_to(r.index, DType::i32);
  if (r.l > 1) key = key + iota_over(c, {r.l, r.n}, 0) * static_cast<double>(r.d);
  key = reshape_to(where(in_range, key, key.number(static_cast<double>(keys))), {items});
  if (!radix) {
    const Expr order = apply("index_order", {key});
    return {order, {c, c.graph.value({order.value.id().node, 1})}};
  }
  Expr order = iota_over(c, {items}, 0);
  for (std::int64_t shift = 0; keys >> shift > 0; shift += kRadixBits) {
    const Attrs attrs = {{"shift", shift}};
    const Expr offsets = apply("radix_offsets", {key}, attrs);
    key = apply("radix_move", {key, order, offsets}, attrs);
    order = {c, c.graph.value({key.value.id().node, 1})};
  }
  return {order, key};
}

std::vector<Value> expand_scatter(const BuildContext& c, std::span<const Value> in, bool add) {
  const Shape shape = in[0].shape();
  if (shape.elements() == 0 || in[1].shape().elements() == 0) return {in[0]};
  Canonical r = canonical(c, in);
  std::string method = c.like.attrs.get_or<std::string>("method", "auto");
  if (method == "auto") {
    const std::int64_t items = r.l * r.n;
    method = r.n == 1 || r.n <= kDense / shape.elements() ? "dense" : items <= kRank ? "rank" : "radix";
  }
  if (method == "dense") return {restored(dense(c, r, add), r, shape).value};
  if (is_float(in[0].dtype()) && in[0].dtype() != DType::f32) {  // the kernels are for words: sums in f32, rounded once
    r.x = cast_to(r.x, DType::f32);
    r.updates = cast_to(r.updates, DType::f32);
  }
  const Order order = order_of(c, r, method == "radix");
  Expr y;
  if (add) {
    const Expr runs = apply("scatter_runs", {r.x, r.updates, order.order, order.sorted}, {{"add", true}});
    y = runs;
    if (y.value.node().results.size() > 1) {  // more than one chunk
      y = apply("scatter_joins", {y, {c, c.graph.value({y.value.id().node, 1})}, order.sorted});
    }
  } else {
    y = apply("scatter_runs", {r.x, r.updates, order.order, order.sorted}, {{"add", false}});
  }
  return {restored(cast_to(y, in[0].dtype()), r, shape).value};
}

// ---- the public records

void infer_method(const InferContext& ctx) {
  const std::string method = ctx.attrs.get_or<std::string>("method", "auto");
  if (method != "auto" && method != "dense" && method != "rank" && method != "radix") {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("attr method must be auto, dense, rank or radix, not \"{}\"", method));
  }
}

std::vector<OpCase> scatter_cases(bool add) {
  std::vector<OpCase> cases;
  const auto one = [&](Shape x, Shape index, std::int64_t axis, const char* method, DType dtype = DType::f32) {
    const std::int64_t n = index[static_cast<int>(axis)];
    OpCase c{.inputs = {{dtype, x}, {DType::i32, index}, {dtype, x.with(static_cast<int>(axis), n)}},
             .attrs = {{"axis", axis}, {"method", std::string(method)}},
             .ranges = {{-2, 2}, {0, std::max(0.0, static_cast<double>(x[static_cast<int>(axis)] - 1))}, {-2, 2}},
             .values = {}};
    if (dtype != DType::f32) c.ranges[0] = c.ranges[2] = {0, dtype == DType::boolean ? 1 : 1000};
    c.gradient = dtype == DType::f32;
    if (dtype == DType::f32) c.atol *= std::max(1.0, static_cast<double>(n) / 16);
    cases.push_back(std::move(c));
  };
  for (const char* method : {"dense", "rank", "radix"}) {
    one({5, 7}, {5, 3}, 1, method);        // torch.scatter_add: a list per row
    one({5, 7}, {9, 7}, 0, method);        // a list per column: permuted
    one({11, 8}, {23, 1}, 0, method);      // whole rows, vectors
    one({3, 5, 7}, {1, 6, 1}, 1, method);  // one list between uniform axes
    one({2, 3, 6, 5}, {1, 3, 4, 1}, 2, method);
    one({3, 4}, {300, 1}, 0, method);  // long runs
  }
  one({5, 4}, {5, 1}, 1, "auto");
  one({6}, {4}, 0, "rank");
  one({4, 3}, {0, 1}, 0, "auto");
  one({0, 3}, {2, 1}, 0, "auto");
  one({7, 3}, {20, 1}, 0, "rank", DType::i32);
  one({5, 3}, {7, 3}, 0, "dense", DType::u32);
  for (const char* method : {"dense", "rank", "radix"}) {
    one({4, 4}, {9, 1}, 0, method);  // outside: dropped
    cases.back().values = {{}, {1, -1, 4, 3, 1, 2147483647, -2147483648, 0, 3}};
  }
  if (!add) one({5, 4}, {3, 1}, 0, "rank", DType::boolean);
  return cases;
}

std::vector<Value> vjp_scatter_add(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                                   std::span<const Value> dy) {
  return {dy[0], Value(), c.add("gather_elements", {dy[0], in[1]}, {{"axis", c.like.attrs.get<std::int64_t>("axis")}})};
}

/// Elements that were overwritten pass nothing back, and of equal indices only the last gets a gradient.
std::vector<Value> vjp_scatter(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                               std::span<const Value> dy) {
  const std::int64_t axis = c.like.attrs.get<std::int64_t>("axis");
  const Attrs attrs = {{"axis", axis}};
  const Expr g(c, dy[0]), index(c, in[1]);
  const Shape places = index.shape();
  const Expr none = expand_to(g.number(0), in[2].shape());
  const Expr dx = apply("scatter", {g, index, none}, c.like.attrs);
  const Expr position = iota_over(c, places, axis);
  const Expr nobody = expand_to(Expr(c, c.scalar(-1, DType::i32)),
                                places.with(static_cast<int>(axis), in[0].shape()[static_cast<int>(axis)]));
  const Expr last = apply("gather_elements", {apply("scatter", {nobody, index, position}, c.like.attrs), index}, attrs);
  const Expr won = apply("equal", {last, position});
  return {dx.value, Value(), where(won, apply("gather_elements", {g, index}, attrs), 0).value};
}

OpDef scatter_op(bool add) {
  OpDef op;
  op.name = add ? "scatter_add" : "scatter";
  op.doc =
      add ? "x with updates[..., i, ...] added at [..., index[..., i, ...], ...] along attr axis, in a fixed order; "
            "an index outside the axis is dropped."
          : "x with updates[..., i, ...] at [..., index[..., i, ...], ...] along attr axis; the last of equal indices "
            "wins; "
            "an index outside the axis is dropped.";
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 3;
  op.gradient = GradientKind::Rule;
  op.infer = [add](const InferContext& ctx) {
    infer_method(ctx);
    return infer_scatter(ctx, add);
  };
  op.eval = [add](const EvalContext& ctx) { eval_scatter(ctx, add); };
  op.expand = [add](const BuildContext& c, std::span<const Value> in) { return expand_scatter(c, in, add); };
  if (add) {
    op.vjp = vjp_scatter_add;
  } else {
    op.vjp = vjp_scatter;
  }
  op.cases = [add] { return scatter_cases(add); };
  return op;
}

Value build_scatter(std::string_view op, const Operand& x, const Operand& indices, const Operand& updates,
                    std::int64_t axis) {
  const Value target = resolve_value(op, x);
  const int rank = target.shape().rank();
  if (axis < -rank || axis >= rank) {
    op_error(ErrorCode::InvalidArgument, op,
             formatted("axis {} is out of range for {}", axis, target.type().to_string()), x.line());
  }
  if (axis < 0) axis += rank;
  const Value y = build(op, {x, indices, updates}, {{"axis", axis}});
  check_indices(op, indices.value(), target.shape()[static_cast<int>(axis)], axis, x.line());
  return y;
}

}  // namespace

std::vector<OpDef> scatter_ops() {
  std::vector<OpDef> ops = {scatter_op(false), scatter_op(true)};
  for (OpDef& op : scatter_kernel_ops()) ops.push_back(std::move(op));
  return ops;
}

Value scatter(Operand x, Operand indices, Operand updates, std::int64_t axis) {
  return build_scatter("scatter", x, indices, updates, axis);
}
Value scatter_add(Operand x, Operand indices, Operand updates, std::int64_t axis) {
  return build_scatter("scatter_add", x, indices, updates, axis);
}

}  // namespace aeshna
