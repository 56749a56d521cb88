// A device that fails on schedule, around one that works: proof that callers survive a lost device, exhausted memory
// and a driver that cannot build a pipeline.
#include <algorithm>
#include <atomic>

#include "base/fail.h"
#include "gpu/device.h"
#include "gpu/limits.h"

namespace aeshna::gpu {
namespace {

class FaultDevice final : public Device {
 public:
  FaultDevice(std::shared_ptr<Device> inner, FaultPlan plan) : inner_(std::move(inner)), plan_(plan) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  const Caps& caps() const override { return inner_->caps(); }

  std::shared_ptr<Buffer> create_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name) override {
    require_alive();
    if (++buffers_ == plan_.out_of_memory_at_buffer)
      fail(ErrorCode::OutOfMemory, "buffer {}: cannot allocate {} bytes of {} memory (injected)", name, bytes,
           memory_kind_name(kind));
    return inner_->create_buffer(bytes, kind, name);
  }

  std::shared_ptr<Kernel> create_kernel(const KernelDesc& desc) override {
    require_alive();
    if (++kernels_ == plan_.fail_at_kernel)
      fail(ErrorCode::Unsupported, "kernel {}: the driver cannot build its pipeline (injected)", desc.name);
    return inner_->create_kernel(desc);
  }

  std::shared_ptr<CommandList> record(std::span<const Command> commands, std::vector<std::shared_ptr<void>> owners,
                                      std::string_view name) override {
    require_alive();
    if (++records_ == plan_.fail_at_record)
      fail(ErrorCode::OutOfMemory, "list {}: cannot be recorded (injected)", name);
    return inner_->record(commands, std::move(owners), name);
  }

  Ticket submit(std::span<CommandList* const> lists) override {
    require_alive();
    if (++submits_ == plan_.lose_at_submit) lose();
    return inner_->submit(lists);
  }

  void wait(Ticket ticket, std::optional<double> timeout_s) override {
    require_alive();
    if (++waits_ == plan_.lose_at_wait) lose();
    inner_->wait(ticket, timeout_s);
  }

  bool done(Ticket ticket) override {
    require_alive();
    return inner_->done(ticket);
  }
  std::uint32_t timestamp_slots() const override { return std::min(plan_.timestamp_slots, inner_->timestamp_slots()); }
  std::vector<double> timestamps(std::uint32_t count) override {
    require_alive();
    return inner_->timestamps(count);
  }
  void save_pipeline_cache() override {
    if (!lost_) inner_->save_pipeline_cache();
  }
  std::optional<std::uint64_t> memory_in_use() override { return inner_->memory_in_use(); }
  DeviceCounters counters() const override { return inner_->counters(); }

 private:
  void require_alive() const {
    if (lost_) fail(ErrorCode::DeviceLost, "device {} is lost (injected)", inner_->caps().device_name);
  }
  void lose() {
    lost_ = true;
    require_alive();
  }

  std::shared_ptr<Device> inner_;
  FaultPlan plan_;
  std::atomic<bool> lost_ = false;
  std::atomic<std::uint64_t> buffers_ = 0, kernels_ = 0, records_ = 0, submits_ = 0, waits_ = 0;
};

}  // namespace

std::shared_ptr<Device> with_faults(std::shared_ptr<Device> inner, FaultPlan plan) {
  return std::make_shared<FaultDevice>(std::move(inner), plan);
}

}  // namespace aeshna::gpu
