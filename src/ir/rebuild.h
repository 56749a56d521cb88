#pragma once
// The one way in which passes replace nodes: walk an old graph in order, build a new one, keep origins and precision.
#include <functional>
#include <memory>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna {

class Rebuilder {
 public:
  explicit Rebuilder(const Graph& source);
  const Graph& source() const { return source_; }
  Graph& target() { return *target_; }
  /// New value of an old one; it must have been mapped already.
  Value mapped(ValueId old) const;
  /// The old node with mapped inputs (same attrs, name, line, segment, precision, origins).
  std::vector<Value> copy(NodeId old);
  /// Declares what stands for the old node's results; origins and the strictest precision are merged into every node
  /// that was appended to the target since the last map/copy call.
  void map(NodeId old, std::vector<Value> replacement);
  /// Old node has no stand-in (dead).
  void drop(NodeId old);
  /// Copies outputs and assigns of the source; the rebuilt graph.
  std::shared_ptr<Graph> finish();

 private:
  const Graph& source_;
  std::shared_ptr<Graph> target_;
  std::vector<std::vector<ValueId>> map_;
  std::vector<bool> done_;  ///< copied, mapped or dropped
  NodeId appended_from_ = 0;
};

/// A deep copy.
std::shared_ptr<Graph> clone(const Graph& graph);

/// For each node, the number of uses of each result (inputs of other nodes, outputs and assigns included).
std::vector<std::vector<std::uint32_t>> count_uses(const Graph& graph);

}  // namespace aeshna
