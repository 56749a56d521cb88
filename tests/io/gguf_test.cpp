#include "io/gguf.h"

#include <cstring>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "aeshna/quantize.h"
#include "base/byte_reader.h"
#include "base/format.h"

namespace aeshna {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

/// Files made by hand.
struct Maker {
  Bytes bytes;
  Maker& raw(std::string_view text) {
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
    return *this;
  }
  template <class T>
  Maker& put(T value) {
    char raw_bytes[sizeof(T)];
    std::memcpy(raw_bytes, &value, sizeof(T));
    return raw({raw_bytes, sizeof(T)});
  }
  Maker& u32(std::uint32_t v) { return put(v); }
  Maker& u64(std::uint64_t v) { return put(v); }
  Maker& text(std::string_view t) { return u64(t.size()).raw(t); }
  Maker& header(std::uint64_t tensors, std::uint64_t values, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(values);
  }
  Maker& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (const auto d : dims) u64(d);
    return u32(type).u64(offset);
  }
  Maker& data(std::size_t count) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + count);
    return *this;
  }
};

std::string refusal(const Maker& maker, ErrorCode code = ErrorCode::CorruptFile) {
  try {
    GgufFile file(maker.bytes, "test.gguf");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find("test.gguf"), std::string::npos) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Gguf : public testing::Test {
 protected:
  void SetUp() override {
    dir = fs::temp_directory_path() /
          (std::string("aeshna_gguf_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir);
    fs::create_directories(dir);
  }
  void TearDown() override { fs::remove_all(dir); }
  fs::path dir;
};

Literal values(TensorType type, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> v(static_cast<std::size_t>(type.shape.elements()));
  for (double& x : v) x = static_cast<double>(random() % 2001) / 1000 - 1;
  const DType dtype = type.dtype;
  if (dtype_info(dtype).kind != DTypeInfo::Kind::Quantized) return Literal::from_doubles(type, v);
  return quantize(Literal::from_doubles({DType::f32, type.shape}, v), dtype);
}

GgufTensor tensor(std::string name, const Literal& value) {
  return {std::move(name), value.type(), [value] { return Bytes(value.bytes().begin(), value.bytes().end()); }};
}

/// One of everything.
std::vector<std::pair<std::string, Literal>> all_tensors() {
  std::vector<std::pair<std::string, Literal>> all = {
      {"scalar", Literal::scalar(3)},
      {"empty", values({DType::f32, {0, 4}}, 0)},
      {"ints", Literal::from_doubles({DType::i32, {3}}, std::vector<double>{1, -2, 3})}};
  unsigned seed = 1;
  for (const DType d : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                        DType::q4_K, DType::q6_K})
    all.emplace_back(dtype_name(d), values({d, {2, 3, 256}}, seed++));
  return all;
}

GgufMetadata all_metadata() {
  GgufMetadata m = {{"general.architecture", GgufValue::text("llama")},
                    {"flag", GgufValue::flag(true)},
                    {"count", GgufValue::integer(4000000000u)},
                    {"eps", GgufValue::number(1e-5f)},
                    {"tokens", GgufValue::texts({"a", "", "\n\xE2\x96\x81z"})},
                    {"scores", GgufValue::floats(std::vector<float>{0, -1.5f})},
                    {"types", GgufValue::ints(std::vector<std::int32_t>{1, -3})}};
  GgufValue wide = {.type = GgufType::i64, .numbers = Bytes(8, std::byte{255})};
  m.emplace_back("minus one", wide);
  wide.type = GgufType::u64;
  m.emplace_back("largest", wide);
  return m;
}

Bytes written(const fs::path& path, std::uint32_t version = 3, GgufMetadata metadata = all_metadata()) {
  std::vector<GgufTensor> tensors;
  for (const auto& [name, value] : all_tensors()) tensors.push_back(tensor(name, value));
  write_gguf(path, tensors, metadata, version);
  return read_file(path);
}

TEST_F(Gguf, RoundTripIsExact) {
  for (const std::uint32_t version : {2u, 3u}) {
    for (const std::uint32_t alignment : {0u, 1u, 8u, 256u}) {
      GgufMetadata metadata = all_metadata();
      if (alignment > 0) metadata.emplace_back("general.alignment", GgufValue::integer(alignment));
      const Bytes bytes = written(dir / "a.gguf", version, metadata);
      for (const GgufFile& file : {GgufFile(dir / "a.gguf"), GgufFile(bytes, "memory")}) {
        EXPECT_EQ(file.version(), version);
        EXPECT_EQ(file.metadata(), metadata);
        EXPECT_EQ(file.tensors().size(), all_tensors().size());
        for (const auto& [name, value] : all_tensors()) EXPECT_EQ(file.literal(name), value) << name;
        std::vector<GgufTensor> again;
        for (const GgufEntry& e : file.tensors()) again.push_back({e.name, e.type, [&] { return file.read(e); }});
        write_gguf(dir / "b.gguf", again, file.metadata(), file.version());
        EXPECT_EQ(read_file(dir / "b.gguf"), bytes);
      }
    }
  }
}

TEST_F(Gguf, TypedMetadata) {
  const GgufFile file(written(dir / "a.gguf"), "f.gguf");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("count"), 4000000000);
  EXPECT_EQ(file.integer("minus one"), -1);
  EXPECT_EQ(file.number("eps"), static_cast<double>(1e-5f));
  EXPECT_EQ(file.flag("flag"), true);
  EXPECT_EQ(file.texts("tokens")->size(), 3u);
  EXPECT_EQ(file.integer("absent"), std::nullopt);
  EXPECT_EQ(file.texts("absent"), nullptr);
  EXPECT_EQ(file.find("tokens")->to_string(), "string[3]: \"a\", \"\", \"\\n\xE2\x96\x81z\"");
  EXPECT_EQ(file.find("largest")->to_string(), "18446744073709551615");
  const auto wrong = [&](auto call) {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::CorruptFile);
      return std::string(e.what());
    }
    ADD_FAILURE() << "accepted";
    return std::string();
  };
  EXPECT_HAS(wrong([&] { (void)file.text("count"); }), "f.gguf: metadata 'count' is u32, not a string");
  EXPECT_HAS(wrong([&] { (void)file.integer("eps"); }), "'eps' is f32, not an integer");
  EXPECT_HAS(wrong([&] { (void)file.integer("largest"); }), "'largest' is u64, not an integer");
  EXPECT_HAS(wrong([&] { (void)file.number("tokens"); }), "'tokens' is string[], not a number");
  EXPECT_HAS(wrong([&] { (void)file.flag("count"); }), "not a boolean");
  EXPECT_HAS(wrong([&] { (void)file.texts("scores"); }), "'scores' is f32[], not an array of strings");
  EXPECT_THROW(file.literal("absent"), Error);
}

TEST_F(Gguf, TruncationAtEveryByte) {
  const Bytes bytes = written(dir / "a.gguf");
  const GgufFile whole(bytes, "whole");
  const GgufEntry& last = whole.tensors().back();
  const std::size_t needed = bytes.size() - (32 - last.bytes % 32) % 32;
  for (std::size_t size = 0; size < needed; ++size) {
    if (size > 4096 && size + 64 < needed && size % 97 != 0) continue;  // inside the data all are alike
    EXPECT_THROW(GgufFile(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)), "cut"), Error)
        << size;
  }
  EXPECT_NO_THROW(GgufFile(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(needed)), "unpadded"));
}

TEST_F(Gguf, HostileCounts) {
  EXPECT_HAS(refusal(Maker().header(UINT64_MAX, 0)), "number of tensors is 18446744073709551615, but only");
  EXPECT_HAS(refusal(Maker().header(0, 1ull << 60)), "number of metadata values");
  EXPECT_HAS(refusal(Maker().header(0, 1).u64(UINT64_MAX).data(64)), "key of the metadata is");
  EXPECT_HAS(refusal(Maker().header(0, 1).u64(0).data(64)), "key of the metadata of 0 bytes");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(8).u64(1ull << 63).data(64)), "string is");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(9).u32(4).u64(1ull << 62).data(64)), "length of an array");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(9).u32(8).u64(100).data(64)), "length of an array is 100");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(13).data(64)), "'k' has the type 13");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(9).u32(77).data(64)), "'k' has the type 77");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(9).u32(9).u64(1).data(64), ErrorCode::Unsupported),
             "'k' is an array of arrays");
  EXPECT_HAS(refusal(Maker().header(0, 1).text("k").u32(7).put<std::uint8_t>(2).data(64)), "neither 0 nor 1");
  EXPECT_HAS(refusal(Maker().header(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1).data(64)),
             "'k' is there twice");
  EXPECT_HAS(refusal(Maker().raw("GGUG").data(64)), "does not start with GGUF");
  EXPECT_HAS(refusal(Maker().header(0, 0, 1), ErrorCode::Unsupported), "version 1");
  EXPECT_HAS(refusal(Maker().header(0, 0, 4), ErrorCode::Unsupported), "version 4");
  EXPECT_HAS(refusal(Maker().header(0, 0, 0x03000000), ErrorCode::Unsupported), "version 3 in big-endian");
}

TEST_F(Gguf, ArraysNestedTenThousandDeep) {
  Maker deep;
  deep.header(0, 1).text("k").u32(9);
  for (int i = 0; i < 10'000; ++i) deep.u32(9).u64(1);
  EXPECT_HAS(refusal(deep.u32(4).u64(1).u32(7).data(64), ErrorCode::Unsupported), "'k' is an array of arrays");
}

TEST_F(Gguf, HostileTensors) {
  const auto one = [](std::vector<std::uint64_t> dims, std::uint32_t type = 0, std::uint64_t offset = 0,
                      std::size_t data = 64) {
    return Maker().header(1, 0).tensor("t", std::move(dims), type, offset).data(data);
  };
  EXPECT_NO_THROW(GgufFile(one({16}).bytes, "fits"));
  EXPECT_HAS(refusal(one({17})), "needs 68 bytes at 0, but there are 64");
  EXPECT_HAS(refusal(one({1, 1, 1, 1, 1})), "has 5 dimensions");
  Maker many;
  many.header(1, 0).text("t").u32(0xFFFFFFFF).data(64);
  EXPECT_HAS(refusal(many), "has 4294967295 dimensions");
  EXPECT_HAS(refusal(one({1ull << 63})), "has the dimension 9223372036854775808");
  EXPECT_HAS(refusal(one({1ull << 32, 1ull << 32})), "overflows");
  EXPECT_HAS(refusal(one({(1ull << 42) + 1, 1ull << 22})), "overflows");
  EXPECT_HAS(refusal(one({0, 1ull << 62, 1ull << 62})), "overflows");
  EXPECT_HAS(refusal(one({31}, 8)), "rows of 31 elements, no multiple of 32");
  EXPECT_HAS(refusal(one({32}, 12)), "no multiple of 256");
  EXPECT_HAS(refusal(one({}, 8)), "no multiple of 32");
  EXPECT_HAS(refusal(one({1}, 0, 16)), "no multiple of the alignment 32");
  EXPECT_HAS(refusal(one({1}, 0, UINT64_MAX - 31)), "but there are 64");
  EXPECT_HAS(refusal(one({1}, 4)), "has the type 4");
  EXPECT_HAS(refusal(one({1}, 1000)), "has the type 1000");
  EXPECT_HAS(refusal(Maker().header(2, 0).tensor("a", {256}, 13, 0).tensor("b", {256}, 16, 0).data(64),
                     ErrorCode::Unsupported),
             "does not have: Q5_K ('a'), IQ2_XXS ('b')");
  EXPECT_HAS(refusal(Maker().header(2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).data(64)),
             "'a' is there twice");
  EXPECT_HAS(refusal(Maker().header(2, 0).tensor("a", {16}, 0, 0).tensor("b", {1}, 0, 32).data(64)), "'b' overlaps");
  EXPECT_HAS(refusal(Maker().header(2, 0).tensor("a", {1}, 0, 0).tensor("b", {1}, 0, 0).data(64)), "overlaps");
  EXPECT_HAS(refusal(Maker().header(1, 0).tensor("", {1}, 0, 0).data(64)), "name of a tensor of 0 bytes");
  for (const std::uint32_t alignment : {0u, 3u, 48u, 1u << 31}) {
    EXPECT_HAS(
        refusal(Maker().header(1, 1).text("general.alignment").u32(4).u32(alignment).tensor("a", {1}, 0, 0).data(64)),
        formatted("an alignment of {}", alignment));
  }
  EXPECT_HAS(refusal(Maker().header(0, 1).text("general.alignment").u32(6).put(32.0f).data(64)), "not an integer");
}

TEST_F(Gguf, WriterRefuses) {
  const Literal a = Literal::scalar(1);
  const fs::path path = dir / "a.gguf";
  const auto code = [&](std::vector<GgufTensor> tensors, GgufMetadata metadata = {}) {
    try {
      write_gguf(path, tensors, metadata);
    } catch (const Error& e) {
      EXPECT_TRUE(fs::is_empty(dir)) << "nothing is left";
      return e.code();
    }
    ADD_FAILURE() << "written";
    return ErrorCode::Internal;
  };
  EXPECT_EQ(code({tensor("a", a), tensor("a", a)}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({tensor("", a)}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"a", {DType::f32, {2}}, [] { return Bytes(4); }}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"a", {DType::boolean, {2}}, [] { return Bytes(2); }}}), ErrorCode::Unsupported);
  EXPECT_EQ(code({{"a", {DType::f32, {1, 1, 1, 1, 1}}, [] { return Bytes(4); }}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({}, {{"general.alignment", GgufValue::integer(3)}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({}, {{"k", GgufValue::flag(true)}, {"k", GgufValue::flag(true)}}), ErrorCode::InvalidArgument);
}

TEST_F(Gguf, MissingFile) {
  try {
    GgufFile file(dir / "absent.gguf");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
  }
}

}  // namespace
}  // namespace aeshna
