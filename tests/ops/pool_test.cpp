// Pooling beyond its records' cases: PyTorch's rules by hand, which kernels it becomes, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "aeshna/ops.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "support/expect_error.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> gradient(Value y, Value x, const TensorMap& leaves) {
  return value_of(gradients(sum(y), {x})[0], leaves).data;
}

TEST(MaxPool, TheFirstMaximumTakesTheGradient) {
  Graph g;
  const Value x = g.input("x", {1, 1, 2, 4});
  const TensorMap leaves = {{"x", tensor({1, 1, 2, 4}, {5, 5, 1, 2, 5, 0, 2, 2})}};
  const MaxPoolResult y = max_pool_with_indices(x, {.kernel = {2}});
  EXPECT_THAT(value_of(y.values, leaves).data, ElementsAre(5, 2));
  EXPECT_THAT(value_of(y.indices, leaves).data, ElementsAre(0, 3));
  EXPECT_THAT(gradient(y.values, x, leaves), ElementsAre(1, 0, 0, 1, 0, 0, 0, 0));
}

TEST(MaxPool, OverlappingWindowsAddUp) {
  Graph g;
  const Value x = g.input("x", {1, 1, 5});
  const TensorMap leaves = {{"x", tensor({1, 1, 5}, {0, 3, 9, 3, 0})}};
  const Value y = max_pool(x, {.kernel = {3}, .stride = {1}});
  EXPECT_THAT(value_of(y, leaves).data, ElementsAre(9, 9, 9));
  EXPECT_THAT(gradient(y, x, leaves), ElementsAre(0, 0, 3, 0, 0));
}

TEST(MaxPool, PaddingNeverWins) {
  Graph g;
  const Value x = g.input("x", {1, 1, 2, 2});
  const TensorMap leaves = {{"x", tensor({1, 1, 2, 2}, {-7, -8, -kInf, -kInf})}};
  const MaxPoolResult y = max_pool_with_indices(x, {.kernel = {2}, .padding = {1}});
  EXPECT_THAT(value_of(y.values, leaves).data, ElementsAre(-7, -8, -kInf, -kInf));
  EXPECT_THAT(value_of(y.indices, leaves).data, ElementsAre(0, 1, 2, 3));
}

TEST(AvgPool, CountsThePaddingOnRequestAndNeverWhatCeilModeAdds) {
  Graph g;
  const Value x = g.input("x", {1, 1, 4});
  const TensorMap leaves = {{"x", tensor({1, 1, 4}, {1, 2, 3, 4})}};
  const auto pooled = [&](PoolOptions options) { return value_of(avg_pool(x, options), leaves).data; };
  EXPECT_THAT(pooled({.kernel = {2}, .padding = {1}}), ElementsAre(0.5, 2.5, 2));
  EXPECT_THAT(pooled({.kernel = {2}, .padding = {1}, .count_include_pad = false}), ElementsAre(1, 2.5, 4));
  EXPECT_THAT(pooled({.kernel = {3}, .ceil_mode = true}), ElementsAre(2, 4));
  EXPECT_THAT(pooled({.kernel = {3}}), ElementsAre(2));
  // The last window would start behind the data: PyTorch leaves it out.
  EXPECT_THAT(pooled({.kernel = {1}, .stride = {4}, .ceil_mode = true}), ElementsAre(1));
}

TEST(AdaptivePool, FollowsPyTorchsWindows) {
  Graph g;
  const Value x = g.input("x", {1, 1, 5}), image = g.input("image", {1, 1, 3, 5});
  const TensorMap leaves = {{"x", tensor({1, 1, 5}, {1, 2, 4, 8, 16})},
                            {"image", tensor({1, 1, 3, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})}};
  // [0, 2), [1, 4), [3, 5)
  const auto y = value_of(adaptive_avg_pool(x, {3}), leaves).data;
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(y[0], 1.5, 1e-6);
  EXPECT_NEAR(y[1], 14.0 / 3, 1e-6);
  EXPECT_NEAR(y[2], 12, 1e-6);
  const auto z = value_of(adaptive_avg_pool(image, {2, 2}), leaves).data;  // rows [0, 2) [1, 3), columns [0, 3) [2, 5)
  ASSERT_EQ(z.size(), 4u);
  EXPECT_NEAR(z[0], 4.5, 1e-5);
  EXPECT_NEAR(z[3], 11.5, 1e-5);
  EXPECT_THAT(value_of(adaptive_max_pool(image, {3, 1}), leaves).data, ElementsAre(5, 10, 15));
  EXPECT_THAT(value_of(global_avg_pool(image), leaves).data, ElementsAre(testing::DoubleNear(8, 1e-6)));
  EXPECT_THAT(value_of(global_max_pool(image), leaves).data, ElementsAre(15));
}

TEST(PoolPlan, OneKernelEachWay) {
  for (const bool average : {false, true}) {
    for (const PoolOptions& options : {PoolOptions{.kernel = {2}}, PoolOptions{.kernel = {3}, .stride = {2}, .padding = {1}}}) {
      Graph g;
      const Value x = g.input("x", {4, 64, 56, 56});
      const Value y = average ? avg_pool(x, options) : max_pool(x, options);
      g.output("y", y);
      g.output("dx", gradients(sum(y * g.input("u", y.shape())), {x})[0]);
      const Plan plan = compile_plan(g, {}, Caps{});
      EXPECT_EQ(check_plan(plan, Caps{}), std::vector<std::string>{});
      // Cut to x's extents where the stride does not divide them: an output of the graph is then copied out once more.
      EXPECT_LE(plan.steps.size(), options.kernel[0] == 2 ? 2u : 3u) << print_plan(plan);
    }
  }
}

TEST(Pool, ErrorsNameOpAttributeAndLine) {
  Graph g;
  const Value x = g.input("x", {1, 2, 5, 7});
  const auto here = HasSubstr("pool_test.cpp:");
  EXPECT_THAT(message([&] { max_pool(x, {.kernel = {6, 2}}); }),
              AllOf(StartsWith("[max_pool] a kernel of 6"), HasSubstr("axis 2"), HasSubstr("f32[1, 2, 5, 7]"), here));
  EXPECT_THAT(message([&] { avg_pool(x, {.kernel = {3}, .padding = {2}}); }),
              AllOf(StartsWith("[avg_pool] padding (2, 2) of axis 2 is more than 1"), here));
  EXPECT_THAT(message([&] { max_pool(x, {.kernel = {2}, .stride = {0}}); }), AllOf(StartsWith("[max_pool]"), HasSubstr("stride 0"), here));
  EXPECT_THAT(message([&] { max_pool(x, {.kernel = {2, 2, 2}}); }),
              AllOf(StartsWith("[max_pool] kernel has 3 entries for 2 spatial axes"), here));
  EXPECT_THAT(message([&] { max_pool(x, {.kernel = {}}); }), AllOf(StartsWith("[max_pool] needs a kernel"), here));
  EXPECT_THAT(message([&] { max_pool(g.input("m", {2, 3}), {.kernel = {2}}); }),
              AllOf(StartsWith("[max_pool] needs x [N, C, spatial...]"), here));
  EXPECT_THAT(message([&] { adaptive_max_pool(x, {2, 7}); }), AllOf(StartsWith("[adaptive_max_pool]"), HasSubstr("divide"), here));
  EXPECT_THAT(message([&] { adaptive_avg_pool(x, {0, 7}); }), AllOf(StartsWith("[adaptive_avg_pool] cannot make 0"), here));
  EXPECT_THAT(message([&] { max_pool(g.input("d", {1, 1, 1}), {.kernel = {2}, .stride = {1}, .padding = {2}, .dilation = {3}}); }),
              AllOf(StartsWith("[max_pool] window 0 of axis 2 sees nothing but padding"), here));
}

}  // namespace
}  // namespace aeshna::test
