// base/caps: overrides only restrict; print and parse are inverse.
#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "base/caps.h"

namespace aeshna {
namespace {

Caps rich() {
  Caps caps;
  caps.device_name = "Some GPU (driver = x)";
  caps.max_storage_range = 4294967295;
  caps.max_groups[0] = 2147483647;
  caps.max_invocations = 1024;
  caps.shared_bytes = 49152;
  caps.push_bytes = 256;
  caps.max_storage_buffers = 1048576;
  caps.subgroup_size = 32;
  caps.subgroup_arithmetic = caps.storage_8bit = caps.storage_16bit = caps.f16_arithmetic = caps.f64_arithmetic = true;
  caps.int64_arithmetic = caps.signed_zero_inf_nan_preserve = caps.unified_memory = true;
  caps.coop_shapes = {{16, 16, 16, DType::f16, DType::f32}, {16, 8, 8, DType::bf16, DType::f32}};
  caps.gflops = 51234.567;
  return caps;
}

std::string refused(const Caps& caps, std::string_view overrides) {
  try {
    restrict_caps(caps, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
    return error.message();
  }
  ADD_FAILURE() << "'" << overrides << "' was accepted";
  return {};
}

TEST(Caps, NoOverridesChangeNothing) {
  EXPECT_EQ(restrict_caps(rich(), ""), rich());
  EXPECT_EQ(restrict_caps(rich(), " , "), rich());
}

TEST(Caps, OverridesRestrict) {
  const Caps caps = restrict_caps(rich(), "max_groups=7, shared_bytes=16384,push_bytes=128,max_storage_range=134217728,max_storage_buffers=4");
  EXPECT_EQ(caps.max_groups[0], 7u);
  EXPECT_EQ(caps.max_groups[2], 7u);
  EXPECT_EQ(caps.shared_bytes, 16384u);
  EXPECT_EQ(caps.push_bytes, 128u);
  EXPECT_EQ(caps.max_storage_range, 134217728u);
  EXPECT_EQ(caps.max_storage_buffers, 4u);
  EXPECT_EQ(restrict_caps(rich(), "storage_alignment=1024").storage_alignment, 1024u);
}

TEST(Caps, MaxGroupsKeepsTighterDimensions) {
  const Caps caps = restrict_caps(rich(), "max_groups=100000");
  EXPECT_EQ(caps.max_groups[0], 100000u);
  EXPECT_EQ(caps.max_groups[1], 65535u);
}

TEST(Caps, FeaturesAreSwitchedOff) {
  const Caps f16 = restrict_caps(rich(), "no_f16");
  EXPECT_FALSE(f16.f16_arithmetic);
  ASSERT_EQ(f16.coop_shapes.size(), 1u);
  EXPECT_EQ(f16.coop_shapes[0].input, DType::bf16);
  const Caps subgroups = restrict_caps(rich(), "no_subgroups");
  EXPECT_EQ(subgroups.subgroup_size, 1u);
  EXPECT_FALSE(subgroups.subgroup_arithmetic);
  EXPECT_TRUE(subgroups.coop_shapes.empty());
  EXPECT_TRUE(restrict_caps(rich(), "no_coop").coop_shapes.empty());
  EXPECT_FALSE(restrict_caps(rich(), "no_storage_16bit").storage_16bit);
  EXPECT_FALSE(restrict_caps(rich(), "no_f64,no_int64").f64_arithmetic);
  EXPECT_FALSE(restrict_caps(rich(), "no_unified_memory").unified_memory);
}

TEST(Caps, RelaxingIsRefused) {
  EXPECT_NE(refused(rich(), "shared_bytes=65536").find("shared_bytes=65536 where the device has 49152"), std::string::npos);
  EXPECT_NE(refused(rich(), "max_groups=2147483648").find("max_groups"), std::string::npos);
  EXPECT_NE(refused(rich(), "storage_alignment=16").find("storage_alignment=16"), std::string::npos);
}

TEST(Caps, NonsenseIsRefusedByName) {
  EXPECT_NE(refused(rich(), "shared_byte=1").find("did you mean 'shared_bytes'"), std::string::npos);
  EXPECT_NE(refused(rich(), "no_f61").find("no_f61"), std::string::npos);
  EXPECT_NE(refused(rich(), "shared_bytes=0").find("shared_bytes"), std::string::npos);
  EXPECT_NE(refused(rich(), "shared_bytes=12x").find("12x"), std::string::npos);
  EXPECT_NE(refused(rich(), "shared_bytes=-1").find("-1"), std::string::npos);
  EXPECT_NE(refused(rich(), "f16_arithmetic=0").find("no_f16_arithmetic"), std::string::npos);
  EXPECT_NE(refused(rich(), "shared_bytes").find("shared_bytes"), std::string::npos);
  EXPECT_NE(refused(rich(), "no_shared_bytes").find("no_shared_bytes"), std::string::npos);
  EXPECT_NE(refused(rich(), "subgroup_size=8").find("subgroup_size"), std::string::npos);
  EXPECT_NE(refused(rich(), "gflops=1").find("gflops"), std::string::npos);
  EXPECT_NE(refused(rich(), "push_bytes=30").find("multiple of 4"), std::string::npos);
}

TEST(Caps, TextRoundTrips) {
  EXPECT_EQ(parse_caps(print_caps(rich())), rich());
  EXPECT_EQ(parse_caps(print_caps(Caps{})), Caps{});
  EXPECT_EQ(parse_caps(""), Caps{});
  EXPECT_EQ(parse_caps("# a comment\n\n  shared_bytes = 1024\r\n").shared_bytes, 1024u);
}

TEST(Caps, TextErrorsNameTheLine) {
  for (const std::string_view text : {"shared_bytes", "shared = 4", "shared_bytes = x", "f64_arithmetic = 1", "max_groups = 1 2", "coop_shape = 16 16",
                                      "coop_shape = 16 16 16 f16 f33"}) {
    try {
      parse_caps(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
      const auto name = text.substr(0, text.find(' '));
      const auto part = text.ends_with("f33") ? "f33" : name;
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace aeshna
