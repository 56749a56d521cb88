// Dead code elimination.
#include "compile/node_steps.h"
#include "compile/stages.h"
#include "ir/op.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

/// Inputs, parameters and states are the graph's interface: the host writes, saves and loads them by name, so they stay
/// even when nothing reads them. Constants are leaves without that role.
bool is_interface(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return node.op->kind == OpKind::Leaf && graph.leaf(node.name) == id;
}

}  // namespace

std::vector<bool> live_nodes(const Graph& graph) {
  const auto nodes = graph.nodes();
  std::vector<bool> live(nodes.size(), false);
  for (const Graph::Output& output : graph.outputs()) live[output.value.node] = true;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const auto id = static_cast<NodeId>(i);
    if (nodes[i].op->kind == OpKind::Sink || is_interface(graph, id)) live[i] = true;
    if (!live[i]) continue;
    for (const ValueId& input : nodes[i].inputs) live[input.node] = true;
  }
  return live;
}

std::shared_ptr<Graph> eliminate_dead(const Graph& graph) {
  const std::vector<bool> live = live_nodes(graph);
  Rebuilder rebuild(graph);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (live[i]) {
      rebuild.copy(id);
    } else {
      rebuild.drop(id);
    }
  }
  return rebuild.finish();
}

}  // namespace aeshna
