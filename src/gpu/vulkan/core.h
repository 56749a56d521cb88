#pragma once
// The native objects behind one gpu::Device. Device creation (which handles to make) is apart from adoption (what
// Aeshna builds over handles that exist), so that a host program's device can be adopted later.
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/vulkan/instance.h"
#include "gpu/vulkan/plan.h"
#include "gpu/vulkan/vma.h"

namespace aeshna::gpu::vk {

/// What a device is made of, before anything of ours is built on it.
struct NativeHandles {
  std::shared_ptr<Instance> instance;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  DevicePlan plan;           ///< what is enabled on `device`
  bool owns_device = false;  ///< destroyed with the last object that lives on it
};

/// Builds the gpu::Device; `caps` are the plan's after overrides. Making the handles is open.cpp's part. (device.cpp)
std::shared_ptr<gpu::Device> adopt(NativeHandles handles, Caps caps);

/// Shared by the device and everything created on it; the last of them destroys it. Thread-safe.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(NativeHandles handles, Caps caps);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const NativeHandles native;
  const Caps caps;
  VolkDeviceTable fn{};
  VmaAllocator allocator = nullptr;
  VkPipelineCache pipeline_cache = VK_NULL_HANDLE;
  VkSemaphore timeline = VK_NULL_HANDLE;
  VkQueryPool timestamps = VK_NULL_HANDLE;  ///< null when the queue has none

  VkDevice device() const { return native.device; }
  bool validation() const { return native.instance->validation(); }

  /// vk::check, and a lost device is remembered.
  void check(VkResult result, std::string_view what);
  /// Marks the device lost and throws.
  [[noreturn]] void lose(std::string why);
  /// Throws Error(DeviceLost) with the first reason if the device was lost.
  void require_alive();
  bool lost() const { return lost_; }
  /// Throws Error(Internal) with what the validation layer has said since the last call.
  void check_messages();
  /// Names an object for validation messages; does nothing without validation.
  void set_name(VkObjectType type, std::uint64_t handle, std::string_view name);

  /// Layouts of `bindings` storage buffers, cached; `push_bytes` of push constants, cached too.
  VkDescriptorSetLayout set_layout(std::uint32_t bindings);
  VkPipelineLayout pipeline_layout(std::uint32_t bindings, std::uint32_t push_bytes);
  /// 16 bytes to bind where an operand is empty: a descriptor needs a range.
  VkBuffer empty_buffer() const { return empty_; }

  // ---- queue.cpp ----
  /// Submits in order, signals the next point of the timeline, keeps `keep_alive` until the device has passed it.
  Ticket submit(std::span<const VkCommandBuffer> lists, std::vector<std::shared_ptr<void>> keep_alive);
  void wait(Ticket ticket, double timeout_s);
  Ticket completed();
  /// Calls `destroy` once everything submitted so far has finished: now, if it has.
  void retire(std::function<void()> destroy);
  /// Drops what finished submissions kept alive.
  void collect();
  /// Waits for the last submission at the end of the device's life. False when it hangs: then nothing is destroyed,
  /// ever.
  bool drain();

  // ---- pipeline_cache.cpp ----
  void load_pipeline_cache();
  void save_pipeline_cache();

 private:
  struct MembersOnly {};
  Core(MembersOnly, NativeHandles handles, Caps caps);
  void create_timeline();
  void create_timestamps();
  void create_empty_buffer();
  void create_allocator();
  void warm_up_driver();  ///< warm_up.cpp

  std::atomic<bool> lost_ = false;
  std::mutex lost_mutex_;
  std::string lost_why_;

  std::mutex layouts_mutex_;
  std::map<std::uint32_t, VkDescriptorSetLayout> set_layouts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, VkPipelineLayout> pipeline_layouts_;

  VkBuffer empty_ = VK_NULL_HANDLE;
  VmaAllocation empty_memory_ = nullptr;

  std::mutex queue_mutex_;  ///< the queue, the last ticket, and what waits for it
  Ticket submitted_ = 0;
  struct Pending {
    Ticket ticket;
    std::vector<std::shared_ptr<void>> keep_alive;
    std::function<void()> destroy;
  };
  std::deque<Pending> pending_;
};

// ---- memory.cpp ----
class VulkanBuffer;
std::shared_ptr<Buffer> create_buffer(const std::shared_ptr<Core>& core, std::uint64_t bytes, MemoryKind kind,
                                      std::string_view name);
VkBuffer native_buffer(const Buffer& buffer);
std::shared_ptr<void> keep_alive(Buffer& buffer);
std::optional<std::uint64_t> memory_in_use(const Core& core);

// ---- kernel.cpp ----
std::shared_ptr<Kernel> create_kernel(const std::shared_ptr<Core>& core, const KernelDesc& desc);
struct NativeKernel {
  VkPipeline pipeline;
  VkPipelineLayout layout;
  VkDescriptorSetLayout set_layout;
};
NativeKernel native_kernel(const Kernel& kernel);
std::shared_ptr<void> keep_alive(const Kernel& kernel);

// ---- commands.cpp ----
std::shared_ptr<CommandList> record(const std::shared_ptr<Core>& core, std::span<const Command> commands,
                                    std::vector<std::shared_ptr<void>> owners, std::string_view name);
/// The command buffer, and what must live while it runs.
struct NativeList {
  VkCommandBuffer commands;
  std::shared_ptr<void> keep_alive;
};
NativeList native_list(const CommandList& list);

}  // namespace aeshna::gpu::vk
