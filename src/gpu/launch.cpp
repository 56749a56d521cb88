#include "gpu/launch.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "gpu/limits.h"
#include "ir/device_types.h"

namespace aeshna::gpu {

std::array<std::uint32_t, 3> fold_groups(std::uint64_t count, const Caps& caps) {
  if (count == 0) return {0, 0, 0};
  constexpr std::uint64_t max_linear = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t max_x = caps.max_groups[0], max_y = caps.max_groups[1], max_z = caps.max_groups[2];
  if (count > max_linear)
    fail(ErrorCode::LimitExceeded, "{} workgroups do not fit the 32-bit linear workgroup index", count);
  // The fewest slices z, then the fewest rows y, then the narrowest row x: each division rounds up, so that fewer than
  // y * z workgroups are wasted. The rounded product must fit 32 bits too, or linear ids would wrap and run twice.
  const std::uint64_t plane = std::min(max_x * max_y, max_linear);
  const std::uint64_t z = ceil_div(count, plane);
  if (z <= max_z) {
    const std::uint64_t per_slice = ceil_div(count, z);
    const std::uint64_t y = ceil_div(per_slice, max_x);
    const std::uint64_t x = ceil_div(per_slice, y);
    if (y <= max_y && x * y * z <= max_linear)
      return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
  }
  fail(ErrorCode::LimitExceeded, "{} workgroups cannot be folded into max_groups = {} x {} x {}", count, max_x, max_y,
       max_z);
}

void check_workgroup(std::string_view kernel, const std::array<std::uint32_t, 3>& local, std::uint32_t shared_bytes,
                     std::uint32_t push_bytes, std::uint32_t bindings, const Caps& caps) {
  const auto need = [&](const char* limit, std::uint64_t needed, std::uint64_t allowed) {
    if (needed > allowed)
      fail(ErrorCode::LimitExceeded, "kernel {}: needs {} = {}, the device allows {}", kernel, limit, needed, allowed);
  };
  constexpr const char* local_names[3] = {"max_local[0] (workgroup width)", "max_local[1] (workgroup height)",
                                          "max_local[2] (workgroup depth)"};
  std::uint64_t invocations = 1;
  for (int i = 0; i < 3; ++i) {
    if (local[i] == 0) fail(ErrorCode::InvalidArgument, "kernel {}: workgroup size {} is 0", kernel, i);
    need(local_names[i], local[i], caps.max_local[i]);
    invocations *= local[i];
  }
  need("max_invocations (threads per workgroup)", invocations, caps.max_invocations);
  need("shared_bytes (shared memory per workgroup)", shared_bytes, caps.shared_bytes);
  need("push_bytes (push constants)", push_bytes, caps.push_bytes);
  need("max_storage_buffers (bindings)", bindings, caps.max_storage_buffers);
  if (push_bytes % 4 != 0)
    fail(ErrorCode::InvalidArgument, "kernel {}: {} push bytes are no multiple of 4", kernel, push_bytes);
}

void check_launch(const KernelSpec& spec, std::uint32_t push_bytes, std::uint32_t bindings, const Caps& caps) {
  const std::string kernel = spec.variant.empty() ? spec.family : spec.family + " " + spec.variant;
  check_workgroup(kernel, spec.local, spec.shared_bytes, push_bytes, bindings, caps);
  const auto range = [&](std::string_view what, std::uint64_t bytes) {
    if (bytes > caps.max_storage_range)
      fail(ErrorCode::LimitExceeded, "kernel {}: {} needs max_storage_range = {} bytes, the device allows {}", kernel,
           what, bytes, caps.max_storage_range);
  };
  if (spec.fused) {
    for (std::size_t i = 0; i < spec.fused->operands.size(); ++i) {
      const KernelOperand& operand = spec.fused->operands[i];
      range(formatted("operand {}", i), device_bytes(operand.dtype, operand.elements));
    }
  }
  range("workspace", spec.workspace_bytes);
  static_cast<void>(fold_groups(spec.workgroups, caps));
}

}  // namespace aeshna::gpu
