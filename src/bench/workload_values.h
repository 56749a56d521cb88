#pragma once
// The numbers that a workload computes with: docs/benchmark.md, "Data".
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "aeshna/session.h"
#include "nn/models/workloads.h"

namespace aeshna::bench {

/// Values of parameters by name and of inputs as "input/NAME", drawn here or read from a file as they are asked for.
class WorkloadValues {
 public:
  WorkloadValues(const models::Workload& workload, std::uint64_t seed);
  /// Error if the file is none of this workload, by its metadata.
  WorkloadValues(const models::Workload& workload, const std::filesystem::path& file);

  Literal get(const std::string& name) const { return get_(name); }  ///< Error(NotFound)
  const std::string& sha256() const { return sha256_; }              ///< of the file; "" if drawn here
  std::uint64_t seed() const { return seed_; }

 private:
  std::function<Literal(const std::string&)> get_;
  std::string sha256_;
  std::uint64_t seed_ = 0;
};

/// Puts the graph's parameters that the store lacks into it. Error if a type is not the graph's.
void add_parameters(const Weights& weights, const Graph& graph, const WorkloadValues& values);
/// Sets every input of the session's graph: to the first elements of the value, of which phase `minimal` has fewer.
void set_inputs(Session& session, const WorkloadValues& values);

/// What `aeshna bench data` does; returns the file's bytes.
std::uint64_t write_data(const models::Workload& workload, std::uint64_t seed, const std::filesystem::path& file);

std::string_view config_name(const models::Workload& workload);  ///< "full" or "small"

}  // namespace aeshna::bench
