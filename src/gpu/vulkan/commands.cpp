// Recording: one command pool, one descriptor pool and one command buffer per list, made once and replayed.
#include <algorithm>
#include <unordered_set>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "gpu/limits.h"
#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {
namespace {

constexpr VkPipelineStageFlags kWork = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

/// The native side of a list. Submissions in flight hold it, so that a list may be dropped at any time.
struct ListState {
  std::shared_ptr<Core> core;
  std::vector<std::shared_ptr<void>> owners;
  VkCommandPool pool = VK_NULL_HANDLE;
  VkDescriptorPool descriptors = VK_NULL_HANDLE;
  VkCommandBuffer commands = VK_NULL_HANDLE;

  explicit ListState(std::shared_ptr<Core> c) : core(std::move(c)) {}
  ListState(const ListState&) = delete;
  ListState& operator=(const ListState&) = delete;
  ~ListState() {
    if (descriptors) core->fn.vkDestroyDescriptorPool(core->device(), descriptors, nullptr);
    if (pool) core->fn.vkDestroyCommandPool(core->device(), pool, nullptr);
  }
};

class VulkanList final : public CommandList {
 public:
  explicit VulkanList(std::shared_ptr<ListState> s) : state(std::move(s)) {}
  const std::shared_ptr<ListState> state;
};

bool is_empty(const DispatchCommand& c) { return c.groups[0] == 0 || c.groups[1] == 0 || c.groups[2] == 0; }

class Recorder {
 public:
  Recorder(ListState& list, std::string_view name) : list_(list), core_(*list.core), fn_(core_.fn), name_(name) {}

  void run(std::span<const Command> commands) {
    create_pools(commands);
    VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    begin.flags =
        VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;  // submitted again while an earlier submission still runs
    core_.check(fn_.vkBeginCommandBuffer(list_.commands, &begin), what("vkBeginCommandBuffer"));
    reset_timestamps(commands);
    barrier(kWork | VK_PIPELINE_STAGE_HOST_BIT, kWrites | VK_ACCESS_HOST_WRITE_BIT, kWork, kReads | kWrites);
    for (const Command& command : commands) std::visit(*this, command);
    if (host_reads_)
      barrier(kWork, kWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
    core_.check(fn_.vkEndCommandBuffer(list_.commands), what("vkEndCommandBuffer"));
  }

  void operator()(const DispatchCommand& c) {
    if (is_empty(c)) return;
    const NativeKernel kernel = native_kernel(*c.kernel);
    keep(keep_alive(*c.kernel), c.kernel);
    begin_label(c);
    if (bound_ != kernel.pipeline) {
      fn_.vkCmdBindPipeline(list_.commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
      bound_ = kernel.pipeline;
    }
    const VkDescriptorSet set = write_set(c, kernel.set_layout);
    fn_.vkCmdBindDescriptorSets(list_.commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1, &set, 0, nullptr);
    if (!c.push.empty())
      fn_.vkCmdPushConstants(list_.commands, kernel.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                             static_cast<std::uint32_t>(c.push.size() * 4), c.push.data());
    fn_.vkCmdDispatch(list_.commands, c.groups[0], c.groups[1], c.groups[2]);
    end_label();
  }

  void operator()(const BarrierCommand&) { barrier(kWork, kWrites, kWork, kReads | kWrites); }

  void operator()(const CopyCommand& c) {
    if (c.source.bytes == 0) return;
    const VkBufferCopy region{c.source.offset, c.destination.offset, c.source.bytes};
    fn_.vkCmdCopyBuffer(list_.commands, use(*c.source.buffer), use(*c.destination.buffer), 1, &region);
  }

  void operator()(const FillCommand& c) {
    if (c.destination.bytes == 0) return;
    fn_.vkCmdFillBuffer(list_.commands, use(*c.destination.buffer), c.destination.offset, c.destination.bytes, c.word);
  }

  void operator()(const TimestampCommand& c) {
    fn_.vkCmdWriteTimestamp(list_.commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, core_.timestamps, c.slot);
  }

 private:
  std::string what(std::string_view call) const { return formatted("list {}: {}", name_, call); }

  void create_pools(std::span<const Command> commands) {
    std::uint32_t sets = 0, buffers = 0;
    for (const Command& command : commands)
      if (const auto* c = std::get_if<DispatchCommand>(&command); c && !is_empty(*c)) {
        ++sets;
        buffers += static_cast<std::uint32_t>(c->operands.size());
      }
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool.queueFamilyIndex = core_.native.plan.queue_family;
    core_.check(fn_.vkCreateCommandPool(core_.device(), &pool, nullptr, &list_.pool), what("vkCreateCommandPool"));
    VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    allocate.commandPool = list_.pool;
    allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    allocate.commandBufferCount = 1;
    core_.check(fn_.vkAllocateCommandBuffers(core_.device(), &allocate, &list_.commands),
                what("vkAllocateCommandBuffers"));
    core_.set_name(VK_OBJECT_TYPE_COMMAND_BUFFER, reinterpret_cast<std::uint64_t>(list_.commands), name_);
    if (sets == 0) return;
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, std::max(1u, buffers)};
    VkDescriptorPoolCreateInfo descriptors{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    descriptors.maxSets = sets;
    descriptors.poolSizeCount = 1;
    descriptors.pPoolSizes = &size;
    core_.check(fn_.vkCreateDescriptorPool(core_.device(), &descriptors, nullptr, &list_.descriptors),
                what("vkCreateDescriptorPool"));
  }

  /// A list resets exactly the slots it writes.
  void reset_timestamps(std::span<const Command> commands) {
    std::vector<std::uint32_t> slots;
    for (const Command& command : commands)
      if (const auto* c = std::get_if<TimestampCommand>(&command)) slots.push_back(c->slot);
    if (slots.empty()) return;
    if (!core_.timestamps)
      fail(ErrorCode::Unsupported, "list {}: the queue of device {} has no timestamps", name_, core_.caps.device_name);
    std::ranges::sort(slots);
    if (const auto twice = std::ranges::adjacent_find(slots); twice != slots.end())
      fail(ErrorCode::InvalidArgument, "list {}: timestamp slot {} is written twice", name_, *twice);
    for (std::size_t i = 0, end = 0; i < slots.size(); i = end) {
      for (end = i + 1; end < slots.size() && slots[end] == slots[end - 1] + 1;) ++end;
      fn_.vkCmdResetQueryPool(list_.commands, core_.timestamps, slots[i], static_cast<std::uint32_t>(end - i));
    }
  }

  void barrier(VkPipelineStageFlags from, VkAccessFlags writes, VkPipelineStageFlags to, VkAccessFlags accesses) {
    VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    memory.srcAccessMask = writes;
    memory.dstAccessMask = accesses;
    fn_.vkCmdPipelineBarrier(list_.commands, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
  }

  /// The exact range of every operand, so that hazards, planner and validation speak of the same intervals.
  VkDescriptorSet write_set(const DispatchCommand& c, VkDescriptorSetLayout layout) {
    VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    allocate.descriptorPool = list_.descriptors;
    allocate.descriptorSetCount = 1;
    allocate.pSetLayouts = &layout;
    VkDescriptorSet set = VK_NULL_HANDLE;
    core_.check(fn_.vkAllocateDescriptorSets(core_.device(), &allocate, &set), what("vkAllocateDescriptorSets"));
    infos_.resize(c.operands.size());
    writes_.assign(c.operands.size(), {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET});
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const BufferRange& range = c.operands[i];
      const VkBuffer buffer = use(*range.buffer);
      // Kernels address words: a tail of less than one word counts as a word (every buffer is padded to 16 bytes).
      infos_[i] = range.bytes == 0 ? VkDescriptorBufferInfo{core_.empty_buffer(), 0, 16}
                                   : VkDescriptorBufferInfo{buffer, range.offset, align_up(range.bytes, 4)};
      writes_[i].dstSet = set;
      writes_[i].dstBinding = static_cast<std::uint32_t>(i);
      writes_[i].descriptorCount = 1;
      writes_[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
      writes_[i].pBufferInfo = &infos_[i];
    }
    if (!writes_.empty())
      fn_.vkUpdateDescriptorSets(core_.device(), static_cast<std::uint32_t>(writes_.size()), writes_.data(), 0,
                                 nullptr);
    return set;
  }

  VkBuffer use(Buffer& buffer) {
    keep(keep_alive(buffer), &buffer);
    host_reads_ |= buffer.mapped() != nullptr;
    return native_buffer(buffer);
  }

  /// The list owns what it refers to, whether or not the caller named it as an owner.
  void keep(std::shared_ptr<void> object, const void* key) {
    if (kept_.insert(key).second) list_.owners.push_back(std::move(object));
  }

  void begin_label(const DispatchCommand& c) {
    if (!core_.validation() || c.label.empty()) return;
    VkDebugUtilsLabelEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT};
    label.pLabelName = c.label.c_str();
    core_.native.instance->fn().vkCmdBeginDebugUtilsLabelEXT(list_.commands, &label);
    labelled_ = true;
  }
  void end_label() {
    if (labelled_) core_.native.instance->fn().vkCmdEndDebugUtilsLabelEXT(list_.commands);
    labelled_ = false;
  }

  ListState& list_;
  Core& core_;
  const VolkDeviceTable& fn_;
  std::string_view name_;
  VkPipeline bound_ = VK_NULL_HANDLE;
  bool host_reads_ = false;  ///< a buffer is mapped: what the list writes must reach the host
  bool labelled_ = false;
  std::unordered_set<const void*> kept_;
  std::vector<VkDescriptorBufferInfo> infos_;
  std::vector<VkWriteDescriptorSet> writes_;
};

}  // namespace

std::shared_ptr<CommandList> record(const std::shared_ptr<Core>& core, std::span<const Command> commands,
                                    std::vector<std::shared_ptr<void>> owners, std::string_view name) {
  core->require_alive();
  check_commands(commands, name, core->caps);
  auto state = std::make_shared<ListState>(core);
  state->owners = std::move(owners);
  Recorder(*state, name).run(commands);
  core->check_messages();
  return std::make_shared<VulkanList>(std::move(state));
}

NativeList native_list(const CommandList& list) {
  const auto& state = static_cast<const VulkanList&>(list).state;
  return {state->commands, state};
}

}  // namespace aeshna::gpu::vk
