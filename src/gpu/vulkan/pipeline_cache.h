#pragma once
// The file format of the pipeline cache; pure. See pipeline_cache.cpp.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::gpu::vk {

/// The file for the driver's `data`; `key` names device and driver.
std::vector<std::byte> encode_pipeline_cache(std::span<const std::byte> data, std::string_view key);
/// The inverse. Throws Error(CorruptFile) for anything that encode did not make with the same key.
std::vector<std::byte> decode_pipeline_cache(std::span<const std::byte> file, std::string_view key, std::string name);

}  // namespace aeshna::gpu::vk
