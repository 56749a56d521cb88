// Key-value caches: rows of a state that are written at positions known at run time. cache_write is a real edge of the graph: whoever
// must see the new rows (attention of the same step) reads its result, and where the result is assigned to the state, the planner
// lets the kernel write over it, so that a step moves the new rows and nothing else.

#include "base/format.h"
#include "ir/leaf.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/order.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// Types of cache [B, KV, C, D], rows [B, KV, S, D] and position (i32, one per sequence or one for all).
void infer_cache(const InferContext& ctx, const TensorType& cache, const TensorType& rows, const TensorType& position) {
  need_number(ctx, cache);
  if (rows.dtype != cache.dtype)
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("the cache is {}, the rows are {}", cache.to_string(), rows.to_string()));
  if (cache.shape.rank() != 4 || rows.shape.rank() != 4 || rows.shape != cache.shape.with(2, rows.shape[2])) {
    ctx.fail(
        ErrorCode::ShapeMismatch,
        formatted("rows of shape {} for a cache of shape {}: [batch, kv_heads, rows, head_dim] for [batch, kv_heads, "
                  "capacity, head_dim] is needed",
                  rows.shape.to_string(), cache.shape.to_string()));
  }
  if (cache.shape[2] == 0)
    ctx.fail(ErrorCode::ShapeMismatch, formatted("a cache without slots: {}", cache.shape.to_string()));
  if (rows.shape[2] > cache.shape[2])
    ctx.fail(ErrorCode::ShapeMismatch, formatted("{} rows do not fit a cache of {}", rows.shape[2], cache.shape[2]));
  if (position.dtype != DType::i32)
    ctx.fail(ErrorCode::DTypeMismatch, formatted("positions are i32, not {}", dtype_name(position.dtype)));
  if (position.shape.rank() != 0 && position.shape != Shape{cache.shape[0]}) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("the position must be a scalar or one per sequence ([{}]), not {}",
                                                 cache.shape[0], position.shape.to_string()));
  }
  ctx.attrs.get<bool>("ring");
}

/// f(element of the cache, element of the rows) for every row that lies in the cache.
template <class F>
void for_each_row(const EvalContext& ctx, const Shape& cache, const Shape& rows, const HostTensor& position, F f) {
  const bool ring = ctx.node.attrs.get<bool>("ring");
  std::int64_t element = 0;
  for (std::int64_t b = 0; b < rows[0]; ++b) {
    const auto start = static_cast<std::int64_t>(position.data[position.data.size() > 1 ? static_cast<std::size_t>(b) : 0]);
    for (std::int64_t h = 0; h < rows[1]; ++h) {
      for (std::int64_t s = 0; s < rows[2]; ++s) {
        const std::int64_t at = start + s, slot = ring ? at % cache[2] : at;
        const bool inside = start >= 0 && slot < cache[2];
        for (std::int64_t d = 0; d < rows[3]; ++d, ++element) {
          if (inside) f(static_cast<std::size_t>(((b * cache[1] + h) * cache[2] + slot) * cache[3] + d), static_cast<std::size_t>(element));
        }
      }
    }
  }
}

Value zeros(const BuildContext& c, const TensorType& type) {
  return expand_to({c, c.scalar(0, type.dtype)}, type.shape).value;
}

OpCase cache_case(Shape cache, std::int64_t rows, std::vector<double> position, bool ring, bool write) {
  OpCase c{.inputs = {f32_type(cache)}, .attrs = {{"ring", ring}}, .ranges = {}, .values = {{}}};
  if (write) {
    c.inputs.push_back(f32_type(cache.with(2, rows)));
    c.values.emplace_back();
  } else {
    c.attrs.set("rows", rows);
  }
  c.inputs.push_back({DType::i32, position.size() == 1 ? Shape{} : Shape{cache[0]}});
  c.values.push_back(std::move(position));
  c.rtol = c.atol = 0;
  return c;
}

std::vector<OpCase> cache_cases(bool write) {
  const auto one = [&](Shape cache, std::int64_t rows, std::vector<double> position, bool ring) {
    return cache_case(cache, rows, std::move(position), ring, write);
  };
  return {one({2, 3, 7, 5}, 2, {1, 5}, false),     // two sequences, the second to the end
          one({2, 3, 7, 5}, 2, {4}, false),        // one position for all
          one({2, 1, 7, 8}, 3, {5, 6}, true),      // around the end
          one({1, 2, 5, 4}, 5, {13}, true),        // the whole ring, several times around
          one({3, 2, 6, 3}, 1, {2, 0, 5}, false),  // decoding
          one({3, 1, 4, 3}, 2, {3, -1, 2}, false),  // partly outside, before the start, inside
          one({2, 1, 4, 3}, 2, {-3, 2}, true),
          one({1, 1, 4, 3}, 2, {2147483647}, false),
          one({1, 1, 4, 3}, 0, {1}, false),
          one({0, 2, 4, 3}, 1, {1}, false)};
}

OpDef cache_write_op() {
  OpDef op;
  op.name = "cache_write";
  op.doc =
      "Cache [B, KV, C, D] with rows [B, KV, S, D] written at position .. position + S - 1 of each sequence (modulo C if attr ring); "
      "rows outside are not written.";
  op.kind = OpKind::Kernel;
  op.updates = 0;
  op.min_inputs = op.max_inputs = 3;
  op.gradient = GradientKind::Rule;
  op.lower = lower_cache;
  op.accepts_view = [](std::size_t input, const Access&) { return input == 1; };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    infer_cache(ctx, ctx.inputs[0], ctx.inputs[1], ctx.inputs[2]);
    return {ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) {
    auto& y = ctx.results[0].data;
    y = ctx.inputs[0]->data;
    for_each_row(ctx, ctx.inputs[0]->type.shape, ctx.inputs[1]->type.shape, *ctx.inputs[2],
                 [&](std::size_t slot, std::size_t row) { y[slot] = ctx.inputs[1]->data[row]; });
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    Attrs read = c.like.attrs;
    read.set("rows", in[1].shape()[2]);
    return {c.add("cache_write", {dy[0], zeros(c, in[1].type()), in[2]}, c.like.attrs),
            c.add("cache_read", {dy[0], in[2]}, std::move(read)), Value()};
  };
  op.cases = [] { return cache_cases(true); };
  return op;
}

OpDef cache_read_op() {
  OpDef op;
  op.name = "cache_read";
  op.doc =
      "Rows position .. position + S - 1 (attr rows = S; modulo C if attr ring) of a cache [B, KV, C, D]; 0 for rows outside.";
  op.kind = OpKind::Kernel;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.lower = lower_cache;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const std::int64_t rows = ctx.attrs.get<std::int64_t>("rows");
    if (rows < 0) ctx.fail(ErrorCode::InvalidArgument, formatted("{} rows", rows));
    TensorType result = ctx.inputs[0];
    if (result.shape.rank() == 4) result.shape = result.shape.with(2, rows);
    infer_cache(ctx, ctx.inputs[0], result, ctx.inputs[1]);
    return {result};
  };
  op.eval = [](const EvalContext& ctx) {
    for_each_row(ctx, ctx.inputs[0]->type.shape, ctx.results[0].type.shape, *ctx.inputs[1],
                 [&](std::size_t slot, std::size_t row) { ctx.results[0].data[row] = ctx.inputs[0]->data[slot]; });
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {c.add("cache_write", {zeros(c, in[0].type()), dy[0], in[1]}, {{"ring", c.like.attrs.get<bool>("ring")}}), Value()};
  };
  op.cases = [] { return cache_cases(false); };
  return op;
}

/// The position operand: a Value, or a number for all sequences.
Value resolve_position(std::string_view op, Graph& graph, const Operand& position) {
  if (!position.is_number()) return position.value();
  const double number = position.number();
  if (number != static_cast<double>(static_cast<std::int32_t>(number)))
    op_error(ErrorCode::OutOfRange, op, formatted("the position {} is no i32", number), position.line());
  return graph.constant(number, DType::i32, position.line());
}

/// Positions that would write outside make the step bad; constants are refused at once.
void check_position(std::string_view op, Value position, const Shape& cache, std::int64_t rows, bool ring, const Loc& line) {
  const std::int64_t last = cache[2] - rows;
  const std::string range = ring ? "be >= 0" : formatted("lie in [0, {}]", last);
  if (is_constant(position.node())) {
    for (const double p : position.node().attrs.get<Literal>("value").to_doubles()) {
      if (p < 0 || (!ring && p > static_cast<double>(last)))
        op_error(ErrorCode::OutOfRange, op, formatted("the position {} must {}", p, range), line);
    }
    return;
  }
  if (position.shape().elements() == 0) return;
  const auto at = [&](Value v) { return Operand(v, line); };
  Value outside = less(at(position), Operand(0, line));
  if (!ring) outside = logical_or(at(outside), at(greater(at(position), Operand(last, line))));
  const Value any = greater(at(sum(at(cast(at(outside), DType::i32)))), Operand(0, line));
  position.graph().add(
      "check", {&any, 1},
      {{"code", std::string("out_of_range")}, {"what", formatted("a position of {} (it must {})", op, range)}}, line);
}

}  // namespace

std::vector<OpDef> cache_ops() { return {cache_write_op(), cache_read_op()}; }

// ---- public functions

Value cache_write(Operand cache, Operand rows, Operand position, bool ring) {
  const Loc& line = cache.line();
  Value c = resolve_value("cache_write", cache), r = resolve_value("cache_write", rows);
  Value p = resolve_position("cache_write", c.graph(), position);
  // More rows than a ring holds: only the last ones stay.
  if (ring && c.shape().rank() == 4 && r.shape().rank() == 4 && r.shape()[2] > c.shape()[2]) {
    const std::int64_t surplus = r.shape()[2] - c.shape()[2];
    r = slice({r, line}, {2}, {surplus}, {r.shape()[2]});
    p = add({p, line}, {surplus, line});
  }
  const Value operands[] = {c, r, p};
  const Value result = c.graph().add("cache_write", operands, {{"ring", ring}}, line);
  check_position("cache_write", p, c.shape(), r.shape()[2], ring, line);
  return result;
}

Value cache_read(Operand cache, Operand position, std::int64_t rows, bool ring) {
  const Loc& line = cache.line();
  const Value c = resolve_value("cache_read", cache), p = resolve_position("cache_read", c.graph(), position);
  const Value operands[] = {c, p};
  const Value result = c.graph().add("cache_read", operands, {{"ring", ring}, {"rows", rows}}, line);
  check_position("cache_read", p, c.shape(), rows, ring, line);
  return result;
}

Value ring_positions(Operand count, std::int64_t capacity) {
  const Loc& line = count.line();
  const Value n = resolve_value("ring_positions", count);
  if (n.dtype() != DType::i32 || n.shape().rank() > 1 || capacity < 1) {
    op_error(
        ErrorCode::InvalidArgument, "ring_positions",
        formatted("needs a count i32 [] or [B] and a capacity >= 1, not {} and {}", n.type().to_string(), capacity),
        line);
  }
  // Slot j of n written rows: the largest position below n that is j modulo capacity; below 0 where nothing was written.
  const auto at = [&](Value v) { return Operand(v, line); };
  Value last = sub(at(n), Operand(1, line));
  if (n.shape().rank() == 1) last = reshape(at(last), {n.shape()[0], 1}, line);
  const Value slots = iota(n.graph(), {capacity}, 0, line);
  return sub(at(last), at(mod(at(sub(at(last), at(slots))), Operand(capacity, line))));
}

KvCache kv_cache(Graph& graph, std::string_view name, Shape shape, bool ring, Loc loc) {
  if (shape.rank() != 4) {
    op_error(ErrorCode::ShapeMismatch, "kv_cache",
             formatted("a cache is [batch, kv_heads, capacity, head_dim], not {}", shape.to_string()), loc);
  }
  KvCache cache{.keys = {}, .values = {}, .ring = ring};
  const Scope scope(graph, name);
  cache.keys = graph.state("keys", shape, DType::f32, Init::zeros(), loc);
  cache.values = graph.state("values", shape, DType::f32, Init::zeros(), loc);
  return cache;
}

KvCache cache_append(const KvCache& cache, Operand keys, Operand values, Operand position) {
  const Loc& line = keys.line();
  KvCache next{.keys = cache_write({cache.keys, line}, keys, position, cache.ring),
               .values = cache_write({cache.values, line}, values, position, cache.ring),
               .ring = cache.ring};
  cache.keys.graph().assign(cache.keys, next.keys, line);
  cache.values.graph().assign(cache.values, next.values, line);
  return next;
}

}  // namespace aeshna
