// Which kernel computes attention or a gradient of it: every geometry and split is priced by a small model of one device, and the
// cheapest come first. A pure function of (kernel, caps).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ops/attention.h"
#include "ops/attention_variants.h"
#include "ops/lower.h"

namespace aeshna {
namespace {

constexpr AttentionVariant kVariants[] = {{64, 8, 8},  {64, 8, 16}, {64, 16, 8}, {32, 8, 8}, {32, 8, 16}, {32, 8, 4}, {32, 16, 8},
                                          {16, 8, 8},  {16, 8, 16}, {16, 8, 4},  {8, 8, 8},  {8, 8, 4},   {8, 4, 8},  {8, 4, 4},
                                          {4, 4, 8},   {4, 4, 2},  {2, 2, 1}};
constexpr AttentionVariant kSmall = {4, 4, 2}, kSmallest = {2, 2, 1};
constexpr std::uint32_t kParts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
/// Rows of a group of heads that share keys are packed up to here: decoding, where reading the keys is all there is.
constexpr std::int64_t kPackedRows = 64;

enum class Role : std::uint8_t { Forward, Dq, Dkv };

Role role_of(const FusedKernel& kernel) {
  const std::string& name = kernel.anchor->name;
  return name == "attention" ? Role::Forward : name == "attention_dq" ? Role::Dq : Role::Dkv;
}

std::size_t required_operands(Role role) { return role == Role::Forward ? kAttentionOperands : kGradientOperands; }

/// Operands and results in rows of head_dim can all be moved as vec4.
bool all_vectors(const FusedKernel& kernel, Role role) {
  const TemplateCall& call = kernel.call;
  if (call.inputs[0].shape[3] % 4 != 0) return false;
  const std::size_t in_rows = role == Role::Forward ? 3 : 4, out_rows = role == Role::Dkv ? 2 : 1;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (i >= in_rows) {  // read one by one: no such operand may be bound as vec4
      for (std::size_t k = 0; k < in_rows; ++k) {
        if (call.input_operands[k] == call.input_operands[i]) return false;
      }
      continue;
    }
    const Access& view = call.views[i];
    if (kernel.operands[call.input_operands[i]].elements % 4 != 0 || view.offset % 4 != 0) return false;
    for (int d = 0; d < 3; ++d) {
      if (call.inputs[i].shape[d] > 1 && view.strides[static_cast<std::size_t>(d)] % 4 != 0) return false;
    }
  }
  for (std::size_t r = 0; r < out_rows; ++r) {
    if (kernel.operands[call.result_operands[r]].elements % 4 != 0) return false;
  }
  return true;
}

/// Words of shared memory, in vec4, as the templates declare them.
std::int64_t shared_vectors(Role role, const AttentionVariant& v, std::int64_t d4) {
  const std::int64_t x = v.br * d4, y = std::int64_t{4} * v.tc * d4, weights = std::int64_t{v.br} * v.tc;
  switch (role) {
    case Role::Forward:
      return x + y + weights + v.br * ceil_div(std::int64_t{v.tc}, std::int64_t{4});
    case Role::Dq:
      return 2 * x + y + std::max(y, weights);
    case Role::Dkv:
      return 2 * x + 2 * y + 2 * weights + 1;
  }
  return 0;
}

/// Sizes that the choice asks for.
struct Work {
  Role role;
  AttentionProblem p;
  std::int64_t d4;

  explicit Work(const FusedKernel& kernel)
      : role(role_of(kernel)),
        p(AttentionProblem::of(kernel.call.inputs, kernel.call.attrs, required_operands(role))),
        d4(ceil_div(p.head_dim, std::int64_t{4})) {}

  std::int64_t rows(bool pack) const { return role == Role::Dkv ? p.keys : pack ? p.queries * p.group() : p.queries; }
  std::int64_t outer(bool pack) const {
    return checked_mul(p.batch, role == Role::Dkv || pack ? p.kv_heads : p.heads, "heads of attention");
  }
  /// Columns that one row meets, at most: of all heads that share a KV head, for dK and dV.
  std::int64_t columns() const { return role == Role::Dkv ? p.queries * p.group() : p.keys; }
  /// The part of all pairs of a query and a key that is not masked by position.
  double visible() const {
    if (!p.causal || p.queries == 0 || p.keys == 0) return 1;
    const auto q = static_cast<double>(p.queries), k = static_cast<double>(p.keys);
    if (p.window > 0) return std::min(1.0, static_cast<double>(p.window) / k);
    if (p.position) return 0.5;  // a cache is half full in the mean
    return std::clamp((static_cast<double>(p.query_offset) + q / 2) / k, 0.0, 1.0);
  }
  /// Products of size rows x columns x head_dim.
  double products() const { return role == Role::Forward ? 2 : role == Role::Dq ? 3 : 4; }
};

// ---- The model. Cycles of one multiprocessor, as in lower_matmul.cpp.

constexpr double kLaunch = 1800;     ///< first loads, index arithmetic of a workgroup
constexpr double kTile = 900;        ///< what a tile does not hide when alone: loads, barriers, latencies
constexpr double kCacheBytes = 20;   ///< bytes per cycle from the last-level cache
constexpr double kStoreBytes = 9;    ///< bytes of results per cycle
constexpr double kSplitTail = 2000;  ///< counter and flush of a split
constexpr double kTailBytes = 29;    ///< bytes per cycle that one workgroup reads alone

double cycles(const Work& w, const Caps& caps, const AttentionVariant& v, std::uint32_t parts, bool pack) {
  const double units = std::max(1u, caps.compute_units);
  const double warps = std::ceil(v.threads() / 32.0), rm = v.rows_per_thread(), columns = 4.0 * v.tc;
  const double d4 = static_cast<double>(w.d4), dn = std::ceil(d4 / v.tc);
  const double sums = w.role == Role::Dkv ? 2 : 1, row_products = w.role == Role::Forward ? 1 : 2;

  // A tile, when many are under way: products, the arithmetic of the weights, reads of shared memory (2 cycles for a warp's vec4).
  const double multiply = warps * rm * 16 * (row_products * d4 + sums * v.tc * dn) / 4;
  const double weigh = warps * rm * 4 * 14 / 4;
  const double shared = warps * 2 * (row_products * d4 * (4 + rm) + sums * v.tc * (rm + 4 * dn));
  const double traffic = 2 * columns * d4 * 16 / kCacheBytes;
  const double busy = std::max({multiply + weigh, shared, traffic}) + 0.15 * std::min(multiply + weigh, shared);
  // The same when its workgroup is alone: one warp for each scheduler at best.
  const double alone = std::max(1.0, warps / 4) * (rm * 16 * (row_products * d4 + sums * v.tc * dn) * 1.2 + rm * 4 * 14) + kTile;

  const double registers = 4 * rm * row_products + 4 * rm * dn * sums + 4 * rm + 80;
  const double by_registers = std::floor(65536 / (std::min(registers, 255.0) * 32 * warps));
  const double by_shared = std::floor(220.0 * 1024 / static_cast<double>(shared_vectors(w.role, v, w.d4) * 16 + 1024));
  const double most_resident = std::max(1.0, std::min({by_registers, by_shared, std::floor(64 / warps)}));
  const double spill = registers > 250 ? 3 : 1;

  const std::int64_t blocks = ceil_div(w.rows(pack), std::int64_t{v.br});
  const double groups = static_cast<double>(w.outer(pack)) * static_cast<double>(blocks) * parts;
  const double tiles = static_cast<double>(ceil_div(w.columns(), std::int64_t{4} * v.tc));
  const double mean = std::max(1.0, tiles * w.visible() / parts), longest = std::max(1.0, std::ceil(tiles / parts));
  const double resident = std::min(most_resident, std::ceil(groups / units));
  const double rounds = groups / (units * resident);
  // Workgroups start as others end, the longest first: a last round costs about half of what it leaves idle.
  const double turns = rounds <= 1 ? 1 : (rounds + std::ceil(rounds)) / 2;
  const double result_bytes = v.br * d4 * 16 * sums;
  const double store = result_bytes / kStoreBytes;
  double total = turns * (std::max(resident * mean * busy, (rounds <= 1 ? longest : mean) * alone) * spill + kLaunch + resident * store);
  if (parts > 1) total += kSplitTail + (parts + 1) * result_bytes / kTailBytes;
  return total;
}

struct Priced {
  double cycles;
  const AttentionVariant* variant;
  std::uint32_t parts;
  bool pack;
};

std::vector<Candidate> lower(const FusedKernel& kernel, const Caps& caps) {
  const Work work(kernel);
  const bool may_pack =
      work.role == Role::Forward && work.p.group() > 1 && work.p.queries * work.p.group() <= kPackedRows;
  std::vector<Priced> list;
  if (caps.compute_units == 0) {  // tests: the smallest variant, split in three, so that small shapes reach every path
    for (const AttentionVariant* v : {&kSmall, &kSmallest}) {
      for (const std::uint32_t parts : {work.columns() > 16 * v->tc ? 3u : 1u, 1u})
        list.push_back({static_cast<double>(list.size()), v, parts, may_pack});
    }
  } else {
    for (const AttentionVariant& v : kVariants) {
      for (const std::uint32_t parts : kParts) {
        if (parts > 1 && std::int64_t{parts} * 4 * v.tc > work.columns()) continue;
        // Four times slower than its neighbours when split (H200, 580.159: 60 us instead of 16 for 128 queries), whatever the driver does there.
        if (parts > 1 && work.role == Role::Forward && v.br == 32 && v.tr == 8 && v.tc == 16) continue;
        for (const bool pack : {false, true}) {
          if (pack && !may_pack) continue;
          list.push_back({cycles(work, caps, v, parts, pack), &v, parts, pack});
        }
      }
    }
  }
  std::ranges::stable_sort(list, {}, &Priced::cycles);

  constexpr std::size_t kKeep = 4;  // usable ones; the rest can only be slower
  std::vector<Candidate> candidates;
  std::size_t usable = 0;
  for (const Priced& priced : list) {
    candidates.push_back(attention_candidate(kernel, caps, *priced.variant, priced.parts, priced.pack));
    if (candidates.back().rejected.empty() && ++usable == kKeep) break;
  }
  return candidates;
}

}  // namespace

std::span<const AttentionVariant> attention_variants() { return kVariants; }

Candidate attention_candidate(const FusedKernel& kernel, const Caps& caps, const AttentionVariant& v, std::uint32_t parts,
                              bool pack) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const Work work(kernel);
  const AttentionProblem& p = work.p;
  const bool vector = all_vectors(kernel, work.role);
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = work.role == Role::Forward ? "attention" : "attention_gradient";
  spec.variant = formatted("{}rows {}x{} split={}{}{}{}", v.br, v.tr, v.tc, parts, vector ? " vec" : "",
                           pack ? " packed" : "", work.role == Role::Dkv ? " dkv" : "");
  spec.constants = {{"D", p.head_dim}, {"BR", v.br},
                    {"TR", v.tr},      {"TC", v.tc},
                    {"VEC", vector},   {"CAUSAL", p.causal},
                    {"RING", p.ring},  {"WINDOWED", p.window > 0},
                    {"MASK", p.mask.has_value()}, {"POSITION", p.position.has_value()},
                    {"PARTS", parts}};
  if (work.role == Role::Forward) {
    spec.constants.emplace_back("PACK", pack);
  } else {
    spec.constants.emplace_back("DKV", work.role == Role::Dkv);
  }
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  spec.local = {v.threads(), 1, 1};
  spec.shared_bytes = static_cast<std::uint32_t>(shared_vectors(work.role, v, work.d4) * 16);
  const double pairs = static_cast<double>(p.batch) * static_cast<double>(p.heads) * static_cast<double>(p.queries) *
                       static_cast<double>(p.keys) * work.visible();
  spec.flops = 2 * work.products() * pairs * static_cast<double>(p.head_dim);
  for (const KernelOperand& operand : kernel.operands) spec.bytes += 4.0 * static_cast<double>(operand.elements);

  const std::int64_t blocks =
      checked_mul(work.outer(pack), ceil_div(work.rows(pack), std::int64_t{v.br}), "workgroups of attention");
  const std::int64_t groups = checked_mul(blocks, std::int64_t{parts}, "workgroups of attention");
  spec.workgroups = static_cast<std::uint64_t>(groups);
  if (parts > 1 && groups > 0) {
    const std::int64_t dn = ceil_div(work.d4, std::int64_t{v.tc});
    const std::int64_t vectors = work.role == Role::Forward ? v.br * (work.d4 + 1)
                                                            : v.threads() * v.rows_per_thread() * dn * (work.role == Role::Dkv ? 2 : 1);
    spec.workspace_bytes = static_cast<std::uint64_t>(checked_mul(groups, vectors * 16, "workspace of attention"));
    spec.counters = static_cast<std::uint32_t>(blocks);
  }

  candidate.rejected = launch_obstacle(spec, caps);
  return candidate;
}

std::vector<Candidate> lower_attention(const FusedKernel& kernel, const Caps& caps) { return lower(kernel, caps); }
std::vector<Candidate> lower_attention_gradient(const FusedKernel& kernel, const Caps& caps) { return lower(kernel, caps); }

}  // namespace aeshna
