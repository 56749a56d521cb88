#pragma once
// One documented entry function per stage file; pipeline.cpp is the table that calls them.
#include <memory>
#include <string>
#include <vector>

#include "compile/pipeline.h"

namespace aeshna {

// --- graph -> graph (each returns a new graph built through Rebuilder, ir/rebuild.h)
/// Dead nodes go; roots are outputs, assigns and other sinks. (dce.cpp)
std::shared_ptr<Graph> eliminate_dead(const Graph& graph);
/// Equal nodes (op, inputs, attrs; products and composites: precision too) merge, equal constants and checks among them;
/// random nodes, assigns and the other leaves do not. (cse.cpp)
std::shared_ptr<Graph> merge_common(const Graph& graph);
/// Nodes whose inputs are all constants are evaluated once, in double, if they have at most 64 Ki elements. (fold.cpp)
std::shared_ptr<Graph> fold_constants(const Graph& graph);
/// Greedy fixed point of the rules in rules.cpp; dce, cse and fold happen in the same walks (node_steps.h). (rewrite.cpp)
std::shared_ptr<Graph> rewrite(const Graph& graph, bool differentiable_only);
/// Composites become their expansion, recursively. (expand.cpp)
std::shared_ptr<Graph> expand_composites(const Graph& graph);

/// Appends d(loss)/d(wrt) to `graph` in Segment::Backward with Precision::Full; dtype and shape of each are those of its
/// value. `seed` scales d(loss) (gradient accumulation). An unreached value gets a zero constant. (autodiff.cpp)
std::vector<Value> differentiate(Graph& graph, Value loss, std::span<const Value> wrt, double seed = 1);

// The stage `train`: append_training in training.h.

/// check sinks -> the state and output `aeshna.status` (reserved.h); their messages are appended to `checks`. (status.cpp)
std::shared_ptr<Graph> lower_checks(const Graph& graph, std::vector<std::string>& checks);

// --- graph -> fused kernels -> specs -> plan
/// Products of few rows are scaled behind the product where they were scaled in front; inference only. Otherwise the same graph.
/// (late_scales.cpp)
std::shared_ptr<Graph> late_scales(std::shared_ptr<Graph> graph);
/// Concatenations of more parts than a kernel has operands become trees; otherwise the same graph. (narrow.cpp)
std::shared_ptr<Graph> narrow_concats(std::shared_ptr<Graph> graph, const Caps& caps);
/// Reductions one result of which reaches over more than a descriptor covers become reductions of slices; otherwise the same
/// graph. (split_reductions.cpp)
std::shared_ptr<Graph> split_reductions(std::shared_ptr<Graph> graph, const Caps& caps);

/// Partitions the nodes of an expanded graph into kernels, in topological order; movement ops and duplicable cheap pointwise
/// ops may be computed in several kernels. With fusion off every node that is not a leaf gets a kernel of its own. (fuse.cpp)
std::vector<FusedKernel> fuse(const Graph& graph, const Caps& caps, bool fusion);
/// A fused kernel as text, for dumps. (print_kernel.cpp)
std::string print_kernel(const FusedKernel& kernel, const Graph& graph);
/// The kernel, or several that do its work, in each of which every operand's window lies in one buffer and within
/// max_storage_range; where that cannot be, Error(LimitExceeded) naming the limit. (split_rows.cpp)
std::vector<FusedKernel> split_by_rows(FusedKernel kernel, const Caps& caps);
/// One KernelSpec per kernel, the first usable candidate of the anchor's `lower`, after split_by_rows. (select.cpp)
std::vector<std::pair<FusedKernel, KernelSpec>> select(std::vector<FusedKernel> fused, const Caps& caps, bool tiny_tiles,
                                                       std::vector<std::string>& notes);
/// Order, barrier groups and memory in one go; leaves PlanStep.kernel and push to the stage `plan`. (schedule.cpp, memory_plan.cpp)
void schedule(Compilation& compilation);

/// Problems of a finished plan: overlapping live tensors, unordered RAW/WAR/WAW pairs in one barrier group, misaligned
/// ranges, missing writers; empty when sound. Independent of the planner's own bookkeeping. (plan_check.cpp)
std::vector<std::string> check_plan(const Plan& plan, const Caps& caps);

}  // namespace aeshna
