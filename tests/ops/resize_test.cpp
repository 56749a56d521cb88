// Resizing: published examples, conventions by hand, errors, and what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "aeshna/ops.h"
#include "compile/stages.h"
#include "support/expect_error.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::StartsWith;

std::vector<double> run(Shape shape, std::vector<double> x, const std::function<Value(Value)>& f) {
  Graph g;
  const Value in = g.input("x", shape);
  return value_of(f(in), {{"x", tensor(shape, std::move(x))}}).data;
}

MATCHER(Close, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-6; }

/// The examples of ONNX' Resize.
TEST(Resize, OnnxExamples) {
  const std::vector<double> four = {1, 2, 3, 4}, eight = {1, 2, 3, 4, 5, 6, 7, 8};
  const ResizeOptions linear{.mode = ResizeMode::Linear},
      corners{.mode = ResizeMode::Linear, .coordinates = ResizeCoordinates::AlignCorners};
  EXPECT_THAT(run({2, 2}, four,
                  [&](Value x) {
                    return resize(x, {4, 4}, linear);
                  }),
              Pointwise(Close(), std::vector<double>{1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3,
                                                     3.25, 3.75, 4}));
  EXPECT_THAT(run({2, 2}, four,
                  [&](Value x) {
                    return resize(x, {4, 4}, corners);
                  }),
              Pointwise(Close(), std::vector<double>{1, 4 / 3.0, 5 / 3.0, 2, 5 / 3.0, 2, 7 / 3.0, 8 / 3.0, 7 / 3.0,
                                                     8 / 3.0, 3, 10 / 3.0, 3, 10 / 3.0, 11 / 3.0, 4}));
  EXPECT_THAT(run({2, 4}, eight,
                  [&](Value x) {
                    return resize_by(x, {0.6, 0.6}, linear);
                  }),
              Pointwise(Close(), std::vector<double>{8 / 3.0, 13 / 3.0}));
  EXPECT_THAT(run({2, 4}, eight, [&](Value x) { return resize_by(x, {0.6, 0.6}); }), ElementsAre(1, 3));
  EXPECT_THAT(run({2, 2}, four, [&](Value x) { return resize(x, {2, 3}); }), ElementsAre(1, 1, 2, 3, 3, 4));
  std::vector<double> sixteen;
  for (int i = 1; i <= 16; ++i) sixteen.push_back(i);
  const auto cubic = run({4, 4}, sixteen, [&](Value x) { return resize(x, {8, 8}, {.mode = ResizeMode::Cubic}); });
  EXPECT_THAT(std::vector(cubic.begin(), cubic.begin() + 8),
              Pointwise(Close(), std::vector<double>{0.47265625, 0.76953125, 1.24609375, 1.875, 2.28125, 2.91015625,
                                                     3.38671875, 3.68359375}));
}

TEST(Resize, NearestRoundings) {
  const std::vector<double> x = {0, 1, 2, 3};
  const auto nearest = [&](std::int64_t size, ResizeCoordinates coordinates, NearestRounding rounding) {
    return run({4}, x, [&](Value v) { return resize(v, {size}, {.coordinates = coordinates, .rounding = rounding}); });
  };
  using enum ResizeCoordinates;
  using enum NearestRounding;
  EXPECT_THAT(nearest(6, Asymmetric, Floor), ElementsAre(0, 0, 1, 2, 2, 3));  // 0 .67 1.33 2 2.67 3.33
  EXPECT_THAT(nearest(6, Asymmetric, Ceil), ElementsAre(0, 1, 2, 2, 3, 3));
  EXPECT_THAT(nearest(2, HalfPixel, PreferFloor), ElementsAre(0, 2));  // .5 2.5
  EXPECT_THAT(nearest(2, HalfPixel, PreferCeil), ElementsAre(1, 3));
  EXPECT_THAT(nearest(3, AlignCorners, PreferFloor), ElementsAre(0, 1, 3));  // 0 1.5 3
  EXPECT_THAT(nearest(1, AlignCorners, Floor), ElementsAre(0));
}

TEST(Resize, GradientOfLinearIsItsTranspose) {
  Graph g;
  const Value x = g.input("x", {2}), u = g.input("u", {4});
  const Value y = resize(x, {4}, {.mode = ResizeMode::Linear});  // rows (1 0) (.75 .25) (.25 .75) (0 1)
  const TensorMap data = {{"x", tensor({2}, {0, 0})}, {"u", tensor({4}, {1, 10, 100, 1000})}};
  EXPECT_THAT(value_of(gradients(sum(y * u), {x})[0], data).data,
              ElementsAre(DoubleNear(33.5, 1e-12), DoubleNear(1077.5, 1e-12)));
}

std::vector<FusedKernel> kernels_of(const Graph& g) {
  Caps caps;
  caps.max_storage_buffers = 16;  // two tables for each tap of each axis: they are constants
  return fuse(*rewrite(*merge_common(*expand_composites(g)), false), caps, true);
}

TEST(Resize, ValueIsOneKernelAndWholeFactorsAreFree) {
  Graph g;
  const Value x = g.input("x", {2, 3, 8, 9});
  g.output("linear", resize(x, {13, 20}, {.mode = ResizeMode::Linear}) * 2);
  EXPECT_EQ(kernels_of(g).size(), 1u);
  Graph h;
  h.output("nearest", relu(resize(h.input("x", {2, 3, 8, 9}), {16, 27})));
  const auto kernels = kernels_of(h);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].operands.size(), 2u) << "no table of indices";
}

TEST(Resize, Errors) {
  Graph g;
  const Value x = g.input("x", {2, 3}), i = g.input("i", {2, 3}, DType::i32), none = g.input("none", {2, 0});
  const auto here = HasSubstr("resize_test.cpp:");
  EXPECT_THAT(message([&] { resize(x, {}); }),
              AllOf(StartsWith("[resize] sizes must list the last one or two axes of f32[2, 3]"), here));
  EXPECT_THAT(message([&] { resize(x, {1, 2, 3}); }), AllOf(StartsWith("[resize] sizes must list"), here));
  EXPECT_THAT(message([&] { resize(x, {0}); }), AllOf(StartsWith("[resize] cannot resize axis 1 from 3 to 0"), here));
  EXPECT_THAT(message([&] { resize(none, {4}); }),
              AllOf(StartsWith("[resize] cannot resize axis 1 from 0 to 4"), here));
  EXPECT_THAT(message([&] { resize(i, {4}); }), AllOf(StartsWith("[resize] is defined for floats, not for i32"), here));
  EXPECT_THAT(message([&] { resize_by(x, {0.1}); }),
              AllOf(StartsWith("[resize] cannot resize axis 1 from 3 to 0"), here));
  EXPECT_THAT(message([&] { resize_by(x, {-1.0}); }), AllOf(StartsWith("[resize] the scale -1 of axis 1"), here));
}

}  // namespace
}  // namespace aeshna::test
