#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "aeshna/error.h"
#include "base/byte_reader.h"
#include "codegen/codegen.h"

namespace aeshna {
namespace {

namespace fs = std::filesystem;

class SpirvCacheTest : public testing::Test {
 protected:
  fs::path directory = fs::temp_directory_path() /
                       ("aeshna-spirv-cache-test-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                        "-" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
  KernelSource source{.glsl = "#version 460\nlayout(local_size_x = 4) in;\nvoid main() {}\n",
                      .key = "0123456789abcdef",
                      .push = {},
                      .bindings = 0};
  fs::path entry() const { return directory / "spirv-v1" / (source.key + ".spv"); }

  ~SpirvCacheTest() override {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  static void write(const fs::path& path, const std::vector<std::byte>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
};

TEST_F(SpirvCacheTest, CompiledOnceThenFromDisk) {
  SpirvCache first(directory);
  const auto words = first.get(source, "k");
  EXPECT_EQ(first.stats().disk_hits, 0u);
  EXPECT_EQ(first.get(source, "k"), words);
  EXPECT_EQ(first.stats().compiled, 1u);
  EXPECT_EQ(first.stats().disk_hits, 1u);
  SpirvCache second(directory);
  EXPECT_EQ(second.get(source, "k"), words);
  EXPECT_EQ(second.stats().compiled, 0u);
  EXPECT_EQ(second.stats().disk_hits, 1u);
}

TEST_F(SpirvCacheTest, WithoutADirectoryNothingIsStored) {
  SpirvCache cache({});
  EXPECT_EQ(cache.get(source, "k"), cache.get(source, "k"));
  EXPECT_EQ(cache.stats().compiled, 2u);
  EXPECT_FALSE(fs::exists(directory));
}

TEST_F(SpirvCacheTest, EveryTruncationAndEveryFlippedByteIsAbsentAndRewritten) {
  const auto words = SpirvCache(directory).get(source, "k");
  const std::vector<std::byte> good = read_file(entry());
  const auto check = [&](const std::vector<std::byte>& bad) {
    write(entry(), bad);
    SpirvCache cache(directory);
    ASSERT_EQ(cache.get(source, "k"), words);
    ASSERT_EQ(cache.stats().corrupt, 1u);
    ASSERT_EQ(cache.stats().compiled, 1u);
    ASSERT_EQ(read_file(entry()), good);
  };
  for (std::size_t size = 0; size < good.size(); size += size < 64 ? 1 : 13)
    check({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
  for (std::size_t at = 0; at < good.size(); at += at < 64 ? 1 : 7) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    check(bad);
  }
  auto longer = good;
  longer.resize(longer.size() + 4);
  check(longer);
}

TEST_F(SpirvCacheTest, AnEntryOfAnotherKeyIsCorrupt) {
  SpirvCache(directory).get(source, "k");
  const std::vector<std::byte> bytes = read_file(entry());
  source.key = "another";
  write(entry(), bytes);
  SpirvCache cache(directory);
  cache.get(source, "k");
  EXPECT_EQ(cache.stats().corrupt, 1u);
}

TEST_F(SpirvCacheTest, AnUnwritableDirectoryOnlyCostsTime) {
  fs::create_directories(directory);
  write(directory / "spirv-v1", {});  // a file where the folder should be
  SpirvCache cache(directory);
  EXPECT_FALSE(cache.get(source, "k").empty());
  EXPECT_EQ(cache.stats().compiled, 1u);
}

TEST_F(SpirvCacheTest, AFailureIsReportedEachTime) {
  source.glsl = "#version 460\nnonsense\n";
  SpirvCache cache(directory);
  EXPECT_THROW(cache.get(source, "k"), Error);
  EXPECT_THROW(cache.get(source, "k"), Error);
  EXPECT_FALSE(fs::exists(entry()));
}

TEST_F(SpirvCacheTest, ThreadsShareOneCompilation) {
  SpirvCache cache(directory);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_FALSE(cache.get(source, "k").empty()); });
  threads.clear();
  EXPECT_EQ(cache.stats().compiled, 1u);
  EXPECT_EQ(cache.stats().shared + cache.stats().disk_hits, 7u);  // a thread that comes late finds it on disk
}

}  // namespace
}  // namespace aeshna
