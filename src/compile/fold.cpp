// Constant folding.
#include <algorithm>

#include "compile/node_steps.h"
#include "compile/stages.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

constexpr std::int64_t kMaxElements = 1 << 16;

/// Expansions are left alone: a broadcast scalar is cheaper than the tensor it stands for. Without inputs (iota) there is
/// nothing to fold; random nodes and composites (which may hold checks) differ from a value of their own.
bool foldable(const Node& node) {
  const OpKind kind = node.op->kind;
  if (kind != OpKind::Pointwise && kind != OpKind::Movement && kind != OpKind::Reduce && kind != OpKind::Product)
    return false;
  return node.op->eval && node.op->movement != MovementKind::Expand &&
         node.op->movement != MovementKind::Windows && !node.inputs.empty() &&
         std::ranges::all_of(node.results, [](const TensorType& type) {
           return dtype_info(type.dtype).kind != DTypeInfo::Kind::Quantized && type.shape.elements() <= kMaxElements;
         });
}

/// The values of a node whose inputs are these constants, rounded to their dtypes as the device would store them.
std::vector<Literal> evaluate(const Node& node, const std::vector<Literal>& constants) {
  std::vector<HostTensor> inputs, results;
  for (const Literal& constant : constants) {
    inputs.emplace_back(constant.type());
    inputs.back().data = constant.to_doubles();
  }
  std::vector<const HostTensor*> pointers;
  for (const HostTensor& input : inputs) pointers.push_back(&input);
  for (const TensorType& type : node.results) results.emplace_back(type);
  node.op->eval(EvalContext{node, pointers, results});
  std::vector<Literal> literals;
  for (HostTensor& result : results) {
    for (double& value : result.data) value = round_to(result.type.dtype, value);
    literals.push_back(Literal::from_doubles(result.type, result.data));
  }
  return literals;
}

}  // namespace

bool fold_node(Rebuilder& rebuild, NodeId id) {
  const Node& node = rebuild.source().node(id);
  if (!foldable(node)) return false;
  Graph& target = rebuild.target();
  std::vector<Literal> constants;
  for (const ValueId& input : node.inputs) {
    const Node& producer = target.node(rebuild.mapped(input).id().node);
    if (!is_constant(producer) || dtype_info(producer.results[0].dtype).kind == DTypeInfo::Kind::Quantized)
      return false;
    constants.push_back(producer.attrs.get<Literal>("value"));
  }
  std::vector<Value> values;
  for (Literal& literal : evaluate(node, constants)) values.push_back(target.constant(std::move(literal)));
  rebuild.map(id, std::move(values));
  return true;
}

std::shared_ptr<Graph> fold_constants(const Graph& graph) {
  Rebuilder rebuild(graph);
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    if (!fold_node(rebuild, id)) rebuild.copy(id);
  }
  return rebuild.finish();
}

}  // namespace aeshna
