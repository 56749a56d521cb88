// Imported vision models on the device, against the interpreter; and trained further.
#include <gtest/gtest.h>

#include "aeshna/ops.h"
#include "aeshna/optim.h"
#include "aeshna/pretrained.h"
#include "nn/pretrained_folder.h"
#include "nn/workload_support.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

TEST(PretrainedSession, OutputsEqualTheInterpreters) {
  AESHNA_NEED_DEVICE();
  const std::pair<PretrainedFolder, Shape> models[] = {{dinov3_folder(true), {2, 3, 12, 8}},
                                                       {resnet_folder(), {1, 3, 21, 26}}};
  for (const auto& [folder, shape] : models) {
    const ImportedModel model = import_hugging_face(folder.write(), {.shapes = {{"pixels", shape}}});
    SCOPED_TRACE(model.producer);
    TensorMap leaves = {{"pixels", random_tensor("pixels", shape, -2, 2)}};
    for (const auto& [name, value] : model.weights) leaves.emplace(name, host(value));
    Session session = compile(*model.graph, Weights(*model.graph, {.device = *test_device().device}));
    set_leaves(session, leaves);
    session.step();
    session.wait();
    for (const auto& [name, want] : interpret(*model.graph, leaves).outputs)
      EXPECT_LT(relative_l2(session.read_literal(name).to_doubles(), want.data), 1e-5) << name;
  }
}

TEST(PretrainedSession, AModelIsTrainedFurther) {
  AESHNA_NEED_DEVICE();
  const PretrainedFolder folder = vit_folder(true);
  const ImportedModel model =
      import_hugging_face(folder.write(), {.shapes = {{"pixels", {2, 3, 12, 8}}}, .trainable = true});
  Graph& graph = *model.graph;
  const Value labels = graph.input("labels", {2}, DType::i32);
  graph.output("loss", cross_entropy(graph.value(graph.outputs()[0].value), labels));
  Weights weights(graph, {.device = *test_device().device});
  for (const auto& [name, value] : model.weights) weights.set(name, value);
  Session session = compile(graph, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 1e-3f}, .loss = "loss"});
  const HostTensor pixels = random_tensor("pixels", {2, 3, 12, 8}, -2, 2);
  session.set("pixels", Literal::from_doubles(pixels.type, pixels.data));
  session.set("labels", Literal::from_doubles({DType::i32, {2}}, std::vector<double>{1, 4}));
  double first = 0, last = 0;
  for (int i = 0; i < 8; ++i) {
    session.step();
    session.wait();
    last = session.read_literal("loss").at(0);
    if (i == 0) first = last;
  }
  TensorMap leaves = {{"pixels", pixels}, {"labels", tensor({DType::i32, {2}}, {1, 4})}};
  for (const auto& [name, value] : model.weights) leaves.emplace(name, host(value));
  EXPECT_NEAR(first, interpret(graph, leaves).outputs.at("loss").data[0], 1e-5);
  EXPECT_LT(last, 0.7 * first);
}

}  // namespace
}  // namespace aeshna::test
