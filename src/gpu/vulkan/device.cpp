// gpu::Device over native handles.
#include <algorithm>

#include "base/fail.h"
#include "gpu/limits.h"
#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {
namespace {

class VulkanDevice final : public gpu::Device {
 public:
  explicit VulkanDevice(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~VulkanDevice() override { core_->drain(); }

  const DeviceInfo& info() const override { return core_->native.plan.info; }
  const Caps& caps() const override { return core_->caps; }

  std::shared_ptr<Buffer> create_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name) override {
    ++buffers_;
    return vk::create_buffer(core_, bytes, kind, name);
  }

  std::shared_ptr<Kernel> create_kernel(const KernelDesc& desc) override {
    ++kernels_;
    return vk::create_kernel(core_, desc);
  }

  std::shared_ptr<CommandList> record(std::span<const Command> commands, std::vector<std::shared_ptr<void>> owners,
                                      std::string_view name) override {
    ++lists_;
    return vk::record(core_, commands, std::move(owners), name);
  }

  Ticket submit(std::span<CommandList* const> lists) override {
    core_->check_messages();
    std::vector<VkCommandBuffer> commands;
    std::vector<std::shared_ptr<void>> keep_alive;
    commands.reserve(lists.size());
    keep_alive.reserve(lists.size());
    for (const CommandList* list : lists) {
      if (!list) fail(ErrorCode::InvalidArgument, "submit: a command list is null");
      NativeList native = native_list(*list);
      commands.push_back(native.commands);
      keep_alive.push_back(std::move(native.keep_alive));
    }
    ++submissions_;
    const Ticket ticket = core_->submit(commands, std::move(keep_alive));
    core_->check_messages();
    return ticket;
  }

  void wait(Ticket ticket, std::optional<double> timeout_s) override {
    const double patience_s = info().kind == DeviceInfo::Kind::Software ? 600 : 60;
    core_->wait(ticket, timeout_s.value_or(patience_s));
    core_->check_messages();
  }

  bool done(Ticket ticket) override {
    core_->require_alive();
    return core_->completed() >= ticket;
  }

  std::uint32_t timestamp_slots() const override { return core_->timestamps ? kTimestampSlots : 0; }
  std::vector<double> timestamps(std::uint32_t count) override;

  void save_pipeline_cache() override { core_->save_pipeline_cache(); }
  std::optional<std::uint64_t> memory_in_use() override { return vk::memory_in_use(*core_); }
  DeviceCounters counters() const override { return {buffers_, kernels_, lists_, submissions_}; }

 private:
  std::shared_ptr<Core> core_;
  std::atomic<std::uint64_t> buffers_ = 0, kernels_ = 0, lists_ = 0, submissions_ = 0;
};

std::vector<double> VulkanDevice::timestamps(std::uint32_t count) {
  core_->require_alive();
  if (count == 0) return {};
  if (count > kTimestampSlots)
    fail(ErrorCode::LimitExceeded, "{} timestamps were asked for, there are {} slots", count, kTimestampSlots);
  if (!core_->timestamps)
    fail(ErrorCode::Unsupported, "the queue of device {} has no timestamps", core_->caps.device_name);
  struct Query {
    std::uint64_t ticks, available;
  };
  std::vector<Query> queries(count);
  const VkResult result = core_->fn.vkGetQueryPoolResults(
      core_->device(), core_->timestamps, 0, count, count * sizeof(Query), queries.data(), sizeof(Query),
      VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
  if (result != VK_NOT_READY) core_->check(result, "vkGetQueryPoolResults");
  const DevicePlan& plan = core_->native.plan;
  // Differences of ticks, not of doubles: some drivers count the nanoseconds since 1970. The counter may have wrapped between two.
  const std::uint32_t unused = 64 - std::min(plan.timestamp_bits, 64u);
  std::vector<double> nanoseconds(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!queries[i].available)
      fail(ErrorCode::InvalidArgument, "timestamp slot {} was not written by a completed submission", i);
    const auto ticks = static_cast<std::int64_t>((queries[i].ticks - queries[0].ticks) << unused) >> unused;
    nanoseconds[i] = static_cast<double>(ticks) * plan.timestamp_period_ns;
  }
  return nanoseconds;
}

}  // namespace

std::shared_ptr<gpu::Device> adopt(NativeHandles handles, Caps caps) {
  auto core = std::make_shared<Core>(std::move(handles), std::move(caps));
  auto device = std::make_shared<VulkanDevice>(core);
  core->check_messages();
  return device;
}

}  // namespace aeshna::gpu::vk
