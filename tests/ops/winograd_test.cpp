// Winograd's tiles: which convolutions go through them, and their results and gradients there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aeshna/ops.h"
#include "base/caps.h"
#include "compile/stages.h"
#include "ir/op.h"
#include "support/expect_error.h"
#include "support/op_harness.h"

namespace aeshna::test {
namespace {

/// Kernels of this family, and of this variant if one is named, that a graph becomes.
std::ptrdiff_t count(const Graph& g, std::string_view family, std::string_view variant = {}) {
  std::vector<std::string> notes;
  const auto kernels =
      select(fuse(*eliminate_dead(*merge_common(*expand_composites(g))), Caps{}, true), Caps{}, false, notes);
  return std::ranges::count_if(kernels, [&](const auto& k) {
    return k.second.family == family && (variant.empty() || k.second.variant == variant);
  });
}

struct Convolution {
  Shape x = {1, 128, 39, 41}, w = {128, 128, 3, 3};
  ConvOptions options = {.padding = {1}};
  DType dtype = DType::f32;
};

std::ptrdiff_t winograd_kernels(const Convolution& c) {
  Graph g;
  g.output("y", conv(g.input("x", c.x, c.dtype), g.input("w", c.w, c.dtype), c.options));
  return count(g, "winograd");
}

TEST(Winograd, LargeThreeByThreeConvolutionsOfStrideOne) {
  EXPECT_EQ(winograd_kernels({}), 3);
  EXPECT_EQ(winograd_kernels({.x = {4, 64, 56, 56}, .w = {64, 64, 3, 3}}), 3);
  EXPECT_EQ(winograd_kernels({.dtype = DType::f16}), 3);
  EXPECT_EQ(
      winograd_kernels({.x = {2, 256, 27, 24}, .w = {160, 128, 3, 3}, .options = {.padding = {0, 2}, .groups = 2}}), 3);
}

TEST(Winograd, OtherConvolutionsStayOneProduct) {
  const Convolution others[] = {
      {.x = {1, 128, 7, 7}},                           // too few tiles
      {.x = {4, 8, 56, 56}, .w = {8, 8, 3, 3}},        // too few channels: the planes would cost more than they save
      {.x = {64, 32, 32, 32}, .w = {32, 32, 3, 3}},    // as measured
      {.options = {.stride = {2}, .padding = {1}}},    //
      {.options = {.padding = {2}, .dilation = {2}}},  //
      {.w = {128, 128, 5, 5}, .options = {.padding = {2}}},
      {.x = {1, 128, 4096}, .w = {128, 128, 3}},  // one spatial axis
      {.x = {512, 128, 128, 128}},                // planes of 16 GiB
  };
  for (const Convolution& c : others) EXPECT_EQ(winograd_kernels(c), 0) << c.x.to_string() << c.w.to_string();
}

TEST(Winograd, TheInputGradientReadsTheWeightAsItLies) {
  for (const std::int64_t groups : {1, 2}) {
    Graph g;
    const Value x = g.input("x", {2, 256, 39, 41}), w = g.input("w", {256, 256 / groups, 3, 3});
    const Value y = conv(x, w, {.padding = {1}, .groups = groups});
    g.output("dx", gradients(sum(y * g.input("dy", y.shape())), {x})[0]);
    EXPECT_EQ(count(g, "winograd"), 3);
    EXPECT_EQ(count(g, "pointwise"), 1) << "the upstream gradient; no flipped copy";
  }
}

/// A device that binds no more than 128 MiB splits the product by rows; Winograd's kernels could not be.
TEST(Winograd, PlanesFitTheSmallestBinding) {
  EXPECT_EQ(winograd_kernels({.x = {32, 64, 56, 56}, .w = {64, 64, 3, 3}}), 3);
  EXPECT_EQ(winograd_kernels({.x = {64, 64, 56, 56}, .w = {64, 64, 3, 3}}), 0);
  EXPECT_EQ(winograd_kernels({.x = {1, 2048, 32, 32}, .w = {2048, 2048, 3, 3}}), 0) << "nor does the weight";
}

TEST(Winograd, APartOfATensorTooLargeToBindIsCopiedFirst) {
  Caps caps;
  caps.max_storage_range = 128 << 20;
  Graph g;
  const Value x = g.state("x", {40, 128, 96, 96}), w = g.input("w", {128, 128, 3, 3});
  g.output("y", conv(slice(x, {0}, {4}, {6}), w, {.padding = {1}}));
  std::vector<std::string> notes;
  const auto kernels = select(fuse(*expand_composites(g), caps, true), caps, false, notes);
  EXPECT_EQ(std::ranges::count_if(kernels, [](const auto& k) { return k.second.family == "winograd"; }), 3);
  EXPECT_EQ(std::ranges::count_if(kernels, [](const auto& k) { return k.second.family == "pointwise"; }), 1);
}

TEST(Winograd, PlanesAreNotKeptForTheDerivativeRegion) {
  Graph g;
  const Value x = g.input("x", {1, 128, 39, 41}), w = g.input("w", {128, 128, 3, 3});
  const Value y = conv(x, w, {.padding = {1}});
  g.output("y", y);
  g.output("dw", gradients(sum(y * y), {w})[0]);
  EXPECT_EQ(count(g, "winograd", "input"), 2) << "made twice";
}

TEST(Winograd, BadAttributesAreNamed) {
  Graph g;
  const Value x = g.input("x", {1, 1, 2, 4, 4}), planes = g.input("planes", {16, 1, 2, 4});
  const auto to_planes = [&](Value v, const char* transform, std::vector<std::int64_t> before,
                             std::vector<std::int64_t> tiles) {
    return g.add("winograd_planes", {&v, 1},
                 {{"transform", std::string(transform)}, {"before", before}, {"tiles", tiles}}, SourceLine{});
  };
  const auto to_image = [&](Value v, std::int64_t batch, std::vector<std::int64_t> tiles,
                            std::vector<std::int64_t> extents, const char* transform = "output") {
    return g.add("winograd_image", {&v, 1},
                 {{"transform", std::string(transform)}, {"batch", batch}, {"tiles", tiles}, {"extents", extents}},
                 SourceLine{});
  };
  EXPECT_ERROR(to_planes(x, "output", {0, 0}, {2, 2}), ErrorCode::InvalidArgument,
               "[winograd_planes] has no transform 'output'");
  EXPECT_ERROR(to_planes(x, "input", {0, 0}, {-1, 2}), ErrorCode::InvalidArgument, "tiles must be two numbers");
  EXPECT_ERROR(to_planes(x, "input", {std::int64_t{1} << 40, 0}, {2, 2}), ErrorCode::InvalidArgument,
               "before must be two numbers");
  EXPECT_ERROR(to_planes(planes, "input", {0, 0}, {2, 2}), ErrorCode::ShapeMismatch, "needs [N, G, C, H, W]");
  EXPECT_ERROR(to_image(planes, 1, {2, 2}, {5, 4}), ErrorCode::ShapeMismatch, "2 tiles do not make 5 elements");
  EXPECT_ERROR(to_image(planes, 1, {2, 2}, {2, 4}), ErrorCode::ShapeMismatch, "2 tiles do not make 2 elements");
  EXPECT_ERROR(to_image(planes, std::int64_t{1} << 62, {2, 2}, {4, 4}), ErrorCode::LimitExceeded,
               "the number of tiles");
  EXPECT_ERROR(to_image(planes, 2, {2, 2}, {4, 4}), ErrorCode::ShapeMismatch, "needs [16, G, C, 8]");
  EXPECT_ERROR(to_image(planes, -1, {2, 2}, {4, 4}), ErrorCode::InvalidArgument, "a batch of -1");
  EXPECT_ERROR(to_image(planes, 1, {2, 2}, {3, 3}, "weight_gradient"), ErrorCode::ShapeMismatch,
               "2 tiles do not make 3 elements");
  EXPECT_ERROR(to_planes(g.input("h", {1, 1, 2, 4, 4}, DType::f16), "input", {0, 0}, {2, 2}), ErrorCode::DTypeMismatch,
               "is defined for f32, not for f16");
}

TEST(WinogradDevice, AgreesWithTheInterpreter) {
  const auto one = [](const Convolution& c) {
    const double terms = std::sqrt(static_cast<double>(9 * c.w[1]));
    const auto all = [](const std::vector<std::int64_t>& v) { return v.size() == 1 ? std::vector{v[0], v[0]} : v; };
    EXPECT_EQ(winograd_kernels(c), 3) << "these must be cases of Winograd's";
    return OpCase{
        .inputs = {{DType::f32, c.x}, {DType::f32, c.w}},
        .attrs = {{"stride", all({1})},
                  {"dilation", all({1})},
                  {"before", all(c.options.padding)},
                  {"after", all(c.options.padding_after.empty() ? c.options.padding : c.options.padding_after)},
                  {"groups", c.options.groups}},
        .ranges = {},
        .values = {},
        .rtol = 2e-6 * terms,
        .atol = 4e-6 * terms};
  };
  check_device(find_op("conv"),
               std::vector{one({}), one({.x = {2, 256, 27, 24},
                                         .w = {160, 128, 3, 3},
                                         .options = {.padding = {0, 2}, .padding_after = {1, 0}, .groups = 2}})});
}

}  // namespace
}  // namespace aeshna::test
