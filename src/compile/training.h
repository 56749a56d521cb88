#pragma once
// From a graph with a loss to a graph that trains: what training.cpp and status.cpp share with the stage table.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aeshna/graph.h"
#include "compile/pipeline.h"

namespace aeshna {

/// As differentiate (stages.h), but a value that does not reach the loss has an empty gradient. (autodiff.cpp)
std::vector<Value> reaching_gradients(Graph& graph, Value loss, std::span<const Value> wrt, double seed);

/// Zeros of the type of `value`. (autodiff.cpp)
Value zero_gradient(Graph& graph, Value value);

/// Appends gradients, their accumulation and clipping, the checks of loss and gradient norm, and the optimizer's updates
/// (none without options.optimizer: then the gradients are outputs). Whatever a step assigns depends on the placeholder
/// inputs `aeshna.ok` / `aeshna.micro_ok`, which lower_checks replaces once composites, and so all checks, are expanded.
/// See docs/semantics.md, "Training steps". (training.cpp)
std::shared_ptr<Graph> append_training(const Graph& graph, const PipelineOptions& options);

/// The output that is the loss: the named one, or the only float scalar. Throws Error(NotFound, InvalidArgument or
/// ShapeMismatch) that lists the candidates. (training.cpp)
const Graph::Output& find_loss(const Graph& graph, std::string_view name);

}  // namespace aeshna
