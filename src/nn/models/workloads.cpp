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

// ---- the graphs

void finish(Graph& graph, Phase phase, Value output, const std::function<Value()>& loss) {
  graph.output("output", output);
  if (phase == Phase::Train) graph.output("loss", loss());
}

void build_smollm2(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const std::int64_t length = phase == Phase::Minimal ? 1 : small ? 16 : 128;
  const Value logits =
      smollm2(graph.input("ids", {batch, length}, DType::i32), small ? SmolLm2Config::small() : SmolLm2Config());
  finish(graph, phase, logits, [&] {
    return cross_entropy(logits, graph.input("labels", {batch, length}, DType::i32));
  });
}

Value mean_square(Value x) { return mean(x * x); }

void build_smolvla(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const SmolVlaConfig config = small ? SmolVlaConfig::small() : SmolVlaConfig();
  const std::int64_t actions = phase == Phase::Minimal ? 1 : small ? 7 : 50, context = small ? 5 : 16;
  const Value noisy = graph.input("noisy_actions", {batch, actions, config.action_dim});
  const Value timestep = graph.input("timestep", {batch, 1, config.timestep_width});
  const Value output =
      smolvla_expert(noisy, timestep, graph.input("vlm_kv", {batch, context, config.context_width}), config);
  finish(graph, phase, output, [&] { return mean_square(output); });
}

void build_unet(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const UNetConfig config = small ? UNetConfig::small() : UNetConfig();
  const Shape image = small ? Shape{batch, config.in_channels, 8, 16} : Shape{batch, config.in_channels, 32, 32};
  const Value latent = graph.input("latent", image);
  const Value timestep = graph.input("timestep_embedding", {batch, config.base});
  const Value output =
      unet(latent, timestep, graph.input("text_context", {batch, small ? 9 : 77, config.context_width}), config);
  finish(graph, phase, output, [&] { return mse(output, graph.input("noise_target", image)); });
}

void build_resnet50(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const Value images = graph.input("images", small ? Shape{batch, 3, 40, 36} : Shape{batch, 3, 224, 224});
  const Value logits = resnet50(images, small ? ResNetConfig::small() : ResNetConfig());
  finish(graph, phase, logits, [&] { return cross_entropy(logits, graph.input("labels", {batch}, DType::i32)); });
}

void build_whisper(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  const WhisperConfig config = small ? WhisperConfig::small() : WhisperConfig();
  const Value output = whisper_encoder(graph.input("mel", {batch, config.mels, 2 * config.positions}), config);
  finish(graph, phase, output, [&] { return mean_square(output); });
}

// ---- the table

/// Minimal phases have one sample.
template <auto Build>
void built(Graph& graph, Phase phase, bool small, std::int64_t batch) {
  Build(graph, phase, small, phase == Phase::Minimal ? 1 : batch);
}

struct Row {
  const char *name, *title;
  std::int64_t batch, small_batch;
  decltype(Workload::build) build;
};

constexpr Row kRows[] = {
    {"smollm2", "SmolLM2-135M", 1, 1, built<build_smollm2>},
    {"smolvla", "SmolVLA action expert", 1, 1, built<build_smolvla>},
    {"unet", "Diffusion U-Net", 1, 1, built<build_unet>},
    {"resnet50", "ResNet-50", 4, 2, built<build_resnet50>},
    {"whisper", "Whisper-tiny encoder", 1, 1, built<build_whisper>},
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
