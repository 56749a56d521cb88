// Geometry of pointwise kernels.
#include <algorithm>
#include <memory>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/access.h"
#include "ops/lower.h"

namespace aeshna {
namespace {

constexpr std::uint32_t kThreads = 256;

/// Why the body cannot be computed for 4 consecutive coordinates of the last dimension at once; empty: it can.
std::string not_vectorisable(const FusedKernel& kernel) {
  if (kernel.space.empty() || kernel.space.back() % 4 != 0) return "the last extent is not a multiple of 4";
  const std::size_t last = kernel.space.size() - 1;
  for (const Instr& instr : kernel.body.instrs) {
    if (instr.kind != Instr::Kind::Load || vector_access(instr.access, last) || uniform_access(instr.access, last))
      continue;
    if (!instr.args.empty()) continue;  // a gather is four loads at worst, as in a scalar kernel
    return formatted("operand {} is not read in aligned runs of 4", instr.operand);
  }
  for (const Store& store : kernel.body.stores) {
    if (!vector_access(store.access, last))
      return formatted("operand {} is not written in aligned runs of 4", store.operand);
  }
  return {};
}

Candidate pointwise_candidate(std::shared_ptr<const FusedKernel> kernel, const Caps& caps, int width) {
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  const auto elements = static_cast<std::uint64_t>(points_of(kernel->space));
  const std::uint64_t points = elements / static_cast<std::uint64_t>(width);
  const std::uint32_t threads = std::min({kThreads, caps.max_invocations, caps.max_local[0]});
  const std::uint64_t singles = ceil_div(points, std::uint64_t{threads});

  // Several points per invocation once every compute unit has plenty of workgroups; more still if the groups would not
  // fold.
  std::uint64_t runs = singles >= 16ull * caps.compute_units ? 4 : 1;
  runs = std::max(runs, ceil_div(singles, max_workgroups(caps)));

  spec.family = "pointwise";
  spec.variant = formatted("{}{} runs={}", threads, width == 4 ? " vec4" : "", runs);
  spec.constants = {{"WIDTH", width}, {"RUNS", static_cast<std::int64_t>(runs)}};
  spec.local = {threads, 1, 1};
  spec.workgroups = ceil_div(singles, runs);
  spec.fused = std::move(kernel);
  estimate(spec);
  candidate.rejected = launch_obstacle(spec, caps);
  if (candidate.rejected.empty() && width == 4) candidate.rejected = not_vectorisable(*spec.fused);
  return candidate;
}

}  // namespace

std::vector<Candidate> lower_pointwise(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Pointwise);
  const auto shared = std::make_shared<const FusedKernel>(kernel);
  return {pointwise_candidate(shared, caps, 4), pointwise_candidate(shared, caps, 1)};
}

}  // namespace aeshna
