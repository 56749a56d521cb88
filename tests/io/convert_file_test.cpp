#include "io/convert_file.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "aeshna/quantize.h"
#include "base/byte_reader.h"
#include "base/quant.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

Literal wave(Shape shape, DType dtype = DType::f32) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) * 0.37);
  if (!is_quantized(dtype)) return Literal::from_doubles({dtype, shape}, values);
  return quantize(Literal::from_doubles({DType::f32, shape}, values), dtype);
}

/// Two matrices whose rows have whole blocks of 256 and of 32, one without, a vector, integers.
std::vector<std::pair<std::string, Literal>> some_tensors() {
  return {{"wide", wave({3, 512})},
          {"narrow", wave({4, 96})},
          {"odd", wave({5, 33}, DType::f16)},
          {"norm", wave({256})},
          {"ids", Literal::from_doubles({DType::i32, {2, 32}}, std::vector<double>(64, 7))}};
}

void write_some_gguf(const std::filesystem::path& path) {
  std::vector<GgufTensor> tensors;
  for (const auto& [name, value] : some_tensors())
    tensors.push_back(
        {name, value.type(), [value] { return std::vector<std::byte>(value.bytes().begin(), value.bytes().end()); }});
  write_gguf(path, tensors,
             {{"general.name", GgufValue::text("some")},
              {"k.count", GgufValue::integer(3)},
              {"k.list", GgufValue::texts({"a"})}},
             2);
}

TEST(ConvertFile, CopiesAreExact) {
  const TempDir dir;
  write_some_gguf(dir / "a.gguf");
  for (const ConvertedTensor& t : convert_file(dir / "a.gguf", dir / "b.gguf")) EXPECT_EQ(t.from, t.to);
  EXPECT_EQ(read_file(dir / "a.gguf"), read_file(dir / "b.gguf"));
  convert_file(dir / "a.gguf", dir / "c.safetensors");
  const SafetensorsFile file(dir / "c.safetensors");
  for (const auto& [name, value] : some_tensors()) EXPECT_EQ(file.literal(name), value) << name;
  EXPECT_EQ(file.metadata().at("general.name"), "some");
  EXPECT_EQ(file.metadata().at("k.count"), "3");
  EXPECT_FALSE(file.metadata().contains("k.list"));
  convert_file(dir / "c.safetensors", dir / "d.gguf");
  const GgufFile back(dir / "d.gguf");
  for (const auto& [name, value] : some_tensors()) EXPECT_EQ(back.literal(name), value) << name;
  EXPECT_EQ(back.text("general.name"), "some");
  convert_file(dir / "c.safetensors", dir / "e.safetensors");
  EXPECT_EQ(read_file(dir / "c.safetensors"), read_file(dir / "e.safetensors"));
}

TEST(ConvertFile, Quantizes) {
  const TempDir dir;
  write_some_gguf(dir / "a.gguf");
  struct Case {
    DType asked, wide, narrow;
    int file_type;
  };
  for (const Case& c :
       {Case{DType::q8_0, DType::q8_0, DType::q8_0, 7}, Case{DType::q5_0, DType::q5_0, DType::q5_0, 8},
        Case{DType::q4_0, DType::q4_0, DType::q4_0, 2}, Case{DType::q4_1, DType::q4_1, DType::q4_1, 3},
        Case{DType::q4_K, DType::q4_K, DType::q5_0, 14}, Case{DType::q6_K, DType::q6_K, DType::q8_0, 18}}) {
    const auto report = convert_file(dir / "a.gguf", dir / "q.gguf", c.asked);
    const GgufFile file(dir / "q.gguf");
    EXPECT_EQ(file.literal("wide"), quantize(wave({3, 512}), c.wide));
    EXPECT_EQ(file.literal("narrow"), quantize(wave({4, 96}), c.narrow));
    EXPECT_EQ(file.literal("odd").type().dtype, DType::f16) << "no multiple of 32";
    EXPECT_EQ(file.literal("norm").type().dtype, DType::f32);
    EXPECT_EQ(file.literal("ids").type().dtype, DType::i32);
    EXPECT_EQ(file.integer("general.file_type"), c.file_type);
    EXPECT_EQ(file.integer("general.quantization_version"), 2);
    EXPECT_EQ(file.version(), 2u);
    for (const ConvertedTensor& t : report) {
      EXPECT_EQ(file.find_tensor(t.name)->type.dtype, t.to);
      EXPECT_EQ(!t.note.empty(), t.name == "odd" || (t.name == "narrow" && c.narrow != c.asked))
          << t.name << ": " << t.note;
    }
    // Blocks to floats: safetensors has no others.
    convert_file(dir / "q.gguf", dir / "q.safetensors");
    EXPECT_EQ(SafetensorsFile(dir / "q.safetensors").literal("wide"), dequantize(quantize(wave({3, 512}), c.wide)));
  }
  convert_file(dir / "a.gguf", dir / "h.safetensors", DType::bf16);
  EXPECT_EQ(SafetensorsFile(dir / "h.safetensors").literal("wide"), wave({3, 512}, DType::bf16));
  EXPECT_EQ(SafetensorsFile(dir / "h.safetensors").literal("norm").type().dtype, DType::f32);
}

TEST(ConvertFile, Refusals) {
  const TempDir dir;
  write_some_gguf(dir / "a.gguf");
  EXPECT_ERROR(convert_file(dir / "a.gguf", dir / "b.txt"), ErrorCode::Unsupported,
               "b.txt: neither .gguf nor .safetensors");
  EXPECT_ERROR(convert_file(dir / "a.bin", dir / "b.gguf"), ErrorCode::Unsupported, "a.bin: neither");
  EXPECT_ERROR(convert_file(dir / "absent.gguf", dir / "b.gguf"), ErrorCode::NotFound, "absent.gguf");
  EXPECT_ERROR(convert_file(dir / "a.gguf", dir / "a.gguf"), ErrorCode::InvalidArgument, "is the file that is read");
  EXPECT_ERROR(convert_file(dir / "a.gguf", dir / "b.gguf", DType::i8), ErrorCode::Unsupported, "converted to i8");
  std::vector<double> values(64, 0.0);
  values[3] = 1e30;
  const Literal beyond = Literal::from_doubles({DType::f32, {2, 32}}, values);
  write_gguf(
      dir / "l.gguf",
      std::vector<GgufTensor>{{"large", beyond.type(),
                               [&] { return std::vector<std::byte>(beyond.bytes().begin(), beyond.bytes().end()); }}},
      {});
  EXPECT_ERROR(convert_file(dir / "l.gguf", dir / "b.gguf", DType::q8_0), ErrorCode::OutOfRange, "tensor 'large'");
  EXPECT_FALSE(std::filesystem::exists(dir / "b.gguf"));
}

}  // namespace
}  // namespace aeshna::test
