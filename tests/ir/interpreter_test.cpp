// The interpreter: steps with state, both rounding modes, expansions, and its errors.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "ir/interpreter.h"

namespace aeshna {
namespace {

HostTensor tensor(TensorType type, std::vector<double> data) {
  HostTensor result(std::move(type));
  result.data = std::move(data);
  return result;
}
HostTensor f32s(std::vector<double> data) {
  const auto count = static_cast<std::int64_t>(data.size());
  return tensor({DType::f32, {count}}, std::move(data));
}

TEST(Interpreter, OutputsAndAssigned) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value s = g.state("s", {2});
  const Value sum = s + x;
  g.assign(s, sum);
  g.output("twice", sum * 2.0);
  g.output("old", s);
  const auto result = interpret(g, {{"x", f32s({1, 2})}, {"s", f32s({10, 20})}});
  EXPECT_EQ(result.outputs.at("twice").data, (std::vector{22.0, 44.0}));
  EXPECT_EQ(result.outputs.at("old").data, (std::vector{10.0, 20.0}));  // the value at the start of the step
  EXPECT_EQ(result.assigned.at("s").data, (std::vector{11.0, 22.0}));
  EXPECT_TRUE(result.values.empty());
}

TEST(Interpreter, ExactKeepsDoublesStorageRoundsEachNode) {
  Graph g;
  const Value x = g.input("x", {1});
  g.output("y", (x + 1.0) - 1.0);
  const TensorMap leaves = {{"x", f32s({0x1p-30})}};
  EXPECT_EQ(interpret(g, leaves, Rounding::Exact).outputs.at("y").data[0], 0x1p-30);
  EXPECT_EQ(interpret(g, leaves, Rounding::Storage).outputs.at("y").data[0], 0.0);
  EXPECT_EQ(interpret(g, leaves, Rounding::Upward).outputs.at("y").data[0], 0x1p-23);
}

TEST(Interpreter, KeepsAllValuesWhenAsked) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value h = relu(x);
  g.output("y", neg(h));
  const auto result = interpret(g, {{"x", f32s({-1, 3})}}, Rounding::Exact, true);
  ASSERT_EQ(result.values.size(), 3u);
  EXPECT_EQ(result.values[0][0].data, (std::vector{-1.0, 3.0}));
  EXPECT_EQ(result.values[1][0].data, (std::vector{0.0, 3.0}));
}

TEST(Interpreter, AValueReadTwiceStaysAlive) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value h = neg(x);
  const Value square = mul(h, h);
  g.output("y", square + h);
  EXPECT_EQ(interpret(g, {{"x", f32s({2, 3})}}).outputs.at("y").data, (std::vector{2.0, 6.0}));
}

/// A composite without eval is run through its expansion.
TEST(Interpreter, CompositeWithoutEvalIsExpanded) {
  OpDef square;
  square.name = "square_test";
  square.infer = [](const InferContext& ctx) { return std::vector{ctx.inputs[0]}; };
  square.expand = [](const BuildContext& build, std::span<const Value> in) {
    return std::vector{build.add("mul", {in[0], in[0]})};
  };
  Graph g;
  const Value x = g.input("x", {2});
  const NodeId id = g.add_node(square, {x.id()}, {}, Node{});
  g.output("y", g.value({id, 0}));
  EXPECT_EQ(interpret(g, {{"x", f32s({3, -4})}}).outputs.at("y").data, (std::vector{9.0, 16.0}));

  square.expand = nullptr;
  try {
    interpret(g, {{"x", f32s({3, -4})}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Unsupported);
    EXPECT_NE(error.message().find("square_test"), std::string::npos);
  }
}

TEST(Interpreter, LeafErrorsNameTheLeaf) {
  Graph g;
  g.output("y", neg(g.input("x", {2})));
  const auto error = [&](TensorMap leaves) -> std::pair<ErrorCode, std::string> {
    try {
      interpret(g, leaves);
    } catch (const Error& e) {
      return {e.code(), e.message()};
    }
    return {ErrorCode::Internal, "nothing was thrown"};
  };
  const auto [missing, missing_text] = error({{"xx", f32s({1, 2})}});
  EXPECT_EQ(missing, ErrorCode::NotFound);
  EXPECT_NE(missing_text.find("input 'x'"), std::string::npos) << missing_text;
  const auto [shape, shape_text] = error({{"x", f32s({1, 2, 3})}});
  EXPECT_EQ(shape, ErrorCode::ShapeMismatch);
  EXPECT_NE(shape_text.find("f32[2], the value given f32[3]"), std::string::npos) << shape_text;
  EXPECT_EQ(error({{"x", tensor({DType::i32, {2}}, {1, 2})}}).first, ErrorCode::ShapeMismatch);
  EXPECT_EQ(error({{"x", tensor({DType::f32, {2}}, {1})}}).first, ErrorCode::ShapeMismatch);
}

TEST(RoundTo, IntegersOf64BitsKeepWhatADoubleHolds) {
  for (const double v : {-1.0, -5.0, 9007199254740991.0, -9007199254740991.0}) EXPECT_EQ(round_to(DType::i64, v), v);
  EXPECT_EQ(round_to(DType::u64, 7), 7);
  EXPECT_EQ(round_to(DType::i64, 18446744073709551616.0), 0);
}

TEST(RoundTo, FloatsTiesToEvenIntegersWrap) {
  EXPECT_EQ(round_to(DType::f32, 1.0 + 0x1p-24), 1.0);
  EXPECT_EQ(round_to(DType::f32, 1.0 + 0x1.8p-23), 1.0 + 0x1p-22);
  EXPECT_EQ(round_to(DType::f64, 1.0 + 0x1p-52), 1.0 + 0x1p-52);
  EXPECT_EQ(round_to(DType::f16, 1e6), INFINITY);
  EXPECT_EQ(round_to(DType::bf16, 1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(round_to(DType::i8, 128), -128);
  EXPECT_EQ(round_to(DType::i8, -129), 127);
  EXPECT_EQ(round_to(DType::u8, -1), 255);
  EXPECT_EQ(round_to(DType::i32, 0x1p31), -0x1p31);
  EXPECT_EQ(round_to(DType::u32, -1), 0x1p32 - 1);
  EXPECT_EQ(round_to(DType::i64, 0x1p63), -0x1p63);
  EXPECT_EQ(round_to(DType::u32, 0x1p80 + 0x1p40), 0);
  EXPECT_EQ(round_to(DType::i32, -2.7), -2);
  EXPECT_EQ(round_to(DType::i4, 8), -8);
  EXPECT_EQ(round_to(DType::boolean, -3), 1);
  EXPECT_EQ(round_to(DType::i32, NAN), 0);
  EXPECT_TRUE(std::isnan(round_to(DType::f32, NAN)));
  EXPECT_TRUE(std::signbit(round_to(DType::f32, -0.0)));
  EXPECT_FALSE(std::signbit(round_to(DType::i32, -0.0)));
  EXPECT_THROW(round_to(DType::q4_0, 1), Error);
}

}  // namespace
}  // namespace aeshna
