// Small configurations of the benchmark's models: a step of training on the device against the interpreter in double.
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
  const auto graph = workload_graph(workload, Phase::Train, 2);
  const TensorMap leaves = random_samples(workload, 2);
  Session session =
      compile(*graph, Weights(*test_device().device), {.mode = Mode::Training, .loss = "loss", .update = false});
  set_leaves(session, leaves);
  session.step();
  session.wait();

  const TensorMap want = expected_outputs(*graph, leaves);
  double total = 0;
  for (const auto& [name, value] : want) {
    if (!name.starts_with(reserved::gradient)) continue;
    for (const double g : value.data) total += g * g;
  }
  double worst = 0;
  std::int64_t gradients = 0;
  for (const auto& [name, value] : want) {
    if (name.starts_with(reserved::prefix)) continue;
    const bool gradient = name.starts_with(reserved::gradient);
    const double error =
        relative_l2(session.read_literal(name).to_doubles(), value.data, gradient ? 1e-6 * std::sqrt(total) : 0);
    EXPECT_LT(error, 1e-4) << name;
    if (!gradient) continue;
    ++gradients;
    worst = std::max(worst, error);
    EXPECT_TRUE(std::ranges::any_of(value.data, [](double g) { return g != 0; })) << name << " is zero";
  }
  EXPECT_EQ(gradients, workload.parameter_tensors - (GetParam() == "whisper"));  // its positions are frozen
  RecordProperty("worst gradient", formatted("{:.2e}", worst));
}

}  // namespace
}  // namespace aeshna::test
