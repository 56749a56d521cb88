#include "ir/op.h"

#include <algorithm>

#include "base/fail.h"
#include "ir/graph_access.h"

namespace aeshna {

void InferContext::fail(ErrorCode code, std::string message) const {
  Error error(code, "[" + op.name + "] " + message);
  std::string operands = "operands (";
  for (std::size_t i = 0; i < inputs.size(); ++i) operands += (i == 0 ? "" : ", ") + inputs[i].to_string();
  error.context(operands + ")");
  throw error.context("the call at " + line.to_string());
}

Value BuildContext::add(std::string_view op, std::vector<Value> inputs, Attrs attrs, std::uint32_t result) const {
  Node node;
  node.op = &find_op(op);
  for (const Value& input : inputs) {
    AESHNA_CHECK(&input.graph() == &graph);
    node.inputs.push_back(input.id());
  }
  node.attrs = std::move(attrs);
  node.line = like.line;
  node.origins = like.origins;
  node.segment = like.segment;
  node.precision = like.precision;
  return graph.value({GraphAccess::append(graph, std::move(node)), result});
}

Value BuildContext::scalar(double value, DType dtype) const {
  return add("constant", {}, {{"value", Literal::scalar(value, dtype)}});
}

std::int64_t KernelSpec::constant(std::string_view name) const {
  const auto at = std::ranges::find(constants, name, &std::pair<std::string, std::int64_t>::first);
  if (at == constants.end()) fail(ErrorCode::Internal, "kernel '{}' has no constant '{}'", family, name);
  return at->second;
}

}  // namespace aeshna
