#pragma once
// From what a physical device offers to what we enable on it and the Caps the compiler sees. query_facts asks Vulkan;
// plan_device is a pure function of its answers.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aeshna/device.h"
#include "base/caps.h"
#include "gpu/vulkan/instance.h"

namespace aeshna::gpu::vk {

/// Vulkan's feature structures, chained on demand. The same type carries what is offered and what is enabled.
struct Features {
  VkPhysicalDeviceFeatures core{};
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  VkPhysicalDeviceMaintenance4Features maintenance4{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR coop{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  /// Which of the optional structures may be chained (extension or core version present).
  bool has_subgroup_size = false, has_maintenance4 = false, has_coop = false;

  /// Links the structures behind `head` and returns it; valid while *this stays in place.
  VkPhysicalDeviceFeatures2 chain();
};

/// Everything that is asked about a physical device, as plain data.
struct DeviceFacts {
  std::uint32_t api_version = 0;  ///< of the device, at most the instance's
  VkPhysicalDeviceProperties properties{};
  VkPhysicalDeviceVulkan11Properties v11{};
  VkPhysicalDeviceVulkan12Properties v12{};
  VkPhysicalDeviceSubgroupSizeControlProperties subgroup_size{};
  std::uint64_t max_buffer_size = 0;  ///< 0: the driver does not say
  VkPhysicalDeviceMemoryProperties memory{};
  Features features;  ///< offered
  std::vector<std::string> extensions;
  std::vector<VkQueueFamilyProperties> queues;
  std::vector<VkCooperativeMatrixPropertiesKHR> coop;
  std::uint32_t compute_units = 0;  ///< 0: no extension tells
  std::uint32_t host_threads = 1;
  bool has_extension(std::string_view name) const;
};

/// What to enable and what results from it.
struct DevicePlan {
  DeviceInfo info;  ///< without index
  Caps caps;        ///< of the device; no overrides yet
  std::vector<const char*> extensions;
  Features features;  ///< enabled
  std::uint32_t queue_family = 0;
  std::uint32_t timestamp_bits = 0;  ///< 0: the queue has no timestamps
  double timestamp_period_ns = 1;
  std::uint32_t native_subgroup_size = 1;
  bool full_subgroups = false;          ///< pipelines can demand full subgroups
  bool required_subgroup_size = false;  ///< ... and fix their size to native_subgroup_size
  bool memory_budget = false;
  std::string cache_key;  ///< names the pipeline-cache file: UUID and driver version
};

DeviceFacts query_facts(const Instance& instance, VkPhysicalDevice device);

/// Pure. A device below the floor (Vulkan 1.2, a compute queue, timeline semaphores) gets info.usable = false and the
/// reason.
DevicePlan plan_device(const DeviceFacts& facts);

}  // namespace aeshna::gpu::vk
