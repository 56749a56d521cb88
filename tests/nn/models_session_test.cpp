// Small configurations of the benchmark's models on the device, one after the other over the same weights: a training step against the
// interpreter in double, and what must hold of each model whatever its weights are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aeshna/models.h"
#include "base/format.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "nn/workload_support.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::Workload;

void set_all(Session& session, const Weights& weights, const TensorMap& leaves) {
  for (const Node& node : session.graph().nodes()) {
    if (!is_input(node) && !is_parameter(node)) continue;
    const HostTensor& value = leaves.at(node.name);
    const Literal literal = Literal::from_doubles(value.type, value.data);
    if (is_input(node)) {
      session.set(node.name, literal);
    } else {
      Weights(weights).set(node.name, literal);
    }
  }
}

/// What a training step without update must give, from the graph as the builder wrote it, with its gradients appended.
TensorMap expected_outputs(const Graph& graph, TensorMap leaves) {
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  std::vector<std::string> checks;
  const auto trained = lower_checks(*append_training(graph, options), checks);
  for (const Node& node : trained->nodes()) {
    if (node.op->kind == OpKind::Leaf && !node.name.empty() && !leaves.contains(node.name))
      leaves.emplace(node.name, HostTensor(node.results[0]));
  }
  return interpret(*trained, leaves).outputs;
}

class ModelsSession : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Small, ModelsSession, testing::Values("smollm2", "smolvla", "unet", "resnet50", "whisper"),
                         [](const auto& info) { return info.param; });

TEST_P(ModelsSession, AStepOfTrainingEqualsTheInterpreter) {
  AESHNA_NEED_DEVICE();
  const Workload& workload = models::find_workload(GetParam(), true);
  const auto graph = workload_graph(workload, Phase::Train, workload.batch);
  const TensorMap leaves = leaf_values(models::workload_data(workload, 1));
  const Weights weights(*test_device().device);
  Session session = compile(*graph, weights, {.mode = Mode::Training, .loss = "loss", .update = false});
  set_all(session, weights, leaves);
  session.step();
  session.wait();

  const TensorMap want = expected_outputs(*graph, leaves);
  double total = 0;
  for (const auto& [name, value] : want) {
    if (!name.starts_with(reserved::gradient)) continue;
    for (const double g : value.data) total += g * g;
  }
  double worst = 0;
  int gradients = 0;
  for (const auto& [name, value] : want) {
    if (name.starts_with(reserved::prefix)) continue;
    const bool gradient = name.starts_with(reserved::gradient);
    const double error =
        relative_l2(session.read_literal(name).to_doubles(), value.data, gradient ? 1e-6 * std::sqrt(total) : 0);
    EXPECT_LT(error, 1e-4) << name;
    gradients += gradient;
    if (gradient) worst = std::max(worst, error);
  }
  EXPECT_GT(gradients, 0);
  RecordProperty("worst gradient", formatted("{:.2e}", worst));
}

}  // namespace
}  // namespace aeshna::test
