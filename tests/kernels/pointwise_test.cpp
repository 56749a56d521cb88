// Pointwise kernels on the device against the double-precision evaluator.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/codegen.h"
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

/// Every usable candidate of `kernel` gives what the evaluator gives; returns how many there were.
int check(const FusedKernel& kernel, KernelRunner& with, double rtol = 2e-6, double atol = 1e-6,
          std::uint64_t seed = 1) {
  const OperandData data = random_data(kernel, seed);
  const OperandData want = evaluate(kernel, data);
  int usable = 0;
  for (const Candidate& candidate : lower_pointwise(kernel, with.caps())) {
    if (!candidate.rejected.empty()) continue;
    ++usable;
    EXPECT_EQ(difference(candidate.spec, with.run(candidate.spec, data), want, rtol, atol), "")
        << candidate.spec.variant;
  }
  EXPECT_GT(usable, 0);
  return usable;
}
int check(const FusedKernel& kernel) { return check(kernel, runner()); }

FusedKernel add_mul(std::vector<std::int64_t> space) {
  auto b = FusedBuilder::pointwise(std::move(space));
  const auto x = b.input(), y = b.input();
  b.output(b.op("add", {b.op("mul", {x, y}), b.literal(0.5)}));
  return std::move(b.kernel);
}

TEST(PointwiseGpu, Sizes) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t n : {0, 1, 3, 4, 17, 255, 256, 257, 1031, 4096, 70001}) {
    SCOPED_TRACE(n);
    EXPECT_EQ(check(add_mul({n})), n % 4 == 0 ? 2 : 1);
  }
  check(add_mul({}));
}

TEST(PointwiseGpu, ManyShapesShareAModule) {
  AESHNA_NEED_DEVICE();
  KernelRunner own(kernel_device());
  for (const std::int64_t n : {5, 7, 1031}) check(add_mul({n}), own);
  EXPECT_EQ(own.kernels(), 1u);
}

TEST(PointwiseGpu, BroadcastPermuteReverseAndOffset) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t last : {5, 8}) {
    auto b = FusedBuilder::pointwise({3, 7, last});
    const auto row = b.load(b.operand(DType::f32, last), {.strides = {0, 0, 1}, .guards = {}});
    const auto column = b.load(b.operand(DType::f32, 7), {.strides = {0, 1, 0}, .guards = {}});
    const auto scalar = b.load(b.operand(DType::f32, 1), {.strides = {0, 0, 0}, .guards = {}});
    const auto permuted = b.load(b.operand(DType::f32, 21 * last), {.strides = {1, 3, 21}, .guards = {}});
    const auto reversed = b.load(b.operand(DType::f32, 21 * last + 2),
                                 {.strides = {-7 * last, -last, -1}, .offset = 21 * last + 1, .guards = {}});
    b.output(b.op("add", {b.op("mul", {b.op("sub", {row, column}), scalar}), b.op("mul", {permuted, reversed})}));
    check(b.kernel);
    // Without the permuted and reversed operands the 4-wide variant serves.
    auto v = FusedBuilder::pointwise({3, 7, last});
    const auto dense_x = v.input();
    const auto bias = v.load(v.operand(DType::f32, last), {.strides = {0, 0, 1}, .guards = {}});
    const auto scale = v.load(v.operand(DType::f32, 7), {.strides = {0, 1, 0}, .guards = {}});
    v.output(v.op("add", {v.op("mul", {dense_x, scale}), bias}));
    EXPECT_EQ(check(v.kernel), last % 4 == 0 ? 2 : 1);
  }
}

TEST(PointwiseGpu, GuardsPadAndConcatenate) {
  AESHNA_NEED_DEVICE();
  // pad([4, 8], before {2, 0}, after {1, 0}) and concat along rows: guards on the first dimension keep 4-vectors.
  auto rows = FusedBuilder::pointwise({7, 8});
  const auto padded =
      rows.load(rows.operand(DType::f32, 32), {.strides = {8, 1}, .offset = -16, .guards = {{0, 2, 6}}, .fill = -3});
  rows.output(rows.op("abs", {padded}));
  EXPECT_EQ(check(rows.kernel), 2);
  // Along the last dimension: scalar.
  auto columns = FusedBuilder::pointwise({5, 8});
  const auto left = columns.load(columns.operand(DType::f32, 15), {.strides = {3, 1}, .guards = {{1, 0, 3}}});
  const auto right =
      columns.load(columns.operand(DType::f32, 25), {.strides = {5, 1}, .offset = -3, .guards = {{1, 3, 8}}});
  columns.output(columns.op("add", {left, right}));
  EXPECT_EQ(check(columns.kernel), 1);
  // Two guards, one that never holds, integers and booleans.
  auto both = FusedBuilder::pointwise({6, 6});
  const auto window = both.load(both.operand(DType::i32, 9),
                                {.strides = {3, 1}, .offset = -8, .guards = {{0, 2, 5}, {1, 2, 5}}, .fill = 9});
  const auto never = both.load(both.operand(DType::i32, 4), {.strides = {1, 1}, .guards = {{0, 3, 3}}, .fill = -4});
  const auto flag = both.load(both.operand(DType::boolean, 6), {.strides = {0, 1}, .guards = {{1, 0, 6}}});
  both.output(both.op("select", {flag, both.op("mul", {window, never}, DType::i32), window}, DType::i32));
  check(both.kernel);
}

TEST(PointwiseGpu, TypesAndCasts) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t n : {37, 64}) {
    auto b = FusedBuilder::pointwise({n});
    const auto f = b.input(), g = b.input(DType::i32);
    b.output(b.op("less", {f, b.literal(0.25)}, DType::boolean));
    b.output(b.op("cast", {b.op("mul", {f, b.literal(0x1p33)})}, DType::i32));
    b.output(b.op("cast", {b.op("mul", {f, b.literal(0x1p32)})}, DType::u32));
    b.output(b.op("cast", {g}));
    b.output(b.op("cast", {g}, DType::u32));
    check(b.kernel);
    auto c = FusedBuilder::pointwise({n});
    const auto g2 = c.input(DType::i32), h2 = c.input(DType::u32), flag2 = c.input(DType::boolean);
    c.output(
        c.op("logical_xor", {flag2, c.op("equal", {g2, c.literal(1, DType::i32)}, DType::boolean)}, DType::boolean));
    c.output(c.op("cast", {flag2}));
    c.output(c.op("cast", {h2}, DType::boolean));
    c.output(c.op("mul", {h2, c.literal(3e9, DType::u32)}, DType::u32));
    c.output(c.op("sub", {g2, c.literal(-2147483648.0, DType::i32)}, DType::i32));
    check(c.kernel);
  }
}

TEST(PointwiseGpu, LiteralsAreExact) {
  AESHNA_NEED_DEVICE();
  const float inf = INFINITY;
  auto b = FusedBuilder::pointwise({4});
  const auto zero = b.op("mul", {b.input(), b.literal(0)});
  const float values[] = {0.1f, -1.0f / 3, 1e-30f, 3.4028235e38f, 16777217.0f};
  for (const float value : values) b.output(b.op("add", {zero, b.literal(static_cast<double>(value))}));
  check(b.kernel, runner(), 0, 0);
  auto special = FusedBuilder::pointwise({4});
  special.output(special.literal(static_cast<double>(inf)));
  special.output(special.literal(-static_cast<double>(inf)));
  special.output(special.literal(std::nan("")));
  special.output(special.op("is_finite", {special.literal(std::nan(""))}, DType::boolean));
  special.output(special.op("div", {special.literal(1), special.literal(-0.0)}));
  check(special.kernel, runner(), 0, 0);
}

TEST(PointwiseGpu, IndexAndRandom) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t last : {5, 12}) {
    auto b = FusedBuilder::pointwise({3, last});
    const auto row = b.index(0, 10, -7), column = b.index(1);
    b.output(b.op("add", {row, column}, DType::i32));
    Instr random;
    random.kind = Instr::Kind::Random;
    random.dtype = DType::u32;
    const auto seed = b.operand(DType::u32, 2), step = b.operand(DType::u32, 1);
    random.args = {b.load(seed, {.strides = {0, 0}, .guards = {}}),
                   b.load(seed, {.strides = {0, 0}, .offset = 1, .guards = {}}),
                   b.load(step, {.strides = {0, 0}, .guards = {}})};
    random.literal = 4294967294.0;
    random.access = {.strides = dense({3, last}), .guards = {}};
    b.output(b.push(random));
    random.access = {.strides = {1, 3}, .guards = {}};  // transposed: one block per element
    b.output(b.push(random));
    EXPECT_EQ(check(b.kernel), last % 4 == 0 ? 2 : 1);
  }
}

TEST(PointwiseGpu, InPlace) {
  AESHNA_NEED_DEVICE();
  for (const std::int64_t n : {1000, 1001, 20000}) {
    auto b = FusedBuilder::pointwise({n});
    const auto x = b.input(), g = b.input();
    b.kernel.operands[b.output(b.op("sub", {x, b.op("mul", {g, b.literal(0.1)})}))].in_place_of = 0;
    const OperandData data = random_data(b.kernel, 3);
    const OperandData want = evaluate(b.kernel, data);
    for (const Candidate& candidate : lower_pointwise(b.kernel, runner().caps())) {
      if (!candidate.rejected.empty()) continue;
      OperandData got = runner().run(candidate.spec, data, {.in_place = true});
      got[0] = want[0];  // now holds the result
      EXPECT_EQ(difference(candidate.spec, got, want, 2e-6, 1e-6), "");
    }
  }
}

TEST(PointwiseGpu, FewGroupsPerDimension) {
  AESHNA_NEED_DEVICE();
  Caps caps = kernel_device()->caps();
  std::fill(std::begin(caps.max_groups), std::end(caps.max_groups), 7u);
  KernelRunner folded(kernel_device(), caps);
  check(add_mul({300 * 256 + 1}), folded);      // 301 groups: 7 x 7 x 7 with surplus ones
  check(add_mul({2 * 343 * 256 + 5}), folded);  // more than 343: several runs each
  check(add_mul({400 * 1024}), folded);
}

TEST(PointwiseGpu, MoreGroupsThanOneDimensionAllows) {
  AESHNA_NEED_DEVICE();
  Caps caps = kernel_device()->caps();
  caps.max_invocations = 1;  // so that 65,537 points are as many groups
  caps.compute_units = 1u << 20;
  for (std::uint32_t& groups : caps.max_groups) groups = std::min(groups, 65535u);
  KernelRunner narrow(kernel_device(), caps);
  check(add_mul({65537}), narrow);
}

TEST(PointwiseGpu, PushOverflowBecomesLiterals) {
  AESHNA_NEED_DEVICE();
  Caps caps = kernel_device()->caps();
  caps.push_bytes = 16;
  KernelRunner small(kernel_device(), caps);
  auto b = FusedBuilder::pointwise({2, 3, 5, 7});
  const auto x = b.load(b.operand(DType::f32, 210), {.strides = {105, 7, 21, 1}, .guards = {}});
  const auto y = b.load(b.operand(DType::f32, 210), {.strides = {1, 70, 2, 10}, .guards = {}});
  b.output(b.op("sub", {x, y}));
  check(b.kernel, small);
  const KernelSource source = generate(lower_pointwise(b.kernel, caps).back().spec, caps);
  EXPECT_EQ(source.push.size(), 4u);
}

TEST(PointwiseGpu, EveryOpInEveryTypeCompilesAndAgrees) {
  AESHNA_NEED_DEVICE();
  // Values are the harness's business (tests/ops); here each expression is compiled, scalar and 4-wide, and run once.
  for (const DType dtype : {DType::f32, DType::i32, DType::u32, DType::boolean}) {
    std::vector<const OpDef*> ops;
    for (const OpDef& op : op_table()) {
      const PointwiseDef& row = op.pointwise;
      const std::string_view text = dtype == DType::f32   ? row.glsl_f32
                                    : dtype == DType::i32 ? row.glsl_i32
                                    : dtype == DType::u32 ? row.glsl_u32
                                                          : row.glsl_bool;
      if (op.kind == OpKind::Pointwise && !text.empty() && op.name != "cast") ops.push_back(&op);
    }
    ASSERT_FALSE(ops.empty());
    const std::size_t at_once = std::min<std::size_t>(runner().caps().max_storage_buffers - 3, 12);
    for (std::size_t first = 0; first < ops.size(); first += at_once) {
      auto b = FusedBuilder::pointwise({40});
      const auto x = b.input(dtype), y = b.input(dtype), condition = b.input(DType::boolean);
      for (std::size_t i = first; i < std::min(first + at_once, ops.size()); ++i) {
        const OpDef& op = *ops[i];
        std::vector<FusedBuilder::Id> args{x, y, y};
        args.resize(static_cast<std::size_t>(op.pointwise.arity));
        if (op.name == "select") args = {condition, x, y};
        if (op.name == "sqrt" || op.name == "rsqrt" || op.name == "log" || op.name == "log1p" || op.name == "pow") {
          args[0] = b.op("abs", {x});
        }
        b.output(b.op(op.name, args, op.pointwise.boolean_result ? DType::boolean : dtype));
      }
      check(b.kernel, runner(), 2e-5, 1e-6);
    }
  }
}

}  // namespace
}  // namespace aeshna::test
