// Rotary position embedding: angles by hand, scaling variants, positions, errors, one kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "ops/rope.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

HostTensor numbered(Shape shape) {
  HostTensor t(TensorType{DType::f32, shape});
  for (std::size_t i = 0; i < t.data.size(); ++i) t.data[i] = static_cast<double>(i % 13) / 4 - 1;
  return t;
}

TEST(Rope, TurnsPairsByTheirPosition) {
  Graph g;
  const Value x = g.input("x", {3, 4});
  const HostTensor in = tensor({3, 4}, {1, 2, 3, 4, 1, 0, 0, 1, 5, 6, 7, 8});
  // Half-split: pairs (0, 2) and (1, 3), at 1 and 0.01 radians per position.
  const auto half = value_of(rope(x), {{"x", in}}).data;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(half[i], in.data[i]) << "position 0";
  EXPECT_NEAR(half[4], std::cos(1.0), 1e-7);
  EXPECT_NEAR(half[6], std::sin(1.0), 1e-7);
  EXPECT_NEAR(half[5], -std::sin(0.01), 1e-7);
  EXPECT_NEAR(half[7], std::cos(0.01), 1e-7);
  EXPECT_NEAR(half[8], 5 * std::cos(2.0) - 7 * std::sin(2.0), 1e-6);
  // Interleaved: pairs (0, 1) and (2, 3).
  const auto pairs = value_of(rope(x, {.interleaved = true}), {{"x", in}}).data;
  EXPECT_NEAR(pairs[4], std::cos(1.0), 1e-7);
  EXPECT_NEAR(pairs[5], std::sin(1.0), 1e-7);
  EXPECT_NEAR(pairs[6], -std::sin(0.01), 1e-7);
  EXPECT_NEAR(pairs[11], 8 * std::cos(0.02) + 7 * std::sin(0.02), 1e-6);
}

TEST(Rope, OffsetsAndPartialRotation) {
  Graph g;
  const Value x = g.input("x", {2, 5, 6}), tail = slice(x, {1}, {3}, {5});
  const TensorMap values = {{"x", numbered({2, 5, 6})}};
  EXPECT_EQ(value_of(rope(tail, {.offset = 3}), values).data, value_of(slice(rope(x), {1}, {3}, {5}), values).data);
  const auto part = value_of(rope(x, {.rotary_dim = 4}), values).data;
  EXPECT_EQ(value_of(slice(rope(x, {.rotary_dim = 4}), {2}, {0}, {4}), values).data,
            value_of(rope(slice(x, {2}, {0}, {4})), values).data);
  for (std::size_t row = 0; row < 10; ++row) {
    for (std::size_t d = 4; d < 6; ++d) EXPECT_EQ(part[row * 6 + d], values.at("x").data[row * 6 + d]);
  }
}

// Expected values: the formulas of transformers' modeling_rope_utils.py in Python's doubles.
TEST(Rope, Llama3Scaling) {
  const auto f = rope_frequencies(128, {.base = 500000, .scaling = {.kind = RopeScaling::Kind::Llama3, .factor = 8, .original_length = 8192}});
  const std::pair<std::size_t, double> expected[] = {{0, 1.0}, {20, 0.016560440080994446}, {28, 0.0032114459947525913}, {30, 0.0013718935677611381},
                                                     {33, 0.00031269375038406517}, {35, 9.556212353964683e-05}, {63, 3.068925988914511e-07}};
  for (const auto& [pair, want] : expected) EXPECT_NEAR(f.frequencies[pair] / want, 1, 1e-12) << pair;
  EXPECT_EQ(f.magnitude, 1);
}

TEST(Rope, YarnScaling) {
  const auto f = rope_frequencies(128, {.scaling = {.kind = RopeScaling::Kind::Yarn, .factor = 4, .original_length = 4096}});
  const std::pair<std::size_t, double> expected[] = {{0, 1.0}, {20, 0.056234132519034905}, {25, 0.023434552639377708}, {30, 0.009488517882700576},
                                                     {40, 0.0013378867023789293}, {50, 0.00018747355233311394}, {63, 2.8869549617236455e-05}};
  for (const auto& [pair, want] : expected) EXPECT_NEAR(f.frequencies[pair] / want, 1, 1e-12) << pair;
  EXPECT_NEAR(f.magnitude, 1.138629436111989, 1e-12);
}

TEST(Rope, LinearAndBaseScaling) {
  const auto plain = rope_frequencies(8, {}), linear = rope_frequencies(8, {.scaling = {.kind = RopeScaling::Kind::Linear, .factor = 4}});
  const auto ntk = rope_frequencies(8, {.scaling = {.kind = RopeScaling::Kind::Ntk, .factor = 4}});
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain.frequencies[i], std::pow(10000.0, -static_cast<double>(i) / 4), 1e-15);
    EXPECT_NEAR(linear.frequencies[i] * 4, plain.frequencies[i], 1e-15);
  }
  EXPECT_EQ(ntk.frequencies[0], 1);
  EXPECT_NEAR(ntk.frequencies[3] * 4, plain.frequencies[3], 1e-15);  // the slowest pair is stretched by the whole factor
}

TEST(Rope, ErrorsNameTheAttributeAndLine) {
  Graph g;
  const Value x = g.input("x", {2, 4, 6}), odd = g.input("odd", {4, 5}), positions = g.input("positions", {3}, DType::i32);
  EXPECT_ERROR(rope(odd), ErrorCode::InvalidArgument, "[rope] rotary_dim must be even and positive, not 5");
  EXPECT_ERROR(rope(odd), ErrorCode::InvalidArgument, "rope_test.cpp:");
  EXPECT_ERROR(rope(x, {.rotary_dim = 8}), ErrorCode::ShapeMismatch, "8 rotated elements do not fit rows of 6");
  EXPECT_ERROR(rope(x, {.base = 0.5}), ErrorCode::InvalidArgument, "base must be greater than 1, not 0.5");
  EXPECT_ERROR(rope(x, {.max_positions = 9}), ErrorCode::InvalidArgument, "attr max_positions needs positions");
  EXPECT_ERROR(rope(x, {.positions = positions}), ErrorCode::ShapeMismatch, "must be [4], or with the first axis [2, 4], not [3]");
  EXPECT_ERROR(rope(x, {.scaling = {.kind = RopeScaling::Kind::Llama3, .factor = 8}}), ErrorCode::InvalidArgument,
               "scaling.original_length must be positive, not 0");
  EXPECT_ERROR(rope(x, {.scaling = {.kind = RopeScaling::Kind::Yarn, .factor = -1, .original_length = 10}}), ErrorCode::InvalidArgument,
               "scaling.factor must be positive, not -1");
}

TEST(RopePlan, IsOneKernelEachWay) {
  for (const std::int64_t rotary_dim : {0, 8}) {
    for (const bool interleaved : {false, true}) {
      Graph g;
      const Value x = g.input("x", {1, 2, 16, 16}), y = g.input("y", {1, 2, 16, 16});
      const Value turned = rope(x, {.interleaved = interleaved, .rotary_dim = rotary_dim});
      g.output("turned", turned);
      g.output("gradient", gradients(sum(turned * y), {x})[0]);
      const Plan plan = compile_plan(g, {}, Caps{});
      if (interleaved && rotary_dim != 0) {  // needs an index map that no one index map is: two of them each way
        EXPECT_LE(plan.steps.size(), 4u) << print_plan(plan);
        continue;
      }
      EXPECT_LE(plan.steps.size(), 2u) << print_plan(plan);
      if (!interleaved) {
        EXPECT_TRUE(print_plan(plan).contains("vec4")) << print_plan(plan);
      }
    }
  }
}

TEST(RopeDevice, PositionsFromAnInput) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {2, 3, 4, 8}), positions = g.input("positions", {2, 4}, DType::i32);
  const Value y = rope(x, {.positions = positions, .max_positions = 50});
  g.output("y", y);
  const HostTensor in = numbered({2, 3, 4, 8});
  Session session = compile(g, Weights(*test_device().device), {});
  session.set("x", Literal::from_doubles(in.type, in.data));
  const std::vector<std::int32_t> at = {0, 7, 49, 3, 1, 1, 20, 48};
  session.set("positions", at);
  session.step();
  const auto got = session.read("y");
  for (std::size_t row = 0; row < 24; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = at[row / 12 * 4 + row % 4] * std::pow(10000.0, -static_cast<double>(i) / 4);
      const double a = in.data[row * 8 + i], b = in.data[row * 8 + 4 + i];
      EXPECT_NEAR(got[row * 8 + i], a * std::cos(angle) - b * std::sin(angle), 1e-6);
      EXPECT_NEAR(got[row * 8 + 4 + i], b * std::cos(angle) + a * std::sin(angle), 1e-6);
    }
  }
  session.set("positions", std::vector<std::int32_t>{0, 7, 50, 3, 1, 1, 20, 48});
  EXPECT_ERROR(
      {
        session.step();
        session.wait();
      },
      ErrorCode::OutOfRange, "a position of rope");
}

/// Views whose guards bound one sum twice: what they reach is still known.
TEST(RopePlan, PartialAndWholeRotationsMayShareAKernel) {
  Graph g;
  const Value x = g.input("x", {2, 1, 6}), p = g.input("p", {1}, DType::i32);
  g.output("y", rope(x, {.rotary_dim = 4, .positions = p, .max_positions = 8}) + rope(x));
  Caps caps;
  caps.max_storage_buffers = 16;
  EXPECT_NO_THROW(compile_plan(g, {}, caps));
}

TEST(RopeDevice, DistantPositionsAreExact) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {2, 3, 7, 12});
  const Value y = rope(x, {.rotary_dim = 8, .offset = 1000000});
  g.output("y", y);
  const HostTensor in = numbered({2, 3, 7, 12});
  Session session = compile(g, Weights(*test_device().device), {});
  session.set("x", Literal::from_doubles(in.type, in.data));
  session.step();
  const auto got = session.read("y");
  for (std::size_t row = 0; row < 42; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(1000000 + row % 7) * std::pow(10000.0, -static_cast<double>(i) / 4);
      const double a = in.data[row * 12 + i], b = in.data[row * 12 + 4 + i];
      EXPECT_NEAR(got[row * 12 + i], a * std::cos(angle) - b * std::sin(angle), 1e-6);
      EXPECT_NEAR(got[row * 12 + 4 + i], b * std::cos(angle) + a * std::sin(angle), 1e-6);
    }
    for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(got[row * 12 + i], static_cast<float>(in.data[row * 12 + i]));
  }
}

}  // namespace
}  // namespace aeshna::test
