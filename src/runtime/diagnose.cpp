// The last step again, in the interpreter: which node made the first non-finite value?
#include <cmath>
#include <set>

#include "base/fail.h"
#include "base/format.h"
#include "compile/reserved.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "runtime/convert.h"
#include "runtime/session_impl.h"
#include "runtime/transfer.h"

namespace aeshna {
namespace {

HostTensor host_tensor(const Literal& value) {
  HostTensor tensor(value.type());
  tensor.data = value.to_doubles();
  return tensor;
}

/// "" when every value is finite. Constants may hold infinities on purpose (masks): they do not count.
std::string first_non_finite(const Graph& graph, const TensorMap& leaves) {
  const InterpreterResult result = interpret(graph, leaves, Rounding::Storage, true);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_constant(node)) continue;
    for (std::size_t r = 0; r < node.results.size(); ++r) {
      const HostTensor& value = result.values.at(n).at(r);
      if (!is_float(value.type.dtype)) continue;
      for (std::size_t i = 0; i < value.data.size(); ++i) {
        if (std::isfinite(value.data[i])) continue;
        return formatted("[{}] {}at {}: element {} of its result {} is {}", node.op->name,
                         node.name.empty() ? "" : "'" + node.name + "' ", node.line.to_string(), i,
                         value.type.to_string(), value.data[i]);
      }
    }
  }
  return "";
}

}  // namespace

std::string Session::Impl::diagnose() {
  if (runs == 0) fail(ErrorCode::InvalidArgument, "diagnose before the first step");
  retire_all();

  // The device's input buffers hold what the last step saw, unless set() has written into them since; then it was kept
  // if that step was bad. Its parameters and states are still what they were if the step was bad, since it changed none.
  TensorMap leaves;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<DownloadItem> items;
  for (const SessionInput& input : inputs) {
    bytes.emplace_back(static_cast<std::size_t>(input.type.bytes()));
    if (input.direct && input.dirty) {
      const auto seen = seen_by_bad.find(&input);
      if (seen == seen_by_bad.end())
        fail(ErrorCode::InvalidArgument, "diagnose: input '{}' was set after the last step, which was not bad",
             input.name);
      bytes.back() = seen->second;
      continue;
    }
    if (!input.buffers.empty()) append_items(items, input.type, bytes.back(), input.buffers, device().caps());
  }
  download(device(), items, 0);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    leaves[inputs[i].name] = host_tensor(Literal(inputs[i].type, std::move(bytes[i])));

  std::vector<std::string> names;
  for (const Graph* source : {static_cast<const Graph*>(graph.get()), plan.graph.get()}) {
    for (const Node& node : source->nodes()) {
      if (is_state(node) && node.name == reserved::status) leaves[node.name] = HostTensor(node.results.at(0));
      if (is_parameter(node) || (is_state(node) && node.name != reserved::status)) names.push_back(node.name);
    }
  }
  const std::vector<Literal> values = weights.impl().read(names);
  for (std::size_t i = 0; i < names.size(); ++i) leaves[names[i]] = host_tensor(values[i]);

  // The user's own graph first: its lines and names are what the user knows. Then gradients and updates.
  std::string found = first_non_finite(*graph, leaves);
  if (found.empty() && training()) found = first_non_finite(*plan.graph, leaves);
  return found;
}

}  // namespace aeshna
