#include "bench/comparison.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "bench/statistics.h"

namespace aeshna::bench {
namespace {

CellId make_id(std::string_view workload, std::string_view phase, std::string_view contract) {
  const auto rank = [](auto& names, std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  };
  return {.contract = rank(kContracts, contract),
          .workload_rank = rank(kWorkloads, workload),
          .workload = std::string(workload),
          .phase = rank(kPhases, phase)};
}

std::string compile_key(const CellId& id, std::string_view engine) {
  return formatted("{} {} {}", engine, id.contract, id.workload);
}

/// "a; b; c", each once.
void add_once(std::string& list, const std::string& value) {
  if (("; " + list + "; ").find("; " + value + "; ") == std::string::npos) list += (list.empty() ? "" : "; ") + value;
}

void keep_largest(std::optional<std::uint64_t>& kept, const std::optional<std::uint64_t>& value) {
  if (value && !(kept && *kept >= *value)) kept = value;
}

void add_measurement(Series& series, const Measurement& cell) {
  if (!cell.error.empty()) {
    series.error = cell.error;
  } else {
    series.medians_ms.push_back(quantile(cell.samples_ms, 0.5));
    series.samples_ms.insert(series.samples_ms.end(), cell.samples_ms.begin(), cell.samples_ms.end());
  }
  const MemoryUse& memory = cell.memory;
  keep_largest(series.memory.plan_logical, memory.plan_logical);
  keep_largest(series.memory.plan_physical, memory.plan_physical);
  keep_largest(series.memory.peak_allocated, memory.peak_allocated);
  keep_largest(series.memory.peak_reserved, memory.peak_reserved);
  keep_largest(series.memory.device, memory.device);
  if (!memory.device_basis.empty()) series.memory.device_basis = memory.device_basis;
  keep_largest(series.dispatches, cell.dispatches);
  keep_largest(series.barriers, cell.barriers);
}

/// Builds sections file by file, and notices what cannot be.
class Builder {
 public:
  void add(const ResultFile& file) {
    Section& section = sections_[{file.config, file.gpu}];
    const std::string place = formatted("{} {} {}", file.gpu, file.config, file.workload);
    if (!file.sha256.empty()) {
      const auto [first, fresh] = data_.try_emplace(place, &file);
      if (!fresh && first->second->sha256 != file.sha256)
        contradiction(file, *first->second, formatted("measured '{}' with other data", file.workload));
    }
    for (const Measurement& cell : file.cells) {
      const std::string what =
          formatted("{} {} {} of {}, process {}", cell.phase, cell.contract, cell.mode, file.workload, file.process);
      const auto [first, fresh] = measured_.try_emplace(formatted("{} {} {}", place, file.engine, what), &file);
      if (!fresh) contradiction(file, *first->second, "both measured " + what);
      Comparison& comparison = section.cells[make_id(file.workload, cell.phase, cell.contract)];
      if (file.engine == "pytorch") {
        add_measurement(comparison.pytorch[cell.mode], cell);
      } else {
        if (!comparison.ours) comparison.ours.emplace();
        add_measurement(*comparison.ours, cell);
      }
      if (!cell.memory.device_basis.empty())
        add_once(section.memory_bases, formatted("{}: {}", file.engine, cell.memory.device_basis));
    }
    for (const CompileTime& time : file.compile) {
      CompileSeries& series = section.compile[compile_key(make_id(file.workload, "", time.contract), file.engine)];
      (time.cold ? series.cold : series.warm).push_back(time.seconds);
    }
    const auto fact = [&](const std::string& name, const std::string& value) {
      if (!value.empty()) add_once(section.facts[name][file.engine == "pytorch"], value);
    };
    for (const auto& [name, value] : file.environment) fact(name, value);
    fact("revision", file.revision);
    fact("tree clean at build", file.clean ? (*file.clean ? "yes" : "no") : "not known");
    fact("data of " + file.workload + " (SHA-256)", file.sha256);
  }

  void add(const GateFile& file) {
    const GateSubject& subject = file.gate.subject;
    Section* section = nullptr;
    for (auto& [key, candidate] : sections_) {
      if ((!subject.gpu.empty() && subject.gpu != key.second) ||
          (!subject.config.empty() && subject.config != key.first))
        continue;
      if (section != nullptr)
        fail(ErrorCode::CorruptFile, "{}: 'gpu' or 'config' is missing, and there are several", file.file);
      section = &candidate;
    }
    if (section == nullptr)
      fail(ErrorCode::CorruptFile, "{}: there are no results of 'gpu' '{}', 'config' '{}'", file.file, subject.gpu,
           subject.config);
    Comparison& cell = section->cells[make_id(subject.workload, subject.phase, subject.contract)];
    put_verdict(cell, file.gate.candidate);
    if (!file.gate.baseline) return;
    cell.baseline = file.gate.baseline;
    if (file.gate.baseline->engine == "pytorch") put_verdict(cell, *file.gate.baseline);
  }

  std::vector<Section> finish() {
    std::vector<Section> result;
    for (auto& [key, section] : sections_) {
      section.config = key.first;  // "full" sorts before "small"
      section.gpu = key.second;
      result.push_back(std::move(section));
    }
    return result;
  }

 private:
  [[noreturn]] static void contradiction(const ResultFile& file, const ResultFile& other, const std::string& what) {
    fail(ErrorCode::CorruptFile, "{} and {}: {}", other.file, file.file, what);
  }
  /// A candidate that does not say its engine is ours. Of several verdicts a failed one stays.
  static void put_verdict(Comparison& cell, const Verdict& verdict) {
    std::optional<Verdict>* place = nullptr;
    if (verdict.engine == "pytorch") {
      const auto found = cell.pytorch.find(verdict.mode);
      if (found == cell.pytorch.end()) return;
      place = &found->second.verdict;
    } else {
      if (!cell.ours) cell.ours.emplace();
      place = &cell.ours->verdict;
    }
    if (!*place || (*place)->pass()) *place = verdict;
  }

  std::map<std::pair<std::string, std::string>, Section> sections_;  ///< by configuration and GPU
  std::map<std::string, const ResultFile*> data_, measured_;         ///< the first file with that data, that cell
};

}  // namespace

std::optional<double> Series::median_ms() const {
  return medians_ms.empty() ? std::nullopt : std::optional(quantile(medians_ms, 0.5));
}

std::vector<std::string> faults(const Series& series, bool elementwise_counts) {
  std::vector<std::string> result;
  if (!series.error.empty()) result.push_back("error: " + series.error);
  if (series.verdict) {
    for (const std::string& reason : series.verdict->reasons) {
      if (elementwise_counts || !reason.starts_with("elementwise")) result.push_back(reason);
    }
  }
  return result;
}

bool Comparison::ours_valid() const { return ours && !ours->medians_ms.empty() && faults(*ours, true).empty(); }

const std::pair<const std::string, Series>* Comparison::opponent() const {
  const std::pair<const std::string, Series>* best = nullptr;
  for (const auto& mode : pytorch) {
    const std::optional<double> ms = mode.second.median_ms();
    if (ms && faults(mode.second, false).empty() && (best == nullptr || *ms < *best->second.median_ms())) best = &mode;
  }
  return best;
}

std::optional<double> Comparison::ours_ms() const { return ours_valid() ? ours->median_ms() : std::nullopt; }
std::optional<double> Comparison::pytorch_ms() const {
  const auto* best = opponent();
  return best != nullptr ? best->second.median_ms() : std::nullopt;
}
std::optional<double> Comparison::ratio() const {
  const std::optional<double> own = ours_ms(), other = pytorch_ms();
  return own && other ? std::optional(*own / *other) : std::nullopt;
}

std::optional<double> Section::compile_seconds(const CellId& id, std::string_view engine, bool cold) const {
  const auto found = compile.find(compile_key(id, engine));
  if (found == compile.end()) return std::nullopt;
  const std::vector<double>& seconds = cold ? found->second.cold : found->second.warm;
  return seconds.empty() ? std::nullopt : std::optional(quantile(seconds, 0.5));
}

std::vector<Section> compare(const Documents& documents) {
  Builder builder;
  for (const ResultFile& file : documents.results) builder.add(file);
  for (const GateFile& file : documents.gates) builder.add(file);
  return builder.finish();
}

std::array<double, 2> portability(const std::vector<Section>& sections, const std::string& config, const CellId& id) {
  std::array<std::vector<double>, 2> efficiencies;
  for (const Section& section : sections) {
    if (section.config != config) continue;
    std::array<std::optional<double>, 2> ms;
    if (const auto found = section.cells.find(id); found != section.cells.end())
      ms = {found->second.ours_ms(), found->second.pytorch_ms()};
    const double best = std::min(ms[0].value_or(INFINITY), ms[1].value_or(INFINITY));
    for (std::size_t i = 0; i < 2; ++i) efficiencies[i].push_back(ms[i] ? best / *ms[i] : 0);
  }
  return {pennycook(efficiencies[0]), pennycook(efficiencies[1])};
}

}  // namespace aeshna::bench
