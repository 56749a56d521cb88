// Geometry of cache writes and reads: one thread for each element (or four) of the rows.
#include <memory>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/access.h"
#include "ir/op.h"
#include "ops/lower.h"
#include "ops/order.h"

namespace aeshna {

std::vector<Candidate> lower_cache(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const bool write = call.updated.has_value();
  const Shape& rows = write ? call.inputs[1].shape : call.results[0].shape;
  const std::uint32_t threads = workgroup_threads(caps, 256);
  const auto fused = std::make_shared<const FusedKernel>(kernel);
  std::vector<Candidate> candidates;
  for (const std::int64_t width : {4, 1}) {
    Candidate candidate;
    KernelSpec& spec = candidate.spec;
    spec.family = "cache";
    spec.variant = formatted("{}{}", write ? "write" : "read", width == 4 ? " vec4" : "");
    spec.constants = {{"THREADS", threads}, {"WRITE", write ? 1 : 0}, {"WIDTH", width}};
    spec.local = {threads, 1, 1};
    spec.workgroups = ceil_div(static_cast<std::uint64_t>(rows.elements() / width), std::uint64_t{threads});
    spec.fused = fused;
    // Only the rows move, not the cache.
    spec.bytes = 8.0 * static_cast<double>(rows.elements());
    candidate.rejected = template_obstacle(spec, caps);
    if (candidate.rejected.empty() && width == 4) {
      const bool view = !write || (vector_access(call.views[1], 3) &&
                                   kernel.operands[call.input_operands[1]].elements % 4 == 0);
      if (rows[3] % 4 != 0 || !view) candidate.rejected = "rows are not whole aligned runs of 4";
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

}  // namespace aeshna
