// Properties of generated text, and of the choice of geometry, that need no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "aeshna/error.h"
#include "codegen/codegen.h"
#include "codegen/glsl_writer.h"
#include "gpu/launch.h"
#include "ops/lower.h"
#include "support/fused_builder.h"

namespace aeshna::test {
namespace {

using testing::HasSubstr;
using testing::Not;

FusedKernel scale(std::vector<std::int64_t> space) {
  auto b = FusedBuilder::pointwise(std::move(space));
  b.output(b.op("mul", {b.input(), b.literal(2)}));
  return std::move(b.kernel);
}

const KernelSpec& usable(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    if (candidate.rejected.empty()) return candidate.spec;
  }
  throw std::runtime_error("no usable candidate");
}

std::string message_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Generate, ShapesAreNumbersNotText) {
  const Caps caps;
  const auto a = generate(usable(lower_pointwise(scale({33, 5}), caps)), caps),
             b = generate(usable(lower_pointwise(scale({7, 11}), caps)), caps);
  EXPECT_EQ(a.glsl, b.glsl);
  EXPECT_EQ(a.key, b.key);
  EXPECT_NE(a.push, b.push);
  const auto c = generate(usable(lower_pointwise(scale({33, 8}), caps)), caps);
  EXPECT_NE(a.key, c.key);  // 4-vectors
  EXPECT_EQ(a.push[0], 1u);
}

TEST(Generate, KeyCoversTheWorkgroupSize) {
  Caps caps;
  const auto wide = generate(usable(lower_pointwise(scale({33}), caps)), caps);
  caps.max_invocations = 128;
  const auto narrow = generate(usable(lower_pointwise(scale({33}), caps)), caps);
  EXPECT_NE(wide.key, narrow.key);
}

TEST(Generate, NeverRestrictAndAliasedPairs) {
  auto b = FusedBuilder::pointwise({64});
  const auto out = b.output(b.op("neg", {b.input()}));
  const Caps caps;
  const auto plain = generate(usable(lower_pointwise(b.kernel, caps)), caps);
  EXPECT_THAT(plain.glsl, Not(HasSubstr("restrict")));
  EXPECT_THAT(plain.glsl, HasSubstr("readonly buffer Operand0"));
  EXPECT_THAT(plain.glsl, HasSubstr("writeonly buffer Operand1"));
  EXPECT_THAT(plain.glsl, Not(HasSubstr("spirv_decorate")));
  b.kernel.operands[out].in_place_of = 0;
  const std::string pair = generate(usable(lower_pointwise(b.kernel, caps)), caps).glsl;
  EXPECT_THAT(pair, HasSubstr("spirv_decorate(20)"));
  std::istringstream lines(pair);
  for (std::string line; std::getline(lines, line);) {
    const bool one_way = line.contains("readonly") || line.contains("writeonly");
    EXPECT_FALSE(line.contains("spirv_decorate(20)") && one_way) << line;
  }
}

TEST(Generate, OnlyMentionedMathIsIncluded) {
  const Caps caps;
  const auto plain = generate(usable(lower_pointwise(scale({5}), caps)), caps);
  EXPECT_THAT(plain.glsl, Not(HasSubstr("ae_exp")));
  auto b = FusedBuilder::pointwise({5});
  b.output(b.op("sigmoid", {b.input()}));
  EXPECT_THAT(generate(usable(lower_pointwise(b.kernel, caps)), caps).glsl,
              testing::AllOf(HasSubstr("float ae_exp("), HasSubstr("ae_scale"), Not(HasSubstr("ae_log"))));
}

TEST(Generate, SignedZeroInfNanPreserveOnlyWhereOffered) {
  Caps caps;
  EXPECT_THAT(generate(usable(lower_pointwise(scale({5}), caps)), caps).glsl, Not(HasSubstr("4461")));
  caps.signed_zero_inf_nan_preserve = true;
  EXPECT_THAT(generate(usable(lower_pointwise(scale({5}), caps)), caps).glsl,
              HasSubstr("spirv_execution_mode(capabilities = [4466], 4461, 32)"));
}

TEST(Generate, PushBlockNeverOverflows) {
  Caps caps;
  auto b = FusedBuilder::pointwise({3, 5, 7, 11, 13});
  std::vector<std::int64_t> strides{5005, 1001, 143, 13, 1};
  std::vector<FusedBuilder::Id> loads;
  do {  // permuted views
    std::vector<std::int64_t> permuted(5);
    const std::int64_t extents[] = {3, 5, 7, 11, 13};
    std::vector<int> order{static_cast<int>(loads.size() % 5), 0, 0, 0, 0};
    for (int i = 1; i < 5; ++i) order[static_cast<std::size_t>(i)] = (order[0] + i) % 5;
    std::int64_t stride = 1;
    for (const int d : order) permuted[static_cast<std::size_t>(d)] = stride, stride *= extents[d];
    loads.push_back(b.load(b.operand(DType::f32, 15015), {.strides = permuted, .guards = {}}));
  } while (loads.size() < 6);
  auto sum = loads[0];
  for (std::size_t i = 1; i < loads.size(); ++i) sum = b.op("add", {sum, loads[i]});
  b.output(sum);
  for (const std::uint32_t bytes : {128u, 64u, 16u, 4u}) {
    caps.push_bytes = bytes;
    const KernelSource source = generate(usable(lower_pointwise(b.kernel, caps)), caps);
    EXPECT_LE(source.push.size() * 4, bytes);
    EXPECT_FALSE(compile_glsl(source.glsl, "push").empty());
  }
}

TEST(Generate, OffsetsBeyond32BitsAreRefusedByName) {
  // A strided view whose last element lies beyond 2^32, of few points.
  auto b = FusedBuilder::pointwise({5});
  const std::int64_t stride = 1ll << 30;
  const auto x = b.load(b.operand(DType::f32, 4 * stride + 1), {.strides = {stride}, .guards = {}});
  b.output(x);
  const Caps caps;
  const KernelSpec spec = usable(lower_pointwise(b.kernel, caps));
  EXPECT_THAT(message_of([&] { generate(spec, caps); }, ErrorCode::LimitExceeded),
              testing::AllOf(HasSubstr("operand 0"), HasSubstr("4294967296")));
  // The largest reachable offset decides, not the element count: one element less fits.
  auto fits = FusedBuilder::pointwise({4});
  fits.output(
      fits.load(fits.operand(DType::f32, 4 * stride + 1), {.strides = {stride}, .offset = stride - 1, .guards = {}}));
  EXPECT_NO_THROW(generate(usable(lower_pointwise(fits.kernel, caps)), caps));
  // Negative strides wrap in 32 bits and still land right.
  EXPECT_EQ(
      static_cast<std::uint32_t>(3u * static_cast<std::uint32_t>(-stride) + 3u * static_cast<std::uint32_t>(stride)),
      0u);
}

TEST(Generate, SpacesBeyond32BitsAreRefused) {
  auto b = FusedBuilder::pointwise({1 << 17, 1 << 16});
  const auto x = b.load(b.operand(DType::f32, 1), {.strides = {0, 0}, .guards = {}});
  b.store(b.operand(DType::f32, 1 << 17, true), x, {.strides = {1, 0}, .guards = {}});
  const Caps caps;
  EXPECT_THAT(message_of([&] { generate(usable(lower_pointwise(b.kernel, caps)), caps); }, ErrorCode::LimitExceeded),
              HasSubstr("8589934592"));
}

TEST(Generate, AnAccessOutsideItsOperandIsOurBug) {
  auto b = FusedBuilder::pointwise({8});
  b.output(b.load(b.operand(DType::f32, 8), {.strides = {1}, .offset = 1, .guards = {}}));
  const Caps caps;
  message_of([&] { generate(usable(lower_pointwise(b.kernel, caps)), caps); }, ErrorCode::Internal);
  // With a guard it is fine.
  b.kernel.body.instrs[0].access.guards = {{0, 0, 7}};
  EXPECT_NO_THROW(generate(usable(lower_pointwise(b.kernel, caps)), caps));
}

TEST(GlslLiteral, RoundTripsAndSpecials) {
  EXPECT_EQ(glsl_literal(DType::f32, 1), "1.0");
  EXPECT_EQ(glsl_literal(DType::f32, -0.5), "(-0.5)");
  EXPECT_EQ(glsl_literal(DType::f32, static_cast<double>(0.1f)), "0.10000000149011612");
  EXPECT_EQ(glsl_literal(DType::f32, INFINITY), "uintBitsToFloat(0x7f800000u)");
  EXPECT_EQ(glsl_literal(DType::f32, -0.0), "uintBitsToFloat(0x80000000u)");
  EXPECT_EQ(glsl_literal(DType::i32, -2147483648.0), "int(0x80000000u)");
  EXPECT_EQ(glsl_literal(DType::u32, 4294967295.0), "4294967295u");
  EXPECT_EQ(glsl_literal(DType::boolean, 1), "true");
}

TEST(Lowering, ReductionGeometryFitsEveryDevice) {
  // A pure function of caps: subgroup sizes do not matter, shared memory and invocations bound it.
  const auto rows = [](std::int64_t outer, std::int64_t inner, bool columns) {
    auto b = FusedBuilder::reduction({outer}, {inner});
    const auto x = b.load(
        b.operand(DType::f32, outer * inner),
        {.strides = columns ? std::vector<std::int64_t>{1, outer} : std::vector<std::int64_t>{inner, 1}, .guards = {}});
    const auto mean = b.reduce(ReduceKind::Sum, x);
    b.output(b.op("sub", {mean, b.reduce(ReduceKind::Max, x)}), true);
    b.output(b.reduce(ReduceKind::ArgMax, x, DType::i32), true);
    return std::move(b.kernel);
  };
  for (const std::uint32_t subgroup : {4u, 8u, 16u, 32u, 64u, 128u}) {
    for (const std::uint32_t invocations : {128u, 256u, 1024u}) {
      for (const std::uint32_t shared : {1024u, 16384u, 49152u}) {
        for (const auto& [outer, inner] : {std::pair<std::int64_t, std::int64_t>{1, 16777216},
                                           {128, 49152},
                                           {4096, 576},
                                           {100000, 3},
                                           {3, 7},
                                           {1, 1},
                                           {0, 5},
                                           {5, 0}}) {
          for (const bool columns : {false, true}) {
            Caps caps;
            caps.subgroup_size = subgroup;
            caps.max_invocations = invocations;
            caps.max_local[0] = 1024;
            caps.shared_bytes = shared;
            const FusedKernel kernel = rows(outer, inner, columns);
            const auto candidates = lower_reduction(kernel, caps);
            const KernelSpec& spec = usable(candidates);
            EXPECT_NO_THROW(gpu::check_launch(spec, 64, 6, caps)) << spec.variant;
            EXPECT_EQ(spec.workgroups == 0, outer == 0);
            for (const Candidate& candidate : candidates) {
              EXPECT_LE(candidate.spec.local[0], invocations);
              EXPECT_LE(candidate.spec.shared_bytes, shared + 4) << candidate.spec.variant;
            }
          }
        }
      }
    }
  }
}

TEST(Lowering, LongRowsAreSplitAndTooManyBindingsAreRejectedWithTheReason) {
  auto b = FusedBuilder::reduction({1}, {1 << 24});
  b.output(b.reduce(ReduceKind::Sum, b.input()), true);
  Caps caps;
  EXPECT_GT(usable(lower_reduction(b.kernel, caps)).constant("PARTS"), 8);
  caps.max_storage_buffers = 3;  // workspace and counters do not fit
  const auto candidates = lower_reduction(b.kernel, caps);
  EXPECT_THAT(candidates[0].rejected, HasSubstr("4 bindings"));
  EXPECT_EQ(usable(candidates).constant("PARTS"), 1);
}

TEST(Lowering, EstimatesAreFilled) {
  const KernelSpec spec = usable(lower_pointwise(scale({1000}), Caps{}));
  EXPECT_EQ(spec.bytes, 8000);
  EXPECT_EQ(spec.flops, 1000);
}

}  // namespace
}  // namespace aeshna::test
