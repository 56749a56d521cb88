// SPIR-V by key: on disk, else from glslang.
//
// A file <directory>/spirv-v1/<key>.spv is, little-endian: "AESV", u32 version, u64 number of words, 32 characters of
// hash over the key and the words, the words. Whatever does not match to the last byte is absent, and is written
// again.
#include <bit>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/log.h"
#include "codegen/codegen.h"

namespace aeshna {
namespace {

constexpr std::uint32_t kMagic = 0x56534541;  // "AESV"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kLargest = 64ull << 20;

using Words = std::vector<std::uint32_t>;

std::string content_hash(std::string_view key, std::span<const std::uint32_t> words) {
  return Hasher().add(key).add(std::as_bytes(words)).hex();
}

Words decode(std::span<const std::byte> bytes, std::string_view key, const std::string& name) {
  static_assert(std::endian::native == std::endian::little);
  ByteReader reader(bytes, name);
  if (reader.u32("magic") != kMagic || reader.u32("version") != kVersion)
    reader.corrupt("not a SPIR-V cache entry of this version");
  const std::uint64_t count = reader.u64("length");
  const std::string hash(reader.text(32, "hash"));
  if (count == 0 || count != reader.remaining() / 4 || reader.remaining() % 4 != 0)
    reader.corrupt("the length does not match the file");
  Words words(count);
  std::memcpy(words.data(), reader.take(count * 4, "words").data(), count * 4);
  if (content_hash(key, words) != hash) reader.corrupt("the hash does not match the content");
  return words;
}

void write_entry(const std::filesystem::path& path, std::string_view key, const Words& words) {
  struct Header {
    std::uint32_t magic = kMagic, version = kVersion;
    std::uint64_t count;
  } header{.count = words.size()};
  const std::string hash = content_hash(key, words);
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(hash)),
                                              std::as_bytes(std::span(words))};
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  write_file_atomic(path, parts, Durable::No);  // the hash tells a torn file
}

}  // namespace

struct SpirvCache::Impl {
  std::filesystem::path directory;  ///< empty: nothing is stored
  mutable std::mutex mutex;
  std::map<std::string, std::shared_future<Words>, std::less<>> in_flight;  ///< being read or compiled by a thread
  Stats stats;

  void count(std::uint64_t Stats::*counter) {
    const std::scoped_lock lock(mutex);
    ++(stats.*counter);
  }

  Words load_or_compile(const KernelSource& source, std::string_view name) {
    const std::filesystem::path path = directory / (source.key + ".spv");
    std::error_code ignored;
    if (!directory.empty() && std::filesystem::exists(path, ignored)) {
      try {
        Words words = decode(read_file(path, kLargest), source.key, path.string());
        count(&Stats::disk_hits);
        return words;
      } catch (const Error& error) {
        count(&Stats::corrupt);
        log(LogLevel::Info, "SPIR-V cache: {}; it is written again", error.what());
      }
    }
    Words words = compile_glsl(source.glsl, name);
    count(&Stats::compiled);
    if (!directory.empty()) {
      try {
        write_entry(path, source.key, words);
      } catch (const Error& error) {  // a cache that cannot be written only costs time
        log(LogLevel::Info, "SPIR-V cache: {}", error.what());
      }
    }
    return words;
  }
};

SpirvCache::SpirvCache(std::filesystem::path directory) : impl_(std::make_shared<Impl>()) {
  if (!directory.empty()) impl_->directory = std::move(directory) / "spirv-v1";
}

std::vector<std::uint32_t> SpirvCache::get(const KernelSource& source, std::string_view name) {
  std::promise<Words> promise;
  std::shared_future<Words> other;
  {
    const std::scoped_lock lock(impl_->mutex);
    const auto [entry, created] = impl_->in_flight.try_emplace(source.key);
    if (created) {
      entry->second = promise.get_future().share();
    } else {
      other = entry->second;
      ++impl_->stats.shared;
    }
  }
  if (other.valid()) return other.get();
  const auto landed = [&] {
    const std::scoped_lock lock(impl_->mutex);
    impl_->in_flight.erase(source.key);
  };
  try {
    Words words = impl_->load_or_compile(source, name);
    promise.set_value(words);
    landed();
    return words;
  } catch (...) {
    promise.set_exception(std::current_exception());
    landed();
    throw;
  }
}

bool SpirvCache::empty() const {
  std::error_code ignored;
  const std::filesystem::directory_iterator entries(impl_->directory, ignored);
  return impl_->directory.empty() || entries == std::filesystem::directory_iterator();
}

SpirvCache::Stats SpirvCache::stats() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->stats;
}

}  // namespace aeshna
