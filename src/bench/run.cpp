#include "bench/run.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <system_error>

#include "base/env.h"
#include "base/fail.h"
#include "bench/gate.h"
#include "bench/statistics.h"
#include "bench/tensor_math.h"
#include "compile/plan.h"
#include "gpu/device.h"
#include "io/json_writer.h"
#include "io/safetensors.h"
#include "runtime/session_impl.h"

namespace aeshna::bench {
namespace {

namespace fs = std::filesystem;
using models::Phase;

const char* contract_name(Contract contract) { return contract == Contract::Strict ? "strict" : "accelerated"; }

/// As remove_all, which is 12 KB of code.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
      remove_folder(entry->path());
    } else {
      fs::remove(entry->path(), ignored);
    }
  }
  fs::remove(folder, ignored);
}

/// While it lives, compiled kernels are kept in an empty folder of its own.
class EmptyCache {
 public:
  EmptyCache() {
    std::error_code error;
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    path_ = fs::temp_directory_path(error) / formatted("aeshna-bench-{:x}", now);
    if (error || !fs::create_directory(path_, error))
      fail(ErrorCode::Io, "{}: the folder of a cold cache cannot be made: {}", path_.string(), error.message());
    env_set_cache_dir(path_);
  }
  ~EmptyCache() {
    env_set_cache_dir(std::nullopt);
    remove_folder(path_);
  }
  EmptyCache(const EmptyCache&) = delete;
  EmptyCache& operator=(const EmptyCache&) = delete;

 private:
  fs::path path_;
};

/// What was compiled under one contract.
class Compilation {
 public:
  void add(std::string_view phase, const Session& session) {
    double total = 0;
    for (const Session::StageSeconds& time : session.compile_times()) {
      if (time.stage == "weights") continue;  // they are there already
      total += time.seconds;
      const auto known = std::ranges::find(stages_, time.stage, &Session::StageSeconds::stage);
      (known == stages_.end() ? stages_.emplace_back(time.stage, 0.0) : *known).seconds += time.seconds;
    }
    phases_.emplace_back(std::string(phase), total);
  }
  double last() const { return phases_.back().seconds; }

  void write(JsonWriter& json, Cache cache) const {
    double seconds = 0;
    for (const auto& phase : phases_) seconds += phase.seconds;
    const bool complete = phases_.size() == 3;  // else the sum would be compared with a larger one
    json.number("seconds", complete ? std::optional(seconds) : std::nullopt);
    json.text("cache", cache == Cache::Cold ? "cold" : "warm");
    json.begin("by_phase", '{');
    for (const auto& phase : phases_) json.number(phase.stage, phase.seconds);
    json.end();
    json.begin("stages", '[');
    for (const auto& stage : stages_) {
      json.begin('{');
      json.text("stage", stage.stage);
      json.number("seconds", stage.seconds);
      json.end();
    }
    json.end();
  }

 private:
  std::vector<Session::StageSeconds> phases_, stages_;
};

std::uint64_t physical_bytes(const Session::Memory& memory) {
  return memory.pinned_bytes + memory.arena_bytes + memory.workspace_bytes;
}

void write_memory(JsonWriter& json, const Session& session) {
  const Session::Memory memory = session.memory();
  const std::optional<std::uint64_t> device = session.impl().device().memory_in_use();
  json.begin("memory", '{');
  json.count("plan_logical_bytes", memory.pinned_bytes + memory.logical_bytes + memory.workspace_bytes);
  json.count("plan_physical_bytes", physical_bytes(memory));
  json.count("arena_bytes", memory.arena_bytes);
  json.count("pinned_bytes", memory.pinned_bytes);
  json.count("workspace_bytes", memory.workspace_bytes);
  json.count("device_bytes", device);
  json.text("device_bytes_basis",
            device ? "VK_EXT_memory_budget, what this process uses of device-local heaps with one session open" : "");
  json.end();
}

void write_output(JsonWriter& json, const Literal& output) {
  json.begin("output", '{');
  json.begin("shape", '[');
  for (const std::int64_t size : output.type().shape.dims()) json.item(std::to_string(size));
  json.end();
  json.number("l2", l2_norm(output));
  json.number("sum", sum(output));
  json.begin("first", '[');
  for (std::int64_t i = 0; i < std::min<std::int64_t>(8, output.type().shape.elements()); ++i)
    json.item(json_number(output.at(i)));
  json.end();
  json.end();
}

void write_samples(JsonWriter& json, const std::vector<double>& samples, int warmups) {
  json.count("warmups", static_cast<std::uint64_t>(warmups));
  json.begin("samples_ms", '[');
  for (const double sample : samples) json.item(json_number(sample));
  json.end();
  static constexpr std::pair<const char*, double> quantiles[] = {
      {"median_ms", 0.5}, {"p25_ms", 0.25}, {"p75_ms", 0.75}, {"min_ms", 0}, {"max_ms", 1}};
  for (const auto& [name, share] : quantiles) json.number(name, quantile(samples, share));
}

/// Launches, and how many of each family of kernels.
std::uint64_t write_dispatches(JsonWriter& json, const Plan& plan) {
  std::vector<std::pair<std::string, std::uint64_t>> families;
  std::uint64_t total = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.kind != PlanStep::Kind::Dispatch || step.spec.workgroups == 0) continue;
    ++total;
    const auto known = std::ranges::find(families, step.spec.family, &std::pair<std::string, std::uint64_t>::first);
    ++(known == families.end() ? families.emplace_back(step.spec.family, 0) : *known).second;
  }
  json.begin("precision", '{');
  json.begin("dispatches_by_family", '{');
  for (const auto& [family, count] : families) json.count(family, count);
  json.end();
  json.end();
  json.count("dispatches", total);
  json.count("barriers", plan.barrier_groups);
  return total;
}

struct Series {
  int warmups = 0;
  std::vector<double> samples_ms;
};

/// Of a series of steps: each begins and ends with an idle device. A GPU that had nothing to do has lowered its clocks: warm-ups
/// take half a second at least, if there are to be any.
Series measure(Session& session, const RunOptions& options, const std::string& what) {
  constexpr double kWarmUpMs = 500;
  const auto step_ms = [&] {
    const auto start = std::chrono::steady_clock::now();
    session.step();
    session.wait();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  Series series;
  if (options.warmups > 0) {
    for (double spent = 0; series.warmups < options.warmups || spent < kWarmUpMs; ++series.warmups) spent += step_ms();
  }
  for (int i = 0; i < options.samples; ++i) {
    options.progress(formatted("{}: sample {} of {}", what, i + 1, options.samples));
    series.samples_ms.push_back(step_ms());
  }
  return series;
}

/// One process of a workload.
class Run {
 public:
  Run(const models::Workload& workload, const WorkloadValues& values, const RunOptions& options)
      : workload_(workload), values_(values), options_(options) {
    result_.table = {
        {"phase", "contract", "median ms", "quartiles", "compile s", "plan MiB", "dispatches", "groups", "loss"}};
    if (options.cache == Cache::Warm && env_cache_dir().empty())
      fail(ErrorCode::InvalidArgument, "a warm cache needs a folder, but AESHNA_CACHE_DIR is 'off'");
  }

  RunResult take() {
    JsonWriter json, compile(2);
    json.begin('{');
    write_head(json);
    json.begin("cells", '[');
    compile.begin('{');
    for (const Contract contract : options_.contracts) {
      std::optional<EmptyCache> empty;
      if (options_.cache == Cache::Cold) empty.emplace();
      if (options_.cache == Cache::Warm) compile_once(contract);
      measure_contract(contract, json, compile);
    }
    json.end();
    compile.end();
    json.raw("compile", compile.take());
    json.end();
    result_.json = json.take();
    return std::move(result_);
  }

 private:
  void write_head(JsonWriter& json) const {
    json.count("schema", kSchema);
    json.text("engine", "aeshna");
    json.text("workload", workload_.name);
    json.text("config", config_name(workload_));
    json.count("process", options_.process);
    json.text("revision", options_.revision.commit);
    json.flag("clean", options_.revision.clean);
    json.text("date", utc_now());
    json.begin("environment", '{');
    for (const auto& [name, value] : environment(Device(options_.device))) json.text(name, value);
    json.end();
    json.begin("data", '{');
    json.text("sha256", values_.sha256());
    json.count("seed", values_.seed());
    json.end();
  }

  std::string label(Contract contract, Phase phase) const {
    return formatted("{} {} {}", workload_.name, contract_name(contract), models::phase_name(phase));
  }

  Session compile_phase(const Weights& weights, Contract contract, Phase phase) const {
    options_.progress(label(contract, phase) + ": compiling");
    Graph graph;
    workload_.build(graph, phase, workload_.small, workload_.batch);
    add_parameters(weights, graph, values_);
    return compile(graph, weights,
                   {.mode = phase == Phase::Train ? Mode::Training : Mode::Inference,
                    .contract = contract,
                    .loss = phase == Phase::Train ? "loss" : "",
                    .update = false});
  }

  /// So that the cache on disk has the kernels; what the device object has in memory goes with it.
  void compile_once(Contract contract) const {
    const Weights weights{Device(options_.device)};
    for (const Phase phase : options_.phases) {
      try {
        compile_phase(weights, contract, phase);
      } catch (const Error&) {}  // the measured compilation says it
    }
  }

  void measure_contract(Contract contract, JsonWriter& json, JsonWriter& compile) {
    const Weights weights{Device(options_.device)};
    Compilation compilation;
    for (const Phase phase : options_.phases) {
      const auto begin = [&](const std::string& error) {
        JsonWriter cell(2);
        cell.begin('{');
        cell.text("phase", models::phase_name(phase));
        cell.text("contract", contract_name(contract));
        cell.text("mode", "recorded");
        cell.text("error", error);
        return cell;
      };
      JsonWriter cell = begin("");
      try {
        measure_phase(weights, contract, phase, compilation, cell);
      } catch (const Error& error) {
        ++result_.failed;
        result_.table.push_back(
            {std::string(models::phase_name(phase)), contract_name(contract), "error: " + error.message()});
        cell = begin(error.what());
      }
      cell.end();
      json.item(cell.take());
    }
    compile.begin(contract_name(contract), '{');
    compilation.write(compile, options_.cache);
    compile.end();
  }

  void measure_phase(const Weights& weights, Contract contract, Phase phase, Compilation& compilation,
                     JsonWriter& cell) {
    Session session = compile_phase(weights, contract, phase);
    compilation.add(models::phase_name(phase), session);
    set_inputs(session, values_);
    const Series series = measure(session, options_, label(contract, phase));
    options_.progress(label(contract, phase) + ": reading results");
    write_samples(cell, series.samples_ms, series.warmups);
    write_memory(cell, session);
    const std::uint64_t dispatches = write_dispatches(cell, session.impl().plan);
    const std::optional<double> loss =
        phase == Phase::Train ? std::optional<double>(session.read_scalar("loss")) : std::nullopt;
    cell.number("loss", loss);
    write_results(session, contract, phase, loss, cell);
    result_.table.push_back(
        {std::string(models::phase_name(phase)), contract_name(contract),
         formatted("{:.3f}", quantile(series.samples_ms, 0.5)),
         formatted("{:.3f} to {:.3f}", quantile(series.samples_ms, 0.25), quantile(series.samples_ms, 0.75)),
         formatted("{:.2f}", compilation.last()),
         formatted("{:.1f}", static_cast<double>(physical_bytes(session.memory())) / (1 << 20)),
         std::to_string(dispatches), std::to_string(session.impl().plan.barrier_groups),
         loss ? formatted("{:.6g}", *loss) : "-"});
  }

  /// Output and gradients: what they amount to, and a file of them.
  void write_results(Session& session, Contract contract, Phase phase, std::optional<double> loss,
                     JsonWriter& cell) const {
    std::vector<std::pair<std::string, Literal>> kept;
    std::vector<SafetensorsTensor> tensors;
    write_output(cell, session.read_literal("output"));
    cell.begin("gradients", '{');
    for (const std::string& name : session.impl().user_outputs()) {
      const bool gradient = name.starts_with("grad/");
      if (!gradient && !options_.tensors) continue;
      const Literal value = session.read_literal(name);
      if (gradient) cell.number(name.substr(5), l2_norm(value));
      if (options_.tensors) kept.emplace_back(name, value);
    }
    cell.end();
    const std::string file = formatted("aeshna-{}-{}.safetensors", models::phase_name(phase), contract_name(contract));
    cell.text("tensors", options_.tensors ? file : "");
    if (!options_.tensors) return;
    for (const auto& [name, value] : kept) {
      // The loss has rank 0 here, and one dimension in files of the benchmark.
      const TensorType type = name == "loss" ? TensorType{value.type().dtype, {1}} : value.type();
      tensors.push_back({name, type, value.bytes()});
    }
    std::map<std::string, std::string, std::less<>> metadata;
    metadata["engine"] = "aeshna";
    metadata["mode"] = "recorded";
    metadata["workload"] = workload_.name;
    metadata["config"] = config_name(workload_);
    metadata["phase"] = models::phase_name(phase);
    metadata["contract"] = contract_name(contract);
    metadata["gpu"] = session.impl().device().info().name;
    metadata["revision"] = options_.revision.commit;
    if (loss) metadata["loss"] = json_number(*loss);
    write_safetensors(*options_.tensors / file, tensors, metadata);
  }

  const models::Workload& workload_;
  const WorkloadValues& values_;
  const RunOptions& options_;
  RunResult result_;
};

}  // namespace

RunResult run(const models::Workload& workload, const WorkloadValues& values, const RunOptions& options) {
  return Run(workload, values, options).take();
}

}  // namespace aeshna::bench
