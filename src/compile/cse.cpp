// Common subexpressions: equal nodes become one.
#include <algorithm>

#include "compile/node_steps.h"
#include "compile/stages.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ir/structural_hash.h"
#include "ops/appended.h"

namespace aeshna {

namespace {

/// a + b = b + a bit for bit, except for the payload of a NaN.
bool commutative(const OpDef& op) {
  return op.name == "add" || op.name == "mul" || op.name == "logical_and" || op.name == "logical_or" ||
         op.name == "logical_xor";
}

/// Precision is about the inputs of products; elsewhere the derivative region may share what the forward pass computes.
bool precision_matters(const OpDef& op) { return op.kind == OpKind::Product || op.kind == OpKind::Composite; }

bool mergeable(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Leaf:
      return is_constant(node);
    case OpKind::Sink:
      return node.op->name == "check";
    case OpKind::Random:
      return false;
    default:
      return !is_random(node);
  }
}

Hasher::Key signature(const Node& node, const std::vector<ValueId>& inputs) {
  Hasher hash;
  hash.add(node.op->name);
  for (const ValueId& input : inputs) hash.add(std::uint64_t{input.node}).add(std::uint64_t{input.result});
  add_attrs(hash, node.attrs);
  if (precision_matters(*node.op)) hash.add(static_cast<std::uint64_t>(node.precision));
  if (node.op->recomputed) hash.add(static_cast<std::uint64_t>(node.segment));
  return hash.key();
}

/// `kept` also stands for node `id`, `merged`. It runs in the earlier of the two segments, which both their inputs allow.
void absorb(Node& kept, const Node& merged, NodeId id) {
  for (const NodeId origin : origins_of(merged, id)) {
    if (!std::ranges::contains(kept.origins, origin)) kept.origins.push_back(origin);
  }
  kept.precision = std::max(kept.precision, merged.precision);
  kept.segment = std::min(kept.segment, merged.segment);
}

}  // namespace

bool CommonNodes::merge_or_copy(Rebuilder& rebuild, NodeId id) {
  const Node& node = rebuild.source().node(id);
  if (!mergeable(node)) {
    rebuild.copy(id);
    return false;
  }
  std::vector<ValueId> inputs;
  for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input).id());
  if (commutative(*node.op)) std::ranges::sort(inputs);
  Graph& target = rebuild.target();
  const auto [entry, fresh] = seen_.try_emplace(signature(node, inputs), static_cast<NodeId>(target.nodes().size()));
  if (fresh || !(target.node(entry->second).attrs == node.attrs)) {
    rebuild.copy(id);
    return false;
  }
  absorb(target.mutable_node(entry->second), node, id);
  std::vector<Value> results;
  for (std::uint32_t r = 0; r < node.results.size(); ++r) results.push_back(target.value({entry->second, r}));
  rebuild.map(id, std::move(results));
  return true;
}

std::shared_ptr<Graph> merge_common(const Graph& graph) {
  Rebuilder rebuild(graph);
  CommonNodes common;
  for (NodeId id = 0; id < graph.nodes().size(); ++id) common.merge_or_copy(rebuild, id);
  return rebuild.finish();
}

}  // namespace aeshna
