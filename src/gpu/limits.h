#pragma once
// Checks that every back end makes before a driver sees anything. Pure.
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/caps.h"
#include "gpu/device.h"

namespace aeshna::gpu {

/// What both back ends remember of a kernel, so that commands can be checked.
class CheckedKernel : public Kernel {
 public:
  explicit CheckedKernel(const KernelDesc& desc)
      : name(desc.name), bindings(desc.bindings), push_bytes(desc.push_bytes) {}
  const std::string name;
  const std::uint32_t bindings, push_bytes;
};

/// Workgroup size, shared memory, push bytes and bindings against the limits; see check_launch. (launch.cpp)
void check_workgroup(std::string_view kernel, const std::array<std::uint32_t, 3>& local, std::uint32_t shared_bytes,
                     std::uint32_t push_bytes, std::uint32_t bindings, const Caps& caps);

/// A kernel before its creation.
void check_kernel(const KernelDesc& desc, const Caps& caps);

/// A buffer before its creation: Error(OutOfMemory) beyond the device's memory, Error(LimitExceeded) beyond
/// max_buffer_size.
void check_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name, const Caps& caps);
const char* memory_kind_name(MemoryKind kind);

/// Timestamp slots of every device.
inline constexpr std::uint32_t kTimestampSlots = 16384;

/// All commands of a list: ranges within their buffers and the descriptor limit, aligned offsets, operand and push
/// counts of the kernel, workgroup counts. Error(InvalidArgument) or Error(LimitExceeded) that names list, command
/// number and label.
void check_commands(std::span<const Command> commands, std::string_view list, const Caps& caps);

}  // namespace aeshna::gpu
