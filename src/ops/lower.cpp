#include "ops/lower.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/format.h"

namespace aeshna {

std::string launch_obstacle(const KernelSpec& spec, const Caps& caps) {
  const std::uint32_t threads = spec.local[0] * spec.local[1] * spec.local[2];
  const std::size_t bindings = spec.fused->operands.size() + (spec.workspace_bytes > 0 ? 1 : 0) + (spec.counters > 0 ? 1 : 0);
  if (threads > caps.max_invocations || spec.local[0] > caps.max_local[0]) {
    return formatted("{} threads per workgroup; the device allows {}", threads,
                     std::min(caps.max_invocations, caps.max_local[0]));
  }
  if (spec.shared_bytes > caps.shared_bytes)
    return formatted("{} bytes of shared memory; the device has {}", spec.shared_bytes, caps.shared_bytes);
  if (bindings > caps.max_storage_buffers)
    return formatted("{} storage buffers; the device allows {}", bindings, caps.max_storage_buffers);
  if (const std::uint64_t most = std::min<std::uint64_t>(caps.max_storage_range, caps.max_buffer_size);
      spec.workspace_bytes > most)
    return formatted("{} bytes of workspace; a binding covers {}", spec.workspace_bytes, most);
  if (spec.workgroups > max_workgroups(caps))
    return formatted("{} workgroups; the device launches at most {}", spec.workgroups, max_workgroups(caps));
  return {};
}

std::uint32_t workgroup_threads(const Caps& caps, std::uint32_t wish) {
  return std::bit_floor(std::max(std::min({wish, caps.max_invocations, caps.max_local[0]}), 1u));
}

std::string template_obstacle(const KernelSpec& spec, const Caps& caps) {
  for (const KernelOperand& operand : spec.fused->operands) {
    // A margin, so that indices of surplus threads do not wrap.
    if (operand.elements > std::numeric_limits<std::uint32_t>::max() - (1 << 16))
      return formatted("an operand of {} elements; kernel indices are 32-bit", operand.elements);
  }
  return launch_obstacle(spec, caps);
}

}  // namespace aeshna
