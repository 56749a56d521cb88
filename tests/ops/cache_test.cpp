// Key-value caches: errors, plans without copies, decoding on a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/philox.h"
#include "ir/interpreter.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CacheWrite, ErrorsNameTheOpAndTheLine) {
  Graph g;
  const Value cache = g.state("cache", {2, 3, 8, 4}), rows = g.input("rows", {2, 3, 5, 4});
  const Value position = g.input("position", {2}, DType::i32);
  EXPECT_ERROR(cache_write(cache, g.input("a", {2, 3, 5, 3}), position), ErrorCode::ShapeMismatch,
               "[cache_write] rows of shape [2, 3, 5, 3] for a cache of shape [2, 3, 8, 4]");
  EXPECT_ERROR(cache_write(cache, g.input("b", {2, 3, 9, 4}), position), ErrorCode::ShapeMismatch, "9 rows do not fit a cache of 8");
  EXPECT_ERROR(cache_write(cache, rows, g.input("c", {3}, DType::i32)), ErrorCode::ShapeMismatch, "one per sequence ([2])");
  EXPECT_ERROR(cache_write(cache, rows, g.input("d", {2})), ErrorCode::DTypeMismatch, "positions are i32");
  EXPECT_ERROR(cache_write(cache, rows, 4), ErrorCode::OutOfRange, "the position 4 must lie in [0, 3]");
  EXPECT_ERROR(cache_write(cache, rows, -1, true), ErrorCode::OutOfRange, "the position -1 must be >= 0");
  EXPECT_ERROR(cache_write(cache, rows, 0.5), ErrorCode::OutOfRange, "cache_test.cpp:");
  EXPECT_ERROR(kv_cache(g, "kv", {2, 3, 8}), ErrorCode::ShapeMismatch, "[kv_cache] a cache is [batch, kv_heads, capacity, head_dim]");
  EXPECT_ERROR(ring_positions(position, 0), ErrorCode::InvalidArgument, "[ring_positions]");
}

TEST(CacheWrite, ARingKeepsTheLastRows) {
  Graph g;
  const Value cache = g.input("cache", {1, 1, 3, 1}), rows = g.input("rows", {1, 1, 5, 1});
  const Value position = g.input("position", {1}, DType::i32);
  const TensorMap data = {{"cache", tensor({1, 1, 3, 1}, {-1, -2, -3})},
                          {"rows", tensor({1, 1, 5, 1}, {1, 2, 3, 4, 5})},
                          {"position", tensor({1}, {2}, DType::i32)}};
  // Positions 2..6 in slots modulo 3: rows 3, 4, 5 are positions 4, 5, 6.
  EXPECT_THAT(value_of(cache_write(cache, rows, position, true), data).data, ElementsAre(5, 3, 4));
  EXPECT_THAT(value_of(ring_positions(add(position, 5), 3), data).data, ElementsAre(6, 4, 5));
  EXPECT_THAT(value_of(ring_positions(position, 4), data).data, ElementsAre(0, 1, -2, -1));
}

/// `layers` layers that write their keys and values and attend to the caches.
struct Decoder {
  static constexpr std::int64_t kBatch = 2, kHeads = 2, kCapacity = 64, kDim = 4, kRows = 3;
  Graph g;
  Value x = g.input("x", {kBatch, kRows, kHeads * kDim}), position = g.input("position", {kBatch}, DType::i32);

  explicit Decoder(int layers, bool ring = false) {
    Value h = x;
    for (int i = 0; i < layers; ++i) {
      const Scope scope(g, "layer" + std::to_string(i));
      const KvCache cache = kv_cache(g, "cache", {kBatch, kHeads, kCapacity, kDim}, ring);
      const auto heads = [&](std::string_view name) {
        const Value y = linear(h, g.parameter(name, {kHeads * kDim, kHeads * kDim}));
        return permute(reshape(y, {kBatch, kRows, kHeads, kDim}), {0, 2, 1, 3});
      };
      const Value q = heads("q");
      const KvCache now = cache_append(cache, heads("k"), heads("v"), position);
      const Value scores = softmax(matmul(q, now.keys, false, true));
      h = h + reshape(permute(matmul(scores, now.values), {0, 2, 1, 3}), {kBatch, kRows, kHeads * kDim});
    }
    g.output("y", h);
  }
};

TEST(CachePlan, CachesAreWrittenInPlaceFromViews) {
  const Decoder decoder(2);
  const Caps caps;
  const Plan plan = compile_plan(decoder.g, {}, caps);
  EXPECT_THAT(check_plan(plan, caps), IsEmpty());
  int writes = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::Copy) {  // the status word of the position check, two words
      EXPECT_LE(step.operands[0].bytes, 8) << "a copy of " << plan.placements[step.operands[0].placement].name;
    }
    if (step.kind != PlanStep::Kind::Dispatch || step.spec.family != "cache") continue;
    ++writes;
    const TemplateCall& call = step.spec.fused->call;
    const aeshna::Placement& written = plan.placements[step.operands[call.result_operands[0]].placement];
    EXPECT_EQ(written.home, Home::State);
    EXPECT_THAT(written.name, testing::StartsWith("layer"));
    // The new rows are read where the product left them: [B, S, KV, D].
    const std::int64_t width = Decoder::kHeads * Decoder::kDim;
    EXPECT_THAT(call.views[1].strides, ElementsAre(Decoder::kRows * width, Decoder::kDim, width, 1));
  }
  EXPECT_EQ(writes, 4);
  for (const std::string& note : plan.notes) EXPECT_THAT(note, testing::Not(testing::HasSubstr("cache/")));
}

TEST(CachePlan, WhoNeedsTheOldCacheLaterMakesACopyNecessary) {
  Graph g;
  const Value cache = g.state("cache", {1, 1, 8, 4}), rows = g.input("rows", {1, 1, 2, 4});
  const Value next = cache_write(cache, rows, g.input("position", {}, DType::i32));
  g.assign(cache, next);
  g.output("moved", sum(relu(next) * 2.0) * cache);  // needs the new and the old contents
  const Caps caps;
  const Plan plan = compile_plan(g, {}, caps);
  EXPECT_THAT(check_plan(plan, caps), IsEmpty());
  EXPECT_GT(std::ranges::count(plan.steps, PlanStep::Kind::Copy, &PlanStep::kind), 0);
}

TEST(CachePlan, AWriteWithoutTheOldContentsIsFound) {
  const Decoder decoder(1);
  const Caps caps;
  Plan plan = compile_plan(decoder.g, {}, caps);
  for (PlanStep& step : plan.steps) {
    if (step.spec.family != "cache") continue;
    // Let it write over something else of the same size.
    for (std::uint32_t i = 0; i < plan.placements.size(); ++i) {
      PlanOperand& result = step.operands[step.spec.fused->call.result_operands[0]];
      if (plan.placements[i].home != Home::State || plan.placements[i].bytes != result.bytes || i == result.placement) continue;
      result.placement = i;
      EXPECT_THAT(check_plan(plan, caps), testing::Contains(testing::HasSubstr("does not find the old contents")));
      return;
    }
  }
  FAIL() << "no cache was written";
}

TEST(CacheDevice, DecodingSeesTheRowsOfEarlierSteps) {
  AESHNA_NEED_DEVICE();
  for (const bool ring : {false, true}) {
    const Decoder decoder(2, ring);
    const Weights weights(decoder.g, {.seed = 3, .device = *test_device().device});
    Session session = compile(decoder.g, weights);
    TensorMap data;
    for (const std::string& name : weights.names()) {
      const Literal value = weights.get(name);
      data.insert_or_assign(name, tensor(value.type().shape, value.to_doubles(), value.type().dtype));
    }
    PhiloxStream stream(1, 2);
    for (int step = 0; step < 4; ++step) {
      HostTensor x(decoder.x.type()), position(decoder.position.type());
      for (double& v : x.data) v = static_cast<float>(stream.next_normal());
      // The second sequence is ahead; a ring is left at its end.
      position.data = {3.0 * step, ring ? 61.0 + 3 * step : 7.0 + 3 * step};
      data.insert_or_assign("x", x);
      data.insert_or_assign("position", position);
      session.set("x", Literal::from_doubles(x.type, x.data));
      session.set("position", Literal::from_doubles(position.type, position.data));
      session.step();
      session.wait();
      const InterpreterResult want = interpret(decoder.g, data);
      const std::vector<double> got = session.read_literal("y").to_doubles();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.outputs.at("y").data[i], 1e-5) << step << ", " << i;
      for (const auto& [name, value] : want.assigned) data.insert_or_assign(name, value);
    }
  }
}

TEST(CacheDevice, ARingServesAWindowAsTheWholeCacheDoes) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kWindow = 4, kRows = 3;
  Graph g;
  const Value q = g.input("q", {2, 4, kRows, 8}), k = g.input("k", {2, 2, kRows, 8}), v = g.input("v", {2, 2, kRows, 8});
  const Value position = g.input("position", {2}, DType::i32);
  const KvCache whole = cache_append(kv_cache(g, "whole", {2, 2, 32, 8}), k, v, position);
  const KvCache ring = cache_append(kv_cache(g, "ring", {2, 2, kWindow + kRows - 1, 8}, true), k, v, position);
  AttentionOptions options{.causal = true, .window = kWindow, .position = position};
  g.output("whole", attention(q, whole.keys, whole.values, options));
  options.ring = true;
  g.output("ring", attention(q, ring.keys, ring.values, options));
  Session session = compile(g, Weights(g, {.device = *test_device().device}));
  PhiloxStream stream(4, 4);
  for (int step = 0; step < 6; ++step) {
    for (const char* name : {"q", "k", "v"}) {
      std::vector<float> values(static_cast<std::size_t>(g.find(name).shape().elements()));
      for (float& x : values) x = static_cast<float>(stream.next_normal());
      session.set(name, values);
    }
    session.set("position", std::vector<std::int32_t>{3 * step, 3 * step + 10});  // the second sequence begins at 10
    session.step();
    session.wait();
    const std::vector<float> want = session.read("whole"), got = session.read("ring");
    const std::size_t first = step == 0 ? want.size() / 2 : want.size();  // what the second sees before its start is undefined
    for (std::size_t i = 0; i < first; ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << step << ", " << i;
  }
}

TEST(CacheDevice, APositionOutsideIsAnErrorAndNothingIsWrittenOutside) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value cache = g.state("cache", {2, 1, 4, 4}), rows = g.input("rows", {2, 1, 2, 4});
  const Value next = cache_write(cache, rows, g.input("position", {2}, DType::i32));
  g.assign(cache, next);
  g.output("next", next);
  const Weights weights(g, {.device = *test_device().device});
  Session session = compile(g, weights);
  session.set("rows", std::vector<float>(16, 1.0f));
  session.set("position", std::vector<std::int32_t>{3, 1});
  session.step();
  EXPECT_ERROR(session.wait(), ErrorCode::OutOfRange, "a position of cache_write (it must lie in [0, 2]) (");
  const std::vector<double> got = weights.get("cache").to_doubles();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool written = (i >= 12 && i < 16) || (i >= 20 && i < 28);  // row 3 of the first, 1 and 2 of the second
    EXPECT_EQ(got[i], written ? 1 : 0) << i;
  }
  session.set("position", std::vector<std::int32_t>{0, -2147483647 - 1});
  session.step();
  EXPECT_ERROR(session.wait(), ErrorCode::OutOfRange, "cache_test.cpp:");
  session.set("position", std::vector<std::int32_t>{2, 2});
  session.step();
  session.wait();
}

}  // namespace
}  // namespace aeshna::test
