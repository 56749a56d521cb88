// Random numbers and dropout: statistics, errors, the same mask forward and backward, exact resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::Each;

TensorMap generator(double step = 4) {
  return {{"aeshna.seed", tensor({2}, {123, 456}, DType::u32)}, {"aeshna.step", tensor({}, {step}, DType::u32)}};
}

TEST(RandomTensors, ErrorsNameTheOpAndTheLine) {
  Graph g;
  const Value x = g.input("x", {4});
  EXPECT_ERROR(dropout(x, 1), ErrorCode::InvalidArgument, "[dropout] p must lie in [0, 1), not 1");
  EXPECT_ERROR(dropout(x, -0.1), ErrorCode::InvalidArgument, "random_test.cpp:");
  EXPECT_ERROR(dropout(x, std::nan("")), ErrorCode::InvalidArgument, "[dropout]");
  EXPECT_ERROR(dropout(g.input("i", {4}, DType::i32), 0.5), ErrorCode::DTypeMismatch, "[dropout] is defined for floats");
  EXPECT_ERROR(random_uniform(g, {2}, 1, 1), ErrorCode::InvalidArgument, "[random_uniform] low = 1 and high = 1");
  EXPECT_ERROR(random_normal(g, {2}, 0, -1), ErrorCode::InvalidArgument, "[random_normal]");
  EXPECT_ERROR(random_bernoulli(g, {2}, 1.5), ErrorCode::InvalidArgument, "[random_bernoulli] p must lie in [0, 1], not 1.5");
  EXPECT_ERROR(random_int(g, {2}, 5, 5), ErrorCode::InvalidArgument, "[random_int] [5, 5)");
  EXPECT_ERROR(random_int(g, {2}, -2147483648ll, 2147483647ll), ErrorCode::InvalidArgument, "[random_int]");
  EXPECT_ERROR(random_categorical(g.input("none", {3, 0})), ErrorCode::ShapeMismatch, "[random_categorical]");
}

TEST(RandomTensors, StatisticsAndBounds) {
  Graph g;
  constexpr std::int64_t kCount = 20'000;
  const auto values = [&](Value v) { return value_of(v, generator()).data; };
  const auto mean = [](const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x;
    return sum / static_cast<double>(v.size());
  };
  const auto uniform = values(random_uniform(g, {kCount}, 3, 5));
  EXPECT_NEAR(mean(uniform), 4, 0.02);
  EXPECT_THAT(uniform, Each(testing::AllOf(testing::Ge(3), testing::Lt(5))));
  const auto normal = values(random_normal(g, {kCount}, -2, 3));
  EXPECT_NEAR(mean(normal), -2, 0.1);
  double variance = 0;
  for (const double v : normal) variance += (v + 2) * (v + 2) / static_cast<double>(kCount);
  EXPECT_NEAR(variance, 9, 0.4);
  EXPECT_NEAR(mean(values(random_bernoulli(g, {kCount}, 0.3))), 0.3, 0.015);
  EXPECT_THAT(values(random_bernoulli(g, {100}, 1)), Each(1));
  EXPECT_THAT(values(random_bernoulli(g, {100}, 0)), Each(0));
  const auto integers = values(random_int(g, {kCount}, -3, 4));
  EXPECT_EQ(std::set(integers.begin(), integers.end()), (std::set<double>{-3, -2, -1, 0, 1, 2, 3}));
  EXPECT_NEAR(mean(integers), 0, 0.06);
  const auto wide = values(random_int(g, {100}, -5, 2147483642));
  EXPECT_GT(std::ranges::max(wide), 1.5e9);
  EXPECT_GE(std::ranges::min(wide), -5);

  // Classes with probabilities 1/8, 5/8, 0, 2/8.
  const Value logits = expand(g.constant(Literal::from_doubles({DType::f32, {4}}, std::vector<double>{0, std::log(5), -1e30, std::log(2)})), {kCount, 4});
  std::vector<double> counts(4);
  for (const double c : values(random_categorical(logits))) counts[static_cast<std::size_t>(c)] += 1.0 / static_cast<double>(kCount);
  EXPECT_NEAR(counts[0], 0.125, 0.01);
  EXPECT_NEAR(counts[1], 0.625, 0.015);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 0.25, 0.015);
}

TEST(Dropout, KeepsTheExpectationAndDrawsByStepAndNode) {
  Graph g;
  const Value x = g.input("x", {20'000});
  HostTensor ones(x.type());
  std::ranges::fill(ones.data, 1.0);
  const auto at = [&](Value v, double step) {
    TensorMap data = generator(step);
    data.emplace("x", ones);
    return value_of(v, data).data;
  };
  const Value first = dropout(x, 0.3), second = dropout(x, 0.3);
  const auto a = at(first, 1);
  EXPECT_THAT(a, Each(testing::AnyOf(0, 1 / 0.7)));
  EXPECT_NEAR(static_cast<double>(std::ranges::count(a, 0.0)), 6000, 250);
  EXPECT_NE(a, at(first, 2));
  EXPECT_NE(a, at(second, 1));
  EXPECT_EQ(a, at(first, 1));
  EXPECT_EQ(at(dropout(x, 0), 1), ones.data);
}

/// w of n elements under dropout; the loss is the sum of what is left.
void build(Graph& g, std::int64_t n) {
  const Value w = g.parameter("w", {n}, {.init = Init::constant(1)});
  const Value left = dropout(w, 0.25);
  g.output("left", left);
  g.output("loss", sum(left * left) * 0.5);
}

std::size_t count_kernels(const Graph& g, const PipelineOptions& options) {
  return compile_plan(g, options, {}).steps.size();
}

TEST(Dropout, IsTheIdentityForInferenceUnlessAlways) {
  Graph g, always;
  g.output("y", dropout(g.input("x", {64}), 0.5) * 2.0);
  EXPECT_THAT(dump_stage(g, {}, {}, "verify"), testing::Not(testing::HasSubstr("dropout")));
  EXPECT_EQ(count_kernels(g, {}), 1);
  EXPECT_THAT(compile_plan(g, {}, {}).states, testing::IsEmpty());
  always.output("y", dropout(always.input("x", {64}), 0.5, true) * 2.0);
  EXPECT_THAT(dump_stage(always, {}, {}, "verify"), testing::HasSubstr("dropout"));
}

TEST(DropoutDevice, TheBackwardPassDrawsTheSameMask) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kCount = 1031;
  Graph g;
  build(g, kCount);
  const Weights weights(g, {.seed = 5, .device = *test_device().device});
  Session session = compile(g, weights, {.mode = Mode::Training, .gradients = {"w"}, .update = false});
  session.step();
  session.wait();
  const std::vector<float> left = session.read("left"), gradient = session.read("grad/w");
  const float scale = 1 / 0.75f;
  int dropped = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    dropped += left[i] == 0;
    ASSERT_EQ(left[i], left[i] == 0 ? 0 : scale) << i;
    ASSERT_FLOAT_EQ(gradient[i], left[i] == 0 ? 0 : scale * scale) << i;
  }
  EXPECT_NEAR(dropped, 258, 60);
}

TEST(DropoutDevice, AResumedRunDrawsWhatTheUnbrokenOneDoes) {
  AESHNA_NEED_DEVICE();
  for (const std::uint32_t accumulate : {1u, 2u}) {
    Graph g;
    build(g, 256);
    const TempDir dir;
    CompileOptions options{.mode = Mode::Training, .optimizer = Sgd{.lr = 0.01f}};
    options.train.accumulate = accumulate;
    const Weights weights(g, {.seed = 5, .device = *test_device().device});
    std::set<std::vector<float>> masks;
    std::vector<float> last;
    {
      Session session = compile(g, weights, options);
      for (int step = 0; step < 6; ++step) {
        if (step == 4) session.save(dir / "half");
        session.step();
        session.wait();
        last = session.read("left");
        std::vector<float> mask;
        for (const float v : last) mask.push_back(v == 0 ? 0.0f : 1.0f);
        masks.insert(mask);
      }
    }
    EXPECT_EQ(masks.size(), 6) << "every step and micro-step draws anew";
    const Weights others(g, {.seed = 99, .device = *test_device().device});
    Session resumed = compile(g, others, options);
    resumed.load(dir / "half");
    for (int step = 4; step < 6; ++step) {
      resumed.step();
      resumed.wait();
    }
    EXPECT_EQ(resumed.read("left"), last);
    EXPECT_EQ(others.get("w"), weights.get("w"));
  }
}

TEST(RandomDevice, InferenceDrawsAnewEachStepAndLeavesTrainingAlone) {
  AESHNA_NEED_DEVICE();
  Graph g;
  g.output("u", random_uniform(g, {64}));
  g.output("i", random_int(g, {64}, 0, 10));
  g.output("b", random_bernoulli(g, {64}, 0.5));
  const Weights weights(g, {.seed = 5, .device = *test_device().device});
  Session session = compile(g, weights);
  std::set<std::vector<float>> seen;
  for (int step = 0; step < 3; ++step) {
    session.step();
    session.wait();
    seen.insert(session.read("u"));
    TensorMap data = generator(step);
    const Literal seed = weights.get("aeshna.seed");
    data.at("aeshna.seed").data = seed.to_doubles();
    const InterpreterResult want = interpret(g, data);
    for (const char* name : {"u", "i", "b"}) EXPECT_EQ(session.read_literal(name).to_doubles(), want.outputs.at(name).data) << name;
  }
  EXPECT_EQ(seen.size(), 3);
  EXPECT_EQ(weights.get("aeshna.step").at(0), 0);
  EXPECT_EQ(weights.get("aeshna.draw").at(0), 3);
}

}  // namespace
}  // namespace aeshna::test
