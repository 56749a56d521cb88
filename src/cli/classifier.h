#pragma once
// The picture classifier that `train` trains and `dump` shows: a multi-layer perceptron.
#include <cstdint>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna::cli {

struct Classifier {
  std::int64_t pixels = 64;
  std::int64_t classes = 10;
  std::vector<std::int64_t> hidden = {128, 64};
};

/// Input "x" f32[batch, pixels]; output "logits" f32[batch, classes]; parameters "mlp.<i>.weight" and ".bias". With `loss` also
/// input "labels" i32[batch] and the scalar output "loss".
void build_classifier(Graph& graph, const Classifier& model, std::int64_t batch, bool loss);

}  // namespace aeshna::cli
