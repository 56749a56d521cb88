// The compiler as one table of stages.
#include "compile/pipeline.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/names.h"
#include "codegen/codegen.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ir/structural_hash.h"
#include "ir/verify.h"

namespace aeshna {

namespace {

/// Inference: dropout is the identity, unless it asks to be always on; random ops draw by the steps of inference sessions, which
/// are counted apart from the updates, so that sampling draws anew and evaluation does not disturb training.
std::shared_ptr<Graph> for_inference(const Graph& graph) {
  const auto active = [](const Node& node) { return node.op->name != "dropout" || node.attrs.get<bool>("always"); };
  if (std::ranges::none_of(graph.nodes(), is_random)) return clone(graph);
  Rebuilder rebuild(graph);
  Graph& target = rebuild.target();
  const auto step = graph.leaf(reserved::step);
  Value draw;
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.node(id);
    if (!is_random(node)) {
      rebuild.copy(id);
    } else if (!active(node)) {
      rebuild.map(id, {rebuild.mapped(node.inputs[0])});
    } else if (!step || node.inputs.back() != ValueId{*step, 0}) {
      rebuild.copy(id);  // a step of the user's own
    } else {
      if (!draw) {
        const auto known = target.leaf(reserved::draw);
        draw = known ? target.value({*known, 0}) : target.state(reserved::draw, {}, DType::u32, Init::zeros());
      }
      std::vector<ValueId> inputs;
      for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input).id());
      inputs.back() = draw.id();
      rebuild.map(id, {target.value({target.add_node(*node.op, std::move(inputs), node.attrs, node), 0})});
    }
  }
  if (draw && std::ranges::none_of(target.assigns(), [&](NodeId id) { return target.node(id).inputs[0] == draw.id(); })) {
    target.assign(draw, draw + 1);
  }
  return rebuild.finish();
}

/// A user's graph may hold gradients that it asked for itself (ops.h, gradients): inference runs everything as one list.
/// Refuses names that would collide with ours; the two states that random ops read may exist.
void check_reserved(const Graph& graph) {
  const auto refuse = [](std::string_view what, const std::string& name) {
    return Error(ErrorCode::InvalidArgument,
                 formatted("the {} name '{}' begins with the reserved prefix '{}'", what, name, reserved::prefix));
  };
  for (const Node& node : graph.nodes()) {
    if (node.op->kind != OpKind::Leaf || !node.name.starts_with(reserved::prefix)) continue;
    const TensorType counter{DType::u32, {}};
    if (is_state(node) && (node.name == "aeshna.seed" || (node.name == reserved::step && node.results[0] == counter))) continue;
    throw refuse("leaf", node.name).context("the call at " + node.line.to_string());
  }
  for (const Graph::Output& output : graph.outputs()) {
    if (output.name.starts_with(reserved::prefix)) throw refuse("output", output.name);
  }
}

void run_verify(Compilation& c) {
  verify(*c.graph, "builder");
  check_reserved(*c.graph);
  if (c.options.training) return;
  c.graph = for_inference(*c.graph);
  for (std::size_t i = 0; i < c.graph->nodes().size(); ++i)
    c.graph->mutable_node(static_cast<NodeId>(i)).segment = Segment::Forward;
}

/// Gradients of inner values are those of the graph as the user built it: then it is differentiated before it is rewritten.
void run_rewrite(Compilation& c) {
  if (c.options.training) {
    for (const std::string& name : c.options.gradients) {
      if (!c.graph->leaf(name)) return;
    }
  }
  c.graph = rewrite(*c.graph, c.options.training);
}

void run_train(Compilation& c) {
  if (c.options.training) c.graph = append_training(*c.graph, c.options);
}

/// Merging at once finds the forward pass again in the expansions that were differentiated, and their checks.
void run_expand(Compilation& c) { c.graph = merge_common(*expand_composites(*c.graph)); }

void run_status(Compilation& c) { c.graph = lower_checks(*c.graph, c.plan.checks); }

void run_simplify(Compilation& c) { c.graph = rewrite(*c.graph, false); }

void run_fuse(Compilation& c) {
  if (c.options.fusion && !c.options.training) c.graph = late_scales(c.graph);
  c.graph = split_reductions(narrow_concats(c.graph, c.caps), c.caps);
  c.fused = fuse(*c.graph, c.caps, c.options.fusion);
}

void run_select(Compilation& c) { c.selected = select(std::move(c.fused), c.caps, c.options.tiny_tiles, c.plan.notes); }

void run_schedule(Compilation& c) { schedule(c); }

/// Equal kernels are one PlanKernel; what differs between their steps (extents, strides) is in the push words.
void run_codegen(Compilation& c) {
  std::map<std::string, std::uint32_t> known;
  std::map<Hasher::Key, const PlanStep*> written;  // equal specs are written once: layers repeat
  for (PlanStep& step : c.plan.steps) {
    if (step.kind != PlanStep::Kind::Dispatch || step.spec.workgroups == 0) continue;
    const auto [first, new_spec] = written.try_emplace(signature(step.spec), &step);
    if (!new_spec) {
      step.push = first->second->push;
      step.kernel = first->second->kernel;
      continue;
    }
    KernelSource source = generate(step.spec, c.caps);
    step.push = std::move(source.push);
    const auto [entry, fresh] = known.try_emplace(source.key, static_cast<std::uint32_t>(c.plan.kernels.size()));
    step.kernel = entry->second;
    if (!fresh) continue;
    source.push.clear();
    c.plan.kernels.push_back({.source = std::move(source),
                              .local = step.spec.local,
                              .shared_bytes = step.spec.shared_bytes,
                              .name = formatted("{} {}", step.spec.family, step.spec.variant)});
  }
}

constexpr Stage kStages[] = {
    {"verify", "the user's graph, checked and copied", run_verify},
    {"rewrite", "algebra, equal nodes, constants, dead nodes; only differentiable ops are made", run_rewrite},
    {"train", "gradients, accumulation, clipping, checks and optimizer updates (training only)", run_train},
    {"expand", "composites become primitives", run_expand},
    {"status", "checks become the status word on which every assignment of a training step depends", run_status},
    {"simplify", "the rewriter again, over everything that was added", run_simplify},
    {"fuse", "nodes are partitioned into kernels", run_fuse},
    {"select", "each kernel is chosen with its geometry, for this device", run_select},
    {"schedule", "order, barrier groups and memory", run_schedule},
    {"plan", "source text of each distinct kernel, push words of each step: the finished plan", run_codegen},
};

bool is_graph_stage(std::string_view name) {
  return name != "fuse" && name != "select" && name != "schedule" && name != "plan";
}

/// Runs the stages up to and including `last` (empty: all), each verified and timed.
Compilation run_stages(const Graph& graph, const PipelineOptions& options, const Caps& caps, std::string_view last) {
  Compilation c{.graph = clone(graph), .options = options, .caps = caps, .fused = {}, .selected = {}, .plan = {}};
  for (const Stage& stage : kStages) {
    const auto start = std::chrono::steady_clock::now();
    try {
      stage.run(c);
      if (is_graph_stage(stage.name)) verify(*c.graph, stage.name);
    } catch (Error& error) {
      throw error.context(formatted("compiler stage '{}'", stage.name));
    }
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    c.plan.times.push_back({std::string(stage.name), time.count()});
    if (stage.name == last) break;
  }
  c.plan.graph = c.graph;
  return c;
}

}  // namespace

std::span<const Stage> stages() { return kStages; }

Plan compile_plan(const Graph& graph, const PipelineOptions& options, const Caps& caps) {
  return std::move(run_stages(graph, options, caps, "").plan);
}

std::string dump_stage(const Graph& graph, const PipelineOptions& options, const Caps& caps, std::string_view stage) {
  std::vector<std::string> names;
  for (const Stage& s : kStages) names.emplace_back(s.name);
  if (!std::ranges::contains(names, stage)) {
    fail(ErrorCode::NotFound, "[dump] there is no stage '{}'{}", stage, suggest_names(stage, names));
  }
  const Compilation c = run_stages(graph, options, caps, stage);
  if (is_graph_stage(stage)) return c.graph->print();
  std::string text;
  if (stage == "fuse") {
    for (const FusedKernel& kernel : c.fused) text += print_kernel(kernel, *c.graph);
    return text;
  }
  if (stage == "select") {
    for (const auto& [kernel, spec] : c.selected) {
      text += formatted("{} {}: {} workgroups of {}x{}x{}\n", spec.family, spec.variant, spec.workgroups, spec.local[0],
                        spec.local[1], spec.local[2]);
      text += print_kernel(kernel, *c.graph);
    }
    for (const std::string& note : c.plan.notes) text += formatted("note: {}\n", note);
    return text;
  }
  return print_plan(c.plan);
}

}  // namespace aeshna
