// The bytes that every engine reads: weights that give attention something to choose and norms something to scale, and inputs
// anyone can compute (docs/benchmark.md, "Data").
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ir/leaf.h"
#include "nn/models/workloads.h"

namespace aeshna::models {

namespace {

template <class T, class F>
Literal filled(const TensorType& type, F&& next) {
  const auto count = static_cast<std::size_t>(type.shape.elements());
  std::vector<std::byte> bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T value = next(i);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return Literal(type, std::move(bytes));
}

Literal drawn(const Node& parameter, std::uint64_t seed) {
  const std::string_view name = parameter.name;
  const TensorType& type = parameter.results[0];
  PhiloxStream stream(seed, Hasher().add(name).low());
  const auto normal = [&](double deviation) {
    return filled<float>(type, [&](std::size_t) { return static_cast<float>(deviation * stream.next_normal()); });
  };
  if (type.shape.rank() >= 2) {
    const auto fan_in = static_cast<double>(type.shape.elements() / type.shape[0]);
    return normal((name.ends_with("q_proj.weight") ? 2 : 1) / std::sqrt(fan_in));
  }
  if (!name.ends_with(".weight")) return normal(0.02);  // a bias; otherwise a norm's scale
  return filled<float>(type, [&](std::size_t) { return static_cast<float>(0.5 + stream.next_uniform()); });
}

struct Wave {
  std::string_view input;
  double (*of)(double);
  double frequency, amplitude = 1;
};
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }
constexpr Wave kWaves[] = {
    {"noisy_actions", sine, 0.01},
    {"timestep", sine, 0.005},
    {"vlm_kv", cosine, 0.01},
    {"latent", sine, 0.01},
    {"timestep_embedding", sine, 0.005},
    {"text_context", cosine, 0.003, 0.1},
    {"noise_target", cosine, 0.007},
    {"images", sine, 0.001},
    {"mel", sine, 0.001},
};

Literal input_value(const Node& input) {
  const TensorType& type = input.results[0];
  if (type.dtype == DType::i32) {  // numbered along a sequence, or one for each image
    const auto length = static_cast<std::size_t>(type.shape[type.shape.rank() - 1]);
    const std::int32_t first = input.name == "labels" && type.shape.rank() == 2 ? 1 : 0;
    return filled<std::int32_t>(type, [&](std::size_t i) { return first + static_cast<std::int32_t>(i % length); });
  }
  const auto* wave = std::ranges::find(kWaves, std::string_view(input.name), &Wave::input);
  AESHNA_CHECK(wave != std::end(kWaves));
  return filled<float>(type, [&](std::size_t i) {
    return static_cast<float>(wave->amplitude * wave->of(wave->frequency * static_cast<double>(i)));
  });
}

}  // namespace

std::map<std::string, Literal> workload_data(const Workload& workload, std::uint64_t seed) {
  Graph graph;
  workload.build(graph, Phase::Train, workload.small, workload.batch);
  std::map<std::string, Literal> data;
  for (const Node& node : graph.nodes()) {
    if (is_parameter(node)) data.emplace(node.name, drawn(node, seed));
    if (is_input(node)) data.emplace("input/" + node.name, input_value(node));
  }
  return data;
}

}  // namespace aeshna::models
