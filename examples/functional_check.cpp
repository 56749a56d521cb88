// The whole way in one page: train a two-class linear model with 40 steps of SGD on the GPU, save it, load the file into a
// fresh inference session, and classify. (Section 5.1 of the paper this system follows does the same.)
#include <aeshna/aeshna.h>

#include <cstdio>
#include <filesystem>
#include <vector>

using namespace aeshna;

int main(int argc, char** argv) try {
  const std::vector<float> points = {1,  2,  2,  1,  2,  3,  3,  2,
                                     -1, -2, -2, -1, -2, -3, -3, -2};  // eight of two coordinates
  const std::vector<std::int32_t> classes = {1, 1, 1, 1, 0, 0, 0, 0};
  const std::filesystem::path file = argc > 1 ? argv[1] : "functional_check.safetensors";
  const Device device;

  // The model is a function, so that training and inference build the same one.
  const auto model = [](Graph& graph) {
    const Value x = graph.input("x", {8, 2});
    const Value w = graph.parameter("w", {2, 2}, {.init = Init::zeros()});  // [out, in]
    const Value b = graph.parameter("b", {2});
    return linear(x, w, b);
  };

  {
    Graph graph;
    const Value logits = model(graph);
    graph.output("loss", cross_entropy(logits, graph.input("labels", {8}, DType::i32)));
    Weights weights(graph, {.device = device});
    Session session = compile(graph, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.25f}});
    session.set("x", points);
    session.set("labels", classes);
    for (int step = 0; step < 40; ++step) {
      session.step();
      if (step == 0) std::printf("cross-entropy before the first step  %.6f\n", session.read_scalar("loss"));
    }
    session.forward();
    const float loss = session.read_scalar("loss");
    std::printf("cross-entropy after 40 steps         %.6f\n", loss);
    session.save(file);
    if (!(loss <= 0.03f)) return 1;
  }

  Graph graph;
  graph.output("class", argmax(model(graph), 1));
  Weights weights(graph, {.device = device});
  Session session = compile(graph, weights);
  session.load(file);
  session.set("x", points);
  session.step();
  const Literal predicted = session.read_literal("class");
  int right = 0;
  for (std::size_t i = 0; i < classes.size(); ++i)
    right += predicted.at(static_cast<std::int64_t>(i)) == classes[i] ? 1 : 0;
  std::printf("fresh inference session on %s classifies %d/8 on %s\n", file.string().c_str(), right,
              device.info().name.c_str());
  return right == 8 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
