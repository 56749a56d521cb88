// Wall clock of whole training steps of small classifiers: host data in, AdamW update done. bench/train_step.py does the same
// with PyTorch (eager, and a CUDA graph of the step).
//   bench_train_step [--device SEL] [--json FILE]
#include <aeshna/aeshna.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/env.h"

using namespace aeshna;
using Clock = std::chrono::steady_clock;

namespace {

struct Model {
  std::string name;
  std::int64_t batch, in;
  std::vector<std::int64_t> hidden;
  std::int64_t out;
};

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

nlohmann::json measure(const Device& device, const Model& model) {
  Graph g;
  const Value x = g.input("x", {model.batch, model.in});
  const Value labels = g.input("labels", {model.batch}, DType::i32);
  g.output("loss", cross_entropy(nn::mlp(x, model.hidden, model.out, "mlp"), labels));
  Weights weights(g, {.seed = 1, .device = device});
  const auto compile_start = Clock::now();
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = AdamW{}});
  const double compile_ms = microseconds(Clock::now() - compile_start) / 1000;

  std::vector<float> data(static_cast<std::size_t>(model.batch * model.in));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i * 7 % 101) / 101.0f;
  std::vector<std::int32_t> classes(static_cast<std::size_t>(model.batch));
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i) % static_cast<std::int32_t>(model.out);
  const auto step = [&] {
    session.set("x", data);
    session.set("labels", classes);
    session.step();
  };
  constexpr int kWarmUp = 50, kSamples = 20, kSteps = 100;
  for (int i = 0; i < kWarmUp; ++i) step();
  session.wait();
  // Two ways to train: the loss is read after every step, or steps run ahead and the last one is waited for.
  std::vector<double> read, ahead;
  float loss = 0;
  for (int s = 0; s < kSamples; ++s) {
    auto start = Clock::now();
    for (int i = 0; i < kSteps; ++i) {
      step();
      loss = session.read_scalar("loss");
    }
    read.push_back(microseconds(Clock::now() - start) / kSteps);
    start = Clock::now();
    for (int i = 0; i < kSteps; ++i) step();
    session.wait();
    ahead.push_back(microseconds(Clock::now() - start) / kSteps);
  }
  std::ranges::sort(read);
  std::ranges::sort(ahead);
  std::printf("%-24s compile %7.1f ms   step, loss read each time %8.1f us   steps run ahead %8.1f us   loss %.4f\n",
              model.name.c_str(), compile_ms, read[kSamples / 2], ahead[kSamples / 2], loss);
  nlohmann::json stages = nlohmann::json::object();
  std::printf("%-24s", "  compile stages over 1 ms");
  for (const auto& t : session.compile_times()) {
    stages[t.stage] = t.seconds * 1000;
    if (t.seconds > 1e-3) std::printf("  %s %.1f ms", t.stage.c_str(), t.seconds * 1000);
  }
  std::printf("\n");
  std::fflush(stdout);
  return {{"model", model.name}, {"compile_ms", compile_ms}, {"compile_stages_ms", stages},
          {"read_us", read[kSamples / 2]}, {"ahead_us", ahead[kSamples / 2]}, {"read_samples_us", read}, {"ahead_samples_us", ahead}};
}

}  // namespace

int main(int argc, char** argv) try {
  env_use_own_pipeline_cache();
  std::string selector, json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--device") selector = argv[i + 1];
    if (option == "--json") json = argv[i + 1];
  }
  const Device device(DeviceRequest{.selector = selector});
  std::printf("device: %s (%s)\n", device.info().name.c_str(), device.info().driver.c_str());
  const Model models[] = {
      {"digits 64-128-64-10 b50", 50, 64, {128, 64}, 10},
      {"mnist 784-128-10 b64", 64, 784, {128}, 10},
      {"wide 784-2048-2048-10 b256", 256, 784, {2048, 2048}, 10},
  };
  nlohmann::json results = nlohmann::json::array();
  for (const Model& model : models) results.push_back(measure(device, model));
  if (!json.empty()) {
    std::ofstream(json) << nlohmann::json{{"device", device.info().name}, {"driver", device.info().driver}, {"results", results}}.dump(1)
                        << "\n";
  }
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "bench_train_step: %s\n", e.what());
  return 1;
}
