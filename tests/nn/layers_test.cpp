#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aeshna/nn.h"
#include "support/expect_error.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Linear, IsXTimesWeightTransposedPlusBias) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const Value y = nn::linear(x, 2, "fc");
  ASSERT_TRUE(g.leaf("fc.weight") && g.leaf("fc.bias"));
  EXPECT_EQ(g.node(*g.leaf("fc.weight")).results[0].shape, (Shape{2, 3}));  // [out, in]
  EXPECT_EQ(g.node(*g.leaf("fc.bias")).results[0].shape, (Shape{2}));
  EXPECT_THAT(g.node(*g.leaf("fc.weight")).line.to_string(), HasSubstr("layers_test.cpp:"));
  const TensorMap data = {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})},
                          {"fc.weight", tensor({2, 3}, {1, 0, 0, 0, 1, 1})},
                          {"fc.bias", tensor({2}, {10, 20})}};
  EXPECT_THAT(value_of(y, data).data, ElementsAre(11, 25, 14, 31));
}

TEST(Linear, KeepsLeadingDimensionsAndMayLackABias) {
  Graph g;
  EXPECT_EQ(nn::linear(g.input("x", {2, 5, 3}), 7, "a", {.bias = false}).shape(), (Shape{2, 5, 7}));
  EXPECT_FALSE(g.leaf("a.bias"));
  EXPECT_EQ(nn::linear(g.input("v", {3}), 7, "b").shape(), (Shape{7}));
}

TEST(Mlp, NamesItsLayers) {
  Graph g;
  const Scope scope(g, "net");
  const Value y = nn::mlp(g.input("x", {4, 8}), {16, 5}, 3, "mlp");
  EXPECT_EQ(y.shape(), (Shape{4, 3}));
  for (const char* name : {"net/mlp.0.weight", "net/mlp.1.weight", "net/mlp.2.weight", "net/mlp.2.bias"})
    EXPECT_TRUE(g.leaf(name)) << name;
  EXPECT_EQ(g.node(*g.leaf("net/mlp.1.weight")).results[0].shape, (Shape{5, 16}));
  int relus = 0;
  for (const Node& node : g.nodes()) relus += node.op->name == "relu";
  EXPECT_EQ(relus, 2);
}

TEST(Linear, ImpossibleSizesNameTheCall) {
  Graph g;
  const Value x = g.input("x", {2, 4, 32}), ids = g.input("ids", {2}, DType::i32);
  constexpr std::int64_t huge = std::int64_t{1} << 60;
  EXPECT_ERROR(nn::linear(x, huge, "fc"), ErrorCode::LimitExceeded,
               "[parameter] the number of elements of shape [1152921504606846976, 32]");
  EXPECT_ERROR(nn::embedding(ids, huge, 64, "e"), ErrorCode::LimitExceeded, "layers_test.cpp:");
  EXPECT_EQ(nn::embedding(ids, std::int64_t{1} << 40, 4, "rows").shape(), (Shape{2, 4}))
      << "more rows than an i32 counts";
}

TEST(Linear, Errors) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const auto message = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const auto here = HasSubstr("layers_test.cpp:");
  EXPECT_THAT(message([&] { nn::linear(x, 0, "fc"); }), AllOf(StartsWith("[nn::linear] 'fc'"), here));
  EXPECT_THAT(message([&] { nn::linear(x, 2, ""); }), AllOf(StartsWith("[nn::linear] needs a name"), here));
  EXPECT_THAT(message([&] { nn::linear(g.input("s", {}), 2, "fc"); }),
              AllOf(StartsWith("[nn::linear] 'fc'"), HasSubstr("f32[]"), here));
  nn::linear(x, 2, "twice");
  EXPECT_THAT(message([&] { nn::linear(x, 2, "twice"); }), AllOf(HasSubstr("twice.weight"), here));
}

}  // namespace
}  // namespace aeshna::test
