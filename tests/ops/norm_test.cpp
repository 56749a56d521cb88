// Normalization beyond its records' cases: the kernels that it becomes, running statistics, special values, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::HasSubstr;
using testing::IsNan;
using testing::StartsWith;

/// Kernels of a training step that read x.
struct Readers {
  int forward = 0, backward = 0;
  friend bool operator==(const Readers&, const Readers&) = default;
  friend void PrintTo(const Readers& r, std::ostream* out) {
    *out << r.forward << " forward, " << r.backward << " backward";
  }
};

Readers readers_of_x(Shape shape, const std::function<Value(Value x, Value scale, Value bias)>& norm, Shape params) {
  Graph g;
  const Value x = g.input("x", shape), upstream = g.input("upstream", shape);
  const Value y = norm(x, g.parameter("scale", params), g.parameter("bias", params));
  g.output("y", y);
  g.output("loss", sum(y * upstream));
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  options.optimizer = Sgd{};
  options.gradients = {"x"};
  Caps caps;
  caps.compute_units = 132;
  caps.max_storage_buffers = 16;
  const Plan plan = compile_plan(g, options, caps);
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  Readers readers;
  for (const PlanStep& step : plan.steps) {
    for (const PlanOperand& operand : step.operands) {
      if (!operand.read || operand.placement != plan.inputs.at("x")) continue;
      ++(step.segment == Segment::Forward ? readers.forward : readers.backward);
    }
  }
  return readers;
}

TEST(NormPlan, OneKernelForwardAndOneForTheInputGradient) {
  const auto layer = [](Value x, Value scale, Value bias) { return layer_norm(x, scale, bias); };
  const auto group = [](Value x, Value scale, Value bias) { return group_norm(x, 8, scale, bias); };
  const auto instance = [](Value x, Value scale, Value bias) { return instance_norm(x, scale, bias); };
  const auto batch = [](Value x, Value scale, Value bias) {
    Graph& g = x.graph();
    return batch_norm_training(x, g.state("mean", scale.shape()), g.state("variance", scale.shape()), scale, bias);
  };
  // Scale and bias gradients: one more kernel, whose loads both share; where they are sums over the statistics' own axes, none.
  EXPECT_EQ(readers_of_x({512, 768}, layer, {768}), (Readers{1, 2}));
  EXPECT_EQ(readers_of_x({4, 128, 1600}, layer, {1600}), (Readers{1, 2}));
  EXPECT_EQ(readers_of_x({31, 77}, layer, {77}), (Readers{1, 2}));
  EXPECT_EQ(readers_of_x({8, 64, 28, 28}, group, {64}), (Readers{1, 2}));
  EXPECT_EQ(readers_of_x({8, 64, 28, 28}, instance, {64}), (Readers{1, 1}));
  EXPECT_EQ(readers_of_x({8, 64, 28, 28}, batch, {64}), (Readers{1, 1}));
}

TEST(Norm, NormalizesWhatItSays) {
  Graph g;
  const Value x = g.input("x", {2, 4, 3});
  const Value m = g.state("m", {4}), v = g.state("v", {4});
  std::vector<double> data;
  for (int i = 0; i < 24; ++i) data.push_back(std::sin(2.0 * i) * (1 + i % 5) + 0.1 * i);
  const TensorMap leaves = {
      {"x", tensor({2, 4, 3}, data)}, {"m", tensor({4}, {0, 0, 0, 0})}, {"v", tensor({4}, {0, 0, 0, 0})}};
  const auto mean_and_variance = [&](Value y, const Axes& axes) {
    EXPECT_THAT(value_of(mean(y, axes), leaves).data, Each(DoubleNear(0, 1e-12)));
    EXPECT_THAT(value_of(mean(y * y, axes), leaves).data, Each(DoubleNear(1, 1e-4)));
  };
  mean_and_variance(layer_norm(x), {2});
  mean_and_variance(layer_norm(x, {}, {}, 1e-5, 2), {1, 2});
  mean_and_variance(reshape(group_norm(x, 2), {2, 2, 6}), {2});
  mean_and_variance(instance_norm(x), {2});
  mean_and_variance(batch_norm_training(x, m, v), {0, 2});
  const Value r = rms_norm(x);
  EXPECT_THAT(value_of(mean(r * r, {2}), leaves).data, Each(DoubleNear(1, 1e-4)));
}

TEST(Norm, ABiasNeedsNoScale) {
  Graph g;
  const Value x = g.input("x", {2, 3}), b = g.input("b", {3});
  const TensorMap leaves = {{"x", tensor({2, 3}, {1, 2, 3, -1, 5, 0})}, {"b", tensor({3}, {10, 20, 30})}};
  const auto with = value_of(layer_norm(x, {}, b), leaves).data, without = value_of(layer_norm(x), leaves).data;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(with[i], without[i] + 10 * (1 + static_cast<double>(i % 3)));
}

TEST(Norm, AConstantRowIsZeroAndOneBadElementSpoilsItsRowAlone) {
  Graph g;
  const Value x = g.input("x", {3, 3});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto y = value_of(layer_norm(x), {{"x", tensor({3, 3}, {7, 7, 7, 1, nan, 3, 1, 2, 3})}}).data;
  EXPECT_THAT(std::vector<double>(y.begin(), y.begin() + 3), Each(0.0));
  EXPECT_THAT(std::vector<double>(y.begin() + 3, y.begin() + 6), Each(IsNan()));
  EXPECT_NEAR(y[8], 1.22474, 1e-4);
}

TEST(BatchNorm, InferenceWithTheBatchsOwnStatisticsIsTraining) {
  Graph g;
  const Value x = g.input("x", {5, 2, 3}), scale = g.input("scale", {2}), bias = g.input("bias", {2});
  const Value trained = batch_norm_training(x, g.state("m", {2}), g.state("v", {2}), scale, bias);
  const NodeId node = trained.id().node;
  const Value given = batch_norm(x, g.value({node, 1}), g.value({node, 2}), scale, bias);
  std::vector<double> data;
  for (int i = 0; i < 30; ++i) data.push_back(std::cos(3.0 * i) + i % 4);
  const TensorMap leaves = {{"x", tensor({5, 2, 3}, data)},
                            {"scale", tensor({2}, {2, -3})},
                            {"bias", tensor({2}, {0.5, 1})},
                            {"m", tensor({2}, {0, 0})},
                            {"v", tensor({2}, {0, 0})}};
  const auto a = value_of(trained, leaves).data, b = value_of(given, leaves).data;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
}

TEST(BatchNormSession, KeepsRunningStatisticsAsPyTorch) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {4, 1, 2});
  const Value scale = g.parameter("scale", {1}, {.init = Init::constant(1)});
  const Value mean = g.state("running_mean", {1}),
              variance = g.state("running_variance", {1}, DType::f32, Init::constant(1));
  const Value y = batch_norm_training(x, mean, variance, scale, {}, 0.25);
  g.output("loss", sum(y * y));
  Weights weights(g, {.device = test_device().device});
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0}});
  const std::vector<float> first = {1, 2, 3, 4, 5, 6, 7, 8}, second = {0, 0, 0, 0, 0, 0, 0, 8};
  session.set("x", std::span<const float>(first));
  session.step();
  session.wait();
  // Mean 4.5; unbiased variance 6 (biased 5.25).
  EXPECT_NEAR(weights.get("running_mean").at(0), 0.25 * 4.5, 1e-6);
  EXPECT_NEAR(weights.get("running_variance").at(0), 0.75 + 0.25 * 6, 1e-6);
  session.set("x", std::span<const float>(second));
  session.step();
  session.wait();
  EXPECT_NEAR(weights.get("running_mean").at(0), 0.75 * 1.125 + 0.25 * 1, 1e-6);
  EXPECT_NEAR(weights.get("running_variance").at(0), 0.75 * 2.25 + 0.25 * 8, 1e-6);
}

TEST(NormSession, KeepsItsDigitsFarFromZero) {
  AESHNA_NEED_DEVICE();
  // One ulp of 1e6 is 1/16: the data are exact multiples of it, and E[x^2] - E[x]^2 would be noise.
  Graph g;
  const Value x = g.input("x", {3, 1000});
  g.output("y", layer_norm(x));
  Session session = compile(g, Weights(*test_device().device), {});
  std::vector<float> data;
  for (int i = 0; i < 3000; ++i) data.push_back(1e6f + static_cast<float>((i * 37) % 64) / 16);
  session.set("x", std::span<const float>(data));
  session.step();
  const std::vector<float> got = session.read("y");
  const auto want =
      value_of(layer_norm(x), {{"x", tensor({3, 1000}, std::vector<double>(data.begin(), data.end()))}}).data;
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << i;
}

TEST(Norm, ErrorsNameOpAttributeAndLine) {
  Graph g;
  const Value x = g.input("x", {2, 6, 3}), p = g.input("p", {6}), q = g.input("q", {3});
  const auto here = HasSubstr("norm_test.cpp:");
  EXPECT_THAT(message([&] { layer_norm(x, p); }),
              AllOf(StartsWith("[layer_norm] scale must be f32[3], not f32[6]"), HasSubstr("f32[2, 6, 3]"), here));
  EXPECT_THAT(message([&] { layer_norm(x, q, p); }), AllOf(StartsWith("[layer_norm] bias must be f32[3]"), here));
  EXPECT_THAT(message([&] { layer_norm(x, {}, {}, 1e-5, 4); }),
              AllOf(StartsWith("[layer_norm] cannot normalize over the last 4 axes of rank 3"), here));
  EXPECT_THAT(message([&] { layer_norm(x, {}, {}, 0); }),
              AllOf(StartsWith("[layer_norm] epsilon must be positive"), here));
  EXPECT_THAT(message([&] { rms_norm(x, {}, -1); }), AllOf(StartsWith("[rms_norm] epsilon"), here));
  EXPECT_THAT(message([&] { rms_norm(x, {}, std::numeric_limits<double>::quiet_NaN()); }),
              AllOf(StartsWith("[rms_norm] epsilon"), here));
  EXPECT_THAT(message([&] { group_norm(x, 4); }),
              AllOf(StartsWith("[group_norm] groups 4 do not divide the 6 channels"), here));
  EXPECT_THAT(message([&] { group_norm(x, 0); }), AllOf(StartsWith("[group_norm] groups 0"), here));
  EXPECT_THAT(message([&] { group_norm(q, 1); }), AllOf(StartsWith("[group_norm] needs [N, C, ...]"), here));
  EXPECT_THAT(message([&] {
                instance_norm(g.input("m", {2, 3}));
              }),
              AllOf(StartsWith("[instance_norm] needs [N, C, spatial...]"), here));
  EXPECT_THAT(message([&] {
                layer_norm(g.input("e", {3, 0}));
              }),
              AllOf(StartsWith("[layer_norm] nothing to normalize"), here));
  EXPECT_THAT(message([&] { layer_norm(g.input("i", {3}, DType::i32)); }),
              AllOf(StartsWith("[layer_norm]"), HasSubstr("i32")));
  EXPECT_THAT(message([&] { batch_norm(x, p, q); }), AllOf(StartsWith("[batch_norm] variance must be f32[6]"), here));
  const Value one = g.input("one", {1, 6, 1});
  EXPECT_THAT(message([&] { batch_norm_training(one, p, p); }),
              AllOf(StartsWith("[batch_norm_training] needs more than one value per channel"), here));
  EXPECT_THAT(message([&] { batch_norm_training(x, p, p, {}, {}, 1.5); }),
              AllOf(StartsWith("[batch_norm_training] momentum"), here));
  EXPECT_THAT(message([&] { batch_norm_training(x, q, p); }),
              AllOf(StartsWith("[batch_norm_training] running_mean must be a state of type f32[6], not f32[3]"), here));
}

}  // namespace
}  // namespace aeshna::test
