// base/byte_reader: bounds of every read; whole files, atomically written, on a full disk too.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/resource.h>
#include <unistd.h>
#include <csignal>
#endif

#include <fstream>

#include "aeshna/error.h"
#include "base/byte_reader.h"

namespace aeshna {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(const std::filesystem::path& path) {
  const auto bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("aeshna-file-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

ErrorCode code_of(auto body, std::string* message = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.message();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::Internal;
}

TEST(ByteReader, Values) {
  const unsigned char raw[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0xff, 0x00,
                               0x00, 0x80, 0x3f, 'a',  'b',  0x12, 0x34, 0x56, 0x78};
  ByteReader reader(std::as_bytes(std::span(raw)), "f.bin");
  EXPECT_EQ(reader.u64("x"), 0xff07060504030201ull);
  EXPECT_EQ(reader.f32("x"), 1.0f);
  EXPECT_EQ(reader.text(2, "x"), "ab");
  EXPECT_EQ(reader.u32_big("x"), 0x12345678u);
  EXPECT_EQ(reader.remaining(), 0u);
  reader.seek(1, "x");
  EXPECT_EQ(reader.u16("x"), 0x0302u);
  EXPECT_EQ(reader.u32("x"), 0x07060504u);
  EXPECT_EQ(reader.u8("x"), 0xffu);
  EXPECT_EQ(reader.position(), 8u);
}

TEST(ByteReader, OverrunsNameWhatWhereAndFile) {
  ByteReader reader(bytes_of("abcdef"), "m.gguf");
  reader.u16("magic");
  std::string message;
  EXPECT_EQ(code_of([&] { reader.u64("tensor count"); }, &message), ErrorCode::CorruptFile);
  EXPECT_EQ(message, "m.gguf: tensor count needs 8 bytes, but 4 remain (at byte 2)");
  EXPECT_EQ(code_of([&] { reader.take(UINT64_MAX, "data"); }), ErrorCode::CorruptFile);
  EXPECT_EQ(code_of([&] { reader.seek(7, "table"); }), ErrorCode::CorruptFile);
  EXPECT_EQ(code_of([&] { reader.seek(UINT64_MAX, "table"); }), ErrorCode::CorruptFile);
  EXPECT_EQ(reader.position(), 2u);  // a failed read moves nothing
  reader.seek(6, "end");
  EXPECT_EQ(code_of([&] { reader.u8("byte"); }), ErrorCode::CorruptFile);
  EXPECT_EQ(reader.take(0, "nothing").size(), 0u);
}

TEST(Files, ReadErrorsNameThePath) {
  const TemporaryDirectory directory;
  std::string message;
  EXPECT_EQ(code_of([&] { read_file(directory / "absent"); }, &message), ErrorCode::NotFound);
  EXPECT_NE(message.find("absent"), std::string::npos);
  EXPECT_EQ(code_of([&] { read_file(directory / "."); }), ErrorCode::Io);
  std::ofstream(directory / "large") << std::string(200000, 'x');
  EXPECT_EQ(read_file(directory / "large").size(), 200000u);
  EXPECT_EQ(read_file(directory / "large", 200000).size(), 200000u);
  EXPECT_EQ(code_of([&] { read_file(directory / "large", 199999); }, &message), ErrorCode::LimitExceeded);
  EXPECT_NE(message.find("199999"), std::string::npos);
  std::ofstream(directory / "empty");
  EXPECT_TRUE(read_file(directory / "empty", 0).empty());
}

#ifdef __linux__
TEST(Files, LimitHoldsForEndlessFiles) {
  EXPECT_EQ(code_of([&] { read_file("/dev/zero", 1 << 20); }), ErrorCode::LimitExceeded);
}
#endif

TEST(Files, WriteReplacesAtomically) {
  const TemporaryDirectory directory;
  const std::span<const std::byte> first[] = {bytes_of("old "), {}, bytes_of("text")};
  write_file_atomic(directory / "f", first);
  EXPECT_EQ(text_of(directory / "f"), "old text");
  const std::span<const std::byte> second[] = {bytes_of("new")};
  write_file_atomic(directory / "f", second);
  EXPECT_EQ(text_of(directory / "f"), "new");
  EXPECT_EQ(directory.files(), 1u);
}

TEST(Files, WriteFollowsALink) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "real") << "old";
  std::filesystem::create_symlink("real", directory / "link");
  const std::span<const std::byte> parts[] = {bytes_of("new")};
  write_file_atomic(directory / "link", parts);
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(text_of(directory / "real"), "new");
}

TEST(Files, WriteErrorsNameThePath) {
  const TemporaryDirectory directory;
  const std::span<const std::byte> parts[] = {bytes_of("x")};
  std::string message;
  EXPECT_EQ(code_of([&] { write_file_atomic(directory / "no/such/f", parts); }, &message), ErrorCode::Io);
  EXPECT_NE(message.find("no/such"), std::string::npos);
  std::filesystem::create_directory(directory / "d");
  EXPECT_EQ(code_of([&] { write_file_atomic(directory / "d", parts); }), ErrorCode::Io);
#ifdef __linux__
  EXPECT_EQ(code_of([&] { write_file_atomic("/dev/full", parts); }), ErrorCode::Io);
#endif
}

#ifndef _WIN32
/// The largest file of this process is limited for a while: writes then fail as they do on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);  // write() then gives EFBIG
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit old_{};
  void (*previous_handler_)(int) = nullptr;
};

TEST(Files, AFullDiskKeepsTheOldFile) {
  const TemporaryDirectory directory;
  const std::string old(1000, 'o');
  const std::span<const std::byte> first[] = {bytes_of(old)};
  write_file_atomic(directory / "checkpoint", first);
  for (const std::size_t size : {std::size_t{5000}, std::size_t{1} << 20}) {  // fails at the flush, and at a write
    const std::string large(size, 'n');
    const std::span<const std::byte> second[] = {bytes_of(large)};
    std::string message;
    {
      const FileSizeLimit limit(4096);
      EXPECT_EQ(code_of([&] { write_file_atomic(directory / "checkpoint", second); }, &message), ErrorCode::Io);
    }
    EXPECT_NE(message.find("checkpoint"), std::string::npos) << message;
    EXPECT_NE(message.find("too large"), std::string::npos) << message;  // the system's reason
    EXPECT_EQ(text_of(directory / "checkpoint"), old);
    EXPECT_EQ(directory.files(), 1u);  // the temporary file is gone
  }
}
#endif

}  // namespace
}  // namespace aeshna
