#pragma once
// Listing and creating devices with a given loader (null: a machine without one).
#include <vector>

#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {

struct FoundDevice {
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  DevicePlan plan;
  VkDriverId driver = VK_DRIVER_ID_MAX_ENUM;
};

/// One entry per GPU: of several drivers that show the same UUID the usable and better one stays. Numbers the rest.
/// Pure.
std::vector<FoundDevice> deduplicate(std::vector<FoundDevice> found);

std::vector<FoundDevice> enumerate(const Instance& instance);
std::vector<DeviceInfo> list_with(PFN_vkGetInstanceProcAddr loader);

/// Instance, physical device and plan of the device that the request means; nothing is created on it yet.
NativeHandles choose_device(PFN_vkGetInstanceProcAddr loader, const DeviceRequest& request);
/// vkCreateDevice and the queue, by the plan in `handles`.
void create_device(NativeHandles& handles);

}  // namespace aeshna::gpu::vk
