#include "io/datasets.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <set>

#include <zlib.h>

#include "io/csv.h"
#include "io/gzip.h"
#include "io/idx.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string result(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

std::string word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string idx(const std::vector<std::uint32_t>& dims, const std::string& body, std::uint32_t type = 0x08) {
  std::string text = word(type << 8 | static_cast<std::uint32_t>(dims.size()));
  for (const std::uint32_t dim : dims) text += word(dim);
  return text + body;
}

std::string digit_line(int label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += std::to_string(i % 17) + ",";
  return line + std::to_string(label) + "\n";
}

// ---- gzip

TEST(Gzip, RoundTripAndSeveralMembers) {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += std::to_string(i * 7919);
  EXPECT_EQ(text_of(gunzip(bytes_of(gzip(text)), "f")), text);
  EXPECT_EQ(text_of(gunzip(bytes_of(gzip("one") + gzip("") + gzip(text)), "f")), "one" + text);
  EXPECT_EQ(text_of(gunzip(bytes_of(gzip("")), "f")), "");
}

TEST(Gzip, TruncationAtEveryByteIsAnError) {
  const std::string whole = gzip("some text that is compressed");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_ERROR(gunzip(bytes_of(cut), "cut.gz"), ErrorCode::CorruptFile, "cut.gz");
  }
}

TEST(Gzip, DamageAndRubbishAfterTheEndAreErrors) {
  const std::string whole = gzip("some text that is compressed");
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;  // the checksum
  EXPECT_ERROR(gunzip(bytes_of(damaged), "bad.gz"), ErrorCode::CorruptFile, "bad.gz");
  EXPECT_ERROR(gunzip(bytes_of(whole + "rubbish"), "bad.gz"), ErrorCode::CorruptFile, "bad.gz");
  EXPECT_ERROR(gunzip(bytes_of("plain text"), "bad.gz"), ErrorCode::CorruptFile, "bad.gz");
}

TEST(Gzip, ABombStopsAtTheLimit) {
  const std::string bomb = gzip(std::string(10'000'000, 'a'));
  EXPECT_ERROR(gunzip(bytes_of(bomb), "bomb.gz", 1'000'000), ErrorCode::LimitExceeded, "more than 1000000 bytes");
  EXPECT_EQ(gunzip(bytes_of(bomb), "bomb.gz", 10'000'000).size(), 10'000'000u);
}

// ---- csv

TEST(NumberCsv, ReadsNumbersAndLineEndings) {
  const NumberTable table = parse_number_csv("1,2.5,-3e2\r\n4,5,6", 3, "t.csv");
  EXPECT_EQ(table.rows, 2);
  EXPECT_EQ(table.values, (std::vector<double>{1, 2.5, -300, 4, 5, 6}));
  EXPECT_EQ(table.at(1, 2), 6);
  EXPECT_EQ(parse_number_csv("", 3, "t.csv").rows, 0);
}

TEST(NumberCsv, ErrorsNameLineAndColumn) {
  const auto error = [](const char* text, const char* part) {
    EXPECT_ERROR(parse_number_csv(text, 3, "t.csv"), ErrorCode::CorruptFile, part);
  };
  error("1,2,3\n4,x,6\n", "t.csv: line 2, column 2: expected a number, found 'x'");
  error("1,2,3\n4,,6\n", "line 2, column 2: expected a number, found ''");
  error("1,2, 3\n", "line 1, column 3: expected a number, found ' 3'");
  error("1,2,3.0.0\n", "line 1, column 3");
  error("1,nan,3\n", "line 1, column 2");
  error("1,2,1e999\n", "line 1, column 3");
  error("1,2\n", "line 1: expected 3 columns, found 2");
  error("1,2,3,4\n", "line 1: more than 3 columns");
  error("1,2,3\n\n4,5,6\n", "line 2: empty line");
  error("1,2,3\n\n", "line 2: empty line");
  error("1,2,3,", "line 1: more than 3 columns");
  error(
      "1,2,\x01\xff"
      "abcdefghijklmnopqrstuvwxyz\n",
      "found '??abcdefghijklmnopqrstuv...'");
}

// ---- idx

TEST(Idx, ReadsBigEndianArrays) {
  const IdxArray array = parse_idx(bytes_of(idx({2, 1, 3}, "abcdef")), 3, "f");
  EXPECT_EQ(array.shape, (Shape{2, 1, 3}));
  EXPECT_EQ(array.values, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(parse_idx(bytes_of(idx({0, 4}, "")), 2, "f").values.size(), 0u);
}

TEST(Idx, TruncationAtEveryByteIsAnError) {
  const std::string whole = idx({2, 2, 2}, "abcdefgh");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_ERROR(parse_idx(bytes_of(cut), 3, "cut.idx"), ErrorCode::CorruptFile, "cut.idx");
  }
  EXPECT_ERROR(parse_idx(bytes_of(whole + "x"), 3, "long.idx"), ErrorCode::CorruptFile,
               "announces [2, 2, 2] bytes, 9 follow");
}

TEST(Idx, HostileHeaders) {
  const auto error = [](const std::string& bytes, ErrorCode code, const char* part) {
    EXPECT_ERROR(parse_idx(bytes_of(bytes), 3, "h.idx"), code, part);
  };
  error(idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc"), ErrorCode::CorruptFile, "3 follow");
  error(idx({1u << 31, 1u << 31, 4}, ""), ErrorCode::CorruptFile, "0 follow");  // 2^64 wraps to 0
  error(idx({0xffffffff, 0xffffffff, 0}, "abc"), ErrorCode::CorruptFile, "3 follow");
  error(idx({2, 2}, "abcd"), ErrorCode::CorruptFile, "expected an array of rank 3, found rank 2");
  error(idx({1, 1, 1}, "abcd", 0x0d), ErrorCode::Unsupported, "0x0d");
  error(idx({1, 1, 1}, "a", 0x07), ErrorCode::CorruptFile, "not an IDX file");
  error("\x89PNG\r\n\x1a\n", ErrorCode::CorruptFile, "not an IDX file (magic number 0x89504e47)");
}

// ---- data sets

TEST(Datasets, DigitsThatComeWithAeshna) {
  const PictureSet set = read_digits(std::filesystem::path(AESHNA_SOURCE_DIR) / "data" / "optdigits.csv.gz");
  EXPECT_EQ(set.data.size(), 1797);
  EXPECT_EQ(set.height, 8);
  EXPECT_EQ(set.width, 8);
  const auto& x = set.data.column("x").f32;
  EXPECT_EQ(*std::ranges::min_element(x), 0);
  EXPECT_EQ(*std::ranges::max_element(x), 1);
  EXPECT_EQ(x[2], 5.0f / 16);
  const auto& labels = set.data.column("labels").i32;
  std::array<int, 10> counts{};
  for (const std::int32_t label : labels) ++counts.at(static_cast<std::size_t>(label));
  EXPECT_EQ(counts, (std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

TEST(Datasets, TheSplitOfTheDigitsIsStratifiedAndDisjoint) {
  const PictureSet set = read_digits(std::filesystem::path(AESHNA_SOURCE_DIR) / "data" / "optdigits.csv.gz");
  const Split split = stratified_split(set.data, "labels", 297, 2024);
  ASSERT_EQ(split.train.size(), 1500);
  ASSERT_EQ(split.test.size(), 297);
  std::array<int, 10> counts{};
  for (const std::int32_t label : split.test.column("labels").i32) ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) EXPECT_NEAR(count, 29.7, 1.3);
  const auto rows = [](const Dataset& data) {
    std::multiset<std::vector<float>> result;
    const auto& x = data.column("x").f32;
    for (std::size_t i = 0; i < x.size(); i += 64)
      result.emplace(x.begin() + static_cast<std::ptrdiff_t>(i), x.begin() + static_cast<std::ptrdiff_t>(i + 64));
    return result;
  };
  auto all = rows(split.train);
  all.merge(rows(split.test));
  EXPECT_EQ(all, rows(set.data));  // every picture once
}

TEST(Datasets, DigitErrorsNameThePlace) {
  const test::TempDir dir;
  EXPECT_EQ(read_digits(dir.write("good.csv", digit_line(3) + digit_line(9))).data.size(), 2);
  EXPECT_EQ(read_digits(dir.write("good.csv.gz", gzip(digit_line(3)))).data.size(), 1);
  EXPECT_ERROR(read_digits(dir / "none.csv"), ErrorCode::NotFound, "none.csv");
  EXPECT_ERROR(read_digits(dir.write("empty.csv", "")), ErrorCode::CorruptFile, "empty.csv: no digits");
  EXPECT_ERROR(read_digits(dir.write("label.csv", digit_line(3) + digit_line(10))), ErrorCode::CorruptFile,
               "label.csv: line 2, column 65: 10 is not a class 0..9");
  EXPECT_ERROR(read_digits(dir.write("pixel.csv", "17" + digit_line(1).substr(1))), ErrorCode::CorruptFile,
               "line 1, column 1: 17 is not a pixel value 0..16");
  EXPECT_ERROR(read_digits(dir.write("fraction.csv", "0.5" + digit_line(1).substr(1))), ErrorCode::CorruptFile,
               "column 1: 0.5");
  EXPECT_ERROR(read_digits(dir.write("short.csv", "1,2,3\n")), ErrorCode::CorruptFile,
               "line 1: expected 65 columns, found 3");
  EXPECT_ERROR(read_digits(dir.write("cut.csv.gz", gzip(digit_line(3)).substr(0, 20))), ErrorCode::CorruptFile,
               "cut.csv.gz");
}

TEST(Datasets, MnistPlainAndGzip) {
  const test::TempDir dir;
  const std::string pixels("\0\x7f\xff\x33\x66\x99", 6), labels("\x07\x02", 2);
  dir.write("train-images-idx3-ubyte.gz", gzip(idx({2, 1, 3}, pixels)));
  dir.write("train-labels-idx1-ubyte", idx({2}, labels));
  Mnist mnist = read_mnist(dir.path());
  EXPECT_FALSE(mnist.test);
  EXPECT_EQ(mnist.train.data.size(), 2);
  EXPECT_EQ(mnist.train.data.column("x").row, Shape{3});
  EXPECT_EQ(mnist.train.data.column("x").f32,
            (std::vector<float>{0, 127 / 255.0f, 1, 51 / 255.0f, 102 / 255.0f, 153 / 255.0f}));
  EXPECT_EQ(mnist.train.data.column("labels").i32, (std::vector<std::int32_t>{7, 2}));

  dir.write("t10k-images-idx3-ubyte", idx({1, 1, 3}, "abc"));
  EXPECT_ERROR(read_mnist(dir.path()), ErrorCode::NotFound, "missing t10k-labels-idx1-ubyte");
  dir.write("t10k-labels-idx1-ubyte", idx({1}, std::string(1, '\x01')));
  EXPECT_EQ(read_mnist(dir.path()).test->data.size(), 1);
  dir.write("t10k-images-idx3-ubyte", idx({1, 3, 1}, "abc"));
  EXPECT_ERROR(read_mnist(dir.path()), ErrorCode::CorruptFile, "pictures of 3x1");
}

TEST(Datasets, MnistErrorsNameTheFile) {
  const test::TempDir dir;
  EXPECT_ERROR(read_mnist(dir.path()), ErrorCode::NotFound,
               "missing train-images-idx3-ubyte, train-labels-idx1-ubyte (plain or with .gz)");
  EXPECT_ERROR(read_mnist(dir / "none"), ErrorCode::NotFound, "train-images");
  const auto pictures = dir.write("p", idx({2, 1, 1}, "ab"));
  EXPECT_ERROR(read_idx_pictures(pictures, dir.write("three", idx({3}, std::string("\0\1\2", 3)))),
               ErrorCode::CorruptFile, "has 3 labels");
  EXPECT_ERROR(read_idx_pictures(pictures, dir.write("ten", idx({2}, "\x01\x0a"))), ErrorCode::CorruptFile,
               "label 1 is 10, not 0..9");
  EXPECT_ERROR(read_idx_pictures(pictures, pictures), ErrorCode::CorruptFile,
               "expected an array of rank 1, found rank 3");
  EXPECT_ERROR(read_idx_pictures(dir.write("e", idx({0, 1, 1}, "")), dir.write("el", idx({0}, ""))),
               ErrorCode::CorruptFile, "no pictures");
}

}  // namespace
}  // namespace aeshna
