// The data of the benchmark, and how its workloads are found.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "nn/workload_support.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::Workload;

TEST(WorkloadData, HasTheTypesOfTheGraph) {
  for (const Workload& w : models::workloads(true)) {
    SCOPED_TRACE(w.name);
    const auto data = models::workload_data(w, 3);
    const auto graph = workload_graph(w, Phase::Train, w.batch);
    std::size_t leaves = 0;
    for (const Node& node : graph->nodes()) {
      if (!is_parameter(node) && !is_input(node)) continue;
      ++leaves;
      const auto found = data.find(is_input(node) ? "input/" + node.name : node.name);
      ASSERT_NE(found, data.end()) << node.name;
      EXPECT_EQ(found->second.type(), node.results[0]) << node.name;
    }
    EXPECT_EQ(data.size(), leaves);
  }
}

/// Mean and deviation within five standard errors.
void expect_normal(const std::vector<double>& values, double deviation) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  for (const double v : values) squares += v * v;
  EXPECT_LT(std::fabs(sum / n), 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n) / deviation, 1, 5 / std::sqrt(2 * n));
}

TEST(WorkloadData, WeightsHaveTheirDistributions) {
  int norms = 0, biases = 0, queries = 0;
  std::vector<double> scales;
  for (const Workload& w : models::workloads(true)) {
    for (const auto& [name, value] : models::workload_data(w, 3)) {
      if (name.starts_with("input/")) continue;
      SCOPED_TRACE(w.name + " " + name);
      const Shape& shape = value.type().shape;
      const std::vector<double> values = value.to_doubles();
      if (shape.rank() > 1) {
        const bool query = name.ends_with("q_proj.weight");
        queries += query;
        expect_normal(values, (query ? 2 : 1) / std::sqrt(static_cast<double>(shape.elements() / shape[0])));
      } else if (name.ends_with("bias")) {
        ++biases;
        expect_normal(values, 0.02);
      } else {
        ++norms;
        EXPECT_TRUE(name.contains("norm")) << "only norms have vectors that are no biases";
        scales.insert(scales.end(), values.begin(), values.end());
      }
    }
  }
  EXPECT_GT(norms, 40);
  EXPECT_GT(biases, 60);
  EXPECT_GT(queries, 15);
  const auto [low, high] = std::ranges::minmax(scales);
  EXPECT_GE(low, 0.5);
  EXPECT_LT(low, 0.51);
  EXPECT_LT(high, 1.5);
  EXPECT_GT(high, 1.49);
  double sum = 0;
  for (const double s : scales) sum += s;
  EXPECT_NEAR(sum / static_cast<double>(scales.size()), 1, 0.03);
}

TEST(WorkloadData, DependsOnSeedAndNameAlone) {
  const Workload& w = models::find_workload("smollm2", true);
  const auto a = models::workload_data(w, 7), b = models::workload_data(w, 7), other = models::workload_data(w, 8);
  for (const auto& [name, value] : a) {
    EXPECT_EQ(value, b.at(name)) << name;
    EXPECT_EQ(value == other.at(name), name.starts_with("input/")) << name;
  }
  const char *first = "model.layers.0.mlp.up_proj.weight", *second = "model.layers.1.mlp.up_proj.weight";
  EXPECT_FALSE(a.at(first) == a.at(second));
}

TEST(WorkloadData, InputsFollowTheirFormulas) {
  const std::map<std::string, std::function<double(double)>> formulas = {
      {"ids", [](double j) { return j; }},
      {"noisy_actions", [](double j) { return std::sin(0.01 * j); }},
      {"timestep", [](double j) { return std::sin(0.005 * j); }},
      {"vlm_kv", [](double j) { return std::cos(0.01 * j); }},
      {"latent", [](double j) { return std::sin(0.01 * j); }},
      {"timestep_embedding", [](double j) { return std::sin(0.005 * j); }},
      {"text_context", [](double j) { return 0.1 * std::cos(0.003 * j); }},
      {"noise_target", [](double j) { return std::cos(0.007 * j); }},
      {"images", [](double j) { return std::sin(0.001 * j); }},
      {"mel", [](double j) { return std::sin(0.001 * j); }},
  };
  for (const Workload& w : models::workloads(true)) {
    for (const auto& [name, value] : models::workload_data(w, 1)) {
      if (!name.starts_with("input/")) continue;
      SCOPED_TRACE(w.name + " " + name);
      const std::vector<double> values = value.to_doubles();
      for (std::size_t j = 0; j < values.size(); ++j) {
        const auto index = static_cast<double>(j);
        const double want = name != "input/labels" ? formulas.at(name.substr(6))(index)
                            : w.name == "resnet50" ? index
                                                   : index + 1;
        ASSERT_EQ(values[j], static_cast<double>(static_cast<float>(want))) << j;
      }
    }
  }
}

TEST(WorkloadData, MinimalInputsAreTheBeginningOfTheFullOnes) {
  for (const bool small : {false, true}) {
    for (const Workload& w : models::workloads(small)) {
      const auto minimal = workload_graph(w, Phase::Minimal, w.batch), full = workload_graph(w, Phase::Full, w.batch);
      for (const Node& node : minimal->nodes()) {
        if (!is_input(node)) continue;
        const Shape least = node.results[0].shape, all = full->find(node.name).shape();
        ASSERT_EQ(least.rank(), all.rank());
        // Row-major: only leading axes, of which one is cut, may be shorter.
        int axis = least.rank() - 1;
        while (axis >= 0 && least[axis] == all[axis]) --axis;
        for (int d = 0; d < axis; ++d) EXPECT_EQ(least[d], 1) << w.name << " " << node.name;
        EXPECT_EQ(least[0], 1);
      }
    }
  }
}

TEST(Workloads, AreFoundByName) {
  EXPECT_EQ(models::find_workload("unet").title, "Diffusion U-Net");
  EXPECT_EQ(models::find_workload("resnet50", true).batch, 2);
  EXPECT_ERROR(models::find_workload("resnet"), ErrorCode::NotFound, "no workload 'resnet' (did you mean 'resnet50'");
  EXPECT_EQ(models::phase_name(Phase::Full), "full");
  EXPECT_EQ(models::phase_name(Phase::Minimal), "minimal");
  EXPECT_EQ(models::phase_name(Phase::Train), "train");
}

}  // namespace
}  // namespace aeshna::test
