// Which kernel computes a matrix product: every variant and split is priced by a small model of one device, and the cheapest
// come first. A pure function of (kernel, caps).
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/quant.h"
#include "ir/access.h"
#include "ir/device_types.h"
#include "ir/op.h"
#include "ops/lower.h"
#include "ops/matmul_variants.h"

namespace aeshna {
namespace {

constexpr TileVariant kTiles[] = {
    {16, 16, 8, 1, 4, 1},  {16, 16, 16, 1, 4, 2},  {32, 32, 16, 4, 4, 2},  {32, 64, 16, 4, 4, 2},
    {64, 64, 16, 8, 4, 2}, {64, 128, 16, 8, 8, 2}, {128, 128, 16, 8, 8, 1},
};
/// Threads 8 x 8, 64 and 128 exist for small devices and small depths.
constexpr GemvVariant kGemvs[] = {{8, 8, 1},     {32, 8, 1},  {8, 8, 4},      {8, 16, 2},     {8, 32, 1},
                                  {4, 32, 2},    {4, 64, 1},  {4, 64, 1, 2},  {4, 64, 2},     {8, 32, 2, 2},
                                  {1, 64, 4, 2}, {2, 128, 2}, {2, 128, 1, 2}, {1, 128, 2, 2}, {1, 256, 1}};
constexpr std::uint32_t kParts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
constexpr std::uint32_t kBand = 8;

/// The numbers of a product that every variant asks for.
struct Product {
  std::int64_t batch, m, n, k;
  explicit Product(const FusedKernel& kernel) : k(kernel.k) {
    const std::span space(kernel.space);
    const std::size_t first_row = batch_rank(kernel);
    batch = points_of(space.first(first_row));
    m = points_of(space.subspan(first_row, kernel.row_rank));
    n = points_of(space.last(kernel.column_rank));
  }
};

/// How to walk one operand: which neighbours a thread or its neighbours take, and whether four can travel as one vec4.
struct Walk {
  bool along_k = true;
  bool vector = false;
};

Walk walk_of(const FusedKernel& kernel, bool is_a) {
  const Body& body = is_a ? kernel.a : kernel.b;
  const std::vector<std::int64_t> space = body_space(kernel, body);
  const std::size_t k_dim = product_vector_dim(kernel, is_a, true), outer_dim = product_vector_dim(kernel, is_a, false);
  int loads = 0;
  struct Votes {
    int vector = 0, uniform = 0;
    double run = 0;  ///< neighbours among 32 threads that share cache lines
  } along_k, along_outer;
  for (const Instr& instr : body.instrs) {
    if (instr.kind != Instr::Kind::Load) continue;
    ++loads;
    const KernelOperand& operand = kernel.operands.at(instr.operand);
    for (auto [dim, votes] : {std::pair{k_dim, &along_k}, std::pair{outer_dim, &along_outer}}) {
      votes->vector += operand.elements % 4 == 0 && vector_load(body, instr, dim);
      votes->uniform += uniform_load(body, instr, dim);
      const auto stride = static_cast<double>(std::abs(instr.access.strides[dim]));
      if (stride > 0) votes->run += static_cast<double>(std::min<std::int64_t>(space[dim], 32)) / stride;
    }
  }
  const auto all_vectors = [&](const Votes& votes, std::size_t dim) {
    return votes.vector > 0 && votes.vector + votes.uniform == loads && space[dim] % 4 == 0;
  };
  if (all_vectors(along_k, k_dim)) return {.along_k = true, .vector = true};
  if (all_vectors(along_outer, outer_dim)) return {.along_k = false, .vector = true};
  return {.along_k = along_k.run >= along_outer.run, .vector = false};
}

/// Where the other quad is that is cheap to read with one of a quantized operand; 0: none is.
std::uint32_t pair_distance(const FusedKernel& kernel, bool is_a, const Walk& walk, const GemvVariant& v) {
  const Body& body = is_a ? kernel.a : kernel.b;
  if (!walk.along_k || !walk.vector || body.instrs.size() != 1) return 0;
  const Instr& load = body.instrs.front();
  const DType dtype = kernel.operands.at(load.operand).dtype;
  if (!is_quantized(dtype) || !load.access.guards.empty() || !load.access.dynamic.empty() || !body.k.empty()) return 0;
  // A step covers whole units, so that their words are as far apart each time; rows have whole blocks, of which a pair is a part.
  const std::int64_t block = dtype_info(dtype).block_elements;
  const std::size_t k_dim = product_vector_dim(kernel, is_a, true);
  if (std::int64_t{v.tk} * v.uk * 8 % (block * quant_unit_blocks(dtype)) != 0) return 0;
  const std::span<const std::int64_t> strides = load.access.strides;
  for (std::size_t d = 0; d < strides.size(); ++d)
    if (d != k_dim && strides[d] % block != 0) return 0;
  return kernel.k % block == 0 && load.access.offset % block == 0 ? quant_pair(dtype).distance : 0;
}

double epilogue_cost(const Body& body) {
  double cost = 0;
  for (const Instr& instr : body.instrs) {
    if (instr.kind == Instr::Kind::Op && instr.op != nullptr) cost += instr.op->pointwise.cost;
  }
  return cost;
}

/// What both families share: sizes, estimates, and the limits of the device.
void finish_candidate(Candidate& candidate, const FusedKernel& kernel, const Product& product, const Caps& caps,
                      std::uint32_t threads, std::int64_t tiles, std::uint32_t parts, std::int64_t tile_elements) {
  KernelSpec& spec = candidate.spec;
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  spec.local = {threads, 1, 1};
  spec.flops = 2.0 * static_cast<double>(product.batch) * static_cast<double>(product.m) *
               static_cast<double>(product.n) * static_cast<double>(product.k);
  for (const KernelOperand& operand : kernel.operands) spec.bytes += bytes_per_element(operand.dtype) * static_cast<double>(operand.elements);
  const std::int64_t groups = checked_mul(tiles, std::int64_t{parts}, "workgroups of a matrix product");
  spec.workgroups = static_cast<std::uint64_t>(groups);
  spec.constants.emplace_back("PARTS", parts);
  if (parts > 1 && groups > 0) {
    spec.workspace_bytes =
        static_cast<std::uint64_t>(checked_mul(groups, tile_elements * 4, "workspace of a matrix product"));
    spec.counters = static_cast<std::uint32_t>(tiles);
  }

  candidate.rejected = launch_obstacle(spec, caps);
}

// ---- The model. Cycles of one multiprocessor; the constants are fits to measurements (bench/matmul --sweep) on an NVIDIA H200
// and only rank variants against each other: the choice is within 1.2 % of the best variant in the mean of the shapes there.

constexpr double kLaunch = 1800;      ///< first loads, index arithmetic, epilogue of a workgroup
constexpr double kStep = 190;         ///< what a step of depth does not hide: barrier, latencies
constexpr double kCacheBytes = 17;  ///< bytes per cycle from the last-level cache, per multiprocessor, all of them busy
constexpr double kScalarLoad = 5;   ///< per warp-wide load of single elements
constexpr double kStoreBytes = 9;   ///< bytes of the result per cycle and multiprocessor
constexpr double kSplitTail = 1300;  ///< flush and counter of a split
constexpr double kTailBytes = 29;    ///< bytes per cycle that one workgroup reads alone

/// Workgroups run in rounds of units * resident; the last round is less crowded. Sum of `round(resident workgroups per unit)`.
template <class Round>
double all_rounds(std::int64_t groups, double units, double most_resident, const Round& round) {
  const double full = std::floor(static_cast<double>(groups) / (units * most_resident));
  const double rest = std::ceil((static_cast<double>(groups) - full * units * most_resident) / units);
  return full * round(most_resident) + (rest > 0 ? round(rest) : 0.0);
}

double tile_cycles(const Product& product, const Caps& caps, const TileVariant& v, std::uint32_t parts,
                   bool scalar_loads) {
  const double units = std::max(1u, caps.compute_units);
  const std::int64_t tiles =
      product.batch * ceil_div(product.m, std::int64_t{v.bm}) * ceil_div(product.n, std::int64_t{v.bn});
  const std::int64_t groups = tiles * parts;
  const double steps = std::ceil(std::ceil(static_cast<double>(product.k) / v.bk) / parts);

  // Registers (65,536 of 4 bytes on current devices) and shared memory bound how many workgroups live on one multiprocessor.
  const double registers = v.tm * v.tn + 3.0 * (v.tm + v.tn) + 32;
  const double by_registers = std::floor(65536 / (registers * v.threads()));
  const double by_threads = std::floor(2048.0 / v.threads());
  const double by_shared = std::floor(200.0 * 1024 / v.shared_bytes());
  const double most_resident = std::max(1.0, std::min({by_registers, by_threads, by_shared}));

  double cycles = all_rounds(groups, units, most_resident, [&](double resident) {
    const double multiply = resident * v.bm * v.bn * v.bk / 128.0;
    const double elements = resident * v.bk * (v.bm + v.bn);
    const double loads = elements * 4.0 / kCacheBytes + (scalar_loads ? elements / 32.0 * kScalarLoad : 0.0);
    const double step = multiply + loads + kStep;
    return steps * step + kLaunch + resident * v.bm * v.bn * 4.0 / kStoreBytes;
  });
  if (parts > 1) cycles += kSplitTail + (parts + 1.0) * v.bm * v.bn * 4.0 / kTailBytes;
  return cycles;
}

/// Splits are for products that leave the device idle, and have at least two steps of depth for each part.
bool worth_splitting(const Product& product, const Caps& caps, const TileVariant& v, std::uint32_t parts) {
  const std::int64_t tiles =
      product.batch * ceil_div(product.m, std::int64_t{v.bm}) * ceil_div(product.n, std::int64_t{v.bn});
  return std::int64_t{parts} * v.bk * 2 <= product.k && tiles * parts <= 10 * std::int64_t{caps.compute_units};
}

/// Of a narrow product whose long operand lies along l.
double columns_cycles(const Product& product, const Caps& caps, const GemvVariant& v, std::uint32_t parts,
                      bool vector) {
  constexpr double kMemoryBytes = 19;  // per cycle and multiprocessor
  const double units = std::max(1u, caps.compute_units);
  const auto narrow = static_cast<double>(std::min(product.m, product.n));
  const std::int64_t groups = product.batch * ceil_div(std::max(product.m, product.n), std::int64_t{v.tl} * 4) * parts;
  const double steps = std::ceil(std::ceil(static_cast<double>(product.k) / (4.0 * v.tk)) / parts);
  const double busy =
      static_cast<double>(product.k) / (steps * parts * 4.0 * v.tk);  // lanes beyond the depth ask for nothing
  double cycles = all_rounds(groups, units, std::floor(2048.0 / v.threads()), [&](double resident) {
    const double warps = resident * v.threads() / 32.0;
    const double traffic = busy * resident * v.threads() * 4 * 16.0 / kMemoryBytes;
    const double issue = warps * ((4 + narrow) * (vector ? 4.0 : 8.0) + 4 * narrow);
    return steps * std::max({traffic, issue, 700.0}) + 600 + 50 * std::log2(v.tk) * narrow;
  });
  if (parts > 1) cycles += 3500 + parts * 50.0;
  return cycles;
}

/// Instructions that read and decode a quad, or a pair of them, of the long operand.
double piece_cost(DType dtype, const GemvVariant& v, bool pair) {
  if (!is_quantized(dtype)) return dtype == DType::f32 ? 20 : 30;
  if (quant_pair(dtype).one_scale) return pair ? 37 : 44;
  if (!pair) return 96;
  return v.uk % 2 == 0 ? 21 : 80;  // two scales serve pairs side by side
}

/// A product of few rows or columns, as its variants are priced.
struct NarrowProduct {
  const FusedKernel& kernel;
  Product product;
  bool swapped;  ///< the long operand is a
  Walk walk;     ///< of the long operand
  explicit NarrowProduct(const FusedKernel& k)
      : kernel(k), product(k), swapped(product.n < product.m), walk(walk_of(k, swapped)) {}

  /// Where the other quad is that a variant reads with one; 0: it reads single ones.
  std::uint32_t pair(const GemvVariant& v) const { return pair_distance(kernel, swapped, walk, v); }
  /// Depth that a workgroup covers in a step.
  std::int64_t step(const GemvVariant& v) const {
    return walk.along_k ? std::int64_t{4} * v.tk * v.uk * (pair(v) > 0 ? 2 : 1) : std::int64_t{4} * v.tk;
  }
};

/// Of one whose long operand lies along k. Fitted to sweeps with weights that come from memory each time (bench_matmul --cold --weights ...): the
/// choice is within 1 % of the best of these variants in the mean of 53 products of f32, f16, q8_0, q4_0, q4_K and q6_K.
double gemv_cycles(const NarrowProduct& of, const Caps& caps, const GemvVariant& v, std::uint32_t parts) {
  constexpr double kMemoryBytes = 21.4;           // per cycle and multiprocessor
  constexpr double kShortRun = 124;               // bytes of a row at once below which memory answers worse,
  constexpr double kShortCost = 1.1;              // by up to so much more
  constexpr double kLatency = 740, kPiece = 27;   // of a step; more for each piece that a thread has under way
  constexpr double kTree = 37, kWorkgroup = 140;  // a level of the tree, for each sum; a workgroup
  const Product& product = of.product;
  const Body& wide = of.swapped ? of.kernel.a : of.kernel.b;
  const Body& thin = of.swapped ? of.kernel.b : of.kernel.a;
  const bool pair = of.pair(v) > 0;
  double bytes = 0, decode = 0;  // of an element; instructions for a piece
  for (const Instr& instr : wide.instrs) {
    if (instr.kind != Instr::Kind::Load) continue;
    const DType dtype = of.kernel.operands.at(instr.operand).dtype;
    bytes += bytes_per_element(dtype);
    decode += piece_cost(dtype, v, pair);
  }
  if (!of.walk.vector) decode *= 2;

  const double units = std::max(1u, caps.compute_units);
  const auto narrow = static_cast<double>(std::min(product.m, product.n));
  const auto depth = static_cast<double>(std::max<std::int64_t>(product.k, 1));
  const double quads = pair ? 2 : 1, pieces = v.ul * v.uk;
  const auto width = static_cast<double>(of.step(v));
  const std::int64_t groups =
      product.batch * ceil_div(std::max(product.m, product.n), std::int64_t{v.tl} * v.ul) * parts;
  const double steps = std::ceil(std::ceil(depth / width) / parts);
  const double busy = depth / (steps * parts * width);  // lanes beyond the depth ask for nothing
  const double registers = 10 + pieces * (pair ? 8 : 5) + narrow * v.ul * (pair ? 1 : 4) + 4 * quads;
  const double by_registers = std::floor(65536 / (registers * v.threads()));
  const double most_resident = std::max(1.0, std::min({32.0, std::floor(2048.0 / v.threads()), by_registers}));
  const double run_cost = 1 + kShortCost * std::max(0.0, 1 - width * bytes / kShortRun);
  const double thin_quad = 8 + 4 * epilogue_cost(thin);  // instructions
  const double instructions = 4 + pieces * decode + narrow * v.uk * quads * (thin_quad + 4 * v.ul);
  double cycles = all_rounds(groups, units, most_resident, [&](double resident) {
    const double traffic = busy * resident * v.threads() * pieces * quads * 4 * bytes / kMemoryBytes * run_cost;
    const double issue = resident * v.threads() / 32.0 * instructions / 4;
    return steps * std::max({traffic, issue, kLatency + kPiece * pieces}) + kWorkgroup +
           kTree * std::log2(v.tk) * narrow * v.ul;
  });
  if (parts > 1) cycles += 3500 + parts * 50.0;
  return cycles;
}

/// A variant and its price, before anything is built.
struct Priced {
  double cycles;
  const TileVariant* tile;  ///< or
  const GemvVariant* gemv;
  std::uint32_t parts;
};

}  // namespace

std::span<const TileVariant> tile_variants() { return kTiles; }
std::span<const GemvVariant> gemv_variants() { return kGemvs; }

Candidate tile_candidate(const FusedKernel& kernel, const Caps& caps, const TileVariant& v, std::uint32_t parts) {
  const Product product(kernel);
  const Walk a = walk_of(kernel, true);
  const Walk b = walk_of(kernel, false);
  const std::uint32_t row_threads = v.bm / v.tm, column_threads = v.bn / v.tn;
  const std::uint32_t lanes_x = std::min(8u, column_threads), lanes_y = std::min(32 / lanes_x, row_threads);
  // Columns that have to be loaded one by one, across threads, are stored the same way.
  const bool vector_epilogue = kernel.space.back() % 4 == 0 && (b.vector || b.along_k);
  // A long epilogue is emitted once, in a loop over rows that pass through the tile's memory. One of single columns is long: drivers
  // took up to 0.8 s for its 64 guarded stores (H200; half of that when staged).
  const bool long_epilogue = epilogue_cost(kernel.body) * v.tm * v.tn > 256 || (!vector_epilogue && v.tm * v.tn >= 32);
  const bool staged = long_epilogue && row_threads * v.bn * 4 <= v.shared_bytes();

  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "matmul";
  spec.variant = formatted("{}x{}x{} {}x{} stages={} split={}{}{}{}", v.bm, v.bn, v.bk, v.tm, v.tn, v.stages, parts,
                           a.vector ? " vecA" : "", b.vector ? " vecB" : "", staged ? " staged" : "");
  spec.constants = {{"BM", v.bm},
                    {"BN", v.bn},
                    {"BK", v.bk},
                    {"TM", v.tm},
                    {"TN", v.tn},
                    {"THREADS", v.threads()},
                    {"STAGES", v.stages},
                    {"LANES_X", lanes_x},
                    {"LANES_Y", lanes_y},
                    {"BAND", kBand},
                    {"A_VEC", a.vector},
                    {"A_ALONG_K", a.along_k},
                    {"B_VEC", b.vector},
                    {"B_ALONG_K", b.along_k},
                    {"A_SPREAD", !a.vector},
                    {"B_SPREAD", !b.vector && !vector_epilogue},
                    {"K_TAIL", product.k % v.bk != 0},
                    {"EPILOGUE_VEC", vector_epilogue},
                    {"EPILOGUE_STAGED", staged}};
  spec.shared_bytes = v.shared_bytes();
  const std::int64_t tiles =
      checked_mul(product.batch,
                  checked_mul(ceil_div(product.m, std::int64_t{v.bm}), ceil_div(product.n, std::int64_t{v.bn}),
                              "tiles of a matrix product"),
                  "tiles of a matrix product");
  finish_candidate(candidate, kernel, product, caps, v.threads(), tiles, parts, std::int64_t{v.bm} * v.bn);
  return candidate;
}

Candidate gemv_candidate(const FusedKernel& kernel, const Caps& caps, const GemvVariant& v, std::uint32_t parts) {
  const NarrowProduct of(kernel);
  const Product& product = of.product;
  const bool swapped = of.swapped;
  const std::int64_t narrow = swapped ? product.n : product.m, length = swapped ? product.m : product.n;
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "gemv";
  if (narrow > kGemvRows) {
    candidate.rejected = formatted("{} narrow rows; gemv takes {}", narrow, kGemvRows);
    return candidate;
  }
  const Walk wide = of.walk, thin = walk_of(kernel, !swapped);
  const bool thin_vector = wide.along_k && wide.vector && thin.along_k && thin.vector;
  const std::int64_t longs = wide.along_k ? v.tl * v.ul : v.tl * 4;
  const auto rows = static_cast<std::uint32_t>(std::max<std::int64_t>(narrow, 1));

  const std::uint32_t pair = of.pair(v);
  spec.variant = formatted("{}x{} ul={} uk={} r={} split={}{}{}{}", v.tl, v.tk, v.ul, v.uk, rows, parts,
                           wide.vector ? " vec" : "", pair > 0 ? " pair" : "", wide.along_k ? "" : " columns");
  spec.constants = {{"R", rows},
                    {"TL", v.tl},
                    {"TK", v.tk},
                    {"UL", v.ul},
                    {"UK", v.uk},
                    {"W_PAIR", pair},
                    {"ALONG_K", wide.along_k},
                    {"W_VEC", wide.vector},
                    {"V_VEC", thin_vector},
                    {"SWAPPED", swapped}};
  spec.shared_bytes = rows * v.threads() * (wide.along_k ? v.ul * 4 : 16);
  const std::int64_t tiles =
      narrow == 0 ? 0 : checked_mul(product.batch, ceil_div(length, longs), "tiles of a matrix product");
  finish_candidate(candidate, kernel, product, caps, v.threads(), tiles, parts, longs * rows);
  return candidate;
}

std::vector<Candidate> lower_matmul(const FusedKernel& kernel, const Caps& caps) {
  const Product product(kernel);
  const bool tiny = caps.compute_units == 0;
  const bool narrow = std::min(product.m, product.n) <= kGemvRows;
  const NarrowProduct gemv(kernel);
  const Walk a = walk_of(kernel, true);
  const Walk b = walk_of(kernel, false);

  std::vector<Priced> list;
  if (tiny) {  // tests: the smallest variants, split in three, so that small shapes reach every path
    const std::uint32_t parts = product.k >= 8 ? 3 : 1;
    for (const std::uint32_t p : {parts, 1u}) {
      if (std::min(product.m, product.n) <= 4)
        list.push_back({static_cast<double>(list.size()), nullptr, &kGemvs[0], p});
      list.push_back({static_cast<double>(list.size()), &kTiles[0], nullptr, p});
    }
  } else {
    for (const std::uint32_t parts : kParts) {
      for (const TileVariant& v : kTiles) {
        if (parts > 1 && !worth_splitting(product, caps, v, parts)) continue;
        list.push_back({tile_cycles(product, caps, v, parts, !a.vector || !b.vector), &v, nullptr, parts});
      }
      for (const GemvVariant& v : kGemvs) {
        if (!narrow || (parts > 1 && parts * gemv.step(v) > product.k)) continue;
        if (!gemv.walk.along_k && (v.ul > 1 || v.uk > 1)) continue;  // mean nothing there
        const double cycles = gemv.walk.along_k ? gemv_cycles(gemv, caps, v, parts)
                                                : columns_cycles(product, caps, v, parts, gemv.walk.vector);
        list.push_back({cycles, nullptr, &v, parts});
      }
    }
  }
  std::ranges::stable_sort(list, {}, &Priced::cycles);

  constexpr std::size_t kKeep = 4;  // usable ones; the rest can only be slower
  std::vector<Candidate> candidates;
  std::size_t usable = 0;
  for (const Priced& priced : list) {
    candidates.push_back(priced.tile != nullptr ? tile_candidate(kernel, caps, *priced.tile, priced.parts)
                                                : gemv_candidate(kernel, caps, *priced.gemv, priced.parts));
    if (candidates.back().rejected.empty() && ++usable == kKeep) break;
  }
  return candidates;
}

}  // namespace aeshna
