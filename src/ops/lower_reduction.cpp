// Geometry of reduction kernels: TX rows to a workgroup, TY threads to a row, PARTS workgroups to a row.
#include <algorithm>
#include <bit>
#include <memory>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/access.h"
#include "ir/op.h"
#include "ops/lower.h"

namespace aeshna {
namespace {

constexpr std::int64_t kShortWindow = 16;
constexpr std::uint64_t kShortColumn = 64;

struct Geometry {
  bool columns = false;  ///< neighbouring threads work on neighbouring rows, not on neighbouring points of one row
  int width = 1;         ///< 4: inner points are 4-vectors
  std::uint32_t tx = 1, ty = 1;
  std::uint64_t parts = 1;
};

/// What the choice depends on.
struct Facts {
  std::uint64_t rows = 0, inner = 0;
  std::uint32_t levels = 0, accumulators = 0;  ///< accumulators: words of shared memory (and workspace) per thread
  bool only_outer_stores = true;
  std::uint32_t loads = 0;       ///< inner-dependent loads
  int cost = 0;                  ///< of the inner-dependent ops at one point
  bool columns = false;          ///< most inner-dependent accesses are contiguous along the rows
  std::string not_vectorisable;  ///< empty: inner points can be 4-vectors
};

Facts facts_of(const FusedKernel& kernel) {
  Facts facts;
  const std::span space(kernel.space);
  facts.rows = static_cast<std::uint64_t>(points_of(space.first(kernel.outer_rank)));
  facts.inner = static_cast<std::uint64_t>(points_of(space.subspan(kernel.outer_rank)));
  const ReductionLevels levels = reduction_levels(kernel);
  facts.levels = levels.levels;

  const std::size_t last = kernel.space.size() - 1;
  if (kernel.space.size() == kernel.outer_rank) {
    facts.not_vectorisable = "nothing is reduced over";
  } else if (kernel.space[last] % 4 != 0) {
    facts.not_vectorisable = "the last extent is not a multiple of 4";
  }
  std::int64_t along_row = 0, across_rows = 0;  // elements: a mean per row does not outweigh the matrix beside it
  const auto visit = [&](const Access& access, std::uint32_t operand, bool stored, bool gather = false) {
    const std::int64_t elements = kernel.operands[operand].elements;
    const bool along = kernel.space.size() > kernel.outer_rank && std::abs(access.strides[last]) == 1;
    // Neighbouring rows see neighbouring elements: columns, and windows of a small stride.
    bool across = false;
    for (std::size_t d = 0; d < kernel.outer_rank; ++d) {
      const std::int64_t s = access.strides[d];
      across |= kernel.space[d] > 1 && (s == 1 || (along && s > 1 && s < 4));
    }
    if (along && !(across && kernel.space[last] <= kShortWindow)) {
      along_row += elements;
    } else if (across) {
      across_rows += elements;
    }
    if (gather) return;  // four loads at worst, as in a scalar kernel
    if (!facts.not_vectorisable.empty() || vector_access(access, last) || (!stored && uniform_access(access, last)))
      return;
    facts.not_vectorisable =
        formatted("operand {} is not {} in aligned runs of 4", operand, stored ? "written" : "read");
  };
  for (std::size_t i = 0; i < kernel.body.instrs.size(); ++i) {
    const Instr& instr = kernel.body.instrs[i];
    if (instr.kind == Instr::Kind::Load && !levels.outer[i]) {
      ++facts.loads;
      visit(instr.access, instr.operand, false, !instr.args.empty());
    }
    if (instr.kind == Instr::Kind::Op && !levels.outer[i]) facts.cost += instr.op->pointwise.cost;
    if (instr.kind != Instr::Kind::Reduce) continue;
    const bool is_arg = instr.reduce == ReduceKind::ArgMax || instr.reduce == ReduceKind::ArgMin;
    facts.accumulators += is_arg ? 2 : 1;
    if (is_arg && facts.not_vectorisable.empty())
      facts.not_vectorisable = "an index of an extreme is sought point by point";
  }
  for (const Store& store : kernel.body.stores) {
    if (store.outer) continue;
    facts.only_outer_stores = false;
    visit(store.access, store.operand, true);
  }
  facts.columns = across_rows > along_row;
  return facts;
}

std::uint32_t power_of_two(std::uint64_t at_least, std::uint32_t limit) {
  std::uint32_t power = 1;
  while (power < at_least && power * 2 <= limit) power *= 2;
  return power;
}

/// The largest power of two of threads that a workgroup may have, and whose accumulators fit shared memory.
std::uint32_t thread_limit(const Facts& facts, const Caps& caps, std::uint32_t wish) {
  const std::uint32_t limit = std::min({wish, caps.max_invocations, caps.max_local[0]});
  const std::uint32_t by_shared = caps.shared_bytes / 4 / std::max(facts.accumulators, 1u);
  return std::bit_floor(std::max(std::min(limit, by_shared), 1u));
}

bool is_heavy(const Facts& facts) { return facts.cost >= 8; }

Geometry choose(const Facts& facts, const Caps& caps, int width, bool split) {
  Geometry g{.columns = facts.columns && width == 1, .width = width};
  const std::uint64_t units = caps.compute_units, groups = max_workgroups(caps);
  const std::uint64_t points = facts.inner / static_cast<std::uint64_t>(width);
  // Few rows: fuller workgroups.
  const bool few = g.columns ? facts.rows <= 32 * units : facts.rows <= 2 * units && points >= 4096;
  const std::uint32_t limit = thread_limit(facts, caps, few && !split ? 1024 : 256);
  const std::uint64_t threads_wanted = ceil_div(points, std::uint64_t{4});
  if (g.columns) {
    // Short columns in plenty: a thread each.
    const bool short_columns = units > 0 && points <= kShortColumn && facts.rows >= 512 * units;
    g.tx = power_of_two(facts.rows, std::min(short_columns ? 256u : 32u, limit));
    g.ty = short_columns ? 1 : power_of_two(threads_wanted, limit / g.tx);
  } else {
    g.ty = power_of_two(threads_wanted, limit);
    g.tx = power_of_two(facts.rows, std::max(std::min(limit, 256u) / g.ty, 1u));
    // Rather more workgroups than full ones while compute units would stay idle.
    while (g.tx > 1 && g.tx * g.ty > 32 && facts.rows / g.tx < 2 * units) g.tx /= 2;
  }
  while (ceil_div(facts.rows, std::uint64_t{g.tx}) > groups &&
         g.tx < limit) {  // more rows per workgroup than one would like
    g.tx *= 2;
    g.ty = std::max(std::min(g.ty, limit / g.tx), 1u);
  }
  const std::uint64_t blocks = ceil_div(facts.rows, std::uint64_t{g.tx});
  if (units == 0) {  // tiny tiles: small shapes reach this path too
    if (split && blocks > 0 && points >= 8) g.parts = std::max(std::min(std::uint64_t{3}, groups / blocks), std::uint64_t{1});
  } else if (split && blocks > 0 && 4 * blocks < 3 * units &&
      points > std::uint64_t{32} * thread_limit(facts, caps, 1024) / g.tx) {
    const std::uint64_t wanted = ceil_div((g.columns ? 8 : 4) * units, blocks);
    g.parts = std::min({wanted, points / (std::uint64_t{8} * g.ty), groups / blocks, std::uint64_t{1024}});
    g.parts = std::max(g.parts, std::uint64_t{1});
  }
  return g;
}

Candidate reduction_candidate(std::shared_ptr<const FusedKernel> kernel, const Facts& facts, const Caps& caps,
                              const Geometry& g) {
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  const std::uint64_t blocks = ceil_div(facts.rows, std::uint64_t{g.tx});
  const std::uint64_t points = facts.inner / static_cast<std::uint64_t>(g.width);
  const std::uint64_t per_thread = ceil_div(points, g.ty * g.parts);
  // Every copy of the body costs compile time: 4 accumulators for light bodies, 1 for heavy 4-wide ones.
  const std::int64_t unroll = per_thread < 4 ? 1 : !is_heavy(facts) ? 4 : g.width == 4 ? 1 : 2;
  // Values that several passes need stay in registers if there are few of them.
  const std::uint64_t kept =
      per_thread * static_cast<std::uint64_t>(g.width) * (facts.loads + (facts.levels > 1 ? 1 : 0));
  const bool keep =
      g.parts == 1 && per_thread > 0 && per_thread <= 8 && kept <= 32 && (facts.levels > 1 || !facts.only_outer_stores);
  spec.family = "reduce";
  spec.variant =
      formatted("{}{}x{}{}{}{}", g.columns ? "columns " : "rows ", g.tx, g.ty, g.width == 4 ? " vec4" : "",
                keep ? formatted(" keep={}", per_thread) : "", g.parts > 1 ? formatted(" parts={}", g.parts) : "");
  spec.constants = {{"TX", g.tx},
                    {"TY", g.ty},
                    {"COLUMNS", g.columns ? 1 : 0},
                    {"WIDTH", g.width},
                    {"UNROLL", keep ? 1 : unroll},
                    {"KEEP", keep ? static_cast<std::int64_t>(per_thread) : 0},
                    {"FLUSH", per_thread > 256 ? 1 : 0},  // long sums: a second level of accumulators
                    {"PARTS", static_cast<std::int64_t>(g.parts)}};
  spec.local = {g.tx * g.ty, 1, 1};
  spec.workgroups = blocks * g.parts;
  spec.shared_bytes = g.ty > 1 ? g.tx * g.ty * facts.accumulators * 4 : 0;
  if (g.parts > 1) {
    spec.shared_bytes += 4;
    spec.workspace_bytes = spec.workgroups * g.tx * facts.accumulators * 4;
    spec.counters = static_cast<std::uint32_t>(blocks);
  }
  spec.fused = std::move(kernel);
  estimate(spec);

  const std::size_t bindings = spec.fused->operands.size() + (g.parts > 1 ? 2 : 0);
  candidate.rejected =
      bindings > caps.max_storage_buffers
          ? formatted("{} bindings; the device has at most {} storage buffers", bindings, caps.max_storage_buffers)
          : launch_obstacle(spec, caps);
  if (candidate.rejected.empty() && g.width == 4) {
    candidate.rejected = facts.not_vectorisable;
    if (candidate.rejected.empty() && facts.columns)
      candidate.rejected = "memory is contiguous across rows, not along them";
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> lower_reduction(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Reduction && kernel.outer_rank <= kernel.space.size());
  const auto shared = std::make_shared<const FusedKernel>(kernel);
  const Facts facts = facts_of(kernel);
  std::vector<Candidate> candidates;
  for (const int width : {4, 1}) {
    for (const bool split : {true, false}) {
      const Geometry g = choose(facts, caps, width, split);
      Candidate candidate = reduction_candidate(shared, facts, caps, g);
      if (split && candidate.rejected.empty()) {
        if (facts.levels != 1 || !facts.only_outer_stores) {
          candidate.rejected = "rows can be split over workgroups only for one level of reductions and results per row";
        } else if (g.parts < 2) {
          candidate.rejected = "enough rows, or too short ones, to split them over workgroups";
        }
      }
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

}  // namespace aeshna
