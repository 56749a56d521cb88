// Sorting. Everything is ordered by (key, position): equal keys keep their order, and results do not depend on the device. NaN counts
// as the largest value, -0 equals 0, as in torch.
//
// sort and topk are composites over rows [R, n]. Chunks of a row are sorted in shared memory (sort_chunks); a sort then merges
// neighbouring runs until one is left (merge_runs), topk keeps the first k of each chunk and sorts chunks of what is left, again and
// again. Gradients go back to where the values came from (place).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/order.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// Up to this k, a round of topk leaves at most a quarter of a row.
constexpr std::int64_t kMaxTournament = kSortChunk / 4;

bool before(double a, double b, bool descending) {  // strictly
  if (std::isnan(a) || std::isnan(b)) return descending ? std::isnan(a) && !std::isnan(b) : std::isnan(b) && !std::isnan(a);
  return descending ? a > b : a < b;
}

/// Positions first + [0, count) * stride of x in sorted order, as numbers in [0, count).
std::vector<std::int64_t> sorted_positions(const std::vector<double>& x, std::int64_t first, std::int64_t stride,
                                           std::int64_t count, bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(first + i * stride)]; };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return before(at(a), at(b), descending); });
  return order;
}

/// The first `keep` of each sorted row along the axis.
void eval_sorted(const EvalContext& ctx, std::int64_t keep, bool descending) {
  const HostTensor& x = *ctx.inputs[0];
  const AxisSplit split = split_axis(x.type.shape, ctx.node.attrs.get<std::int64_t>("axis"));
  for (std::int64_t o = 0; o < split.outer; ++o) {
    for (std::int64_t i = 0; i < split.inner; ++i) {
      const std::int64_t first = o * split.extent * split.inner + i;
      const auto order = sorted_positions(x.data, first, split.inner, split.extent, descending);
      for (std::int64_t r = 0; r < keep; ++r) {
        const auto to = static_cast<std::size_t>((o * keep + r) * split.inner + i);
        const std::int64_t from = order[static_cast<std::size_t>(r)];
        ctx.results[0].data[to] = x.data[static_cast<std::size_t>(first + from * split.inner)];
        ctx.results[1].data[to] = static_cast<double>(from);
      }
    }
  }
}

int infer_sorted(const InferContext& ctx) {
  need_number(ctx, ctx.inputs[0]);
  const int axis = infer_axis(ctx);
  if (ctx.inputs[0].shape[axis] > INT32_MAX) ctx.fail(ErrorCode::LimitExceeded, "the indices do not fit i32");
  return axis;
}

// ---- passes over rows

/// The values and indices of a pass.
struct Sorted {
  Value values, indices;
};

Sorted add_pass(const BuildContext& c, std::string_view op, std::vector<Value> inputs, Attrs attrs) {
  const Value values = c.add(op, std::move(inputs), std::move(attrs));
  return {values, c.graph.value({values.id().node, 1})};
}

/// x with the axis last, as rows.
Expr to_rows(const Expr& x, std::int64_t axis) {
  const Shape shape = x.shape();
  Ints axes;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != axis) axes.push_back(d);
  }
  axes.push_back(axis);
  const Expr last = axis == shape.rank() - 1 ? x : apply("permute", {x}, {{"axes", axes}});
  const AxisSplit split = split_axis(shape, axis);
  return reshape_to(last, {split.outer * split.inner, split.extent});
}

/// The inverse, to `shape` (whose axis may have another extent than the first operand had).
Expr from_rows(const Expr& rows, const Shape& shape, std::int64_t axis) {
  if (axis == shape.rank() - 1) return reshape_to(rows, shape);
  Ints dims, axes;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != axis) dims.push_back(shape[d]);
    axes.push_back(d < axis ? d : d == axis ? shape.rank() - 1 : d - 1);
  }
  dims.push_back(shape[static_cast<int>(axis)]);
  return apply("permute", {reshape_to(rows, Shape(dims))}, {{"axes", axes}});
}

Sorted sort_chunks(const BuildContext& c, const Sorted& rows, bool descending, std::int64_t keep) {
  std::vector<Value> inputs = {rows.values};
  if (rows.indices) inputs.push_back(rows.indices);
  return add_pass(c, "sort_chunks", std::move(inputs), {{"descending", descending}, {"chunk", kSortChunk}, {"keep", keep}});
}

Sorted sort_rows(const BuildContext& c, Value rows, bool descending) {
  const std::int64_t n = rows.shape()[1];
  Sorted sorted = sort_chunks(c, {rows, Value()}, descending, kSortChunk);
  for (std::int64_t run = kSortChunk; run < n; run *= 2)
    sorted = add_pass(c, "merge_runs", {sorted.values, sorted.indices}, {{"descending", descending}, {"run", run}});
  return sorted;
}

Sorted top_rows(const BuildContext& c, Value rows, std::int64_t k, bool largest) {
  const Shape shape = rows.shape();
  if (k > kMaxTournament && shape[1] > kSortChunk) {
    const Sorted sorted = sort_rows(c, rows, largest);
    const Attrs first_k = {
        {"axes", Ints{0, 1}}, {"starts", Ints{0, 0}}, {"ends", Ints{shape[0], k}}, {"steps", Ints{1, 1}}};
    return {c.add("slice", {sorted.values}, first_k), c.add("slice", {sorted.indices}, first_k)};
  }
  Sorted best = sort_chunks(c, {rows, Value()}, largest, k);
  while (best.values.shape()[1] > k) best = sort_chunks(c, best, largest, k);
  return best;
}

/// Elements that sort_chunks keeps of a row of n.
std::int64_t kept(std::int64_t n, std::int64_t chunk, std::int64_t keep) {
  const std::int64_t whole = n / chunk, rest = n % chunk;
  return whole * std::min(chunk, keep) + std::min(rest, keep);
}

void infer_pass(const InferContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  need_number(ctx, x);
  if (x.shape.rank() != 2) ctx.fail(ErrorCode::ShapeMismatch, formatted("needs rows of rank 2, not {}", x.to_string()));
  if (x.shape[1] > INT32_MAX) ctx.fail(ErrorCode::LimitExceeded, "the indices do not fit i32");
  ctx.attrs.get<bool>("descending");
  if (ctx.inputs.size() > 1 && ctx.inputs[1] != TensorType{DType::i32, x.shape}) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("the indices must be {}, not {}", TensorType{DType::i32, x.shape}.to_string(),
                       ctx.inputs[1].to_string()));
  }
}

/// Sorts elements [begin, end) of a row and writes the first `keep` of them.
void eval_run(const EvalContext& ctx, std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t to,
              std::int64_t keep) {
  const HostTensor& x = *ctx.inputs[0];
  const std::int64_t n = x.type.shape[1], first = row * n + begin;
  const auto order = sorted_positions(x.data, first, 1, end - begin, ctx.node.attrs.get<bool>("descending"));
  for (std::int64_t r = 0; r < std::min(keep, end - begin); ++r) {
    const std::int64_t from = order[static_cast<std::size_t>(r)];
    const auto source = static_cast<std::size_t>(first + from);
    ctx.results[0].data[static_cast<std::size_t>(to + r)] = x.data[source];
    ctx.results[1].data[static_cast<std::size_t>(to + r)] =
        ctx.inputs.size() > 1 ? ctx.inputs[1]->data[source] : static_cast<double>(begin + from);
  }
}

OpDef sort_chunks_op() {
  OpDef op;
  op.name = "sort_chunks";
  op.doc =
      "The first attr keep elements of every sorted chunk of attr chunk elements of rows [R, n], and their indices: operand "
      "2 moved along, or positions in the row.";
  op.kind = OpKind::Kernel;
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.gradient = GradientKind::NotDifferentiable;  // sort and topk have the gradient
  op.lower = lower_sort_chunks;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    infer_pass(ctx);
    const std::int64_t chunk = ctx.attrs.get<std::int64_t>("chunk"), keep = ctx.attrs.get<std::int64_t>("keep");
    if (chunk < 1 || chunk > kSortChunk || keep < 1 || keep > chunk)
      ctx.fail(ErrorCode::InvalidArgument,
               formatted("chunks of {} of which {} are kept: chunks have up to {} elements", chunk, keep, kSortChunk));
    const Shape& x = ctx.inputs[0].shape;
    const Shape result = x.with(1, kept(x[1], chunk, keep));
    return {{ctx.inputs[0].dtype, result}, {DType::i32, result}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape& x = ctx.inputs[0]->type.shape;
    const std::int64_t chunk = ctx.node.attrs.get<std::int64_t>("chunk"), keep = ctx.node.attrs.get<std::int64_t>("keep");
    const std::int64_t result = ctx.results[0].type.shape[1];
    for (std::int64_t row = 0; row < x[0]; ++row) {
      for (std::int64_t i = 0; i * chunk < x[1]; ++i)
        eval_run(ctx, row, i * chunk, std::min((i + 1) * chunk, x[1]), row * result + i * keep, keep);
    }
  };
  op.cases = [] {
    const auto one = [](Shape shape, std::int64_t chunk, std::int64_t keep, bool descending, bool carried) {
      OpCase c{.inputs = {f32_type(shape)},
               .attrs = {{"chunk", chunk}, {"keep", keep}, {"descending", descending}},
               .ranges = {{-2, 2}, {0, 1000}},
               .values = {}};
      if (carried) c.inputs.push_back({DType::i32, shape});
      c.rtol = c.atol = 0;
      c.gradient = false;
      return c;
    };
    return std::vector<OpCase>{one({3, 17}, 2048, 2048, false, false), one({2, 100}, 16, 5, true, false),
                               one({3, 35}, 32, 4, false, true), one({2, 2100}, 2048, 3, true, true)};
  };
  return op;
}

OpDef merge_runs_op() {
  OpDef op;
  op.name = "merge_runs";
  op.doc = "Rows [R, n] and indices whose runs of attr run elements are sorted become sorted in runs of twice that length.";
  op.kind = OpKind::Kernel;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::NotDifferentiable;  // sort and topk have the gradient
  op.lower = lower_sort_merge;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    infer_pass(ctx);
    const std::int64_t run = ctx.attrs.get<std::int64_t>("run");
    if (run < kMergeTile || run % kMergeTile != 0)
      ctx.fail(ErrorCode::InvalidArgument, formatted("runs of {} are no multiple of {}", run, kMergeTile));
    return {ctx.inputs[0], ctx.inputs[1]};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape& x = ctx.inputs[0]->type.shape;
    const std::int64_t both = 2 * ctx.node.attrs.get<std::int64_t>("run");
    for (std::int64_t row = 0; row < x[0]; ++row) {
      for (std::int64_t i = 0; i * both < x[1]; ++i)
        eval_run(ctx, row, i * both, std::min((i + 1) * both, x[1]), row * x[1] + i * both, both);
    }
  };
  op.cases = [] {
    const auto one = [](std::int64_t rows, std::int64_t n, std::int64_t run, std::int64_t distinct) {
      OpCase c{.inputs = {f32_type({rows, n}), {DType::i32, {rows, n}}},
               .attrs = {{"run", run}, {"descending", false}},
               .ranges = {{-2, 2}, {0, 1000}},
               .values = {{}, {}}};
      // Sorted runs with many equal keys; the indices tell them apart.
      for (std::int64_t e = 0; e < rows * n; ++e) {
        const std::int64_t p = e % n, r = p / run, length = std::min(run, n - r * run);
        c.values[0].push_back(static_cast<double>((p - r * run) * distinct / length + r % 3));
        c.values[1].push_back(static_cast<double>(e));
      }
      c.rtol = c.atol = 0;
      c.gradient = false;
      return c;
    };
    return std::vector<OpCase>{one(2, 2500, 1024, 40), one(1, 1000, 1024, 7), one(1, 5000, 2048, 3)};
  };
  return op;
}

OpDef place_op() {
  OpDef op;
  op.name = "place";
  op.doc = "Rows [R, k] at their indices (i32 [R, k], distinct in each row) of rows of attr n elements, 0 elsewhere.";
  op.kind = OpKind::Kernel;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {c.add("gather_elements", {dy[0], in[1]}, {{"axis", std::int64_t{1}}}), Value()};
  };
  op.lower = lower_place;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const TensorType& x = ctx.inputs[0];
    need_number(ctx, x);
    if (x.shape.rank() != 2 || ctx.inputs[1] != TensorType{DType::i32, x.shape})
      ctx.fail(ErrorCode::ShapeMismatch, "needs rows of rank 2 and as many indices");
    const std::int64_t n = ctx.attrs.get<std::int64_t>("n");
    if (n < x.shape[1] || n > INT32_MAX)
      ctx.fail(ErrorCode::InvalidArgument, formatted("rows of {} do not hold {} elements", n, x.shape[1]));
    return {{x.dtype, x.shape.with(1, n)}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape& x = ctx.inputs[0]->type.shape;
    const std::int64_t n = ctx.results[0].type.shape[1];
    for (std::size_t e = 0; e < ctx.inputs[0]->data.size(); ++e) {
      const double index = ctx.inputs[1]->data[e];
      if (index < 0 || index >= static_cast<double>(n)) continue;
      const std::int64_t row = static_cast<std::int64_t>(e) / x[1];
      ctx.results[0].data[static_cast<std::size_t>(row * n + static_cast<std::int64_t>(index))] = ctx.inputs[0]->data[e];
    }
  };
  op.cases = [] {
    const auto one = [](std::int64_t rows, std::int64_t n, std::int64_t k, std::int64_t step) {
      OpCase c{.inputs = {f32_type({rows, k}), {DType::i32, {rows, k}}}, .attrs = {{"n", n}}, .ranges = {}, .values = {{}, {}}};
      for (std::int64_t i = 0; i < k; ++i) c.values[1].push_back(static_cast<double>((5 + i * step) % n));
      c.rtol = c.atol = 0;
      return c;
    };
    return std::vector<OpCase>{one(3, 7, 3, 2), one(2, 11, 11, 3), one(2, 5000, 5, 1777), one(2, 3000, 3000, 7), one(1, 4, 0, 1)};
  };
  return op;
}

/// dy back to where each value came from.
std::vector<Value> vjp_sorted(const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
                              std::span<const Value> dy) {
  const std::int64_t axis = c.like.attrs.get<std::int64_t>("axis");
  const Shape shape = in[0].shape();
  const Expr rows = apply("place", {to_rows({c, dy[0]}, axis), to_rows({c, out[1]}, axis)}, {{"n", shape[static_cast<int>(axis)]}});
  return {from_rows(rows, shape, axis).value};
}

// ---- sort, topk

OpCase sorted_case(Shape shape, std::int64_t axis, Attrs more, DType dtype = DType::f32) {
  OpCase c{.inputs = {{dtype, shape}}, .attrs = std::move(more), .ranges = {{-1000, 1000}}, .values = {}};
  if (dtype == DType::u32) c.ranges[0].first = 0;
  c.attrs.set("axis", axis);
  c.rtol = c.atol = 0;
  if (shape.elements() > 2000) {  // distinct, also under the small steps of a gradient's check
    c.values.emplace_back();
    for (std::int64_t i = 0; i < 10007; ++i) c.values[0].push_back(static_cast<double>(i * 7919 % 10007 - 5000));
  }
  c.gradient = dtype == DType::f32;
  return c;
}

OpDef sort_op() {
  OpDef op;
  op.name = "sort";
  op.doc = "Values along attr axis in order (attr descending), and their indices (i32); equal values keep their order.";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.vjp = vjp_sorted;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    infer_sorted(ctx);
    ctx.attrs.get<bool>("descending");
    return {ctx.inputs[0], {DType::i32, ctx.inputs[0].shape}};
  };
  op.eval = [](const EvalContext& ctx) {
    const std::int64_t axis = ctx.node.attrs.get<std::int64_t>("axis");
    eval_sorted(ctx, ctx.inputs[0]->type.shape[static_cast<int>(axis)], ctx.node.attrs.get<bool>("descending"));
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const std::int64_t axis = c.like.attrs.get<std::int64_t>("axis");
    const Shape shape = in[0].shape();
    const Sorted sorted = sort_rows(c, to_rows({c, in[0]}, axis).value, c.like.attrs.get<bool>("descending"));
    return {from_rows({c, sorted.values}, shape, axis).value, from_rows({c, sorted.indices}, shape, axis).value};
  };
  op.cases = [] {
    const auto one = [](Shape shape, std::int64_t axis, bool descending, DType dtype = DType::f32) {
      return sorted_case(shape, axis, {{"descending", descending}}, dtype);
    };
    return std::vector<OpCase>{one({5, 7}, 1, false),          one({5, 7}, 1, true),         one({7, 5}, 0, true),
                               one({3, 4, 5}, 1, false),       one({1}, 0, false),           one({0, 3}, 1, false),
                               one({3, 0}, 1, true),           one({2, 257}, 1, false),      one({4099}, 0, true),
                               one({2, 6000}, 1, false),       one({40}, 0, true, DType::i32), one({2, 30}, 1, true, DType::u32)};
  };
  return op;
}

OpDef topk_op() {
  OpDef op;
  op.name = "topk";
  op.doc = "The attr k largest (or smallest) values along attr axis in order, and their indices (i32).";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.vjp = vjp_sorted;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const int axis = infer_sorted(ctx);
    const std::int64_t k = ctx.attrs.get<std::int64_t>("k");
    ctx.attrs.get<bool>("largest");
    const Shape& x = ctx.inputs[0].shape;
    if (k < 0 || k > x[axis])
      ctx.fail(ErrorCode::OutOfRange, formatted("k = {} of an axis of {} elements", k, x[axis]));
    return {{ctx.inputs[0].dtype, x.with(axis, k)}, {DType::i32, x.with(axis, k)}};
  };
  op.eval = [](const EvalContext& ctx) {
    eval_sorted(ctx, ctx.node.attrs.get<std::int64_t>("k"), ctx.node.attrs.get<bool>("largest"));
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Attrs& attrs = c.like.attrs;
    const std::int64_t axis = attrs.get<std::int64_t>("axis"), k = attrs.get<std::int64_t>("k");
    const Shape shape = in[0].shape().with(static_cast<int>(axis), k);
    if (k == 0) {
      const Expr none = expand_to({c, c.scalar(0, in[0].dtype())}, shape);
      return {none.value, cast_to(none, DType::i32).value};
    }
    const Sorted best = top_rows(c, to_rows({c, in[0]}, axis).value, k, attrs.get<bool>("largest"));
    return {from_rows({c, best.values}, shape, axis).value, from_rows({c, best.indices}, shape, axis).value};
  };
  op.cases = [] {
    const auto one = [](Shape shape, std::int64_t axis, std::int64_t k, bool largest, DType dtype = DType::f32) {
      return sorted_case(shape, axis, {{"k", k}, {"largest", largest}}, dtype);
    };
    return std::vector<OpCase>{one({5, 7}, 1, 3, true),     one({5, 7}, 1, 3, false),   one({7, 5}, 0, 7, true),
                               one({3, 4, 5}, 1, 1, false), one({1}, 0, 1, true),       one({5, 7}, 1, 0, true),
                               one({0, 3}, 1, 2, true),     one({2, 2049}, 1, 5, true), one({9001}, 0, 512, false),
                               one({2, 2500}, 1, 600, true), one({40}, 0, 4, false, DType::i32)};
  };
  return op;
}

}  // namespace

std::vector<OpDef> sort_ops() { return {sort_op(), topk_op(), sort_chunks_op(), merge_runs_op(), place_op()}; }

// ---- public functions

namespace {

SortResult build_sorted(std::string_view op, const Operand& x, std::int64_t axis, Attrs attrs) {
  const int rank = resolve_value(op, x).shape().rank();
  attrs.set("axis", axis < 0 ? axis + rank : axis);
  const Value values = build(op, {x}, std::move(attrs));
  return {values, values.graph().value({values.id().node, 1})};
}

}  // namespace

SortResult sort(Operand x, std::int64_t axis, bool descending) {
  return build_sorted("sort", x, axis, {{"descending", descending}});
}

SortResult topk(Operand x, std::int64_t k, std::int64_t axis, bool largest) {
  return build_sorted("topk", x, axis, {{"k", k}, {"largest", largest}});
}

}  // namespace aeshna
