#pragma once
// The two engines side by side: what the files of all processes say of each cell, and who is compared with whom.
#include <array>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/documents.h"

namespace aeshna::bench {

/// A cell of one engine in one mode, over all processes.
struct Series {
  std::vector<double> medians_ms;  ///< of each process
  std::vector<double> samples_ms;  ///< all
  std::string error;               ///< of a process that failed: then the series is invalid
  MemoryUse memory;                ///< largest
  std::optional<std::uint64_t> dispatches, barriers;
  std::optional<Verdict> verdict;

  std::optional<double> median_ms() const;  ///< of the medians; nullopt without any
};

/// Workloads, phases and contracts in the order of tables.
struct CellId {
  std::size_t contract = 0, workload_rank = 0;  ///< index into kContracts
  std::string workload;
  std::size_t phase = 0;  ///< index into kPhases
  friend auto operator<=>(const CellId&, const CellId&) = default;
};

struct Comparison {
  std::optional<Series> ours;
  std::map<std::string, Series> pytorch;  ///< by mode
  std::optional<Verdict> baseline;        ///< PyTorch's own errors, beside ours

  /// No error and no failed gate. Not nullptr.
  bool ours_valid() const;
  /// The fastest valid mode of PyTorch; nullptr: there is none. A failed elementwise gate does not disqualify the opponent.
  const std::pair<const std::string, Series>* opponent() const;
  std::optional<double> ours_ms() const;     ///< if valid
  std::optional<double> pytorch_ms() const;  ///< of the opponent
  std::optional<double> ratio() const;       ///< ours / the opponent's, of valid cells
};
/// Why a series of PyTorch is no opponent; empty: it is one.
std::vector<std::string> faults(const Series& series, bool elementwise_counts);

struct CompileSeries {
  std::vector<double> cold, warm;
};

/// All about one configuration of the workloads on one GPU.
struct Section {
  std::string gpu, config;
  std::map<CellId, Comparison> cells;
  std::map<std::string, CompileSeries> compile;             ///< by compile_key()
  std::map<std::string, std::array<std::string, 2>> facts;  ///< by name: what Aeshna's and PyTorch's files say
  std::string memory_bases;                                 ///< how the drivers' bytes were counted
  /// Median of the compilations of a contract; nullopt without any.
  std::optional<double> compile_seconds(const CellId& id, std::string_view engine, bool cold) const;
};

/// By GPU, full configurations first. Error(CorruptFile) for files that contradict each other: two measurements of one cell by the
/// same process, other data for the two engines, a gate of no known GPU.
std::vector<Section> compare(const Documents& documents);

/// Performance portability of a cell over sections of one configuration (statistics.h): efficiency is the best valid time of either
/// engine on that GPU over its own, 0 without a valid one. Ours, PyTorch's.
std::array<double, 2> portability(const std::vector<Section>& sections, const std::string& config, const CellId& id);

}  // namespace aeshna::bench
