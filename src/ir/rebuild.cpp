#include "ir/rebuild.h"

#include <algorithm>

#include "base/fail.h"
#include "ir/graph_access.h"
#include "ir/op.h"

namespace aeshna {

namespace {
constexpr ValueId kNothing{UINT32_MAX, 0};

/// `node` of the target also stands for node `id` of the source.
void absorb(Node& node, const Node& old, NodeId id) {
  const std::vector<NodeId> origins = old.origins.empty() ? std::vector{id} : old.origins;
  for (const NodeId origin : origins) {
    if (!std::ranges::contains(node.origins, origin)) node.origins.push_back(origin);
  }
  node.precision = std::max(node.precision, old.precision);
  node.segment = std::max(node.segment, old.segment);
  if (node.line.file.empty()) node.line = old.line;
}
}  // namespace

Rebuilder::Rebuilder(const Graph& source)
    : source_(source), target_(std::make_shared<Graph>()), map_(source.nodes().size()), done_(source.nodes().size()) {}

Value Rebuilder::mapped(ValueId old) const {
  const Node& node = source_.node(old.node);
  if (!done_[old.node] || old.result >= map_[old.node].size() || map_[old.node][old.result] == kNothing) {
    fail(ErrorCode::Internal, "rebuild: result {} of node {} ({}, {}) has no stand-in in the new graph", old.result,
         old.node, node.op->name, node.line.to_string());
  }
  return target_->value(map_[old.node][old.result]);
}

std::vector<Value> Rebuilder::copy(NodeId old) {
  const Node& node = source_.node(old);
  std::vector<ValueId> inputs;
  inputs.reserve(node.inputs.size());
  for (const ValueId& input : node.inputs) inputs.push_back(mapped(input).id());
  const NodeId id = target_->add_node(*node.op, std::move(inputs), node.attrs, node);
  std::vector<Value> results;
  for (std::uint32_t i = 0; i < node.results.size(); ++i) results.push_back(target_->value({id, i}));
  map(old, results);
  return results;
}

void Rebuilder::map(NodeId old, std::vector<Value> replacement) {
  const Node& node = source_.node(old);
  if (replacement.size() != node.results.size()) {
    fail(ErrorCode::Internal, "rebuild: node {} ({}) has {} results, its replacement {}", old, node.op->name,
         node.results.size(), replacement.size());
  }
  for (std::size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] && replacement[i].type() != node.results[i]) {
      fail(ErrorCode::Internal, "rebuild: result {} of node {} ({}, {}) has type {}, its replacement {}", i, old,
           node.op->name, node.line.to_string(), node.results[i].to_string(), replacement[i].type().to_string());
    }
  }
  auto& nodes = GraphAccess::nodes(*target_);
  for (NodeId id = appended_from_; id < nodes.size(); ++id) absorb(nodes[id], node, old);
  appended_from_ = static_cast<NodeId>(nodes.size());

  map_[old].clear();
  for (const Value& value : replacement) map_[old].push_back(value ? value.id() : kNothing);
  done_[old] = true;
  // The name stays findable if the stand-in has none of its own (leaves do).
  if (!node.name.empty() && !replacement.empty() && replacement[0]) {
    Node& stand_in = target_->mutable_node(replacement[0].id().node);
    if (stand_in.name.empty()) stand_in.name = node.name;
  }
}

void Rebuilder::drop(NodeId old) {
  map_[old].clear();
  done_[old] = true;
}

std::shared_ptr<Graph> Rebuilder::finish() {
  // Sinks are roots: those that the pass did not treat itself are copied.
  for (NodeId id = 0; id < source_.nodes().size(); ++id) {
    if (!done_[id] && source_.node(id).op->kind == OpKind::Sink) copy(id);
  }
  for (const Graph::Output& output : source_.outputs()) {
    GraphAccess::add_output(*target_, {output.name, mapped(output.value).id(), output.line});
  }
  return target_;
}

std::shared_ptr<Graph> clone(const Graph& graph) {
  Rebuilder rebuilder(graph);
  for (NodeId id = 0; id < graph.nodes().size(); ++id) rebuilder.copy(id);
  return rebuilder.finish();
}

std::vector<std::vector<std::uint32_t>> count_uses(const Graph& graph) {
  std::vector<std::vector<std::uint32_t>> uses;
  uses.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) uses.emplace_back(node.results.size());
  for (const Node& node : graph.nodes()) {
    for (const ValueId& input : node.inputs) ++uses[input.node][input.result];
  }
  for (const Graph::Output& output : graph.outputs()) ++uses[output.value.node][output.value.result];
  return uses;
}

}  // namespace aeshna
