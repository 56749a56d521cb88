// Convolutions: what the harness does not see. Impossible geometry names op, attribute and line; what becomes how many kernels.
#include <gtest/gtest.h>

#include <limits>

#include "aeshna/ops.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "ir/op.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Conv, ImpossibleGeometryIsNamed) {
  Graph g;
  const Value x = g.input("x", {1, 4, 5, 5}), w = g.input("w", {6, 4, 3, 3}), wide = g.input("wide", {6, 4, 7, 3});
  EXPECT_ERROR(conv(x, wide), ErrorCode::ShapeMismatch, "[conv] a kernel of 7 with dilation 1 spans 7 elements of axis 2, whose padded extent is 5");
  EXPECT_ERROR(conv(x, wide), ErrorCode::ShapeMismatch, "conv_test.cpp:");
  EXPECT_ERROR(conv(x, w, {.groups = 3}), ErrorCode::ShapeMismatch, "groups 3 must divide 4 input and 6 output channels");
  EXPECT_ERROR(conv(x, w, {.groups = 2}), ErrorCode::ShapeMismatch, "the weight has 4 input channels for each of 2 groups; the input has 4");
  EXPECT_ERROR(conv(x, w, {.groups = 0}), ErrorCode::InvalidArgument, "groups must be at least 1, not 0");
  EXPECT_ERROR(conv(x, w, {.stride = {0}}), ErrorCode::InvalidArgument, "stride 0");
  EXPECT_ERROR(conv(x, w, {.stride = {1, 2, 3}}), ErrorCode::InvalidArgument, "stride has 3 entries for 2 spatial axes");
  EXPECT_ERROR(conv(x, w, {.padding = {-1}}), ErrorCode::InvalidArgument, "negative padding (-1, -1) of axis 2");
  EXPECT_ERROR(conv(x, w, {.dilation = {kMost}}), ErrorCode::LimitExceeded, "[conv]");
  EXPECT_ERROR(conv(x, w, {.output_padding = {1}}), ErrorCode::InvalidArgument, "[conv] output_padding is an option of conv_transpose");
  EXPECT_ERROR(conv(x, w, {}, g.input("b", {1})), ErrorCode::ShapeMismatch, "[conv] the bias must be [6]");
  EXPECT_ERROR(conv(x, g.input("flat", {6, 4, 3})), ErrorCode::ShapeMismatch, "needs operands of equal rank 3 or 4");
  const Value y = g.input("y", {1, 6, 4, 4});
  EXPECT_ERROR(conv_transpose(y, w, {.stride = {2}, .output_padding = {2}}), ErrorCode::InvalidArgument, "less than the stride 2");
  EXPECT_ERROR(conv_transpose(y, w, {.padding = {9}}), ErrorCode::ShapeMismatch, "padding leaves nothing of axis 2");
  EXPECT_ERROR(conv_transpose(y, w, {.stride = {kMost}}), ErrorCode::LimitExceeded, "[conv_transpose]");
  EXPECT_ERROR(conv_transpose(y, w, {}, g.input("c", {6})), ErrorCode::ShapeMismatch, "[conv_transpose] the bias must be [4]");
}

TEST(Conv, HostileAttributesOfTheProductsAreNamed) {
  using Ints = std::vector<std::int64_t>;
  Graph g;
  const Value operands[] = {g.input("w", {1, 4, 3, 3}), g.input("x", {2, 1, 3, 7})};
  const auto product = [&](Ints stride, Ints dilation, Ints before, Ints out) {
    return g.add("conv_product", operands, {{"stride", stride}, {"dilation", dilation}, {"before", before}, {"out", out}}, SourceLine{});
  };
  EXPECT_EQ(product({1}, {1}, {1}, {7}).shape(), (Shape{2, 1, 4, 7}));
  EXPECT_ERROR(product({1}, {1}, {}, {7}), ErrorCode::InvalidArgument, "[conv_product] before must have 1 entries");
  EXPECT_ERROR(product({2, 1}, {1}, {1}, {7}), ErrorCode::InvalidArgument, "stride must have 1 entries");
  EXPECT_ERROR(product({1}, {4294967297}, {1}, {7}), ErrorCode::InvalidArgument, "dilation must have 1 entries from 1 to 2147483647");
  EXPECT_ERROR(product({0}, {1}, {1}, {7}), ErrorCode::InvalidArgument, "stride must have");
  EXPECT_ERROR(product({1}, {1}, {1}, {-1}), ErrorCode::InvalidArgument, "[conv_product]");
  const Value gradients[] = {g.input("dy", {2, 1, 4, 7}), operands[1]};
  EXPECT_ERROR(g.add("conv_weight_product", gradients, {{"stride", Ints{1}}, {"dilation", Ints{1}}, {"before", Ints{}}, {"kernel", Ints{3}}}, SourceLine{}),
               ErrorCode::InvalidArgument, "[conv_weight_product] before must have 1 entries");
  EXPECT_ERROR(conv(g.input("x3", {2, 3, 7}), g.input("w3", {4, 3, 3}), {.padding = {1}, .padding_after = {std::int64_t{1} << 40}}),
               ErrorCode::LimitExceeded, "[conv] axis 2 has 1099511627784 elements with its padding");
}

std::size_t products(const Graph& g) {
  return static_cast<std::size_t>(std::ranges::count_if(fuse(*expand_composites(g), Caps{}, true),
                                                        [](const FusedKernel& k) { return k.kind == FusedKernel::Kind::Matmul; }));
}

TEST(Conv, IsOneKernelWithItsBiasAndActivation) {
  Graph g;
  const Value x = g.input("x", {2, 3, 9, 8}), w = g.input("w", {5, 3, 3, 3});
  g.output("y", relu(conv(x, w, {.stride = {2}, .padding = {1}}, g.input("b", {5}))));
  const auto kernels = fuse(*expand_composites(g), Caps{}, true);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].k, 27);
  EXPECT_TRUE(kernels[0].a.k.empty()) << "the weight sees one contracted dimension";
}

TEST(Conv, PatchesTakeOneProductBackwardsWhateverTheStride) {
  for (const std::int64_t stride : {4, 5, 3000}) {
    Graph g;
    const Value y = g.input("y", {1, 2, 1, 1}), w = g.input("w", {2, 3, 4, 4});
    g.output("x", conv_transpose(y, w, {.stride = {stride}}));
    EXPECT_EQ(products(g), 1u) << stride;
  }
}

}  // namespace
}  // namespace aeshna::test
