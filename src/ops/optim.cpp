// Optimizer updates as pointwise primitives in f32 (formulas: include/aeshna/optim.h), so that each parameter's update
// fuses into one kernel. What depends on the step alone is a rank-0 subgraph that equal-node merging shares among parameters.
#include "ops/optim.h"

#include <charconv>
#include <cmath>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/op.h"
#include "ops/appended.h"

namespace aeshna {

AppendScope::AppendScope(Graph& graph, Segment segment, const Node& like, NodeId like_id)
    : graph_(graph),
      first_(graph.nodes().size()),
      segment_(segment),
      line_(like.line),
      origins_(origins_of(like, like_id)) {}

AppendScope::AppendScope(Graph& graph, Segment segment, SourceLine line)
    : graph_(graph), first_(graph.nodes().size()), segment_(segment), line_(std::move(line)) {}

AppendScope::~AppendScope() {
  for (std::size_t i = first_; i < graph_.nodes().size(); ++i) {
    Node& node = graph_.mutable_node(static_cast<NodeId>(i));
    node.line = line_;
    node.origins = origins_;
    if (node.op->kind == OpKind::Leaf) continue;  // leaves are read by every segment
    node.segment = segment_;
    node.precision = Precision::Full;
  }
}

std::vector<NodeId> origins_of(const Node& node, NodeId id) {
  return node.origins.empty() ? std::vector<NodeId>{id} : node.origins;
}

namespace {

/// The double that a user who wrote 0.999f meant: the shortest decimal that gives this float. So 1 - beta and log(beta)
/// agree with torch, which keeps hyperparameters in double.
double as_written(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = 0;
  std::from_chars(text, end, result);
  return result;
}

/// One parameter's update while it is being built.
struct Update {
  Graph& graph;
  std::string name;  ///< of the parameter
  Value p;           ///< f32
  Value g;           ///< f32, scaled by the clipping factor
  Value lr;          ///< f32 rank 0, with the parameter's multiplier
  Value step, ok;
  double decay_scale;

  /// Moment leaf of this parameter, zero at first.
  Value slot(std::string_view slot_name) const {
    return graph.state(formatted("aeshna.opt.{}/{}", slot_name, name), p.shape(), DType::f32, Init::zeros());
  }
  /// A bad step changes nothing.
  void store(Value leaf, Value old_value, Value new_value) const {
    Value kept = select(ok, new_value, old_value);
    graph.assign(leaf, kept.dtype() == leaf.dtype() ? kept : cast(kept, leaf.dtype()));
  }
  /// 1 - beta^step, accurate for beta near 1 (expm1 keeps the digits that the subtraction would lose).
  Value bias_correction(double beta) const {
    if (beta == 0) return graph.constant(1.0);
    return -expm1(step * std::log(beta));
  }
  Value moment(Value old, Value x, double beta) const { return old * beta + x * (1 - beta); }
};

void require(bool condition, std::string_view optimizer, std::string_view what, double found) {
  if (!condition) fail(ErrorCode::InvalidArgument, "[{}] {}, found {}", optimizer, what, found);
}

void check_common(std::string_view name, float lr, float weight_decay) {
  require(std::isfinite(lr) && lr >= 0, name, "lr must be finite and >= 0", lr);
  require(std::isfinite(weight_decay) && weight_decay >= 0, name, "weight_decay must be finite and >= 0", weight_decay);
}

void check_betas(std::string_view name, float beta1, float beta2, float eps) {
  require(beta1 >= 0 && beta1 < 1, name, "beta1 must be in [0, 1)", beta1);
  require(beta2 >= 0 && beta2 < 1, name, "beta2 must be in [0, 1)", beta2);
  require(std::isfinite(eps) && eps > 0, name, "eps must be finite and > 0", eps);
}

Value l2(const Update& u, double weight_decay) { return weight_decay == 0 ? u.g : u.g + u.p * weight_decay; }
Value decoupled(const Update& u, double weight_decay) {
  return weight_decay == 0 ? u.p : u.p * (1.0 - u.lr * weight_decay);
}

Value apply(const Sgd& o, const Update& u) {
  Value d = l2(u, as_written(o.weight_decay) * u.decay_scale);
  if (o.momentum != 0) {
    const Value buffer = u.slot("momentum");
    // The first step starts the buffer with the gradient itself, undamped (torch.optim.SGD).
    const Value next =
        select(equal(u.step, 1.0), d, buffer * as_written(o.momentum) + d * (1 - as_written(o.dampening)));
    u.store(buffer, buffer, next);
    d = o.nesterov ? d + next * as_written(o.momentum) : next;
  }
  return u.p - u.lr * d;
}

/// m, v and the step along m / sqrt(v), both bias-corrected.
Value adam_step(const Update& u, Value p, Value g, double beta1, double beta2, double eps) {
  const Value m = u.slot("m"), v = u.slot("v");
  const Value next_m = u.moment(m, g, beta1), next_v = u.moment(v, g * g, beta2);
  u.store(m, m, next_m);
  u.store(v, v, next_v);
  const Value step_size = u.lr / u.bias_correction(beta1);
  return p - step_size * (next_m / (sqrt(next_v) / sqrt(u.bias_correction(beta2)) + eps));
}

Value apply(const Adam& o, const Update& u) {
  return adam_step(u, u.p, l2(u, as_written(o.weight_decay) * u.decay_scale), as_written(o.beta1), as_written(o.beta2),
                   as_written(o.eps));
}

Value apply(const AdamW& o, const Update& u) {
  return adam_step(u, decoupled(u, as_written(o.weight_decay) * u.decay_scale), u.g, as_written(o.beta1),
                   as_written(o.beta2), as_written(o.eps));
}

Value apply(const LaProp& o, const Update& u) {
  const double beta1 = as_written(o.beta1), beta2 = as_written(o.beta2);
  const Value m = u.slot("m"), v = u.slot("v");
  const Value next_v = u.moment(v, u.g * u.g, beta2);
  const Value normalised = u.g / (sqrt(next_v / u.bias_correction(beta2)) + as_written(o.eps));
  const Value next_m = u.moment(m, normalised, beta1);
  u.store(m, m, next_m);
  u.store(v, v, next_v);
  return decoupled(u, as_written(o.weight_decay) * u.decay_scale) - (u.lr / u.bias_correction(beta1)) * next_m;
}

void check(const Sgd& o) {
  check_common("sgd", o.lr, o.weight_decay);
  require(std::isfinite(o.momentum) && o.momentum >= 0, "sgd", "momentum must be finite and >= 0", o.momentum);
  require(!o.nesterov || o.momentum > 0, "sgd", "nesterov needs momentum > 0", o.momentum);
  require(!o.nesterov || o.dampening == 0, "sgd", "nesterov needs dampening 0", o.dampening);
}
void check(const Adam& o) {
  check_common("adam", o.lr, o.weight_decay);
  check_betas("adam", o.beta1, o.beta2, o.eps);
}
void check(const AdamW& o) {
  check_common("adamw", o.lr, o.weight_decay);
  check_betas("adamw", o.beta1, o.beta2, o.eps);
}
void check(const LaProp& o) {
  check_common("laprop", o.lr, o.weight_decay);
  check_betas("laprop", o.beta1, o.beta2, o.eps);
}

Value to_f32(Value v) { return v.dtype() == DType::f32 ? v : cast(v, DType::f32); }

}  // namespace

void append_update(Graph& graph, const Optimizer& optimizer, Value parameter, Value gradient,
                   const UpdateScalars& scalars, double lr_scale, double decay_scale) {
  const Node leaf = parameter.node();
  if (!is_float(parameter.dtype())) {
    fail(ErrorCode::DTypeMismatch, "[optimizer] parameter '{}' is {}; only float parameters can be trained", leaf.name,
         parameter.type().to_string());
  }
  AppendScope scope(graph, Segment::Update, leaf, parameter.id().node);
  Update update{.graph = graph,
                .name = leaf.name,
                .p = to_f32(parameter),
                .g = to_f32(gradient),
                .lr = lr_scale == 1 ? scalars.lr : scalars.lr * lr_scale,
                .step = scalars.step,
                .ok = scalars.ok,
                .decay_scale = decay_scale};
  if (scalars.scale) update.g = update.g * scalars.scale;
  const Value next = std::visit(
      [&](const auto& o) {
        check(o);
        return apply(o, update);
      },
      optimizer);
  update.store(parameter, update.p, next);
}

}  // namespace aeshna
