#pragma once
// Leaves with random values, formulas of graphs as text, comparisons: what tests of graphs share.
#include <cstdint>
#include <string>

#include "aeshna/graph.h"
#include "ir/interpreter.h"

namespace aeshna::test {

/// Values for every input, parameter and state of a graph. Floats are drawn from [low, high], integers from [0, 9], booleans
/// from {0, 1}; a leaf's values depend on the seed and its name alone.
TensorMap random_leaves(const Graph& graph, std::uint64_t seed, double low = -2, double high = 2);

HostTensor tensor(TensorType type, std::vector<double> data);
HostTensor tensor(Shape shape, std::vector<double> data);  ///< f32

/// An output as one expression, such as "mul(x, 0.5)" or "sum(x){axes=[0], keepdims=false}".
std::string formula(const Graph& graph, std::string_view output = "y");

/// Largest |got - want| / max(1, |want|); NaN against NaN and equal infinities count as 0, other non-finite pairs as infinity.
double difference(const HostTensor& got, const HostTensor& want);
/// The same bits: also the sign of zero; any NaN equals any NaN.
bool identical(const HostTensor& got, const HostTensor& want);

/// The number of nodes of this op.
int count_ops(const Graph& graph, std::string_view op);

}  // namespace aeshna::test
