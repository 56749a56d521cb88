// Quantized blocks: bytes worked out by hand from the definition of the formats, errors of fit, device layout.
#include "base/quant.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "aeshna/error.h"
#include "aeshna/quantize.h"
#include "base/half.h"

namespace aeshna {
namespace {

constexpr DType kAll[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_K, DType::q6_K};

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

std::vector<std::byte> quantized(DType dtype, const std::vector<float>& values) {
  const DTypeInfo& info = dtype_info(dtype);
  std::vector<std::byte> blocks(values.size() / info.block_elements * info.block_bytes);
  quantize_blocks(dtype, values, blocks);
  return blocks;
}

std::vector<float> dequantized(DType dtype, const std::vector<std::byte>& blocks) {
  const DTypeInfo& info = dtype_info(dtype);
  std::vector<float> values(blocks.size() / info.block_bytes * info.block_elements);
  dequantize_blocks(dtype, blocks, values);
  return values;
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<std::byte> result(count);
  for (std::byte& b : result) b = static_cast<std::byte>(engine() >> 56);
  return result;
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed, float scale = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

TEST(Quant, Q8_0ByHand) {
  std::vector<float> x(32, 0);
  x[0] = 127, x[1] = -127, x[2] = 0.5f, x[3] = -0.5f, x[4] = 2.4f, x[31] = -3.6f;  // d = 1; halves round away from zero
  std::vector<std::byte> want(34, std::byte{0});
  const auto head = bytes({0x00, 0x3c, 127, 0x81, 1, 0xff, 2});
  std::ranges::copy(head, want.begin());
  want[33] = std::byte{0xfc};
  EXPECT_EQ(quantized(DType::q8_0, x), want);
  const std::vector<float> back = dequantized(DType::q8_0, want);
  EXPECT_EQ(back[0], 127);
  EXPECT_EQ(back[1], -127);
  EXPECT_EQ(back[3], -1);
  EXPECT_EQ(back[31], -4);
}

TEST(Quant, Q4_0ByHand) {
  std::vector<float> x(32, 0);
  x[0] = -8, x[16] = 7, x[1] = 7.9f, x[17] = -1.5f;  // d = 1: the extreme becomes quant 0, 7.9 saturates at 15
  std::vector<std::byte> want(18, std::byte{0x88});
  const auto head = bytes({0x00, 0x3c, 0xf0, 0x7f});  // -1.5 + 8.5 = 7
  std::ranges::copy(head, want.begin());
  EXPECT_EQ(quantized(DType::q4_0, x), want);
  const std::vector<float> back = dequantized(DType::q4_0, want);
  EXPECT_EQ(back[0], -8);
  EXPECT_EQ(back[16], 7);
  EXPECT_EQ(back[1], 7);
  EXPECT_EQ(back[17], -1);
  EXPECT_EQ(back[5], 0);
}

TEST(Quant, Q4_1ByHand) {
  std::vector<float> x(32, 0);
  x[0] = -1, x[16] = 14, x[2] = 3.4f;  // d = 1, m = -1
  std::vector<std::byte> want(20, std::byte{0x11});
  const auto head = bytes({0x00, 0x3c, 0x00, 0xbc, 0xf0, 0x11, 0x14});
  std::ranges::copy(head, want.begin());
  EXPECT_EQ(quantized(DType::q4_1, x), want);
  const std::vector<float> back = dequantized(DType::q4_1, want);
  EXPECT_EQ(back[0], -1);
  EXPECT_EQ(back[16], 14);
  EXPECT_EQ(back[2], 3);
}

TEST(Quant, Q5_0ByHand) {
  std::vector<float> x(32, 0);
  x[0] = -16, x[16] = 15;  // d = 1; zeros are quant 16: high bit 1, low nibble 0
  std::vector<std::byte> want(22, std::byte{0});
  const auto head = bytes({0x00, 0x3c, 0xfe, 0xff, 0xff, 0xff, 0xf0});
  std::ranges::copy(head, want.begin());
  EXPECT_EQ(quantized(DType::q5_0, x), want);
  const std::vector<float> back = dequantized(DType::q5_0, want);
  EXPECT_EQ(back[0], -16);
  EXPECT_EQ(back[16], 15);
  EXPECT_EQ(back[7], 0);
}

TEST(Quant, Q4_KByHand) {
  std::vector<std::byte> block(144, std::byte{0});
  const auto head = bytes({0x00, 0x3c, 0x00, 0x38});  // d = 1, dmin = 0.5
  std::ranges::copy(head, block.begin());
  // Group 0: scale 5, minimum 3. Group 4: scale 42 = 2 << 4 | 10, minimum 49 = 3 << 4 | 1; their high bits are in bytes
  // 0 and 4.
  block[4] = std::byte{5 | 2 << 6};
  block[8] = std::byte{3 | 3 << 6};
  block[12] = std::byte{10 | 1 << 4};
  block[16] = std::byte{0x97};       // elements 0 and 32
  block[16 + 64] = std::byte{0x0c};  // elements 128 and 160
  const std::vector<float> y = dequantized(DType::q4_K, block);
  EXPECT_EQ(y[0], 5 * 7 - 1.5f);
  EXPECT_EQ(y[1], -1.5f);
  EXPECT_EQ(y[32], 0);
  EXPECT_EQ(y[128], 42 * 12 - 24.5f);
  EXPECT_EQ(y[160], 0);
}

TEST(Quant, Q6_KByHand) {
  std::vector<std::byte> block(210, std::byte{0});
  block[0] = std::byte{0x21};        // ql: elements 0 (1) and 64 (2)
  block[32] = std::byte{0x5f};       // ql: elements 32 (15) and 96 (5)
  block[128] = std::byte{0xe4};      // qh: 0, 1, 2, 3 for elements 0, 32, 64, 96
  block[64 + 31] = std::byte{0x30};  // second half: element 128 + 64 + 31
  block[192 + 0] = std::byte{2};
  block[192 + 2] = std::byte{0xfd};  // -3
  block[192 + 4] = std::byte{1};
  block[192 + 6] = std::byte{0x80};                         // -128
  block[192 + 13] = std::byte{10};                          // elements 208 to 223
  block[208] = std::byte{0}, block[209] = std::byte{0x38};  // d = 0.5
  const std::vector<float> y = dequantized(DType::q6_K, block);
  EXPECT_EQ(y[0], 0.5f * 2 * (1 - 32));
  EXPECT_EQ(y[32], 0.5f * -3 * (15 + 16 - 32));
  EXPECT_EQ(y[64], 0.5f * 1 * (2 + 32 - 32));
  EXPECT_EQ(y[96], 0.5f * -128 * (5 + 48 - 32));
  EXPECT_EQ(y[223], 0.5f * 10 * (3 - 32));
  EXPECT_EQ(y[222], 0.5f * 10 * -32);
  EXPECT_EQ(y[1], 0.5f * 2 * -32);
}

TEST(Quant, FitsNormalValues) {
  struct Bound {
    DType dtype;
    double rms;  ///< of the error, relative to the values; a little more than was measured
  };
  for (const auto& [dtype, rms] : {Bound{DType::q4_0, 0.10}, Bound{DType::q4_1, 0.085}, Bound{DType::q5_0, 0.05},
                                   Bound{DType::q8_0, 0.006}, Bound{DType::q4_K, 0.075}, Bound{DType::q6_K, 0.025}}) {
    for (const float scale : {1.0f, 1e-3f, 1000.0f}) {
      const std::vector<float> x = random_values(4096, 5, scale);
      const std::vector<float> y = dequantized(dtype, quantized(dtype, x));
      double error = 0, size = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(y[i]) - x[i], 2);
        size += std::pow(static_cast<double>(x[i]), 2);
      }
      EXPECT_LT(std::sqrt(error / size), rms) << dtype_name(dtype) << " at scale " << scale;
      EXPECT_GT(std::sqrt(error / size), rms / 4) << dtype_name(dtype) << ": the bound says nothing";
    }
  }
}

TEST(Quant, DegenerateBlocks) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const float value : {0.0f, 1e-40f, -1e-30f}) {  // scales below f16: zeros
      for (const float y : dequantized(dtype, quantized(dtype, std::vector<float>(256, value))))
        EXPECT_NEAR(y, 0, 1e-7);
    }
    for (const float value : {3.0f, -0.25f}) {
      for (const float y : dequantized(dtype, quantized(dtype, std::vector<float>(256, value))))
        EXPECT_NEAR(y, value, std::fabs(value) / 100);
    }
  }
}

TEST(Quant, RefusesWhatABlockCannotHold) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const float value : {NAN, INFINITY, -INFINITY, 1e30f, 2e8f}) {
      std::vector<float> x(256, 0.5f);
      x[70] = value;
      try {
        quantized(dtype, x);
        // q6_K holds 2e8: the largest scale times -128 * -32.
        EXPECT_TRUE(dtype == DType::q6_K && value == 2e8f) << value;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::OutOfRange);
        const std::string text = e.what();
        EXPECT_TRUE(text.find("element") != std::string::npos && text.find(dtype_name(dtype)) != std::string::npos)
            << text;
      }
    }
  }
}

TEST(Quant, DeviceUnitsKeepEveryByte) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(dtype_name(dtype));
    const std::size_t size = dtype_info(dtype).block_bytes, unit = quant_unit_blocks(dtype);
    EXPECT_EQ(unit * size % 4, 0u);
    for (const std::size_t blocks : {0, 1, 2, 3, 8}) {
      const std::vector<std::byte> original = random_bytes(blocks * size, 9 + blocks);
      std::vector<std::uint32_t> words((blocks + unit - 1) / unit * unit * size / 4, 0xdeadbeef);
      pack_blocks(dtype, original, words);
      std::vector<std::byte> back(original.size());
      unpack_blocks(dtype, words, back);
      EXPECT_EQ(back, original) << blocks;
      if (unit == 2 && blocks == 3) {
        EXPECT_EQ(words[size / 2] >> 16, 0u) << "the missing block's scale";
        EXPECT_EQ(words.back(), 0u);
      }
    }
  }
  // A pair of q8_0: both scales, then 32 quants each.
  std::vector<std::byte> pair(68);
  for (std::size_t i = 0; i < 68; ++i) pair[i] = static_cast<std::byte>(i);
  std::vector<std::uint32_t> words(17);
  pack_blocks(DType::q8_0, pair, words);
  EXPECT_EQ(words[0], 0x23220100u);
  EXPECT_EQ(words[1], 0x05040302u);
  EXPECT_EQ(words[9], 0x27262524u);
  EXPECT_EQ(words[16], 0x43424140u);
}

TEST(Quant, LiteralsAreQuantizedOnRequestOnly) {
  const std::vector<double> values(64, 0.75);
  const TensorType type{DType::q8_0, {2, 32}};
  EXPECT_THROW(Literal::from_doubles(type, values), Error);
  const Literal q = quantize(Literal::from_doubles({DType::f32, {2, 32}}, values), DType::q8_0);
  EXPECT_EQ(q.type(), type);
  EXPECT_EQ(q.bytes().size(), 68u);
  EXPECT_NEAR(q.at(63), 0.75, 1e-3);
  EXPECT_EQ(q.to_doubles()[40], q.at(40));
  EXPECT_EQ(dequantize(q).type(), (TensorType{DType::f32, {2, 32}}));
  EXPECT_EQ(dequantize(q).at(3), q.at(3));
  EXPECT_EQ(dequantize(q, DType::bf16).type().dtype, DType::bf16);

  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no Error";
  };
  const Literal odd = Literal::from_doubles({DType::f32, {1, 48}}, std::vector<double>(48, 1));
  EXPECT_NE(message([&] { quantize(odd, DType::q4_0); }).find("whole blocks of 32"), std::string::npos);
  const Literal short_row = Literal::from_doubles({DType::f32, {2, 128}}, std::vector<double>(256, 1));
  EXPECT_NE(message([&] { quantize(short_row, DType::q6_K); }).find("whole blocks of 256"), std::string::npos);
  EXPECT_NE(message([&] { quantize(odd, DType::f16); }).find("f16 is no quantized dtype"), std::string::npos);
  EXPECT_NE(message([&] { dequantize(odd); }).find("is not quantized"), std::string::npos);
}

}  // namespace
}  // namespace aeshna
