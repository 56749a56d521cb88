#include "io/onnx/importer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "base/checked.h"
#include "base/fail.h"
#include "base/names.h"
#include "io/onnx/translate.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMinOpset = 6, kMaxOpset = 22;
constexpr int kMaxNesting = 32;               // of subgraphs and functions
constexpr std::int64_t kMaxFold = 1 << 20;    // elements that folding one node may make
constexpr std::int64_t kMaxIterations = 1024; // of a loop that is unrolled
constexpr std::size_t kMaxNodes = 1 << 20;    // of the graph: functions and loops can multiply
constexpr double kExact = 9007199254740992.0; // 2^53: integers up to here are exact in a double

/// Names of one graph; null: made by a node that is not supported.
struct Scope {
  std::unordered_map<std::string, Symbol*> names;
  const Scope* outer = nullptr;
  /// Whether the name is known, and what it stands for.
  std::pair<bool, Symbol*> find(const std::string& name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (const auto found = s->names.find(name); found != s->names.end()) return {true, found->second};
    }
    return {false, nullptr};
  }
};

bool on_device(DType dtype) { return dtype != DType::f64 && dtype != DType::f8e4m3 && dtype != DType::f8e5m2; }

std::string off_device(DType dtype) {
  return dtype == DType::f64 ? "computes with f64, which no device does (f64_as_f32, --f64-as-f32, rounds to f32)"
                             : formatted("computes with {}, which no device does", dtype_name(dtype));
}

Literal converted(const Literal& literal, DType dtype) {
  if (literal.type().dtype == dtype) return literal;
  return Literal::from_doubles({dtype, literal.type().shape}, literal.to_doubles());
}

void names_in(const Graph& graph, std::unordered_set<std::string>& names) {
  for (const Node& node : graph.nodes) {
    names.insert(node.inputs.begin(), node.inputs.end());
    for (const Attribute& a : node.attributes) {
      if (a.graph) names_in(*a.graph, names);
    }
  }
  for (const ValueInfo& output : graph.outputs) names.insert(output.name);
}

/// Nodes that the outputs need, each after what it reads. Error(CorruptFile) for a cycle or a name that is made twice.
std::vector<const Node*> in_order(std::span<const Node> nodes, std::span<const std::string> outputs, const std::string& file) {
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
      std::unordered_set<std::string> names;
      names_in(*a.graph, names);
      for (const std::string& name : names) add(name);
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
        fail(ErrorCode::CorruptFile, "{}: the graph has a cycle through {} and {}", file, nodes[next].label(), nodes[top.node].label());
      if (states[next] == State::New) open(next);
    }
  }
  return order;
}

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

class Importer final : public Target {
 public:
  Importer(const Model& model, const ImportOptions& options, Outcome& outcome)
      : Target(*outcome.model.graph), model_(model), options_(options), outcome_(outcome) {}

  void run() {
    const auto opset = model_.opsets.find("");
    if (opset != model_.opsets.end()) {
      outcome_.model.opset = opset->second;
      if (opset->second < kMinOpset || opset->second > kMaxOpset) {
        fail(ErrorCode::Unsupported, "{}: opset {} of the default domain; {} to {} are supported", model_.file, opset->second, kMinOpset,
             kMaxOpset);
      }
    }
    outcome_.model.producer = model_.producer;
    outcome_.model.ops = count_ops(model_);
    Scope scope;
    declare_initializers(model_.graph, scope);
    declare_inputs(scope);
    std::vector<std::string> outputs;
    for (const ValueInfo& output : model_.graph.outputs) outputs.push_back(output.name);
    run_nodes(model_.graph.nodes, outputs, scope, model_.opsets, 0);
    for (const std::string& name : outputs) add_output(name, scope);
  }

  /// The value of a symbol in the imported graph.
  Value value(Symbol& s) override {
    if (s.value) return s.value;
    if (!s.known) throw Refusal{formatted("reads an input of {}", dtype_name(s.type.dtype))};
    if (!on_device(s.type.dtype)) throw Refusal{off_device(s.type.dtype)};
    // One element is a constant, which the compiler can simplify with, unless it is to be trained.
    if (s.weight.empty() || !is_float(s.type.dtype) || (!options_.trainable && s.type.shape.elements() == 1)) {
      return s.value = graph.constant(*s.known);
    }
    std::string name = s.weight;
    for (int n = 2; graph.leaf(name).has_value(); ++n) name = formatted("{}.{}", s.weight, n);
    s.value = graph.parameter(name, s.type.shape, {.init = Init::zeros(), .dtype = s.type.dtype, .trainable = options_.trainable});
    outcome_.model.weights.emplace(name, *s.known);
    return s.value;
  }

 private:
  Symbol* symbol(Symbol s) { return &symbols_.emplace_back(std::move(s)); }

  Symbol* constant(const Literal& literal, std::string weight = {}, int bits = 0) {
    const bool rounds = options_.f64_as_f32 && literal.type().dtype == DType::f64;
    const Literal value = rounds ? converted(literal, DType::f32) : literal;
    return symbol({.type = value.type(), .known = value, .weight = std::move(weight), .bits = bits});
  }

  // ---- leaves

  void declare(Scope& scope, const std::string& name, Symbol* s) const {
    if (!scope.names.emplace(name, s).second) fail(ErrorCode::CorruptFile, "{}: the name '{}' is used twice", model_.file, name);
  }

  void declare_initializers(const Graph& from, Scope& scope) {
    for (const Tensor& t : from.initializers) {
      if (!t.unsupported.empty()) {
        refuse({t.name, "initializer", t.unsupported, {}});
        declare(scope, t.name, nullptr);
      } else {
        declare(scope, t.name, constant(t.value, t.name));
      }
    }
  }

  void declare_inputs(Scope& scope) {
    std::vector<std::string> open;
    std::set<std::string> names;
    for (const ValueInfo& info : model_.graph.inputs) {
      if (scope.names.contains(info.name)) continue;  // old files list the weights here too
      names.insert(info.name);
      if (!info.unsupported.empty()) {
        refuse({info.name, "input", "is " + info.unsupported, {}});
        declare(scope, info.name, nullptr);
        continue;
      }
      DType dtype = *info.element.dtype;
      if (options_.f64_as_f32 && dtype == DType::f64) dtype = DType::f32;
      if (const auto bound = options_.binds.find(info.name); bound != options_.binds.end()) {
        declare(scope, info.name, constant(bound_value(info, bound->second, dtype), {}, info.element.bits));
        continue;
      }
      const std::optional<Shape> shape = input_shape(info, open);
      if (!shape) {
        declare(scope, info.name, nullptr);
        continue;
      }
      Symbol s{.type = {dtype, *shape}, .bits = info.element.bits, .inputs = {info.name}};
      if (on_device(dtype)) s.value = graph.input(info.name, *shape, dtype);
      outcome_.model.inputs.push_back(info.name);
      if (info.element.bits == 4) outcome_.model.ranges[info.name] = dtype == DType::i8 ? std::pair(-8.0, 7.0) : std::pair(0.0, 15.0);
      declare(scope, info.name, symbol(std::move(s)));
    }
    const auto check = [&](const auto& given, const char* what) {
      for (const auto& [name, value] : given) {
        if (!names.contains(name)) {
          fail(ErrorCode::InvalidArgument, "{}: a {} is given for '{}', which is no input{}", model_.file, what, name,
               suggest_names(name, std::vector<std::string>(names.begin(), names.end())));
        }
      }
    };
    check(options_.shapes, "shape");
    check(options_.binds, "value");
    if (open.empty()) return;
    std::string list;
    for (const std::string& line : open) list += "\n  " + line;
    fail(ErrorCode::InvalidArgument, "{}: inputs with open dimensions need a shape (--shape NAME=D,D,...):{}", model_.file, list);
  }

  std::optional<Shape> input_shape(const ValueInfo& info, std::vector<std::string>& open) const {
    const auto given = options_.shapes.find(info.name);
    if (given != options_.shapes.end()) {
      const Shape& shape = given->second;
      bool fits = !info.dims || static_cast<int>(info.dims->size()) == shape.rank();
      for (int i = 0; fits && info.dims && i < shape.rank(); ++i) {
        const Dimension& d = (*info.dims)[static_cast<std::size_t>(i)];
        fits = d.value < 0 || d.value == shape[i];
      }
      if (!fits) {
        fail(ErrorCode::ShapeMismatch, "{}: input '{}' is {}, the shape given {}", model_.file, info.name, info.type_text(),
             shape.to_string());
      }
      return shape;
    }
    Ints dims;
    if (info.dims) {
      for (const Dimension& d : *info.dims) dims.push_back(d.value);
    }
    if (!info.dims || std::ranges::any_of(dims, [](std::int64_t d) { return d < 0; })) {
      open.push_back(formatted("'{}' is {}", info.name, info.type_text()));
      return std::nullopt;
    }
    if (dims.size() > Shape::kMaxRank)
      fail(ErrorCode::Unsupported, "{}: input '{}' has rank {}; the largest is {}", model_.file, info.name, dims.size(), Shape::kMaxRank);
    return Shape(std::span<const std::int64_t>(dims));
  }

  Literal bound_value(const ValueInfo& info, const Literal& given, DType dtype) const {
    try {
      Literal value = converted(given, dtype);
      Ints dims;
      bool closed = info.dims.has_value();
      if (closed) {
        for (const Dimension& d : *info.dims) {
          dims.push_back(d.value);
          closed = closed && d.value >= 0;
        }
      }
      if (closed && Shape(std::span<const std::int64_t>(dims)) != value.type().shape) {
        const Shape shape{std::span<const std::int64_t>(dims)};
        if (shape.elements() != value.type().shape.elements() || shape.elements() != 1) {
          fail(ErrorCode::ShapeMismatch, "the input is {}, the value {}", info.type_text(), value.type().to_string());
        }
        value = Literal({dtype, shape}, {value.bytes().begin(), value.bytes().end()});
      }
      return value;
    } catch (Error& error) {
      throw error.context(formatted("the value given for input '{}' of {}", info.name, model_.file));
    }
  }

  void add_output(const std::string& name, const Scope& scope) {
    const auto [there, s] = scope.find(name);
    if (!there) fail(ErrorCode::CorruptFile, "{}: output '{}' is made by no node", model_.file, name);
    if (s == nullptr) return;  // its node is in the list
    try {
      outcome_.model.graph->output(name, value(*s));
      outcome_.model.outputs.push_back(name);
    } catch (const Refusal& refusal) {
      refuse({name, "output", refusal.reason, {}});
    }
  }

  // ---- nodes

  void refuse(UnsupportedNode node) { outcome_.unsupported.push_back(std::move(node)); }

  void run_nodes(std::span<const Node> nodes, std::span<const std::string> outputs, Scope& scope,
                 const std::map<std::string, std::int64_t>& opsets, int depth) {
    if (depth > kMaxNesting)
      fail(ErrorCode::LimitExceeded, "{}: subgraphs and functions are nested deeper than {}", model_.file, kMaxNesting);
    for (const Node* node : in_order(nodes, outputs, model_.file)) {
      if (graph.nodes().size() > kMaxNodes) fail(ErrorCode::LimitExceeded, "{}: more than {} nodes", model_.file, kMaxNodes);
      run_node(*node, scope, opsets, depth);
    }
  }

  void run_node(const Node& node, Scope& scope, const std::map<std::string, std::int64_t>& opsets, int depth) {
    std::vector<Symbol*> results(node.outputs.size(), nullptr);
    const std::size_t first = graph.nodes().size();
    std::vector<Symbol*> inputs;
    bool complete = true;
    for (const std::string& name : node.inputs) {
      Symbol* s = nullptr;
      if (!name.empty()) {
        const auto [there, found] = scope.find(name);
        if (!there) fail(ErrorCode::CorruptFile, "{}: {} reads '{}', which nothing makes", model_.file, node.label(), name);
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

  /// Errors and dumps of the graph name the node of the file.
  void name_nodes(const Node& node, std::size_t first, const std::vector<Symbol*>& results) {
    for (std::size_t id = first; id < graph.nodes().size(); ++id) {
      if (const std::string& file = graph.nodes()[id].line.file; !file.ends_with(".cpp") && !file.ends_with(".h")) continue;  // an inner node's
      graph.mutable_node(static_cast<NodeId>(id)).line = SourceLine(node.label(), 0);
    }
    for (std::size_t i = 0; i < results.size() && i < node.outputs.size(); ++i) {
      if (results[i] == nullptr || !results[i]->value || results[i]->value.id().node < first) continue;
      aeshna::Node& made = graph.mutable_node(results[i]->value.id().node);
      if (made.name.empty()) made.name = node.outputs[i];
    }
  }

  std::vector<Symbol*> translate(const Node& node, std::span<Symbol* const> inputs, bool complete, Scope& scope,
                                 const std::map<std::string, std::int64_t>& opsets, int depth) {
    if (const Function* function = find_function(node)) {
      if (!complete) return {};
      return call(*function, node, inputs, depth);
    }
    const bool control = node.domain.empty() && (node.op == "If" || node.op == "Loop" || node.op == "Scan");
    const Op* op = find_op(node.domain, node.op);
    if (op == nullptr && !control) throw Refusal{"this op is not supported"};
    const auto opset = opsets.find(node.domain);
    if (opset == opsets.end()) throw Refusal{formatted("opset_import does not have its domain '{}'", node.domain)};
    if (!complete) return {};  // what it reads is in the list already
    if (control) {
      if (node.op == "If") return branch(node, inputs, scope, opsets, depth);
      if (node.op == "Loop") return loop(node, inputs, scope, opsets, depth);
      return scan(node, inputs, scope, opsets, depth);
    }
    if (node.domain.empty() && opset->second < op->since)
      throw Refusal{formatted("appeared in opset {}, the model uses {}", op->since, opset->second)};

    std::set<std::string> depends;
    bool fold = op->fold;
    for (const Symbol* s : inputs) {
      if (s == nullptr) continue;
      depends.insert(s->inputs.begin(), s->inputs.end());
      fold = fold && s->known && !(options_.trainable && !s->weight.empty() && is_float(s->type.dtype) && s->type.shape.elements() > 1) &&
             s->type.shape.elements() <= kMaxFold;
    }
    if (fold) {
      if (auto folded = evaluate(*op, node, inputs, opset->second)) return *folded;
    }
    Context context(*this, node, inputs, opset->second, options_.f64_as_f32);
    const Values values = op->translate(context);
    context.refuse_unread();
    std::vector<Symbol*> results;
    for (const Value& v : values) {
      if (!v) {
        results.push_back(nullptr);
        continue;
      }
      if (const aeshna::Node& made = graph.node(v.id().node); is_constant(made)) {  // of shapes alone, or Constant itself
        results.push_back(constant(made.attrs.get<Literal>("value"), node.op == "Constant" ? node.outputs[0] : std::string(), context.result_bits));
        continue;
      }
      if (!on_device(v.dtype())) throw Refusal{off_device(v.dtype())};
      results.push_back(symbol({.type = v.type(), .value = v, .bits = context.result_bits, .inputs = depends}));
    }
    check_results(node, results);
    return results;
  }

  static void check_results(const Node& node, std::span<Symbol* const> results) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].empty() && (i >= results.size() || results[i] == nullptr))
        throw Refusal{formatted("result {} ('{}') is not supported", i, node.outputs[i])};
    }
  }

  /// The results of a node whose inputs are known; none if they are too large to keep.
  std::optional<std::vector<Symbol*>> evaluate(const Op& op, const Node& node, std::span<Symbol* const> inputs, std::int64_t opset) {
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
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i]) scratch_graph.output(std::to_string(i), values[i]);
    }
    InterpreterResult result = interpret(scratch_graph, {}, Rounding::Storage);
    std::vector<Symbol*> results;
    for (std::size_t i = 0; i < values.size(); ++i) {
      results.push_back(!values[i] ? nullptr
                                   : constant(literal(result.outputs.at(std::to_string(i))),
                                              std::string(), context.result_bits));
    }
    check_results(node, results);
    return results;
  }

  /// Back from double; see Scratch.
  static Literal literal(const HostTensor& tensor) {
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

  // ---- functions and control flow

  const Function* find_function(const Node& node) const {
    for (const Function& f : model_.functions) {
      if (f.name == node.op && f.domain == node.domain) return &f;
    }
    return nullptr;
  }

  /// Attributes of the call in place of references to them; an attribute that nobody gives is absent.
  static void substitute(std::vector<Attribute>& attributes, const std::map<std::string, Attribute>& given) {
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

  std::vector<Symbol*> call(const Function& function, const Node& node, std::span<Symbol* const> inputs, int depth) {
    if (depth >= kMaxNesting) throw Refusal{formatted("functions call each other deeper than {}", kMaxNesting)};
    std::map<std::string, Attribute> given;
    for (const Attribute& a : function.defaults) given[a.name] = a;
    for (const Attribute& a : node.attributes) given[a.name] = a;
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

  std::vector<Symbol*> collect(std::span<const std::string> names, const Scope& scope) const {
    std::vector<Symbol*> results;
    for (const std::string& name : names) {
      const auto [there, s] = scope.find(name);
      if (!there) fail(ErrorCode::CorruptFile, "{}: '{}', the result of a subgraph or function, is made by no node", model_.file, name);
      results.push_back(s);
    }
    return results;
  }

  static const Graph& body_of(const Node& node, std::string_view name) {
    for (const Attribute& a : node.attributes) {
      if (a.name == name && a.graph) return *a.graph;
    }
    throw Refusal{formatted("attribute '{}' is missing or no graph", name)};
  }

  static std::vector<std::string> output_names(const Graph& graph) {
    std::vector<std::string> names;
    for (const ValueInfo& output : graph.outputs) names.push_back(output.name);
    return names;
  }

  /// One evaluation of a subgraph.
  std::vector<Symbol*> run_body(const Graph& body, std::span<Symbol* const> arguments, const Scope& outer,
                                const std::map<std::string, std::int64_t>& opsets, int depth) {
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

  /// What is known of a condition or a count; refuses if nothing is.
  static double known_scalar(const Node& node, std::span<Symbol* const> inputs, std::size_t i, std::string_view what) {
    const Symbol* s = inputs[i];
    if (!s->known) throw Refusal{formatted("{} ('{}') must be known when the model is loaded", what, node.inputs[i]), i};
    if (s->type.shape.elements() != 1) throw Refusal{formatted("{} is {}", what, s->type.to_string())};
    return s->known->at(0);
  }

  std::vector<Symbol*> branch(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                              const std::map<std::string, std::int64_t>& opsets, int depth) {
    if (inputs.size() != 1 || inputs[0] == nullptr) throw Refusal{"one condition is expected"};
    const bool condition = known_scalar(node, inputs, 0, "its condition") != 0;
    return run_body(body_of(node, condition ? "then_branch" : "else_branch"), {}, scope, opsets, depth);
  }

  Symbol* stacked(const std::vector<Symbol*>& parts, std::size_t axis, bool reversed) {
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

  std::vector<Symbol*> loop(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                            const std::map<std::string, std::int64_t>& opsets, int depth) {
    const Graph& body = body_of(node, "body");
    const bool bounded = !inputs.empty() && inputs[0] != nullptr;
    const bool conditional = inputs.size() > 1 && inputs[1] != nullptr;
    if (!bounded && !conditional) throw Refusal{"neither a count nor a condition ends it"};
    const double count = bounded ? known_scalar(node, inputs, 0, "its count") : static_cast<double>(kMaxIterations) + 1;
    bool more = !conditional || known_scalar(node, inputs, 1, "its condition") != 0;
    const std::size_t states = inputs.size() > 2 ? inputs.size() - 2 : 0;
    std::vector<Symbol*> state(inputs.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(inputs.size(), 2)), inputs.end());
    if (body.outputs.size() < 1 + states) throw Refusal{"its body has too few outputs"};
    std::vector<std::vector<Symbol*>> collected(body.outputs.size() - 1 - states);
    for (std::int64_t i = 0; more && static_cast<double>(i) < count; ++i) {
      if (i >= kMaxIterations) throw Refusal{formatted("more than {} iterations would be unrolled", kMaxIterations)};
      std::vector<Symbol*> arguments = {constant(Literal::scalar(static_cast<double>(i), DType::i64)),
                                        constant(Literal::scalar(1, DType::boolean))};
      arguments.insert(arguments.end(), state.begin(), state.end());
      const std::vector<Symbol*> results = run_body(body, arguments, scope, opsets, depth);
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

  static Ints ints_of(const Node& node, std::string_view name, std::size_t count) {
    for (const Attribute& a : node.attributes) {
      if (a.name != name) continue;
      if (a.ints.size() != count) throw Refusal{formatted("attribute '{}' has {} entries, {} are needed", name, a.ints.size(), count)};
      return a.ints;
    }
    return Ints(count, 0);
  }

  std::vector<Symbol*> scan(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                            const std::map<std::string, std::int64_t>& opsets, int depth) {
    if (opsets.at("") < 9) throw Refusal{"Scan of opset 8 is not supported"};
    const Graph& body = body_of(node, "body");
    std::int64_t scans = -1;
    for (const Attribute& a : node.attributes) {
      if (a.name == "num_scan_inputs") scans = a.i;
    }
    if (scans < 1 || scans > static_cast<std::int64_t>(inputs.size()) || std::ranges::find(inputs, nullptr) != inputs.end())
      throw Refusal{"num_scan_inputs does not fit its inputs"};
    const std::size_t states = inputs.size() - static_cast<std::size_t>(scans);
    if (body.outputs.size() < states) throw Refusal{"its body has too few outputs"};
    const std::size_t results_count = body.outputs.size() - states;
    const auto n = static_cast<std::size_t>(scans);
    const Ints in_axes = ints_of(node, "scan_input_axes", n), in_back = ints_of(node, "scan_input_directions", n);
    const Ints out_axes = ints_of(node, "scan_output_axes", results_count), out_back = ints_of(node, "scan_output_directions", results_count);
    std::int64_t length = -1;
    for (std::size_t k = 0; k < n; ++k) {
      const Shape& shape = inputs[states + k]->type.shape;
      const std::int64_t extent = shape[shape.axis(in_axes[k])];
      if (length >= 0 && extent != length) throw Refusal{"its inputs have different lengths"};
      length = extent;
    }
    if (length > kMaxIterations) throw Refusal{formatted("more than {} iterations would be unrolled", kMaxIterations)};
    std::vector<Symbol*> state(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(states));
    std::vector<std::vector<Symbol*>> collected(results_count);
    for (std::int64_t i = 0; i < length; ++i) {
      std::vector<Symbol*> arguments = state;
      for (std::size_t k = 0; k < n; ++k) {
        Symbol* whole = inputs[states + k];
        const int axis = whole->type.shape.axis(in_axes[k]);
        const std::int64_t at = in_back[k] != 0 ? length - 1 - i : i;
        Ints dims = dims_of(whole->type.shape);
        dims.erase(dims.begin() + axis);
        const Value part = reshape(slice(value(*whole), {axis}, {at}, {at + 1}), dims);
        arguments.push_back(symbol({.type = part.type(), .value = part, .inputs = whole->inputs}));
      }
      const std::vector<Symbol*> results = run_body(body, arguments, scope, opsets, depth);
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

  const Model& model_;
  const ImportOptions& options_;
  Outcome& outcome_;
  std::deque<Symbol> symbols_;
  std::deque<std::vector<Node>> kept_;
};

void count_nodes(std::span<const Node> nodes, std::map<std::string, std::int64_t>& ops) {
  for (const Node& node : nodes) {
    ++ops[node.qualified_op()];
    for (const Attribute& a : node.attributes) {
      if (a.graph) count_nodes(a.graph->nodes, ops);
    }
  }
}

}  // namespace

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

namespace aeshna {
namespace {

std::string list_of(const std::vector<UnsupportedNode>& nodes) {
  std::string text;
  for (const UnsupportedNode& n : nodes) {
    text += formatted("\n  {} '{}': {}", n.op, n.name, n.reason);
    for (std::size_t i = 0; i < n.bind.size(); ++i) text += formatted("{}--bind {}=...", i == 0 ? " (give " : ", ", n.bind[i]);
    if (!n.bind.empty()) text += ')';
  }
  return text;
}

}  // namespace

ImportedModel import_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  onnx::Outcome outcome = onnx::import_model(onnx::read_model(path), options);
  if (!outcome.unsupported.empty()) {
    fail(ErrorCode::Unsupported, "{}: {} of its nodes are not supported:{}", path.string(), outcome.unsupported.size(),
         list_of(outcome.unsupported));
  }
  return std::move(outcome.model);
}

OnnxInfo inspect_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  const onnx::Model model = onnx::read_model(path);
  OnnxInfo info;
  info.producer = model.producer;
  info.ir_version = model.ir_version;
  if (const auto opset = model.opsets.find(""); opset != model.opsets.end()) info.opset = opset->second;
  info.ops = onnx::count_ops(model);
  std::set<std::string> weights;
  for (const onnx::Tensor& t : model.graph.initializers) {
    weights.insert(t.name);
    ++info.weights;
    info.weight_elements += t.value.type().shape.elements();
  }
  for (const onnx::ValueInfo& v : model.graph.inputs) {
    if (!weights.contains(v.name)) info.inputs.push_back({v.name, v.type_text()});
  }
  for (const onnx::ValueInfo& v : model.graph.outputs) info.outputs.push_back({v.name, v.type_text()});
  try {
    info.unsupported = onnx::import_model(model, options).unsupported;
  } catch (const Error& error) {
    info.problem = error.message();
  }
  return info;
}

}  // namespace aeshna
