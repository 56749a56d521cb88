#include "nn/models/workloads.h"

#include <algorithm>
#include <functional>

#include "aeshna/models.h"
#include "base/fail.h"
#include "base/names.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna::models {

namespace {

// ---- the graphs. Minimal phases have one sample.

void finish(Graph& graph, Phase phase, Value output, const std::function<Value()>& loss) {
  graph.output("output", output);
  if (phase == Phase::Train) graph.output("loss", loss());
}

void build_smollm2(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const std::int64_t length = phase == Phase::Minimal ? 1 : small ? 16 : 128;
  if (phase == Phase::Minimal) batch = 1;
  const Value logits =
      smollm2(graph.input("ids", {batch, length}, DType::i32), small ? SmolLm2Config::small() : SmolLm2Config());
  finish(graph, phase, logits, [&] {
    return cross_entropy(logits, graph.input("labels", {batch, length}, DType::i32));
  });
}

// ---- the table

struct Row {
  const char *name, *title;
  std::int64_t batch, small_batch;
  decltype(Workload::build) build;
};
constexpr Row kRows[] = {
    {"smollm2", "SmolLM2-135M", 1, 1, build_smollm2},
};

/// Of the products alone, as the literature counts; attention as if it were dense.
double flop(const Node& node, const Graph& graph) {
  const auto shape = [&](std::size_t input) { return graph.type(node.inputs[input]).shape; };
  std::int64_t terms = 0;  // of each element of the result: a product and a sum each
  if (node.op->name == "matmul") {
    terms = shape(0)[shape(0).rank() - (node.attrs.get<bool>("transpose_a") ? 2 : 1)];
  } else if (node.op->name == "conv") {
    terms = shape(1).elements() / shape(1)[0];
  } else if (node.op->name == "attention") {
    terms = 2 * shape(1)[2];  // scores and values
  }
  return terms == 0 ? 0 : 2.0 * static_cast<double>(node.results[0].shape.elements()) * static_cast<double>(terms);
}

double forward_flop(const Workload& workload, Phase phase) {
  Graph graph;
  workload.build(graph, phase, workload.small, workload.batch);
  double sum = 0;
  for (const Node& node : graph.nodes()) sum += flop(node, graph);
  return sum;
}

Workload described(const Row& row, bool small) {
  Workload w{.name = row.name,
             .title = row.title,
             .small = small,
             .batch = small ? row.small_batch : row.batch,
             .build = row.build};
  Graph graph;
  w.build(graph, Phase::Full, small, w.batch);
  for (const Node& node : graph.nodes()) {
    if (!is_parameter(node)) continue;
    const std::int64_t elements = node.results[0].shape.elements();
    ++w.parameter_tensors;
    w.parameters += elements;
    if (node.attrs.get<bool>("trainable")) w.trainable += elements;
  }
  w.forward_flop[0] = forward_flop(w, Phase::Full);
  w.forward_flop[1] = forward_flop(w, Phase::Minimal);
  return w;
}

std::vector<Workload> all_workloads(bool small) {
  std::vector<Workload> all;
  for (const Row& row : kRows) all.push_back(described(row, small));
  return all;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::Full:
      return "full";
    case Phase::Minimal:
      return "minimal";
    case Phase::Train:
      return "train";
  }
  return "?";
}

std::span<const Workload> workloads(bool small) {
  static const std::vector<Workload> published = all_workloads(false), reduced = all_workloads(true);
  return small ? reduced : published;
}

const Workload& find_workload(std::string_view name, bool small) {
  const auto all = workloads(small);
  const auto found = std::ranges::find(all, name, &Workload::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const Workload& w : all) names.push_back(w.name);
  fail(ErrorCode::NotFound, "no workload '{}'{}", name, suggest_names(name, names));
}

}  // namespace aeshna::models
