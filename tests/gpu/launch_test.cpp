#include "gpu/launch.h"

#include <functional>

#include "gpu_support.h"

namespace aeshna::gpu {
namespace {

Caps with_groups(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  Caps caps;
  caps.max_groups[0] = x;
  caps.max_groups[1] = y;
  caps.max_groups[2] = z;
  return caps;
}

/// Covers the count within the limits, wasting less than one row per slice.
void expect_fold(std::uint64_t count, const Caps& caps) {
  const auto [x, y, z] = fold_groups(count, caps);
  const std::uint64_t covered = std::uint64_t{x} * y * z;
  EXPECT_GE(covered, count);
  EXPECT_LT(covered - count, std::uint64_t{y} * z) << count;
  EXPECT_LE(covered, 0xffffffffull);
  EXPECT_LE(x, caps.max_groups[0]);
  EXPECT_LE(y, caps.max_groups[1]);
  EXPECT_LE(z, caps.max_groups[2]);
}

TEST(FoldGroups, ZeroIsNothing) { EXPECT_EQ(fold_groups(0, Caps{}), (std::array<std::uint32_t, 3>{0, 0, 0})); }

TEST(FoldGroups, OneRowWhereItFits) {
  EXPECT_EQ(fold_groups(1, Caps{}), (std::array<std::uint32_t, 3>{1, 1, 1}));
  EXPECT_EQ(fold_groups(65535, Caps{}), (std::array<std::uint32_t, 3>{65535, 1, 1}));
  EXPECT_EQ(fold_groups(65536, Caps{}), (std::array<std::uint32_t, 3>{32768, 2, 1}));
}

TEST(FoldGroups, EveryCountUnderALimitOf7) {
  const Caps caps = with_groups(7, 7, 7);
  for (std::uint64_t count = 1; count <= 343; ++count) expect_fold(count, caps);
  const std::string text = error_text(ErrorCode::LimitExceeded, [&] { fold_groups(344, caps); });
  EXPECT_NE(text.find("max_groups"), std::string::npos);
  EXPECT_NE(text.find("344"), std::string::npos);
}

TEST(FoldGroups, UnevenLimits) {
  for (std::uint64_t count = 1; count <= 7 * 5 * 3; ++count) expect_fold(count, with_groups(7, 5, 3));
  for (std::uint64_t count = 1; count <= 3 * 1 * 5; ++count) expect_fold(count, with_groups(3, 1, 5));
  EXPECT_THROW(fold_groups(16, with_groups(3, 1, 5)), Error);
}

TEST(FoldGroups, LargeCounts) {
  for (const std::uint64_t count :
       {65536ull, 65537ull, 65535ull * 2 + 1, 65535ull * 65535, 65535ull * 65535 - 1, 1ull << 31})
    expect_fold(count, with_groups(65535, 65535, 65535));
  for (const std::uint64_t count : {1ull << 30, (1ull << 31) - 1, 1ull << 31, 0xffffffffull})
    expect_fold(count, with_groups((1u << 31) - 1, 65535, 65535));
}

TEST(FoldGroups, MoreThan32BitsIsAnError) {
  const std::string text =
      error_text(ErrorCode::LimitExceeded, [] { fold_groups(1ull << 32, with_groups(1u << 31, 65535, 65535)); });
  EXPECT_NE(text.find("32-bit"), std::string::npos);
}

KernelSpec spec() {
  KernelSpec spec;
  spec.family = "matmul";
  spec.variant = "64x64";
  spec.local = {16, 16, 1};
  spec.workgroups = 10;
  return spec;
}

/// The check passes at the limit and fails one beyond it, naming kernel and limit.
void expect_limit(const char* name, const std::function<void(KernelSpec&, Caps&)>& at,
                  const std::function<void(KernelSpec&, Caps&)>& beyond, std::uint32_t push = 0,
                  std::uint32_t bindings = 0) {
  KernelSpec s = spec();
  Caps caps;
  at(s, caps);
  EXPECT_NO_THROW(check_launch(s, push, bindings, caps)) << name;
  beyond(s, caps);
  const std::string text = error_text(ErrorCode::LimitExceeded, [&] { check_launch(s, push, bindings, caps); });
  EXPECT_NE(text.find(name), std::string::npos) << text;
  EXPECT_NE(text.find("matmul 64x64"), std::string::npos) << text;
}

TEST(CheckLaunch, EachLimitIsNamed) {
  expect_limit(
      "max_invocations", [](auto&, auto& c) { c.max_invocations = 256; },
      [](auto&, auto& c) { c.max_invocations = 255; });
  expect_limit(
      "max_local[0]", [](auto&, auto& c) { c.max_local[0] = 16; }, [](auto&, auto& c) { c.max_local[0] = 15; });
  expect_limit(
      "max_local[1]", [](auto&, auto& c) { c.max_local[1] = 16; }, [](auto&, auto& c) { c.max_local[1] = 15; });
  expect_limit(
      "max_local[2]",
      [](auto& s, auto& c) {
        s.local = {1, 1, 64};
        c.max_local[2] = 64;
      },
      [](auto&, auto& c) { c.max_local[2] = 63; });
  expect_limit(
      "shared_bytes",
      [](auto& s, auto& c) {
        s.shared_bytes = 16384;
        c.shared_bytes = 16384;
      },
      [](auto& s, auto&) { s.shared_bytes = 16388; });
  expect_limit(
      "push_bytes", [](auto&, auto& c) { c.push_bytes = 128; }, [](auto&, auto& c) { c.push_bytes = 124; }, 128);
  expect_limit(
      "max_storage_buffers", [](auto&, auto& c) { c.max_storage_buffers = 8; },
      [](auto&, auto& c) { c.max_storage_buffers = 7; }, 0, 8);
  expect_limit(
      "max_storage_range", [](auto& s, auto& c) { s.workspace_bytes = c.max_storage_range; },
      [](auto& s, auto&) { ++s.workspace_bytes; });
}

TEST(CheckLaunch, OperandRanges) {
  auto fused = std::make_shared<FusedKernel>();
  fused->operands.emplace_back().elements = 1 << 25;
  fused->operands[0].dtype = DType::f32;
  KernelSpec s = spec();
  s.fused = fused;
  Caps caps;
  caps.max_storage_range = 1ull << 27;
  EXPECT_NO_THROW(check_launch(s, 0, 1, caps));
  fused->operands[0].elements += 1;
  const std::string text = error_text(ErrorCode::LimitExceeded, [&] { check_launch(s, 0, 1, caps); });
  EXPECT_NE(text.find("operand 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace aeshna::gpu
