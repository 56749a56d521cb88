// Products of few rows: what runs side by side, and that it computes the same.
#include <gtest/gtest.h>

#include <set>

#include "aeshna/ops.h"
#include "aeshna/quantize.h"
#include "aeshna/session.h"
#include "base/quant.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "support/graph_values.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

constexpr std::int64_t kWidth = 64, kHidden = 96;

/// A gated feed-forward part behind a norm, and with its own reader of the norm: [rows, kWidth] -> the same.
void feed_forward(Graph& g, std::int64_t rows, std::vector<std::int64_t> leading = {}) {
  leading.insert(leading.end(), {rows, kWidth});
  const Value x = tanh(g.input("x", Shape(leading)));
  const auto weight = [&](const char* name, std::int64_t out, std::int64_t in) {
    return g.parameter(name, {out, in}, {.trainable = false});
  };
  const Value n = rms_norm(x, g.parameter("norm", {kWidth}, {.trainable = false}));
  const Value gate = linear(n, weight("gate", kHidden, kWidth)), up = linear(n, weight("up", kHidden, kWidth));
  const Value y = x + linear(silu(gate) * up, weight("down", kWidth, kHidden));
  g.output("y", linear(rms_norm(y), weight("last", 32, kWidth)));
}

Caps large_device() {
  Caps caps;
  caps.max_storage_buffers = 64, caps.max_invocations = 1024, caps.max_local[0] = 1024, caps.shared_bytes = 49152,
  caps.compute_units = 100;
  return caps;
}

std::size_t groups(const Graph& g) {
  const Caps caps = large_device();
  const Plan plan = compile_plan(g, {}, caps);
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  std::set<std::uint32_t> found;
  for (const PlanStep& step : plan.steps) found.insert(step.group);
  return found.size();
}

std::shared_ptr<Graph> expanded(const Graph& g) { return rewrite(*expand_composites(g), false); }

TEST(LateScales, FewRowsAreScaledBehindTheirProducts) {
  for (const std::vector<std::int64_t>& leading : {std::vector<std::int64_t>{}, {1}}) {
    Graph g;
    feed_forward(g, 3, leading);
    const auto before = expanded(g);
    const auto after = late_scales(before);
    EXPECT_EQ(test::count_ops(*after, "matmul"), test::count_ops(*before, "matmul"));
    int behind = 0;
    for (const Node& node : after->nodes()) {
      if (node.op->name != "mul") continue;
      for (const ValueId input : node.inputs) behind += after->node(input.node).op->name == "matmul";
    }
    EXPECT_EQ(behind, 3) << "gate, up and last; nothing scales the rows of down";
    const TensorMap leaves = test::random_leaves(g, 3);
    EXPECT_LT(test::difference(interpret(*after, leaves).outputs.at("y"), interpret(g, leaves).outputs.at("y")), 1e-13);
  }
}

TEST(LateScales, OtherProductsStay) {
  const auto unchanged = [](const Graph& g) {
    const auto before = eliminate_dead(*expanded(g));
    EXPECT_EQ(late_scales(before)->print(), before->print());
  };
  Graph many;
  feed_forward(many, 9);
  unchanged(many);
  Graph other;
  const Value x = other.input("x", {2, 8}), w = other.input("w", {8, 8});
  other.output("a", linear(x * other.input("s", {2, 1}), w));                        // no statistic
  other.output("b", linear(x * sum(x, {0}, true), w));                               // not one number for each row
  other.output("c", matmul(x * sum(x, {1}, true), other.input("v", {2, 8}), true));  // rows are what is contracted
  other.output("d", linear(x + sum(x, {1}, true), w));
  unchanged(other);
}

/// The statistic beside gate and up, what joins these in the loader of down, and so on: one group for each product and its norm.
TEST(LateScales, SavesBarriers) {
  Graph few, many;
  feed_forward(few, 3), feed_forward(many, 16);
  // tanh; norm's statistic, gate and up; down; statistic and last; the scale of the last, which is an output.
  EXPECT_EQ(groups(few), 5u);
  EXPECT_GE(groups(many), 6u);
}

TEST(LateScalesDevice, EqualsTheInterpreter) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t rows : {1, 2, 8, 9}) {
    for (const bool tiny : {false, true}) {
      Graph g;
      feed_forward(g, rows);
      const TensorMap leaves = test::random_leaves(g, static_cast<std::uint64_t>(rows), -1, 1);
      Weights weights(g, {.device = *test::test_device().device});
      for (const auto& [name, value] : leaves)
        if (name != "x") weights.set(name, Literal::from_doubles(value.type, value.data));
      Session s = compile(g, weights, {.tiny_tiles = tiny});
      s.set("x", Literal::from_doubles(leaves.at("x").type, leaves.at("x").data));
      s.step();
      const Literal y = s.read_literal("y");
      EXPECT_LT(test::difference(test::tensor(y.type(), y.to_doubles()), interpret(g, leaves).outputs.at("y")), 2e-5)
          << rows << ' ' << tiny;
    }
  }
}

/// Rows that no vector divides, and blocks of every type.
TEST(LateScalesDevice, AwkwardSizes) {
  AESHNA_NEED_DEVICE();
  const std::pair<DType, std::int64_t> cases[] = {
      {DType::f32, 1},   {DType::f32, 2},   {DType::f32, 7},    {DType::f32, 33},   {DType::q4_0, 32},
      {DType::q4_1, 96}, {DType::q5_0, 32}, {DType::q8_0, 160}, {DType::q4_K, 256}, {DType::q6_K, 256}};
  for (const auto& [dtype, width] : cases) {
    for (const std::int64_t rows : {1, 3, 5, 8, 9}) {
      const auto build = [&](Graph& g, DType type) {
        const Value x = g.input("x", {rows, width});
        const Value n = rms_norm(x, g.parameter("norm", {width}, {.trainable = false}));
        g.output("y", linear(n, g.parameter("w", {17, width}, {.dtype = type, .trainable = false})));
      };
      Graph g, plain;
      build(g, dtype), build(plain, DType::f32);
      TensorMap leaves = test::random_leaves(plain, static_cast<std::uint64_t>(rows), -1, 1);
      Literal w = Literal::from_doubles(leaves.at("w").type, leaves.at("w").data);
      if (is_quantized(dtype)) {
        w = quantize(w, dtype);
        leaves.at("w").data = dequantize(w).to_doubles();
      }
      Weights weights(g, {.device = *test::test_device().device});
      weights.set("w", w);
      weights.set("norm", Literal::from_doubles(leaves.at("norm").type, leaves.at("norm").data));
      Session s = compile(g, weights);
      s.set("x", Literal::from_doubles(leaves.at("x").type, leaves.at("x").data));
      s.step();
      const Literal y = s.read_literal("y");
      EXPECT_LT(test::difference(test::tensor(y.type(), y.to_doubles()), interpret(plain, leaves).outputs.at("y")),
                2e-5)
          << dtype_name(dtype) << ' ' << width << ' ' << rows;
    }
  }
}

}  // namespace
}  // namespace aeshna
