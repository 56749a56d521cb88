#include "io/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "support/expect_error.h"

#ifdef __unix__
#include <sys/resource.h>
#include <csignal>
#endif

namespace aeshna {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir = fs::temp_directory_path() / (std::string("aeshna_safetensors_") + info->name());
    fs::remove_all(dir);
    fs::create_directories(dir);
  }
  void TearDown() override { fs::remove_all(dir); }
  fs::path dir;
};

/// A file with this header text and so many zero bytes of data.
std::vector<std::byte> file_of(std::string header, std::size_t data_bytes, std::uint64_t length = UINT64_MAX) {
  if (length == UINT64_MAX) length = header.size();
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string refusal(std::vector<std::byte> bytes, ErrorCode code = ErrorCode::CorruptFile) {
  try {
    SafetensorsFile file(std::move(bytes), "test.safetensors");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find("test.safetensors"), std::string::npos) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST_F(Safetensors, RoundTrip) {
  const std::vector<double> numbers{1, -2.5, 3e30, 0, 5, 6};
  const std::vector<double> small{1, 0, 1};
  const Literal a = Literal::from_doubles({DType::f32, {2, 3}}, numbers);
  const Literal b = Literal::from_doubles({DType::boolean, {3}}, small);
  const Literal c = Literal::scalar(-7, DType::i64);
  const Literal d = Literal::from_doubles({DType::u16, {0, 4}}, {});
  const fs::path path = dir / "a.safetensors";
  const SafetensorsTensor tensors[] = {{"b/\"quoted\"", b.type(), b.bytes()},
                                       {"a", a.type(), a.bytes()},
                                       {"c", c.type(), c.bytes()},
                                       {"empty", d.type(), d.bytes()}};
  write_safetensors(path, tensors, {{"key", "va\"lue\n"}, {"z", ""}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("key"), "va\"lue\n");
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.literal("a"), a);
  EXPECT_EQ(file.literal("b/\"quoted\""), b);
  EXPECT_EQ(file.literal("c"), c);
  EXPECT_EQ(file.literal("empty"), d);
  EXPECT_EQ(file.find("nope"), nullptr);
  EXPECT_THROW(file.literal("nope"), Error);
  EXPECT_EQ(file.tensors()[0].name, "c") << "the widest element first";

  // Data starts at a multiple of 8, and the same bytes in memory read the same.
  const std::vector<std::byte> raw = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, raw.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(SafetensorsFile(raw, "memory").literal("a"), a);
}

TEST_F(Safetensors, WriterRefuses) {
  const Literal a = Literal::scalar(1);
  const fs::path path = dir / "a.safetensors";
  const auto code = [&](std::vector<SafetensorsTensor> tensors) {
    try {
      write_safetensors(path, tensors);
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(path));
      return e.code();
    }
    ADD_FAILURE() << "written";
    return ErrorCode::Internal;
  };
  EXPECT_EQ(code({{"a", a.type(), a.bytes()}, {"a", a.type(), a.bytes()}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"__metadata__", a.type(), a.bytes()}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"a", {DType::f32, {2}}, a.bytes()}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"\xff", a.type(), a.bytes()}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({{"a", {DType::q8_0, {0}}, {}}}), ErrorCode::Unsupported);
}

TEST_F(Safetensors, FailedWriteKeepsTheOldFile) {
  const Literal a = Literal::scalar(1);
  const SafetensorsTensor tensors[] = {{"a", a.type(), a.bytes()}};
  const fs::path path = dir / "a.safetensors";
  write_safetensors(path, tensors);
  const std::vector<std::byte> before = read_file(path);
  const SafetensorsTensor wrong[] = {{"a", {DType::f32, {3}}, a.bytes()}};
  EXPECT_THROW(write_safetensors(path, wrong), Error);
  EXPECT_EQ(read_file(path), before);
  EXPECT_THROW(write_safetensors(dir / "absent" / "a.safetensors", tensors), Error);
}

#ifdef __unix__
/// A limit on file sizes makes the write fail half-way, as a full disk does.
TEST_F(Safetensors, FullDiskKeepsTheOldFile) {
  const Literal small = Literal::scalar(1);
  const std::vector<double> zeros(100'000);
  const Literal large = Literal::from_doubles({DType::f32, {100'000}}, zeros);
  const SafetensorsTensor old_tensors[] = {{"a", small.type(), small.bytes()}},
                          new_tensors[] = {{"a", large.type(), large.bytes()}};
  const fs::path path = dir / "a.safetensors";
  write_safetensors(path, old_tensors);

  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{50'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ErrorCode code = ErrorCode::Internal;
  try {
    write_safetensors(path, new_tensors);
  } catch (const Error& e) {
    code = e.code();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(code, ErrorCode::Io);
  EXPECT_EQ(SafetensorsFile(path).literal("a"), small);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 1) << "the temporary file is gone";
}
#endif

TEST_F(Safetensors, Absent) {
  try {
    SafetensorsFile file(dir / "absent");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
  }
}

TEST_F(Safetensors, HostileHeaders) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_NO_THROW(SafetensorsFile(file_of(one, 8), "good"));
  EXPECT_NO_THROW(SafetensorsFile(file_of(one + "   ", 8), "good"));

  refusal({});
  refusal(bytes_of("1234567"));
  EXPECT_HAS(refusal(file_of(one, 8, one.size() + 9)), "header length");
  EXPECT_HAS(refusal(file_of(one, 8, 1ull << 63)), "header length");
  EXPECT_HAS(refusal(file_of(one, 8, UINT64_MAX - 3)), "header length");
  EXPECT_HAS(refusal(file_of(one, 8, 100'000'001)), "100000000");
  EXPECT_HAS(refusal(file_of("", 0, 0)), "{");
  EXPECT_HAS(refusal(file_of("[1]", 0)), "{");
  EXPECT_HAS(refusal(file_of(" " + one, 8)), "{");
  EXPECT_HAS(refusal(file_of("{\"a\":", 0)), "JSON");
  EXPECT_HAS(refusal(file_of("{}x", 0)), "JSON");
  EXPECT_HAS(refusal(file_of("{\"\xff\":1}", 0)), "JSON");
  EXPECT_HAS(refusal(file_of(one, 7)), "tensors take 8 bytes");
  EXPECT_HAS(refusal(file_of(one, 9)), "tensors take 8 bytes");
  EXPECT_HAS(refusal(file_of("{\"a\":" + std::string(100000, '['), 0)), "deeper");
  EXPECT_HAS(
      refusal(file_of(
          R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          0)),
      "duplicate key 'a'");
  EXPECT_HAS(refusal(file_of(R"({"a":{"dtype":"F32","shape":[0],"shape":[2],"data_offsets":[0,8]}})", 8)),
             "duplicate key 'shape'");
}

TEST_F(Safetensors, HostileTensors) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string f32 = "\"F32\"";
  EXPECT_HAS(refusal(file_of(tensor("\"F33\"", "[2]", "[0,8]"), 8), ErrorCode::Unsupported), "'F33'");
  EXPECT_HAS(refusal(file_of(tensor("3", "[2]", "[0,8]"), 8)), "dtype");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[3]", "[0,8]"), 8)), "needs 12 bytes");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[2]", "[8,0]"), 8)), "offsets");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[2]", "[4,12]"), 12)), "hole");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[2]", "[0]"), 8)), "data offsets");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[-2]", "[0,8]"), 8)), "no size");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[2.0]", "[0,8]"), 8)), "no size");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[18446744073709551615]", "[0,8]"), 8)), "no size");
  EXPECT_HAS(refusal(file_of(tensor(f32, "\"2\"", "[0,8]"), 8)), "shape");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[2]", "[0,18446744073709551624]"), 8)), "no size");
  // 2^32 * 2^32 * 4 wraps to 0.
  EXPECT_HAS(refusal(file_of(tensor(f32, "[4294967296,4294967296]", "[0,0]"), 0)), "overflows");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[4611686018427387904,2,0]", "[0,0]"), 0)), "overflows");
  EXPECT_HAS(refusal(file_of(tensor(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), ErrorCode::Unsupported), "rank 9");
  EXPECT_HAS(refusal(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8)),
             "unknown key 'more'");
  EXPECT_HAS(refusal(file_of(R"({"a":7})", 0)), "'a'");
  EXPECT_HAS(refusal(file_of(R"({"__metadata__":{"k":1}})", 0)), "metadata");
  EXPECT_HAS(refusal(file_of(R"({"__metadata__":[]})", 0)), "__metadata__");
  // Two tensors over the same bytes, as one known attack does.
  EXPECT_HAS(
      refusal(file_of(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12)),
      "overlap");
}

TEST_F(Safetensors, TruncationAndBitFlips) {
  const std::vector<double> numbers{1, 2, 3, 4, 5, 6};
  const Literal a = Literal::from_doubles({DType::f32, {2, 3}}, numbers);
  const SafetensorsTensor tensors[] = {{"a", a.type(), a.bytes()}, {"b", a.type(), a.bytes()}};
  write_safetensors(dir / "a", tensors, {{"k", "v"}});
  const std::vector<std::byte> good = read_file(dir / "a");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(SafetensorsFile({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}, "cut"), Error)
        << size;
  }
  int accepted = 0;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    try {
      const SafetensorsFile file(bad, "flipped");
      for (const SafetensorsEntry& entry : file.tensors()) EXPECT_EQ(file.read(entry).size(), entry.end - entry.begin);
      ++accepted;  // a flip in data, a name, a metadata string: another file, and a valid one
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::CorruptFile || e.code() == ErrorCode::Unsupported) << e.what();
    }
  }
  EXPECT_GE(accepted, 2 * 24 * 8) << "every flip in the data is a valid file";
}

#ifdef AESHNA_PYTHON
/// Exit status of a Python program, or -1 when Python lacks what it needs.
int python(const std::string& program) {
  const std::string probe = std::string(AESHNA_PYTHON) + " -c 'import numpy, safetensors.numpy' > /dev/null 2>&1";
  if (std::system(probe.c_str()) != 0) return -1;                                        // NOLINT: a test
  return std::system((std::string(AESHNA_PYTHON) + " -c \"" + program + "\"").c_str());  // NOLINT
}

TEST_F(Safetensors, PythonReadsOurs) {
  const std::vector<double> numbers{1, -2.5, 3, 4, 5, 6};
  const std::vector<double> flags{1, 0, 1};
  const Literal a = Literal::from_doubles({DType::f32, {2, 3}}, numbers);
  const Literal b = Literal::from_doubles({DType::boolean, {3}}, flags);
  const Literal c = Literal::scalar(-7, DType::i64);
  const SafetensorsTensor tensors[] = {
      {"a", a.type(), a.bytes()}, {"b", b.type(), b.bytes()}, {"c", c.type(), c.bytes()}};
  write_safetensors(dir / "ours", tensors, {{"key", "value"}});
  const int status = python(
      "import numpy as np; from safetensors import safe_open\n"
      "f = safe_open('" +
      (dir / "ours").string() +
      "', 'np')\n"
      "assert f.metadata() == {'key': 'value'}, f.metadata()\n"
      "assert (f.get_tensor('a') == np.array([[1, -2.5, 3], [4, 5, 6]], np.float32)).all()\n"
      "assert f.get_tensor('b').tolist() == [True, False, True]\n"
      "assert f.get_tensor('c') == -7 and f.get_tensor('c').shape == ()\n");
  if (status < 0) GTEST_SKIP() << AESHNA_PYTHON << " lacks numpy or safetensors";
  EXPECT_EQ(status, 0);
}

TEST_F(Safetensors, WeReadPythons) {
  const int status = python(
      "import numpy as np; from safetensors.numpy import save_file\n"
      "save_file({'x': np.arange(6, dtype=np.float32).reshape(2, 3), 'y': np.array([7], np.int8), 'e': np.zeros((0, "
      "4)),"
      " 'h': np.array([1.5], np.float16)}, '" +
      (dir / "theirs").string() + "', metadata={'who': 'python'})\n");
  if (status < 0) GTEST_SKIP() << AESHNA_PYTHON << " lacks numpy or safetensors";
  ASSERT_EQ(status, 0);
  const SafetensorsFile file(dir / "theirs");
  EXPECT_EQ(file.metadata().at("who"), "python");
  const std::vector<double> x{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(file.literal("x"), Literal::from_doubles({DType::f32, {2, 3}}, x));
  EXPECT_EQ(file.literal("y").at(0), 7);
  EXPECT_EQ(file.literal("h").at(0), 1.5);
  EXPECT_EQ(file.literal("e").type(), (TensorType{DType::f64, {0, 4}}));
}
#endif

/// Twenty thousand tensors are read in a moment: the header's checks are linear.
TEST_F(Safetensors, ManyTensors) {
  std::string header = "{";
  for (int i = 0; i < 20000; ++i)
    header += formatted("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i == 0 ? "" : ",", i);
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  bytes += header;
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  const SafetensorsFile file(std::vector<std::byte>(data, data + bytes.size()), "many");
  EXPECT_EQ(file.tensors().size(), 20000u);
}

}  // namespace
}  // namespace aeshna
