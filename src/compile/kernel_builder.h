#pragma once
// Builds one FusedKernel from a cluster of nodes, on demand from its stored values back to what is in memory.
#include <optional>
#include <string>
#include <vector>

#include "base/caps.h"
#include "compile/index_map.h"
#include "ir/kernel.h"
#include "ir/op.h"

namespace aeshna {

/// What fusion has decided so far.
struct FusionState {
  explicit FusionState(const Graph& g, const Caps& c) : graph(g), caps(c) {}
  const Graph& graph;
  const Caps& caps;
  static constexpr int kNone = -1;
  std::vector<int> cluster_of;     ///< per node; kNone: leaf, sink, transparent
  std::vector<std::vector<NodeId>> clusters;
  std::vector<bool> transparent;   ///< computed wherever it is needed, never stored: movement, iota, cheap recomputed pointwise
  std::vector<bool> external;      ///< its memory is seen from outside: output, assigned value, forced by a failed map
  std::vector<ValueId> storage;    ///< which value's placement holds a stored node (a reshape of it may be the output)
  std::vector<NodeId> assigned_to; ///< leaf that a storage value is assigned to; the node itself when none
  std::vector<std::vector<NodeId>> users;

  bool is_literal(NodeId node) const;  ///< constant with equal elements: a number in the text
  std::vector<std::vector<NodeId>> readers;  ///< per node: who reads it or computes with it, looking through transparent nodes

  /// Fills `readers` from `users` and `transparent`.
  void find_readers();
  /// Whether the node's value must be stored by its cluster.
  bool escapes(NodeId node) const;
};

/// Why a cluster cannot be one kernel; `materialise`, if set, names a movement node whose value must be put in memory.
struct BuildFailure {
  std::string why;
  std::optional<NodeId> materialise;
};

/// The kernel of cluster `id`, or nullopt and the reason.
std::optional<FusedKernel> build_kernel(const FusionState& state, int id, BuildFailure& failure);

}  // namespace aeshna
