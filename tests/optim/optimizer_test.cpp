// Optimizer updates against independent implementations in plain C++, over several steps.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "ir/verify.h"
#include "support/graph_values.h"

namespace aeshna {
namespace {

constexpr int kSteps = 5;
constexpr std::size_t kSize = 4;
using Vector = std::vector<double>;

/// A graph with the given gradients: loss = sum(w * g), g an input.
struct Problem {
  Graph g;
  Problem(double lr_scale, double decay_scale) {
    const Value w = g.parameter("w", {kSize}, {.lr_scale = lr_scale, .decay_scale = decay_scale});
    g.output("loss", sum(w * g.input("g", {kSize})));
  }
};

std::shared_ptr<Graph> training_graph(const Graph& g, const PipelineOptions& options) {
  std::vector<std::string> checks;
  auto graph = lower_checks(*merge_common(*expand_composites(*append_training(g, options))), checks);
  verify(*graph, "test");
  graph = rewrite(*graph, false);
  verify(*graph, "test");
  return graph;
}

/// Runs `kSteps` updates in the interpreter; returns w after each.
std::vector<Vector> run(const Optimizer& optimizer, const Vector& w0, const std::vector<Vector>& gradients,
                        const Vector& rates, double lr_scale = 1, double decay_scale = 1) {
  const Problem problem(lr_scale, decay_scale);
  PipelineOptions options{.training = true, .loss = {}, .gradients = {}, .optimizer = optimizer, .train = {}};
  const auto graph = training_graph(problem.g, options);
  TensorMap leaves = test::random_leaves(*graph, 1, 0, 0);
  for (auto& [name, leaf] : leaves) std::ranges::fill(leaf.data, 0.0);
  leaves.at("w").data = w0;
  std::vector<Vector> history;
  for (int t = 0; t < kSteps; ++t) {
    leaves.at("g").data = gradients[static_cast<std::size_t>(t)];
    leaves.at("aeshna.lr").data = {rates[static_cast<std::size_t>(t)]};
    const auto result = interpret(*graph, leaves);
    for (const auto& [name, value] : result.assigned) leaves.at(name) = value;
    EXPECT_EQ(leaves.at("aeshna.step").data[0], t + 1);
    EXPECT_EQ(leaves.at("aeshna.status").data, Vector({0, 0}));
    history.push_back(leaves.at("w").data);
  }
  return history;
}

const Vector kStart = {0.5, -1.25, 2, 1e-3};
const std::vector<Vector> kGradients = {
    {1, -2, 0.5, 1e-4}, {0.5, 0.25, -3, 0}, {-1, 1, 1, 2e-5}, {0, 0, 0.125, -1e-3}, {2, -0.5, 0.75, 5}};
const Vector kRates = {0.1, 0.1, 0.05, 0.02, 0.01};

void expect_same(const std::vector<Vector>& got, const std::vector<Vector>& want) {
  for (std::size_t t = 0; t < want.size(); ++t) {
    for (std::size_t i = 0; i < kSize; ++i) {
      // The graph's constants are f32 (beta, eps), the reference's are doubles.
      EXPECT_NEAR(got[t][i], want[t][i], 2e-6 * std::max(1.0, std::fabs(want[t][i])))
          << "step " << t << " element " << i;
    }
  }
}

std::vector<Vector> reference_sgd(double momentum, double dampening, double weight_decay, bool nesterov,
                                  double lr_scale = 1) {
  Vector w = kStart, buffer(kSize);
  std::vector<Vector> history;
  for (std::size_t t = 0; t < kSteps; ++t) {
    for (std::size_t i = 0; i < kSize; ++i) {
      double d = kGradients[t][i] + weight_decay * w[i];
      if (momentum != 0) {
        buffer[i] = t == 0 ? d : momentum * buffer[i] + (1 - dampening) * d;
        d = nesterov ? d + momentum * buffer[i] : buffer[i];
      }
      w[i] -= kRates[t] * lr_scale * d;
    }
    history.push_back(w);
  }
  return history;
}

TEST(Optimizer, Sgd) {
  expect_same(run(Sgd{.lr = 0.1f}, kStart, kGradients, kRates), reference_sgd(0, 0, 0, false));
  expect_same(run(Sgd{.lr = 0.1f, .weight_decay = 0.3f}, kStart, kGradients, kRates), reference_sgd(0, 0, 0.3, false));
  expect_same(run(Sgd{.lr = 0.1f, .momentum = 0.9f}, kStart, kGradients, kRates), reference_sgd(0.9, 0, 0, false));
  expect_same(
      run(Sgd{.lr = 0.1f, .momentum = 0.9f, .dampening = 0.4f, .weight_decay = 0.01f}, kStart, kGradients, kRates),
      reference_sgd(0.9, 0.4, 0.01, false));
  expect_same(
      run(Sgd{.lr = 0.1f, .momentum = 0.8f, .weight_decay = 0.01f, .nesterov = true}, kStart, kGradients, kRates),
      reference_sgd(0.8, 0, 0.01, true));
}

TEST(Optimizer, MultipliersScaleRateAndDecay) {
  expect_same(run(Sgd{.lr = 0.1f, .weight_decay = 0.3f}, kStart, kGradients, kRates, 0.25, 2),
              reference_sgd(0, 0, 0.6, false, 0.25));
  expect_same(run(Sgd{.lr = 0.1f, .weight_decay = 0.3f}, kStart, kGradients, kRates, 1, 0),
              reference_sgd(0, 0, 0, false));
}

enum class Kind { Adam, AdamW, LaProp };

std::vector<Vector> reference_adaptive(Kind kind, double beta1, double beta2, double eps, double weight_decay) {
  Vector w = kStart, m(kSize), v(kSize);
  std::vector<Vector> history;
  for (std::size_t t = 0; t < kSteps; ++t) {
    const double c1 = 1 - std::pow(beta1, static_cast<double>(t + 1)),
                 c2 = 1 - std::pow(beta2, static_cast<double>(t + 1));
    for (std::size_t i = 0; i < kSize; ++i) {
      double g = kGradients[t][i];
      const double lr = kRates[t];
      if (kind == Kind::Adam) {
        g += weight_decay * w[i];
      } else {
        w[i] *= 1 - lr * weight_decay;
      }
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      if (kind == Kind::LaProp) {
        m[i] = beta1 * m[i] + (1 - beta1) * g / (std::sqrt(v[i] / c2) + eps);
        w[i] -= lr * m[i] / c1;
      } else {
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        w[i] -= lr / c1 * m[i] / (std::sqrt(v[i]) / std::sqrt(c2) + eps);
      }
    }
    history.push_back(w);
  }
  return history;
}

TEST(Optimizer, Adam) {
  expect_same(run(Adam{}, kStart, kGradients, kRates), reference_adaptive(Kind::Adam, 0.9, 0.999, 1e-8, 0));
  expect_same(run(Adam{.beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-3f, .weight_decay = 0.1f}, kStart, kGradients, kRates),
              reference_adaptive(Kind::Adam, 0.8, 0.95, 1e-3, 0.1));
  expect_same(run(Adam{.beta1 = 0, .beta2 = 0.5f}, kStart, kGradients, kRates),
              reference_adaptive(Kind::Adam, 0, 0.5, 1e-8, 0));
}

TEST(Optimizer, AdamW) {
  expect_same(run(AdamW{}, kStart, kGradients, kRates), reference_adaptive(Kind::AdamW, 0.9, 0.999, 1e-8, 0.01));
  expect_same(run(AdamW{.weight_decay = 0.5f}, kStart, kGradients, kRates),
              reference_adaptive(Kind::AdamW, 0.9, 0.999, 1e-8, 0.5));
}

TEST(Optimizer, LaProp) {
  // A gradient of exactly 0 from the first step on would be 0 / eps: kGradients has none.
  expect_same(run(LaProp{}, kStart, kGradients, kRates), reference_adaptive(Kind::LaProp, 0.9, 0.999, 1e-15, 0));
  expect_same(run(LaProp{.beta1 = 0.5f, .weight_decay = 0.2f}, kStart, kGradients, kRates),
              reference_adaptive(Kind::LaProp, 0.5, 0.999, 1e-15, 0.2));
}

TEST(Optimizer, HyperparametersAreTheDecimalsThatWereWritten) {
  // 1 - 0.999f is 0.00099998712 in float; torch computes with 0.001. The difference would be 1.3e-5.
  const Problem problem(1, 1);
  const auto graph =
      training_graph(problem.g, {.training = true, .loss = {}, .gradients = {}, .optimizer = Adam{}, .train = {}});
  TensorMap leaves = test::random_leaves(*graph, 1, 0, 0);
  for (auto& [name, leaf] : leaves) std::ranges::fill(leaf.data, 0.0);
  leaves.at("g").data = {1, 1, 1, 1};
  EXPECT_NEAR(interpret(*graph, leaves).assigned.at("aeshna.opt.v/w").data[0], 0.001, 1e-10);
}

TEST(Optimizer, BiasCorrectionIsAccurateAtStepOne) {
  // In f32, with rounding after each node, 1 - exp(log(0.9999)) would lose four digits; -expm1 does not.
  const Problem problem(1, 1);
  const auto graph = training_graph(
      problem.g,
      {.training = true, .loss = {}, .gradients = {}, .optimizer = Adam{.beta2 = 0.9999f, .eps = 1e-30f}, .train = {}});
  TensorMap leaves = test::random_leaves(*graph, 1, 0, 0);
  for (auto& [name, leaf] : leaves) std::ranges::fill(leaf.data, 0.0);
  leaves.at("g").data = {1, -1, 0.25, -4};
  leaves.at("aeshna.lr").data = {0.5};
  const auto w = interpret(*graph, leaves, Rounding::Storage).assigned.at("w").data;
  for (const double x : w) EXPECT_NEAR(std::fabs(x), 0.5, 1e-6);
}

TEST(Optimizer, MomentsExistOnlyWhereUsed) {
  const auto states = [](const Optimizer& optimizer) {
    const Problem problem(1, 1);
    const auto graph =
        training_graph(problem.g, {.training = true, .loss = {}, .gradients = {}, .optimizer = optimizer, .train = {}});
    std::string names;
    for (const Node& node : graph->nodes()) {
      if (node.op->name == "state" && node.name.starts_with("aeshna.opt.")) names += node.name + " ";
    }
    return names;
  };
  EXPECT_EQ(states(Sgd{}), "");
  EXPECT_EQ(states(Sgd{.momentum = 0.9f}), "aeshna.opt.momentum/w ");
  EXPECT_EQ(states(Adam{}), "aeshna.opt.m/w aeshna.opt.v/w ");
  EXPECT_EQ(states(AdamW{}), "aeshna.opt.m/w aeshna.opt.v/w ");
  EXPECT_EQ(states(LaProp{}), "aeshna.opt.m/w aeshna.opt.v/w ");
}

TEST(Optimizer, ParametersShareTheScalars) {
  Graph g;
  Value loss = g.constant(0);
  for (int i = 0; i < 6; ++i)
    loss = loss + sum(g.parameter("w" + std::to_string(i), {3}) * g.input("x" + std::to_string(i), {3}));
  g.output("loss", loss);
  const auto graph =
      training_graph(g, {.training = true, .loss = {}, .gradients = {}, .optimizer = Adam{}, .train = {}});
  EXPECT_EQ(test::count_ops(*graph, "expm1"), 2);
  EXPECT_EQ(test::count_ops(*graph, "cast"), 1);
}

TEST(Optimizer, HalfPrecisionParametersAreUpdatedInF32) {
  Graph g;
  const Value w = g.parameter("w", {2}, {.dtype = DType::f16});
  g.output("loss", sum(cast(w, DType::f32) * g.input("g", {2})));
  const auto graph = training_graph(
      g, {.training = true, .loss = {}, .gradients = {}, .optimizer = Sgd{.lr = 1, .momentum = 0.5f}, .train = {}});
  EXPECT_EQ(graph->node(*graph->leaf("aeshna.opt.momentum/w")).results[0].dtype, DType::f32);
  TensorMap leaves = test::random_leaves(*graph, 1, 0, 0);
  for (auto& [name, leaf] : leaves) std::ranges::fill(leaf.data, 0.0);
  leaves.at("w").data = {1, 2};
  leaves.at("g").data = {0.5, -0.25};
  leaves.at("aeshna.lr").data = {0.5};
  EXPECT_EQ(interpret(*graph, leaves).assigned.at("w").data, Vector({0.75, 2.125}));
}

TEST(Optimizer, RefusesBadHyperparameters) {
  const auto message = [](const Optimizer& optimizer) -> std::string {
    const Problem problem(1, 1);
    try {
      append_training(problem.g, {.training = true, .loss = {}, .gradients = {}, .optimizer = optimizer, .train = {}});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
      return e.message();
    }
    return "accepted";
  };
  EXPECT_EQ(message(Sgd{.lr = -1}), "[sgd] lr must be finite and >= 0, found -1");
  EXPECT_EQ(message(Sgd{.momentum = -0.5f}), "[sgd] momentum must be finite and >= 0, found -0.5");
  EXPECT_EQ(message(Sgd{.nesterov = true}), "[sgd] nesterov needs momentum > 0, found 0");
  EXPECT_EQ(message(Sgd{.momentum = 0.5f, .dampening = 0.5f, .nesterov = true}),
            "[sgd] nesterov needs dampening 0, found 0.5");
  EXPECT_EQ(message(Adam{.beta1 = 1}), "[adam] beta1 must be in [0, 1), found 1");
  EXPECT_EQ(message(Adam{.beta2 = -0.5f}), "[adam] beta2 must be in [0, 1), found -0.5");
  EXPECT_EQ(message(AdamW{.eps = 0}), "[adamw] eps must be finite and > 0, found 0");
  EXPECT_EQ(message(LaProp{.weight_decay = -1}), "[laprop] weight_decay must be finite and >= 0, found -1");
}

}  // namespace
}  // namespace aeshna
