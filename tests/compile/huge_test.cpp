// Operands larger than what one descriptor covers: rows, windows of a gather, slices of a reduction. The limit is made small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "ir/interpreter.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

constexpr std::uint64_t kRange = 16384;  // 4096 elements

Caps small_range() {
  Caps caps;
  caps.max_storage_range = kRange;
  caps.max_storage_buffers = 16;
  return caps;
}

/// The plan is sound and binds nothing larger than the limit.
Plan sound_plan(const Graph& g, const Caps& caps = small_range()) {
  Plan plan = compile_plan(g, {}, caps);
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  for (const PlanStep& step : plan.steps) {
    if (step.kind != PlanStep::Kind::Dispatch) continue;
    for (const PlanOperand& operand : step.operands) EXPECT_LE(operand.bytes, caps.max_storage_range);
  }
  return plan;
}

/// Device with that limit against the interpreter.
void expect_values(const Graph& g, const TensorMap& data, double rtol = 1e-5) {
  sound_plan(g);
  AESHNA_NEED_DEVICE();
  const Device small(DeviceRequest{.selector = test_device().device->info().uuid,
                                   .caps = "max_storage_range=16384",
                                   .validation = test_device().validation});
  Session session = compile(g, Weights(small), {.mode = Mode::Inference});
  for (const auto& [name, value] : data) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  session.wait();
  const InterpreterResult want = interpret(g, data);
  for (const auto& [name, value] : want.outputs) {
    const std::vector<double> got = session.read_literal(name).to_doubles();
    ASSERT_EQ(got.size(), value.data.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], value.data[i], 2 * rtol * std::max(1.0, std::fabs(value.data[i])))
          << name << " element " << i;
    }
  }
}

HostTensor ramp(Shape shape, double step) {
  HostTensor t(TensorType{DType::f32, shape});
  for (std::size_t i = 0; i < t.data.size(); ++i) {
    t.data[i] = round_to(DType::f32, std::fmod(static_cast<double>(i) * step, 2.0) - 1);  // both sides see the same numbers
  }
  return t;
}

TEST(HugeOperandDevice, AGatherSeesItsSourceThroughWindows) {
  Graph g;
  const Value table = g.input("table", {700, 24}),
              ids = g.input("ids", {37}, DType::i32);  // 16,800 elements: 5 windows
  g.output("rows", embedding(table, ids) * 2);
  g.output("norm", sum(embedding(table, ids) * embedding(table, ids), {-1}));
  HostTensor i(TensorType{DType::i32, {37}});
  for (std::size_t k = 0; k < 37; ++k) i.data[k] = static_cast<double>((k * 397) % 700);
  i.data[5] = 699;
  i.data[6] = 0;
  const Plan plan = sound_plan(g);
  expect_values(g, {{"table", ramp({700, 24}, 0.37)}, {"ids", i}});
}

TEST(HugeOperandDevice, AGatherInEachRowOfAHugeTensor) {
  Graph g;
  const Value x = g.input("x", {40, 300}), i = g.input("i", {40, 7}, DType::i32);
  g.output("y", gather_elements(x, i, 1));
  HostTensor index(TensorType{DType::i32, {40, 7}});
  for (std::size_t k = 0; k < 280; ++k) index.data[k] = static_cast<double>((k * 89) % 300);
  expect_values(g, {{"x", ramp({40, 300}, 0.41)}, {"i", index}});
}

TEST(HugeOperandDevice, MoreWindowsThanBuffersAreRefusedByName) {
  Graph g;
  g.output("rows", embedding(g.input("table", {4000, 24}), g.input("ids", {37}, DType::i32)));
  try {
    compile_plan(g, {}, small_range());
    FAIL() << "no Error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::LimitExceeded);
    EXPECT_THAT(e.what(), testing::HasSubstr("storage buffers"));
  }
}

TEST(HugeOperandDevice, ReductionsToOneValue) {
  Graph g;
  const Value x = g.input("x", {130, 101});  // 13,130 elements
  g.output("sum", sum(x));
  g.output("mean", mean(exp(x)));
  g.output("max", reduce_max(x * x - x));
  g.output("min", reduce_min(x, {0, 1}, true));
  g.output("norm", sqrt(sum(x * x)));
  g.output("gradient", gradients(sum(x * x) * 0.5, {x})[0]);
  expect_values(g, {{"x", ramp({130, 101}, 0.377)}});
}

TEST(HugeOperandDevice, ReductionsAcrossRowsAndOfTransposes) {
  Graph g;
  const Value x = g.input("x", {3, 90, 50}), row = g.input("row", {50});
  g.output("columns", sum(x * row, {0, 1}));
  g.output("middle", reduce_max(x, {1}));
  g.output("first", sum(x, {0}));
  g.output("transposed", sum(permute(x, {2, 1, 0}), {1, 2}));
  g.output("rows", sum(x, {2}));
  expect_values(g, {{"x", ramp({3, 90, 50}, 0.77)}, {"row", ramp({50}, 0.3)}});
}

TEST(HugeOperandDevice, ComputedTensorsAreSlicedToo) {
  Graph g;
  const Value x = g.input("x", {9000});
  const Value y = tanh(x);
  g.output("y", y);  // stored whole, in rows
  g.output("sum", sum(y * 3 + 1));
  expect_values(g, {{"x", ramp({9000}, 0.11)}});
}

}  // namespace
}  // namespace aeshna::test
