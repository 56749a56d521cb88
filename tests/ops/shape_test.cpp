// Movement, reductions and products: values by hand, the public functions' argument rules, error messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "aeshna/ops.h"
#include "support/expect_error.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> count(std::int64_t n) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i));
  return v;
}

const auto here = HasSubstr("shape_test.cpp:");

TEST(Shape, ReshapeResolvesOneDimension) {
  Graph g;
  const Value x = g.input("x", {2, 3, 4});
  EXPECT_EQ(reshape(x, {-1, 4}).shape(), (Shape{6, 4}));
  EXPECT_EQ(reshape(x, {24}).shape(), (Shape{24}));
  EXPECT_EQ(reshape(g.input("e", {0, 4}), {-1, 2}).shape(), (Shape{0, 2}));
  EXPECT_THAT(message([&] { reshape(x, {5, -1}); }), AllOf(StartsWith("[reshape]"), HasSubstr("[2, 3, 4]"), here));
  EXPECT_THAT(message([&] {
                reshape(x, {5, 5});
              }),
              AllOf(StartsWith("[reshape]"), HasSubstr("f32[2, 3, 4]"), HasSubstr("25"), here));
  EXPECT_THAT(message([&] { reshape(x, {-1, -1}); }), AllOf(StartsWith("[reshape] only one"), here));
  EXPECT_THAT(message([&] { reshape(x, {-2, 3}); }), AllOf(StartsWith("[reshape]"), here));
}

TEST(Shape, PermuteMovesTheData) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  EXPECT_THAT(value_of(transpose(x), {{"x", tensor({2, 3}, count(6))}}).data, ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(permute(g.input("y", {2, 3, 4}), {-1, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_THAT(message([&] {
                permute(x, {0, 0});
              }),
              AllOf(StartsWith("[permute] axis 0 is listed twice"), HasSubstr("f32[2, 3]"), here));
  EXPECT_THAT(message([&] { permute(x, {0, 2}); }), AllOf(StartsWith("[permute] axis 2 is out of range"), here));
  EXPECT_THAT(message([&] { permute(x, {0}); }), AllOf(StartsWith("[permute]"), HasSubstr("one entry per axis"), here));
  EXPECT_THAT(message([&] { transpose(g.input("v", {3})); }), AllOf(StartsWith("[transpose]"), here));
}

TEST(Shape, SliceFollowsNumpy) {
  Graph g;
  const Value x = g.input("x", {10});
  const TensorMap data = {{"x", tensor({10}, count(10))}};
  EXPECT_THAT(value_of(slice(x, {0}, {-3}, {100}), data).data, ElementsAre(7, 8, 9));
  EXPECT_THAT(value_of(slice(x, {-1}, {1}, {-1}, {3}), data).data, ElementsAre(1, 4, 7));
  EXPECT_THAT(value_of(slice(x, {}, {-100}, {2}), data).data, ElementsAre(0, 1));
  EXPECT_TRUE(value_of(slice(x, {0}, {5}, {5}), data).data.empty());
  EXPECT_TRUE(value_of(slice(x, {0}, {7}, {2}), data).data.empty());
  EXPECT_THAT(message([&] { slice(x, {0}, {0}, {5}, {0}); }), AllOf(StartsWith("[slice] step 0"), here));
  EXPECT_THAT(message([&] { slice(x, {1}, {0}, {5}); }), AllOf(StartsWith("[slice] axis 1 is out of range"), here));
  EXPECT_THAT(message([&] {
                slice(x, {0}, {0, 1}, {5});
              }),
              AllOf(StartsWith("[slice]"), HasSubstr("equal lengths"), here));
}

TEST(Shape, SliceGradientWithAStepIsExactForEverySize) {
  for (std::int64_t extent = 1; extent <= 9; ++extent) {
    for (std::int64_t step = 1; step <= 5; ++step) {
      for (std::int64_t start = 0; start < extent; ++start) {
        Graph g;
        const Value x = g.input("x", {2, extent});
        const Value y = slice(x, {1}, {start}, {extent}, {step});
        const Value dx = gradients(sum(y * y), {x})[0];
        HostTensor values = tensor({2, extent}, count(2 * extent));
        const auto got = value_of(dx, {{"x", values}}).data;
        for (std::int64_t i = 0; i < 2 * extent; ++i) {
          const std::int64_t column = i % extent;
          const bool taken = column >= start && (column - start) % step == 0;
          EXPECT_EQ(got[static_cast<std::size_t>(i)], taken ? 2.0 * static_cast<double>(i) : 0)
              << extent << " " << start << " " << step;
        }
      }
    }
  }
}

TEST(Shape, ConcatPadExpandIota) {
  Graph g;
  const Value a = g.input("a", {2, 1}), b = g.input("b", {2, 2});
  const TensorMap data = {{"a", tensor({2, 1}, {1, 2})}, {"b", tensor({2, 2}, {3, 4, 5, 6})}};
  EXPECT_THAT(value_of(concat({a, b}, -1), data).data, ElementsAre(1, 3, 4, 2, 5, 6));
  EXPECT_THAT(value_of(pad(a, {0, 1}, {1, 0}, -1), data).data, ElementsAre(-1, 1, -1, 2, -1, -1));
  EXPECT_THAT(value_of(expand(a, {2, 3}), data).data, ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(value_of(iota(g, {2, 3}, -1), data).data, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(iota(g, {2, 3}, 0).dtype(), DType::i32);
  const Value i = g.input("i", {2, 1}, DType::i32);
  EXPECT_THAT(message([&] {
                concat({a, i}, 0);
              }),
              AllOf(StartsWith("[concat]"), HasSubstr("f32[2, 1]"), HasSubstr("i32[2, 1]"), here));
  EXPECT_THAT(message([&] { concat({a, b}, 0); }), AllOf(StartsWith("[concat]"), HasSubstr("f32[2, 2]"), here));
  EXPECT_THAT(message([&] { concat({a, b}, 2); }), AllOf(StartsWith("[concat] axis 2 is out of range"), here));
  EXPECT_THAT(message([&] { concat({}, 0); }), AllOf(StartsWith("[concat]"), here));
  EXPECT_THAT(message([&] { pad(a, {-1, 0}, {0, 0}); }), AllOf(StartsWith("[pad] negative padding"), here));
  EXPECT_THAT(message([&] { pad(i, {1, 0}, {0, 0}, 0.5); }), AllOf(StartsWith("[pad]"), HasSubstr("0.5"), here));
  EXPECT_THAT(message([&] {
                expand(b, {2, 3});
              }),
              AllOf(StartsWith("[expand] cannot broadcast f32[2, 2] to [2, 3]"), here));
  EXPECT_THAT(message([&] { iota(g, {2}, 1); }), AllOf(StartsWith("[iota]"), here));
  EXPECT_THAT(message([&] { reshape(a, {1, 1, 1, 1, 1, 1, 1, 1, 2}); }), AllOf(StartsWith("[reshape]"), here));
}

TEST(Reduce, ByHand) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const TensorMap data = {{"x", tensor({2, 3}, {1, 5, 5, -2, 0, 4})}};
  EXPECT_THAT(value_of(sum(x), data).data, ElementsAre(13));
  EXPECT_THAT(value_of(sum(x, {0}), data).data, ElementsAre(-1, 5, 9));
  EXPECT_EQ(sum(x, {-1}, true).shape(), (Shape{2, 1}));
  EXPECT_THAT(value_of(mean(x, {1}), data).data, ElementsAre(11.0 / 3, 2.0 / 3));
  EXPECT_THAT(value_of(reduce_max(x, {1}), data).data, ElementsAre(5, 4));
  EXPECT_THAT(value_of(reduce_min(x, {0}), data).data, ElementsAre(-2, 0, 4));
  EXPECT_THAT(value_of(prod(x, {1}), data).data, ElementsAre(25, 0));
  EXPECT_THAT(value_of(argmax(x, 1), data).data, ElementsAre(1, 2));  // the first of two
  EXPECT_THAT(value_of(argmin(x, 0), data).data, ElementsAre(1, 1, 1));
  EXPECT_EQ(argmax(x, 1).dtype(), DType::i32);
  // Ties share the gradient, as torch.amax.
  EXPECT_THAT(value_of(gradients(sum(reduce_max(x, {1})), {x})[0], data).data, ElementsAre(0, 0.5, 0.5, 0, 0, 1));
  // One zero, and two zeros, in a product.
  EXPECT_THAT(value_of(gradients(sum(prod(x, {1})), {x})[0], data).data, ElementsAre(25, 5, 5, 0, -8, 0));
  EXPECT_THAT(value_of(gradients(sum(prod(x, {1})), {x})[0], {{"x", tensor({2, 3}, {0, 0, 3, 2, 0, 4})}}).data,
              ElementsAre(0, 0, 0, 0, 8, 0));
}

TEST(Reduce, NothingToReduce) {
  Graph g;
  const Value e = g.input("e", {2, 0});
  const TensorMap data = {{"e", tensor({2, 0}, {})}};
  EXPECT_THAT(value_of(sum(e, {1}), data).data, ElementsAre(0, 0));
  EXPECT_THAT(value_of(prod(e, {1}), data).data, ElementsAre(1, 1));
  for (auto f : {mean, reduce_max, reduce_min, logsumexp}) {
    EXPECT_THAT(message([&] { f(e, {1}, false); }),
                AllOf(HasSubstr("nothing to reduce: f32[2, 0]"), HasSubstr("shape_test.cpp:")));
    EXPECT_EQ(f(e, {0}, false).shape(), (Shape{0}));
  }
  EXPECT_THAT(message([&] { argmax(e, 1); }), AllOf(StartsWith("[argmax] nothing to reduce"), here));
  EXPECT_EQ(sum(g.input("s", {})).shape(), Shape{});
}

TEST(Reduce, NanAndInfinity) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const TensorMap data = {{"x", tensor({2, 3}, {1, kNan, 2, -kInf, -kInf, -kInf})}};
  EXPECT_TRUE(std::isnan(value_of(reduce_max(x, {1}), data).data[0]));
  EXPECT_TRUE(std::isnan(value_of(reduce_min(x, {1}), data).data[0]));
  EXPECT_THAT(value_of(argmax(x, 1), data).data, ElementsAre(1, 0));
  EXPECT_THAT(value_of(argmin(x, 1), data).data, ElementsAre(0, 0));
  EXPECT_EQ(value_of(logsumexp(x, {1}), data).data[1], -kInf);
  EXPECT_EQ(value_of(logsumexp(x, {1}), {{"x", tensor({2, 3}, {1, kInf, 2, 1e4, 1e4, 1e4})}}).data[0], kInf);
  EXPECT_NEAR(value_of(logsumexp(x, {1}), {{"x", tensor({2, 3}, {1, kInf, 2, 1e4, 1e4, 1e4})}}).data[1],
              1e4 + std::log(3.0), 1e-10);
  // A row of -inf has gradient 0, not NaN.
  EXPECT_THAT(
      value_of(gradients(sum(logsumexp(x, {1})), {x})[0], {{"x", tensor({2, 3}, {0, 0, 0, -kInf, -kInf, -kInf})}}).data,
      ElementsAre(testing::DoubleEq(1.0 / 3), testing::DoubleEq(1.0 / 3), testing::DoubleEq(1.0 / 3), 0, 0, 0));
}

TEST(Reduce, Errors) {
  Graph g;
  const Value x = g.input("x", {2, 3}), i = g.input("i", {2, 3}, DType::i32), b = g.input("b", {2}, DType::boolean);
  EXPECT_THAT(message([&] { sum(x, {2}); }), AllOf(StartsWith("[sum] axis 2 is out of range for rank 2"), here));
  EXPECT_THAT(message([&] { sum(x, {0, -2}); }), AllOf(StartsWith("[sum] axis 0 is listed twice"), here));
  EXPECT_THAT(message([&] { mean(i); }), AllOf(StartsWith("[mean]"), HasSubstr("i32"), here));
  EXPECT_THAT(message([&] { sum(b); }), AllOf(StartsWith("[sum]"), HasSubstr("bool[2]"), here));
  EXPECT_THAT(message([&] { softmax(x, 2); }),
              AllOf(StartsWith("[softmax] axis 2 is out of range"), HasSubstr("f32[2, 3]"), here));
}

TEST(Matmul, ByHandAndRankRules) {
  Graph g;
  const Value a = g.input("a", {2, 3}), v = g.input("v", {3}), t = g.input("t", {4, 5, 3});
  const TensorMap data = {
      {"a", tensor({2, 3}, count(6))}, {"v", tensor({3}, {1, 10, 100})}, {"t", tensor({4, 5, 3}, count(60))}};
  EXPECT_THAT(value_of(matmul(a, v), data).data, ElementsAre(210, 543));
  EXPECT_EQ(matmul(a, v).shape(), (Shape{2}));
  EXPECT_EQ(matmul(v, v).shape(), Shape{});
  EXPECT_THAT(value_of(matmul(v, v), data).data, ElementsAre(10101));
  EXPECT_EQ(matmul(v, transpose(a)).shape(), (Shape{2}));
  EXPECT_THAT(value_of(matmul(a, a, false, true), data).data, ElementsAre(5, 14, 14, 50));
  EXPECT_EQ(matmul(a, a, true).shape(), (Shape{3, 3}));
  EXPECT_EQ(matmul(t, a, false, true).shape(), (Shape{4, 5, 2}));  // flattened to one product and back
  EXPECT_EQ(matmul(t, v).shape(), (Shape{4, 5}));
  EXPECT_THAT(value_of(slice(matmul(t, a, false, true), {0, 1}, {3, 4}, {4, 5}), data).data,
              ElementsAre(58 + 2 * 59, 57 * 3 + 58 * 4 + 59 * 5));
  const Value e = matmul(g.input("l", {2, 0}), g.input("r", {0, 2}));
  TensorMap empty = data;
  empty.emplace("l", tensor({2, 0}, {}));
  empty.emplace("r", tensor({0, 2}, {}));
  EXPECT_THAT(value_of(e, empty).data, ElementsAre(0, 0, 0, 0));
}

TEST(Matmul, Errors) {
  Graph g;
  const Value a = g.input("a", {2, 3}), b = g.input("b", {4, 5}), i = g.input("i", {3, 2}, DType::i32),
              v = g.input("v", {3}), s = g.input("s", {});
  const Value t = g.input("t", {2, 4, 3}), u = g.input("u", {3, 3, 4});
  EXPECT_THAT(message([&] { matmul(a, b); }),
              AllOf(StartsWith("[matmul] contracted extents differ: f32[2, 3] has 3, f32[4, 5] has 4"), here));
  EXPECT_THAT(message([&] { matmul(a, i); }),
              AllOf(StartsWith("[matmul]"), HasSubstr("f32[2, 3]"), HasSubstr("i32[3, 2]"), here));
  EXPECT_THAT(message([&] { matmul(i, i, true); }),
              AllOf(StartsWith("[matmul] is defined for floats, not for i32"), here));
  EXPECT_THAT(message([&] { matmul(t, u); }),
              AllOf(StartsWith("[matmul]"), HasSubstr("f32[2, 4, 3]"), HasSubstr("f32[3, 3, 4]"), here));
  EXPECT_THAT(message([&] { matmul(s, a); }), AllOf(StartsWith("[matmul] scalars"), here));
  EXPECT_THAT(message([&] { matmul(v, a, true); }), AllOf(StartsWith("[matmul] a vector cannot be transposed"), here));
  EXPECT_THAT(message([&] {
                linear(a, g.input("w", {7, 4}));
              }),
              AllOf(StartsWith("[matmul]"), HasSubstr("f32[7, 4]"), here));
}

}  // namespace
}  // namespace aeshna::test
