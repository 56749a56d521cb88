#pragma once
#include "aeshna/graph.h"

namespace aeshna {

/// Every invariant of a graph: inputs precede nodes, arity, re-inferred types equal the stored ones, unique leaf and output
/// names, assigns to leaves with equal types and at most once, segments non-decreasing along edges.
/// Throws Error(Internal or InvalidArgument) that names node, op and builder line. `stage` goes into the message.
void verify(const Graph& graph, std::string_view stage);

}  // namespace aeshna
