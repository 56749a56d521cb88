// Geometry of sorts.
#include <algorithm>
#include <bit>
#include <memory>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/access.h"
#include "ops/lower.h"
#include "ops/order.h"

namespace aeshna {

std::vector<Candidate> lower_sort_chunks(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const std::int64_t rows = call.inputs[0].shape[0], n = call.inputs[0].shape[1];
  const std::int64_t chunk = call.attrs.get<std::int64_t>("chunk");
  const auto longest = static_cast<std::uint64_t>(std::max<std::int64_t>(std::min(chunk, n), 32));
  const auto capacity = static_cast<std::int64_t>(std::bit_ceil(longest));
  const std::int64_t items_per_group = std::max<std::int64_t>(512 / capacity, 1);
  const std::uint32_t threads = workgroup_threads(caps, capacity > 512 ? 512 : 256);

  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "sort_chunks";
  spec.variant = formatted("{}x{}", items_per_group, capacity);
  spec.constants = {{"CAPACITY", capacity}, {"ITEMS_PER_GROUP", items_per_group}, {"THREADS", threads}};
  spec.local = {threads, 1, 1};
  spec.workgroups = static_cast<std::uint64_t>(ceil_div(rows * ceil_div(n, chunk), items_per_group));
  spec.shared_bytes = static_cast<std::uint32_t>(8 * capacity * items_per_group);
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  estimate(spec);
  candidate.rejected = template_obstacle(spec, caps);
  return {std::move(candidate)};
}

std::vector<Candidate> lower_sort_merge(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const std::int64_t rows = call.inputs[0].shape[0], n = call.inputs[0].shape[1];
  const std::uint32_t threads = workgroup_threads(caps, 256);

  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "sort_merge";
  spec.variant = formatted("{}x{}", kMergeTile, threads);
  spec.constants = {{"TILE", kMergeTile}, {"THREADS", threads}, {"PER_THREAD", ceil_div(kMergeTile, std::int64_t{threads})}};
  spec.local = {threads, 1, 1};
  spec.workgroups = static_cast<std::uint64_t>(rows * ceil_div(n, kMergeTile));
  spec.shared_bytes = static_cast<std::uint32_t>(8 * kMergeTile + 8);
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  estimate(spec);
  candidate.rejected = template_obstacle(spec, caps);
  return {std::move(candidate)};
}

std::vector<Candidate> lower_place(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const std::int64_t rows = call.inputs[0].shape[0], k = call.inputs[0].shape[1], n = call.results[0].shape[1];
  const bool full = k == n;  // a permutation: no element is left out
  constexpr std::int64_t kSegment = 2048;
  const std::uint32_t threads = workgroup_threads(caps, 256);

  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "place";
  spec.variant = full ? "permutation" : "segments";
  spec.constants = {{"THREADS", threads}, {"SEGMENT", kSegment}, {"FULL", full ? 1 : 0}};
  spec.local = {threads, 1, 1};
  spec.workgroups = static_cast<std::uint64_t>(full ? ceil_div(rows * k, std::int64_t{threads}) : rows * ceil_div(n, kSegment));
  spec.shared_bytes = full ? 0 : 4 * kSegment;
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  estimate(spec);
  candidate.rejected = template_obstacle(spec, caps);
  return {std::move(candidate)};
}

}  // namespace aeshna
