// Common subexpressions: equal nodes become one.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/hash.h"
#include "compile/stages.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ops/appended.h"

namespace aeshna {

namespace {

/// Bits, not values: 0 and -0 are different attributes.
void add_attr(Hasher& hash, const AttrValue& value) {
  hash.add(std::uint64_t{value.index()});
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, std::string>) {
          hash.add(std::string_view(v));
        } else if constexpr (std::is_same_v<T, double>) {
          hash.add(std::bit_cast<std::uint64_t>(v));
        } else if constexpr (std::is_same_v<T, Literal>) {
          hash.add(v.type().to_string()).add(v.bytes());
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          hash.add(std::uint64_t{v.size()});
          for (const std::int64_t x : v) hash.add(static_cast<std::uint64_t>(x));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          hash.add(std::uint64_t{v.size()});
          for (const double x : v) hash.add(std::bit_cast<std::uint64_t>(x));
        } else {
          hash.add(static_cast<std::uint64_t>(v));
        }
      },
      value);
}

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

std::string signature(const Node& node, const std::vector<ValueId>& inputs) {
  Hasher hash;
  hash.add(node.op->name);
  for (const ValueId& input : inputs) hash.add(std::uint64_t{input.node}).add(std::uint64_t{input.result});
  for (const auto& [name, value] : node.attrs.items()) {
    hash.add(name);
    add_attr(hash, value);
  }
  if (precision_matters(*node.op)) hash.add(static_cast<std::uint64_t>(node.precision));
  if (node.op->recomputed) hash.add(static_cast<std::uint64_t>(node.segment));
  return hash.hex();
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

std::shared_ptr<Graph> merge_common(const Graph& graph) {
  Rebuilder rebuild(graph);
  std::unordered_map<std::string, NodeId> seen;  // signature -> node of the target
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.node(id);
    if (!mergeable(node)) {
      rebuild.copy(id);
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input).id());
    if (commutative(*node.op)) std::ranges::sort(inputs);
    Graph& target = rebuild.target();
    const auto [entry, fresh] = seen.try_emplace(signature(node, inputs), static_cast<NodeId>(target.nodes().size()));
    if (fresh || !(target.node(entry->second).attrs == node.attrs)) {
      rebuild.copy(id);
      continue;
    }
    absorb(target.mutable_node(entry->second), node, id);
    std::vector<Value> results;
    for (std::uint32_t r = 0; r < node.results.size(); ++r) results.push_back(target.value({entry->second, r}));
    rebuild.map(id, std::move(results));
  }
  return rebuild.finish();
}

}  // namespace aeshna
