#pragma once
// The five workloads of the benchmark (docs/benchmark.md): which graph each phase runs, and the data that every engine reads.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna::models {

enum class Phase : std::uint8_t { Full, Minimal, Train };
std::string_view phase_name(Phase phase);  ///< "full", "minimal", "train"

struct Workload {
  std::string name, title;
  bool small = false;
  std::int64_t batch = 1;                       ///< of full and train
  std::int64_t parameters = 0, trainable = 0;   ///< elements, as published
  std::int64_t parameter_tensors = 0;
  double forward_flop[2] = {};                  ///< multiply and add counted apart: full, minimal
  /// Appends the model: named inputs, the output "output", and for Train the output "loss". Minimal has one sample,
  /// whatever the batch.
  void (*build)(Graph& graph, Phase phase, bool small, std::int64_t batch) = nullptr;
};

/// All five, at their published sizes or small (at most 20 MFLOP forward).
std::span<const Workload> workloads(bool small = false);
/// Error(NotFound) with the names there are.
const Workload& find_workload(std::string_view name, bool small = false);

/// Values of parameters, by name, and of the inputs of the full phase and of training, as "input/<name>": docs/benchmark.md says how.
std::map<std::string, Literal> workload_data(const Workload& workload, std::uint64_t seed);

}  // namespace aeshna::models
