#pragma once
// Random valid graphs for differential tests, and what may be expected of another way of running them.
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "aeshna/graph.h"
#include "ir/interpreter.h"

namespace aeshna::test {

struct RandomGraphOptions {
  int ops = 25;               ///< about how many calls of op functions
  bool loss = true;           ///< an output "loss": a scalar that depends on a trainable parameter
  bool random = true;         ///< with random_uniform and random_normal
  bool stop_gradient = true;  ///< false: so that gradients equal differences
  bool attention = true;      ///< false: for devices with fewer storage buffers than its kernels bind
};

/// A graph over all ops: extents 0, 1, 3, 5, 7, 17, values in ranges in which every op is defined and well conditioned.
/// Equal seeds give equal graphs.
struct RandomGraph {
  std::unique_ptr<Graph> graph;
  TensorMap leaves;  ///< values for every leaf (inputs, parameters, states)
};
RandomGraph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

/// What a faithful f32 execution of `graph` (primitives only) may give for each output.
struct Expectation {
  TensorMap exact;                          ///< the interpreter in double
  std::map<std::string, double> tolerance;  ///< absolute, from the f32 interpreter's own error on that output
  /// Outputs downstream of a jump (comparison, floor, argmax, cast to integer...) whose argument is closer to it than the
  /// error there: either side is right, so they cannot be compared.
  std::set<std::string> undecided;
};
Expectation expectation(const Graph& graph, const TensorMap& leaves);

}  // namespace aeshna::test
