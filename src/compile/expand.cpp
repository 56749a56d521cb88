// Composites become primitives.

#include "base/fail.h"
#include "base/format.h"
#include "compile/stages.h"
#include "compile/widen.h"
#include "ir/op.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

bool has_composites(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    const auto half = [&](ValueId input) { return is_half(graph.type(input).dtype); };
    return node.op->kind == OpKind::Composite || (node.op->kind == OpKind::Kernel && std::ranges::any_of(node.inputs, half));
  });
}

/// Kernel templates know 32-bit elements only: the node between casts.
std::vector<Value> widened_kernel(Graph& target, const Node& node, std::span<const Value> inputs) {
  Node like = node;
  like.name.clear();
  const BuildContext context{target, like};
  std::vector<ValueId> operands;
  for (const Value& value : widened(context, inputs)) operands.push_back(value.id());
  const NodeId wide = target.add_node(*node.op, std::move(operands), node.attrs, like);
  std::vector<Value> results;
  for (std::uint32_t r = 0; r < node.results.size(); ++r)
    results.push_back(cast_value(context, target.value({wide, r}), node.results[r].dtype));
  return results;
}

/// One level: expansions may hold composites again.
std::shared_ptr<Graph> expand_once(const Graph& graph) {
  Rebuilder rebuild(graph);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.node(id);
    std::vector<Value> inputs;
    for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input));
    if (node.op->kind == OpKind::Kernel && any_half(inputs)) {
      rebuild.map(id, widened_kernel(rebuild.target(), node, inputs));
      continue;
    }
    if (node.op->kind != OpKind::Composite) {
      rebuild.copy(id);
      continue;
    }
    if (!node.op->expand) fail(ErrorCode::Internal, "[{}] is a composite without an expansion", node.op->name);
    Node like = node;
    like.name.clear();
    const BuildContext context{rebuild.target(), like};
    std::vector<Value> results = node.op->expand(context, node.op->moves_elements ? inputs : widened(context, inputs));
    if (results.size() != node.results.size()) {
      fail(ErrorCode::Internal, "[{}] expands to {} results instead of {}", node.op->name, results.size(),
           node.results.size());
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (is_half(node.results[r].dtype)) results[r] = cast_value(context, results[r], node.results[r].dtype);
      if (results[r].type() != node.results[r]) {
        Error error(ErrorCode::Internal, formatted("[{}] expands to {} instead of {}", node.op->name,
                                                   results[r].type().to_string(), node.results[r].to_string()));
        throw error.context("the call at " + node.line.to_string());
      }
    }
    rebuild.map(id, results);
  }
  return rebuild.finish();
}

}  // namespace

std::shared_ptr<Graph> expand_composites(const Graph& graph) {
  constexpr int kMaxDepth = 32;  // a composite that expands to itself is a bug, not a hang
  std::shared_ptr<Graph> expanded = expand_once(graph);
  for (int depth = 1; has_composites(*expanded); ++depth) {
    AESHNA_CHECK(depth < kMaxDepth);
    expanded = expand_once(*expanded);
  }
  return expanded;
}

}  // namespace aeshna
