// Reduction kernels on the device against the double-precision evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ops/lower.h"
#include "support/fused_builder.h"
#include "support/kernel_runner.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

KernelRunner& runner() {
  static KernelRunner& shared = *new KernelRunner(kernel_device());  // never destroyed, as the test device
  return shared;
}

/// Runs every usable candidate; returns their variants.
std::set<std::string> check(const FusedKernel& kernel, KernelRunner& with, const OperandData& data, double rtol = 4e-6,
                            double atol = 4e-6) {
  const OperandData want = evaluate(kernel, data);
  std::set<std::string> variants;
  for (const Candidate& candidate : lower_reduction(kernel, with.caps())) {
    if (!candidate.rejected.empty()) continue;
    if (!variants.insert(candidate.spec.variant).second) continue;
    EXPECT_EQ(difference(candidate.spec, with.run(candidate.spec, data), want, rtol, atol), "")
        << candidate.spec.variant;
  }
  EXPECT_FALSE(variants.empty());
  return variants;
}
std::set<std::string> check(const FusedKernel& kernel, double rtol = 4e-6, double atol = 4e-6) {
  return check(kernel, runner(), random_data(kernel, 1), rtol, atol);
}

bool any_contains(const std::set<std::string>& variants, std::string_view text) {
  return std::any_of(variants.begin(), variants.end(),
                     [&](const std::string& v) { return v.find(text) != std::string::npos; });
}

/// x * x - 1 reduced (or x); the element order of memory is that of the space unless `strides` say otherwise.
FusedKernel reduce_of(std::vector<std::int64_t> outer, const std::vector<std::int64_t>& inner, ReduceKind kind,
                      DType dtype = DType::f32, std::vector<std::int64_t> strides = {}) {
  auto b = FusedBuilder::reduction(std::move(outer), inner);
  if (strides.empty()) strides = dense(b.kernel.space);
  const auto x = b.load(b.operand(dtype, b.points()), {.strides = strides, .guards = {}});
  const bool is_arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  // x * x - 1, but x itself where rounding would make ties or overflow.
  const auto argument = kind == ReduceKind::Prod || is_arg || dtype == DType::u32
                            ? x
                            : b.op("add", {b.op("mul", {x, x}, dtype), b.literal(-1, dtype)}, dtype);
  b.output(b.reduce(kind, argument, is_arg ? DType::i32 : dtype), true);
  return std::move(b.kernel);
}

constexpr ReduceKind kKinds[] = {ReduceKind::Sum,  ReduceKind::Max,    ReduceKind::Min,
                                 ReduceKind::Prod, ReduceKind::ArgMax, ReduceKind::ArgMin};

TEST(ReductionGpu, RowsOfManyLengths) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t inner : {1, 2, 3, 4, 5, 8, 17, 31, 64, 127, 256, 1000, 1031, 1032, 5000}) {
    for (const std::int64_t rows : {1, 3, 67}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << inner);
      check(reduce_of({rows}, {inner}, ReduceKind::Sum), 4e-6, 1e-4);
    }
    check(reduce_of({5}, {inner}, ReduceKind::ArgMax));
    check(reduce_of({5}, {inner}, ReduceKind::Max));
  }
}

TEST(ReductionGpu, EveryKindAndType) {
  AESHNA_NEED_DEVICE();
  for (const ReduceKind kind : kKinds) {
    for (const DType dtype : {DType::f32, DType::i32, DType::u32}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << " " << dtype_name(dtype));
      check(reduce_of({7}, {45}, kind, dtype));
      check(reduce_of({40}, {12}, kind, dtype, {1, 40}));  // columns
      check(reduce_of({}, {3001}, kind, dtype), 2e-5, 2e-5);
    }
  }
}

TEST(ReductionGpu, ColumnsAndScatteredAxes) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t columns : {1, 5, 31, 33, 200}) {
    for (const std::int64_t rows : {1, 7, 300, 2000}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << columns << " columns");
      const auto variants = check(reduce_of({columns}, {rows}, ReduceKind::Sum, DType::f32, {1, columns}), 1e-5, 1e-4);
      if (columns > 1) {
        EXPECT_TRUE(any_contains(variants, "columns"));
      }
    }
  }
  check(reduce_of({3, 4}, {5, 6}, ReduceKind::Sum, DType::f32, {20, 1, 4, 60}), 1e-5, 1e-5);
  check(reduce_of({2, 3}, {4, 8}, ReduceKind::Sum, DType::f32, {32, 64, 8, 1}), 1e-5, 1e-5);
}

TEST(ReductionGpu, Empty) {
  AESHNA_NEED_DEVICE();
  for (const ReduceKind kind : {ReduceKind::Sum, ReduceKind::Prod}) {
    check(reduce_of({5}, {0}, kind));
    check(reduce_of({}, {0}, kind));
    check(reduce_of({0}, {5}, kind));
    check(reduce_of({3}, {4, 0}, kind));
  }
  for (const Candidate& candidate : lower_reduction(reduce_of({0}, {5}, ReduceKind::Sum), runner().caps())) {
    EXPECT_EQ(candidate.spec.workgroups, 0u);
  }
}

TEST(ReductionGpu, SplitOverWorkgroups) {
  AESHNA_NEED_DEVICE();
  Caps caps = runner().caps();
  caps.compute_units = 64;
  KernelRunner wide(kernel_device(), caps);
  for (const ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::ArgMin}) {
    for (const DType dtype : {DType::f32, DType::i32}) {
      FusedKernel kernel = reduce_of({1}, {100003}, kind, dtype);
      EXPECT_TRUE(any_contains(check(kernel, wide, random_data(kernel, 5), 1e-5, 1e-2), "parts="));
    }
  }
  FusedKernel quads = reduce_of({3}, {200000}, ReduceKind::Sum);
  EXPECT_TRUE(any_contains(check(quads, wide, random_data(quads, 6), 1e-5, 1e-2), "vec4 parts="));
  FusedKernel columns = reduce_of({33}, {5000}, ReduceKind::Sum, DType::f32, {1, 33});
  EXPECT_TRUE(any_contains(check(columns, wide, random_data(columns, 7), 1e-5, 1e-2), "parts="));
  // Two reductions of one level share the pass and the workspace.
  auto b = FusedBuilder::reduction({2}, {40000});
  const auto x = b.input();
  b.output(b.op("sub", {b.reduce(ReduceKind::Max, x), b.reduce(ReduceKind::Sum, b.op("mul", {x, x}))}), true);
  b.output(b.reduce(ReduceKind::ArgMax, x, DType::i32), true);
  EXPECT_TRUE(any_contains(check(b.kernel, wide, random_data(b.kernel, 8), 1e-5, 1e-2), "parts="));
}

FusedKernel softmax(std::int64_t rows, std::int64_t columns, bool in_place = false) {
  auto b = FusedBuilder::reduction({rows}, {columns});
  const auto x = b.input();
  const auto e = b.op("exp", {b.op("sub", {x, b.reduce(ReduceKind::Max, x)})});
  const auto y = b.output(b.op("div", {e, b.reduce(ReduceKind::Sum, e)}));
  if (in_place) b.kernel.operands[y].in_place_of = 0;
  return std::move(b.kernel);
}

TEST(ReductionGpu, Softmax) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t columns : {1, 3, 10, 64, 257, 1024, 5000}) {
    for (const std::int64_t rows : {1, 33}) check(softmax(rows, columns), 1e-5, 1e-7);
  }
}

TEST(ReductionGpu, SoftmaxInPlace) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t columns : {10, 1024, 1031}) {
    const FusedKernel kernel = softmax(7, columns, true);
    const OperandData data = random_data(kernel, 2);
    const OperandData want = evaluate(kernel, data);
    for (const Candidate& candidate : lower_reduction(kernel, runner().caps())) {
      if (!candidate.rejected.empty()) continue;
      OperandData got = runner().run(candidate.spec, data, {.in_place = true});
      got[0] = want[0];
      EXPECT_EQ(difference(candidate.spec, got, want, 1e-5, 1e-7), "") << candidate.spec.variant;
    }
  }
}

TEST(ReductionGpu, LayerNormWithAffineAndStatistics) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t columns : {7, 96, 577, 576}) {
    auto b = FusedBuilder::reduction({3, 5}, {columns});
    const auto x = b.load(b.operand(DType::f32, 15 * columns),
                          {.strides = {columns, 3 * columns, 1}, .guards = {}});  // permuted rows
    const auto gain = b.load(b.operand(DType::f32, columns), {.strides = {0, 0, 1}, .guards = {}});
    const auto row_bias = b.load(b.operand(DType::f32, 15), {.strides = {5, 1, 0}, .guards = {}});
    const auto scale = b.literal(1.0 / static_cast<double>(columns));
    const auto mean = b.op("mul", {b.reduce(ReduceKind::Sum, x), scale});
    const auto centred = b.op("sub", {x, mean});
    const auto variance = b.op("mul", {b.reduce(ReduceKind::Sum, b.op("mul", {centred, centred})), scale});
    const auto inverse = b.op("rsqrt", {b.op("add", {variance, b.literal(1e-5)})});
    b.output(b.op("add", {b.op("mul", {b.op("mul", {centred, inverse}), gain}), row_bias}));
    b.output(b.op("add", {mean, row_bias}), true);
    b.output(inverse, true);
    check(b.kernel, 1e-5, 1e-5);
  }
}

TEST(ReductionGpu, SpecialValues) {
  AESHNA_NEED_DEVICE();
  const double inf = INFINITY, nan = std::nan("");
  auto b = FusedBuilder::reduction({6}, {4});
  const auto x = b.input();
  for (const ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min}) b.output(b.reduce(kind, x), true);
  for (const ReduceKind kind : {ReduceKind::ArgMax, ReduceKind::ArgMin}) b.output(b.reduce(kind, x, DType::i32), true);
  OperandData data = random_data(b.kernel, 1);
  data[0] = {-inf, -inf, -inf, -inf, 1, nan, 2, nan, nan, nan, nan, nan,
             inf,  3,    inf,  inf,  2, 2,   1, 1,   inf, inf, inf, inf};
  check(b.kernel, runner(), data, 0, 0);
  // The same where threads share a row, with NaN and ties far apart.
  auto wide = FusedBuilder::reduction({3}, {900});
  const auto y = wide.input();
  wide.output(wide.reduce(ReduceKind::Max, y), true);
  for (const ReduceKind kind : {ReduceKind::ArgMax, ReduceKind::ArgMin})
    wide.output(wide.reduce(kind, y, DType::i32), true);
  OperandData rows = random_data(wide.kernel, 1);
  rows[0].assign(2700, 1);
  rows[0][870] = rows[0][444] = 2;
  rows[0][900 + 311] = rows[0][900 + 888] = nan;
  for (std::size_t i = 1800; i < 2700; ++i) rows[0][i] = nan;
  check(wide.kernel, runner(), rows, 0, 0);
}

TEST(ReductionGpu, IndexResultsOnTheWholeSpace) {
  AESHNA_NEED_DEVICE();
  // One-hot of the argmax: an i32 result used on the full space beside an index.
  auto b = FusedBuilder::reduction({9}, {35});
  const auto x = b.input();
  const auto arg = b.reduce(ReduceKind::ArgMax, x, DType::i32);
  b.output(b.op("equal", {b.index(1), arg}, DType::boolean));
  b.output(b.op("cast", {b.op("add", {arg, b.index(0)}, DType::i32)}), true);
  check(b.kernel, 0, 0);
}

TEST(ReductionGpu, GuardedAndOuterOnlyArguments) {
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::reduction({6}, {8});
  const auto padded =
      b.load(b.operand(DType::f32, 24), {.strides = {4, 1}, .offset = -2, .guards = {{1, 2, 6}}, .fill = 0.25});
  const auto per_row = b.load(b.operand(DType::f32, 6), {.strides = {1, 0}, .guards = {}});
  b.output(b.op("add", {b.reduce(ReduceKind::Sum, padded), b.reduce(ReduceKind::Sum, per_row)}), true);
  check(b.kernel);
}

TEST(ReductionGpu, SmallDevices) {
  AESHNA_NEED_DEVICE();
  for (const std::uint32_t invocations : {1u, 8u, 64u, 128u}) {
    Caps caps = runner().caps();
    caps.max_invocations = invocations;
    caps.shared_bytes = 4096;
    std::fill(std::begin(caps.max_groups), std::end(caps.max_groups), 7u);
    KernelRunner small(kernel_device(), caps);
    for (const FusedKernel& kernel : {softmax(13, 301), reduce_of({9}, {1000}, ReduceKind::ArgMax),
                                      reduce_of({50}, {77}, ReduceKind::Sum, DType::f32, {1, 50})}) {
      check(kernel, small, random_data(kernel, 4), 1e-5, 1e-4);
    }
  }
}

TEST(ReductionGpu, MoreRowsThanWorkgroups) {
  AESHNA_NEED_DEVICE();
  Caps caps = runner().caps();
  std::fill(std::begin(caps.max_groups), std::end(caps.max_groups), 7u);
  KernelRunner folded(kernel_device(), caps);
  for (const FusedKernel& kernel :
       {softmax(1500, 300), softmax(20000, 9), reduce_of({15000}, {33}, ReduceKind::Sum, DType::f32, {1, 15000})}) {
    check(kernel, folded, random_data(kernel, 9), 1e-5, 1e-4);
  }
}

TEST(ReductionGpu, LongSumsStayAccurate) {
  AESHNA_NEED_DEVICE();
  // 2^20 + 3 equal values: a serial f32 sum would be off by 1e-3 and more.
  auto b = FusedBuilder::reduction({1}, {(1 << 20) + 3});
  b.output(b.reduce(ReduceKind::Sum, b.input()), true);
  OperandData data = random_data(b.kernel, 1);
  for (double& value : data[0]) value = static_cast<double>(0.1f);
  Caps caps = runner().caps();
  caps.compute_units = 4;
  KernelRunner few_parts(kernel_device(), caps);
  check(b.kernel, few_parts, data, 1e-6, 0);
}

}  // namespace
}  // namespace aeshna::test
