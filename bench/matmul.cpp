// Matrix products: TFLOP/s of the kernels that the compiler would choose, and with --sweep of every variant and split.
// bench/matmul.py does the same products with PyTorch.
//   bench_matmul [--device SEL] [--json FILE] [--shapes MxNxK,...] [--weights DTYPE,...] [--cold] [--sweep [--try BMxBNxBKxTMxTNxSTAGES,...]]
//                [--check]
//   bench_matmul --choose UNITS [--shapes MxNxK,...] [--weights DTYPE,...]
// --conv: instead, the products of ResNet-50's convolutions at batch 4, forward and both gradients.
// --try: more tiles for the sweep than the compiler has. --choose: no device; the variant that would be chosen for each product on
// one with so many compute units, to compare with the times of a sweep.
// --weights: B [N, K] in each of these dtypes instead of f32 in both layouts; products of few rows are then swept over gemv's variants alone, and what
// is computed is not checked.
// --cold: B comes from memory each time, from 512 MiB altogether.
// NN: B is [K, N]; NT: B is [N, K], as Linear weights are. Times are those of one product among dependent ones: a barrier
// stands between repetitions, and inputs stay in cache where they fit.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/device.h"
#include "aeshna/ops.h"
#include "arguments.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "codegen/codegen.h"
#include "compile/stages.h"
#include "gpu/device.h"
#include "ir/access.h"
#include "ir/device_types.h"
#include "kernel_bench.h"
#include "ops/lower.h"
#include "ops/matmul_variants.h"

namespace {

using namespace aeshna;

struct Problem {
  std::string name;
  FusedKernel kernel;
  double flops = 0;
  std::int64_t m = 0, n = 0, k = 0;  ///< of a plain product
  bool transpose_b = false;
  DType weights = DType::f32;  ///< of b
};

constexpr std::int64_t kShapes[][3] = {
    {512, 512, 512},  {1024, 1024, 1024}, {4096, 4096, 4096}, {128, 3072, 576}, {128, 576, 1536},   {128, 960, 576},
    {128, 576, 576},  {128, 49152, 576},  {576, 3072, 128},   {50, 4096, 720},  {1500, 1536, 384},  {1500, 384, 1536},
    {1500, 384, 384}, {1, 3072, 576},     {1, 576, 1536},     {1, 49152, 576},  {1000, 1000, 1000}, {1023, 1025, 1027},
    {64, 128, 784},   {784, 128, 64},     {64, 10, 128}};

/// C, H = W, Co, kernel, stride; padding kernel / 2. torchvision's ResNet-50 v1.5 on 224 x 224.
constexpr std::int64_t kConvolutions[][5] = {
    {3, 224, 64, 7, 2},   {64, 56, 64, 1, 1},    {64, 56, 64, 3, 1},   {64, 56, 256, 1, 1},  {256, 56, 64, 1, 1},
    {256, 56, 128, 1, 1}, {128, 56, 128, 3, 2},  {128, 28, 512, 1, 1}, {256, 56, 512, 1, 2}, {512, 28, 128, 1, 1},
    {128, 28, 128, 3, 1}, {512, 28, 256, 1, 1},  {256, 28, 256, 3, 2}, {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2},
    {1024, 14, 256, 1, 1}, {256, 14, 256, 3, 1}, {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2}, {512, 7, 2048, 1, 1},
    {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1}, {512, 7, 512, 3, 1}};

/// The product kernels of one convolution: forward, input gradient (one for each remainder of the stride), weight gradient.
void add_convolution(const std::int64_t (&shape)[5], const Caps& caps, std::vector<Problem>& problems) {
  const auto [c, h, co, kernel, stride] = shape;
  constexpr std::int64_t kBatch = 4;
  for (const int direction : {0, 1, 2}) {
    Graph g;
    const Value x = g.input("x", {kBatch, c, h, h}), w = g.input("w", {co, c, kernel, kernel});
    const Value y = conv(x, w, {.stride = {stride}, .padding = {kernel / 2}});
    if (direction == 0) {
      g.output("y", y);
    } else {
      const Value dy = g.input("dy", y.shape());
      g.output("d", gradients(sum(y * dy), {direction == 1 ? x : w})[0]);
    }
    const auto expanded = eliminate_dead(*expand_composites(*eliminate_dead(g)));
    for (FusedKernel& fused : fuse(*expanded, caps, true)) {
      if (fused.kind != FusedKernel::Kind::Matmul) continue;
      Problem p;
      p.name = formatted("{} {}x{}x{} {} {}x{}/{}",
                         direction == 0   ? "fwd"
                         : direction == 1 ? "dgrad"
                                          : "wgrad",
                         c, h, h, co, kernel, kernel, stride);
      p.flops = 2.0 * static_cast<double>(fused.k) * static_cast<double>(points_of(fused.space));
      p.kernel = std::move(fused);
      problems.push_back(std::move(p));
    }
  }
}

FusedKernel plain_product(const Problem& p) {
  FusedKernel kernel;
  kernel.kind = FusedKernel::Kind::Matmul;
  kernel.space = {p.m, p.n};
  kernel.k = p.k;
  const auto load = [](std::uint32_t operand, std::int64_t outer, std::int64_t inner) {
    Instr instr;
    instr.kind = Instr::Kind::Load;
    instr.operand = operand;
    instr.access.strides = {outer, inner};
    return instr;
  };
  kernel.a.instrs = {load(0, p.k, 1)};
  kernel.b.instrs = {p.transpose_b ? load(1, 1, p.k) : load(1, p.n, 1)};
  Instr product;
  product.kind = Instr::Kind::Product;
  kernel.body.instrs = {product};
  Store store;
  store.operand = 2;
  store.access.strides = {p.n, 1};
  kernel.body.stores = {store};
  for (const std::int64_t elements : {p.m * p.k, p.k * p.n, p.m * p.n}) {
    KernelOperand operand{};
    operand.dtype = DType::f32;
    operand.elements = elements;
    kernel.operands.push_back(operand);
  }
  kernel.operands[1].dtype = p.weights;
  kernel.operands[2].written = true;
  return kernel;
}

/// The operands of one problem, and what its results should be.
class ProductBench : public bench::KernelBench {
 public:
  using KernelBench::KernelBench;

  void set_problem(const Problem& p) {
    problem_ = p;
    host_.clear();
    PhiloxStream stream(7, 0);
    set_operands(p.kernel, [&](std::size_t i) {
      std::vector<float> values(static_cast<std::size_t>(p.kernel.operands[i].elements));
      if (p.kernel.operands[i].dtype == DType::f32) {
        for (float& v : values) v = static_cast<float>(stream.next_uniform() - 0.5);
      } else {  // words of which every half is a small number
        std::ranges::fill(values, std::bit_cast<float>(0x2c002c00u));
      }
      host_.push_back(values);
      return values;
    });
  }

  /// Largest error of some elements of the product against double, as a multiple of sqrt(K).
  double error(const KernelSpec& spec) {
    const std::vector<float> c = results(spec);
    const std::int64_t m = problem_.m, n = problem_.n, k = problem_.k;
    const bool transposed = problem_.transpose_b;
    double worst = 0;
    PhiloxStream stream(11, 0);
    for (int i = 0; i < 2000; ++i) {
      const auto row = static_cast<std::int64_t>(stream.next_below(static_cast<std::uint64_t>(m)));
      const auto column = static_cast<std::int64_t>(stream.next_below(static_cast<std::uint64_t>(n)));
      double want = 0;
      for (std::int64_t q = 0; q < k; ++q) {
        want += static_cast<double>(host_[0][static_cast<std::size_t>(row * k + q)]) *
                static_cast<double>(host_[1][static_cast<std::size_t>(transposed ? column * k + q : q * n + column)]);
      }
      const double difference = std::abs(want - static_cast<double>(c[static_cast<std::size_t>(row * n + column)]));
      worst = std::max(worst, std::isnan(difference) ? INFINITY : difference / std::sqrt(static_cast<double>(k)));
    }
    return worst;
  }

 private:
  Problem problem_{};
  std::vector<std::vector<float>> host_;
};

std::vector<Candidate> all_candidates(const FusedKernel& kernel, const Caps& caps, std::span<const TileVariant> more) {
  std::vector<Candidate> candidates;
  for (const std::uint32_t parts : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u}) {
    if (kernel.k < parts * 32) continue;
    const bool narrow = std::min(kernel.space.front(), kernel.space.back()) <= kGemvRows;
    if (narrow && parts > 4) continue;
    const bool tiles = !narrow || kernel.operands[1].dtype == DType::f32;
    for (const TileVariant& v : tile_variants()) {
      if (tiles) candidates.push_back(tile_candidate(kernel, caps, v, parts));
    }
    for (const TileVariant& v : more) candidates.push_back(tile_candidate(kernel, caps, v, parts));
    for (const GemvVariant& v : gemv_variants()) {
      if (narrow) candidates.push_back(gemv_candidate(kernel, caps, v, parts));
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.rejected.empty(); });
  return candidates;
}

struct Options {
  std::string device, json;
  std::vector<Problem> problems;
  std::vector<TileVariant> more;
  bool sweep = false, check = false, conv = false, cold = false;
  std::uint32_t choose = 0;  ///< compute units of a device that is not there
};

Options parse(int argc, char** argv) {
  Options options;
  const auto value = [&](int& i) -> std::string {
    if (i + 1 >= argc) fail(ErrorCode::InvalidArgument, "{} needs a value", argv[i]);
    return argv[++i];
  };
  std::string shapes, tiles, weights;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--device")
      options.device = value(i);
    else if (arg == "--json")
      options.json = value(i);
    else if (arg == "--shapes")
      shapes = value(i);
    else if (arg == "--weights")
      weights = value(i);
    else if (arg == "--try")
      tiles = value(i);
    else if (arg == "--choose")
      options.choose = static_cast<std::uint32_t>(std::max(1, std::atoi(value(i).c_str())));
    else if (arg == "--sweep")
      options.sweep = true;
    else if (arg == "--cold")
      options.cold = true;
    else if (arg == "--conv")
      options.conv = true;
    else if (arg == "--check")
      options.check = true;
    else
      fail(ErrorCode::InvalidArgument, "unknown option {}", arg);
  }
  std::vector<std::array<std::int64_t, 3>> list;
  if (shapes.empty()) {
    for (const auto& [m, n, k] : kShapes) list.push_back({m, n, k});
  }
  for (const std::string& shape : bench::split(shapes)) {
    long long m = 0, n = 0, k = 0;
    if (std::sscanf(shape.c_str(), "%lldx%lldx%lld", &m, &n, &k) != 3 || m <= 0 || n <= 0 || k <= 0)
      fail(ErrorCode::InvalidArgument, "'{}' is not MxNxK", shape);
    list.push_back({m, n, k});
  }
  for (const std::string& tile : bench::split(tiles)) {
    TileVariant v{};
    if (std::sscanf(tile.c_str(), "%ux%ux%ux%ux%ux%u", &v.bm, &v.bn, &v.bk, &v.tm, &v.tn, &v.stages) != 6)
      fail(ErrorCode::InvalidArgument, "'{}' is not BMxBNxBKxTMxTNxSTAGES", tile);
    options.more.push_back(v);
  }
  if (options.conv) return options;  // their kernels depend on the device
  std::vector<std::pair<bool, DType>> kinds;
  for (const std::string& type : bench::split(weights)) kinds.emplace_back(true, parse_dtype(type));
  if (kinds.empty()) kinds = {{false, DType::f32}, {true, DType::f32}};
  for (const auto& [m, n, k] : list) {
    for (const auto& [transposed, dtype] : kinds) {
      Problem p{.name = formatted("{}x{}x{} {}", m, n, k, transposed ? "NT" : "NN"),
                .kernel = {},
                .m = m,
                .n = n,
                .k = k,
                .transpose_b = transposed,
                .weights = dtype};
      if (dtype != DType::f32) p.name += formatted(" {}", dtype_name(dtype));
      p.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
      p.kernel = plain_product(p);
      options.problems.push_back(std::move(p));
    }
  }
  return options;
}

/// The first usable kernel of the compiler's choice.
KernelSpec chosen_spec(const FusedKernel& kernel, const Problem& problem, const Caps& caps) {
  const std::vector<Candidate> candidates = lower_matmul(kernel, caps);
  const auto usable = std::ranges::find_if(candidates, [](const Candidate& c) { return c.rejected.empty(); });
  if (usable == candidates.end()) fail(ErrorCode::Unsupported, "no kernel for {}", problem.name);
  return usable->spec;
}

int choose(const Options& options) {
  Caps caps;
  caps.compute_units = options.choose;
  caps.shared_bytes = 49152;
  for (const Problem& problem : options.problems) {
    const KernelSpec spec = chosen_spec(problem.kernel, problem, caps);
    std::printf("%s: %s %s\n", problem.name.c_str(), spec.family.c_str(), spec.variant.c_str());
  }
  return 0;
}

int run(Options options) {
  if (options.choose > 0) return choose(options);
  const Device device({.selector = options.device, .caps = {}});
  ProductBench bench(device.impl());
  const bool software = device.info().kind == DeviceInfo::Kind::Software;
  const int samples = software ? 3 : 15;
  const double sample_us = software ? 20000 : 5000;
  std::printf("%s, %u compute units\n", device.info().name.c_str(), bench.caps().compute_units);
  nlohmann::json results = {
      {"device", device.info().name}, {"driver", device.info().driver}, {"products", nlohmann::json::array()}};
  if (options.conv) {
    options.check = false;
    for (const auto& shape : kConvolutions) add_convolution(shape, bench.caps(), options.problems);
  }
  int wrong = 0;
  for (const Problem& problem : options.problems) {
    if (software && problem.flops > 3e9) continue;  // minutes each
    const FusedKernel& kernel = problem.kernel;
    const KernelSpec chosen = chosen_spec(kernel, problem, bench.caps());
    bench.set_problem(problem);
    if (options.cold) {
      const KernelOperand& b = kernel.operands[1];
      const double bytes = bytes_per_element(b.dtype) * static_cast<double>(b.elements);
      bench.rotate(1, (static_cast<std::uint64_t>(bytes) + 255) / 256 * 256, std::uint64_t{512} << 20);
    }
    const auto timing = bench.time(chosen, samples, sample_us);
    const bool check = options.check && problem.weights == DType::f32;
    const double error = check ? bench.error(chosen) : 0;
    wrong += !(error < 1e-6);
    std::printf("%-32s %9.2f us (wall %9.2f)  %6.2f TFLOP/s  %s %s", problem.name.c_str(), timing.gpu_us,
                timing.wall_us, problem.flops / timing.gpu_us * 1e-6, chosen.family.c_str(), chosen.variant.c_str());
    if (check) std::printf("  error/sqrt(K) %.1e%s", error, error < 1e-6 ? "" : "  WRONG");
    std::printf("\n");
    nlohmann::json result = {{"name", problem.name},
                             {"flops", problem.flops},
                             {"m", problem.m},
                             {"n", problem.n},
                             {"k", problem.k},
                             {"layout", problem.transpose_b ? "NT" : "NN"},
                             {"gpu_us", timing.gpu_us},
                             {"wall_us", timing.wall_us},
                             {"variant", chosen.family + " " + chosen.variant}};
    if (options.sweep) {
      const std::vector<Candidate> candidates = all_candidates(kernel, bench.caps(), options.more);
      bench.build(candidates);
      std::vector<std::pair<double, std::string>> times;
      for (const Candidate& candidate : candidates) {
        const double us = bench.time(candidate.spec, 5, sample_us / 5).gpu_us;
        const double off = check ? bench.error(candidate.spec) : 0;
        wrong += !(off < 1e-6);
        std::string name = candidate.spec.family + " " + candidate.spec.variant;
        if (!(off < 1e-6)) name += formatted("  WRONG: error/sqrt(K) {:.1e}", off);
        times.emplace_back(us, std::move(name));
        result["sweep"].push_back({{"variant", times.back().second}, {"gpu_us", us}});
      }
      std::ranges::sort(times);
      for (std::size_t i = 0; i < std::min<std::size_t>(times.size(), 6); ++i) {
        std::printf("    %9.2f us  %s\n", times[i].first, times[i].second.c_str());
      }
      for (const auto& [us, name] : times) {
        if (name.contains("WRONG")) std::printf("    %s\n", name.c_str());
      }
    }
    results["products"].push_back(std::move(result));
    std::fflush(stdout);
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << results.dump(1) << "\n";
    if (!file.flush()) fail(ErrorCode::Io, "cannot write {}", options.json);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try { return run(parse(argc, argv)); } catch (const std::exception& e) {
  std::fprintf(stderr, "bench_matmul: %s\n", e.what());
  return 2;
}
