#pragma once
// Formulas of the compiler's own (optimizer updates, clipping, status) are written with the op functions of
// aeshna/ops.h; this scope then gives the appended nodes their segment, precision and provenance.
#include "aeshna/graph.h"

namespace aeshna {

/// While it lives, nodes appended to `graph` are of `segment`, Precision::Full, and stand for node `like`.
class AppendScope {
 public:
  AppendScope(Graph& graph, Segment segment, const Node& like, NodeId like_id);
  /// Nodes that stand for no node of the user's.
  AppendScope(Graph& graph, Segment segment, SourceLine line = {});
  ~AppendScope();
  AppendScope(const AppendScope&) = delete;
  AppendScope& operator=(const AppendScope&) = delete;

 private:
  Graph& graph_;
  std::size_t first_;
  Segment segment_;
  SourceLine line_;
  std::vector<NodeId> origins_;
};

/// The nodes of the user's graph that node `id` stands for (itself, if no pass has touched it).
std::vector<NodeId> origins_of(const Node& node, NodeId id);

}  // namespace aeshna
