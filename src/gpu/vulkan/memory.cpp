// Buffers, one Vulkan buffer each, sub-allocated by VMA.
#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "gpu/limits.h"
#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {

class VulkanBuffer final : public Buffer, public std::enable_shared_from_this<VulkanBuffer> {
 public:
  VulkanBuffer(std::shared_ptr<Core> core, std::uint64_t bytes, VkBuffer handle, VmaAllocation memory,
               std::byte* mapped)
      : core_(std::move(core)), bytes_(bytes), handle_(handle), memory_(memory), mapped_(mapped) {}
  ~VulkanBuffer() override {
    // A submission in flight may use it even if nobody recorded it as an owner.
    core_->retire([allocator = core_->allocator, handle = handle_, memory = memory_] {
      vmaDestroyBuffer(allocator, handle, memory);
    });
  }
  std::uint64_t size() const override { return bytes_; }
  std::byte* mapped() override { return mapped_; }
  VkBuffer handle() const { return handle_; }

 private:
  std::shared_ptr<Core> core_;
  std::uint64_t bytes_;
  VkBuffer handle_;
  VmaAllocation memory_;
  std::byte* mapped_;
};

namespace {

VmaAllocationCreateInfo allocation_info(MemoryKind kind, bool unified) {
  constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                  cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  constexpr VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  VmaAllocationCreateInfo info{};
  switch (kind) {
    case MemoryKind::Device:
      info.requiredFlags = unified ? local | host : local;
      info.preferredFlags = unified ? cached : 0;
      if (unified) info.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT;
      break;
    case MemoryKind::Upload:  // system memory: the window into device memory is small on some GPUs
      info.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      info.requiredFlags = host;
      info.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
      break;
    case MemoryKind::Readback:
      info.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      info.requiredFlags = host;
      info.preferredFlags = cached;
      info.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
      break;
  }
  return info;
}

}  // namespace

std::shared_ptr<Buffer> create_buffer(const std::shared_ptr<Core>& core, std::uint64_t bytes, MemoryKind kind,
                                      std::string_view name) {
  core->require_alive();
  check_buffer(bytes, kind, name, core->caps);
  core->collect();
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = align_up(std::max<std::uint64_t>(bytes, 1), 16);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const VmaAllocationCreateInfo allocation = allocation_info(kind, core->caps.unified_memory);
  VkBuffer handle = VK_NULL_HANDLE;
  VmaAllocation memory = nullptr;
  VmaAllocationInfo allocated{};
  const VkResult result = vmaCreateBuffer(core->allocator, &info, &allocation, &handle, &memory, &allocated);
  if (result == VK_ERROR_DEVICE_LOST) core->check(result, formatted("buffer {}", name));
  if (result != VK_SUCCESS) {
    std::string used;
    if (const auto in_use = memory_in_use(*core))
      used = formatted("; this process uses {} bytes of the device", *in_use);
    fail(ErrorCode::OutOfMemory, "buffer {}: cannot allocate {} bytes of {} memory ({}){}", name, bytes,
         memory_kind_name(kind), result_name(result), used);
  }
  core->set_name(VK_OBJECT_TYPE_BUFFER, reinterpret_cast<std::uint64_t>(handle), name);
  return std::make_shared<VulkanBuffer>(core, bytes, handle, memory, static_cast<std::byte*>(allocated.pMappedData));
}

VkBuffer native_buffer(const Buffer& buffer) { return static_cast<const VulkanBuffer&>(buffer).handle(); }

std::shared_ptr<void> keep_alive(Buffer& buffer) { return static_cast<VulkanBuffer&>(buffer).shared_from_this(); }

std::optional<std::uint64_t> memory_in_use(const Core& core) {
  if (!core.native.plan.memory_budget) return std::nullopt;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  memory.pNext = &budget;
  core.native.instance->fn().vkGetPhysicalDeviceMemoryProperties2(core.native.physical, &memory);
  std::uint64_t used = 0;
  for (std::uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i)
    if (memory.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) used += budget.heapUsage[i];
  return used;
}

}  // namespace aeshna::gpu::vk
