// f32 matrix products: TFLOP/s of the kernels that the compiler would choose, and with --sweep of every variant and split.
// bench/matmul.py does the same products with PyTorch.
//   bench_matmul [--device SEL] [--json FILE] [--shapes MxNxK,...] [--sweep [--try BMxBNxBKxTMxTNxSTAGES,...]] [--check]
//   bench_matmul --choose UNITS [--shapes MxNxK,...]
// --conv: instead, the products of ResNet-50's convolutions at batch 4, forward and both gradients.
// --try: more tiles for the sweep than the compiler has. --choose: no device; the variant that would be chosen for each product on
// one with so many compute units, to compare with the times of a sweep.
// NN: B is [K, N]; NT: B is [N, K], as Linear weights are. Times are those of one product among dependent ones: a barrier
// stands between repetitions, and inputs stay in cache where they fit.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <format>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/device.h"
#include "base/fail.h"
#include "base/philox.h"
#include "aeshna/ops.h"
#include "codegen/codegen.h"
#include "compile/stages.h"
#include "gpu/device.h"
#include "gpu/launch.h"
#include "ir/access.h"
#include "ops/lower.h"
#include "ops/matmul_variants.h"

namespace {

using namespace aeshna;
using Clock = std::chrono::steady_clock;

struct Problem {
  std::string name;
  FusedKernel kernel;
  double flops = 0;
  std::int64_t m = 0, n = 0, k = 0;  ///< of a plain product
  bool transpose_b = false;
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
      p.name = std::format("{} {}x{}x{} {} {}x{}/{}", direction == 0 ? "fwd" : direction == 1 ? "dgrad" : "wgrad", c, h, h, co, kernel, kernel, stride);
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
  kernel.operands[2].written = true;
  return kernel;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Timing {
  double gpu_us = 0, wall_us = 0;
};

/// The buffers of one problem, filled with random values, and the means to time specs on them.
class Bench {
 public:
  explicit Bench(gpu::Device& device) : device_(device) {}

  const Caps& caps() const { return device_.caps(); }

  void set_problem(const Problem& p) {
    problem_ = p;
    idle_ = true;
    operands_.clear();
    host_.clear();
    PhiloxStream stream(7, 0);
    for (const KernelOperand& operand : p.kernel.operands) {
      const std::int64_t elements = operand.elements;
      const auto bytes = static_cast<std::uint64_t>(elements) * 4;
      operands_.push_back(device_.create_buffer(bytes, gpu::MemoryKind::Device, "operand"));
      if (operand.written) break;
      const auto upload = device_.create_buffer(bytes, gpu::MemoryKind::Upload, "upload");
      std::vector<float> values(static_cast<std::size_t>(elements));
      for (float& v : values) v = static_cast<float>(stream.next_uniform() - 0.5);
      std::memcpy(upload->mapped(), values.data(), bytes);
      run({gpu::CopyCommand{{upload.get(), 0, bytes}, {operands_.back().get(), 0, bytes}}}, {upload, operands_.back()});
      host_.push_back(std::move(values));
    }
  }

  /// Median over samples of `repetitions` dependent launches each, by timestamps and by the host's clock.
  Timing time(const KernelSpec& spec, int samples, double sample_us) {
    const Launch launch = prepare(spec);
    const auto measure = [&](int repetitions) {
      std::vector<gpu::Command> commands;
      commands.push_back(gpu::TimestampCommand{0});
      for (int i = 0; i < repetitions; ++i) {
        commands.push_back(gpu::BarrierCommand{});
        commands.push_back(launch.dispatch);
      }
      commands.push_back(gpu::BarrierCommand{});
      commands.push_back(gpu::TimestampCommand{1});
      return device_.record(commands, launch.owners, "bench");
    };
    const auto once = measure(3);
    Timing timing = replay(*once, 3);
    timing = replay(*once, 3);
    const int repetitions = std::clamp(static_cast<int>(sample_us / std::max(timing.gpu_us, 0.5)), 3, 1000);
    const auto list = measure(repetitions);
    replay(*list, repetitions);
    if (idle_) {  // devices lower their clocks while the host draws operands or checks results
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(250)) replay(*list, repetitions);
      idle_ = false;
    }
    std::vector<double> gpu_us, wall_us;
    for (int s = 0; s < samples; ++s) {
      const Timing t = replay(*list, repetitions);
      gpu_us.push_back(t.gpu_us);
      wall_us.push_back(t.wall_us);
    }
    return {median(gpu_us), median(wall_us)};
  }

  /// Largest error of some elements of the product against double, as a multiple of sqrt(K).
  double error(const KernelSpec& spec) {
    idle_ = true;
    const Launch launch = prepare(spec);
    const std::uint64_t bytes = operands_[2]->size();
    const auto readback = device_.create_buffer(bytes, gpu::MemoryKind::Readback, "readback");
    std::vector<std::shared_ptr<void>> owners = launch.owners;
    owners.push_back(readback);
    run({gpu::FillCommand{{operands_[2].get(), 0, bytes}, 0x7fc00000u}, gpu::BarrierCommand{}, launch.dispatch,
         gpu::BarrierCommand{}, gpu::CopyCommand{{operands_[2].get(), 0, bytes}, {readback.get(), 0, bytes}}},
        owners);
    std::vector<float> c(static_cast<std::size_t>(bytes / 4));
    std::memcpy(c.data(), readback->mapped(), bytes);
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

  /// Builds the kernels of many specs on all cores before anything is timed.
  void build(std::span<const Candidate> candidates) {
    std::map<std::string, std::pair<KernelSource, const KernelSpec*>> missing;
    for (const Candidate& candidate : candidates) {
      if (!candidate.rejected.empty()) continue;
      KernelSource source = generate(candidate.spec, caps());
      if (!kernels_.contains(source.key)) missing.try_emplace(source.key, std::move(source), &candidate.spec);
    }
    std::vector<std::pair<std::string, std::shared_ptr<gpu::Kernel>>> built(missing.size());
    std::vector<std::jthread> threads;
    std::atomic<std::size_t> next = 0;
    std::vector<const std::pair<KernelSource, const KernelSpec*>*> work;
    for (const auto& [key, entry] : missing) work.push_back(&entry);
    const std::size_t count = std::min<std::size_t>(work.size(), std::max(1u, std::thread::hardware_concurrency()));
    for (std::size_t t = 0; t < count; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < work.size(); i = next++)
          built[i] = {work[i]->first.key, make_kernel(*work[i]->second, work[i]->first)};
      });
    }
    threads.clear();
    for (auto& [key, kernel] : built) kernels_.emplace(key, kernel);
  }

 private:
  struct Launch {
    gpu::DispatchCommand dispatch;
    std::vector<std::shared_ptr<void>> owners;
  };

  std::shared_ptr<gpu::Kernel> make_kernel(const KernelSpec& spec, const KernelSource& source) {
    const std::vector<std::uint32_t> spirv = compile_glsl(source.glsl, spec.variant);
    return device_.create_kernel({.name = spec.variant,
                                  .spirv = spirv,
                                  .bindings = source.bindings,
                                  .push_bytes = static_cast<std::uint32_t>(source.push.size() * 4),
                                  .local = spec.local,
                                  .shared_bytes = spec.shared_bytes});
  }

  Launch prepare(const KernelSpec& spec) {
    const KernelSource source = generate(spec, caps());
    gpu::check_launch(spec, static_cast<std::uint32_t>(source.push.size() * 4), source.bindings, caps());
    std::shared_ptr<gpu::Kernel>& kernel = kernels_[source.key];
    if (kernel == nullptr) kernel = make_kernel(spec, source);
    Launch launch;
    launch.dispatch.kernel = kernel.get();
    launch.dispatch.push = source.push;
    launch.dispatch.groups = gpu::fold_groups(spec.workgroups, caps());
    launch.owners = {kernel};
    for (const auto& buffer : operands_) {
      launch.dispatch.operands.push_back({buffer.get(), 0, buffer->size()});
      launch.owners.push_back(buffer);
    }
    if (spec.workspace_bytes > 0) {
      if (workspace_ == nullptr || workspace_->size() < spec.workspace_bytes) {
        workspace_ = device_.create_buffer(spec.workspace_bytes, gpu::MemoryKind::Device, "workspace");
      }
      launch.dispatch.operands.push_back({workspace_.get(), 0, spec.workspace_bytes});
      launch.owners.push_back(workspace_);
    }
    if (spec.counters > 0) {
      const std::uint64_t bytes = spec.counters * 4ull;
      if (counters_ == nullptr || counters_->size() < bytes) {
        counters_ = device_.create_buffer(bytes, gpu::MemoryKind::Device, "counters");
        run({gpu::FillCommand{{counters_.get(), 0, bytes}, 0}}, {counters_});
      }
      launch.dispatch.operands.push_back({counters_.get(), 0, bytes});
      launch.owners.push_back(counters_);
    }
    return launch;
  }

  void run(const std::vector<gpu::Command>& commands, std::vector<std::shared_ptr<void>> owners) {
    const auto list = device_.record(commands, std::move(owners), "bench");
    gpu::CommandList* const lists[] = {list.get()};
    device_.wait(device_.submit(lists));
  }

  Timing replay(gpu::CommandList& list, int repetitions) {
    gpu::CommandList* const lists[] = {&list};
    const auto start = Clock::now();
    device_.wait(device_.submit(lists));
    const double wall = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    const std::vector<double> stamps = device_.timestamps(2);
    return {(stamps[1] - stamps[0]) / 1000 / repetitions, wall / repetitions};
  }

  gpu::Device& device_;
  bool idle_ = true;  ///< the device has had nothing to do for a while
  Problem problem_{};
  std::vector<std::vector<float>> host_;
  std::vector<std::shared_ptr<gpu::Buffer>> operands_;
  std::shared_ptr<gpu::Buffer> workspace_, counters_;
  std::map<std::string, std::shared_ptr<gpu::Kernel>> kernels_;
};

std::vector<Candidate> all_candidates(const FusedKernel& kernel, const Caps& caps, std::span<const TileVariant> more) {
  std::vector<Candidate> candidates;
  for (const std::uint32_t parts : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u}) {
    if (kernel.k < parts * 32) continue;
    for (const TileVariant& v : tile_variants()) candidates.push_back(tile_candidate(kernel, caps, v, parts));
    for (const TileVariant& v : more) candidates.push_back(tile_candidate(kernel, caps, v, parts));
    for (const GemvVariant& v : gemv_variants()) {
      if (std::min(kernel.space.front(), kernel.space.back()) <= kGemvRows)
        candidates.push_back(gemv_candidate(kernel, caps, v, parts));
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.rejected.empty(); });
  return candidates;
}

struct Options {
  std::string device, json;
  std::vector<Problem> problems;
  std::vector<TileVariant> more;
  bool sweep = false, check = false, conv = false;
  std::uint32_t choose = 0;  ///< compute units of a device that is not there
};

Options parse(int argc, char** argv) {
  Options options;
  const auto value = [&](int& i) -> std::string {
    if (i + 1 >= argc) fail(ErrorCode::InvalidArgument, "{} needs a value", argv[i]);
    return argv[++i];
  };
  std::string shapes, tiles;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--device")
      options.device = value(i);
    else if (arg == "--json")
      options.json = value(i);
    else if (arg == "--shapes")
      shapes = value(i);
    else if (arg == "--try")
      tiles = value(i);
    else if (arg == "--choose")
      options.choose = static_cast<std::uint32_t>(std::max(1, std::atoi(value(i).c_str())));
    else if (arg == "--sweep")
      options.sweep = true;
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
  std::istringstream stream(shapes);
  for (std::string shape; std::getline(stream, shape, ',');) {
    long long m = 0, n = 0, k = 0;
    if (std::sscanf(shape.c_str(), "%lldx%lldx%lld", &m, &n, &k) != 3 || m <= 0 || n <= 0 || k <= 0)
      fail(ErrorCode::InvalidArgument, "'{}' is not MxNxK", shape);
    list.push_back({m, n, k});
  }
  std::istringstream more(tiles);
  for (std::string tile; std::getline(more, tile, ',');) {
    TileVariant v{};
    if (std::sscanf(tile.c_str(), "%ux%ux%ux%ux%ux%u", &v.bm, &v.bn, &v.bk, &v.tm, &v.tn, &v.stages) != 6)
      fail(ErrorCode::InvalidArgument, "'{}' is not BMxBNxBKxTMxTNxSTAGES", tile);
    options.more.push_back(v);
  }
  if (options.conv) return options;  // their kernels depend on the device
  for (const auto& [m, n, k] : list) {
    for (const bool transposed : {false, true}) {
      Problem p{.name = std::format("{}x{}x{} {}", m, n, k, transposed ? "NT" : "NN"), .kernel = {}, .m = m, .n = n, .k = k, .transpose_b = transposed};
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
  Bench bench(device.impl());
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
    const Timing timing = bench.time(chosen, samples, sample_us);
    const double error = options.check ? bench.error(chosen) : 0;
    wrong += !(error < 1e-6);
    std::printf("%-32s %9.2f us (wall %9.2f)  %6.2f TFLOP/s  %s %s", problem.name.c_str(), timing.gpu_us,
                timing.wall_us, problem.flops / timing.gpu_us * 1e-6, chosen.family.c_str(), chosen.variant.c_str());
    if (options.check) std::printf("  error/sqrt(K) %.1e%s", error, error < 1e-6 ? "" : "  WRONG");
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
        const double off = options.check ? bench.error(candidate.spec) : 0;
        wrong += !(off < 1e-6);
        std::string name = candidate.spec.family + " " + candidate.spec.variant;
        if (!(off < 1e-6)) name += std::format("  WRONG: error/sqrt(K) {:.1e}", off);
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
