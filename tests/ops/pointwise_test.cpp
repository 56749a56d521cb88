// Pointwise semantics by hand: special values, integers, dtype rules, and the gradients at kinks and ties that differences cannot see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "aeshna/ops.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

using Unary = Value (*)(Operand);
using Binary = Value (*)(Operand, Operand);

std::vector<double> run(Unary f, std::vector<double> x, DType dtype = DType::f32) {
  Graph g;
  const Shape shape{static_cast<std::int64_t>(x.size())};
  return value_of(f(g.input("x", shape, dtype)), {{"x", tensor(shape, std::move(x), dtype)}}).data;
}

std::vector<double> run(Binary f, std::vector<double> a, std::vector<double> b, DType dtype = DType::f32) {
  Graph g;
  const Shape shape{static_cast<std::int64_t>(a.size())};
  const Value y = f(g.input("a", shape, dtype), g.input("b", shape, dtype));
  return value_of(y, {{"a", tensor(shape, std::move(a), dtype)}, {"b", tensor(shape, std::move(b), dtype)}}).data;
}

/// Gradients of sum(f(leaves...)).
std::vector<std::vector<double>> slopes(const std::function<Value(const std::vector<Value>&)>& f,
                                        std::vector<std::vector<double>> x) {
  Graph g;
  std::vector<Value> leaves;
  TensorMap values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Shape shape{static_cast<std::int64_t>(x[i].size())};
    leaves.push_back(g.input("x" + std::to_string(i), shape));
    values.emplace("x" + std::to_string(i), tensor(shape, x[i]));
  }
  std::vector<std::vector<double>> result;
  for (const Value& gradient : gradients(sum(f(leaves)), leaves)) result.push_back(value_of(gradient, values).data);
  return result;
}

std::vector<double> slope(Unary f, std::vector<double> x) {
  return slopes([f](const auto& v) { return f(v[0]); }, {std::move(x)})[0];
}

std::vector<std::vector<double>> slope(Binary f, std::vector<double> a, std::vector<double> b) {
  return slopes([f](const auto& v) { return f(v[0], v[1]); }, {std::move(a), std::move(b)});
}

TEST(PointwiseValue, FarOutValuesAreFiniteOrTheLimit) {
  for (const Unary f : {Unary(tanh), Unary(erf)})
    EXPECT_THAT(run(f, {-1e4, -89, 0, 89, 1e4, kInf, -kInf}), ElementsAre(-1, -1, 0, 1, 1, 1, -1));
  EXPECT_THAT(run(sigmoid, {-1e4, 0, 1e4, kInf, -kInf}), ElementsAre(0, 0.5, 1, 1, 0));
  EXPECT_THAT(run(softplus, {-1e4, 1e4, kInf, -kInf}), ElementsAre(0, 1e4, kInf, 0));
  EXPECT_NEAR(run(softplus, {0})[0], 0.6931471805599453, 1e-15);
  EXPECT_THAT(run(relu, {-3, -0.0, 0, 2, kInf}), ElementsAre(0, 0, 0, 2, kInf));
  EXPECT_TRUE(std::isnan(run(relu, {kNan})[0]));
  for (const Unary f : {Unary(silu), Unary(gelu_erf), Unary(gelu_tanh)}) {
    const auto y = run(f, {-1e4, -89, 0, 89, 1e4});
    EXPECT_NEAR(y[0], 0, 1e-30);
    EXPECT_NEAR(y[1], 0, 1e-30);
    EXPECT_THAT((std::vector<double>{y[2], y[3], y[4]}), ElementsAre(0, 89, 1e4));
  }
  EXPECT_NEAR(run(gelu_erf, {1})[0], 0.8413447460685429, 1e-15);
  EXPECT_NEAR(run(gelu_tanh, {1})[0], 0.8411919906082768, 1e-15);  // another function than gelu_erf
}

TEST(PointwiseValue, RoundsHalfToEven) {
  EXPECT_THAT(run(round, {0.5, 1.5, 2.5, -0.5, -1.5, 2.4999}), ElementsAre(0, 2, 2, 0, -2, 2));
}

TEST(PointwiseValue, NanAndInfinity) {
  EXPECT_THAT(run(is_finite, {0, kInf, -kInf, kNan, 3e38}), ElementsAre(1, 0, 0, 0, 1));
  for (const Binary f : {Binary(maximum), Binary(minimum)}) {
    const auto y = run(f, {kNan, 1, kNan}, {1, kNan, kNan});
    for (const double v : y) EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_THAT(run(not_equal, {kNan, 1}, {kNan, 1}), ElementsAre(1, 0));
  EXPECT_THAT(run(equal, {kNan, 1}, {kNan, 1}), ElementsAre(0, 1));
  EXPECT_THAT(run(less_equal, {kNan, 1}, {1, 1}), ElementsAre(0, 1));
  Graph g;
  const Value x = g.input("x", {3});
  const auto y = value_of(clamp(x, -1, 1), {{"x", tensor({3}, {kNan, kInf, -kInf})}}).data;
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], -1);
}

TEST(PointwiseValue, ModAndFmod) {
  EXPECT_THAT(run(mod, {7.5, -7.5, 7.5, -7.5, -2}, {2, 2, -2, -2, 2}), ElementsAre(1.5, 0.5, -0.5, -1.5, 0));
  EXPECT_THAT(run(fmod, {7.5, -7.5, 7.5, -7.5}, {2, 2, -2, -2}), ElementsAre(1.5, -1.5, 1.5, -1.5));
  EXPECT_THAT(run(mod, {7, -7, 7, -7, 5}, {3, 3, -3, -3, 0}, DType::i32), ElementsAre(1, 2, -2, -1, 0));
  EXPECT_THAT(run(fmod, {7, -7, 7, -7, 5}, {3, 3, -3, -3, 0}, DType::i32), ElementsAre(1, -1, 1, -1, 0));
}

TEST(PointwiseValue, IntegersTruncateAndWrap) {
  EXPECT_THAT(run(div, {7, -7, 7, 5, -2147483648.0}, {2, 2, -2, 0, -1}, DType::i32),
              ElementsAre(3, -3, -3, 0, -2147483648.0));
  EXPECT_THAT(run(add, {2147483647}, {1}, DType::i32), ElementsAre(-2147483648.0));
  EXPECT_THAT(run(sub, {0}, {1}, DType::u32), ElementsAre(4294967295.0));
  EXPECT_THAT(run(mul, {65536, 2147483647}, {65537, 2147483647}, DType::i32), ElementsAre(65536, 1));
  EXPECT_THAT(run(mul, {4294967295.0}, {4294967295.0}, DType::u32), ElementsAre(1));
  EXPECT_THAT(run(neg, {1, 0}, DType::u32), ElementsAre(4294967295.0, 0));
  EXPECT_THAT(run(abs, {-2147483648.0, -3}, DType::i32), ElementsAre(-2147483648.0, 3));
}

TEST(PointwiseValue, Casts) {
  const auto cast_all = [](std::vector<double> x, DType from, DType to) {
    Graph g;
    const Shape shape{static_cast<std::int64_t>(x.size())};
    return value_of(cast(g.input("x", shape, from), to), {{"x", tensor(shape, x, from)}}).data;
  };
  EXPECT_THAT(cast_all({1.9, -1.9, 3e9, -3e9, kInf, -kInf, kNan}, DType::f32, DType::i32),
              ElementsAre(1, -1, 2147483647, -2147483648.0, 2147483647, -2147483648.0, 0));
  EXPECT_THAT(cast_all({1.9, -1.9, 5e9, kNan}, DType::f32, DType::u32), ElementsAre(1, 0, 4294967295.0, 0));
  EXPECT_THAT(cast_all({-1, 5}, DType::i32, DType::u32), ElementsAre(4294967295.0, 5));
  EXPECT_THAT(cast_all({0, -0.0, 0.5, kNan}, DType::f32, DType::boolean), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(cast_all({0, 1}, DType::boolean, DType::f32), ElementsAre(0, 1));
  EXPECT_THAT(cast_all({300, -300, kNan}, DType::f32, DType::i8), ElementsAre(127, -128, 0));
  EXPECT_THAT(cast_all({300, 127, 128, -129, 2147483647}, DType::i32, DType::i8), ElementsAre(44, 127, -128, 127, -1));
  EXPECT_THAT(cast_all({300, 255, 4294967295.0}, DType::u32, DType::u8), ElementsAre(44, 255, 255));
}

TEST(PointwiseGradient, KinksAndTiesFollowPyTorch) {
  EXPECT_THAT(slope(relu, {-1, 0, 2}), ElementsAre(0, 0, 1));
  EXPECT_THAT(slope(abs, {-1, 0, 2}), ElementsAre(-1, 0, 1));
  for (const Unary f : {Unary(floor), Unary(ceil), Unary(round), Unary(sign)})
    EXPECT_THAT(slope(f, {-1.5, 0, 2}), ElementsAre(0, 0, 0));
  EXPECT_THAT(slope(maximum, {1, 2, 3}, {2, 2, 2}), ElementsAre(ElementsAre(0, 0.5, 1), ElementsAre(1, 0.5, 0)));
  EXPECT_THAT(slope(minimum, {1, 2, 3}, {2, 2, 2}), ElementsAre(ElementsAre(1, 0.5, 0), ElementsAre(0, 0.5, 1)));
  const auto clamped = slopes([](const auto& v) { return clamp(v[0], v[1], v[2]); },
                              {{-2, -1, 0, 1, 2, 0.5}, {-1, -1, -1, -1, -1, 1}, {1, 1, 1, 1, 1, 0}});
  EXPECT_THAT(clamped,
              ElementsAre(ElementsAre(0, 1, 1, 1, 0, 0), ElementsAre(1, 0, 0, 0, 0, 0), ElementsAre(0, 0, 0, 0, 1, 1)));
}

TEST(PointwiseGradient, PowAtItsEdges) {
  const auto g = slope(pow, {0, 0, 0, -2, 2}, {0, 2, 1, 3, 0});
  EXPECT_THAT(g[0], ElementsAre(0, 0, 1, 12, 0));
  EXPECT_EQ(g[1][0], 0);  // 0^b, b >= 0
  EXPECT_EQ(g[1][1], 0);
  EXPECT_TRUE(std::isnan(g[1][3]));  // a negative base has no derivative by the exponent
  EXPECT_NEAR(g[1][4], 0.6931471805599453, 1e-15);
}

TEST(PointwiseGradient, SelectDoesNotLeakNan) {
  // log is infinite at 0, but the branch is not taken: its gradient must be 0, not 0 * inf.
  const auto g = slopes([](const auto& v) { return select(greater(v[0], 0), v[1], v[0] * 2); }, {{-1, 1}, {5, 6}});
  EXPECT_THAT(g, ElementsAre(ElementsAre(2, 0), ElementsAre(0, 1)));
  EXPECT_EQ(slope(relu, {-kInf})[0], 0);
}

TEST(PointwiseGradient, FarOutGradientsAreFinite) {
  for (const Unary f :
       {Unary(tanh), Unary(sigmoid), Unary(gelu_erf), Unary(gelu_tanh), Unary(silu), Unary(softplus), Unary(erf)}) {
    for (const double v : slope(f, {-1e4, -89, -20, -13, 0, 13, 20, 89, 1e4})) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(PointwiseGradient, StopGradientBlocks) {
  EXPECT_THAT(slopes([](const auto& v) { return stop_gradient(v[0]) * v[0]; }, {{3, 4}}),
              ElementsAre(ElementsAre(3, 4)));
}

TEST(PointwiseOperands, NumbersTakeTheOthersDtype) {
  Graph g;
  const Value i = g.input("i", {2}, DType::i32), x = g.input("x", {2});
  EXPECT_EQ((i + 1).dtype(), DType::i32);
  EXPECT_EQ((2 * x).dtype(), DType::f32);
  EXPECT_EQ(select(greater(x, 0), 1, 0).dtype(), DType::f32);
  EXPECT_EQ(select(greater(x, 0), i, 0).dtype(), DType::i32);
  EXPECT_EQ(less(i, 3).dtype(), DType::boolean);
  EXPECT_EQ(cast(x, DType::f32), x);
}

TEST(PointwiseOperands, Errors) {
  Graph g, other;
  const Value i = g.input("i", {2}, DType::i32), x = g.input("x", {2, 3}), y = g.input("y", {4}),
              b = g.input("b", {2}, DType::boolean);
  const Value stranger = other.input("x", {2, 3});
  const auto message = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::StartsWith;
  const auto here = HasSubstr("pointwise_test.cpp:");
  EXPECT_THAT(message([&] { x + i; }),
              AllOf(StartsWith("[add] the operands have different dtypes: f32[2, 3] and i32[2]"), here));
  EXPECT_THAT(message([&] { x + y; }), AllOf(StartsWith("[add]"), HasSubstr("[2, 3]"), HasSubstr("[4]"), here));
  EXPECT_THAT(message([&] { i * 0.5; }), AllOf(StartsWith("[mul] the number 0.5 is no i32 value"), here));
  EXPECT_THAT(message([&] { exp(i); }), AllOf(StartsWith("[exp] is defined for"), HasSubstr("i32"), here));
  EXPECT_THAT(message([&] { logical_not(x); }), AllOf(StartsWith("[logical_not]"), HasSubstr("f32[2, 3]"), here));
  EXPECT_THAT(message([&] { b + b; }), AllOf(StartsWith("[add]"), HasSubstr("bool[2]"), here));
  EXPECT_THAT(message([&] { select(x, x, x); }),
              AllOf(StartsWith("[select] the condition must be boolean, not f32"), here));
  EXPECT_THAT(message([&] { exp(1.0); }), AllOf(StartsWith("[exp] needs at least one Value"), here));
  EXPECT_THAT(message([&] { x + stranger; }), AllOf(StartsWith("[add]"), HasSubstr("different graphs"), here));
  EXPECT_THAT(message([&] { cast(x, DType::q4_0); }), AllOf(StartsWith("[cast]"), HasSubstr("q4_0"), here));
}

}  // namespace
}  // namespace aeshna::test
