#include "cli/classifier.h"

#include <algorithm>

#include "aeshna/nn.h"
#include "aeshna/ops.h"
#include "base/format.h"
#include "ir/op.h"

namespace aeshna::cli {
namespace {

/// A picture smaller than this is not pooled.
constexpr std::int64_t kSmallest = 4;

bool pools(const Classifier& model) { return std::min(model.height, model.width) >= kSmallest; }

/// What the linear layers see.
std::int64_t features(const Classifier& model) {
  if (model.kind == Classifier::Kind::Mlp || model.channels.empty()) return model.height * model.width;
  const std::int64_t part = pools(model) ? 2 : 1;
  return model.channels.back() * (model.height / part) * (model.width / part);
}

}  // namespace

void build_classifier(Graph& graph, const Classifier& model, std::int64_t batch, bool loss) {
  Value x = graph.input("x", {batch, model.height * model.width});
  if (model.kind == Classifier::Kind::Cnn && !model.channels.empty()) {
    x = reshape(x, {batch, 1, model.height, model.width});
    for (std::size_t i = 0; i < model.channels.size(); ++i)
      x = relu(nn::conv(x, model.channels[i], {3}, formatted("conv.{}", i), {.padding = {1}}));
    if (pools(model)) x = max_pool(x, {.kernel = {2}});
    x = nn::dropout(reshape(x, {batch, features(model)}), model.dropout, loss);
  }
  const Value logits = nn::mlp(x, model.hidden, model.classes, "mlp");
  graph.output("logits", logits);
  if (loss) graph.output("loss", cross_entropy(logits, graph.input("labels", {batch}, DType::i32)));
}

std::string describe(const Classifier& model) {
  std::string layers = std::to_string(features(model));
  for (const std::int64_t width : model.hidden) layers += formatted("-{}", width);
  layers += formatted("-{}", model.classes);
  if (model.kind == Classifier::Kind::Mlp) return "perceptron " + layers;
  std::string channels;
  for (const std::int64_t count : model.channels) channels += (channels.empty() ? "" : "-") + std::to_string(count);
  return formatted("cnn {}x{}, conv {}, linear {}", model.height, model.width, channels, layers);
}

std::int64_t count_parameters(const Graph& graph) {
  std::int64_t count = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "parameter") count += node.results[0].shape.elements();
  }
  return count;
}

}  // namespace aeshna::cli
