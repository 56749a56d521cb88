// Scans, sorts and repeats: errors, special values, order of equal keys, plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "ops/build.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Dispatches of a sound plan of g for a device with default limits.
std::vector<std::string> dispatched(const Graph& g, const Caps& caps = {}) {
  const Plan plan = compile_plan(g, {}, caps);
  EXPECT_THAT(check_plan(plan, caps), testing::IsEmpty());
  std::vector<std::string> families;
  for (const PlanStep& step : plan.steps) families.push_back(step.spec.family);
  return families;
}

/// One forward pass on the test device.
std::vector<std::vector<double>> on_device(const Graph& g, const TensorMap& inputs, const std::vector<std::string>& outputs) {
  Session session = compile(g, Weights(*test_device().device));
  for (const auto& [name, value] : inputs) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  session.wait();
  std::vector<std::vector<double>> values;
  for (const std::string& name : outputs) values.push_back(session.read_literal(name).to_doubles());
  return values;
}

TEST(Cumsum, ErrorsNameTheOpAndTheLine) {
  Graph g;
  const Value x = g.input("x", {3, 4});
  EXPECT_ERROR(cumsum(x, 2), ErrorCode::InvalidArgument, "[cumsum] axis 2 is out of range for rank 2");
  EXPECT_ERROR(cumsum(x, -3), ErrorCode::InvalidArgument, "order_test.cpp:");
  EXPECT_ERROR(cumsum(g.input("b", {3}, DType::boolean), 0), ErrorCode::DTypeMismatch, "not for bool");
  EXPECT_ERROR(cumsum(g.input("s", {}), 0), ErrorCode::InvalidArgument, "rank 0");
}

TEST(Cumsum, IntegersWrapAndInfinityStays) {
  Graph g;
  const Value x = g.input("x", {3}, DType::i32), y = g.input("y", {4});
  const TensorMap data = {{"x", tensor({3}, {2147483647, 1, 5}, DType::i32)}, {"y", tensor({4}, {1, kInf, 2, -kInf})}};
  EXPECT_THAT(value_of(cumsum(x, 0), data).data, ElementsAre(2147483647, -2147483648.0, -2147483643.0));
  const auto sums = value_of(cumsum(y, -1), data).data;
  EXPECT_THAT(std::vector(sums.begin(), sums.begin() + 3), ElementsAre(1, kInf, kInf));
  EXPECT_TRUE(std::isnan(sums[3]));
}

TEST(Cumsum, LongRowsTakeThreeDispatches) {
  Graph g;
  g.output("y", cumsum(g.input("x", {1 << 24}), 0));
  EXPECT_THAT(dispatched(g), ElementsAre("scan", "scan", "scan"));
  Graph many;
  many.output("y", cumsum(many.input("x", {1024, 1 << 14}), 1));
  EXPECT_THAT(dispatched(many), ElementsAre("scan"));
  Graph longest;  // its sums are cut into blocks again
  longest.output("y", cumsum(longest.input("x", {1 << 27}), 0));
  Caps caps;
  caps.max_storage_range = 1ull << 30;
  EXPECT_THAT(dispatched(longest, caps), ElementsAre("scan", "scan", "scan", "scan", "scan"));
}

TEST(CumsumDevice, LongRowsAreExactAndReproducible) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kCount = 100'003;
  Graph g;
  const Value x = g.input("x", {kCount});
  g.output("forward", cumsum(x, 0));
  g.output("backward", cumsum(x, 0, true, true));
  HostTensor data(f32_type({kCount}));
  for (std::int64_t i = 0; i < kCount; ++i) data.data[static_cast<std::size_t>(i)] = static_cast<double>(i % 7 - 2);
  const auto got = on_device(g, {{"x", data}}, {"forward", "backward"});
  const auto total = std::accumulate(data.data.begin(), data.data.end(), 0.0);
  double sum = 0;  // small integers: exact in f32
  for (std::size_t i = 0; i < data.data.size(); ++i) {
    sum += data.data[i];
    ASSERT_EQ(got[0][i], sum) << i;
    ASSERT_EQ(got[1][i], total - sum) << i;
  }
  EXPECT_EQ(on_device(g, {{"x", data}}, {"forward", "backward"}), got);
}

TEST(CumsumDevice, SixteenMillionElements) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kCount = 16'776'961;
  Graph g;
  const Value sums = cumsum(g.input("x", {kCount}, DType::i32), 0);
  g.output("y", slice(sums, {0}, {kCount - 3}, {kCount}));  // and a middle part
  g.output("middle", slice(sums, {0}, {kCount / 2}, {kCount / 2 + 2}));
  std::vector<std::int32_t> x(kCount);
  std::int32_t total = 0, middle = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    x[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 31 % 101 - 40);
    total += x[static_cast<std::size_t>(i)];
    if (i == kCount / 2) middle = total;
  }
  Session session = compile(g, Weights(*test_device().device));
  session.set("x", x);
  session.step();
  session.wait();
  EXPECT_THAT(session.read_literal("y").to_doubles(), ElementsAre(total - x.back() - x[x.size() - 2], total - x.back(), total));
  EXPECT_THAT(session.read_literal("middle").to_doubles(), ElementsAre(middle, middle + x[kCount / 2 + 1]));
}

TEST(Sort, ErrorsNameTheOpAndTheLine) {
  Graph g;
  const Value x = g.input("x", {3, 4});
  EXPECT_ERROR(sort(x, 2), ErrorCode::InvalidArgument, "[sort] axis 2 is out of range for rank 2");
  EXPECT_ERROR(topk(x, 5), ErrorCode::OutOfRange, "[topk] k = 5 of an axis of 4 elements");
  EXPECT_ERROR(topk(x, -1), ErrorCode::OutOfRange, "order_test.cpp:");
  EXPECT_ERROR(sort(g.input("b", {3}, DType::boolean), 0), ErrorCode::DTypeMismatch, "not for bool");
}

/// Every kind of f32: NaN is the largest, zeros are equal, equal keys keep their order.
const std::vector<double> kSpecial = {0.0, kNaN, -0.0, kInf, -1, -kInf, kNaN, 1, -1, 0.0};

TEST(Sort, SpecialValuesAndTies) {
  Graph g;
  const Value x = g.input("x", {10});
  const TensorMap data = {{"x", tensor({10}, kSpecial)}};
  const SortResult up = sort(x), down = sort(x, 0, true), best = topk(x, 3), least = topk(x, 4, -1, false);
  EXPECT_THAT(value_of(up.indices, data).data, ElementsAre(5, 4, 8, 0, 2, 9, 7, 3, 1, 6));
  EXPECT_THAT(value_of(down.indices, data).data, ElementsAre(1, 6, 3, 7, 0, 2, 9, 4, 8, 5));
  EXPECT_THAT(value_of(best.indices, data).data, ElementsAre(1, 6, 3));
  EXPECT_THAT(value_of(least.indices, data).data, ElementsAre(5, 4, 8, 0));
  const auto values = value_of(up.values, data).data;
  EXPECT_FALSE(std::signbit(values[3]));
  EXPECT_TRUE(std::signbit(values[4])) << "-0 keeps its sign";
}

TEST(SortDevice, SpecialValuesAndTies) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {10});
  g.output("up", sort(x).indices);
  g.output("down", sort(x, 0, true).indices);
  g.output("values", sort(x).values);
  g.output("least", topk(x, 4, -1, false).indices);
  const auto got = on_device(g, {{"x", tensor({10}, kSpecial)}}, {"up", "down", "values", "least"});
  EXPECT_THAT(got[0], ElementsAre(5, 4, 8, 0, 2, 9, 7, 3, 1, 6));
  EXPECT_THAT(got[1], ElementsAre(1, 6, 3, 7, 0, 2, 9, 4, 8, 5));
  EXPECT_FALSE(std::signbit(got[2][3]));
  EXPECT_TRUE(std::signbit(got[2][4]));
  EXPECT_TRUE(std::isnan(got[2][8]) && std::isnan(got[2][9]));
  EXPECT_THAT(got[3], ElementsAre(5, 4, 8, 0));
}

TEST(SortDevice, LongRowsWithManyEqualKeys) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kRows = 2, kCount = 20'011;
  for (const double distinct : {3.0, 1e6}) {
    Graph g;
    const Value x = g.input("x", {kRows, kCount});
    const SortResult all = sort(x), best = topk(x, 100), most = topk(x, 700, 1, false);
    const std::vector<std::pair<std::string, Value>> outputs = {
        {"v", all.values}, {"i", all.indices}, {"bv", best.values}, {"bi", best.indices}, {"mi", most.indices}};
    HostTensor data(f32_type({kRows, kCount}));
    std::mt19937 engine(5);
    for (double& v : data.data) v = std::floor(static_cast<double>(engine()) / 4294967296.0 * distinct) - 1;
    std::vector<std::string> names;
    for (const auto& [name, value] : outputs) {
      g.output(name, value);
      names.push_back(name);
    }
    const auto got = on_device(g, {{"x", data}}, names);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_EQ(got[i], value_of(outputs[i].second, {{"x", data}}).data) << names[i] << ", " << distinct << " values";
  }
}

TEST(TopK, AVocabularyTakesAHandfulOfDispatches) {
  Graph g;
  g.output("one", topk(g.input("x", {1, 151'936}), 1).indices);
  EXPECT_THAT(dispatched(g), ElementsAre("sort_chunks", "sort_chunks"));
  Graph most;
  most.output("best", topk(most.input("x", {4, 151'936}), 128).values);
  EXPECT_THAT(dispatched(most), ElementsAre("sort_chunks", "sort_chunks", "sort_chunks"));
}

TEST(Tile, RepeatsWithoutAKernel) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const TensorMap data = {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}};
  const Value tiled = tile(x, {2, 2});
  EXPECT_EQ(tiled.shape(), (Shape{4, 6}));
  EXPECT_THAT(value_of(tiled, data).data, ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
  EXPECT_THAT(value_of(repeat_interleave(x, 2, 1), data).data, ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6));
  EXPECT_THAT(value_of(repeat_interleave(x, 2, -2), data).data, ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
  EXPECT_EQ(tile(x, {0, 2}).shape(), (Shape{0, 6}));
  EXPECT_EQ(tile(x, {1, 1}), x);
  EXPECT_ERROR(tile(x, {2}), ErrorCode::InvalidArgument, "[tile] 1 repeats for f32[2, 3]: one per axis is needed");
  EXPECT_ERROR(tile(x, {2, -1}), ErrorCode::InvalidArgument, "[tile] -1 repeats of axis 1");
  EXPECT_ERROR(repeat_interleave(x, 2, 2), ErrorCode::InvalidArgument, "[repeat_interleave] axis 2 is out of range");
  EXPECT_ERROR(tile(x, {1ll << 40, 1ll << 40}), ErrorCode::LimitExceeded, "[tile]");

  Graph fused;
  const Value y = fused.input("y", {2, 3});
  fused.output("z", relu(tile(y, {2, 2})) + repeat_interleave(fused.input("w", {2, 6}), 2, 0));
  EXPECT_THAT(dispatched(fused), ElementsAre("pointwise"));
}

TEST(Tile, GradientSumsTheCopies) {
  Graph g;
  const Value x = g.input("x", {2, 2}), u = g.input("u", {4, 6});
  const Value loss = sum(tile(repeat_interleave(x, 3, 1), {2, 1}) * u);
  const std::vector<Value> gradient = gradients(loss, {x});
  HostTensor weights(f32_type({4, 6}));
  for (std::size_t i = 0; i < 24; ++i) weights.data[i] = static_cast<double>(i);
  const TensorMap data = {{"x", tensor({2, 2}, {1, 2, 3, 4})}, {"u", weights}};
  EXPECT_THAT(value_of(gradient[0], data).data, ElementsAre(42, 60, 78, 96));
}

}  // namespace
}  // namespace aeshna::test
