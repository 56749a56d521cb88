#pragma once
// Vulkan through volk: the loader is opened at run time and every call goes through a table of one instance or one
// device, since a host program may use Vulkan (and volk) too.
#include <string>
#include <string_view>

#include <volk.h>

#if defined(__GNUC__)  // Vulkan's own idiom in this folder: `VkThing thing{VK_STRUCTURE_TYPE_THING};`, the rest zero
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

namespace aeshna::gpu::vk {

/// "VK_ERROR_DEVICE_LOST"; "VkResult -1234" for values this build does not know.
std::string result_name(VkResult result);

/// Throws for anything but VK_SUCCESS: out-of-memory results become Error(OutOfMemory), the rest Error(Unsupported). A
/// lost device is noticed by Core::check, which remembers it.
void check(VkResult result, std::string_view what);

/// Entry point of the loader; null when this machine has none. Thread-safe.
PFN_vkGetInstanceProcAddr find_loader();

/// Fills the table of one device. Thread-safe.
void load_device_table(VolkDeviceTable& table, PFN_vkGetDeviceProcAddr get_device_proc, VkDevice device);

}  // namespace aeshna::gpu::vk
