#pragma once
// The files of a benchmark, as `aeshna bench report` reads them: docs/benchmark.md, "Result files".
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gate.h"

namespace aeshna::bench {

// Names that files may use, in the order in which tables have them.
inline constexpr std::array<std::string_view, 2> kContracts = {"strict", "accelerated"};
inline constexpr std::array<std::string_view, 3> kPhases = {"full", "minimal", "train"};
inline constexpr std::array<std::string_view, 3> kModes = {"eager", "compile", "graph"};  ///< of PyTorch
inline constexpr std::array<std::string_view, 5> kWorkloads = {"smollm2", "smolvla", "unet", "resnet50", "whisper"};

struct MemoryUse {
  std::optional<std::uint64_t> plan_logical, plan_physical, peak_allocated, peak_reserved, device;
  std::string device_basis;
};

/// A cell of a result file: one phase under one contract in one mode.
struct Measurement {
  std::string phase, contract, mode;
  std::string error;               ///< not empty: nothing was measured
  std::vector<double> samples_ms;  ///< not empty, unless there is an error
  MemoryUse memory;
  std::optional<std::uint64_t> dispatches, barriers;
};

struct CompileTime {
  std::string contract;
  bool cold = false;
  double seconds = 0;
};

struct ResultFile {
  std::string file, engine, workload, config, revision, gpu, sha256;
  std::optional<bool> clean;
  std::uint64_t process = 0;
  std::map<std::string, std::string> environment;
  std::vector<CompileTime> compile;
  std::vector<Measurement> cells;
};

struct GateFile {
  std::string file;
  GateResult gate;
};

struct Documents {
  std::vector<ResultFile> results;
  std::vector<GateFile> gates;
};

/// Folders are searched for *.json, in which JSON that is not of this benchmark is left out; files must be of it. Error(NotFound, Io or
/// CorruptFile) names the file and, where there is one, the field.
Documents read_documents(std::span<const std::filesystem::path> paths);

}  // namespace aeshna::bench
