#include "gpu/limits.h"

#include "base/fail.h"
#include "base/format.h"

namespace aeshna::gpu {
namespace {

/// Checks one command; `where` names it in messages.
struct CommandChecker {
  const Caps& caps;
  std::string where;

  void in_buffer(const BufferRange& range, std::string_view what) const {
    if (!range.buffer) fail(ErrorCode::InvalidArgument, "{}: {} has no buffer", where, what);
    const std::uint64_t size = range.buffer->size();
    if (range.offset > size || range.bytes > size - range.offset)
      fail(ErrorCode::InvalidArgument, "{}: {} is [{}, +{}) in a buffer of {} bytes", where, what, range.offset,
           range.bytes, size);
  }

  void operator()(const DispatchCommand& c) const {
    if (!c.kernel) fail(ErrorCode::InvalidArgument, "{}: no kernel", where);
    const auto& kernel = static_cast<const CheckedKernel&>(*c.kernel);
    if (c.operands.size() != kernel.bindings)
      fail(ErrorCode::InvalidArgument, "{}: kernel {} has {} bindings, {} operands were given", where, kernel.name,
           kernel.bindings, c.operands.size());
    if (c.push.size() * 4 != kernel.push_bytes)
      fail(ErrorCode::InvalidArgument, "{}: kernel {} takes {} push bytes, {} were given", where, kernel.name,
           kernel.push_bytes, c.push.size() * 4);
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const BufferRange& range = c.operands[i];
      const std::string what = formatted("operand {}", i);
      in_buffer(range, what);
      if (range.bytes > 0 && range.offset % caps.storage_alignment != 0)
        fail(ErrorCode::InvalidArgument, "{}: offset {} of {} is no multiple of storage_alignment = {}", where,
             range.offset, what, caps.storage_alignment);
      if (range.bytes > caps.max_storage_range)
        fail(ErrorCode::LimitExceeded, "{}: {} covers {} bytes, max_storage_range allows {}", where, what, range.bytes,
             caps.max_storage_range);
    }
    for (int i = 0; i < 3; ++i)
      if (c.groups[i] > caps.max_groups[i])
        fail(ErrorCode::LimitExceeded, "{}: {} workgroups in dimension {}, max_groups allows {}", where, c.groups[i], i,
             caps.max_groups[i]);
  }

  void operator()(const BarrierCommand&) const {}

  void operator()(const CopyCommand& c) const {
    in_buffer(c.source, "source");
    in_buffer(c.destination, "destination");
    if (c.source.bytes != c.destination.bytes)
      fail(ErrorCode::InvalidArgument, "{}: copies {} bytes into {}", where, c.source.bytes, c.destination.bytes);
    if (c.source.buffer == c.destination.buffer && c.source.offset < c.destination.offset + c.destination.bytes &&
        c.destination.offset < c.source.offset + c.source.bytes)
      fail(ErrorCode::InvalidArgument, "{}: source and destination overlap", where);
  }

  void operator()(const FillCommand& c) const {
    in_buffer(c.destination, "destination");
    if (c.destination.offset % 4 != 0 || c.destination.bytes % 4 != 0)
      fail(ErrorCode::InvalidArgument, "{}: fills [{}, +{}), which is not aligned to 4 bytes", where,
           c.destination.offset, c.destination.bytes);
  }

  void operator()(const TimestampCommand& c) const {
    if (c.slot >= kTimestampSlots)
      fail(ErrorCode::LimitExceeded, "{}: timestamp slot {}, there are {}", where, c.slot, kTimestampSlots);
  }
};

const char* command_name(const Command& command) {
  constexpr const char* names[] = {"dispatch", "barrier", "copy", "fill", "timestamp"};
  return names[command.index()];
}

}  // namespace

const char* memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Device:
      return "device";
    case MemoryKind::Upload:
      return "upload";
    case MemoryKind::Readback:
      return "readback";
  }
  return "unknown";
}

void check_kernel(const KernelDesc& desc, const Caps& caps) {
  check_workgroup(desc.name, desc.local, desc.shared_bytes, desc.push_bytes, desc.bindings, caps);
}

void check_buffer(std::uint64_t bytes, MemoryKind kind, std::string_view name, const Caps& caps) {
  if (kind == MemoryKind::Device && bytes > caps.device_memory)
    fail(ErrorCode::OutOfMemory, "buffer {}: {} bytes of {} memory, the device has {}", name, bytes,
         memory_kind_name(kind), caps.device_memory);
  if (bytes > caps.max_buffer_size)
    fail(ErrorCode::LimitExceeded, "buffer {}: {} bytes, max_buffer_size allows {}", name, bytes, caps.max_buffer_size);
}

void check_commands(std::span<const Command> commands, std::string_view list, const Caps& caps) {
  for (std::size_t i = 0; i < commands.size(); ++i) {
    std::string where = formatted("list {}: command {} ({}", list, i, command_name(commands[i]));
    if (const auto* dispatch = std::get_if<DispatchCommand>(&commands[i]); dispatch && !dispatch->label.empty())
      where += " " + dispatch->label;
    where += ")";
    std::visit(CommandChecker{caps, std::move(where)}, commands[i]);
  }
}

}  // namespace aeshna::gpu
