// Functions, branches and loops.
#include <algorithm>
#include <array>

#include "base/fail.h"
#include "io/onnx/importer_impl.h"

namespace aeshna::onnx {

std::int64_t control_since(std::string_view op) {
  struct Row {
    std::string_view name;
    std::int64_t since;
  };
  static constexpr std::array table = {
      Row{"If", 1},
      Row{"Loop", 1},
      Row{"Scan", 9},
      Row{"ConcatFromSequence", 11},
      Row{"SequenceAt", 11},
      Row{"SequenceConstruct", 11},
      Row{"SequenceEmpty", 11},
      Row{"SequenceErase", 11},
      Row{"SequenceInsert", 11},
      Row{"SequenceLength", 11},
      Row{"SplitToSequence", 11},
      Row{"SequenceMap", 17},
      Row{"Optional", 15},
      Row{"OptionalGetElement", 15},
      Row{"OptionalHasElement", 15},
  };
  const auto found = std::ranges::find(table, op, &Row::name);
  return found == table.end() ? 0 : found->since;
}

namespace {

/// Attributes of the call in place of references to them; an attribute that nobody gives is absent.
void substitute(std::vector<Attribute>& attributes, const std::map<std::string, Attribute>& given) {
  std::erase_if(attributes, [&](Attribute& a) {
    if (!a.reference.empty()) {
      const auto found = given.find(a.reference);
      if (found == given.end()) return true;
      const std::string name = a.name;
      a = found->second;
      a.name = name;
    }
    if (a.graph) {
      auto graph = std::make_shared<Graph>(*a.graph);
      for (Node& node : graph->nodes) substitute(node.attributes, given);
      a.graph = std::move(graph);
    }
    return false;
  });
}

const Graph& body_of(const Node& node, std::string_view name) {
  for (const Attribute& a : node.attributes) {
    if (a.name == name && a.graph) return *a.graph;
  }
  throw Refusal{formatted("attribute '{}' is missing or no graph", name)};
}

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueInfo& output : graph.outputs) names.push_back(output.name);
  return names;
}

/// What is known of a condition or a count; refuses if nothing is.
double known_scalar(const Node& node, std::span<Symbol* const> inputs, std::size_t i, std::string_view what) {
  const Symbol* s = inputs[i];
  if (!s->known) throw Refusal{formatted("{} ('{}') must be known when the model is loaded", what, node.inputs[i]), i};
  if (s->type.shape.elements() != 1) throw Refusal{formatted("{} is {}", what, s->type.to_string())};
  return s->known->at(0);
}

Ints ints_of(const Node& node, std::string_view name, std::size_t count) {
  for (const Attribute& a : node.attributes) {
    if (a.name != name) continue;
    if (a.ints.size() != count)
      throw Refusal{formatted("attribute '{}' has {} entries, {} are needed", name, a.ints.size(), count)};
    return a.ints;
  }
  return Ints(count, 0);
}

}  // namespace

const Function* Importer::find_function(const Node& node) const {
  for (const Function& f : model_.functions) {
    if (f.name == node.op && f.domain == node.domain) return &f;
  }
  return nullptr;
}

Symbols Importer::call(const Function& function, const Node& node, std::span<Symbol* const> inputs, int depth) {
  if (depth >= kMaxNesting) throw Refusal{formatted("functions call each other deeper than {}", kMaxNesting)};
  std::map<std::string, Attribute> given;
  for (const Attribute& a : function.defaults) given[a.name] = a;
  for (const Attribute& a : node.attributes) given[a.name] = a;
  count(function.nodes.size());
  std::vector<Node> body = function.nodes;
  for (Node& n : body) {
    substitute(n.attributes, given);
    // Only the first use of a name that was not given is missed by the checks of the nodes: an absent input stays absent.
    for (std::string& name : n.inputs) {
      const auto at = std::ranges::find(function.inputs, name);
      const auto i = static_cast<std::size_t>(at - function.inputs.begin());
      if (at != function.inputs.end() && (i >= inputs.size() || inputs[i] == nullptr)) name.clear();
    }
  }
  Scope scope;
  for (std::size_t i = 0; i < function.inputs.size() && i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) declare(scope, function.inputs[i], inputs[i]);
  }
  auto opsets = model_.opsets;
  for (const auto& [domain, version] : function.opsets) opsets[domain] = version;
  kept_.push_back(std::move(body));
  run_nodes(kept_.back(), function.outputs, scope, opsets, depth + 1);
  return collect(function.outputs, scope);
}

Symbols Importer::collect(std::span<const std::string> names, const Scope& scope) const {
  Symbols results;
  for (const std::string& name : names) {
    const auto [there, s] = scope.find(name);
    if (!there)
      fail(ErrorCode::CorruptFile, "{}: '{}', the result of a subgraph or function, is made by no node", model_.file,
           name);
    results.push_back(s);
  }
  return results;
}

Symbols Importer::run_body(const Graph& body, std::span<Symbol* const> arguments, const Scope& outer,
                           const Opsets& opsets, int depth) {
  Scope scope;
  scope.outer = &outer;
  declare_initializers(body, scope);
  if (arguments.size() != body.inputs.size())
    throw Refusal{formatted("its subgraph has {} inputs, {} are given", body.inputs.size(), arguments.size())};
  for (std::size_t i = 0; i < arguments.size(); ++i) declare(scope, body.inputs[i].name, arguments[i]);
  const std::vector<std::string> names = output_names(body);
  run_nodes(body.nodes, names, scope, opsets, depth + 1);
  return collect(names, scope);
}

Symbols Importer::branch(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                         int depth) {
  if (inputs.size() != 1 || inputs[0] == nullptr) throw Refusal{"one condition is expected"};
  const bool condition = known_scalar(node, inputs, 0, "its condition") != 0;
  return run_body(body_of(node, condition ? "then_branch" : "else_branch"), {}, scope, opsets, depth);
}

Symbol* Importer::stacked(const Symbols& parts, std::size_t axis, bool reversed) {
  if (parts.empty()) throw Refusal{"a loop without iterations has no type for its collected results"};
  std::vector<Value> values;
  std::set<std::string> depends;
  for (Symbol* part : parts) {
    depends.insert(part->inputs.begin(), part->inputs.end());
    Ints dims = dims_of(part->type.shape);
    if (axis > dims.size()) throw Refusal{formatted("axis {} of a result of {}", axis, part->type.to_string())};
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    values.push_back(reshape(value(*part), dims));
  }
  if (reversed) std::ranges::reverse(values);
  const Value v = values.size() == 1 ? values[0] : concat(values, static_cast<std::int64_t>(axis));
  return symbol({.type = v.type(), .value = v, .inputs = depends});
}

Symbols Importer::loop(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                       int depth) {
  const Graph& body = body_of(node, "body");
  const bool bounded = !inputs.empty() && inputs[0] != nullptr;
  const bool conditional = inputs.size() > 1 && inputs[1] != nullptr;
  if (!bounded && !conditional) throw Refusal{"neither a count nor a condition ends it"};
  const double count = bounded ? known_scalar(node, inputs, 0, "its count") : static_cast<double>(kMaxIterations) + 1;
  bool more = !conditional || known_scalar(node, inputs, 1, "its condition") != 0;
  const std::size_t states = inputs.size() > 2 ? inputs.size() - 2 : 0;
  Symbols state(inputs.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(inputs.size(), 2)), inputs.end());
  if (body.outputs.size() < 1 + states) throw Refusal{"its body has too few outputs"};
  std::vector<Symbols> collected(body.outputs.size() - 1 - states);
  for (std::int64_t i = 0; more && static_cast<double>(i) < count; ++i) {
    if (i >= kMaxIterations) throw Refusal{formatted("more than {} iterations would be unrolled", kMaxIterations)};
    Symbols arguments = {constant(Literal::scalar(static_cast<double>(i), DType::i64)),
                         constant(Literal::scalar(1, DType::boolean))};
    arguments.insert(arguments.end(), state.begin(), state.end());
    const Symbols results = run_body(body, arguments, scope, opsets, depth);
    if (std::ranges::find(results, nullptr) != results.end()) return {};  // in the list
    if (!results[0]->known) throw Refusal{"whether it goes on is not known when the model is loaded"};
    more = results[0]->known->at(0) != 0;
    std::copy_n(results.begin() + 1, states, state.begin());
    for (std::size_t k = 0; k < collected.size(); ++k) collected[k].push_back(results[1 + states + k]);
  }
  for (std::size_t k = 0; k < collected.size(); ++k) {
    const bool used = states + k < node.outputs.size() && !node.outputs[states + k].empty();
    state.push_back(used ? stacked(collected[k], 0, false) : nullptr);
  }
  return state;
}

Symbols Importer::scan(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                       int depth) {
  if (opsets.at("") < 9) throw Refusal{"Scan of opset 8 is not supported"};
  const Graph& body = body_of(node, "body");
  std::int64_t scans = -1;
  for (const Attribute& a : node.attributes) {
    if (a.name == "num_scan_inputs") scans = a.i;
  }
  if (scans < 1 || scans > static_cast<std::int64_t>(inputs.size()) ||
      std::ranges::find(inputs, nullptr) != inputs.end())
    throw Refusal{"num_scan_inputs does not fit its inputs"};
  const std::size_t states = inputs.size() - static_cast<std::size_t>(scans);
  if (body.outputs.size() < states) throw Refusal{"its body has too few outputs"};
  const std::size_t results_count = body.outputs.size() - states;
  const auto n = static_cast<std::size_t>(scans);
  const Ints in_axes = ints_of(node, "scan_input_axes", n), in_back = ints_of(node, "scan_input_directions", n);
  const Ints out_axes = ints_of(node, "scan_output_axes", results_count),
             out_back = ints_of(node, "scan_output_directions", results_count);
  std::int64_t length = -1;
  for (std::size_t k = 0; k < n; ++k) {
    const Shape& shape = inputs[states + k]->type.shape;
    const std::int64_t extent = shape[shape.axis(in_axes[k])];
    if (length >= 0 && extent != length) throw Refusal{"its inputs have different lengths"};
    length = extent;
  }
  if (length > kMaxIterations) throw Refusal{formatted("more than {} iterations would be unrolled", kMaxIterations)};
  Symbols state(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(states));
  std::vector<Symbols> collected(results_count);
  for (std::int64_t i = 0; i < length; ++i) {
    Symbols arguments = state;
    for (std::size_t k = 0; k < n; ++k) {
      Symbol* whole = inputs[states + k];
      const int axis = whole->type.shape.axis(in_axes[k]);
      const std::int64_t at = in_back[k] != 0 ? length - 1 - i : i;
      Ints dims = dims_of(whole->type.shape);
      dims.erase(dims.begin() + axis);
      const Value part = reshape(slice(value(*whole), {axis}, {at}, {at + 1}), dims);
      arguments.push_back(symbol({.type = part.type(), .value = part, .inputs = whole->inputs}));
    }
    const Symbols results = run_body(body, arguments, scope, opsets, depth);
    if (std::ranges::find(results, nullptr) != results.end()) return {};
    std::copy_n(results.begin(), states, state.begin());
    for (std::size_t k = 0; k < results_count; ++k) collected[k].push_back(results[states + k]);
  }
  for (std::size_t k = 0; k < results_count; ++k) {
    if (out_axes[k] < 0) throw Refusal{"a negative scan_output_axes is not supported"};
    state.push_back(stacked(collected[k], static_cast<std::size_t>(out_axes[k]), out_back[k] != 0));
  }
  return state;
}

}  // namespace aeshna::onnx
