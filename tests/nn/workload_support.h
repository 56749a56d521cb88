#pragma once
// The benchmark's workloads in tests: a graph with its data, for a session and for the interpreter.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aeshna/session.h"
#include "compile/reserved.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"
#include "nn/models/workloads.h"
#include "support/op_harness.h"

namespace aeshna::test {

inline std::unique_ptr<Graph> workload_graph(const models::Workload& w, models::Phase phase, std::int64_t batch) {
  auto graph = std::make_unique<Graph>();
  w.build(*graph, phase, w.small, batch);
  return graph;
}

inline HostTensor host(const Literal& value) {
  return tensor(value.type().shape, value.to_doubles(), value.type().dtype);
}

/// Values of a workload by leaf name.
inline TensorMap leaf_values(const std::map<std::string, Literal>& data) {
  TensorMap leaves;
  for (const auto& [name, value] : data)
    leaves.emplace(name.starts_with("input/") ? name.substr(6) : name, host(value));
  return leaves;
}

/// sqrt(sum (a - b)^2 / sum b^2), with a floor for the denominator.
inline double relative_l2(const std::vector<double>& a, const std::vector<double>& b, double floor = 0) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a.at(i) - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), floor);
}

}  // namespace aeshna::test
