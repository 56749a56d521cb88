#pragma once
// The device seam: an interface of plain data. Operands by index, a push block, explicit workgroup size, barriers between
// groups. No descriptor notion and no Vulkan type above it. Back ends: vulkan/, null/, fault/.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "aeshna/device.h"
#include "base/caps.h"

namespace aeshna::gpu {

enum class MemoryKind : std::uint8_t {
  Device,    ///< device-local; mapped only on unified memory
  Upload,    ///< host-visible, write-combined
  Readback,  ///< host-cached
};

class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::uint64_t size() const = 0;
  /// Null when the memory is not host-visible.
  virtual std::byte* mapped() = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
};

/// Commands recorded once, submitted any number of times (one submission in flight at a time is not required).
class CommandList {
 public:
  virtual ~CommandList() = default;
};

struct KernelDesc {
  std::string name;
  std::span<const std::uint32_t> spirv;
  std::uint32_t bindings = 0;
  std::uint32_t push_bytes = 0;
  std::array<std::uint32_t, 3> local{1, 1, 1};
  std::uint32_t shared_bytes = 0;  ///< checked against Caps before the driver sees it: one driver loses the device otherwise
  bool full_subgroups = false;
};

struct BufferRange {
  Buffer* buffer = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct DispatchCommand {
  const Kernel* kernel = nullptr;
  std::vector<BufferRange> operands;
  std::vector<std::uint32_t> push;
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::string label;
};
struct BarrierCommand {};  ///< everything before is visible to everything after, compute and transfer
struct CopyCommand {
  BufferRange source;
  BufferRange destination;
};
struct FillCommand {
  BufferRange destination;
  std::uint32_t word = 0;
};
struct TimestampCommand {
  std::uint32_t slot = 0;
};
using Command = std::variant<DispatchCommand, BarrierCommand, CopyCommand, FillCommand, TimestampCommand>;

/// A point on the device's timeline.
using Ticket = std::uint64_t;

/// Counters of what a step must not do; compared before and after (always kept; they cost nothing).
struct DeviceCounters {
  std::uint64_t buffers_created = 0, kernels_created = 0, lists_recorded = 0, submissions = 0;
};

/// Thread-safe. Every failure is Error: DeviceLost stays until the device is dropped.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual const Caps& caps() const = 0;
  virtual std::shared_ptr<Buffer> create_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name) = 0;
  virtual std::shared_ptr<Kernel> create_kernel(const KernelDesc& desc) = 0;
  /// Keeps the buffers and kernels it refers to alive through `owners`.
  virtual std::shared_ptr<CommandList> record(std::span<const Command> commands, std::vector<std::shared_ptr<void>> owners,
                                              std::string_view name) = 0;
  /// Submits in order; each list begins with a full barrier against everything submitted before. Returns at once.
  virtual Ticket submit(std::span<CommandList* const> lists) = 0;
  /// Throws Error(DeviceLost) naming the timeout (in seconds) when it passes. Unset: 60 s; 600 s on a software driver, which
  /// compiles kernels within the submission that first runs them.
  virtual void wait(Ticket ticket, std::optional<double> timeout_s = {}) = 0;
  virtual bool done(Ticket ticket) = 0;
  /// Slots that TimestampCommand may name; 0: this device has no timestamps.
  virtual std::uint32_t timestamp_slots() const { return 0; }
  /// Nanoseconds from slot 0 to each of the first `count` slots, as the last completed submissions wrote them.
  virtual std::vector<double> timestamps(std::uint32_t count) = 0;
  /// Writes the driver's pipeline cache to the cache directory (best effort; corrupt files are replaced).
  virtual void save_pipeline_cache() {}
  /// Bytes of device memory this process uses according to the driver; nullopt when it cannot tell.
  virtual std::optional<std::uint64_t> memory_in_use() { return std::nullopt; }
  virtual DeviceCounters counters() const = 0;

  /// One object that the layer above keeps with the device for all who use it (the runtime: compiled kernels). `make` is
  /// called at the first use. It goes with the device, after its last submission; it must not own the device.
  std::shared_ptr<void> attached(const std::function<std::shared_ptr<void>()>& make) {
    const std::lock_guard lock(attached_mutex_);
    if (!attached_) attached_ = make();
    return attached_;
  }

 private:
  std::mutex attached_mutex_;
  std::shared_ptr<void> attached_;
};

/// Opens by request (see DeviceRequest). Throws Error(NoDevice) listing what exists and why nothing matched.
std::shared_ptr<Device> open_vulkan(const DeviceRequest& request);
std::vector<DeviceInfo> list_vulkan();
/// Plans only: buffers are host memory, dispatches do nothing.
std::shared_ptr<Device> open_null(Caps caps);

/// Injected failures, counted from 1; 0: never.
struct FaultPlan {
  std::uint64_t lose_at_submit = 0;
  std::uint64_t lose_at_wait = 0;
  std::uint64_t out_of_memory_at_buffer = 0;
  std::uint64_t fail_at_kernel = 0;
  std::uint64_t fail_at_record = 0;
  std::uint32_t timestamp_slots = UINT32_MAX;  ///< the device has at most so many; 0: it has no timestamps
};
std::shared_ptr<Device> with_faults(std::shared_ptr<Device> inner, FaultPlan plan);

}  // namespace aeshna::gpu
