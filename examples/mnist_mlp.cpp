// A perceptron on 28x28 pictures, written out: graph, weights, training session, trainer, checkpoint. The pictures are made up
// here so that the example needs no file; `aeshna train mnist --data DIR` reads the real ones.
#include <aeshna/aeshna.h>

#include <cstdio>

using namespace aeshna;

namespace {

/// Ten classes of bright bars, each at its own height, with a little texture.
Dataset make_bars(std::int64_t rows) {
  Dataset::Column x{.name = "x", .row = Shape{784}}, labels{.name = "labels", .dtype = DType::i32};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto label = static_cast<std::int32_t>(row % 10);
    labels.i32.push_back(label);
    for (std::int64_t pixel = 0; pixel < 784; ++pixel) {
      const bool bar = pixel / 28 / 3 == label;
      x.f32.push_back((bar ? 0.8f : 0.0f) + 0.02f * static_cast<float>((pixel * 7 + row * 13) % 10));
    }
  }
  return Dataset({x, labels});
}

}  // namespace

int main() try {
  Graph g;
  auto x = g.input("x", {32, 784});
  auto labels = g.input("labels", {32}, DType::i32);
  auto w1 = g.parameter("w1", {128, 784});  // [out, in]
  auto h = relu(linear(x, w1));
  auto w2 = g.parameter("w2", {10, 128});
  auto logits = linear(h, w2);
  g.output("logits", logits);
  g.output("loss", cross_entropy(logits, labels));

  Weights weights(g, {.seed = 1});  // device tensors by name; outlive sessions
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 1e-3f}});

  const Dataset dataset = make_bars(1280);
  const FitResult result = Trainer(session).fit(dataset, {.epochs = 3});
  for (const double loss : result.epoch_losses) std::printf("mean loss of the epoch: %.4f\n", loss);
  std::printf("accuracy: %.1f %%\n", 100 * accuracy(session, dataset, "logits", "labels"));
  session.save("mnist.safetensors");
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
