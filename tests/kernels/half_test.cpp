// 16-bit storage in kernels: scalar and vector accesses, with 16-bit stores and with atomics, against the evaluator.
#include <gtest/gtest.h>

#include "codegen/codegen.h"
#include "ops/lower.h"
#include "support/fused_builder.h"
#include "support/kernel_runner.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

/// With the device's own caps, and without 16-bit storage.
std::vector<KernelRunner*> runners() {
  static KernelRunner& whole = *new KernelRunner(kernel_device());
  static KernelRunner& plain = *[] {
    Caps caps = kernel_device()->caps();
    caps.storage_16bit = false;
    return new KernelRunner(kernel_device(), caps);
  }();
  return {&whole, &plain};
}

double ulp(DType dtype) { return dtype == DType::f16 ? 0x1p-10 : dtype == DType::bf16 ? 0x1p-7 : 2e-6; }

using Lower = std::vector<Candidate> (*)(const FusedKernel&, const Caps&);

int check(const FusedKernel& kernel, Lower lower, DType loosest, double factor = 1) {
  const OperandData data = random_data(kernel, 3);
  const OperandData want = evaluate(kernel, data);
  int usable = 0;
  for (KernelRunner* runner : runners()) {
    for (const Candidate& candidate : lower(kernel, runner->caps())) {
      if (!candidate.rejected.empty()) continue;
      ++usable;
      EXPECT_EQ(
          difference(candidate.spec, runner->run(candidate.spec, data), want, factor * ulp(loosest), factor * 1e-6), "")
          << candidate.spec.variant << (runner->caps().storage_16bit ? "" : " without 16-bit storage");
    }
  }
  EXPECT_GT(usable, 0);
  return usable;
}

TEST(HalfGpu, PointwiseOfMixedStorage) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 17, 64, 257, 1031, 4096}) {
    SCOPED_TRACE(n);
    auto b = FusedBuilder::pointwise({n});
    const auto x = b.input(DType::f16), y = b.input(DType::bf16), z = b.input(DType::f32);
    const auto sum = b.op("add", {b.op("mul", {x, y}), z});
    b.output(sum, false, DType::f16);
    b.output(sum, false, DType::bf16);
    b.output(sum);
    check(b.kernel, lower_pointwise, DType::bf16);
  }
}

TEST(HalfGpu, ViewsAtOddElements) {
  AESHNA_NEED_DEVICE();
  // A window of a 16-bit tensor that begins at an odd element, reversed rows, a broadcast and a guarded load.
  auto b = FusedBuilder::pointwise({6, 7});
  const auto big = b.operand(DType::f16, 61);
  const auto shifted = b.load(big, {.strides = {9, 1}, .offset = 3, .guards = {}});
  const auto reversed = b.load(big, {.strides = {9, -1}, .offset = 6, .guards = {}});
  const auto row = b.load(b.operand(DType::bf16, 7), {.strides = {0, 1}, .guards = {}});
  const auto padded =
      b.load(b.operand(DType::bf16, 5), {.strides = {0, 1}, .offset = -1, .guards = {{1, 1, 6}}, .fill = 9});
  const auto sum = b.op("add", {b.op("add", {shifted, reversed}), b.op("add", {row, padded})});
  // Written transposed, at an odd offset: neighbours in a word come from far invocations.
  b.store(b.operand(DType::f16, 45, true), sum, {.strides = {1, 6}, .offset = 3, .guards = {}});
  check(b.kernel, lower_pointwise, DType::f16, 4);
}

TEST(HalfGpu, RoundsToNearestEvenAndKeepsSpecialValues) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<double> values = {0,         -0.0,    1,           65504,       65519.99,    65520,
                                  -65520,    1e6,     3.5e38,      0x1p-24,     0x1p-25,     0x1.8p-25,
                                  0x1.8p-24, 0x1p-14, 0x1.ffcp-15, 0x1.ffep-15, 5e-8,        INFINITY,
                                  -INFINITY, NAN,     0x1.fep127,  0x1.ff8p127, 0x1.00ep-120};
    std::mt19937_64 engine(11);
    while (values.size() < 4000) {  // ties and their neighbours, over the exponents of f16
      const int exponent = static_cast<int>(engine() % 40) - 26;
      const double tie = std::ldexp(static_cast<double>(1024 + engine() % 1024) + 0.5, exponent - 10);
      for (const double by : {0.0, std::ldexp(1.0, exponent - 21), -std::ldexp(1.0, exponent - 21)})
        values.push_back(engine() % 2 != 0 ? tie + by : -tie - by);
    }
    values.resize(4000);
    for (double& v : values) v = static_cast<double>(static_cast<float>(v));
    for (const std::int64_t n : {4000, 3999}) {
      auto b = FusedBuilder::pointwise({n});
      const auto x = b.input();
      b.output(x, false, dtype);         // rounded by the store
      const auto r = b.op("cast", {x});  // rounded by the op, then stored as it is
      b.kernel.body.instrs[r].rounding = dtype;
      b.output(r, false, dtype);
      b.output(r);
      OperandData data = random_data(b.kernel, 1);
      std::copy_n(values.begin(), n, data[0].begin());
      const OperandData want = evaluate(b.kernel, data);
      for (KernelRunner* runner : runners()) {
        for (const Candidate& candidate : lower_pointwise(b.kernel, runner->caps())) {
          if (!candidate.rejected.empty()) continue;
          EXPECT_EQ(difference(candidate.spec, runner->run(candidate.spec, data), want, 0, 0), "")
              << candidate.spec.variant;
        }
      }
    }
  }
}

TEST(HalfGpu, InPlace) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t n : {64, 63}) {
    auto b = FusedBuilder::pointwise({n});
    const auto x = b.input(DType::bf16);
    b.output(b.op("add", {x, b.literal(1)}), false, DType::bf16);
    b.kernel.operands[1].in_place_of = 0;
    const OperandData data = random_data(b.kernel, 5);
    const OperandData want = evaluate(b.kernel, data);
    for (KernelRunner* runner : runners()) {
      for (const Candidate& candidate : lower_pointwise(b.kernel, runner->caps())) {
        if (!candidate.rejected.empty()) continue;
        OperandData got = runner->run(candidate.spec, data, {.in_place = true});
        got[0] = want[0];  // now holds the result
        EXPECT_EQ(difference(candidate.spec, got, want, 0x1p-7, 1e-6), "") << candidate.spec.variant;
      }
    }
  }
}

TEST(HalfGpu, Reductions) {
  AESHNA_NEED_DEVICE();
  for (const auto& [rows, columns] : {std::pair{3, 5}, {7, 64}, {2, 1031}}) {
    SCOPED_TRACE(columns);
    auto b = FusedBuilder::reduction({rows}, {columns});
    const auto x = b.input(DType::f16);
    const auto most = b.reduce(ReduceKind::Max, x);
    const auto total = b.reduce(ReduceKind::Sum, b.op("sub", {x, most}));
    b.output(total, true, DType::bf16);
    b.output(b.op("sub", {x, most}), false, DType::f16);
    check(b.kernel, lower_reduction, DType::bf16);
  }
}

}  // namespace
}  // namespace aeshna::test
