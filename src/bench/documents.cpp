#include "bench/documents.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "bench/page.h"
#include "bench/statistics.h"

namespace aeshna::bench {
namespace {

namespace fs = std::filesystem;

/// A text that must be one of `names`.
std::string choice(const JsonField& field, std::span<const std::string_view> names) {
  std::string text = field.text();
  if (std::ranges::find(names, text) == names.end()) field.refuse(formatted("the unknown '{}'", text));
  return text;
}

std::string some_text(const JsonField& field) {
  std::string text = plain(field.text());
  if (text.empty()) field.refuse("empty");
  return text;
}

MemoryUse read_memory(const JsonField& memory) {
  return {.plan_logical = memory.count("plan_logical_bytes"),
          .plan_physical = memory.count("plan_physical_bytes"),
          .peak_allocated = memory.count("peak_allocated_bytes"),
          .peak_reserved = memory.count("peak_reserved_bytes"),
          .device = memory.count("device_bytes"),
          .device_basis = plain(memory.text("device_bytes_basis").value_or(""))};
}

std::vector<double> read_samples(const JsonField& cell) {
  std::vector<double> samples;
  const JsonField field = cell.at("samples_ms");
  for (const JsonField& sample : field.items()) {
    samples.push_back(sample.number());
    if (!(samples.back() > 0)) sample.refuse("not above 0");
  }
  if (samples.empty()) field.refuse("empty, without an error");
  const double median = quantile(samples, 0.5);
  const JsonField stated = cell.at("median_ms");
  if (std::abs(stated.number() - median) > 1e-3 * median)
    stated.refuse(formatted("{}, but the median of samples_ms is {}", stated.number(), median));
  return samples;
}

Measurement read_cell(const JsonField& cell) {
  Measurement result{.phase = choice(cell.at("phase"), kPhases),
                     .contract = choice(cell.at("contract"), kContracts),
                     .mode = some_text(cell.at("mode")),
                     .error = plain(cell.text("error").value_or("")),
                     .samples_ms = {},
                     .memory = {},
                     .dispatches = cell.count("dispatches"),
                     .barriers = cell.count("barriers")};
  if (result.error.empty()) result.samples_ms = read_samples(cell);
  if (cell.has("memory")) result.memory = read_memory(cell.at("memory"));
  return result;
}

ResultFile read_result(const std::string& file, const JsonField& top) {
  static constexpr std::array<std::string_view, 2> engines = {"aeshna", "pytorch"}, configs = {"full", "small"};
  static constexpr std::array<std::string_view, 2> caches = {"cold", "warm"};
  ResultFile result;
  result.file = file;
  result.engine = choice(top.at("engine"), engines);
  result.workload = some_text(top.at("workload"));
  result.config = choice(top.at("config"), configs);
  result.process = top.at("process").count();
  result.revision = plain(top.text("revision").value_or(""));
  result.clean = top.flag("clean");
  const JsonField environment = top.at("environment");
  result.gpu = some_text(environment.at("gpu"));
  for (const auto& [name, value] : environment.members()) {
    if (environment.has(name)) result.environment[plain(name)] = plain(value.text());
  }
  if (top.has("data")) result.sha256 = plain(top.at("data").text("sha256").value_or(""));
  if (top.has("compile")) {
    for (const auto& [contract, compile] : top.at("compile").members()) {
      if (std::ranges::find(kContracts, contract) == kContracts.end()) compile.refuse("of an unknown contract");
      if (!compile.has("seconds")) continue;
      result.compile.push_back({.contract = contract,
                                .cold = choice(compile.at("cache"), caches) == "cold",
                                .seconds = compile.at("seconds").number()});
    }
  }
  for (const JsonField& cell : top.at("cells").items()) {
    result.cells.push_back(read_cell(cell));
    if (result.engine == "pytorch") choice(cell.at("mode"), kModes);
  }
  return result;
}

/// `named`: it must be of the benchmark.
void read_document(const fs::path& path, bool named, Documents& into) {
  const nlohmann::json content = read_json(path);
  const JsonField top(path.string(), content);
  if (!top.has("schema")) {
    if (named) fail(ErrorCode::CorruptFile, "{}: no file of the benchmark: it has no 'schema'", path.string());
    return;
  }
  const JsonField schema = top.at("schema");
  if (schema.count() != kSchema) schema.refuse(formatted("{}; this program reads {}", schema.count(), kSchema));
  if (top.has("kind")) {  // neither of the two: a profile
    if (named) top.at("kind").refuse(formatted("'{}', no result and no gate", top.at("kind").text()));
  } else if (top.has("forward")) {
    const GateResult gate = read_gate(top);
    choice(top.at("phase"), kPhases);
    choice(top.at("contract"), kContracts);
    into.gates.push_back({path.string(), gate});
  } else {
    into.results.push_back(read_result(path.string(), top));
  }
}

/// Not through recursive_directory_iterator, which is 12 KB of code.
void find_json(const fs::path& folder, std::vector<fs::path>& files) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::file_status status = fs::symlink_status(entry->path(), error);
    if (fs::is_directory(status)) {
      find_json(entry->path(), files);
    } else if (fs::is_regular_file(status) && entry->path().extension() == ".json") {
      files.push_back(entry->path());
    }
  }
  if (error) fail(ErrorCode::Io, "{}: cannot be searched: {}", folder.string(), error.message());
}

}  // namespace

Documents read_documents(std::span<const fs::path> paths) {
  Documents documents;
  for (const fs::path& path : paths) {
    std::error_code unseen;
    if (!fs::is_directory(path, unseen)) {
      read_document(path, true, documents);
      continue;
    }
    std::vector<fs::path> files;
    find_json(path, files);
    std::ranges::sort(files);
    for (const fs::path& file : files) read_document(file, false, documents);
  }
  return documents;
}

}  // namespace aeshna::bench
