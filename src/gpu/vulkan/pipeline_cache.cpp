// The driver's pipeline cache on disk. Drivers are known to crash on damaged data, so the file carries a header and a
// hash of our own, and nothing unproven reaches the driver.
//
//   offset  bytes
//        0      8  "AESHNAPC"
//        8      4  format version (1), little-endian
//       12      4  0
//       16      8  bytes of data
//       24     32  hash of cache key and data, hex
//       56      n  data of vkGetPipelineCacheData
#include <algorithm>
#include <cstring>

#include "base/byte_reader.h"
#include "base/env.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "gpu/vulkan/core.h"
#include "gpu/vulkan/pipeline_cache.h"

namespace aeshna::gpu::vk {
namespace {

constexpr std::string_view kMagic = "AESHNAPC";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kHeaderBytes = 56;
constexpr std::uint64_t kMaxBytes = 512ull << 20;

std::filesystem::path cache_file(const DevicePlan& plan) {
  const std::filesystem::path directory = env_cache_dir();
  return directory.empty() ? directory : directory / formatted("vk-{}.bin", plan.cache_key);
}

std::string hash_of(std::string_view key, std::span<const std::byte> data) {
  Hasher hasher;
  hasher.add(key).add(data);
  return hasher.hex();
}

void put(std::vector<std::byte>& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put(std::vector<std::byte>& out, std::string_view text) {
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
}

std::vector<std::byte> read_cache(const DevicePlan& plan) {
  const auto path = cache_file(plan);
  if (path.empty() || !std::filesystem::exists(path)) return {};
  return decode_pipeline_cache(read_file(path, kMaxBytes), plan.cache_key, path.string());
}

}  // namespace

std::vector<std::byte> encode_pipeline_cache(std::span<const std::byte> data, std::string_view key) {
  std::vector<std::byte> file;
  put(file, kMagic);
  put(file, kVersion, 4);
  put(file, 0, 4);
  put(file, data.size(), 8);
  put(file, hash_of(key, data));
  AESHNA_CHECK(file.size() == kHeaderBytes);
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

std::vector<std::byte> decode_pipeline_cache(std::span<const std::byte> file, std::string_view key, std::string name) {
  ByteReader reader(file, std::move(name));
  if (reader.text(kMagic.size(), "magic") != kMagic) reader.corrupt("it is no pipeline cache of Aeshna");
  if (reader.u32("version") != kVersion) reader.corrupt("unknown version");
  if (reader.u32("padding") != 0) reader.corrupt("unknown header");
  const std::uint64_t size = reader.u64("size");
  const std::string_view hash = reader.text(kHashDigits, "hash");
  if (size != reader.remaining()) reader.corrupt("wrong size");
  const auto data = reader.take(size, "data");
  if (hash != hash_of(key, data)) reader.corrupt("wrong hash");
  return {data.begin(), data.end()};
}

void Core::load_pipeline_cache() {
  std::vector<std::byte> data;
  try {
    data = read_cache(native.plan);
  } catch (const std::exception& e) {
    log(LogLevel::Info, "pipeline cache ignored: {}", e.what());
  }
  VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  VkResult result = fn.vkCreatePipelineCache(device(), &info, nullptr, &pipeline_cache);
  if (result != VK_SUCCESS && !data.empty()) {  // the driver does not like its own old data
    info.initialDataSize = 0;
    info.pInitialData = nullptr;
    result = fn.vkCreatePipelineCache(device(), &info, nullptr, &pipeline_cache);
  }
  check(result, "vkCreatePipelineCache");
}

void Core::save_pipeline_cache() {
  const auto path = cache_file(native.plan);
  if (path.empty() || lost_) return;
  try {
    std::vector<std::byte> data;
    VkResult result = VK_INCOMPLETE;
    // Pipelines made meanwhile by other threads may enlarge it between the two calls.
    for (int attempt = 0; attempt < 3 && result == VK_INCOMPLETE; ++attempt) {
      std::size_t size = 0;
      vk::check(fn.vkGetPipelineCacheData(device(), pipeline_cache, &size, nullptr), "vkGetPipelineCacheData");
      data.resize(size);
      result = fn.vkGetPipelineCacheData(device(), pipeline_cache, &size, data.data());
      data.resize(size);
    }
    vk::check(result, "vkGetPipelineCacheData");
    const std::vector<std::byte> file = encode_pipeline_cache(data, native.plan.cache_key);
    std::filesystem::create_directories(path.parent_path());
    const std::span<const std::byte> parts[] = {file};
    write_file_atomic(path, parts, Durable::No);
  } catch (const std::exception& e) {  // a cache is a convenience: full disks and read-only homes are no errors
    log(LogLevel::Warning, "pipeline cache not saved: {}", e.what());
  }
}

}  // namespace aeshna::gpu::vk
