// select: each fused kernel becomes one KernelSpec, chosen with its geometry as one value. Kernels whose operands exceed what one
// descriptor covers, or lie in several buffers, are cut by rows first (split_rows.cpp).

#include "base/fail.h"
#include "base/format.h"
#include "compile/stages.h"
#include "ir/op.h"

namespace aeshna {
namespace {

KernelSpec choose(const FusedKernel& kernel, const Caps& caps, std::vector<std::string>& notes) {
  const OpDef& anchor = *kernel.anchor;
  if (!anchor.lower) fail(ErrorCode::Internal, "[{}] has no kernel", anchor.name);
  std::string reasons;
  for (Candidate& candidate : anchor.lower(kernel, caps)) {
    if (candidate.rejected.empty()) {
      if (!reasons.empty())
        notes.push_back(formatted("{}: chose {}; rejected {}", anchor.name, candidate.spec.variant, reasons));
      return std::move(candidate.spec);
    }
    if (!reasons.empty()) reasons += "; ";
    reasons += candidate.spec.variant + ": " + candidate.rejected;
  }
  fail(ErrorCode::LimitExceeded, "[{}] no kernel variant fits {}: {}", anchor.name, caps.device_name, reasons);
}

}  // namespace

std::vector<std::pair<FusedKernel, KernelSpec>> select(std::vector<FusedKernel> fused, const Caps& caps, bool tiny_tiles,
                                                       std::vector<std::string>& notes) {
  Caps chosen = caps;
  if (tiny_tiles) chosen.compute_units = 0;  // lowering takes the smallest tiles and splits early
  std::vector<std::pair<FusedKernel, KernelSpec>> result;
  for (FusedKernel& kernel : fused) {
    for (FusedKernel& part : split_by_rows(std::move(kernel), caps)) {
      KernelSpec spec = choose(part, chosen, notes);
      result.emplace_back(std::move(part), std::move(spec));
    }
  }
  return result;
}

}  // namespace aeshna
