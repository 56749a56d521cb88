// Random numbers: Philox4x32-10 as a function of (seed, step, stream, element), the same on CPU and GPU.
// Operands: seed u32[2] (state aeshna.seed) and step u32 (state aeshna.step); attrs dims and stream.
// Word of element i: philox(counter = {low 32 bits of i / 4, step, stream, 0}, key = seed)[i % 4].
#include <cmath>
#include <limits>
#include <numbers>

#include "base/format.h"
#include "base/philox.h"
#include "ir/graph_access.h"
#include "ir/leaf.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// A node has the primitive streams 2 * k and 2 * k + 1, so that Box-Muller's two words are independent.
constexpr std::int64_t kMaxStream = UINT32_MAX;

/// The last two operands and the attr stream of an op that draws.
void need_generator(const InferContext& ctx, std::span<const TensorType> seed_and_step) {
  if (seed_and_step[0] != TensorType{DType::u32, {2}} || seed_and_step[1] != TensorType{DType::u32, {}}) {
    ctx.fail(ErrorCode::ShapeMismatch, "needs a seed u32[2] and a step u32[]");
  }
  const std::int64_t stream = ctx.attrs.get<std::int64_t>("stream");
  if (stream < 0 || stream > kMaxStream)
    ctx.fail(ErrorCode::OutOfRange, formatted("the stream {} does not fit 32 bits", stream));
}

TensorType infer(const InferContext& ctx, DType dtype) {
  need_generator(ctx, ctx.inputs);
  return {dtype, guarded(ctx, [&] { return Shape(ctx.attrs.get<Ints>("dims")); })};
}

std::uint32_t word_at(const HostTensor& seed, const HostTensor& step, std::int64_t stream, std::int64_t element) {
  const auto u32 = [](double v) { return static_cast<std::uint32_t>(v); };
  const auto block = static_cast<std::uint32_t>(element / 4);
  return philox4x32_10({block, u32(step.data[0]), static_cast<std::uint32_t>(stream), 0},
                       {u32(seed.data[0]), u32(seed.data[1])})[static_cast<std::size_t>(element % 4)];
}

std::uint32_t word_at(const EvalContext& ctx, std::int64_t stream, std::int64_t element) {
  return word_at(*ctx.inputs[0], *ctx.inputs[1], stream, element);
}

template <class F>
std::function<void(const EvalContext&)> eval_elements(F f) {
  return [f](const EvalContext& ctx) {
    const std::int64_t stream = ctx.node.attrs.get<std::int64_t>("stream");
    auto& y = ctx.results[0].data;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = f(ctx, stream, static_cast<std::int64_t>(i));
  };
}

std::vector<OpCase> cases(double rtol, double atol) {
  const auto one = [&](Shape shape, std::int64_t stream) {
    OpCase c{.inputs = {{DType::u32, {2}}, {DType::u32, {}}},
             .attrs = {{"dims", Ints(shape.begin(), shape.end())}, {"stream", stream}},
             .ranges = {},
             .values = {}};
    c.values = {{0xDEADBEEF, 0x12345678}, {41}};
    c.rtol = rtol;
    c.atol = atol;
    c.gradient = false;
    return c;
  };
  return {one({}, 0), one({0}, 0), one({1031}, 2), one({3, 5, 7}, 4), one({6}, 4294967294)};
}

OpDef record(std::string name, std::string doc, DType dtype) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Zero;
  op.infer = [dtype](const InferContext& ctx) -> std::vector<TensorType> { return {infer(ctx, dtype)}; };
  return op;
}

OpDef bits_op() {
  OpDef op =
      record("random_bits",
             "32 random bits per element: word i % 4 of Philox4x32-10 at counter (i / 4, step, stream, 0), key seed.",
             DType::u32);
  op.kind = OpKind::Random;
  op.lower = lower_pointwise;
  op.eval = eval_elements(
      [](const EvalContext& ctx, std::int64_t stream, std::int64_t i) -> double { return word_at(ctx, stream, i); });
  op.cases = [] { return cases(0, 0); };
  return op;
}

/// random_bits of the composite's stream plus `offset`, scaled to [0, 1) by its 24 high bits: exact in f32.
Expr uniform(const BuildContext& c, std::span<const Value> in, std::int64_t offset) {
  Attrs attrs = c.like.attrs;
  attrs.set("stream", attrs.get<std::int64_t>("stream") + offset);
  const Expr bits(c, c.add("random_bits", {in[0], in[1]}, std::move(attrs)));
  return cast_to(bits / bits.number(256), DType::f32) * 0x1p-24;
}

OpDef uniform_op() {
  OpDef op = record("random_uniform", "f32 in [0, 1): the 24 high bits of random_bits.", DType::f32);
  op.eval = eval_elements([](const EvalContext& ctx, std::int64_t stream, std::int64_t i) -> double {
    return uniform_from_bits(word_at(ctx, stream, i));
  });
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    return {uniform(c, in, 0).value};
  };
  op.cases = [] { return cases(0, 0); };
  return op;
}

OpDef normal_op() {
  OpDef op = record("random_normal", "Standard normal f32: Box-Muller on the words of streams stream and stream + 1.",
                    DType::f32);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    if (ctx.attrs.get<std::int64_t>("stream") >= kMaxStream)
      ctx.fail(ErrorCode::OutOfRange, "stream + 1 does not fit 32 bits");
    return {infer(ctx, DType::f32)};
  };
  op.eval = eval_elements([](const EvalContext& ctx, std::int64_t stream, std::int64_t i) {
    return normal_from_bits(word_at(ctx, stream, i), word_at(ctx, stream + 1, i));
  });
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Expr radius = apply("sqrt", {-2.0 * apply("log", {1.0 - uniform(c, in, 0)})});
    // cos(2 pi u) = sin(2 pi (|u - 1/2| - 1/4)): the turn stays exact in f32 and the angle within a quarter of one.
    const Expr turn = apply("abs", {uniform(c, in, 1) - 0.5}) - 0.25;
    return {(radius * apply("sin", {turn * (2 * std::numbers::pi)})).value};
  };
  op.cases = [] { return cases(5e-7, 1e-6); };
  return op;
}

// ---- dropout

/// Words below it are dropped: p of all.
double dropout_threshold(double p) { return std::floor(p * 0x1p32); }
double dropout_scale(double p) { return 1 / (1 - p); }

OpDef dropout_op() {
  OpDef op;
  op.name = "dropout";
  op.doc =
      "0 with probability attr p, else x / (1 - p); operands x, seed, step. Compiled for inference it is x, unless attr always.";
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 3;
  op.gradient = GradientKind::Rule;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const TensorType& x = ctx.inputs[0];
    if (!is_float(x.dtype))
      ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(x.dtype)));
    const double p = ctx.attrs.get<double>("p");
    if (!(p >= 0 && p < 1)) ctx.fail(ErrorCode::InvalidArgument, formatted("p must lie in [0, 1), not {}", p));
    ctx.attrs.get<bool>("always");
    need_generator(ctx, ctx.inputs.subspan(1));
    return {x};
  };
  op.eval = [](const EvalContext& ctx) {
    const double p = ctx.node.attrs.get<double>("p"), scale = dropout_scale(p), threshold = dropout_threshold(p);
    const std::int64_t stream = ctx.node.attrs.get<std::int64_t>("stream");
    const auto& x = ctx.inputs[0]->data;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint32_t word = word_at(*ctx.inputs[1], *ctx.inputs[2], stream, static_cast<std::int64_t>(i));
      ctx.results[0].data[i] = word >= threshold ? x[i] * scale : 0;
    }
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const double p = c.like.attrs.get<double>("p");
    if (p == 0) return {in[0]};
    const Expr x(c, in[0]);
    const Shape shape = x.shape();
    const Expr bits(c, c.add("random_bits", {in[1], in[2]},
                             {{"dims", Ints(shape.begin(), shape.end())}, {"stream", c.like.attrs.get<std::int64_t>("stream")}}));
    return {where(apply("greater_equal", {bits, bits.number(dropout_threshold(p))}), x * dropout_scale(p), 0).value};
  };
  // The same words again, not a stored mask.
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    return {c.add("dropout", {dy[0], in[1], in[2]}, c.like.attrs), Value(), Value()};
  };
  op.cases = [] {
    const auto one = [](Shape shape, double p) {
      OpCase c{.inputs = {f32_type(shape), {DType::u32, {2}}, {DType::u32, {}}},
               .attrs = {{"p", p}, {"stream", std::int64_t{6}}, {"always", true}},
               .ranges = {},
               .values = {}};
      c.values = {{}, {0xDEADBEEF, 0x12345678}, {3}};
      return c;
    };
    return std::vector<OpCase>{one({5, 7}, 0.25), one({}, 0.5), one({0, 3}, 0.1), one({1031}, 0.9), one({3, 5, 4}, 0)};
  };
  return op;
}

/// A state by its exact name, whatever scope is open: all random nodes of a graph share it.
Value shared_state(Graph& graph, std::string_view name, Shape shape, const Loc& loc) {
  if (const auto found = graph.leaf(name)) return graph.value({*found, 0});
  Node node;
  node.op = &find_op("state");
  node.name = name;
  node.line = loc;
  node.attrs = {{"dtype", DType::u32},
                {"dims", Ints(shape.begin(), shape.end())},
                {"init", std::string(init_kind_name(Init::Kind::Zeros))},
                {"init_a", 0.0},
                {"init_b", 0.0}};
  return graph.value({GraphAccess::append(graph, std::move(node)), 0});
}

/// An even number above the streams of all nodes.
std::int64_t next_stream(const Graph& graph) {
  std::int64_t stream = 0;
  for (const Node& node : graph.nodes()) {
    if (is_random(node)) stream = std::max(stream, node.attrs.get<std::int64_t>("stream") / 2 * 2 + 2);
  }
  return stream;
}

Value seed_state(Graph& graph, const Loc& loc) { return shared_state(graph, "aeshna.seed", {2}, loc); }
Value step_state(Graph& graph, const Loc& loc) { return shared_state(graph, "aeshna.step", {}, loc); }

Value build_random(std::string_view op, Graph& graph, const Shape& shape, const Loc& loc) {
  const std::int64_t stream = next_stream(graph);
  const Value operands[] = {seed_state(graph, loc), step_state(graph, loc)};
  return graph.add(op, operands, {{"dims", Ints(shape.begin(), shape.end())}, {"stream", stream}}, loc);
}

}  // namespace

std::vector<OpDef> random_ops() { return {bits_op(), uniform_op(), normal_op(), dropout_op()}; }

// ---- public functions

Value random_uniform(Graph& graph, Shape shape, Loc loc) { return build_random("random_uniform", graph, shape, loc); }
Value random_normal(Graph& graph, Shape shape, Loc loc) { return build_random("random_normal", graph, shape, loc); }

Value random_uniform(Graph& graph, Shape shape, double low, double high, Loc loc) {
  const auto is_f32 = [](double v) { return std::isfinite(static_cast<float>(v)); };
  if (!(is_f32(low) && is_f32(high) && is_f32(high - low) && low < high)) {
    op_error(
        ErrorCode::InvalidArgument, "random_uniform",
        formatted("low = {} and high = {}: low < high is needed, and that both and their difference are f32 numbers",
                  low, high),
        loc);
  }
  const auto at = [&](auto v) { return Operand(v, loc); };
  const Value scaled = add(at(mul(at(random_uniform(graph, shape, loc)), at(high - low))), at(low));
  // Rounding could reach `high`.
  const float below = std::nextafter(static_cast<float>(high), -std::numeric_limits<float>::infinity());
  return minimum(at(scaled), at(below));
}

Value random_normal(Graph& graph, Shape shape, double mean, double stddev, Loc loc) {
  if (!(std::isfinite(static_cast<float>(mean)) && std::isfinite(static_cast<float>(stddev)) && stddev >= 0))
    op_error(ErrorCode::InvalidArgument, "random_normal",
             formatted("mean = {} and stddev = {}: finite, and stddev >= 0", mean, stddev), loc);
  const auto at = [&](auto v) { return Operand(v, loc); };
  return add(at(mul(at(random_normal(graph, shape, loc)), at(stddev))), at(mean));
}

Value random_bernoulli(Graph& graph, Shape shape, double p, Loc loc) {
  if (!(p >= 0 && p <= 1))
    op_error(ErrorCode::InvalidArgument, "random_bernoulli", formatted("p must lie in [0, 1], not {}", p), loc);
  const auto at = [&](Value v) { return Operand(v, loc); };
  const Value bits = build_random("random_bits", graph, shape, loc);
  if (p == 1) return equal(at(bits), at(bits));  // 2^32 is no u32
  return less(at(bits), at(graph.constant(std::floor(p * 0x1p32), DType::u32, loc)));
}

Value random_int(Graph& graph, Shape shape, std::int64_t low, std::int64_t high, Loc loc) {
  if (low >= high || low < INT32_MIN || high > std::int64_t{INT32_MAX} + 1 || high - low > INT32_MAX) {
    op_error(ErrorCode::InvalidArgument, "random_int",
             formatted("[{}, {}) must hold 1 to 2^31 - 1 numbers that fit i32", low, high), loc);
  }
  const auto at = [&](Value v) { return Operand(v, loc); };
  const Value bits = build_random("random_bits", graph, shape, loc);
  const Value below = mod(at(bits), at(graph.constant(static_cast<double>(high - low), DType::u32, loc)));
  return add(at(cast(at(below), DType::i32)), at(graph.constant(static_cast<double>(low), DType::i32, loc)));
}

Value random_categorical(Operand logits) {
  const Value x = resolve_value("random_categorical", logits);
  const Loc& loc = logits.line();
  if (!is_float(x.dtype()) || x.shape().rank() < 1 || x.shape()[x.shape().rank() - 1] < 1) {
    op_error(
        ErrorCode::ShapeMismatch, "random_categorical",
        formatted("needs float logits with at least one class along their last axis, not {}", x.type().to_string()),
        loc);
  }
  const auto at = [&](Value v) { return Operand(v, loc); };
  const Value u = random_uniform(x.graph(), x.shape(), loc);
  const Value gumbel = neg(at(log(at(neg(at(log(at(u))))))));
  return argmax(at(add(at(x), at(gumbel))), -1);
}

Value dropout(Operand x, double p, bool always) {
  const Value v = resolve_value("dropout", x);
  const Loc& loc = x.line();
  if (!(p >= 0 && p < 1))
    op_error(ErrorCode::InvalidArgument, "dropout", formatted("p must lie in [0, 1), not {}", p), loc);
  Graph& graph = v.graph();
  const std::int64_t stream = next_stream(graph);
  const Value operands[] = {v, seed_state(graph, loc), step_state(graph, loc)};
  return graph.add("dropout", operands, {{"p", p}, {"stream", stream}, {"always", always}}, loc);
}

}  // namespace aeshna
