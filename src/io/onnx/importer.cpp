#include "io/onnx/importer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "io/onnx/importer_impl.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMinOpset = 6, kMaxOpset = 22;
constexpr std::int64_t kMaxFold = 1 << 20;  // elements that folding one node may make
constexpr std::size_t kMaxNodes = 1 << 18;  // that are translated: functions and loops can multiply
constexpr std::int64_t kMaxFolded =
    1 << 28;  // elements that folding may make in all; beyond it nodes stay in the graph
constexpr double kExact = 9007199254740992.0;  // 2^53: integers up to here are exact in a double

/// Known values become constants of a graph that is evaluated and thrown away.
class Scratch final : public Target {
 public:
  explicit Scratch(aeshna::Graph& graph) : Target(graph) {}
  Value value(Symbol& symbol) override {
    if (symbol.type.dtype != DType::i64) return graph.constant(*symbol.known);
    // Folding computes in double. The largest and the smallest i64 mean "to the end" and stay what they are.
    std::vector<double> values;
    for (const std::int64_t v : to_ints(*symbol.known)) {
      if (v == INT64_MAX || v == INT64_MIN) {
        values.push_back(v > 0 ? kExact : -kExact);
      } else if (std::abs(static_cast<double>(v)) >= kExact) {
        throw Refusal{formatted("the integer {} is too large to compute with at load time", v)};
      } else {
        values.push_back(static_cast<double>(v));
      }
    }
    return graph.constant(Literal::from_doubles(symbol.type, values));
  }
};

void check_results(const Node& node, std::span<Symbol* const> results) {
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty() && (i >= results.size() || results[i] == nullptr))
      throw Refusal{formatted("result {} ('{}') is not supported", i, node.outputs[i])};
  }
}

/// Constant, and what is known of every tensor.
bool needs_types_only(const Op& op) {
  const std::string_view name = op.name;
  return name == "Constant" || name == "Shape" || name == "Size";
}

/// Back from double; see Scratch.
Literal literal(const HostTensor& tensor) {
  if (tensor.type.dtype != DType::i64) return Literal::from_doubles(tensor.type, tensor.data);
  std::vector<std::byte> bytes(tensor.data.size() * 8);
  for (std::size_t i = 0; i < tensor.data.size(); ++i) {
    const double v = tensor.data[i];
    if (std::abs(v) > kExact) throw Refusal{formatted("the integer {} is too large to compute with at load time", v)};
    const std::int64_t n = v == kExact ? INT64_MAX : v == -kExact ? INT64_MIN : static_cast<std::int64_t>(v);
    std::memcpy(bytes.data() + i * 8, &n, 8);
  }
  return Literal(tensor.type, std::move(bytes));
}

void count_nodes(std::span<const Node> nodes, std::map<std::string, std::int64_t>& ops) {
  for (const Node& node : nodes) {
    ++ops[node.qualified_op()];
    for (const Attribute& a : node.attributes) {
      if (a.graph) count_nodes(a.graph->nodes, ops);
    }
  }
}

}  // namespace

void Importer::run() {
  const auto opset = model_.opsets.find("");
  if (opset != model_.opsets.end()) {
    outcome_.model.opset = opset->second;
    if (opset->second < kMinOpset || opset->second > kMaxOpset) {
      fail(ErrorCode::Unsupported, "{}: opset {} of the default domain; {} to {} are supported", model_.file,
           opset->second, kMinOpset, kMaxOpset);
    }
  }
  outcome_.model.producer = model_.producer;
  outcome_.model.ops = count_ops(model_);
  find_statistics(model_.graph.nodes);
  Scope scope;
  declare_initializers(model_.graph, scope);
  declare_inputs(scope);
  std::vector<std::string> outputs;
  for (const ValueInfo& output : model_.graph.outputs) outputs.push_back(output.name);
  run_nodes(model_.graph.nodes, outputs, scope, model_.opsets, 0);
  for (const std::string& name : outputs) add_output(name, scope);
}

Value Importer::value(Symbol& s) {
  if (s.items) throw Refusal{"is a sequence"};
  if (s.value) return s.value;
  if (!s.known) throw Refusal{formatted("reads an input of {}", dtype_name(s.type.dtype))};
  if (!on_device(s.type.dtype)) throw Refusal{off_device(s.type.dtype)};
  // One element is a constant, which the compiler can simplify with, unless it is to be trained.
  if (s.weight.empty() || !is_float(s.type.dtype) || (!options_.trainable && s.type.shape.elements() == 1)) {
    return s.value = graph.constant(*s.known);
  }
  std::string name = s.weight;
  for (int n = 2; graph.leaf(name).has_value(); ++n) name = formatted("{}.{}", s.weight, n);
  const bool trainable = options_.trainable && !statistics_.contains(s.weight);
  s.value = graph.parameter(name, s.type.shape, {.init = Init::zeros(), .dtype = s.type.dtype, .trainable = trainable});
  outcome_.model.weights.emplace(name, *s.known);
  return s.value;
}

Symbol* Importer::symbol(Symbol s) { return &symbols_.emplace_back(std::move(s)); }

Symbol* Importer::constant(const Literal& literal, std::string weight, int bits) {
  const bool rounds = options_.f64_as_f32 && literal.type().dtype == DType::f64;
  const Literal value = rounds ? converted(literal, DType::f32) : literal;
  return symbol({.type = value.type(), .known = value, .weight = std::move(weight), .bits = bits});
}

void Importer::refuse(UnsupportedNode node) { outcome_.unsupported.push_back(std::move(node)); }

void Importer::run_nodes(std::span<const Node> nodes, std::span<const std::string> outputs, Scope& scope,
                         const Opsets& opsets, int depth) {
  if (depth > kMaxNesting)
    fail(ErrorCode::LimitExceeded, "{}: subgraphs and functions are nested deeper than {}", model_.file, kMaxNesting);
  for (const Node* node : in_order(nodes, outputs, model_.file)) {
    count(1);
    run_node(*node, scope, opsets, depth);
  }
}

void Importer::count(std::size_t nodes) {
  translated_ += nodes;
  if (translated_ > kMaxNodes || graph.nodes().size() > kMaxNodes)
    fail(ErrorCode::LimitExceeded, "{}: more than {} nodes, with functions and loops unfolded", model_.file, kMaxNodes);
}

void Importer::run_node(const Node& node, Scope& scope, const Opsets& opsets, int depth) {
  Symbols results(node.outputs.size(), nullptr);
  const std::size_t first = graph.nodes().size();
  Symbols inputs;
  bool complete = true;
  for (const std::string& name : node.inputs) {
    Symbol* s = nullptr;
    if (!name.empty()) {
      const auto [there, found] = scope.find(name);
      if (!there)
        fail(ErrorCode::CorruptFile, "{}: {} reads '{}', which nothing makes", model_.file, node.label(), name);
      complete = complete && found != nullptr;
      s = found;
    }
    inputs.push_back(s);
  }
  const auto refused = [&](const Refusal& refusal) {
    UnsupportedNode entry{node.name, node.qualified_op(), refusal.reason, {}};
    if (entry.name.empty() && !node.outputs.empty()) entry.name = node.outputs[0];
    if (refusal.input < inputs.size() && inputs[refusal.input] != nullptr) {
      const std::set<std::string>& names = inputs[refusal.input]->inputs;
      entry.bind.assign(names.begin(), names.end());
    }
    refuse(std::move(entry));
  };
  try {
    results = translate(node, inputs, complete, scope, opsets, depth);
    name_nodes(node, first, results);
  } catch (const Refusal& refusal) {
    refused(refusal);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Internal || error.code() == ErrorCode::CorruptFile || depth > kMaxNesting) throw;
    refused({error.message()});
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty()) declare(scope, node.outputs[i], i < results.size() ? results[i] : nullptr);
  }
}

void Importer::name_nodes(const Node& node, std::size_t first, const Symbols& results) {
  for (std::size_t id = first; id < graph.nodes().size(); ++id) {
    if (const std::string& file = graph.nodes()[id].line.file; !file.ends_with(".cpp") && !file.ends_with(".h"))
      continue;  // an inner node's
    graph.mutable_node(static_cast<NodeId>(id)).line = SourceLine(node.label(), 0);
  }
  for (std::size_t i = 0; i < results.size() && i < node.outputs.size(); ++i) {
    if (results[i] == nullptr || !results[i]->value || results[i]->value.id().node < first) continue;
    aeshna::Node& made = graph.mutable_node(results[i]->value.id().node);
    if (made.name.empty()) made.name = node.outputs[i];
  }
}

Symbols Importer::translate(const Node& node, std::span<Symbol* const> inputs, bool complete, Scope& scope,
                            const Opsets& opsets, int depth) {
  if (const Function* function = find_function(node)) {
    if (!complete) return {};
    return call(*function, node, inputs, depth);
  }
  const bool control = node.domain.empty() && control_since(node.op) > 0;
  const SequenceOp sequences = sequence_op(node);
  const Op* op = find_op(node.domain, node.op);
  if (op == nullptr && !control) throw Refusal{"this op is not supported"};
  const auto opset = opsets.find(node.domain);
  if (opset == opsets.end()) throw Refusal{formatted("opset_import does not have its domain '{}'", node.domain)};
  if (!complete) return {};  // what it reads is in the list already
  if (sequences != nullptr) return (this->*sequences)(node, inputs, scope, opsets, depth);
  if (control) {
    if (node.op == "If") return branch(node, inputs, scope, opsets, depth);
    if (node.op == "Loop") return loop(node, inputs, scope, opsets, depth);
    return scan(node, inputs, scope, opsets, depth);
  }
  if (node.domain.empty() && opset->second < op->since)
    throw Refusal{formatted("appeared in opset {}, the model uses {}", op->since, opset->second)};

  if (std::ranges::any_of(inputs, [](const Symbol* s) { return s != nullptr && s->items; })) {
    if (node.op == "Identity") return {inputs[0]};
    throw Refusal{"reads a sequence"};
  }
  std::set<std::string> depends;
  bool fold = op->fold;
  for (const Symbol* s : inputs) {
    if (s == nullptr) continue;
    depends.insert(s->inputs.begin(), s->inputs.end());
    fold = fold && s->known &&
           !(options_.trainable && !s->weight.empty() && is_float(s->type.dtype) && s->type.shape.elements() > 1) &&
           s->type.shape.elements() <= kMaxFold;
  }
  if (needs_types_only(*op)) return constants(*op, node, inputs, opset->second);
  if (fold) {
    if (auto folded = evaluate(*op, node, inputs, opset->second)) return *folded;
  }
  Context context(*this, node, inputs, opset->second, options_.f64_as_f32);
  const Values values = op->translate(context);
  context.refuse_unread();
  Symbols results;
  for (const Value& v : values) {
    if (!v) {
      results.push_back(nullptr);
      continue;
    }
    if (const aeshna::Node& made = graph.node(v.id().node); is_constant(made)) {  // made of shapes alone
      results.push_back(constant(made.attrs.get<Literal>("value"), {}, context.result_bits));
      continue;
    }
    if (!on_device(v.dtype())) throw Refusal{off_device(v.dtype())};
    results.push_back(symbol({.type = v.type(), .value = v, .bits = context.result_bits, .inputs = depends}));
  }
  check_results(node, results);
  return results;
}

Symbols Importer::constants(const Op& op, const Node& node, std::span<Symbol* const> inputs, std::int64_t opset) {
  aeshna::Graph scratch_graph;
  Scratch scratch(scratch_graph);
  Context context(scratch, node, inputs, opset, options_.f64_as_f32);
  Symbols results;
  for (const Value& v : op.translate(context)) {
    const std::string weight = node.op == "Constant" && !node.outputs.empty() ? node.outputs[0] : std::string();
    results.push_back(constant(v.node().attrs.get<Literal>("value"), weight, context.result_bits));
  }
  context.refuse_unread();
  return results;
}

std::optional<Symbols> Importer::evaluate(const Op& op, const Node& node, std::span<Symbol* const> inputs,
                                          std::int64_t opset) {
  aeshna::Graph scratch_graph;
  Scratch scratch(scratch_graph);
  Context context(scratch, node, inputs, opset, options_.f64_as_f32);
  const Values values = op.translate(context);
  context.refuse_unread();
  std::int64_t elements = 0;
  for (const aeshna::Node& n : scratch_graph.nodes()) {
    for (const TensorType& type : n.results) elements += std::min(type.shape.elements(), 2 * kMaxFold);
    if (elements > 2 * kMaxFold) return std::nullopt;
  }
  folded_ += elements;
  if (folded_ > kMaxFolded) return std::nullopt;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) scratch_graph.output(std::to_string(i), values[i]);
  }
  InterpreterResult result = interpret(scratch_graph, {}, Rounding::Storage);
  Symbols results;
  for (std::size_t i = 0; i < values.size(); ++i) {
    results.push_back(
        !values[i] ? nullptr
                   : constant(literal(result.outputs.at(std::to_string(i))), std::string(), context.result_bits));
  }
  check_results(node, results);
  return results;
}

std::map<std::string, std::int64_t> count_ops(const Model& model) {
  std::map<std::string, std::int64_t> ops;
  count_nodes(model.graph.nodes, ops);
  for (const Function& f : model.functions) count_nodes(f.nodes, ops);
  return ops;
}

Outcome import_model(const Model& model, const ImportOptions& options) {
  Outcome outcome;
  outcome.model.graph = std::make_shared<aeshna::Graph>();
  Importer(model, options, outcome).run();
  return outcome;
}

}  // namespace aeshna::onnx
