#include "gpu/vulkan/core.h"

#include "base/fail.h"
#include "base/format.h"
#include "base/log.h"
#include "gpu/limits.h"

namespace aeshna::gpu::vk {

Core::Core(MembersOnly, NativeHandles handles, Caps restricted)
    : native(std::move(handles)), caps(std::move(restricted)) {
  load_device_table(fn, native.instance->fn().vkGetDeviceProcAddr, native.device);
}

// Delegating, so that the destructor runs if a step throws.
Core::Core(NativeHandles handles, Caps restricted) : Core(MembersOnly{}, std::move(handles), std::move(restricted)) {
  create_allocator();
  create_timeline();
  create_empty_buffer();
  create_timestamps();
  load_pipeline_cache();
  warm_up_driver();
}

Core::~Core() {
  // Objects on the device are gone: each of them holds this core. A hung device keeps its memory; see drain().
  if (allocator && empty_) vmaDestroyBuffer(allocator, empty_, empty_memory_);
  for (const auto& [key, layout] : pipeline_layouts_) fn.vkDestroyPipelineLayout(device(), layout, nullptr);
  for (const auto& [key, layout] : set_layouts_) fn.vkDestroyDescriptorSetLayout(device(), layout, nullptr);
  if (pipeline_cache) fn.vkDestroyPipelineCache(device(), pipeline_cache, nullptr);
  if (timestamps) fn.vkDestroyQueryPool(device(), timestamps, nullptr);
  if (timeline) fn.vkDestroySemaphore(device(), timeline, nullptr);
  if (allocator) vmaDestroyAllocator(allocator);
  if (native.owns_device) fn.vkDestroyDevice(device(), nullptr);
}

void Core::create_allocator() {
  VmaVulkanFunctions functions{};
  functions.vkGetInstanceProcAddr = native.instance->loader();
  functions.vkGetDeviceProcAddr = native.instance->fn().vkGetDeviceProcAddr;
  VmaAllocatorCreateInfo info{};
  info.vulkanApiVersion = VK_API_VERSION_1_2;
  info.instance = native.instance->handle();
  info.physicalDevice = native.physical;
  info.device = native.device;
  info.pVulkanFunctions = &functions;
  // Small blocks: what the driver reports as used stays close to what tensors need. Arenas get allocations of their
  // own.
  info.preferredLargeHeapBlockSize = 32ull << 20;
  if (native.plan.memory_budget) info.flags |= VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
  check(vmaCreateAllocator(&info, &allocator), "vmaCreateAllocator");
}

void Core::create_timeline() {
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  check(fn.vkCreateSemaphore(device(), &info, nullptr, &timeline), "vkCreateSemaphore");
}

void Core::create_timestamps() {
  if (native.plan.timestamp_bits == 0) return;
  VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = kTimestampSlots;
  check(fn.vkCreateQueryPool(device(), &info, nullptr, &timestamps), "vkCreateQueryPool");
}

void Core::create_empty_buffer() {
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = 16;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
  VmaAllocationCreateInfo allocation{};
  allocation.requiredFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  check(vmaCreateBuffer(allocator, &info, &allocation, &empty_, &empty_memory_, nullptr), "the empty operand's buffer");
  set_name(VK_OBJECT_TYPE_BUFFER, reinterpret_cast<std::uint64_t>(empty_), "empty operand");
}

void Core::check(VkResult result, std::string_view what) {
  if (result == VK_ERROR_DEVICE_LOST) lose(formatted("{}: the driver lost the device", what));
  vk::check(result, what);
}

void Core::lose(std::string why) {
  {
    const std::lock_guard lock(lost_mutex_);
    if (!lost_) {
      lost_why_ = std::move(why);
      lost_ = true;
    }
  }
  require_alive();
  internal_error("a lost device is alive");
}

void Core::require_alive() {
  if (!lost_) return;
  const std::lock_guard lock(lost_mutex_);
  fail(ErrorCode::DeviceLost, "device {} is lost: {}", caps.device_name, lost_why_);
}

void Core::check_messages() {
  if (!validation()) return;
  if (const std::string text = native.instance->messages().take(); !text.empty())
    fail(ErrorCode::Internal, "Vulkan validation: {}", text);
}

void Core::set_name(VkObjectType type, std::uint64_t handle, std::string_view name) {
  const auto set = native.instance->fn().vkSetDebugUtilsObjectNameEXT;
  if (!validation() || !set) return;
  const std::string text(name);
  VkDebugUtilsObjectNameInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT};
  info.objectType = type;
  info.objectHandle = handle;
  info.pObjectName = text.c_str();
  set(device(), &info);
}

VkDescriptorSetLayout Core::set_layout(std::uint32_t bindings) {
  const std::lock_guard lock(layouts_mutex_);
  VkDescriptorSetLayout& layout = set_layouts_[bindings];
  if (layout) return layout;
  std::vector<VkDescriptorSetLayoutBinding> entries(bindings);
  for (std::uint32_t i = 0; i < bindings; ++i) {
    entries[i].binding = i;
    entries[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    entries[i].descriptorCount = 1;
    entries[i].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  }
  VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  info.bindingCount = bindings;
  info.pBindings = entries.data();
  check(fn.vkCreateDescriptorSetLayout(device(), &info, nullptr, &layout), "vkCreateDescriptorSetLayout");
  return layout;
}

VkPipelineLayout Core::pipeline_layout(std::uint32_t bindings, std::uint32_t push_bytes) {
  const VkDescriptorSetLayout set = set_layout(bindings);
  const std::lock_guard lock(layouts_mutex_);
  VkPipelineLayout& layout = pipeline_layouts_[{bindings, push_bytes}];
  if (layout) return layout;
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = 1;
  info.pSetLayouts = &set;
  info.pushConstantRangeCount = push_bytes > 0 ? 1 : 0;
  info.pPushConstantRanges = &range;
  check(fn.vkCreatePipelineLayout(device(), &info, nullptr, &layout), "vkCreatePipelineLayout");
  return layout;
}

}  // namespace aeshna::gpu::vk
