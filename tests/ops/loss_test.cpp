// Losses, softmax and random numbers: values by hand, ignored and bad labels, streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/philox.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kInf = std::numeric_limits<double>::infinity();

const auto here = HasSubstr("loss_test.cpp:");

struct Classified {
  Graph g;
  Value logits = g.input("logits", {3, 4});
  Value labels = g.input("labels", {3}, DType::i32);
  TensorMap data(std::vector<double> l, std::vector<double> x = {0, 0, 0, 0, 1, 2, 3, 4, -1, 5, 0, 2}) const {
    return {{"logits", tensor({3, 4}, std::move(x))}, {"labels", tensor({3}, std::move(l), DType::i32)}};
  }
};

TEST(CrossEntropy, MeanIsAScalarOverTheRowsThatCount) {
  Classified c;
  const Value loss = cross_entropy(c.logits, c.labels), rows = cross_entropy(c.logits, c.labels, Reduction::None);
  EXPECT_EQ(loss.shape(), Shape{});
  EXPECT_EQ(rows.shape(), (Shape{3}));
  const auto each = value_of(rows, c.data({1, -100, 1})).data;
  EXPECT_NEAR(each[0], std::log(4.0), 1e-12);
  EXPECT_EQ(each[1], 0);
  EXPECT_NEAR(value_of(loss, c.data({1, -100, 1})).data[0], (each[0] + each[2]) / 2, 1e-12);
  EXPECT_NEAR(value_of(cross_entropy(c.logits, c.labels, Reduction::Sum), c.data({1, -100, 1})).data[0],
              each[0] + each[2], 1e-12);
}

TEST(CrossEntropy, AllIgnoredGivesZeroLossAndZeroGradient) {
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
    Classified c;
    const Value loss = cross_entropy(c.logits, c.labels, reduction);
    const Value gradient = gradients(loss, {c.logits})[0];
    EXPECT_THAT(value_of(loss, c.data({-100, -100, -100})).data, ElementsAre(0));
    EXPECT_THAT(value_of(gradient, c.data({-100, -100, -100})).data, Each(0.0));
  }
}

TEST(CrossEntropy, BadLabelsStayOutOfTheSumAndAreFlagged) {
  Classified c;
  const Value loss = cross_entropy(c.logits, c.labels);
  const Node& check = c.g.nodes().back();
  ASSERT_EQ(check.op->name, "check");
  EXPECT_EQ(check.attrs.get<std::string>("code"), "out_of_range");
  EXPECT_THAT(check.line.to_string(), HasSubstr("loss_test.cpp:"));
  const Value flag = c.g.value(check.inputs[0]);
  EXPECT_EQ(value_of(flag, c.data({0, 3, -100})).data[0], 0);
  EXPECT_EQ(value_of(flag, c.data({0, 4, 1})).data[0], 1);
  EXPECT_EQ(value_of(flag, c.data({0, -1, 1})).data[0], 1);
  EXPECT_NEAR(value_of(loss, c.data({0, 4, -1})).data[0], std::log(4.0), 1e-12);
  EXPECT_TRUE(std::isfinite(value_of(gradients(loss, {c.logits})[0], c.data({0, 4, -1})).data[5]));
}

TEST(CrossEntropy, BadLabelOnTheDeviceIsAnError) {
  AESHNA_NEED_DEVICE();
  Classified c;
  c.g.output("loss", cross_entropy(c.logits, c.labels));
  Session session = compile(c.g, Weights(*test_device().device), {});
  const auto run = [&](std::vector<std::int32_t> labels) {
    session.set("logits", std::vector<float>(12, 1.0f));
    session.set("labels", labels);
    session.step();
    session.wait();
  };
  run({0, 3, -100});
  EXPECT_NEAR(session.read_scalar("loss"), std::log(4.0), 1e-6);
  for (const std::int32_t bad : {4, -1, 2147483647}) {
    try {
      run({0, bad, 1});
      ADD_FAILURE() << "label " << bad << " passed unseen";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::OutOfRange);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("cross_entropy"), here));
    }
  }
  run({1, 1, 1});
}

TEST(CrossEntropy, ExtremeLogitsAreExact) {
  Classified c;
  const Value rows = cross_entropy(c.logits, c.labels, Reduction::None);
  const auto y = value_of(rows, c.data({0, 1, 2}, {1e4, -1e4, 0, 0, 1e4, -1e4, 0, 0, 89, 89, 89, 89})).data;
  EXPECT_THAT(y, ElementsAre(0, 2e4, DoubleNear(std::log(4.0), 1e-12)));
}

TEST(CrossEntropy, DenseOneHotEqualsIndices) {
  Graph g;
  const Value x = g.input("x", {2, 3}), p = g.input("p", {2, 3}), i = g.input("i", {2}, DType::i32);
  const TensorMap data = {{"x", tensor({2, 3}, {1, 2, 3, -1, 0, 4})},
                          {"p", tensor({2, 3}, {0, 1, 0, 1, 0, 0})},
                          {"i", tensor({2}, {1, 0}, DType::i32)}};
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
    const Value dense = cross_entropy(x, p, reduction), index = cross_entropy(x, i, reduction);
    EXPECT_NEAR(value_of(dense, data).data[0], value_of(index, data).data[0], 1e-12);
    const auto a = value_of(gradients(dense, {x})[0], data).data, b = value_of(gradients(index, {x})[0], data).data;
    for (std::size_t e = 0; e < a.size(); ++e) EXPECT_NEAR(a[e], b[e], 1e-12);
  }
}

TEST(CrossEntropy, Errors) {
  Graph g;
  const Value x = g.input("x", {3, 4}), i = g.input("i", {4}, DType::i32), p = g.input("p", {3, 5}),
              u = g.input("u", {3}, DType::u8);
  EXPECT_THAT(message([&] { cross_entropy(x, i); }),
              AllOf(StartsWith("[cross_entropy] labels for logits f32[3, 4] must have shape [3], not [4]"), here));
  EXPECT_THAT(message([&] { cross_entropy(x, p); }),
              AllOf(StartsWith("[cross_entropy]"), HasSubstr("f32[3, 5]"), here));
  EXPECT_THAT(message([&] { cross_entropy(x, u); }), AllOf(StartsWith("[cross_entropy]"), HasSubstr("u8"), here));
  EXPECT_THAT(message([&] { cross_entropy(i, i); }), AllOf(StartsWith("[cross_entropy] logits must be floats"), here));
  EXPECT_THAT(message([&] { mse(x, p); }), AllOf(StartsWith("[mse] the shapes differ: f32[3, 4] and f32[3, 5]"), here));
  EXPECT_THAT(message([&] { mse(g.input("e", {0}), 0.0); }), AllOf(StartsWith("[mse] the mean of no elements"), here));
}

TEST(Loss, ElementwiseByHand) {
  Graph g;
  const Value x = g.input("x", {2}), t = g.input("t", {2});
  const TensorMap data = {{"x", tensor({2}, {1, 3})}, {"t", tensor({2}, {1, 1})}};
  EXPECT_THAT(value_of(mse(x, t), data).data, ElementsAre(2));
  EXPECT_THAT(value_of(mse(x, 1, Reduction::Sum), data).data, ElementsAre(4));
  EXPECT_THAT(value_of(l1(x, t, Reduction::None), data).data, ElementsAre(0, 2));
  EXPECT_THAT(value_of(gradients(l1(x, t, Reduction::Sum), {x})[0], data).data, ElementsAre(0, 1));
  // sigmoid(0) - t at the kink of max(x, 0), and stable far out.
  const TensorMap edge = {{"x", tensor({2}, {0, -1e4})}, {"t", tensor({2}, {0.25, 1})}};
  EXPECT_THAT(value_of(bce_with_logits(x, t, Reduction::None), edge).data,
              ElementsAre(DoubleNear(std::log(2.0), 1e-12), 1e4));
  EXPECT_THAT(value_of(gradients(bce_with_logits(x, t, Reduction::Sum), {x})[0], edge).data, ElementsAre(0.25, -1));
}

TEST(Loss, ScalingAMeanScalesItsGradient) {  // a loss typed per row once dropped the upstream gradient
  Classified c;
  const Value plain = gradients(cross_entropy(c.logits, c.labels), {c.logits})[0];
  const Value scaled = gradients(cross_entropy(c.logits, c.labels) * 3, {c.logits})[0];
  const auto a = value_of(plain, c.data({0, 1, 2})).data, b = value_of(scaled, c.data({0, 1, 2})).data;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], 3 * a[i], 1e-14);
  EXPECT_NE(a[0], 0);
}

TEST(Softmax, RowsOfMinusInfinityAreNan) {
  Graph g;
  const Value x = g.input("x", {2, 2});
  const TensorMap data = {{"x", tensor({2, 2}, {-kInf, -kInf, -kInf, 1})}};
  const auto y = value_of(softmax(x), data).data;
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 1);
  // log_softmax keeps what softmax would flush to 0.
  EXPECT_THAT(value_of(log_softmax(x), {{"x", tensor({2, 2}, {1e4, -1e4, 0, 0})}}).data,
              ElementsAre(0, -2e4, DoubleNear(-std::log(2.0), 1e-12), DoubleNear(-std::log(2.0), 1e-12)));
}

TEST(Random, IsPhiloxByElementStepAndStream) {
  Graph g;
  Value first, second;
  {
    const Scope scope(g, "layer");  // the generator's states are shared by the whole graph
    first = random_uniform(g, {3, 3});
    second = random_uniform(g, {3, 3});
  }
  const Value normal = random_normal(g, {2000});
  EXPECT_TRUE(g.leaf("aeshna.seed") && g.leaf("aeshna.step"));
  EXPECT_FALSE(g.leaf("layer/aeshna.seed"));
  const TensorMap data = {{"aeshna.seed", tensor({2}, {5, 6}, DType::u32)},
                          {"aeshna.step", tensor({}, {9}, DType::u32)}};
  const auto a = value_of(first, data).data, b = value_of(second, data).data;
  EXPECT_NE(a, b);
  for (std::uint32_t i = 0; i < 9; ++i) {
    EXPECT_EQ(a[i], uniform_from_bits(philox4x32_10({i / 4, 9, 0, 0}, {5, 6})[i % 4]));
    EXPECT_EQ(b[i], uniform_from_bits(philox4x32_10({i / 4, 9, 2, 0}, {5, 6})[i % 4]));
  }
  TensorMap next = data;
  next.at("aeshna.step").data[0] = 10;
  EXPECT_NE(value_of(first, next).data, a);

  const auto n = value_of(normal, data).data;
  double mean = 0, square = 0;
  for (const double v : n) mean += v / 2000, square += v * v / 2000;
  EXPECT_NEAR(mean, 0, 0.08);
  EXPECT_NEAR(square, 1, 0.12);
  EXPECT_EQ(std::set(n.begin(), n.end()).size(), n.size());
  EXPECT_EQ(n[7], normal_from_bits(philox4x32_10({1, 9, 4, 0}, {5, 6})[3], philox4x32_10({1, 9, 5, 0}, {5, 6})[3]));
}

TEST(Random, UniformsOfTheDeviceAreThoseOfTheInterpreterBitForBit) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value uniform = random_uniform(g, {1031});
  g.output("u", uniform);
  const Weights weights(g, {.seed = 0x123456789abcdef, .device = *test_device().device});
  const auto state = [&](const char* name) {
    const Literal value = weights.get(name);
    return tensor(value.type().shape, value.to_doubles(), value.type().dtype);
  };
  const TensorMap data = {{"aeshna.seed", state("aeshna.seed")}, {"aeshna.step", state("aeshna.step")}};
  EXPECT_NE(data.at("aeshna.seed").data, (std::vector<double>{0, 0}))
      << "the seed of the Weights must reach the generator";
  Session session = compile(g, weights, {});
  session.step();
  const std::vector<float> got = session.read("u");
  EXPECT_EQ(std::vector<double>(got.begin(), got.end()), value_of(uniform, data).data);
}

}  // namespace
}  // namespace aeshna::test
