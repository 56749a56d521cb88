#pragma once
// Measures one workload in this process: docs/benchmark.md, "Measuring".
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "bench/workload_values.h"

namespace aeshna::bench {

/// Cold: every contract finds an empty folder of compiled kernels. Warm: they have been compiled before, by another device object.
enum class Cache : std::uint8_t { Cold, Warm };

struct RunOptions {
  std::vector<Contract> contracts = {Contract::Strict, Contract::Accelerated};
  std::vector<models::Phase> phases = {models::Phase::Full, models::Phase::Minimal, models::Phase::Train};
  std::optional<std::filesystem::path> tensors = {};  ///< folder for outputs and gradients
  std::uint64_t process = 1;
  Cache cache = Cache::Warm;
  int warmups = 5;  ///< at least, and for half a second; 0: none
  int samples = 20;
  DeviceRequest device = {};
  Revision revision = {};
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct RunResult {
  std::string json;                             ///< the result file
  std::vector<std::vector<std::string>> table;  ///< for people; the first row is the heading
  int failed = 0;                               ///< cells without numbers
};

RunResult run(const models::Workload& workload, const WorkloadValues& values, const RunOptions& options);

}  // namespace aeshna::bench
