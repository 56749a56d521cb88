#include <algorithm>
#include <unordered_set>

#include "base/fail.h"
#include "io/onnx/importer_impl.h"

namespace aeshna::onnx {
namespace {

/// Names that a subgraph reads from around it.
std::unordered_set<std::string> free_names(const Graph& graph) {
  std::unordered_set<std::string> names, own;
  for (const Tensor& t : graph.initializers) own.insert(t.name);
  for (const ValueInfo& input : graph.inputs) own.insert(input.name);
  for (const Node& node : graph.nodes) {
    own.insert(node.outputs.begin(), node.outputs.end());
    names.insert(node.inputs.begin(), node.inputs.end());
    for (const Attribute& a : node.attributes) {
      if (a.graph) names.merge(free_names(*a.graph));
    }
  }
  for (const ValueInfo& output : graph.outputs) names.insert(output.name);
  std::erase_if(names, [&](const std::string& name) { return own.contains(name); });
  return names;
}

}  // namespace

std::vector<const Node*> in_order(std::span<const Node> nodes, std::span<const std::string> outputs,
                                  const std::string& file) {
  std::unordered_map<std::string, std::size_t> makers;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : nodes[i].outputs) {
      if (!name.empty() && !makers.emplace(name, i).second)
        fail(ErrorCode::CorruptFile, "{}: '{}' is made by {} and again by {}", file, name, nodes[makers[name]].label(),
             nodes[i].label());
    }
  }
  const auto needs = [&](const Node& node) {
    std::vector<std::size_t> result;
    const auto add = [&](const std::string& name) {
      if (const auto found = makers.find(name); found != makers.end()) result.push_back(found->second);
    };
    for (const std::string& name : node.inputs) add(name);
    for (const Attribute& a : node.attributes) {
      if (!a.graph) continue;
      for (const std::string& name : free_names(*a.graph)) add(name);
    }
    std::ranges::sort(result);
    return result;
  };

  enum class State : std::uint8_t { New, Open, Done };
  struct Visit {
    std::size_t node;
    std::vector<std::size_t> needs;
    std::size_t next = 0;
  };
  std::vector<State> states(nodes.size(), State::New);
  std::vector<const Node*> order;
  std::vector<Visit> stack;
  const auto open = [&](std::size_t i) {
    states[i] = State::Open;
    stack.push_back({i, needs(nodes[i])});
  };
  for (const std::string& output : outputs) {
    const auto maker = makers.find(output);
    if (maker == makers.end() || states[maker->second] != State::New) continue;
    open(maker->second);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next == top.needs.size()) {
        states[top.node] = State::Done;
        order.push_back(&nodes[top.node]);
        stack.pop_back();
        continue;
      }
      const std::size_t next = top.needs[top.next++];
      if (states[next] == State::Open)
        fail(ErrorCode::CorruptFile, "{}: the graph has a cycle through {} and {}", file, nodes[next].label(),
             nodes[top.node].label());
      if (states[next] == State::New) open(next);
    }
  }
  return order;
}

}  // namespace aeshna::onnx
