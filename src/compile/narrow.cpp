// narrow: concatenations of more parts than a kernel can have operands become trees of narrower ones.
#include <algorithm>

#include "compile/stages.h"
#include "ir/op.h"
#include "ir/rebuild.h"

namespace aeshna {

std::shared_ptr<Graph> narrow_concats(std::shared_ptr<Graph> graph, const Caps& caps) {
  const std::size_t most = std::max<std::size_t>(caps.max_storage_buffers, 3) - 1;  // one is written
  const auto wide = [&](const Node& node) { return node.op->movement == MovementKind::Concat && node.inputs.size() > most; };
  if (std::ranges::none_of(graph->nodes(), wide)) return graph;
  Rebuilder rebuilder(*graph);
  for (NodeId id = 0; id < graph->nodes().size(); ++id) {
    const Node& node = graph->node(id);
    if (!wide(node)) {
      rebuilder.copy(id);
      continue;
    }
    std::vector<ValueId> parts;
    for (const ValueId input : node.inputs) parts.push_back(rebuilder.mapped(input).id());
    while (parts.size() > 1) {
      std::vector<ValueId> joined;
      for (std::size_t i = 0; i < parts.size(); i += most) {
        std::vector<ValueId> group(parts.begin() + static_cast<std::ptrdiff_t>(i),
                                   parts.begin() + static_cast<std::ptrdiff_t>(std::min(i + most, parts.size())));
        joined.push_back(group.size() == 1 ? group[0]
                                           : ValueId{rebuilder.target().add_node(*node.op, std::move(group), node.attrs, node), 0});
      }
      parts = std::move(joined);
    }
    rebuilder.map(id, {rebuilder.target().value(parts[0])});
  }
  return rebuilder.finish();
}

}  // namespace aeshna
