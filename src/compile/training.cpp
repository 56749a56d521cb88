// From a graph with a loss to a graph that trains.
#include "compile/training.h"

#include <cmath>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/names.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ops/appended.h"
#include "ops/optim.h"

namespace aeshna {

namespace {

std::string joined(std::string_view prefix, std::string_view name) { return std::string(prefix).append(name); }

/// The step number that random nodes read when an update has N micro-steps: step * N + micro-step, so that each draws anew.
/// The micro-step is a state, begun by the first.
Value random_step(Graph& graph, Value step, std::uint32_t micro_steps) {
  const Value first = not_equal(graph.input(reserved::first_micro, {}, DType::i32), 0);
  const Value micro = graph.state(reserved::micro_step, {}, DType::u32, Init::zeros());
  const Value current = select(first, graph.constant(0, DType::u32), micro);
  {
    AppendScope scope(graph, Segment::Backward);
    graph.assign(micro, current + 1);
  }
  return step * static_cast<std::int64_t>(micro_steps) + current;
}

/// A copy of the source whose assigns are taken out, to be put back once `ok` exists.
struct Unassigned {
  struct Pending {
    ValueId leaf, value;
    SourceLine line;
  };
  std::shared_ptr<Graph> graph;
  std::vector<Pending> assigns;
};

Unassigned take_out_assigns(const Graph& source, std::uint32_t micro_steps) {
  Unassigned result;
  Rebuilder rebuild(source);
  Value drawn;  // what random nodes read instead of the step
  for (std::size_t i = 0; i < source.nodes().size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = source.node(id);
    if (node.op->name == "assign") {
      result.assigns.push_back({rebuild.mapped(node.inputs[0]).id(), rebuild.mapped(node.inputs[1]).id(), node.line});
      rebuild.drop(id);
    } else if (micro_steps > 1 && is_random(node)) {
      Graph& target = rebuild.target();
      std::vector<ValueId> inputs;
      for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input).id());
      if (!drawn) drawn = random_step(target, target.value(inputs.back()), micro_steps);
      inputs.back() = drawn.id();
      rebuild.map(id, {target.value({target.add_node(*node.op, std::move(inputs), node.attrs, node), 0})});
    } else {
      rebuild.copy(id);
    }
  }
  result.graph = rebuild.finish();
  return result;
}

/// A check sink: `bad` true makes the step bad.
void append_check(Graph& graph, Value bad, std::string_view code, std::string what, const SourceLine& line) {
  const Value operands[] = {bad};
  graph.add("check", operands, {{"code", std::string(code)}, {"what", std::move(what)}}, line);
}

Value placeholder(Graph& graph, std::string_view name, Segment segment) {
  const Value value = graph.input(name, {}, DType::boolean);
  graph.mutable_node(value.id().node).segment = segment;
  return value;
}

/// assign(leaf, ok ? value : old), in the segment of `ok`.
void put_back_assigns(Graph& graph, const std::vector<Unassigned::Pending>& assigns, Value ok) {
  for (const auto& [leaf_id, value_id, line] : assigns) {
    const Node like = graph.node(value_id.node);
    AppendScope scope(graph, ok.node().segment, like, value_id.node);
    const Value leaf = graph.value(leaf_id);
    graph.assign(leaf, select(ok, graph.value(value_id), leaf));
  }
}

/// sqrt(sum of squares) over all gradients, added in the order of the parameters.
Value global_norm(const std::vector<Value>& gradients) {
  Value total;
  for (const Value& gradient : gradients) {
    const Value g = gradient.dtype() == DType::f32 ? gradient : cast(gradient, DType::f32);
    const Value squares = sum(g * g);
    total = total ? total + squares : squares;
  }
  return sqrt(total);
}

/// Sum of the gradients over the micro-steps of one update. The first micro-step starts it with a select, so that no list
/// of commands has to zero it and a NaN of an abandoned update cannot survive in it.
Value accumulate(Graph& graph, Value parameter, Value gradient, Value first) {
  const Node like = parameter.node();
  AppendScope scope(graph, Segment::Backward, like, parameter.id().node);
  const Value g = gradient.dtype() == DType::f32 ? gradient : cast(gradient, DType::f32);
  const Value state =
      graph.state(joined(reserved::accumulator, like.name), parameter.shape(), DType::f32, Init::zeros());
  const Value total = select(first, g, state + g);
  graph.assign(state, total);
  return total;
}

/// Norm, clipping factor, `ok`, learning rate and step number: rank 0, shared by all parameters.
UpdateScalars append_update_scalars(Graph& graph, const std::vector<Value>& gradients, const TrainingOptions& train,
                                    const SourceLine& loss_line) {
  AppendScope scope(graph, Segment::Update, loss_line);
  UpdateScalars scalars;
  if (train.clip_norm || train.check_gradients) {
    const Value norm = global_norm(gradients);
    graph.output(reserved::grad_norm, norm);
    if (train.check_gradients)
      append_check(graph, logical_not(is_finite(norm)), "non_finite", "gradient norm", loss_line);
    // torch.nn.utils.clip_grad_norm_
    if (train.clip_norm) scalars.scale = minimum(*train.clip_norm / (norm + 1e-6), 1.0);
  }
  scalars.ok = placeholder(graph, reserved::ok, Segment::Update);
  scalars.lr = graph.input(reserved::learning_rate, {});
  const auto counter = graph.leaf(reserved::step);
  const Value step = counter ? graph.value({*counter, 0}) : graph.state(reserved::step, {}, DType::u32, Init::zeros());
  scalars.step = cast(step, DType::f32) + 1.0;
  graph.assign(step, select(scalars.ok, step + 1, step));
  return scalars;
}

}  // namespace

const Graph::Output& find_loss(const Graph& graph, std::string_view name) {
  std::vector<const Graph::Output*> scalars;
  std::vector<std::string> names;
  for (const Graph::Output& output : graph.outputs()) {
    const TensorType& type = graph.type(output.value);
    names.push_back(output.name);
    if (!name.empty() && output.name == name) {
      if (type.shape.rank() == 0 && is_float(type.dtype)) return output;
      Error error(
          ErrorCode::ShapeMismatch,
          formatted("[training] the loss '{}' must be a float scalar (rank 0), found {}", name, type.to_string()));
      throw error.context("the call at " + output.line.to_string());
    }
    if (type.shape.rank() == 0 && is_float(type.dtype)) scalars.push_back(&output);
  }
  if (!name.empty())
    fail(ErrorCode::NotFound, "[training] no output is named '{}'{}", name, suggest_names(name, names));
  if (scalars.size() == 1) return *scalars.front();
  if (scalars.empty()) {
    fail(ErrorCode::InvalidArgument, "[training] the graph has no loss: none of its outputs is a float scalar");
  }
  std::string list;
  for (const Graph::Output* output : scalars) list += formatted("{}'{}'", list.empty() ? "" : ", ", output->name);
  fail(ErrorCode::InvalidArgument, "[training] several outputs could be the loss ({}); name one", list);
}

std::shared_ptr<Graph> append_training(const Graph& source, const PipelineOptions& options) {
  const TrainingOptions& train = options.train;
  if (train.accumulate < 1) fail(ErrorCode::InvalidArgument, "[training] accumulate must be >= 1, found 0");
  if (train.clip_norm && !(std::isfinite(*train.clip_norm) && *train.clip_norm > 0)) {
    fail(ErrorCode::InvalidArgument, "[training] clip_norm must be finite and > 0, found {}", *train.clip_norm);
  }
  const bool accumulating = options.optimizer.has_value() && train.accumulate > 1;
  auto [graph_pointer, assigns] = take_out_assigns(source, accumulating ? train.accumulate : 1);
  Graph& graph = *graph_pointer;

  // --- the loss, and what it is differentiated by
  const Graph::Output loss_output = find_loss(graph, options.loss);
  const Value loss = graph.value(loss_output.value);
  std::vector<Value> parameters, wrt;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (is_parameter(node) && node.attrs.get_or("trainable", true))
      parameters.push_back(graph.value({static_cast<NodeId>(i), 0}));
  }
  std::vector<std::string> requested = options.gradients;
  if (!options.optimizer && requested.empty()) {
    for (const Value& parameter : parameters) requested.push_back(parameter.node().name);
  }
  wrt = parameters;
  for (const std::string& name : requested) wrt.push_back(graph.find(name));

  {
    const Node like = loss.node();
    AppendScope scope(graph, like.segment, like, loss.id().node);
    append_check(graph, logical_not(is_finite(loss)), "non_finite", formatted("loss '{}'", loss_output.name),
                 loss_output.line);
  }

  // --- backward
  const std::vector<Value> reached = reaching_gradients(graph, loss, wrt, accumulating ? 1.0 / train.accumulate : 1.0);
  for (std::size_t i = 0; i < requested.size(); ++i) {
    Value gradient = reached[parameters.size() + i];
    if (!gradient) gradient = zero_gradient(graph, wrt[parameters.size() + i]);
    graph.output(joined(reserved::gradient, requested[i]), gradient);
  }
  if (!options.optimizer) {
    put_back_assigns(graph, assigns, placeholder(graph, reserved::ok, Segment::Backward));
    return graph_pointer;
  }

  std::vector<Value> trained, gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!reached[i]) continue;  // as torch: no gradient, no update
    trained.push_back(parameters[i]);
    gradients.push_back(reached[i]);
  }
  if (trained.empty()) {
    Error error(ErrorCode::InvalidArgument,
                formatted("[training] the loss '{}' depends on no trainable parameter", loss_output.name));
    throw error.context("the call at " + loss_output.line.to_string());
  }
  if (accumulating) {
    const auto known = graph.leaf(reserved::first_micro);
    const Value first_micro = known ? graph.value({*known, 0}) : graph.input(reserved::first_micro, {}, DType::i32);
    Value first;
    {
      AppendScope scope(graph, Segment::Backward);
      first = not_equal(first_micro, 0);
    }
    put_back_assigns(graph, assigns, placeholder(graph, reserved::micro_ok, Segment::Backward));
    for (std::size_t i = 0; i < trained.size(); ++i) gradients[i] = accumulate(graph, trained[i], gradients[i], first);
  }

  // --- update
  UpdateScalars scalars = append_update_scalars(graph, gradients, train, loss_output.line);
  if (!accumulating) put_back_assigns(graph, assigns, scalars.ok);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const Attrs attrs = trained[i].node().attrs;
    append_update(graph, *options.optimizer, trained[i], gradients[i], scalars, attrs.get_or("lr_scale", 1.0),
                  attrs.get_or("decay_scale", 1.0));
  }
  return graph_pointer;
}

}  // namespace aeshna
