// base/half: all 65536 values there and back, and rounding against an independent search.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/half.h"
#include "base/philox.h"

namespace aeshna {
namespace {

bool is_nan16(std::uint16_t bits, std::uint16_t exponent_mask) {
  return (bits & exponent_mask) == exponent_mask && (bits & 0x7fff & ~exponent_mask) != 0;
}

TEST(Half, EveryF16RoundTrips) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = f16_to_f32(bits);
    if (is_nan16(bits, 0x7c00)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(is_nan16(f32_to_f16(value), 0x7c00)) << i;
    } else {
      ASSERT_EQ(f32_to_f16(value), bits) << i;
    }
  }
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
}

TEST(Half, EveryBf16RoundTrips) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = bf16_to_f32(bits);
    if (is_nan16(bits, 0x7f80)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(is_nan16(f32_to_bf16(value), 0x7f80)) << i;
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits) << i;
    }
  }
}

/// Between neighbours a < b of the format: the midpoint goes to the even encoding, its neighbours in f32 to the nearer one.
template <class Encode, class Decode>
void check_midpoints(Encode encode, Decode decode, std::uint16_t largest) {
  for (std::uint16_t bits = 0; bits < largest; ++bits) {
    const float low = decode(bits);
    const float high = decode(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    if (middle > low && middle < high) {  // f32 may be too coarse for the middle of bf16 subnormals: it is not
      ASSERT_EQ(encode(middle), even) << bits;
      ASSERT_EQ(encode(std::nextafter(middle, low)), bits);
      ASSERT_EQ(encode(std::nextafter(middle, high)), bits + 1);
      ASSERT_EQ(encode(-middle), even | 0x8000) << bits;
    }
  }
}

TEST(Half, TiesToEven) {
  check_midpoints(f32_to_f16, f16_to_f32, 0x7bff);
  check_midpoints(f32_to_bf16, bf16_to_f32, 0x7f7f);
}

TEST(Half, Overflow) {
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_to_bf16(3.4e38f), 0x7f80);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(0x1.000002p-25f), 1);
}

TEST(Half, NarrowFloatsRoundTrip) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    for (int i = 0; i < 256; ++i) {
      const auto bits = static_cast<std::uint8_t>(i);
      const double value = decode_f8(dtype, bits);
      if (std::isnan(value)) EXPECT_TRUE(std::isnan(decode_f8(dtype, encode_f8(dtype, value))));
      else EXPECT_EQ(encode_f8(dtype, value), bits) << i;
    }
  }
  EXPECT_EQ(decode_f8(DType::f8e4m3, 0x7e), 448);
  EXPECT_TRUE(std::isnan(decode_f8(DType::f8e4m3, 0x7f)));
  EXPECT_TRUE(std::isnan(decode_f8(DType::f8e4m3, encode_f8(DType::f8e4m3, 1000))));
  EXPECT_EQ(decode_f8(DType::f8e5m2, 0x7b), 57344);
  EXPECT_TRUE(std::isinf(decode_f8(DType::f8e5m2, encode_f8(DType::f8e5m2, 1e9))));
}

/// Rounding a double once differs from rounding it through f32 first; round_to_float must be the former.
TEST(Half, DoubleIsRoundedOnce) {
  const double just_above_tie = 1.0 + 0x1p-11 + 0x1p-40;  // f32 drops the last bit and would tie to even
  EXPECT_EQ(round_to_float(DType::f16, just_above_tie), 1.0 + 0x1p-10);
  EXPECT_EQ(f16_to_f32(f32_to_f16(static_cast<float>(just_above_tie))), 1.0f);
}

TEST(Half, RoundToFloatAgreesWithTheConversions) {
  PhiloxStream stream(3, 4);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(stream.next_u32());
    if (std::isnan(value)) continue;
    ASSERT_EQ(round_to_float(DType::f16, value), f16_to_f32(f32_to_f16(value))) << value;
    ASSERT_EQ(round_to_float(DType::bf16, value), bf16_to_f32(f32_to_bf16(value))) << value;
  }
  EXPECT_TRUE(std::isinf(round_to_float(DType::f32, 1e300)));
}

}  // namespace
}  // namespace aeshna
