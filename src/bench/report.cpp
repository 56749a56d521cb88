#include "bench/report.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "bench/page.h"
#include "bench/statistics.h"
#include "io/json_writer.h"

namespace aeshna::bench {
namespace {

const std::string kNothing = "\u2013";
constexpr std::string_view kFailed = " \u2020", kUnjudged = " \u2021";

std::string short_number(double value) { return formatted("{:.{}f}", value, value < 10 ? 3 : value < 100 ? 2 : 1); }
std::string error_text(const std::optional<double>& error) { return error ? formatted("{:.2e}", *error) : kNothing; }

/// The first two columns.
std::string row_begin(const CellId& id) { return id.workload + kNext + std::string(kPhases[id.phase]); }

using Cells = std::vector<std::pair<CellId, const Comparison*>>;
Cells cells_of(const Section& section, std::size_t contract) {
  Cells cells;
  for (const auto& [id, cell] : section.cells) {
    if (id.contract == contract) cells.emplace_back(id, &cell);
  }
  return cells;
}

/// A time with the mark of what is wrong with it, which `notes` explain.
std::string marked_ms(const Series& series, const std::vector<std::string>& faults, const std::string& who,
                      std::vector<std::string>& notes) {
  for (const std::string& fault : faults) notes.push_back(formatted("\u2020 {}: {}", who, fault));
  const std::optional<double> ms = series.median_ms();
  std::string text = ms ? short_number(*ms) : series.error.empty() ? kNothing : "error";
  if (!faults.empty()) text += kFailed;
  return text;
}

void add_times(Page& page, const Cells& cells) {
  std::vector<std::string> rows = {"workload\tphase\tAeshna\tquartiles\teager\tcompile\tgraph\tratio"}, notes;
  bool unjudged = false;
  for (const auto& [id, cell] : cells) {
    const std::string where = formatted("{} {}", id.workload, kPhases[id.phase]);
    const std::optional<double> ratio = cell->ratio();
    const std::string bold(ratio && *ratio < 1 ? 1 : 0, kBold);
    std::string row = row_begin(id) + kNext + bold, quartiles = kNothing;
    if (cell->ours) {
      const Series& own = *cell->ours;
      row += marked_ms(own, faults(own, true), where + ", Aeshna", notes);
      if (!own.verdict) unjudged = true, row += kUnjudged;
      if (!own.samples_ms.empty())
        quartiles =
            short_number(quantile(own.samples_ms, 0.25)) + kNothing + short_number(quantile(own.samples_ms, 0.75));
    } else {
      row += kNothing;
    }
    row += kNext + quartiles;
    for (const std::string_view mode : kModes) {
      const auto found = cell->pytorch.find(std::string(mode));
      row += kNext;
      row += found == cell->pytorch.end() ? kNothing
                                          : marked_ms(found->second, faults(found->second, false),
                                                      formatted("{}, PyTorch {}", where, mode), notes);
    }
    rows.push_back(row + kNext + bold + (ratio ? formatted("{:.2f}", *ratio) : kNothing));
  }
  if (unjudged) notes.push_back("\u2021 No gate file: not judged.");
  page.heading(4, "Time, ms");
  page.table(std::move(rows), 2);
  page.list(std::move(notes));
}

void add_compile(Page& page, const Section& section, const Cells& cells) {
  std::vector<std::string> rows = {"workload\tAeshna cold\tAeshna warm\tPyTorch cold\tPyTorch warm"};
  std::string last;
  for (const auto& [id, cell] : cells) {
    if (id.workload == last) continue;
    std::string row = last = id.workload;
    for (const char* engine : {"aeshna", "pytorch"}) {
      for (const bool cold : {true, false}) {
        const std::optional<double> seconds = section.compile_seconds(id, engine, cold);
        row += kNext + (seconds ? short_number(*seconds) : kNothing);
      }
    }
    rows.push_back(std::move(row));
  }
  page.heading(4, "Compilation of all three phases, s");
  page.table(std::move(rows), 1);
}

void add_memory(Page& page, const Cells& cells) {
  std::vector<std::string> rows = {
      "workload\tphase\tAeshna: plan, logical\tplan, physical\tdevice\tPyTorch: peak allocated\tpeak reserved\tdevice\t"
      "Aeshna: dispatches\tbarrier groups"};
  for (const auto& [id, cell] : cells) {
    const auto* opponent = cell->opponent();
    const MemoryUse own = cell->ours ? cell->ours->memory : MemoryUse();
    const MemoryUse other = opponent != nullptr ? opponent->second.memory : MemoryUse();
    std::string row = row_begin(id);
    for (const auto& bytes :
         {own.plan_logical, own.plan_physical, own.device, other.peak_allocated, other.peak_reserved, other.device})
      row += kNext + (bytes ? formatted("{:.1f}", static_cast<double>(*bytes) / (1 << 20)) : kNothing);
    for (const auto& count :
         {cell->ours ? cell->ours->dispatches : std::nullopt, cell->ours ? cell->ours->barriers : std::nullopt})
      row += kNext + (count ? std::to_string(*count) : kNothing);
    rows.push_back(std::move(row));
  }
  page.heading(4, "Memory, MiB, and what a step launches");
  page.table(std::move(rows), 2);
}

/// The errors of a verdict in the order of the table.
std::array<std::optional<double>, 6> errors_of(const std::optional<Verdict>& verdict) {
  if (!verdict) return {};
  const BackwardGate backward = verdict->backward.value_or(BackwardGate());
  const ElementwiseGate elementwise = verdict->elementwise.value_or(ElementwiseGate());
  return {verdict->forward.output_rel_l2, verdict->forward.loss_error, backward.total_norm_error,
          backward.norm_vector_error,     elementwise.worst_error,     elementwise.median};
}

void add_gates(Page& page, const Cells& cells) {
  std::vector<std::string> rows = {
      "workload\tphase\tworst gradient (Aeshna)\tlimit\toutput\tloss\ttotal norm\tvector of norms\tworst "
      "gradient\tmedian "
      "gradient"};
  for (const auto& [id, cell] : cells) {
    const auto* opponent = cell->opponent();
    const std::optional<Verdict> own = cell->ours ? cell->ours->verdict : std::nullopt;
    const std::optional<Verdict> other =
        cell->baseline || opponent == nullptr ? cell->baseline : opponent->second.verdict;
    const ElementwiseGate elementwise = own && own->elementwise ? *own->elementwise : ElementwiseGate();
    std::string row = row_begin(id) + kNext + (elementwise.worst_name.empty() ? kNothing : elementwise.worst_name) +
                      kNext + (elementwise.limit > 0 ? formatted("{:g}", elementwise.limit) : kNothing);
    const auto ours = errors_of(own), theirs = errors_of(other);
    for (std::size_t i = 0; i < ours.size(); ++i) row += kNext + error_text(ours[i]) + " / " + error_text(theirs[i]);
    rows.push_back(std::move(row));
  }
  page.heading(4, "Errors against PyTorch in float64: Aeshna / PyTorch's own");
  page.table(std::move(rows), 3);
}

void add_environment(Page& page, const Section& section) {
  page.heading(3, "Environment");
  if (!section.memory_bases.empty())
    page.paragraph("Bytes of the plan are what one session needs. Bytes of the device: " + section.memory_bases + '.');
  std::vector<std::string> rows = {"\tAeshna\tPyTorch"};
  for (const auto& [name, values] : section.facts) {
    std::string row = name;
    for (const std::string& value : values) row += kNext + (value.empty() ? kNothing : value);
    rows.push_back(std::move(row));
  }
  page.table(std::move(rows), 3);
}

void add_section(Page& page, const Section& section) {
  page.heading(2, section_title(section));
  std::size_t fewest = SIZE_MAX, most = 0;  // processes: a series that was broken off has fewer
  for (const auto& [id, cell] : section.cells) {
    if (!cell.ours) continue;
    fewest = std::min(fewest, cell.ours->medians_ms.size());
    most = std::max(most, cell.ours->medians_ms.size());
  }
  const std::string processes = fewest < most ? formatted("{} to {} processes", fewest, most)
                                              : formatted("{} process{}", most, most == 1 ? "" : "es");
  page.paragraph(
      formatted("Times are medians over the medians of {}; quartiles are over all samples. The ratio is the "
                "time of Aeshna over that of the fastest valid mode of PyTorch; bold where Aeshna is faster.",
                processes));
  for (std::size_t contract = 0; contract < kContracts.size(); ++contract) {
    const Cells cells = cells_of(section, contract);
    if (cells.empty()) continue;
    page.heading(3, contract == 0 ? "Strict: f32 products" : "Accelerated: 16-bit inputs of products, TF32");
    add_times(page, cells);
    add_compile(page, section, cells);
    add_memory(page, cells);
    add_gates(page, cells);
  }
  add_environment(page, section);
}

constexpr std::size_t kColumns = 2 * kPhases.size();  ///< of portability: each phase, each engine

/// A table for each contract, over all sections of one configuration.
void add_portability(Page& page, const std::vector<Section>& sections, const std::string& config) {
  std::map<CellId, std::array<double, 2>> values;
  std::size_t devices = 0;
  for (const Section& section : sections) {
    if (section.config != config) continue;
    ++devices;
    for (const auto& [id, cell] : section.cells) values[id] = portability(sections, config, id);
  }
  for (std::size_t contract = 0; contract < kContracts.size(); ++contract) {
    std::array<double, kColumns> sums{}, counts{};
    std::vector<std::string> rows = {
        "workload\tfull: Aeshna\tPyTorch\tminimal: Aeshna\tPyTorch\ttrain: Aeshna\tPyTorch"};
    const auto add_row = [&](CellId id) {
      std::string row = id.workload;
      for (std::size_t column = 0; column < kColumns; ++column) {
        id.phase = column / 2;
        const auto found = values.find(id);
        row += kNext;
        if (found == values.end()) {
          row += kNothing;
          continue;
        }
        row += formatted("{:.2f}", found->second[column % 2]);
        sums[column] += found->second[column % 2];
        ++counts[column];
      }
      rows.push_back(std::move(row));
    };
    std::string last;
    for (const auto& [id, value] : values) {
      if (id.contract == contract && id.workload != last) add_row(id);
      if (id.contract == contract) last = id.workload;
    }
    if (rows.size() == 1) continue;
    std::string mean = std::string(1, kBold) + "mean";
    for (std::size_t i = 0; i < kColumns; ++i)
      mean += std::string{kNext, kBold} + (counts[i] > 0 ? formatted("{:.2f}", sums[i] / counts[i]) : kNothing);
    rows.push_back(std::move(mean));
    page.heading(3, formatted("{}{}: {} device{}", kContracts[contract],
                              config == "full" ? "" : ", small configurations", devices, devices == 1 ? "" : "s"));
    page.table(std::move(rows), 1);
  }
}

void write_summary(JsonWriter& json, const Section& section, const CellId& id, const Comparison& cell) {
  const Series own = cell.ours.value_or(Series());
  const Verdict verdict = own.verdict.value_or(Verdict());
  const ElementwiseGate elementwise = verdict.elementwise.value_or(ElementwiseGate());
  const auto* opponent = cell.opponent();
  const auto revision = section.facts.find("revision");
  const auto pass = [](bool exists, const auto& gate) { return exists ? std::optional(gate->pass) : std::nullopt; };
  json.text("workload", id.workload);
  json.text("phase", kPhases[id.phase]);
  json.text("contract", kContracts[id.contract]);
  json.number("ours_ms", own.median_ms());
  json.number("pytorch_ms", cell.pytorch_ms());
  json.text("pytorch_mode", opponent != nullptr ? opponent->first : "");
  json.number("ratio", cell.ratio());
  json.flag("forward_gate", pass(own.verdict.has_value(), &verdict.forward));
  json.flag("backward_gate", pass(verdict.backward.has_value(), verdict.backward));
  json.flag("elementwise_gate", pass(verdict.elementwise.has_value(), verdict.elementwise));
  if (elementwise.worst_name.empty()) {
    json.raw("worst_gradient", "null");
  } else {
    json.begin("worst_gradient", '{');
    json.text("name", elementwise.worst_name);
    json.number("error", elementwise.worst_error);
    json.end();
  }
  json.count("plan_physical_bytes", own.memory.plan_physical);
  json.count("plan_logical_bytes", own.memory.plan_logical);
  json.count("pytorch_peak_bytes", opponent != nullptr ? opponent->second.memory.peak_allocated : std::nullopt);
  json.number("compile_cold_s", section.compile_seconds(id, "aeshna", true));
  json.number("compile_warm_s", section.compile_seconds(id, "aeshna", false));
  json.count("dispatches", own.dispatches);
  json.count("barriers", own.barriers);
  json.text("revision", revision == section.facts.end() ? "" : revision->second[0]);
}

/// A list of cells, section by section.
std::string summary(const std::vector<Section>& sections) {
  JsonWriter json;
  json.begin('[');
  for (const Section& section : sections) {
    for (const auto& [id, cell] : section.cells) {
      json.begin('{');
      write_summary(json, section, id, cell);
      if (sections.size() > 1) {
        json.text("gpu", section.gpu);
        json.text("config", section.config);
      }
      json.end();
    }
  }
  json.end();
  return json.take();
}

}  // namespace

std::string section_title(const Section& section) {
  return section.gpu + (section.config == "full" ? "" : " (small configurations)");
}

Report make_report(const std::vector<Section>& sections) {
  Report report;
  report.svg = ratio_plot(sections);
  Page page;
  page.heading(1, "Aeshna and PyTorch: five workloads");
  page.figure(report.svg, "ratios.svg",
              "Time of Aeshna over time of the fastest valid mode of PyTorch. Left of the line Aeshna is faster.");
  for (const Section& section : sections) add_section(page, section);
  page.heading(2, "Performance portability");
  page.paragraph(
      "Harmonic mean, over the devices, of an engine's efficiency: the best valid time of either engine on that device "
      "over its "
      "own (Pennycook, Sewall and Lee, A Metric for Performance Portability, 2016). A device without a valid result "
      "makes it 0.");
  for (const char* config : {"full", "small"}) add_portability(page, sections, config);
  report.markdown = page.markdown();
  report.html = page.html();
  report.summary = summary(sections);
  return report;
}

}  // namespace aeshna::bench
