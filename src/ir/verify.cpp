#include "ir/verify.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/format.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna {

namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view stage) : graph_(graph), stage_(stage) {}

  void run() {
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) node(id);
    leaves();
    assigns();
    outputs();
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(NodeId id, std::format_string<Args...> format, Args&&... args) const {
    const Node& node = graph_.nodes()[id];
    Error error(ErrorCode::Internal, formatted(format, std::forward<Args>(args)...));
    error.context(formatted("node %{} = {}{}, built at {}", id, node.op == nullptr ? "?" : node.op->name,
                            node.name.empty() ? "" : " \"" + node.name + "\"", node.line.to_string()));
    throw error.context(formatted("verify after stage '{}'", stage_));
  }

  void node(NodeId id) const {
    const Node& node = graph_.nodes()[id];
    if (node.op == nullptr) wrong(id, "the node has no op");
    std::vector<TensorType> types;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input.node >= id) wrong(id, "operand {} is %{}, which does not precede the node", i, input.node);
      const Node& producer = graph_.nodes()[input.node];
      if (input.result >= producer.results.size()) {
        wrong(id, "operand {} is result {} of %{}, which has {} results", i, input.result, input.node,
              producer.results.size());
      }
      if (producer.segment > node.segment)
        wrong(id, "operand {} (%{}) belongs to a later segment than the node", i, input.node);
      types.push_back(producer.results[input.result]);
    }
    const auto count = static_cast<int>(types.size());
    if (count < node.op->min_inputs || (node.op->max_inputs >= 0 && count > node.op->max_inputs)) {
      wrong(id, "the op takes {} to {} operands, the node has {}", node.op->min_inputs, node.op->max_inputs, count);
    }
    std::vector<TensorType> inferred;
    try {
      inferred = node.op->infer(InferContext{*node.op, types, node.attrs, node.line});
    } catch (const Error& error) {
      wrong(id, "the types no longer infer: {}", error.message());
    }
    if (inferred.size() != node.results.size())
      wrong(id, "{} results are stored, {} inferred", node.results.size(), inferred.size());
    for (std::size_t i = 0; i < inferred.size(); ++i) {
      if (inferred[i] != node.results[i]) {
        wrong(id, "result {} is stored as {}, but inferred as {}", i, node.results[i].to_string(),
              inferred[i].to_string());
      }
    }
  }

  void leaves() const {
    std::set<std::string_view> names;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.nodes()[id];
      if (node.op->kind != OpKind::Leaf || is_constant(node)) continue;
      if (node.name.empty()) wrong(id, "the leaf has no name");
      if (!names.insert(node.name).second) wrong(id, "another leaf is named '{}' too", node.name);
      if (graph_.leaf(node.name) != id) wrong(id, "the leaf table does not lead from '{}' to this node", node.name);
    }
  }

  void assigns() const {
    std::set<ValueId> targets;
    std::size_t seen = 0;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.nodes()[id];
      if (node.op->name != "assign") continue;
      ++seen;
      if (!std::ranges::contains(graph_.assigns(), id)) wrong(id, "the assign is not in the list of assigns");
      const Node& leaf = graph_.node(node.inputs.at(0).node);
      if (!is_state(leaf) && !is_parameter(leaf))
        wrong(id, "the target '{}' is neither state nor parameter", leaf.op->name);
      if (graph_.type(node.inputs[0]) != graph_.type(node.inputs.at(1))) {
        wrong(id, "'{}' has type {}, the value assigned {}", leaf.name, graph_.type(node.inputs[0]).to_string(),
              graph_.type(node.inputs[1]).to_string());
      }
      if (!targets.insert(node.inputs[0]).second) wrong(id, "'{}' is assigned twice", leaf.name);
    }
    for (const NodeId id : graph_.assigns()) {
      if (id >= graph_.nodes().size() || seen != graph_.assigns().size()) {
        fail(ErrorCode::Internal, "the list of assigns has {} entries, the graph {} assigns (verify after stage '{}')",
             graph_.assigns().size(), seen, stage_);
      }
    }
  }

  void outputs() const {
    std::set<std::string_view> names;
    for (const Graph::Output& output : graph_.outputs()) {
      const auto bad = [&](std::string_view what) {
        fail(ErrorCode::Internal, "output '{}' (made at {}) {} (verify after stage '{}')", output.name,
             output.line.to_string(), what, stage_);
      };
      if (output.name.empty()) bad("has no name");
      if (!names.insert(output.name).second) bad("shares its name with another output");
      if (output.value.node >= graph_.nodes().size() ||
          output.value.result >= graph_.nodes()[output.value.node].results.size()) {
        bad("names a value that does not exist");
      }
    }
  }

  const Graph& graph_;
  std::string_view stage_;
};

}  // namespace

void verify(const Graph& graph, std::string_view stage) { Verifier(graph, stage).run(); }

}  // namespace aeshna
