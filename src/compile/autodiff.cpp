// Reverse-mode differentiation by appending nodes.
#include <map>
#include <optional>
#include <set>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "compile/widen.h"
#include "ir/op.h"
#include "ops/appended.h"

namespace aeshna {

namespace {

std::string describe(const Node& node) {
  std::string text = node.op->name;
  if (!node.name.empty()) text += formatted(" '{}'", node.name);
  return formatted("{} ({})", text, node.line.to_string());
}

/// One run of the reverse sweep. A value is *active* if it depends on a `wrt` value; only active values get adjoints.
class Differentiator {
 public:
  Differentiator(Graph& graph, Value loss, std::span<const Value> wrt) : graph_(graph), loss_(loss) {
    for (const Value& value : wrt) wrt_.insert(value.id());
    activate();
  }

  void run(Value seed) {
    activate();  // the seed has been appended meanwhile
    const std::size_t end = graph_.nodes().size();
    contribute(loss_.id(), seed, std::nullopt);
    sweep(0, end);
  }

  Value adjoint(ValueId value) const {
    const auto found = adjoints_.find(value);
    return found == adjoints_.end() ? Value() : found->second;
  }

 private:
  bool active(ValueId value) const { return wrt_.contains(value) || active_node_[value.node]; }

  /// Extends the activity of nodes to those appended since (they come after their inputs).
  void activate() {
    for (std::size_t i = active_node_.size(); i < graph_.nodes().size(); ++i) {
      bool depends = false;
      for (const ValueId& input : graph_.nodes()[i].inputs) depends = depends || active(input);
      active_node_.push_back(depends);
    }
  }

  /// Adds `gradient` to the adjoint of `value`; contributions arrive in reverse node order, which fixes the order of the sum.
  void contribute(ValueId value, Value gradient, std::optional<NodeId> from) {
    if (!gradient || !active(value) || !is_float(graph_.type(value).dtype)) return;
    const Node& node = graph_.node(value.node);
    if (gradient.type() != graph_.type(value)) {
      Error error(ErrorCode::Internal,
                  formatted("[{}] gradient is {} but its value is {}", from ? graph_.node(*from).op->name : "gradients",
                            gradient.type().to_string(), graph_.type(value).to_string()));
      throw error.context(describe(from ? graph_.node(*from) : node));
    }
    if (from) reached_from_.try_emplace(value.node, *from);
    Value& total = adjoints_[value];
    total = total ? backward_context(node_copy(value.node)).build().add("add", {total, gradient}) : gradient;
  }

  /// Reverse sweep over the nodes [begin, end).
  void sweep(std::size_t begin, std::size_t end) {
    for (std::size_t i = end; i-- > begin;) {
      if (active_node_[i]) visit(static_cast<NodeId>(i));
    }
  }

  void visit(NodeId id) {
    const Node node = node_copy(id);  // a copy: the graph's nodes move while it grows
    std::vector<Value> dy, inputs, results;
    bool reached = false;
    for (std::uint32_t r = 0; r < node.results.size(); ++r) {
      results.push_back(graph_.value({id, r}));
      dy.push_back(adjoint({id, r}));
      reached = reached || dy.back();
    }
    if (!reached) return;
    for (const ValueId& input : node.inputs) inputs.push_back(graph_.value(input));

    switch (node.op->gradient) {
      case GradientKind::Zero:
        return;
      case GradientKind::NotDifferentiable:
        not_differentiable(id);
      case GradientKind::Rule: {
        const Context context = backward_context(node);
        const BuildContext build = context.build();
        std::vector<Value> gradients;
        const bool moves = node.op->kind == OpKind::Movement || node.op->name == "cast";
        if (moves || (!any_half(inputs) && !any_half(results))) {
          gradients = node.op->vjp(build, inputs, results, dy);
        } else {  // in f32 throughout; what arrives at each operand is rounded once
          gradients = node.op->vjp(build, widened(build, inputs), widened(build, results), widened(build, dy));
        }
        AESHNA_CHECK(gradients.size() == inputs.size());
        for (std::size_t k = 0; k < inputs.size(); ++k) {
          if (gradients[k] && is_float(inputs[k].dtype())) gradients[k] = cast_value(build, gradients[k], inputs[k].dtype());
          contribute(inputs[k].id(), gradients[k], id);
        }
        return;
      }
      case GradientKind::Expansion: {
        // The expansion computes the same values once more, in the node's own segment; expand_composites and merge_common
        // later make one of the two.
        Node like = node;
        like.name.clear();
        const std::size_t begin = graph_.nodes().size();
        const BuildContext build{graph_, like};
        const std::vector<Value> expanded = node.op->expand(build, node.op->moves_elements ? inputs : widened(build, inputs));
        const std::size_t end = graph_.nodes().size();
        AESHNA_CHECK(expanded.size() == results.size());
        activate();
        const Context context = backward_context(node);
        for (std::size_t r = 0; r < expanded.size(); ++r)
          contribute(expanded[r].id(), cast_value(context.build(), dy[r], expanded[r].dtype()), id);
        sweep(begin, end);
        return;
      }
    }
  }

  [[noreturn]] void not_differentiable(NodeId id) const {
    const Node& node = graph_.node(id);
    std::vector<std::string> path{describe(node)};
    for (auto step = reached_from_.find(id); step != reached_from_.end(); step = reached_from_.find(step->second)) {
      path.push_back(describe(graph_.node(step->second)));
    }
    std::string text = "loss";
    for (auto step = path.rbegin(); step != path.rend(); ++step) text += " <- " + *step;
    Error error(ErrorCode::InvalidArgument,
                formatted("[{}] is not differentiable, and a gradient has to pass through it", node.op->name));
    throw error.context(describe(node)).context(formatted("path {}", text));
  }

  Node node_copy(NodeId id) const {
    Node copy = graph_.node(id);
    copy.origins = origins_of(copy, id);
    return copy;
  }

  /// Owns the `like` node that BuildContext refers to.
  struct Context {
    Graph& graph;
    Node like;
    BuildContext build() const { return {graph, like}; }
  };
  Context backward_context(Node like) const {
    like.name.clear();
    like.segment = std::max(like.segment, Segment::Backward);
    like.precision = Precision::Full;
    return {graph_, std::move(like)};
  }

  Graph& graph_;
  Value loss_;
  std::set<ValueId> wrt_;
  std::vector<bool> active_node_;
  std::map<ValueId, Value> adjoints_;
  std::map<NodeId, NodeId> reached_from_;  ///< node -> the consumer through which its first adjoint came
};

}  // namespace

std::vector<Value> reaching_gradients(Graph& graph, Value loss, std::span<const Value> wrt, double seed) {
  if (!loss || &loss.graph() != &graph)
    fail(ErrorCode::InvalidArgument, "[gradients] the loss is not a value of this graph");
  if (loss.shape().rank() != 0 || !is_float(loss.dtype())) {
    Error error(ErrorCode::ShapeMismatch,
                formatted("[gradients] the loss must be a float scalar (rank 0), found {}", loss.type().to_string()));
    throw error.context(describe(loss.node()));
  }
  for (const Value& value : wrt) {
    if (!value || &value.graph() != &graph) {
      fail(ErrorCode::InvalidArgument, "[gradients] a value to differentiate with respect to is not of this graph");
    }
    if (!is_float(value.dtype())) {
      Error error(ErrorCode::DTypeMismatch,
                  formatted("[gradients] only float values have gradients, found {}", value.type().to_string()));
      throw error.context(describe(value.node()));
    }
  }

  Differentiator differentiator(graph, loss, wrt);
  differentiator.run(graph.constant(seed, loss.dtype()));

  std::vector<Value> gradients;
  for (const Value& value : wrt) gradients.push_back(differentiator.adjoint(value.id()));
  return gradients;
}

Value zero_gradient(Graph& graph, Value value) {
  const Node like = value.node();
  AppendScope scope(graph, Segment::Backward, like, value.id().node);
  const Value zero = graph.constant(0, value.dtype());
  const auto dims = value.shape().dims();
  return dims.empty() ? zero : expand(zero, {dims.begin(), dims.end()});
}

std::vector<Value> differentiate(Graph& graph, Value loss, std::span<const Value> wrt, double seed) {
  std::vector<Value> gradients = reaching_gradients(graph, loss, wrt, seed);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    if (!gradients[i]) gradients[i] = zero_gradient(graph, wrt[i]);
  }
  return gradients;
}

std::vector<Value> gradients(Value loss, const std::vector<Value>& wrt) {
  if (!loss) fail(ErrorCode::InvalidArgument, "[gradients] the loss is an empty Value");
  return differentiate(loss.graph(), loss, wrt);
}

}  // namespace aeshna
