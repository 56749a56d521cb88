// Enumeration, choice and creation of devices.
#include <algorithm>

#include "base/env.h"
#include "base/fail.h"
#include "base/log.h"
#include "gpu/select_device.h"
#include "gpu/vulkan/core.h"
#include "gpu/vulkan/enumerate.h"

namespace aeshna::gpu {
namespace vk {
namespace {

/// Of several drivers for one GPU, the better one for compute: lower is better.
int driver_rank(VkDriverId driver) {
  switch (driver) {
    case VK_DRIVER_ID_NVIDIA_PROPRIETARY:
    case VK_DRIVER_ID_MESA_RADV:
    case VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA:
    case VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS:
      return 0;
    case VK_DRIVER_ID_AMD_PROPRIETARY:
    case VK_DRIVER_ID_AMD_OPEN_SOURCE:
      return 1;
    case VK_DRIVER_ID_MESA_DOZEN:
      return 3;  // a layer over Direct3D 12
    default:
      return 2;
  }
}

bool better(const FoundDevice& a, const FoundDevice& b) {
  if (a.plan.info.usable != b.plan.info.usable) return a.plan.info.usable;
  return driver_rank(a.driver) < driver_rank(b.driver);
}

}  // namespace

std::vector<FoundDevice> deduplicate(std::vector<FoundDevice> found) {
  std::vector<FoundDevice> distinct;
  for (FoundDevice& device : found) {
    const std::string& uuid = device.plan.info.uuid;
    const bool has_uuid = uuid.find_first_not_of('0') != std::string::npos;  // some drivers leave it zero, or have none
    const auto same =
        std::ranges::find_if(distinct, [&](const auto& d) { return has_uuid && d.plan.info.uuid == uuid; });
    if (same == distinct.end()) {
      distinct.push_back(std::move(device));
    } else if (better(device, *same)) {
      *same = std::move(device);
    }
  }
  for (std::size_t i = 0; i < distinct.size(); ++i) distinct[i].plan.info.index = static_cast<std::uint32_t>(i);
  return distinct;
}

std::vector<FoundDevice> enumerate(const Instance& instance) {
  std::vector<FoundDevice> found;
  for (const VkPhysicalDevice physical : instance.physical_devices()) {
    const DeviceFacts facts = query_facts(instance, physical);
    found.push_back({physical, plan_device(facts), facts.v12.driverID});
  }
  return deduplicate(std::move(found));
}

std::vector<DeviceInfo> list_with(PFN_vkGetInstanceProcAddr loader) {
  std::vector<DeviceInfo> infos;
  try {
    const auto instance = Instance::create(loader, false);
    for (const FoundDevice& device : enumerate(*instance)) infos.push_back(device.plan.info);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::NoDevice) log(LogLevel::Warning, "no Vulkan device can be listed: {}", e.what());
    return {};
  }
  return infos;
}

NativeHandles choose_device(PFN_vkGetInstanceProcAddr loader, const DeviceRequest& request) {
  NativeHandles handles;
  handles.instance = Instance::create(loader, request.validation);
  std::vector<FoundDevice> found = enumerate(*handles.instance);
  if (found.empty())
    fail(ErrorCode::NoDevice,
         "the Vulkan loader found no device (is a driver installed, and may this user open /dev/dri?)");
  std::vector<DeviceInfo> infos;
  for (const FoundDevice& device : found) infos.push_back(device.plan.info);
  FoundDevice& chosen = found[select_device(infos, request.selector)];
  handles.physical = chosen.physical;
  handles.plan = std::move(chosen.plan);
  return handles;
}

void create_device(NativeHandles& handles) {
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = handles.plan.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceFeatures2 features = handles.plan.features.chain();
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<std::uint32_t>(handles.plan.extensions.size());
  info.ppEnabledExtensionNames = handles.plan.extensions.data();
  const InstanceTable& fn = handles.instance->fn();
  const VkResult result = fn.vkCreateDevice(handles.physical, &info, nullptr, &handles.device);
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
    fail(ErrorCode::OutOfMemory, "device {} cannot be opened (vkCreateDevice: {})", handles.plan.info.name,
         result_name(result));
  if (result != VK_SUCCESS)
    fail(ErrorCode::NoDevice, "device {} cannot be opened (vkCreateDevice: {})", handles.plan.info.name,
         result_name(result));
  handles.owns_device = true;
  const auto get_queue =
      reinterpret_cast<PFN_vkGetDeviceQueue>(fn.vkGetDeviceProcAddr(handles.device, "vkGetDeviceQueue"));
  get_queue(handles.device, handles.plan.queue_family, 0, &handles.queue);
}

}  // namespace vk

std::vector<DeviceInfo> list_vulkan() { return vk::list_with(vk::find_loader()); }

std::shared_ptr<Device> open_vulkan(const DeviceRequest& given) {
  DeviceRequest request = given;
  request.validation = request.validation || env_validation();
  if (request.selector.empty()) request.selector = env_device();
  vk::NativeHandles handles = vk::choose_device(vk::find_loader(), request);
  const DeviceInfo& info = handles.plan.info;
  if (info.kind == DeviceInfo::Kind::Software)
    log(LogLevel::Warning, "running on a software driver, on the CPU: {} ({})", info.name,
        request.selector.empty() ? "there is no GPU" : "as asked");
  Caps caps = restrict_caps(restrict_caps(handles.plan.caps, request.caps), env_caps());
  vk::create_device(handles);
  return vk::adopt(std::move(handles), std::move(caps));
}

}  // namespace aeshna::gpu
