#pragma once
// The compiler as one table of stages. Read kStages in pipeline.cpp first.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"
#include "aeshna/optim.h"
#include "base/caps.h"
#include "compile/plan.h"

namespace aeshna {

struct PipelineOptions {
  bool training = false;
  std::string loss;  ///< output name; empty: the only scalar float output
  std::vector<std::string> gradients;  ///< names of values whose gradients become outputs "grad/<name>"
  std::optional<Optimizer> optimizer;
  TrainingOptions train;
  bool fusion = true;
  bool aliasing = true;   ///< false: every transient tensor in memory of its own
  bool tiny_tiles = false;  ///< tests: smallest tiles and splits, so that small shapes reach every path
};

/// The state that travels through the stages.
struct Compilation {
  std::shared_ptr<Graph> graph;
  PipelineOptions options;
  Caps caps;
  std::vector<FusedKernel> fused;
  std::vector<std::pair<FusedKernel, KernelSpec>> selected;
  Plan plan;
};

struct Stage {
  std::string_view name;
  std::string_view doc;
  void (*run)(Compilation&);
};

/// All stages in order: verify, rewrite, train, expand, status, simplify, fuse, select, schedule, plan.
std::span<const Stage> stages();

/// Runs every stage; verify runs after each graph stage. The user's graph is copied, never changed.
Plan compile_plan(const Graph& graph, const PipelineOptions& options, const Caps& caps);

/// Text after stage `stage` ("plan" is the last one): the graph, the fused kernels, or the plan.
std::string dump_stage(const Graph& graph, const PipelineOptions& options, const Caps& caps, std::string_view stage);
/// The plan as text: kernels with variants, barrier groups, arenas and the memory report.
std::string print_plan(const Plan& plan);

}  // namespace aeshna
