// The device that computes nothing: buffers are host memory, copies and fills happen, dispatches do not. For plans, for
// tests of the host side, and for Caps of devices that are not here.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/fail.h"
#include "gpu/device.h"
#include "gpu/limits.h"

namespace aeshna::gpu {
namespace {

class NullBuffer final : public Buffer {
 public:
  /// Zeroed lazily by the system: the plan of a large model costs no memory.
  NullBuffer(std::uint64_t bytes, bool mapped)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(std::calloc(std::max<std::uint64_t>(bytes, 1), 1))),
        mapped_(mapped) {}
  ~NullBuffer() override { std::free(memory_); }
  NullBuffer(const NullBuffer&) = delete;
  NullBuffer& operator=(const NullBuffer&) = delete;
  std::uint64_t size() const override { return bytes_; }
  std::byte* mapped() override { return mapped_ ? memory_ : nullptr; }
  std::byte* memory() const { return memory_; }

 private:
  std::uint64_t bytes_;
  std::byte* memory_;
  bool mapped_;
};

std::byte* address(const BufferRange& range) { return static_cast<NullBuffer*>(range.buffer)->memory() + range.offset; }

class NullList final : public CommandList {
 public:
  NullList(std::span<const Command> commands, std::vector<std::shared_ptr<void>> owners) : owners_(std::move(owners)) {
    for (const Command& command : commands)
      if (std::holds_alternative<CopyCommand>(command) || std::holds_alternative<FillCommand>(command))
        commands_.push_back(command);
  }

  void run() const {
    for (const Command& command : commands_) {
      if (const auto* copy = std::get_if<CopyCommand>(&command)) {
        if (copy->source.bytes > 0) std::memcpy(address(copy->destination), address(copy->source), copy->source.bytes);
      } else if (const auto* fill = std::get_if<FillCommand>(&command)) {
        for (std::uint64_t i = 0; i < fill->destination.bytes; i += 4)
          std::memcpy(address(fill->destination) + i, &fill->word, 4);
      }
    }
  }

 private:
  std::vector<Command> commands_;
  std::vector<std::shared_ptr<void>> owners_;
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(Caps caps) : caps_(std::move(caps)) {
    info_.name = caps_.device_name;
    info_.uuid = std::string(32, '0');
    info_.driver = "null";
    info_.memory_bytes = caps_.device_memory;
  }
  const DeviceInfo& info() const override { return info_; }
  const Caps& caps() const override { return caps_; }

  std::shared_ptr<Buffer> create_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name) override {
    check_buffer(bytes, kind, name, caps_);
    ++buffers_;
    auto buffer = std::make_shared<NullBuffer>(bytes, kind != MemoryKind::Device || caps_.unified_memory);
    if (!buffer->memory())
      fail(ErrorCode::OutOfMemory, "buffer {}: cannot allocate {} bytes of {} memory", name, bytes,
           memory_kind_name(kind));
    return buffer;
  }

  std::shared_ptr<Kernel> create_kernel(const KernelDesc& desc) override {
    check_kernel(desc, caps_);
    ++kernels_;
    return std::make_shared<CheckedKernel>(desc);
  }

  std::shared_ptr<CommandList> record(std::span<const Command> commands, std::vector<std::shared_ptr<void>> owners,
                                      std::string_view name) override {
    check_commands(commands, name, caps_);
    ++lists_;
    return std::make_shared<NullList>(commands, std::move(owners));
  }

  Ticket submit(std::span<CommandList* const> lists) override {
    const std::lock_guard lock(mutex_);
    for (const CommandList* list : lists) {
      if (!list) fail(ErrorCode::InvalidArgument, "submit: a command list is null");
      static_cast<const NullList*>(list)->run();
    }
    return ++submissions_;
  }

  void wait(Ticket ticket, std::optional<double>) override {
    if (ticket > submissions_)
      fail(ErrorCode::InvalidArgument, "ticket {} was never submitted; the last one is {}", ticket,
           submissions_.load());
  }
  bool done(Ticket ticket) override { return ticket <= submissions_; }
  std::vector<double> timestamps(std::uint32_t count) override { return std::vector<double>(count, 0.0); }
  DeviceCounters counters() const override { return {buffers_, kernels_, lists_, submissions_}; }

 private:
  Caps caps_;
  DeviceInfo info_;
  std::mutex mutex_;
  std::atomic<std::uint64_t> buffers_ = 0, kernels_ = 0, lists_ = 0, submissions_ = 0;
};

}  // namespace

std::shared_ptr<Device> open_null(Caps caps) { return std::make_shared<NullDevice>(std::move(caps)); }

}  // namespace aeshna::gpu
