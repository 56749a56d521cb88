// What each dispatch of a plan is: where it comes from in the user's graph, what it moves and what it computes.
#include <algorithm>

#include "base/format.h"
#include "ir/access.h"
#include "ir/device_types.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ops/attention.h"
#include "runtime/profile.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

/// Names of places in the user's graph. Few nodes but parameters have names of their own, so that a node is called as the layer
/// whose parameter it reads ("layers.3.mlp.gate_proj" for ".weight"), and others as what they read last ("~layers.3.mlp.gate_proj").
class Sites {
 public:
  explicit Sites(const Graph& graph) : graph_(graph), names_(graph.nodes().size()), layers_(graph.nodes().size()) {
    for (NodeId id = 0; id < graph.nodes().size(); ++id) visit(id);
  }

  const Graph& graph() const { return graph_; }
  const std::string& name(NodeId id) const { return names_[id]; }
  /// Those that are nodes of this graph: what the compiler adds on its own account (checks, scalars of updates) has others.
  std::vector<NodeId> origins(const Node& node) const {
    std::vector<NodeId> known;
    std::ranges::copy_if(node.origins, std::back_inserter(known), [&](NodeId id) { return id < names_.size(); });
    return known;
  }

 private:
  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (is_parameter(node)) {
      const std::size_t end = std::min(node.name.find_last_of("./"), node.name.size());
      layers_[id] = node.name.substr(0, end);
    }
    names_[id] = node.name;
    std::string behind;
    for (const ValueId& input : node.inputs) {  // topological: a later node is the closer one
      const std::string& layer = layers_[input.node];
      if (!layer.empty() && names_[id].empty()) names_[id] = layer;
      const std::string& name = names_[input.node];
      if (!name.empty() && layer.empty() && graph_.node(input.node).op->kind != OpKind::Leaf)
        behind = name.starts_with('~') ? name : '~' + name;
    }
    if (names_[id].empty()) names_[id] = behind;
    const bool moves = node.op->kind == OpKind::Movement || node.op->name == "cast";
    if (moves && !node.inputs.empty()) layers_[id] = layers_[node.inputs[0].node];  // a parameter seen otherwise
  }

  const Graph& graph_;
  std::vector<std::string> names_;
  std::vector<std::string> layers_;  ///< of parameters and views of them
};

bool works(const Node& node) {
  return node.op->kind != OpKind::Leaf && node.op->kind != OpKind::Movement && node.op->kind != OpKind::Index;
}

bool leads(const Node& node) { return node.op->kind == OpKind::Product || node.op->kind == OpKind::Kernel; }

/// Distinct words in order of their first appearance.
class Words {
 public:
  void add(const std::string& word) {
    if (!std::ranges::contains(words_, word)) words_.push_back(word);
  }
  std::string joined() const {
    std::string text;
    for (const std::string& word : words_) text += (text.empty() ? "" : "+") + word;
    return text;
  }

 private:
  std::vector<std::string> words_;
};

/// Site, ops and line of the nodes of `plan_graph` that a kernel computes.
void describe_origin(ProfileRow& row, const Graph& plan_graph, const FusedKernel& kernel, const Sites& sites) {
  std::vector<NodeId> ids(kernel.nodes);
  // What a kernel is known by: its product, else its last node.
  std::ranges::reverse(ids);
  std::ranges::stable_partition(ids, [&](NodeId id) { return leads(plan_graph.node(id)); });
  std::string near;
  for (const NodeId id : ids) {
    for (const NodeId origin : sites.origins(plan_graph.node(id))) {
      const std::string& name = sites.name(origin);
      if (row.site.empty() && !name.starts_with('~')) row.site = name;
      if (near.empty()) near = name;
      if (row.line.empty()) row.line = sites.graph().node(origin).line.to_string();
    }
  }
  if (row.site.empty()) row.site = near;

  Words ops, nodes;
  for (const NodeId id : kernel.nodes) {
    const Node& node = plan_graph.node(id);
    if (works(node) || kernel.nodes.size() == 1) nodes.add(node.op->name);
    if (!works(node)) continue;
    for (const NodeId origin : sites.origins(node)) {
      if (works(sites.graph().node(origin))) ops.add(sites.graph().node(origin).op->name);
    }
  }
  row.nodes = nodes.joined();
  row.ops = ops.joined();
  if (row.ops.empty()) row.ops = row.nodes;
}

bool gathers(const FusedKernel& kernel) {
  bool dynamic = false;
  each_access(kernel, [&](const Body&, std::uint32_t, const Access& access) { dynamic |= !access.dynamic.empty(); });
  return dynamic;
}

std::string family_of(const KernelSpec& spec, const ProfileRow& row) {
  const FusedKernel& kernel = *spec.fused;
  const auto is_conv = [](std::string_view ops) { return ops.starts_with("conv") || ops.contains("+conv"); };
  switch (kernel.kind) {
    case FusedKernel::Kind::Matmul: {
      const std::string product = is_conv(row.nodes) || is_conv(row.ops) ? "conv" : "matmul";
      return spec.family == "gemv" ? product + " gemv" : product;
    }
    case FusedKernel::Kind::Pointwise:
      return gathers(kernel) ? "gather" : "pointwise";
    case FusedKernel::Kind::Reduction:
      return gathers(kernel) ? "reduction gather" : "reduction";
    case FusedKernel::Kind::Template:
      break;
  }
  const std::string& op = kernel.anchor->name;
  return op == "attention_dq" ? "attention dq" : op == "attention_dkv" ? "attention dkv" : spec.family;
}

AttentionProblem attention_problem(const TemplateCall& call, std::string_view op) {
  return AttentionProblem::of(call.inputs, call.attrs, op == "attention" ? kAttentionOperands : kGradientOperands);
}

bool is_attention(const FusedKernel& kernel) {
  return kernel.kind == FusedKernel::Kind::Template && kernel.anchor->name.starts_with("attention");
}

std::string dims(std::span<const std::int64_t> extents) {
  std::string text;
  for (const std::int64_t extent : extents) text += formatted("{}{}", text.empty() ? "" : "x", extent);
  return text.empty() ? "1" : text;
}

std::string shape_of(const FusedKernel& kernel) {
  const std::span space(kernel.space);
  switch (kernel.kind) {
    case FusedKernel::Kind::Matmul: {
      const std::size_t batch = batch_rank(kernel);
      return formatted("{}x{}x{}x{}", points_of(space.first(batch)), points_of(space.subspan(batch, kernel.row_rank)),
                       points_of(space.last(kernel.column_rank)), kernel.k);
    }
    case FusedKernel::Kind::Pointwise:
      return dims(space);
    case FusedKernel::Kind::Reduction:
      return formatted("{} of {}", dims(space.first(kernel.outer_rank)), dims(space.subspan(kernel.outer_rank)));
    case FusedKernel::Kind::Template:
      break;
  }
  if (is_attention(kernel)) {
    const AttentionProblem p = attention_problem(kernel.call, kernel.anchor->name);
    return formatted("{}x{}/{}x{}x{}x{}{}", p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.head_dim,
                     p.causal ? " causal" : "");
  }
  return kernel.call.inputs.empty() ? "" : dims(kernel.call.inputs[0].shape.dims());
}

/// Pairs of a query and a key, of one head, that are not masked by position.
double visible_pairs(const AttentionProblem& p) {
  const auto all = static_cast<double>(p.queries) * static_cast<double>(p.keys);
  if (!p.causal || p.ring || p.position) return all;
  double pairs = 0;
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const std::int64_t at = p.query_offset + i, end = std::min(at + 1, p.keys);
    pairs += static_cast<double>(
        std::max<std::int64_t>(end - (p.window > 0 ? std::max<std::int64_t>(at + 1 - p.window, 0) : 0), 0));
  }
  return pairs;
}

/// Ops other than products: one for each element.
double count_ops(const FusedKernel& kernel, const Body& body, double points, double outer_points) {
  std::vector<bool> outer(body.instrs.size());
  if (kernel.kind == FusedKernel::Kind::Reduction) outer = reduction_levels(kernel).outer;
  double ops = 0;
  for (std::size_t i = 0; i < body.instrs.size(); ++i) {
    const Instr& instr = body.instrs[i];
    if (instr.kind == Instr::Kind::Reduce) ops += points;
    if (instr.kind == Instr::Kind::Op && instr.op->name != "cast") ops += outer[i] ? outer_points : points;
  }
  return ops;
}

double flop_of(const KernelSpec& spec) {
  const FusedKernel& kernel = *spec.fused;
  const auto points = static_cast<double>(points_of(kernel.space));
  switch (kernel.kind) {
    case FusedKernel::Kind::Matmul:
      return 2 * points * static_cast<double>(kernel.k);
    case FusedKernel::Kind::Pointwise:
    case FusedKernel::Kind::Reduction:
      return count_ops(kernel, kernel.body, points,
                       static_cast<double>(points_of(std::span(kernel.space).first(kernel.outer_rank))));
    case FusedKernel::Kind::Template:
      break;
  }
  if (!is_attention(kernel)) return spec.flops;
  const std::string& op = kernel.anchor->name;
  const AttentionProblem p = attention_problem(kernel.call, op);
  const double products = op == "attention" ? 2 : op == "attention_dq" ? 3 : 4;  // of size rows x columns x head_dim
  return 2 * products * static_cast<double>(p.batch * p.heads * p.head_dim) * visible_pairs(p);
}

/// Elements that an access reaches at most.
double reached(const FusedKernel& kernel, const Body& body, const Access& access, bool outer) {
  const std::vector<std::int64_t> space = body_space(kernel, body);
  double elements = 1;
  for (std::size_t d = 0; d < (outer ? kernel.outer_rank : space.size()); ++d) {
    // An index that is looked up may differ at every point.
    if (!access.dynamic.empty() || access.strides[d] != 0) elements *= static_cast<double>(space[d]);
  }
  return elements;
}

/// Of a template: it knows which part of its operands it touches; where it updates a tensor in place, no more than it is given.
double least_bytes_of_template(const PlanStep& step) {
  const FusedKernel& kernel = *step.spec.fused;
  double bytes = 0, given = 0;
  for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
    const auto range = static_cast<double>(step.operands[i].bytes);
    bytes += range;
    if (!kernel.operands[i].written) given += range;
  }
  if (kernel.call.updated) bytes = std::min(bytes, 2 * given);
  return step.spec.bytes > 0 ? std::min(bytes, step.spec.bytes) : bytes;
}

/// What a kernel moves at least: each operand once, of those that it looks into only what it reaches.
double least_bytes(const PlanStep& step) {
  const FusedKernel& kernel = *step.spec.fused;
  if (kernel.kind == FusedKernel::Kind::Template) return least_bytes_of_template(step);
  std::vector<double> elements(kernel.operands.size());
  for (const Body* body : {&kernel.a, &kernel.b, &kernel.body}) {
    for (const Instr& instr : body->instrs) {
      if (instr.kind == Instr::Kind::Load) elements[instr.operand] += reached(kernel, *body, instr.access, false);
    }
    for (const Store& store : body->stores)
      elements[store.operand] += reached(kernel, *body, store.access, store.outer);
  }
  double bytes = 0;
  for (std::size_t i = 0; i < elements.size(); ++i)
    bytes += std::min(static_cast<double>(step.operands[i].bytes),
                      elements[i] * bytes_per_element(kernel.operands[i].dtype));
  return bytes;
}

ProfileRow copy_row(const PlanStep& step, const Plan& plan) {
  ProfileRow row;
  row.site = plan.placements[step.operands[1].placement].name;
  row.ops = row.nodes = row.family = "copy";
  row.shape = dims(plan.placements[step.operands[0].placement].type.shape.dims());
  row.bytes = 2 * static_cast<double>(step.operands[0].bytes);
  return row;
}

ProfileRow dispatch_row(const PlanStep& step, const Session::Impl& session, const Sites& sites) {
  const KernelSpec& spec = step.spec;
  ProfileRow row;
  describe_origin(row, *session.plan.graph, *spec.fused, sites);
  row.family = family_of(spec, row);
  row.variant = spec.variant;
  row.shape = shape_of(*spec.fused);
  row.workgroups = spec.workgroups;
  row.local = spec.local;
  row.bytes = least_bytes(step);
  row.flop = flop_of(spec);
  row.product = spec.fused->kind == FusedKernel::Kind::Matmul || is_attention(*spec.fused);
  row.contract =
      row.product && session.options.contract != Contract::Strict && spec.fused->precision == Precision::Contract;
  return row;
}

}  // namespace

std::vector<ProfileRow> profile_rows(const Session::Impl& session) {
  const Sites sites(*session.graph);
  std::vector<ProfileRow> rows;
  for (std::size_t i = 0; i < session.plan.steps.size(); ++i) {
    const PlanStep& step = session.plan.steps[i];
    const bool copy = step.kind == PlanStep::Kind::Copy;
    if (copy ? step.operands.at(0).bytes == 0 : step.spec.workgroups == 0) continue;
    ProfileRow row = copy ? copy_row(step, session.plan) : dispatch_row(step, session, sites);
    row.step = static_cast<std::uint32_t>(i);
    row.group = step.group;
    row.segment = step.segment;
    for (const PlanOperand& operand : step.operands) {
      if (operand.read) row.bytes_read += operand.bytes;
      if (operand.written) row.bytes_written += operand.bytes;
      // What the compiler added on its own account (checks): what it writes.
      if (operand.written && row.site.empty()) row.site = session.plan.placements[operand.placement].name;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace aeshna
