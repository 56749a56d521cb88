#include "ir/interpreter.h"

#include <cmath>
#include <limits>

#include "base/fail.h"
#include "base/half.h"
#include "base/names.h"
#include "ir/device_types.h"
#include "ir/leaf.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

double wrap(double value, int bits, bool is_signed) {
  if (!std::isfinite(value)) return 0;
  const double span = std::ldexp(1.0, bits);
  // What fits stays: -1 + 2^64 is no double.
  if (value >= (is_signed ? -span / 2 : 0) && value < (is_signed ? span / 2 : span)) return std::trunc(value) + 0.0;
  double wrapped = std::fmod(std::trunc(value), span);  // exact
  if (wrapped < 0) wrapped += span;
  if (is_signed && wrapped >= span / 2) wrapped -= span;
  return wrapped + 0.0;  // no negative zero
}

class Run {
 public:
  Run(const Graph& graph, Rounding rounding, bool keep_values)
      : graph_(graph), rounding_(rounding), keep_values_(keep_values), values_(graph.nodes().size()), uses_(count_uses(graph)) {}

  InterpreterResult run(const TensorMap& leaves) {
    InterpreterResult result;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.nodes()[id];
      if (node.op->kind == OpKind::Leaf && !is_constant(node)) {
        values_[id].push_back(leaf(node, leaves));
      } else {
        evaluate(id, node);
      }
      for (HostTensor& value : values_[id]) round(value);
      if (node.op->name == "assign") result.assigned.insert_or_assign(graph_.node(node.inputs[0].node).name, at(node.inputs[1]));
      release_inputs(node);
    }
    for (const Graph::Output& output : graph_.outputs()) result.outputs.emplace(output.name, at(output.value));
    if (keep_values_) result.values = std::move(values_);
    return result;
  }

 private:
  const HostTensor& at(ValueId id) const { return values_[id.node][id.result]; }

  static HostTensor leaf(const Node& node, const TensorMap& leaves) {
    const auto found = leaves.find(node.name);
    if (found == leaves.end()) {
      std::vector<std::string> names;
      for (const auto& [name, value] : leaves) names.push_back(name);
      fail(ErrorCode::NotFound, "interpreter: no value was given for the {} '{}'{}", node.op->name, node.name, suggest_names(node.name, names));
    }
    const HostTensor& value = found->second;
    if (value.type != node.results[0] || static_cast<std::int64_t>(value.data.size()) != value.type.shape.elements()) {
      fail(ErrorCode::ShapeMismatch, "interpreter: the {} '{}' has type {}, the value given {} with {} elements", node.op->name, node.name,
           node.results[0].to_string(), value.type.to_string(), value.data.size());
    }
    return value;
  }

  void evaluate(NodeId id, const Node& node) {
    std::vector<const HostTensor*> inputs;
    for (const ValueId& input : node.inputs) inputs.push_back(&at(input));
    auto& results = values_[id];
    if (node.op->eval) {
      for (const TensorType& type : node.results) results.emplace_back(type);
      node.op->eval(EvalContext{node, inputs, results});
    } else if (node.op->expand) {
      results = evaluate_expansion(node, inputs);
    } else {
      fail(ErrorCode::Unsupported, "interpreter: op '{}' (built at {}) has neither eval nor expand", node.op->name, node.line.to_string());
    }
  }

  /// The specification of a composite op is its expansion: run that as a graph of its own.
  std::vector<HostTensor> evaluate_expansion(const Node& node, std::span<const HostTensor* const> inputs) const {
    Graph graph;
    Node like = node;
    like.name.clear();
    like.segment = Segment::Forward;
    TensorMap leaves;
    std::vector<Value> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "operand" + std::to_string(i);
      HostTensor operand = *inputs[i];
      if (is_half(operand.type.dtype) && !node.op->moves_elements) operand.type.dtype = DType::f32;  // as the compiler widens them (compile/widen.h)
      operands.push_back(graph.input(name, operand.type.shape, operand.type.dtype));
      leaves.emplace(name, std::move(operand));
    }
    const std::vector<Value> results = node.op->expand(BuildContext{graph, like}, operands);
    AESHNA_CHECK(results.size() == node.results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const DType wide = is_half(node.results[i].dtype) ? results[i].dtype() : node.results[i].dtype;
      AESHNA_CHECK(results[i].type() == (TensorType{wide, node.results[i].shape}));
      graph.output(std::to_string(i), results[i]);
    }
    InterpreterResult inner = Run(graph, rounding_, false).run(leaves);
    std::vector<HostTensor> values;
    for (std::size_t i = 0; i < results.size(); ++i) {
      values.push_back(std::move(inner.outputs.at(std::to_string(i))));
      values.back().type = node.results[i];
    }
    return values;
  }

  void round(HostTensor& value) const {
    if (rounding_ == Rounding::Exact || is_quantized(value.type.dtype)) return;  // blocks hold what was quantized
    const bool upward = rounding_ == Rounding::Upward && value.type.dtype == DType::f32;
    for (double& element : value.data) {
      const double nearest = round_to(value.type.dtype, element);
      element = upward && nearest < element ? std::nextafter(static_cast<float>(nearest), INFINITY) : nearest;
    }
  }

  /// Values that no later node reads give their memory back.
  void release_inputs(const Node& node) {
    for (const ValueId& input : node.inputs) {
      if (--uses_[input.node][input.result] == 0 && !keep_values_) values_[input.node][input.result].data = {};
    }
  }

  const Graph& graph_;
  Rounding rounding_;
  bool keep_values_;
  std::vector<std::vector<HostTensor>> values_;
  std::vector<std::vector<std::uint32_t>> uses_;
};

}  // namespace

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64: return value;
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2: return round_to_float(dtype, value);
    case DType::boolean: return value != 0 ? 1 : 0;
    case DType::i4: return wrap(value, 4, true);
    case DType::u4: return wrap(value, 4, false);
    case DType::i8: return wrap(value, 8, true);
    case DType::u8: return wrap(value, 8, false);
    case DType::i16: return wrap(value, 16, true);
    case DType::u16: return wrap(value, 16, false);
    case DType::i32: return wrap(value, 32, true);
    case DType::u32: return wrap(value, 32, false);
    case DType::i64: return wrap(value, 64, true);
    case DType::u64: return wrap(value, 64, false);
    default: fail(ErrorCode::Unsupported, "single values cannot be rounded to the quantized dtype {}", dtype_name(dtype));
  }
}

InterpreterResult interpret(const Graph& graph, const TensorMap& leaves, Rounding rounding, bool keep_values) {
  return Run(graph, rounding, keep_values).run(leaves);
}

}  // namespace aeshna
