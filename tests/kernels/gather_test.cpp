// Loads whose address depends on data, in every kind of kernel, on the device against the double-precision evaluator.
#include <gtest/gtest.h>

#include "codegen/codegen.h"
#include "ops/lower.h"
#include "support/fused_builder.h"
#include "support/kernel_runner.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Id = FusedBuilder::Id;

KernelRunner& runner() {
  static KernelRunner& shared = *new KernelRunner(kernel_device());  // never destroyed, as the test device
  return shared;
}

/// A load of `operand` at access + index * stride, for indices in [0, extent).
Id gather(FusedBuilder& b, Id operand, Access access, Id index, std::int64_t stride, std::int64_t extent) {
  access.dynamic = {{stride, extent}};
  const Id load = b.load(operand, std::move(access));
  b.body->instrs[load].args = {index};
  return load;
}

/// Every usable candidate against the evaluator; indices are drawn from [-2, high]. Returns the variants.
std::vector<std::string> check(const FusedKernel& kernel, double high, auto lower) {
  OperandData data = random_data(kernel, 1), indices = random_data(kernel, 2, -2, high);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (kernel.operands[i].dtype == DType::i32 && !kernel.operands[i].written) data[i] = indices[i];
  }
  const OperandData want = evaluate(kernel, data);
  std::vector<std::string> variants;
  for (const Candidate& candidate : lower(kernel, runner().caps())) {
    if (!candidate.rejected.empty()) continue;
    variants.push_back(candidate.spec.variant);
    EXPECT_EQ(difference(candidate.spec, runner().run(candidate.spec, data), want, 4e-6, 4e-6), "") << variants.back();
  }
  EXPECT_FALSE(variants.empty());
  return variants;
}

bool any_vector(const std::vector<std::string>& variants) {
  return std::ranges::any_of(variants, [](const std::string& v) { return v.contains("vec"); });
}

/// rows[i] of a table, scaled: index uniform along the last dimension.
FusedKernel rows(std::int64_t tokens, std::int64_t columns) {
  auto b = FusedBuilder::pointwise({tokens, columns});
  const Id index = b.load(b.operand(DType::i32, tokens), {.strides = {1, 0}, .guards = {}});
  const Id x = gather(b, b.operand(DType::f32, 11 * columns), {.strides = {0, 1}, .guards = {}}, index, columns, 11);
  b.output(b.op("mul", {x, b.literal(1.5)}));
  return std::move(b.kernel);
}

TEST(GatherGpu, RowsAreVectorsWhereTheyAreAligned) {
  AESHNA_NEED_DEVICE();
  EXPECT_TRUE(any_vector(check(rows(5, 8), 13, lower_pointwise)));
  EXPECT_FALSE(any_vector(check(rows(5, 7), 13, lower_pointwise)));
  const FusedKernel kernel = rows(5, 8);
  const auto source = generate(lower_pointwise(kernel, runner().caps())[0].spec, runner().caps());
  EXPECT_NE(source.glsl.find("vec4 B1[]"), std::string::npos) << source.glsl;
}

TEST(GatherGpu, AnIndexPerElementIsFourLoads) {
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::pointwise({3, 8});
  const Id index = b.input(DType::i32);
  const Id x = gather(b, b.operand(DType::f32, 15), {.strides = {5, 0}, .guards = {}}, index, 1, 5);
  b.output(x);
  EXPECT_TRUE(any_vector(check(b.kernel, 6, lower_pointwise)));
}

TEST(GatherGpu, GuardsOffsetsAndTwoIndices) {
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::pointwise({6, 8});
  const Id i = b.load(b.operand(DType::i32, 6), {.strides = {1, 0}, .guards = {}}), j = b.input(DType::i32);
  const Id table = b.operand(DType::f32, 3 + 4 * 5 * 2);
  // table[3 + i * 10 + j * 2] where column < 7, else -4.
  const Id x =
      b.load(table, {.strides = {0, 0}, .offset = 3, .guards = {{1, 0, 7}}, .fill = -4, .dynamic = {{10, 4}, {2, 5}}});
  b.body->instrs[x].args = {i, j};
  b.output(x);
  check(b.kernel, 6, lower_pointwise);
}

TEST(GatherGpu, AnIndexThatIsComputed) {
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::pointwise({4, 12});
  const Id half = b.op("div", {b.index(1), b.literal(2, DType::i32)}, DType::i32);  // 0 0 1 1 2 2 ...
  b.output(gather(b, b.operand(DType::f32, 24), {.strides = {6, 0}, .guards = {}}, half, 1, 6));
  check(b.kernel, 5, lower_pointwise);
}

TEST(GatherGpu, PrologueOfAReduction) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t columns : {8, 7, 1032}) {
    auto b = FusedBuilder::reduction({9}, {columns});
    const Id index = b.load(b.operand(DType::i32, 9), {.strides = {1, 0}, .guards = {}});
    const Id x = gather(b, b.operand(DType::f32, 4 * columns), {.strides = {0, 1}, .guards = {}}, index, columns, 4);
    const Id total = b.reduce(ReduceKind::Sum, b.op("mul", {x, x}));
    b.output(b.op("div", {x, b.op("sqrt", {b.op("add", {total, b.literal(1)})})}));
    const auto variants = check(b.kernel, 4, lower_reduction);
    EXPECT_EQ(any_vector(variants), columns % 4 == 0);
  }
}

TEST(GatherGpu, ByAReducedIndex) {  // the element at the argmax of another tensor
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::reduction({5}, {8});
  const Id best = b.reduce(ReduceKind::ArgMax, b.input(), DType::i32);
  b.output(gather(b, b.operand(DType::f32, 40), {.strides = {8, 0}, .guards = {}}, best, 1, 8), true);
  check(b.kernel, 7, lower_reduction);
}

}  // namespace
}  // namespace aeshna::test
