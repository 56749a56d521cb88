#pragma once
// The loader, one VkInstance with its function table, its physical devices, and the debug messenger.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/vulkan/vk.h"

namespace aeshna::gpu::vk {

/// Functions of one instance. volk's are global, so they cannot serve two instances.
struct InstanceTable {
#define AESHNA_INSTANCE_FUNCTIONS(X)                   \
  X(vkDestroyInstance)                                 \
  X(vkEnumeratePhysicalDevices)                        \
  X(vkEnumerateDeviceExtensionProperties)              \
  X(vkGetPhysicalDeviceProperties)                     \
  X(vkGetPhysicalDeviceProperties2)                    \
  X(vkGetPhysicalDeviceFeatures2)                      \
  X(vkGetPhysicalDeviceMemoryProperties2)              \
  X(vkGetPhysicalDeviceQueueFamilyProperties)          \
  X(vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) \
  X(vkCreateDevice)                                    \
  X(vkGetDeviceProcAddr)                               \
  X(vkCreateDebugUtilsMessengerEXT)                    \
  X(vkDestroyDebugUtilsMessengerEXT)                   \
  X(vkSetDebugUtilsObjectNameEXT)                      \
  X(vkCmdBeginDebugUtilsLabelEXT)                      \
  X(vkCmdEndDebugUtilsLabelEXT)
#define AESHNA_DECLARE(name) PFN_##name name = nullptr;
  AESHNA_INSTANCE_FUNCTIONS(AESHNA_DECLARE)
#undef AESHNA_DECLARE
};

/// What the validation layer said, until somebody takes it. Thread-safe.
class Messages {
 public:
  void add(std::string text);
  /// All messages so far, joined by blank lines, and forgets them; empty when there were none.
  std::string take();

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
  std::uint64_t dropped_ = 0;
};

class Instance {
 public:
  /// `loader` from find_loader(). Throws Error(NoDevice) when it is null or the loader finds no driver,
  /// Error(Unsupported) when validation is asked for and the layer is missing.
  static std::shared_ptr<Instance> create(PFN_vkGetInstanceProcAddr loader, bool validation);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  VkInstance handle() const { return handle_; }
  const InstanceTable& fn() const { return fn_; }
  PFN_vkGetInstanceProcAddr loader() const { return loader_; }
  bool validation() const { return validation_; }
  Messages& messages() { return messages_; }
  std::vector<VkPhysicalDevice> physical_devices() const;

 private:
  Instance() = default;
  PFN_vkGetInstanceProcAddr loader_ = nullptr;
  VkInstance handle_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  InstanceTable fn_;
  bool validation_ = false;
  Messages messages_;
};

}  // namespace aeshna::gpu::vk
