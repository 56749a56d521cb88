// aeshna bench data | run: a workload's numbers, and how fast they are computed here.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/make_folder.h"
#include "bench/run.h"
#include "cli/bench.h"
#include "cli/build_info.h"
#include "cli/text.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;
using models::Phase;

struct WorkloadArguments {
  std::string name;
  bool small = false;
  std::uint64_t seed = 1;
  const models::Workload& workload() const { return models::find_workload(name, small); }
};

void add_workload(CLI::App& command, WorkloadArguments& a) {
  command.add_option("workload", a.name, "smollm2, smolvla, unet, resnet50 or whisper")
      ->check(CLI::IsMember({"smollm2", "smolvla", "unet", "resnet50", "whisper"}))
      ->required()
      ->type_name("WORKLOAD");
  command.add_flag("--small", a.small, "Its small configuration, for tests");
  command.add_option("--seed", a.seed, "Of the weights")->check(unsigned_number())->capture_default_str();
}

struct RunArguments {
  WorkloadArguments workload;
  std::string data, json, tensors, cache = "warm";
  std::vector<std::string> contracts = {"strict", "accelerated"}, phases = {"full", "minimal", "train"};
  std::uint64_t process = 1;
  int samples = 20, warmups = 5;
};

/// Said before the measurement rather than after it.
void require_folder(const fs::path& file) {
  std::error_code unseen;
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, unseen))
    fail(ErrorCode::Io, "{}: there is no folder {}", file.string(), folder.string());
}

bench::RunOptions run_options(const RunArguments& a, const Globals& globals) {
  bench::RunOptions options;
  options.contracts.clear();
  options.phases.clear();
  for (const std::string& name : a.contracts)
    options.contracts.push_back(name == "strict" ? Contract::Strict : Contract::Accelerated);
  for (const std::string& name : a.phases)
    options.phases.push_back(name == "full" ? Phase::Full : name == "minimal" ? Phase::Minimal : Phase::Train);
  if (!a.tensors.empty()) options.tensors = a.tensors;
  options.process = a.process;
  options.cache = a.cache == "cold" ? bench::Cache::Cold : bench::Cache::Warm;
  options.warmups = a.warmups;
  options.samples = a.samples;
  options.device = globals.request();
  options.revision = built_revision();
  return options;
}

int run(const RunArguments& a, const Globals& globals) {
  const models::Workload& workload = a.workload.workload();
  require_folder(a.json);
  if (!a.tensors.empty()) make_folder(a.tensors);
  bench::RunOptions options = run_options(a, globals);
  ProgressLine progress(!globals.quiet);
  options.progress = [&](const std::string& text) { progress.show(text); };
  progress.show("data");
  const bench::WorkloadValues values =
      a.data.empty() ? bench::WorkloadValues(workload, a.workload.seed) : bench::WorkloadValues(workload, a.data);
  const bench::RunResult result = bench::run(workload, values, options);
  progress.clear();
  write_file_atomic(a.json, result.json);
  std::printf("%s%s, process %llu\n\n%s", workload.title.c_str(), workload.small ? " (small)" : "",
              static_cast<unsigned long long>(a.process), format_table(result.table).c_str());
  return result.failed == 0 ? 0 : kFailed;
}

}  // namespace

void add_bench_data(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("data", "Write the weights and inputs that every engine reads");
  struct Arguments {
    WorkloadArguments workload;
    std::string out;
  };
  auto a = std::make_shared<Arguments>();
  add_workload(*command, a->workload);
  command->add_option("--out", a->out, "safetensors file")->required()->type_name("FILE");
  command->callback([&action, a] {
    action = [a] {
      const models::Workload& workload = a->workload.workload();
      const std::uint64_t bytes = bench::write_data(workload, a->workload.seed, a->out);
      std::printf("%s: %s, %s\n", a->out.c_str(), workload.title.c_str(), format_bytes(bytes).c_str());
      return 0;
    };
  });
}

void add_bench_run(CLI::App& bench, const Globals& globals, Action& action) {
  CLI::App* command = bench.add_subcommand("run", "Measure one workload; exit status 1 if a phase failed");
  auto a = std::make_shared<RunArguments>();
  add_workload(*command, a->workload);
  const auto count = CLI::Range(0, 1 << 20), positive = CLI::Range(1, 1 << 20);
  command->add_option("--data", a->data, "File of 'aeshna bench data' (default: drawn here, as --seed says)")
      ->type_name("FILE")
      ->excludes("--seed");
  command->add_option("--json", a->json, "Result file")->required()->type_name("FILE");
  command->add_option("--contract", a->contracts, "Of both, only these")
      ->check(CLI::IsMember({"strict", "accelerated"}))
      ->type_name("strict|accelerated");
  command->add_option("--phase", a->phases, "Of all three, only these")
      ->check(CLI::IsMember({"full", "minimal", "train"}))
      ->type_name("full|minimal|train");
  command->add_option("--tensors", a->tensors, "Folder for outputs and gradients, which 'bench gate' judges")
      ->type_name("DIR");
  command->add_option("--process", a->process, "Number of this process in its series")
      ->check(unsigned_number())
      ->capture_default_str();
  command->add_option("--cache", a->cache, "cold: compiled into an empty cache; warm: it has all kernels")
      ->check(CLI::IsMember({"cold", "warm"}))
      ->capture_default_str();
  command->add_option("--samples", a->samples, "Kept, of each phase")->check(positive)->capture_default_str();
  command
      ->add_option("--warmups", a->warmups, "Steps before them, at least; they take half a second at least (0: none)")
      ->check(count)
      ->capture_default_str();
  command->callback([&globals, &action, a] { action = [&globals, a] { return run(*a, globals); }; });
}

}  // namespace aeshna::cli
