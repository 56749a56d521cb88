// Attention as a user builds it: errors, agreement with the same thing in plain ops, rows without keys, plans.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/format.h"
#include "base/philox.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

HostTensor drawn(Shape shape, std::uint64_t stream, double size = 1) {
  HostTensor t(TensorType{DType::f32, shape});
  PhiloxStream random(17, stream);
  for (double& v : t.data) v = round_to(DType::f32, size * (2 * random.next_uniform() - 1));
  return t;
}

struct Qkv {
  Graph g;
  Value q, k, v;
  TensorMap values;
  Qkv(Shape query, Shape key) : q(g.input("q", query)), k(g.input("k", key)), v(g.input("v", key)) {
    values = {{"q", drawn(query, 1, 2)}, {"k", drawn(key, 2, 2)}, {"v", drawn(key, 3)}};
  }
};

/// The same with a matrix of scores: softmax(q k^T / sqrt(D) + add) v.
Value naive(Value q, Value k, Value v, std::optional<Value> add = {}) {
  const Shape &qs = q.shape(), &ks = k.shape();
  const std::int64_t group = qs[1] / ks[1];
  const auto repeated = [&](Value x) {
    return reshape(expand(reshape(x, {ks[0], ks[1], 1, ks[2], ks[3]}), {ks[0], ks[1], group, ks[2], ks[3]}), {ks[0], qs[1], ks[2], ks[3]});
  };
  Value scores = matmul(q, repeated(k), false, true) * (1 / std::sqrt(static_cast<double>(qs[3])));
  if (add) scores = scores + *add;
  return matmul(softmax(scores), repeated(v));
}

/// -1e9 where a query does not see a key.
Value causal_mask(Graph& g, std::int64_t queries, std::int64_t keys, std::int64_t offset, std::int64_t window = 0) {
  const Value at = iota(g, {queries, keys}, 0) + static_cast<double>(offset), key = iota(g, {queries, keys}, 1);
  Value seen = less_equal(key, at);
  if (window > 0) seen = logical_and(seen, greater(key, at - static_cast<double>(window)));
  return select(seen, g.constant(0.0), -1e9);
}

void expect_equal(const HostTensor& got, const HostTensor& want, double tolerance) {
  ASSERT_EQ(got.type, want.type);
  for (std::size_t i = 0; i < want.data.size(); ++i) ASSERT_NEAR(got.data[i], want.data[i], tolerance) << "element " << i;
}

/// Value and gradients of both, in double.
void expect_same(Qkv& c, Value got, Value want, const std::vector<Value>& wrt) {
  ASSERT_EQ(got.type(), want.type());
  const Value upstream = c.g.input("upstream", got.shape());
  c.values.emplace("upstream", drawn(got.shape(), 9));
  const auto got_gradients = gradients(sum(got * upstream), wrt), want_gradients = gradients(sum(want * upstream), wrt);
  const InterpreterResult run = interpret(c.g, c.values, Rounding::Exact, true);
  const auto at = [&](Value v) { return run.values[v.id().node][v.id().result]; };
  expect_equal(at(got), at(want), 1e-7);  // the scale is an f32 number in plain ops
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    SCOPED_TRACE(formatted("gradient {}", i));
    expect_equal(at(got_gradients[i]), at(want_gradients[i]), 1e-7);
  }
}

TEST(Attention, EqualsPlainOps) {
  Qkv c({2, 4, 5, 16}, {2, 2, 7, 16});  // scale 1/4, exact in f32
  expect_same(c, attention(c.q, c.k, c.v), naive(c.q, c.k, c.v), {c.q, c.k, c.v});
}

TEST(Attention, CausalEqualsAMask) {
  Qkv c({1, 2, 6, 4}, {1, 1, 6, 4});
  expect_same(c, attention(c.q, c.k, c.v, {.causal = true}), naive(c.q, c.k, c.v, causal_mask(c.g, 6, 6, 0)), {c.q, c.k, c.v});
}

TEST(Attention, WindowAndOffsetEqualAMask) {
  Qkv c({1, 2, 4, 4}, {1, 2, 9, 4});
  expect_same(c, attention(c.q, c.k, c.v, {.causal = true, .window = 3, .query_offset = 5}),
              naive(c.q, c.k, c.v, causal_mask(c.g, 4, 9, 5, 3)), {c.q, c.k, c.v});
}

TEST(Attention, MasksBroadcastAndHaveGradients) {
  Qkv c({2, 4, 3, 4}, {2, 2, 5, 4});
  const Value bias = c.g.input("bias", {4, 1, 5});
  c.values.emplace("bias", drawn({4, 1, 5}, 5, 2));
  expect_same(c, attention(c.q, c.k, c.v, {.mask = bias}), naive(c.q, c.k, c.v, bias), {c.q, c.k, c.v, bias});
}

TEST(Attention, BooleanMasksSayWhatIsSeen) {
  Qkv c({1, 1, 4, 4}, {1, 1, 4, 4});
  const Value seen = greater_equal(iota(c.g, {4, 4}, 0), iota(c.g, {4, 4}, 1));
  expect_same(c, attention(c.q, c.k, c.v, {.mask = seen}), attention(c.q, c.k, c.v, {.causal = true}), {c.q, c.k, c.v});
}

TEST(Attention, ScaleAndLse) {
  Qkv c({1, 2, 3, 4}, {1, 2, 5, 4});
  const auto [out, lse] = attention_with_lse(c.q, c.k, c.v, {.scale = 0.375});
  const Value scores = matmul(c.q, c.k, false, true) * 0.375;
  expect_same(c, lse, logsumexp(scores, {-1}), {c.q, c.k});
}

TEST(Attention, GradientsOfGradients) {
  Qkv c({1, 2, 3, 4}, {1, 1, 3, 4});
  const auto second = [&](Value out) {
    const auto first = gradients(sum(out * out), {c.q, c.k, c.v});
    return sum(first[0] * first[0]) + sum(first[1]) + sum(first[2] * first[2]);
  };
  const Value got = second(attention(c.q, c.k, c.v)), want = second(naive(c.q, c.k, c.v));
  expect_same(c, got, want, {c.q, c.k, c.v});
}

TEST(Attention, ErrorsNameOpAttributeAndLine) {
  Graph g;
  const auto x = [&](Shape shape) { return g.input(formatted("x{}", g.nodes().size()), shape); };
  const Value q = x({1, 6, 5, 8}), kv = x({1, 2, 5, 8}), longer = x({1, 2, 9, 8});
  const Value position = g.input("position", {1}, DType::i32);
  const auto odd = x({1, 4, 5, 8}), big = x({1, 2, 5, 257});
  EXPECT_ERROR(attention(q, odd, odd), ErrorCode::ShapeMismatch, "[attention] the 6 heads of q are no multiple of the 4 heads of k and v");
  EXPECT_ERROR(attention(q, odd, odd), ErrorCode::ShapeMismatch, "attention_test.cpp:");
  EXPECT_ERROR(attention(big, big, big), ErrorCode::Unsupported, "head_dim must be 1 to 256, not 257");
  EXPECT_ERROR(attention(q, kv, longer), ErrorCode::ShapeMismatch, "v must be [1, 2, 5, 8], not [1, 2, 9, 8]");
  EXPECT_ERROR(attention(q, longer, longer, {.causal = true}), ErrorCode::InvalidArgument,
               "attr causal with 5 queries and 9 keys is ambiguous: set query_offset (0: the first query sees the first key; 4: the last");
  EXPECT_ERROR(attention(q, kv, kv, {.window = 3}), ErrorCode::InvalidArgument, "attr window needs attr causal");
  EXPECT_ERROR(attention(q, kv, kv, {.causal = true, .window = -1}), ErrorCode::InvalidArgument, "attr window is -1");
  EXPECT_ERROR(attention(q, kv, kv, {.position = position}), ErrorCode::InvalidArgument, "attr position needs attr causal");
  EXPECT_ERROR(attention(q, kv, kv, {.causal = true, .query_offset = 2, .position = position}), ErrorCode::InvalidArgument,
               "both attr query_offset and operand position");
  EXPECT_ERROR(attention(q, kv, kv, {.mask = x({5, 4})}), ErrorCode::ShapeMismatch, "mask [1, 1, 5, 4] does not broadcast to the scores [1, 6, 5, 5]");
  EXPECT_ERROR(attention(q, kv, kv, {.causal = true, .window = 4, .ring = true}), ErrorCode::InvalidArgument,
               "attr ring needs window + queries - 1 = 8 slots at least; there are 5");
  EXPECT_ERROR(attention(q, kv, kv, {.scale = std::numeric_limits<double>::infinity()}), ErrorCode::InvalidArgument, "attr scale is inf");
  Graph other;
  EXPECT_ERROR(attention(q, kv, kv, {.mask = other.input("m", {5, 5})}), ErrorCode::InvalidArgument, "different graphs");
}

TEST(Attention, RowsWithoutKeysGiveZeroAndNoGradient) {
  Qkv c({1, 1, 3, 4}, {1, 1, 3, 4});
  const Value mask = c.g.constant(Literal::from_doubles({DType::f32, {3, 1}}, std::vector<double>{0, -HUGE_VAL, 0}));
  const auto [out, lse] = attention_with_lse(c.q, c.k, c.v, {.mask = mask});
  const auto grad = gradients(sum(out), {c.q, c.k, c.v});
  const auto row = value_of(out, c.values).data;
  for (std::size_t d = 0; d < 4; ++d) EXPECT_EQ(row[4 + d], 0);
  EXPECT_EQ(value_of(lse, c.values).data[1], -HUGE_VAL);
  for (const Value& gradient : grad) {
    for (const double v : value_of(gradient, c.values).data) EXPECT_TRUE(std::isfinite(v));
  }
  EXPECT_EQ(value_of(grad[0], c.values).data[5], 0);
}

// ---- on a device

Literal literal(const HostTensor& t) { return Literal::from_doubles(t.type, t.data); }

TEST(AttentionDevice, RowsWithoutKeysGiveZeroAndNoGradient) {
  AESHNA_NEED_DEVICE();
  for (const bool tiny : {false, true}) {
    Qkv c({1, 2, 9, 8}, {1, 1, 30, 8});
    HostTensor mask(TensorType{DType::f32, {9, 30}});
    for (std::size_t j = 0; j < 30; ++j) {
      mask.data[2 * 30 + j] = -HUGE_VAL;                                        // row 2
      mask.data[7 * 30 + j] = -3.4028234663852886e38;                           // row 7
      for (std::size_t i = 0; i < 9; ++i) mask.data[i * 30 + 4] = -HUGE_VAL;  // key 4
    }
    const Value m = c.g.input("mask", {9, 30});
    c.values.emplace("mask", mask);
    const auto [out, lse] = attention_with_lse(c.q, c.k, c.v, {.mask = m});
    const auto grad = gradients(sum(out * out), {c.q, c.k, c.v});
    const std::pair<const char*, Value> outputs[] = {{"out", out}, {"lse", lse}, {"dq", grad[0]}, {"dk", grad[1]}, {"dv", grad[2]}};
    for (const auto& [name, value] : outputs) c.g.output(name, value);
    Session session = compile(c.g, Weights(*test_device().device), {.tiny_tiles = tiny});
    for (const auto& [name, value] : c.values) session.set(name, literal(value));
    session.step();
    session.wait();
    const InterpreterResult want = interpret(c.g, c.values);
    for (const auto& [name, value] : outputs) {
      const auto got = session.read_literal(name).to_doubles();
      const auto& expected = want.outputs.at(name).data;
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isinf(expected[i])) {
          EXPECT_EQ(got[i], expected[i]) << name << " " << i;
        } else {
          EXPECT_NEAR(got[i], expected[i], 1e-5) << name << " " << i;
        }
      }
    }
  }
}

/// Decoding one position at a time with one plan gives what all positions at once give.
TEST(AttentionDevice, OnePlanDecodesAtEveryPosition) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kLength = 21, kHeads = 4, kKv = 2, kDim = 8;
  Qkv all({1, kHeads, kLength, kDim}, {1, kKv, kLength, kDim});
  const HostTensor want = value_of(attention(all.q, all.k, all.v, {.causal = true}), all.values);

  Graph g;
  const Value q = g.input("q", {1, kHeads, 1, kDim}), k = g.input("k", {1, kKv, kLength, kDim}), v = g.input("v", {1, kKv, kLength, kDim});
  const Value position = g.input("position", {1}, DType::i32);
  g.output("out", attention(q, k, v, {.causal = true, .position = position}));
  Session session = compile(g, Weights(*test_device().device), {.tiny_tiles = true});
  session.set("k", literal(all.values.at("k")));
  session.set("v", literal(all.values.at("v")));
  for (std::int32_t p = 0; p < kLength; ++p) {
    std::vector<float> row;
    const auto element = [&](std::int64_t h, std::int64_t d) { return static_cast<std::size_t>((h * kLength + p) * kDim + d); };
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t d = 0; d < kDim; ++d) row.push_back(static_cast<float>(all.values.at("q").data[element(h, d)]));
    }
    session.set("q", row);
    session.set("position", std::vector<std::int32_t>{p});
    session.step();
    const std::vector<float> got = session.read("out");
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t d = 0; d < kDim; ++d)
        EXPECT_NEAR(got[static_cast<std::size_t>(h * kDim + d)], want.data[element(h, d)], 2e-6) << "position " << p;
    }
  }
}

TEST(AttentionDevice, HalfOperandsAreComputedInF32) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value q = g.input("q", {1, 2, 6, 8}, DType::f16), k = g.input("k", {1, 1, 6, 8}, DType::f16);
  const auto [out, lse] = attention_with_lse(rope(q), rope(k), k, {.causal = true});
  EXPECT_EQ(out.dtype(), DType::f16);
  EXPECT_EQ(lse.dtype(), DType::f32);
  const auto grad = gradients(sum(cast(out, DType::f32)), {q, k});
  const std::pair<const char*, Value> outputs[] = {{"out", out}, {"dq", grad[0]}, {"dk", grad[1]}};
  for (const auto& [name, value] : outputs) g.output(name, value);
  TensorMap values;
  for (const Value& leaf : {q, k}) {
    HostTensor t = drawn(leaf.shape(), 4);
    t.type.dtype = DType::f16;
    for (double& v : t.data) v = round_to(DType::f16, v);
    values.emplace(leaf.node().name, t);
  }
  Session session = compile(g, Weights(*test_device().device), {});
  for (const auto& [name, value] : values) session.set(name, literal(value));
  session.step();
  session.wait();
  const InterpreterResult want = interpret(g, values, Rounding::Storage);
  for (const auto& [name, value] : outputs) {
    const auto got = session.read_literal(name).to_doubles();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want.outputs.at(name).data[i], 4e-3) << name << " " << i;
  }
}

/// x -> projections -> attention -> merged heads -> projection, as in a transformer.
struct Block {
  Graph g;
  Value loss;
  explicit Block(std::int64_t length = 10) {
    const Value x = g.input("x", {2, length, 32});
    const auto heads = [&](const char* name, std::int64_t count) {
      return permute(reshape(linear(x, g.parameter(name, {count * 8, 32})), {2, length, count, 8}), {0, 2, 1, 3});
    };
    const Value y = attention(heads("wq", 4), heads("wk", 2), heads("wv", 2), {.causal = true});
    const Value merged = reshape(permute(y, {0, 2, 1, 3}), {2, length, 32});
    loss = sum(linear(merged, g.parameter("wo", {32, 32})) * 0.5);
    g.output("loss", loss);
  }
};

/// What a plan launches, by anchor, and its copies.
std::map<std::string, int> launches(const Plan& plan) {
  std::map<std::string, int> count;
  for (const PlanStep& step : plan.steps) {
    ++count[step.kind == PlanStep::Kind::Copy ? "copy" : step.spec.fused->anchor->name];
  }
  return count;
}

Caps roomy() {
  Caps caps;
  caps.max_storage_buffers = 16;
  return caps;
}

using Launches = std::map<std::string, int>;

TEST(AttentionPlan, SplittingAndMergingHeadsCostsNoCopies) {
  const Block block;
  const Plan plan = compile_plan(block.g, {}, Caps{});
  EXPECT_EQ(launches(plan), (Launches{{"matmul", 4}, {"attention", 1}, {"sum", 1}})) << print_plan(plan);
}

/// One projection for q, k and v: three views of one operand.
TEST(AttentionDevice, OneProjectionForAll) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {2, 7, 16}), w = g.input("w", {3 * 24, 16});
  const Value qkv = reshape(linear(x, w), {2, 7, 3, 3, 8});
  const auto part = [&](std::int64_t i) { return permute(reshape(slice(qkv, {2}, {i}, {i + 1}), {2, 7, 3, 8}), {0, 2, 1, 3}); };
  const Value y = attention(part(0), part(1), part(2), {.causal = true});
  g.output("y", reshape(permute(y, {0, 2, 1, 3}), {2, 7, 24}));
  // The output is a tensor of its own: one copy.
  EXPECT_EQ(launches(compile_plan(g, {}, Caps{})), (Launches{{"matmul", 1}, {"attention", 1}}));
  const TensorMap values = {{"x", drawn({2, 7, 16}, 1)}, {"w", drawn({72, 16}, 2)}};
  Session session = compile(g, Weights(*test_device().device), {});
  for (const auto& [name, value] : values) session.set(name, literal(value));
  session.step();
  const auto got = session.read("y");
  const auto want = interpret(g, values).outputs.at("y").data;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 5e-6) << i;
}

TEST(AttentionPlan, NorInTheGradient) {
  const Block block;
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  const Plan plan = compile_plan(block.g, options, roomy());
  const Launches got = launches(plan);
  // Four products forward; backward one for each weight, and one for the attention's gradient. x has none.
  EXPECT_EQ(got.at("matmul"), 9) << print_plan(plan);
  EXPECT_EQ(got.at("attention_dq"), 1);
  EXPECT_EQ(got.at("attention_dkv"), 1);
  for (const char* movement : {"permute", "reshape", "expand"}) EXPECT_FALSE(got.contains(movement)) << print_plan(plan);
}

/// Memory grows with the sequence, not with its square.
TEST(AttentionPlan, HoldsNoScores) {
  const auto bytes = [](std::int64_t length) {
    Graph g;
    const Value q = g.parameter("q", {1, 1, length, 16}), k = g.parameter("k", {1, 1, length, 16});
    g.output("loss", sum(attention(q, k, k, {.causal = true})));
    PipelineOptions options;
    options.training = true;
    options.loss = "loss";
    const Plan plan = compile_plan(g, options, roomy());
    return plan.memory.logical_bytes + plan.memory.workspace_bytes;
  };
  const std::uint64_t one = bytes(2048), four = bytes(8192);
  EXPECT_LT(four, 5 * one);
  EXPECT_LT(four, 8192ull * 8192);
}

}  // namespace
}  // namespace aeshna::test
