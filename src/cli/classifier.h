#pragma once
// The picture classifiers that `train` trains and `dump` shows.
#include <cstdint>
#include <string>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna::cli {

struct Classifier {
  enum class Kind : std::uint8_t { Mlp, Cnn };
  Kind kind = Kind::Mlp;
  std::int64_t height = 8, width = 8;
  std::int64_t classes = 10;
  std::vector<std::int64_t> hidden = {128, 64};   ///< linear layers before the last
  std::vector<std::int64_t> channels = {16, 32};  ///< Cnn: of its 3x3 convolutions; max_pool of 2 behind the last one
  double dropout = 0.25;                          ///< Cnn: of what the linear layers see, while training
};

/// Input "x" f32[batch, height * width]; output "logits" f32[batch, classes]; parameters "mlp.<i>.weight" and ".bias", of a Cnn also
/// "conv.<i>.weight" and ".bias". With `loss` also input "labels" i32[batch] and the scalar output "loss".
void build_classifier(Graph& graph, const Classifier& model, std::int64_t batch, bool loss);

/// "perceptron 64-128-64-10" or "cnn 8x8, conv 16-32, linear 512-10".
std::string describe(const Classifier& model);
/// Elements of all parameters of a graph.
std::int64_t count_parameters(const Graph& graph);

}  // namespace aeshna::cli
