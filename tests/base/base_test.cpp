// base: errors, dtypes, shapes, checked arithmetic, names, hashes, random numbers.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "aeshna/attrs.h"
#include "aeshna/error.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/philox.h"

namespace aeshna {
namespace {

/// Code and message of what `body` throws; fails the test when it throws nothing.
template <class Body>
std::pair<ErrorCode, std::string> thrown(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::Internal, ""};
}

#define EXPECT_ERROR(body, expected_code, part)            \
  do {                                                     \
    const auto [code, text] = thrown([&] { body; });       \
    EXPECT_EQ(code, ErrorCode::expected_code) << text;     \
    EXPECT_NE(text.find(part), std::string::npos) << text; \
  } while (false)

TEST(Error, ContextsAreChained) {
  Error error(ErrorCode::NotFound, "no tensor 'w'");
  error.context("tensor table").context("file a.safetensors");
  EXPECT_STREQ(error.what(), "no tensor 'w'\n  in tensor table\n  in file a.safetensors");
  EXPECT_EQ(error.message(), "no tensor 'w'");
  EXPECT_EQ(error.contexts(), (std::vector<std::string>{"tensor table", "file a.safetensors"}));
}

TEST(Error, ANulInANameCutsNothingOff) {
  Error error(ErrorCode::CorruptFile, std::string("the label 'a\0b' is bad", 22));
  error.context(std::string("x\0y", 3));
  EXPECT_STREQ(error.what(), "the label 'a\\0b' is bad\n  in x\\0y");
}

TEST(Error, ANameCannotCommandTheTerminal) {
  Error error(ErrorCode::CorruptFile, "the file '\x1b[2J\x7f\r\u00e9' is bad:\n\tno file");
  error.context("\a");
  EXPECT_STREQ(error.what(), "the file '\\x1b[2J\\x7f\\x0d\u00e9' is bad:\n\tno file\n  in \\x07");
}

TEST(Error, EveryCodeHasAName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::Internal); ++code)
    names.insert(error_code_name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::Internal) + 1);
  EXPECT_FALSE(names.contains("unknown error"));
}

TEST(Error, CheckNamesConditionAndPlace) {
  EXPECT_ERROR(AESHNA_CHECK(1 + 1 == 3), Internal, "1 + 1 == 3");
  EXPECT_ERROR(AESHNA_CHECK(false), Internal, "base_test.cpp:");
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::q6_K); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_ERROR(parse_dtype("float"), InvalidArgument, "'float'");
}

TEST(DType, Blocks) {
  EXPECT_EQ(dtype_info(DType::q4_K).block_bytes, 144u);
  EXPECT_EQ((TensorType{DType::q4_0, {3, 64}}.bytes()), 3 * 2 * 18);
  EXPECT_EQ((TensorType{DType::i4, {3}}.bytes()), 2);
  EXPECT_EQ((TensorType{DType::boolean, {5}}.bytes()), 5);
  EXPECT_ERROR((TensorType{DType::q4_0, {64, 33}}.bytes()), InvalidArgument, "q4_0[64, 33]");
  EXPECT_ERROR((TensorType{DType::q4_0, {}}.bytes()), InvalidArgument, "whole blocks of 32");
}

TEST(Shape, ElementsAreChecked) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 3}.elements()), 6);
  EXPECT_EQ((Shape{1ll << 40, 1ll << 40, 0}.elements()), 0);
  EXPECT_ERROR((Shape{1ll << 32, 1ll << 32}.elements()), LimitExceeded, "[4294967296, 4294967296]");
  EXPECT_ERROR((TensorType{DType::f32, {1ll << 62}}.bytes()), LimitExceeded, "f32[4611686018427387904]");
}

TEST(Shape, RankAndSignAreChecked) {
  EXPECT_ERROR((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), InvalidArgument, "rank 9");
  EXPECT_ERROR((Shape{2, -1}), InvalidArgument, "[2, -1]");
  EXPECT_EQ((Shape{4, 5}.axis(-1)), 1);
  EXPECT_ERROR((Shape{4, 5}.axis(2)), InvalidArgument, "axis 2");
  EXPECT_ERROR((Shape{4, 5}.axis(-3)), InvalidArgument, "axis -3");
}

TEST(Shape, Broadcast) {
  EXPECT_EQ(broadcast_shapes({5, 1, 3}, {4, 1}), (Shape{5, 4, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2}), (Shape{2}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_ERROR(broadcast_shapes({2, 3}, {2, 4}), ShapeMismatch, "[2, 3] and [2, 4]");
  EXPECT_ERROR(broadcast_shapes({0}, {2}), ShapeMismatch, "[0] and [2]");
}

TEST(Shape, Strides) {
  const auto strides = dense_strides({2, 3, 4});
  EXPECT_EQ(strides[0], 12);
  EXPECT_EQ(strides[1], 4);
  EXPECT_EQ(strides[2], 1);
}

TEST(Checked, Arithmetic) {
  EXPECT_EQ(checked_mul(std::int64_t{-3}, std::int64_t{4}, "x"), -12);
  EXPECT_ERROR(checked_mul(std::int64_t{1} << 62, std::int64_t{2}, "row bytes"), LimitExceeded, "row bytes");
  EXPECT_ERROR(checked_add(UINT64_MAX, std::uint64_t{1}, "offset"), LimitExceeded, "offset");
  EXPECT_ERROR(checked_u32(1ull << 32, "index"), LimitExceeded, "index");
  EXPECT_EQ(align_up(257, 256), 512u);
  EXPECT_EQ(align_up(512, 256), 512u);
  EXPECT_EQ(align_up(7, 3), 9u);
  EXPECT_EQ(align_up(0, 16), 0u);
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(ceil_div(UINT64_MAX, std::uint64_t{2}), (1ull << 63));
}

TEST(Literal, NumbersAreConvertedExactlyOrRefused) {
  const Literal ints = Literal::from_doubles({DType::i8, {3}}, std::array{-128.0, 0.0, 127.0});
  EXPECT_EQ(ints.to_doubles(), (std::vector{-128.0, 0.0, 127.0}));
  EXPECT_ERROR(Literal::scalar(128, DType::i8), OutOfRange, "128");
  EXPECT_ERROR(Literal::scalar(0.5, DType::i32), OutOfRange, "0.5");
  EXPECT_ERROR(Literal::scalar(NAN, DType::i32), OutOfRange, "nan");
  EXPECT_ERROR(Literal::scalar(0x1p63, DType::i64), OutOfRange, "i64");
  EXPECT_ERROR(Literal::scalar(-1, DType::u64), OutOfRange, "u64");
  EXPECT_ERROR(Literal::scalar(2, DType::boolean), OutOfRange, "bool");
  EXPECT_ERROR(Literal::scalar(8, DType::i4), OutOfRange, "i4");
  EXPECT_EQ(Literal::scalar(-0x1p63, DType::i64).at(0), -0x1p63);
  EXPECT_EQ(Literal::from_doubles({DType::i4, {3}}, std::array{-8.0, 7.0, -1.0}).to_doubles(),
            (std::vector{-8.0, 7.0, -1.0}));
  EXPECT_EQ(Literal::from_doubles({DType::u4, {3}}, std::array{15.0, 0.0, 9.0}).to_doubles(),
            (std::vector{15.0, 0.0, 9.0}));
}

TEST(Literal, SizesAreChecked) {
  EXPECT_ERROR(Literal({DType::f32, {2}}, std::vector<std::byte>(7)), InvalidArgument,
               "needs 8 bytes, but there are 7");
  EXPECT_ERROR(Literal::from_doubles({DType::f32, {2}}, std::array{1.0}), ShapeMismatch, "f32[2]");
  EXPECT_ERROR(Literal::scalar(1).at(1), OutOfRange, "element 1");
  EXPECT_ERROR(Literal().at(0), OutOfRange, "0 elements");
  EXPECT_EQ(Literal(), Literal());
  EXPECT_NE(Literal::scalar(0.0), Literal::scalar(-0.0));
  EXPECT_EQ(Literal::scalar(2, DType::i32), Literal::scalar(2, DType::i32));
  EXPECT_NE(Literal::scalar(2, DType::i32), Literal::scalar(2, DType::u32));
}

TEST(Attrs, SortedTypedAndNamed) {
  Attrs attrs{{"z", true}, {"a", std::int64_t{3}}};
  attrs.set("m", 0.5);
  attrs.set("a", std::int64_t{4});
  ASSERT_EQ(attrs.items().size(), 3u);
  EXPECT_EQ(attrs.items()[0].first, "a");
  EXPECT_EQ(attrs.get<std::int64_t>("a"), 4);
  EXPECT_EQ(attrs.get_or<double>("none", 2.0), 2.0);
  EXPECT_ERROR(attrs.get<double>("axis"), InvalidArgument, "'axis' is missing");
  EXPECT_ERROR(attrs.get<double>("a"), InvalidArgument, "'a' has another type");
  EXPECT_ERROR(attrs.get_or<double>("z", 0.0), InvalidArgument, "'z'");
}

TEST(Attrs, NumbersCompareByBits) {
  EXPECT_NE((Attrs{{"v", 0.0}}), (Attrs{{"v", -0.0}}));
  EXPECT_EQ((Attrs{{"v", std::nan("")}}), (Attrs{{"v", std::nan("")}}));
  EXPECT_NE((Attrs{{"v", std::vector{0.0}}}), (Attrs{{"v", std::vector{-0.0}}}));
  EXPECT_NE((Attrs{{"v", 1.0}}), (Attrs{{"v", std::int64_t{1}}}));
  EXPECT_NE((Attrs{{"v", 1.0}}), (Attrs{{"w", 1.0}}));
}

TEST(Names, Suggestions) {
  const std::vector<std::string> names = {"encoder/w1", "loss", "logits"};
  EXPECT_EQ(near_names("logit", names), std::vector<std::string>{"logits"});
  EXPECT_EQ(suggest_names("los", names), " (did you mean 'loss'?)");
  EXPECT_EQ(suggest_names("something else", names), " (there are: 'encoder/w1', 'loss', 'logits')");
  EXPECT_EQ(suggest_names("x", {}), "");
}

TEST(Hash, DependsOnEverything) {
  const auto of = [](auto... parts) {
    Hasher hasher;
    (hasher.add(parts), ...);
    return hasher.hex();
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(of("abc"sv).size(), 32u);
  EXPECT_EQ(of("abc"sv), of("abc"sv));
  std::set<std::string> all = {of("abc"sv),          of("abd"sv),      of("abc\0"sv),    of("ab"sv, "c"sv),
                               of("a"sv, "bc"sv),    of(""sv),         of(""sv, ""sv),   of(std::uint64_t{0}),
                               of(std::uint64_t{1}), of("abcdefgh"sv), of("abcdefghi"sv)};
  EXPECT_EQ(all.size(), 11u);
  // Stable across machines and versions: cache files on disk depend on it.
  EXPECT_EQ(of("aeshna"sv, std::uint64_t{7}), "b84b1553943a4c48e91707e1f397ec39");
}

TEST(Hash, EveryBitOfAWordReachesBothHalves) {
  const std::string base = Hasher().add(std::uint64_t{0}).hex();
  for (int bit = 0; bit < 64; ++bit) {
    const std::string flipped = Hasher().add(std::uint64_t{1} << bit).hex();
    EXPECT_NE(flipped.substr(0, 16), base.substr(0, 16)) << bit;
    EXPECT_NE(flipped.substr(16), base.substr(16)) << bit;
  }
}

TEST(Philox, PublishedVectors) {  // kat_vectors of Random123
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32_10({f, f, f, f}, {f, f}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamIsTheCounterSequence) {
  PhiloxStream stream(0x100000002ull, 0x300000004ull);
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (const std::uint32_t word : philox4x32_10({block, 0, 4, 3}, {2, 1})) EXPECT_EQ(stream.next_u32(), word);
  }
}

TEST(Philox, UniformAndNormal) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_LT(uniform_from_bits(0xffffffff), 1.0f);
  EXPECT_EQ(uniform_from_bits(0x80000000), 0.5f);
  EXPECT_TRUE(std::isfinite(normal_from_bits(0, 0)));
  EXPECT_TRUE(std::isfinite(normal_from_bits(0xffffffff, 0xffffffff)));
  PhiloxStream stream(5, 6);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double value = stream.next_normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 4 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 0.05);
}

TEST(Philox, BelowIsUnbiasedAndInRange) {
  PhiloxStream stream(1, 2);
  std::array<int, 5> counts{};
  for (int i = 0; i < 10000; ++i) ++counts.at(stream.next_below(5));
  for (const int count : counts) EXPECT_NEAR(count, 2000, 200);
  EXPECT_EQ(stream.next_below(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(stream.next_below((1ull << 63) + 1), (1ull << 63) + 1);
}

}  // namespace
}  // namespace aeshna
