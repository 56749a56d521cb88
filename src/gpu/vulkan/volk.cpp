// The one file with volk's implementation. Its symbols are hidden; of its global function pointers only the loader's
// entry points and vkGetDeviceProcAddr are ever set, and those are the same for every instance of the process.
#include <mutex>

#define VOLK_IMPLEMENTATION
#include "gpu/vulkan/vk.h"

namespace aeshna::gpu::vk {
namespace {

std::mutex& volk_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

PFN_vkGetInstanceProcAddr find_loader() {
  const std::lock_guard lock(volk_mutex());
  // A loader that was absent may have been installed since: a failed search is not remembered.
  if (!vkGetInstanceProcAddr && volkInitialize() != VK_SUCCESS) return nullptr;
  return vkGetInstanceProcAddr;
}

void load_device_table(VolkDeviceTable& table, PFN_vkGetDeviceProcAddr get_device_proc, VkDevice device) {
  const std::lock_guard lock(volk_mutex());
  vkGetDeviceProcAddr = get_device_proc;  // what volkLoadDeviceTable asks
  volkLoadDeviceTable(&table, device);
}

}  // namespace aeshna::gpu::vk
