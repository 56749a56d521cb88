// The functional check of the paper (section 5.1): build, differentiate, update, save, load in a fresh session, classify.
#include <gtest/gtest.h>

#include <vector>

#include "aeshna/aeshna.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

TEST(FunctionalCheckSession, LinearModelLearnsIsSavedAndClassifies) {
  AESHNA_NEED_DEVICE();
  const Device device = *test::test_device().device;
  const std::vector<float> points = {1, 2, 2, 1, 2, 3, 3, 2, -1, -2, -2, -1, -2, -3, -3, -2};
  const std::vector<std::int32_t> classes = {1, 1, 1, 1, 0, 0, 0, 0};
  const auto model = [](Graph& graph) {
    const Value x = graph.input("x", {8, 2});
    return linear(x, graph.parameter("w", {2, 2}, {.init = Init::zeros()}), graph.parameter("b", {2}));
  };
  const test::TempDir dir;
  const auto file = dir / "linear.safetensors";
  {
    Graph graph;
    const Value logits = model(graph);
    graph.output("loss", cross_entropy(logits, graph.input("labels", {8}, DType::i32)));
    Weights weights(graph, {.device = device});
    Session session = compile(graph, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.25f}});
    session.set("x", points);
    session.set("labels", classes);
    float before = 0;
    for (int step = 0; step < 40; ++step) {
      session.step();
      if (step == 0) before = session.read_scalar("loss");
    }
    EXPECT_NEAR(before, 0.693147f, 1e-6f);
    EXPECT_EQ(session.steps(), 40);
    session.forward();
    EXPECT_LE(session.read_scalar("loss"), 0.03f);
    EXPECT_NEAR(session.read_scalar("loss"), 0.0092570f, 1e-5f);  // as computed in double on a CPU
    session.save(file);
  }

  Graph graph;
  const Value logits = model(graph);
  graph.output("logits", logits);
  graph.output("class", argmax(logits, 1));
  Weights weights(graph, {.device = device});
  Session session = compile(graph, weights);
  session.set("x", points);
  session.step();
  EXPECT_EQ(session.read("logits"), std::vector<float>(16, 0)) << "without the file the model knows nothing";
  session.load(file);
  session.step();
  const Literal predicted = session.read_literal("class");
  for (std::size_t i = 0; i < classes.size(); ++i)
    EXPECT_EQ(predicted.at(static_cast<std::int64_t>(i)), classes[i]) << i;
}

}  // namespace
}  // namespace aeshna
