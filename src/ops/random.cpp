// Random numbers: Philox4x32-10 as a function of (seed, step, stream, element), the same on CPU and GPU.
// Operands: seed u32[2] (state aeshna.seed) and step u32 (state aeshna.step); attrs dims and stream.
// Word of element i: philox(counter = {low 32 bits of i / 4, step, stream, 0}, key = seed)[i % 4].
#include <cmath>
#include <format>
#include <numbers>

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

TensorType infer(const InferContext& ctx, DType dtype) {
  if (ctx.inputs[0] != TensorType{DType::u32, {2}} || ctx.inputs[1] != TensorType{DType::u32, {}}) {
    ctx.fail(ErrorCode::ShapeMismatch, "needs a seed u32[2] and a step u32[]");
  }
  const std::int64_t stream = ctx.attrs.get<std::int64_t>("stream");
  if (stream < 0 || stream > kMaxStream)
    ctx.fail(ErrorCode::OutOfRange, std::format("the stream {} does not fit 32 bits", stream));
  return {dtype, guarded(ctx, [&] { return Shape(ctx.attrs.get<Ints>("dims")); })};
}

std::uint32_t word_at(const EvalContext& ctx, std::int64_t stream, std::int64_t element) {
  const auto u32 = [](double v) { return static_cast<std::uint32_t>(v); };
  const auto& seed = ctx.inputs[0]->data;
  const auto block = static_cast<std::uint32_t>(element / 4);
  return philox4x32_10({block, u32(ctx.inputs[1]->data[0]), static_cast<std::uint32_t>(stream), 0},
                       {u32(seed[0]), u32(seed[1])})[static_cast<std::size_t>(element % 4)];
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

Value build_random(std::string_view op, Graph& graph, const Shape& shape, const Loc& loc) {
  std::int64_t stream = 0;
  for (const Node& node : graph.nodes()) {
    if (const AttrValue* used = node.attrs.find("stream"); used != nullptr && node.op->name.starts_with("random_")) {
      stream = std::max(stream, std::get<std::int64_t>(*used) / 2 * 2 + 2);
    }
  }
  const Value operands[] = {shared_state(graph, "aeshna.seed", {2}, loc), shared_state(graph, "aeshna.step", {}, loc)};
  return graph.add(op, operands, {{"dims", Ints(shape.begin(), shape.end())}, {"stream", stream}}, loc);
}

}  // namespace

std::vector<OpDef> random_ops() { return {bits_op(), uniform_op(), normal_op()}; }

Value random_uniform(Graph& graph, Shape shape, Loc loc) { return build_random("random_uniform", graph, shape, loc); }
Value random_normal(Graph& graph, Shape shape, Loc loc) { return build_random("random_normal", graph, shape, loc); }

}  // namespace aeshna
