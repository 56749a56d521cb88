// Geometry of running sums.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/access.h"
#include "ir/op.h"
#include "ops/lower.h"
#include "ops/order.h"

namespace aeshna {

AxisSplit split_axis(const Shape& shape, std::int64_t axis) {
  AxisSplit split;
  for (int d = 0; d < shape.rank(); ++d) {
    std::int64_t& part = d < axis ? split.outer : d == axis ? split.extent : split.inner;
    part = checked_mul(part, shape[d], "elements of a tensor");
  }
  return split;
}

/// Serves `scan` and `block_sums`.
std::vector<Candidate> lower_scan(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const AxisSplit split = split_axis(call.inputs[0].shape, call.attrs.get<std::int64_t>("axis"));
  const std::int64_t block = call.attrs.get<std::int64_t>("block");
  const std::int64_t length = block == 0 ? split.extent : std::min(block, split.extent);
  const std::int64_t segments = block == 0 ? 1 : ceil_div(split.extent, block);
  const bool sums = kernel.anchor->name == "block_sums";
  const bool any = split.outer * split.extent * split.inner > 0;
  const std::uint64_t items = any ? static_cast<std::uint64_t>(split.outer * split.inner * segments) : 0;

  const auto fused = std::make_shared<const FusedKernel>(kernel);
  const std::uint32_t threads = workgroup_threads(caps, 256);
  constexpr std::int64_t kPerThread = 8;
  std::vector<Candidate> candidates;
  for (const bool vec : {true, false}) {
    Candidate candidate;
    KernelSpec& spec = candidate.spec;
    const bool columns = split.inner >= 8;
    // Few variants, so that shapes share kernels.
    std::uint32_t ty = 1;
    if (!columns) ty = length <= 4 * kPerThread ? 4 : length <= 32 * kPerThread ? 32 : 256;
    ty = std::min(ty, threads);
    const std::uint32_t tx = threads / ty;
    spec.family = "scan";
    spec.variant =
        formatted("{}{} {}x{}{}", sums ? "sums " : "", columns ? "columns" : "rows", tx, ty, vec ? " vec4" : "");
    spec.constants = {{"TX", tx},
                      {"TY", ty},
                      {"V", columns ? 4 : kPerThread},
                      {"COLUMNS", columns ? 1 : 0},
                      {"EXCLUSIVE", !sums && call.attrs.get<bool>("exclusive") ? 1 : 0},
                      {"SUMS", sums ? 1 : 0},
                      {"VEC", vec ? 1 : 0}};
    spec.local = {threads, 1, 1};
    spec.workgroups = ceil_div(items, std::uint64_t{tx});
    spec.shared_bytes = ty > 1 ? threads * 4 + threads * 2 : 0;  // at most half as many steps as threads
    spec.fused = fused;
    estimate(spec);
    candidate.rejected = template_obstacle(spec, caps);
    if (vec && candidate.rejected.empty() && (split.inner != 1 || split.extent % 4 != 0 || block % 4 != 0))
      candidate.rejected = "rows are not whole runs of 4";
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

}  // namespace aeshna
