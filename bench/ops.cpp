// Ops at the shapes of real models, each compiled as a session: GPU time of the forward pass and of the backward pass alone.
// bench/ops.py does the same with PyTorch, from the list in our results, and compares times and values.
//   bench_ops [--device SEL] [--json FILE] [--only TEXT] [--samples N] [--smoke]
// --only: cases whose "family name" contains the text. --smoke: short measurements of what a software driver can bear.
//
// Forward: an inference session whose only output is the op's result. Backward: the backward segment of a training session whose loss
// is sum(y * upstream); what the forward pass computes for it has been computed before, as in PyTorch's autograd.grad. Times are those
// of one pass among dependent ones in one command buffer: a barrier stands between them, and inputs stay in cache where they fit. The
// checks of an op (labels in range) are in its time, the status word that each step ends with is not.
#include <aeshna/aeshna.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/fail.h"
#include "base/format.h"
#include "compile/reserved.h"
#include "gpu/device.h"
#include "machine.h"
#include "op_cases.h"
#include "runtime/session_impl.h"

namespace {

using namespace aeshna;
using namespace aeshna::bench;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string device, json, only;
  int samples = 15;
  bool smoke = false;
};

constexpr std::uint32_t kUpstreamSeed = 100;  ///< inputs have 1, 2, ...

/// The same numbers as hashed() of ops.py, bit for bit.
std::uint32_t hashed(std::uint64_t index, std::uint32_t seed) {
  std::uint32_t h = static_cast<std::uint32_t>(index) * 2654435761u + seed * 374761393u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h = (h ^ (h >> 13)) * 3266489917u;
  return h ^ (h >> 16);
}

void fill(Session& session, const BenchInput& input, std::uint32_t seed) {
  const auto elements = static_cast<std::size_t>(Shape(input.shape).elements());
  if (input.below > 0) {
    std::vector<std::int32_t> values(elements);
    for (std::size_t i = 0; i < elements; ++i)
      values[i] = static_cast<std::int32_t>(hashed(i, seed) % static_cast<std::uint32_t>(input.below));
    session.set(input.name, std::span<const std::int32_t>(values));
    return;
  }
  std::vector<float> values(elements);
  const auto scale = static_cast<float>(input.scale), shift = static_cast<float>(input.shift);
  for (std::size_t i = 0; i < elements; ++i)
    values[i] = (static_cast<float>(hashed(i, seed) >> 8) * 0x1p-23f - 1.0f) * scale + shift;
  session.set(input.name, std::span<const float>(values));
}

std::vector<Value> declare(Graph& g, const BenchCase& c) {
  std::vector<Value> inputs;
  for (const BenchInput& input : c.inputs)
    inputs.push_back(g.input(input.name, Shape(input.shape), input.below > 0 ? DType::i32 : DType::f32));
  return inputs;
}

/// Enough of an output for ops.py to see whether it is the same.
json digest(Session& session, const std::string& output) {
  const std::vector<float> values = session.read(output);
  double mean = 0, mean_abs = 0, max_abs = 0;
  for (const float v : values) {
    mean += static_cast<double>(v);
    mean_abs += std::abs(static_cast<double>(v));
    max_abs = std::max(max_abs, std::abs(static_cast<double>(v)));
  }
  json samples = json::array();
  const std::size_t count = std::min<std::size_t>(values.size(), 64);
  for (std::size_t i = 0; i < count; ++i) samples.push_back(values[i * values.size() / count]);
  const double n = static_cast<double>(std::max<std::size_t>(values.size(), 1));
  return {{"elements", values.size()}, {"mean", mean / n}, {"mean_abs", mean_abs / n}, {"max_abs", max_abs}, {"samples", samples}};
}

/// The step's status word: a dispatch and a copy for each step, whatever the graph. It is no part of an op.
bool is_bookkeeping(const Plan& plan, const PlanStep& step) {
  return std::ranges::all_of(step.operands, [&](const PlanOperand& operand) {
    return !operand.written || plan.placements.at(operand.placement).name.starts_with(reserved::prefix);
  });
}

class Timer {
 public:
  Timer(gpu::Device& device, const Options& options) : device_(device), options_(options) {}

  /// GPU microseconds of one pass of `segment`, one number for each sample.
  json time(const Session& session, Segment segment) {
    std::vector<SegmentCommand> pass = segment_commands(session.impl(), segment);
    std::erase_if(pass, [&](const SegmentCommand& c) { return is_bookkeeping(session.impl().plan, *c.step); });
    if (pass.empty()) fail(ErrorCode::Internal, "there is nothing to measure");
    const int few = 3;
    const auto list_of_few = record(pass, few);
    replay(*list_of_few, few);
    const double once = replay(*list_of_few, few);
    const double sample_us = options_.smoke ? 1000 : 5000;
    const int most = std::max(few, static_cast<int>(20000 / pass.size()));  // descriptors of one list
    const int repetitions = std::clamp(static_cast<int>(sample_us / std::max(once, 0.5)), few, std::min(1000, most));
    const auto list = record(pass, repetitions);
    // Devices lower their clocks while they have nothing to do.
    const auto start = Clock::now();
    do replay(*list, repetitions);
    while (Clock::now() - start < std::chrono::milliseconds(options_.smoke ? 0 : 250));
    json samples = json::array();
    for (int s = 0; s < options_.samples; ++s) samples.push_back(replay(*list, repetitions));
    return samples;
  }

 private:
  std::shared_ptr<gpu::CommandList> record(const std::vector<SegmentCommand>& pass, int repetitions) {
    std::vector<gpu::Command> commands;
    std::vector<std::shared_ptr<void>> owners;
    for (const SegmentCommand& c : pass) owners.insert(owners.end(), c.owners.begin(), c.owners.end());
    commands.emplace_back(gpu::TimestampCommand{0});
    for (int r = 0; r < repetitions; ++r) {
      std::optional<std::uint32_t> group;
      for (const SegmentCommand& c : pass) {
        if (group != c.group) commands.emplace_back(gpu::BarrierCommand{});
        group = c.group;
        commands.push_back(c.command);
      }
    }
    commands.emplace_back(gpu::BarrierCommand{});
    commands.emplace_back(gpu::TimestampCommand{1});
    return device_.record(commands, std::move(owners), "bench");
  }

  double replay(gpu::CommandList& list, int repetitions) {
    gpu::CommandList* const lists[] = {&list};
    device_.wait(device_.submit(lists));
    const std::vector<double> stamps = device_.timestamps(2);
    return (stamps[1] - stamps[0]) / 1000 / repetitions;
  }

  gpu::Device& device_;
  const Options& options_;
};

double median(const json& samples) {
  auto values = samples.get<std::vector<double>>();
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// One row of the results: an op in one direction.
class Row {
 public:
  Row(const Device& device, const Options& options, const BenchCase& c, std::string direction,
      std::vector<std::string> gradients)
      : device_(device), options_(options), case_(c), direction_(std::move(direction)), gradients_(std::move(gradients)) {}

  json measure() {
    json row = {{"family", case_.family}, {"name", case_.name},     {"direction", direction_}, {"op", case_.op},
                {"attrs", case_.attrs},   {"count", case_.count},   {"gradients", gradients_}, {"inputs", json::array()}};
    for (std::size_t i = 0; i < case_.inputs.size(); ++i) row["inputs"].push_back(describe(case_.inputs[i], i + 1));
    const bool backward = !gradients_.empty();
    Graph g;
    const Value y = case_.build(g, declare(g, case_));
    BenchInput upstream{.name = "upstream", .shape = {y.shape().dims().begin(), y.shape().dims().end()}};
    CompileOptions compile_options;
    if (backward) {
      row["upstream"] = describe(upstream, kUpstreamSeed);
      g.output("loss", sum(y * g.input("upstream", y.shape())));
      compile_options = {.mode = Mode::Training, .loss = "loss", .gradients = gradients_, .update = false};
      compile_options.aliasing = false;  // what the forward pass keeps survives repeated backward passes
    } else {
      g.output("y", y);
    }
    if (options_.smoke && too_large(g, compile_options)) {
      row["skipped"] = "too large for --smoke";
      return row;
    }
    Session session = compile(g, Weights(g, {.seed = 1, .device = device_}), compile_options);
    const Segment segment = backward ? Segment::Backward : Segment::Forward;
    for (const PlanStep& step : session.impl().plan.steps) {
      if (step.segment != segment || is_bookkeeping(session.impl().plan, step)) continue;
      row["kernels"].push_back(step.kind == PlanStep::Kind::Copy
                                   ? formatted("copy of {} bytes", step.operands.at(0).bytes)
                                   : step.spec.family + " " + step.spec.variant);
    }
    for (std::size_t i = 0; i < case_.inputs.size(); ++i)
      fill(session, case_.inputs[i], static_cast<std::uint32_t>(i + 1));
    if (backward) fill(session, upstream, kUpstreamSeed);
    session.step();
    session.wait();
    if (!backward) row["outputs"]["y"] = digest(session, "y");
    for (const std::string& name : gradients_) row["outputs"][name] = digest(session, "grad/" + name);
    Timer timer(device_.impl(), options_);
    row["samples_us"] = timer.time(session, segment);
    row["gpu_us"] = median(row["samples_us"]);
    return row;
  }

 private:
  static json describe(const BenchInput& input, std::size_t seed) {
    return {{"name", input.name},   {"shape", input.shape}, {"scale", input.scale},
            {"shift", input.shift}, {"below", input.below}, {"seed", seed}};
  }

  bool too_large(const Graph& g, const CompileOptions& o) const {
    PipelineOptions pipeline;
    pipeline.training = o.mode == Mode::Training;
    pipeline.loss = o.loss;
    pipeline.gradients = o.gradients;
    pipeline.aliasing = o.aliasing;
    const Plan plan = compile_plan(g, pipeline, device_.impl().caps());
    double flops = 0, bytes = 0;
    for (const PlanStep& step : plan.steps) {
      flops += step.spec.flops;
      bytes += step.spec.bytes;
    }
    return flops > 5e8 || bytes > 2e8 || plan.memory.pinned_bytes > 2e8;
  }

  const Device& device_;
  const Options& options_;
  const BenchCase& case_;
  std::string direction_;
  std::vector<std::string> gradients_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) fail(ErrorCode::InvalidArgument, "{} needs a value", arg);
      return argv[++i];
    };
    if (arg == "--device") {
      options.device = value();
    } else if (arg == "--json") {
      options.json = value();
    } else if (arg == "--only") {
      options.only = value();
    } else if (arg == "--samples") {
      options.samples = std::max(1, std::atoi(value().c_str()));
    } else if (arg == "--smoke") {
      options.smoke = true;
    } else {
      fail(ErrorCode::InvalidArgument, "unknown option {}", arg);
    }
  }
  if (options.smoke) options.samples = std::min(options.samples, 3);
  return options;
}

int run(Options options) {
  const Device device(DeviceRequest{.selector = options.device});
  if (device.info().kind == DeviceInfo::Kind::Software && !options.smoke) {
    std::printf("a software driver: --smoke\n");
    options.smoke = true;
    options.samples = std::min(options.samples, 3);
  }
  json results = machine(device);
  results["rows"] = json::array();
  results["absent"] = json::array();
  std::printf("%s, commit %s\n", device.info().name.c_str(), results["commit"].get<std::string>().c_str());
  int failed = 0;
  const auto measure = [&](const BenchCase& c, const std::string& direction, const std::vector<std::string>& gradients) {
    const std::string title = c.family + " " + c.name + " " + direction;
    if (title.find(options.only) == std::string::npos) return;
    json row = {{"family", c.family}, {"name", c.name}, {"direction", direction}, {"count", c.count}};
    try {
      row = Row(device, options, c, direction, gradients).measure();
    } catch (const Error& e) {
      row["error"] = e.what();
      ++failed;
    }
    const std::string kernels = row.contains("kernels") ? row["kernels"].dump() : "";
    if (row.contains("gpu_us"))
      std::printf("%-60s %10.2f us  %s\n", title.c_str(), row["gpu_us"].get<double>(), kernels.c_str());
    else
      std::printf("%-60s %s\n", title.c_str(), row.value("error", row.value("skipped", "")).c_str());
    std::fflush(stdout);
    results["rows"].push_back(std::move(row));
  };
  for (const BenchCase& c : bench_cases()) {
    if (c.forward) measure(c, "forward", {});
    for (const auto& [direction, gradients] : c.backward) measure(c, direction, gradients);
  }
  for (const AbsentFamily& absent : absent_families()) {
    std::printf("%-60s absent: %s\n", absent.family.c_str(), absent.why.c_str());
    results["absent"].push_back({{"family", absent.family}, {"why", absent.why}});
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << results.dump(1) << "\n";
    if (!file.flush()) fail(ErrorCode::Io, "cannot write {}", options.json);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  env_use_own_pipeline_cache();
  return run(parse(argc, argv));
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_ops: %s\n", e.what());
  return 2;
}
