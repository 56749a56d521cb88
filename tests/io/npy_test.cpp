#include "io/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/format.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

std::vector<std::byte> file_of(const std::string& header, const std::string& data, int major = 1) {
  std::string text = "\x93NUMPY";
  text +=
      {static_cast<char>(major), '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  if (major > 1) text += std::string(2, '\0');
  text += header + data;
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

TEST(Npy, WritesWhatItReads) {
  const test::TempDir dir;
  for (const DType dtype : {DType::f32, DType::f16, DType::f64, DType::i8, DType::i16, DType::i32, DType::i64,
                            DType::u8, DType::u16, DType::u32, DType::u64, DType::boolean}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0}, Shape{2, 3, 1}}) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < shape.elements(); ++i)
        values.push_back(dtype == DType::boolean ? static_cast<double>(i % 2) : static_cast<double>(i));
      const Literal value = Literal::from_doubles({dtype, shape}, values);
      write_npy(dir / "x.npy", value);
      EXPECT_EQ(read_npy(dir / "x.npy"), value) << value.type().to_string();
      EXPECT_EQ((std::filesystem::file_size(dir / "x.npy") - value.bytes().size()) % 64, 0u);
    }
  }
  // NumPy has no bfloat16; f32 holds it exactly.
  write_npy(dir / "b.npy", Literal::from_doubles({DType::bf16, {2}}, std::vector<double>{1.5, -3}));
  EXPECT_EQ(read_npy(dir / "b.npy"), Literal::from_doubles({DType::f32, {2}}, std::vector<double>{1.5, -3}));
  EXPECT_ERROR(write_npy(dir / "q.npy", Literal::from_doubles({DType::f8e4m3, {1}}, std::vector<double>{1})),
               ErrorCode::Unsupported, "f8e4m3");
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const Literal c = parse_npy(
      file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", floats({0, 1, 2, 3, 4, 5})),
      "c.npy");
  EXPECT_EQ(c, Literal::from_doubles({DType::f32, {2, 3}}, std::vector<double>{0, 1, 2, 3, 4, 5}));
  const Literal fortran = parse_npy(
      file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", floats({0, 3, 1, 4, 2, 5}), 2), "f.npy");
  EXPECT_EQ(fortran, c);
  const Literal cube = parse_npy(
      file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 2)}", std::string("\0\4\2\6\1\5\3\7", 8)),
      "cube.npy");
  EXPECT_EQ(cube.to_doubles(), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(parse_npy(file_of("{\"shape\": (), \"fortran_order\": False, \"descr\": \"<f4\"}", floats({7}), 3), "s.npy")
                .type()
                .shape,
            Shape{});
}

TEST(Npy, RefusesByName) {
  const auto error = [](const std::string& header, ErrorCode code, const std::string& part, std::size_t bytes = 4) {
    EXPECT_ERROR(parse_npy(file_of(header, std::string(bytes, '\0')), "x.npy"), code, part);
  };
  error("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", ErrorCode::Unsupported, "dtype '>f4'");
  error("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", ErrorCode::Unsupported, "dtype '|O'");
  error("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", ErrorCode::Unsupported, "dtype '<c8'");
  error("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", ErrorCode::Unsupported, "records");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", ErrorCode::Unsupported,
        "rank above 8");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", ErrorCode::CorruptFile,
        "f32[2] needs 8 bytes, 4 are there");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", ErrorCode::CorruptFile,
        "needs 4 bytes, 5 are there", 5);
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", ErrorCode::CorruptFile,
        "overflows");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ErrorCode::CorruptFile,
        "does not fit 64 bits");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", ErrorCode::CorruptFile, "a dimension expected");
  error("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", ErrorCode::CorruptFile, "neither True nor False");
  error("{'descr': '<f4', 'shape': (1,), }", ErrorCode::CorruptFile, "missing");
  error("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", ErrorCode::CorruptFile, "'descr'");
  error("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } import os", ErrorCode::CorruptFile,
        "after the dictionary");
  error("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", ErrorCode::CorruptFile, "needs 1 bytes");
  EXPECT_ERROR(parse_npy(file_of("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\2"), "b.npy"),
               ErrorCode::CorruptFile, "a boolean is 2");
  EXPECT_ERROR(parse_npy({}, "empty.npy"), ErrorCode::CorruptFile, "empty.npy");
  EXPECT_ERROR(read_npy("/no/such.npy"), ErrorCode::NotFound, "such.npy");
}

TEST(Npy, NestedTenThousandDeep) {
  for (const char c : {'(', '[', '{'}) {
    const std::string deep(10'000, c);
    EXPECT_ERROR(parse_npy(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': " + deep, "", 2), "deep.npy"),
                 ErrorCode::CorruptFile, "deep.npy");
    EXPECT_THROW(parse_npy(file_of(deep, "", 2), "deep.npy"), Error);
  }
}

TEST(Npy, CutOffFilesAreErrors) {
  const std::vector<std::byte> whole =
      file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", floats({0, 3, 1, 4, 2, 5}));
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(parse_npy(std::span(whole).first(n), "cut.npy"), Error) << n;
}

}  // namespace
}  // namespace aeshna
