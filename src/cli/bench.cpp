// aeshna bench: the five workloads (docs/benchmark.md); here its subcommands that need no device, gate and report.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/make_folder.h"
#include "bench/documents.h"
#include "bench/gate.h"
#include "bench/report.h"
#include "cli/bench.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;

struct GateArguments {
  std::string reference, candidate, baseline, workload, phase, contract, json;
};

int gate(const GateArguments& a) {
  const std::optional<fs::path> baseline = a.baseline.empty() ? std::nullopt : std::optional<fs::path>(a.baseline);
  const bench::GateResult result = bench::judge(a.reference, a.candidate, baseline,
                                                {.workload = a.workload, .phase = a.phase, .contract = a.contract});
  if (!a.json.empty()) write_file_atomic(a.json, bench::json_text(result));
  std::fputs(bench::describe(result).c_str(), stdout);
  return result.candidate.pass() ? 0 : kFailed;
}

void add_gate(CLI::App& bench, Action& action) {
  CLI::App* command =
      bench.add_subcommand("gate", "Judge the output and the gradients of a cell; exit status 1 if they fail");
  auto a = std::make_shared<GateArguments>();
  const auto file = [&](const char* name, std::string& to, const char* doc) {
    return command->add_option(name, to, doc)->type_name("FILE");
  };
  file("--reference", a->reference, "What is right: tensors of PyTorch in float64")->required();
  file("--candidate", a->candidate, "What is judged")->required();
  file("--baseline", a->baseline, "Judged in the same way and printed beside it: PyTorch's own in f32");
  file("--json", a->json, "Written in addition");
  command->add_option("--workload", a->workload, "These three if the candidate's metadata do not say them");
  command->add_option("--phase", a->phase);
  command->add_option("--contract", a->contract);
  command->callback([&action, a] { action = [a] { return gate(*a); }; });
}

struct ReportArguments {
  std::vector<std::string> results;
  std::string out;
};

int report(const ReportArguments& a) {
  const std::vector<fs::path> paths(a.results.begin(), a.results.end());
  const bench::Documents documents = bench::read_documents(paths);
  if (documents.results.empty()) fail(ErrorCode::NotFound, "there is no result file in {}", a.results.front());
  const bench::Report report = bench::make_report(bench::compare(documents));
  make_folder(a.out);
  const fs::path out = a.out;
  write_file_atomic(out / "report.md", report.markdown);
  write_file_atomic(out / "index.html", report.html);
  write_file_atomic(out / "ratios.svg", report.svg);
  write_file_atomic(out / "summary.json", report.summary);
  std::printf("%zu result files and %zu gate files: %s\n", documents.results.size(), documents.gates.size(),
              (out / "index.html").string().c_str());
  return 0;
}

void add_report(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("report", "Tables, a figure and a page from the files of a benchmark");
  auto a = std::make_shared<ReportArguments>();
  command->add_option("results", a->results, "Folders, searched completely, or files")
      ->required()
      ->type_name("RESULTS");
  command->add_option("--out", a->out, "Folder of report.md, index.html, ratios.svg, summary.json; made if missing")
      ->required()
      ->type_name("DIR");
  command->callback([&action, a] { action = [a] { return report(*a); }; });
}

}  // namespace

void add_bench(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the five workloads and compare them with PyTorch");
  bench->require_subcommand(1);
  add_bench_data(*bench, action);
  add_bench_run(*bench, globals, action);
  add_gate(*bench, action);
  add_report(*bench, action);
}

}  // namespace aeshna::cli
