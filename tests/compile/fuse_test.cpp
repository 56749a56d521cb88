// Fusion of graphs that need values in memory at places where an index map cannot be expressed.
#include <gtest/gtest.h>

#include "aeshna/ops.h"
#include "compile/pipeline.h"
#include "compile/stages.h"

namespace aeshna {
namespace {

/// Plans `graph` with and without fusion; both must be sound.
void expect_sound(const Graph& graph) {
  Caps caps;
  caps.max_storage_buffers = 16;
  for (const bool fusion : {true, false}) {
    PipelineOptions options;
    options.fusion = fusion;
    const Plan plan = compile_plan(graph, options, caps);
    EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  }
}

TEST(Fuse, ConcatenationOverASplitDimension) {
  Graph g;
  const Value x = g.input("x", {16, 2, 2});
  const Value y = reshape(relu(x), {32, 2});
  const Value c = concat({y, neg(y)}, 0);
  const Value t = tanh(c + softmax(c, 0));
  const Value loss = sum(t * t);
  g.output("loss", loss);
  g.output("g", gradients(loss, {x})[0]);
  expect_sound(g);
}

TEST(Fuse, PaddingOverASplitDimension) {
  Graph g;
  const Value x = g.input("x", {2, 10, 18});
  const Value y = slice(x, {0, 1, 2}, {1, 6, 7}, {2, 9, 18}, {1, 2, 1});
  const Value loss = sum(y * y);
  g.output("loss", loss);
  g.output("g", gradients(loss, {x})[0]);
  expect_sound(g);
}

TEST(Fuse, AValueAndItsReshapeAreBothOutputs) {
  Graph g;
  const Value y = exp(g.input("x", {1, 3}));
  g.output("flat", reshape(y, {3}));
  g.output("y", y);
  expect_sound(g);
}

TEST(Fuse, ConcatenationOfMorePartsThanAKernelHasOperands) {
  Graph g;
  std::vector<Value> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(g.input("x" + std::to_string(i), {3}));
  g.output("all", concat(parts, 0) * 2.0);
  expect_sound(g);
}

TEST(Fuse, RowsThatTouchOnlySomeOperands) {
  Graph g;
  g.output("all", concat({g.input("a", {3000, 7}), g.input("b", {3001, 7})}, 0));
  Caps caps;
  caps.max_storage_range = 65536;
  const Plan plan = compile_plan(g, {}, caps);
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  for (const PlanStep& step : plan.steps) {
    for (const PlanOperand& operand : step.operands) EXPECT_LE(operand.bytes, caps.max_storage_range);
  }
}

TEST(Fuse, AWideConstantIsRefusedByItsLine) {
  Graph g;
  g.output("y", g.input("x", {2}, DType::i64) + g.constant(8589934592.0, DType::i64));
  try {
    compile_plan(g, {}, Caps{});
    FAIL() << "no Error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::OutOfRange);
    EXPECT_NE(std::string(e.what()).find("fuse_test.cpp"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace aeshna
