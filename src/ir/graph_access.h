#pragma once
// The inside of a Graph, for what builds graphs node by node: rebuild, parse, and tests that plant faults.
#include <map>
#include <string>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna {

class GraphAccess {
 public:
  /// Checks the node (arity, operands, infer; fills `results`, raises `segment` to that of its inputs), registers a leaf or an
  /// assign, and appends it. Names get no scope prefix.
  static NodeId append(Graph& graph, Node node);
  static void add_output(Graph& graph, Graph::Output output);
  static std::vector<Node>& nodes(Graph& graph) { return graph.nodes_; }
  static std::vector<Graph::Output>& outputs(Graph& graph) { return graph.outputs_; }
  static std::vector<NodeId>& assigns(Graph& graph) { return graph.assigns_; }
  static std::map<std::string, NodeId, std::less<>>& leaves(Graph& graph) { return graph.leaves_; }
};

}  // namespace aeshna
