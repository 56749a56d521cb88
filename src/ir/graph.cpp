#include "aeshna/graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/format.h"
#include "base/names.h"
#include "base/quant.h"
#include "ir/graph_access.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna {

namespace {

std::string scoped(const std::vector<std::string>& scopes, std::string_view name) {
  std::string full;
  for (const std::string& scope : scopes) full += scope + "/";
  return full.append(name);
}

/// Runs `body`; an Error that leaves it gets the builder line as context.
template <class Body>
auto at_line(const SourceLine& line, Body body) {
  try {
    return body();
  } catch (Error& error) {
    throw error.context("the call at " + line.to_string());
  }
}

void set_init(Attrs& attrs, const Init& init) {
  attrs.set("init", std::string(init_kind_name(init.kind)));
  attrs.set("init_a", init.a);
  attrs.set("init_b", init.b);
}

/// Only a state or a parameter, only with its own type, only once.
void check_assign(const Graph& graph, const Node& node, const InferContext& context) {
  const Node& leaf = graph.node(node.inputs[0].node);
  if (!is_state(leaf) && !is_parameter(leaf)) {
    context.fail(ErrorCode::InvalidArgument,
                 "the target is a result of '" + leaf.op->name + "'; only a state or a parameter can be assigned");
  }
  if (context.inputs[0] != context.inputs[1]) {
    const bool dtypes = context.inputs[0].dtype != context.inputs[1].dtype;
    context.fail(dtypes ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
                 "'" + leaf.name + "' has type " + context.inputs[0].to_string() + ", the new value " +
                     context.inputs[1].to_string());
  }
  for (const NodeId other : graph.assigns()) {
    if (graph.node(other).inputs[0] == node.inputs[0]) {
      context.fail(ErrorCode::InvalidArgument,
                   "'" + leaf.name + "' is assigned already, at " + graph.node(other).line.to_string());
    }
  }
}

}  // namespace

std::string SourceLine::to_string() const { return file.empty() ? "?" : file + ":" + std::to_string(line); }

// ---- Value

Graph& Value::graph() const {
  if (graph_ == nullptr) fail(ErrorCode::InvalidArgument, "an empty Value was used; it belongs to no graph");
  return *graph_;
}

const TensorType& Value::type() const { return graph().type(id_); }

const Node& Value::node() const { return graph().node(id_.node); }

Value Value::named(std::string_view name) const {
  if (name.empty()) fail(ErrorCode::InvalidArgument, "a value cannot be given an empty name");
  graph().rename(id_.node, name);
  return *this;
}

// ---- building

NodeId GraphAccess::append(Graph& graph, Node node) {
  const OpDef& op = *node.op;
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (const ValueId& input : node.inputs) {
    types.push_back(graph.type(input));
    node.segment = std::max(node.segment, graph.node(input.node).segment);
  }
  const InferContext context{op, types, node.attrs, node.line};
  const auto count = static_cast<int>(types.size());
  if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs)) {
    const std::string most = op.max_inputs < 0 ? " or more" : " to " + std::to_string(op.max_inputs);
    context.fail(ErrorCode::InvalidArgument, "takes " + std::to_string(op.min_inputs) +
                                                 (op.min_inputs == op.max_inputs ? "" : most) + " operands, got " +
                                                 std::to_string(count));
  }
  for (std::size_t i = 0; i < types.size() && !op.reads_quantized; ++i) {
    if (!is_quantized(types[i].dtype)) continue;
    context.fail(ErrorCode::DTypeMismatch,
                 formatted("operand {} is quantized ({}); only products, gather and cast read quantized tensors", i,
                           types[i].to_string()));
  }
  if (op.name == "assign") check_assign(graph, node, context);
  try {
    node.results = op.infer(context);
    for (const TensorType& type : node.results) type.bytes();  // they fit 64 bits
  } catch (const Error& error) {                               // of attrs and shapes: they do not know the op
    if (error.message().starts_with("[")) throw;
    context.fail(error.code(), error.message());
  }

  const auto id = static_cast<NodeId>(graph.nodes_.size());
  if (op.kind == OpKind::Leaf && !is_constant(node)) {
    if (node.name.empty()) context.fail(ErrorCode::InvalidArgument, "needs a name");
    if (!graph.leaves_.emplace(node.name, id).second) {
      context.fail(ErrorCode::InvalidArgument, "the name '" + node.name + "' is taken by another leaf, made at " +
                                                   graph.node(graph.leaves_.at(node.name)).line.to_string());
    }
  } else if (op.name == "assign") {
    graph.assigns_.push_back(id);
  }
  graph.nodes_.push_back(std::move(node));
  return id;
}

void GraphAccess::add_output(Graph& graph, Graph::Output output) {
  if (output.name.empty()) fail(ErrorCode::InvalidArgument, "[output] needs a name");
  static_cast<void>(graph.type(output.value));  // checks the id
  for (const Graph::Output& other : graph.outputs_) {
    if (other.name == output.name) {
      fail(ErrorCode::InvalidArgument, "[output] the name '{}' is taken by another output, made at {}", output.name,
           other.line.to_string());
    }
  }
  graph.outputs_.push_back(std::move(output));
}

Value Graph::add_leaf(std::string_view op, std::string_view name, TensorType type, Attrs attrs, SourceLine line) {
  Node node;
  node.op = &find_op(op);
  node.attrs = std::move(attrs);
  node.attrs.set("dtype", type.dtype);
  node.attrs.set("dims", std::vector<std::int64_t>(type.shape.begin(), type.shape.end()));
  if (!name.empty()) node.name = scoped(scopes_, name);
  node.line = std::move(line);
  return value({GraphAccess::append(*this, std::move(node)), 0});
}

Value Graph::input(std::string_view name, Shape shape, DType dtype, Loc loc) {
  return add_leaf("input", name, {dtype, shape}, {}, loc);
}

Value Graph::parameter(std::string_view name, Shape shape, ParameterOptions options, Loc loc) {
  return at_line(loc, [&] {
    if (options.trainable && !is_float(options.dtype)) {
      fail(ErrorCode::InvalidArgument, "[parameter] '{}' of dtype {} cannot be trained; say trainable = false", name,
           dtype_name(options.dtype));
    }
    if (!std::isfinite(options.lr_scale) || !std::isfinite(options.decay_scale)) {
      fail(ErrorCode::InvalidArgument, "[parameter] '{}' has lr_scale {} and decay_scale {}; both must be finite", name,
           options.lr_scale, options.decay_scale);
    }
    // torch.nn.Linear's default: uniform within 1/sqrt(fan_in), which is Kaiming uniform with gain sqrt(1/3).
    if (is_quantized(options.dtype) && options.init.value_or(Init::zeros()).kind != Init::Kind::Zeros) {
      fail(ErrorCode::InvalidArgument, "[parameter] '{}' of dtype {} cannot be initialised; set it with Weights::set", name,
           dtype_name(options.dtype));
    }
    if (is_quantized(options.dtype)) options.init = Init::zeros();
    const Init init =
        options.init.value_or(shape.rank() >= 2 ? Init::kaiming_uniform(std::sqrt(1.0 / 3.0)) : Init::zeros());
    Attrs attrs{{"trainable", options.trainable}, {"lr_scale", options.lr_scale}, {"decay_scale", options.decay_scale}};
    set_init(attrs, init);
    return add_leaf("parameter", name, {options.dtype, shape}, std::move(attrs), loc);
  });
}

Value Graph::constant(Literal value, Loc loc) {
  return at_line(loc, [&] {
    if (value.bytes().empty() && value.type().shape.elements() != 0)
      fail(ErrorCode::InvalidArgument, "[constant] the literal holds no data");
    return add("constant", {}, {{"value", std::move(value)}}, loc);
  });
}

Value Graph::constant(double value, DType dtype, Loc loc) {
  return at_line(loc, [&] { return constant(Literal::scalar(value, dtype), loc); });
}

Value Graph::state(std::string_view name, Shape shape, DType dtype, Init init, Loc loc) {
  Attrs attrs;
  set_init(attrs, init);
  return add_leaf("state", name, {dtype, shape}, std::move(attrs), loc);
}

void Graph::assign(Value state, Value value, Loc loc) {
  const Value operands[] = {state, value};
  add("assign", operands, {}, loc);
}

void Graph::output(std::string_view name, Value value, Loc loc) {
  at_line(loc, [&] {
    if (&value.graph() != this) fail(ErrorCode::InvalidArgument, "[output] '{}' belongs to another graph", name);
    GraphAccess::add_output(*this, {name.empty() ? std::string() : scoped(scopes_, name), value.id(), loc});
  });
}

Value Graph::add(std::string_view op, std::span<const Value> inputs, Attrs attrs, SourceLine line,
                 std::uint32_t result) {
  Node node;
  node.op = &find_op(op);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || &inputs[i].graph() != this) {
      Error error(ErrorCode::InvalidArgument,
                  formatted("[{}] operand {} {}", op, i, inputs[i] ? "belongs to another graph" : "is an empty Value"));
      throw error.context("the call at " + line.to_string());
    }
    node.inputs.push_back(inputs[i].id());
  }
  node.attrs = std::move(attrs);
  node.line = std::move(line);
  return value({GraphAccess::append(*this, std::move(node)), result});
}

NodeId Graph::add_node(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, const Node& like) {
  Node node;
  node.op = &op;
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.name = like.name;
  node.line = like.line;
  node.origins = like.origins;
  node.segment = like.segment;
  node.precision = like.precision;
  return GraphAccess::append(*this, std::move(node));
}

void Graph::push_scope(std::string_view name) {
  if (name.empty()) fail(ErrorCode::InvalidArgument, "a scope needs a name");
  scopes_.emplace_back(name);
}

void Graph::pop_scope() {
  if (scopes_.empty()) fail(ErrorCode::InvalidArgument, "pop_scope without a scope");
  scopes_.pop_back();
}

void Graph::rename(NodeId id, std::string_view name) {
  Node& node = mutable_node(id);
  if (node.op->kind == OpKind::Leaf && !is_constant(node)) {
    fail(ErrorCode::InvalidArgument, "'{}' is a leaf and keeps its name; it cannot be named '{}'", node.name, name);
  }
  node.name = scoped(scopes_, name);
}

// ---- looking

const Node& Graph::node(NodeId id) const {
  if (id >= nodes_.size()) fail(ErrorCode::InvalidArgument, "no node {} in a graph of {} nodes", id, nodes_.size());
  return nodes_[id];
}

Node& Graph::mutable_node(NodeId id) { return const_cast<Node&>(std::as_const(*this).node(id)); }

const TensorType& Graph::type(ValueId id) const {
  const Node& owner = node(id.node);
  if (id.result >= owner.results.size()) {
    fail(ErrorCode::InvalidArgument, "node {} ({}) has {} results, so no result {}", id.node, owner.op->name,
         owner.results.size(), id.result);
  }
  return owner.results[id.result];
}

std::optional<NodeId> Graph::leaf(std::string_view name) const {
  const auto at = leaves_.find(name);
  return at == leaves_.end() ? std::nullopt : std::optional(at->second);
}

Value Graph::find(std::string_view name) {
  // A name may be that of a leaf, of an output or of an inner value; it must lead to one value only.
  std::vector<ValueId> found;
  const auto note = [&](ValueId id) {
    if (!std::ranges::contains(found, id)) found.push_back(id);
  };
  for (const Output& output : outputs_) {
    if (output.name == name) note(output.value);
  }
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].name == name && !nodes_[id].results.empty()) note({id, 0});
  }
  if (found.size() == 1) return value(found[0]);
  if (found.size() > 1) {
    fail(ErrorCode::InvalidArgument, "the name '{}' is that of {} values ({} and {} among them)", name, found.size(),
         node(found[0].node).line.to_string(), node(found[1].node).line.to_string());
  }
  std::vector<std::string> names;
  for (const Output& output : outputs_) names.push_back(output.name);
  for (const Node& node : nodes_) {
    if (!node.name.empty() && !std::ranges::contains(names, node.name)) names.push_back(node.name);
  }
  fail(ErrorCode::NotFound, "no value is named '{}'{}", name, suggest_names(name, names));
}

}  // namespace aeshna
