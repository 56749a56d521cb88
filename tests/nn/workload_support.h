#pragma once
// The benchmark's workloads in tests: a graph with its data, for a session and for the interpreter.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "aeshna/session.h"
#include "compile/reserved.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"
#include "nn/models/workloads.h"
#include "support/graph_values.h"
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

/// Weights of the benchmark, and inputs that differ from sample to sample.
inline TensorMap random_samples(const models::Workload& w, std::int64_t batch) {
  TensorMap leaves = random_leaves(*workload_graph(w, models::Phase::Train, batch), 11, -1, 1);
  for (const auto& [name, value] : models::workload_data(w, 1)) {
    if (!name.starts_with("input/")) leaves.insert_or_assign(name, host(value));
  }
  return leaves;
}

/// The leaves with one sample of each input.
inline TensorMap sample(const models::Workload& w, TensorMap leaves, std::int64_t index) {
  const auto graph = workload_graph(w, models::Phase::Train, 1);
  for (const Node& node : graph->nodes()) {
    if (!is_input(node)) continue;
    const auto size = static_cast<std::ptrdiff_t>(node.results[0].shape.elements());
    const auto first = leaves.at(node.name).data.begin() + index * size;
    leaves.insert_or_assign(node.name, tensor(node.results[0], std::vector<double>(first, first + size)));
  }
  return leaves;
}

/// The rows of [1, rows, width], the first one to the end.
inline void rotate_rows(HostTensor& x) { std::ranges::rotate(x.data, x.data.begin() + x.type.shape[2]); }

/// Inputs of the session, and parameters of its weights.
inline void set_leaves(Session& session, const TensorMap& leaves) {
  Weights weights = session.weights();
  for (const Node& node : session.graph().nodes()) {
    if (!is_input(node) && !is_parameter(node)) continue;
    const HostTensor& value = leaves.at(node.name);
    const Literal literal = Literal::from_doubles(value.type, value.data);
    if (is_input(node)) {
      session.set(node.name, literal);
    } else {
      weights.set(node.name, literal);
    }
  }
}

/// sqrt(sum (a - b)^2 / sum b^2), with a floor for the denominator; infinity if the sizes differ.
inline double relative_l2(const std::vector<double>& a, const std::vector<double>& b, double floor = 0) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), floor);
}

}  // namespace aeshna::test
