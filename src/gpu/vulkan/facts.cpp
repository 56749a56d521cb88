// The questions put to a physical device; see plan.h.
#include <algorithm>
#include <thread>

#include "gpu/vulkan/plan.h"

namespace aeshna::gpu::vk {
namespace {

void query_properties(DeviceFacts& facts, const InstanceTable& fn, VkPhysicalDevice device) {
  facts.v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  facts.v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  facts.subgroup_size = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceMaintenance4Properties maintenance4{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nv{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceShaderCorePropertiesAMD amd{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
  VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};

  VkPhysicalDeviceProperties2 head{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  void* next = nullptr;
  const auto ask = [&](auto& structure, bool known) {
    if (!known) return;
    structure.pNext = next;
    next = &structure;
  };
  ask(facts.v11, true);
  ask(facts.v12, true);
  ask(facts.subgroup_size, facts.features.has_subgroup_size);
  ask(maintenance4, facts.features.has_maintenance4);
  ask(nv, facts.has_extension(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME));
  ask(amd, facts.has_extension(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME));
  ask(arm, facts.has_extension(VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME));
  head.pNext = next;
  fn.vkGetPhysicalDeviceProperties2(device, &head);

  facts.v11.pNext = facts.v12.pNext = facts.subgroup_size.pNext = nullptr;
  facts.max_buffer_size = maintenance4.maxBufferSize;
  facts.compute_units = std::max(
      {nv.shaderSMCount, amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray,
       arm.shaderCoreCount});
}

}  // namespace

DeviceFacts query_facts(const Instance& instance, VkPhysicalDevice device) {
  const InstanceTable& fn = instance.fn();
  DeviceFacts facts;
  fn.vkGetPhysicalDeviceProperties(device, &facts.properties);
  facts.api_version = std::min<std::uint32_t>(facts.properties.apiVersion, VK_MAKE_API_VERSION(0, 1, 3, 0xfff));
  facts.host_threads = std::max(1u, std::thread::hardware_concurrency());
  if (facts.api_version < VK_API_VERSION_1_2) return facts;  // the structures below are Vulkan 1.2

  std::uint32_t count = 0;
  fn.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  fn.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  for (std::uint32_t i = 0; i < count; ++i) facts.extensions.emplace_back(extensions[i].extensionName);

  fn.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  facts.queues.resize(count);
  fn.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, facts.queues.data());

  VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  fn.vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  facts.memory = memory.memoryProperties;

  const bool v13 = facts.api_version >= VK_API_VERSION_1_3;
  Features& features = facts.features;
  features.has_subgroup_size = v13 || facts.has_extension(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  features.has_maintenance4 = v13 || facts.has_extension(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  features.has_coop = facts.has_extension(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  VkPhysicalDeviceFeatures2 head = features.chain();
  fn.vkGetPhysicalDeviceFeatures2(device, &head);
  features.core = head.features;

  query_properties(facts, fn, device);
  if (features.coop.cooperativeMatrix && fn.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) {
    count = 0;
    fn.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &count, nullptr);
    facts.coop.assign(count, {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR});
    fn.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &count, facts.coop.data());
    facts.coop.resize(count);
  }
  return facts;
}

}  // namespace aeshna::gpu::vk
