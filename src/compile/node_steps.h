#pragma once
// What dce, cse and fold do to one node of a rebuild. Each is a pass of its own (stages.h), and the rewriter does all of them in the
// walk in which it applies its rules: copying a graph costs more than looking at it.
#include <map>
#include <vector>

#include "base/hash.h"
#include "ir/rebuild.h"

namespace aeshna {

/// Nodes that an output, an assign, another sink or the host (leaves, by name) needs. (dce.cpp)
std::vector<bool> live_nodes(const Graph& graph);

/// Maps `node` to constants if its operands are constants in the target; else does nothing and returns false. (fold.cpp)
bool fold_node(Rebuilder& rebuild, NodeId node);

/// The nodes of a target by what they compute. (cse.cpp)
class CommonNodes {
 public:
  /// Maps `node` to an equal one of the target; else copies it. True if it was merged.
  bool merge_or_copy(Rebuilder& rebuild, NodeId node);

 private:
  std::map<Hasher::Key, NodeId> seen_;
};

}  // namespace aeshna
