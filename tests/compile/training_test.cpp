// Training graphs in the interpreter: gradients as outputs, accumulation, clipping, the status word, bad steps, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "aeshna/ops.h"
#include "compile/pipeline.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "ir/leaf.h"
#include "ir/verify.h"
#include "support/expect_error.h"
#include "support/graph_values.h"

namespace aeshna {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

struct Training {
  std::shared_ptr<Graph> graph;
  std::vector<std::string> checks;
  TensorMap leaves;

  Training(const Graph& g, PipelineOptions options) {
    options.training = true;
    graph = lower_checks(*merge_common(*expand_composites(*append_training(*rewrite(g, true), options))), checks);
    verify(*graph, "test");
    graph = rewrite(*graph, false);
    verify(*graph, "test");
    leaves = test::random_leaves(*graph, 7);
    for (auto& [name, leaf] : leaves) {
      if (name.starts_with(reserved::prefix)) std::ranges::fill(leaf.data, 0.0);
    }
    if (leaves.contains("aeshna.lr")) leaves.at("aeshna.lr").data = {0.1};
  }

  /// One recorded run of everything. `segment_limit` as on the device: a micro-step does not reach the update.
  InterpreterResult step(bool update = true) {
    InterpreterResult result = interpret(*graph, leaves);
    for (const NodeId id : graph->assigns()) {
      const Node& assign = graph->node(id);
      const std::string& name = graph->node(assign.inputs[0].node).name;
      if (update || assign.segment != Segment::Update) leaves.at(name) = result.assigned.at(name);
    }
    return result;
  }
  std::vector<double>& operator[](const std::string& name) { return leaves.at(name).data; }
};

/// A small regression with two parameters and a batch.
void build_model(Graph& g, std::int64_t batch) {
  const Value x = g.input("x", {batch, 3}), t = g.input("t", {batch, 2});
  const Value w = g.parameter("w", {2, 3}), b = g.parameter("b", {2});
  g.output("loss", mse(tanh(linear(x, w, b)), t));
}

PipelineOptions sgd(double momentum = 0) {
  PipelineOptions options;
  options.optimizer = Sgd{.lr = 0.1f, .momentum = static_cast<float>(momentum)};
  return options;
}

std::vector<double> rows(const std::vector<double>& data, std::size_t from, std::size_t to, std::size_t width) {
  return {data.begin() + static_cast<std::ptrdiff_t>(from * width),
          data.begin() + static_cast<std::ptrdiff_t>(to * width)};
}

// ---- gradients as outputs

TEST(Training, WithoutAnOptimizerTheGradientsAreOutputs) {
  Graph g;
  build_model(g, 4);
  Training all(g, {});
  const auto outputs = all.step().outputs;
  EXPECT_TRUE(outputs.contains("grad/w") && outputs.contains("grad/b"));
  EXPECT_EQ(outputs.at("grad/w").type.to_string(), "f32[2, 3]");
  EXPECT_TRUE(all.graph->leaf("aeshna.status"));
  EXPECT_FALSE(all.graph->leaf("aeshna.lr") || all.graph->leaf("aeshna.step"));

  PipelineOptions some;
  some.gradients = {"x"};
  const auto requested = Training(g, some).step().outputs;
  EXPECT_TRUE(requested.contains("grad/x"));
  EXPECT_FALSE(requested.contains("grad/w"));
}

TEST(Training, GradientsOfNamedValuesBesideTheUpdate) {
  Graph g;
  const Value x = g.input("x", {3}), w = g.parameter("w", {3});
  const Value h = (x * w).named("hidden");
  g.output("loss", sum(h * h));
  g.output("unrelated", exp(x).named("other"));
  PipelineOptions options = sgd();
  options.gradients = {"hidden", "x", "other"};
  Training t(g, options);
  const auto x0 = t["x"], w0 = t["w"];
  const auto outputs = t.step().outputs;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outputs.at("grad/other").data[i], 0);
    EXPECT_DOUBLE_EQ(outputs.at("grad/hidden").data[i], 2 * x0[i] * w0[i]);
    EXPECT_DOUBLE_EQ(outputs.at("grad/x").data[i], 2 * x0[i] * w0[i] * w0[i]);
    EXPECT_NE(t["w"][i], w0[i]);
  }
}

TEST(Training, SegmentsAndPrecision) {
  Graph g;
  build_model(g, 4);
  const Training t(g, sgd(0.9));
  for (const NodeId id : t.graph->assigns()) EXPECT_EQ(t.graph->node(id).segment, Segment::Update);
  for (const Node& node : t.graph->nodes()) {
    if (node.op->name != "matmul") continue;
    EXPECT_EQ(node.precision, node.segment == Segment::Backward ? Precision::Full : Precision::Contract);
  }
  for (const Node& node : t.graph->nodes())
    EXPECT_FALSE(is_input(node) && (node.name == reserved::ok || node.name == reserved::micro_ok));
}

TEST(Training, FrozenAndUnreachedParametersGetNothing) {
  Graph g;
  const Value x = g.input("x", {3});
  const Value w = g.parameter("w", {3}), frozen = g.parameter("frozen", {3}, {.trainable = false});
  g.parameter("unreached", {3});
  g.output("loss", sum(x * w * frozen));
  Training t(g, sgd(0.9));
  const auto result = t.step();
  EXPECT_TRUE(result.assigned.contains("w") && result.assigned.contains("aeshna.opt.momentum/w"));
  EXPECT_EQ(result.assigned.size(), 4u);  // and aeshna.step, aeshna.status
}

// ---- norm and clipping

TEST(Training, GlobalNormAndClipping) {
  Graph g;
  const Value a = g.parameter("a", {2}), b = g.parameter("b", {});
  g.output("loss", sum(a * g.input("ga", {2})) + b * g.input("gb", {}));
  for (const double limit : {1.0, 100.0}) {
    PipelineOptions options = sgd();
    options.train.clip_norm = static_cast<float>(limit);
    Training t(g, options);
    t["a"] = {0, 0};
    t["b"] = {0};
    t["ga"] = {3, -4};
    t["gb"] = {12};
    const auto outputs = t.step().outputs;
    EXPECT_DOUBLE_EQ(outputs.at("aeshna.grad_norm").data[0], 13);
    const double scale = std::min(1.0, limit / (13 + 1e-6));
    EXPECT_NEAR(t["a"][0], -0.1 * 3 * scale, 1e-7);
    EXPECT_NEAR(t["a"][1], 0.1 * 4 * scale, 1e-7);
    EXPECT_NEAR(t["b"][0], -0.1 * 12 * scale, 1e-7);
  }
}

// ---- accumulation

TEST(Training, FourMicroStepsEqualOneBigBatch) {
  Graph big, small;
  build_model(big, 8);
  build_model(small, 2);
  PipelineOptions options;
  options.optimizer = Adam{.lr = 0.1f};
  options.train.clip_norm = 0.05f;  // the norm of the whole gradient, not of each part
  Training one(big, options);
  options.train.accumulate = 4;
  Training four(small, options);
  for (const char* name : {"w", "b"}) four[name] = one[name];
  for (int update = 0; update < 3; ++update) {
    one.leaves.at("x") = test::random_leaves(big, 100 + static_cast<std::uint64_t>(update)).at("x");
    const double norm = one.step().outputs.at("aeshna.grad_norm").data[0];
    for (std::size_t micro = 0; micro < 4; ++micro) {
      four["x"] = rows(one["x"], micro * 2, micro * 2 + 2, 3);
      four["t"] = rows(one["t"], micro * 2, micro * 2 + 2, 2);
      four["aeshna.first_micro"] = {micro == 0 ? 1.0 : 0.0};
      const auto result = four.step(micro == 3);
      if (micro == 3) {
        EXPECT_NEAR(result.outputs.at("aeshna.grad_norm").data[0], norm, 1e-7);
      }
    }
    for (const char* name : {"w", "b", "aeshna.opt.v/w", "aeshna.step"}) {
      EXPECT_LE(test::difference(four.leaves.at(name), one.leaves.at(name)), 1e-7)
          << name << " after update " << update;
    }
  }
}

TEST(Training, ABadMicroStepVoidsItsUpdateAndNoOther) {
  Graph g;
  build_model(g, 2);
  PipelineOptions options = sgd(0.9);
  options.train.accumulate = 3;
  Training t(g, options);
  const auto good = t["x"];
  const auto update = [&](int bad) {
    std::vector<double> status;
    for (int micro = 0; micro < 3; ++micro) {
      t["x"] = good;
      if (micro == bad) t["x"][1] = kNan;
      t["aeshna.first_micro"] = {micro == 0 ? 1.0 : 0.0};
      t["aeshna.status"] = {0, 0};
      status = t.step(micro == 2).outputs.at("aeshna.status").data;
    }
    return status;
  };
  for (const int bad : {0, 1, 2}) {
    const auto w = t["w"], momentum = t["aeshna.opt.momentum/w"], step = t["aeshna.step"];
    EXPECT_EQ(update(bad)[0], static_cast<double>(ErrorCode::NonFinite)) << bad;
    EXPECT_EQ(t["w"], w);
    EXPECT_EQ(t["aeshna.opt.momentum/w"], momentum);
    EXPECT_EQ(t["aeshna.step"], step);
    EXPECT_EQ(update(-1), std::vector<double>({0, 0})) << "after bad micro-step " << bad;
    EXPECT_NE(t["w"], w);
    EXPECT_TRUE(std::isfinite(t["w"][0]));
    EXPECT_EQ(t["aeshna.step"][0], step[0] + 1);
  }
}

// ---- bad steps

TEST(Training, ABadStepChangesNothingAndSaysWhy) {
  Graph g;
  const Value x = g.input("x", {4, 3});
  const Value w = g.parameter("w", {2, 3});
  const Value running = g.state("running", {3});
  g.assign(running, running * 0.9 + mean(x, {0}) * 0.1);
  g.output("loss", mean(linear(x, w)));
  PipelineOptions options;
  options.optimizer = Adam{};
  options.train.clip_norm = 1.0f;
  Training t(g, options);
  t.step();  // moments are not zero
  const TensorMap before = t.leaves;
  t["x"][5] = kNan;
  auto result = t.step();
  for (const auto& [name, value] : before) {
    if (name != "x" && name != "aeshna.status") {
      EXPECT_TRUE(test::identical(t.leaves.at(name), value)) << name;
    }
  }
  ASSERT_EQ(t.checks.size(), 2u);
  EXPECT_EQ(result.outputs.at("aeshna.status").data,
            std::vector<double>({static_cast<double>(ErrorCode::NonFinite), 1}));
  EXPECT_NE(t.checks[0].find("loss 'loss' ("), std::string::npos) << t.checks[0];
  EXPECT_NE(t.checks[1].find("gradient norm ("), std::string::npos) << t.checks[1];

  // The first failure stays until the host clears it; the next good step updates.
  t.leaves.at("x") = before.at("x");
  result = t.step();
  EXPECT_EQ(result.outputs.at("aeshna.status").data,
            std::vector<double>({static_cast<double>(ErrorCode::NonFinite), 1}));
  EXPECT_EQ(t["aeshna.step"][0], 2);
  EXPECT_FALSE(test::identical(t.leaves.at("w"), before.at("w")));
  EXPECT_FALSE(test::identical(t.leaves.at("running"), before.at("running")));
  t["aeshna.status"] = {0, 0};
  EXPECT_EQ(t.step().outputs.at("aeshna.status").data, std::vector<double>({0, 0}));
}

TEST(Training, ANonFiniteGradientOfAFiniteLoss) {
  Graph g;
  const Value w = g.parameter("w", {2});
  g.output("loss", sum(sqrt(abs(w))));  // d/dw at 0: 0.5 / 0 * sign
  for (const bool checked : {true, false}) {
    PipelineOptions options = sgd();
    options.train.check_gradients = checked;
    Training t(g, options);
    t["w"] = {0, 1};
    const auto outputs = t.step().outputs;
    EXPECT_EQ(outputs.contains("aeshna.grad_norm"), checked);
    if (checked) {
      EXPECT_EQ(outputs.at("aeshna.status").data, std::vector<double>({static_cast<double>(ErrorCode::NonFinite), 2}));
      EXPECT_EQ(t["w"], std::vector<double>({0, 1}));
    } else {
      EXPECT_EQ(outputs.at("aeshna.status").data, std::vector<double>({0, 0}));
      EXPECT_FALSE(std::isfinite(t["w"][0]));
    }
  }
}

/// check(bad) with a message.
void add_check(Graph& g, Value bad, const char* code, const char* what) {
  const Value operands[] = {bad};
  g.add("check", operands, {{"code", std::string(code)}, {"what", std::string(what)}}, SourceLine("user.cpp", 7));
}

TEST(Training, TheFirstFailedCheckIsNamed) {
  Graph g;
  const Value x = g.input("x", {}), y = g.input("y", {}), w = g.parameter("w", {});
  add_check(g, greater(x, 1), "out_of_range", "x");
  add_check(g, greater(y, 1), "out_of_range", "y");
  g.output("loss", w * x / y);
  Training t(g, sgd());
  ASSERT_EQ(t.checks.size(), 4u);
  EXPECT_EQ(t.checks[0], "x (user.cpp:7)");
  EXPECT_EQ(t.checks[1], "y (user.cpp:7)");
  const auto status = [&](double vx, double vy) {
    t["x"] = {vx};
    t["y"] = {vy};
    t["aeshna.status"] = {0, 0};
    const auto outputs = t.step().outputs;
    EXPECT_EQ(outputs.at("aeshna.status").data, outputs.at("aeshna.status.forward").data);
    return outputs.at("aeshna.status").data;
  };
  const double range = static_cast<double>(ErrorCode::OutOfRange), finite = static_cast<double>(ErrorCode::NonFinite);
  EXPECT_EQ(status(0.5, 0.5), std::vector<double>({0, 0}));
  EXPECT_EQ(status(2, 0.5), std::vector<double>({range, 1}));
  EXPECT_EQ(status(0.5, 2), std::vector<double>({range, 2}));
  EXPECT_EQ(status(2, 2), std::vector<double>({range, 1}));
  EXPECT_EQ(status(0.5, 0), std::vector<double>({finite, 3}));
}

TEST(Training, InferenceHasAStatusOnlyIfThereAreChecks) {
  Graph with, without;
  for (Graph* g : {&with, &without}) {
    const Value x = g->input("x", {});
    if (g == &with) add_check(*g, greater(x, 1), "out_of_range", "x");
    g->output("y", x * 2);
  }
  std::vector<std::string> checks;
  const auto lowered = lower_checks(with, checks);
  verify(*lowered, "test");
  EXPECT_EQ(checks, std::vector<std::string>{"x (user.cpp:7)"});
  TensorMap leaves = test::random_leaves(*lowered, 1);
  leaves.at("aeshna.status").data = {0, 0};
  leaves.at("x").data = {3};
  EXPECT_EQ(interpret(*lowered, leaves).outputs.at("aeshna.status").data,
            std::vector<double>({static_cast<double>(ErrorCode::OutOfRange), 1}));
  for (const Node& node : lowered->nodes()) EXPECT_EQ(node.segment, Segment::Forward);
  checks.clear();
  EXPECT_EQ(lower_checks(without, checks)->print(), without.print());
  EXPECT_TRUE(checks.empty());
}

TEST(Training, LabelsOutOfRangeMakeABadStep) {
  Graph g;
  const Value w = g.parameter("w", {5, 3});
  g.output("loss", cross_entropy(linear(g.input("x", {4, 3}), w), g.input("labels", {4}, DType::i32)));
  Training t(g, sgd());
  t["labels"] = {0, 4, -100, 2};
  EXPECT_EQ(t.step().outputs.at("aeshna.status").data, std::vector<double>({0, 0}));
  const auto w0 = t["w"];
  for (const double label : {5.0, -1.0}) {
    t["labels"] = {0, label, 1, 2};
    t["aeshna.status"] = {0, 0};
    EXPECT_EQ(t.step().outputs.at("aeshna.status").data[0], static_cast<double>(ErrorCode::OutOfRange)) << label;
    EXPECT_EQ(t["w"], w0);
  }
}

TEST(Training, UserStatesAdvanceWithEachMicroStepButNotWithABadOne) {
  Graph g;
  const Value x = g.input("x", {}), w = g.parameter("w", {});
  const Value seen = g.state("seen", {});
  g.assign(seen, seen + 1);
  g.output("loss", w * x);
  PipelineOptions options = sgd();
  options.train.accumulate = 2;
  Training t(g, options);
  t["seen"] = {0};
  for (int micro = 0; micro < 4; ++micro) {
    t["aeshna.first_micro"] = {micro % 2 == 0 ? 1.0 : 0.0};
    t["x"] = {micro == 1 ? kNan : 1.0};
    t.step(micro % 2 == 1);
  }
  EXPECT_EQ(t["seen"], std::vector<double>{3});
  EXPECT_EQ(t["aeshna.step"], std::vector<double>{1});
}

TEST(Training, RandomNumbersDifferBetweenMicroStepsAndUpdates) {
  Graph g;
  const Value w = g.parameter("w", {});
  g.output("noise", random_uniform(g, {4}));
  g.output("loss", w * sum(random_uniform(g, {3})));
  PipelineOptions options = sgd();
  options.train.accumulate = 3;
  Training t(g, options);
  std::set<double> seen;
  for (int micro = 0; micro < 9; ++micro) {
    t["aeshna.first_micro"] = {micro % 3 == 0 ? 1.0 : 0.0};
    EXPECT_TRUE(seen.insert(t.step(micro % 3 == 2).outputs.at("noise").data[0]).second) << micro;
  }
  EXPECT_EQ(t["aeshna.step"], std::vector<double>{3});
  // The third update's second micro-step draws what step 2 * 3 + 1 of a graph without accumulation draws.
  TensorMap plain{{"aeshna.seed", t.leaves.at("aeshna.seed")},
                  {"aeshna.step", test::tensor({DType::u32, {}}, {7})},
                  {"w", t.leaves.at("w")}};
  EXPECT_TRUE(seen.contains(interpret(g, plain).outputs.at("noise").data[0]));
}

// ---- errors

std::string error_of(ErrorCode code, const Graph& g, PipelineOptions options) {
  options.training = true;
  try {
    append_training(g, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(TrainingErrors, TheLoss) {
  Graph g;
  const Value x = g.input("x", {3}), w = g.parameter("w", {3});
  g.output("logits", x * w);
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, sgd()),
             "the graph has no loss: none of its outputs is a float scalar");
  g.output("loss", sum(x * w));
  PipelineOptions options = sgd();
  options.loss = "los";
  EXPECT_HAS(error_of(ErrorCode::NotFound, g, options), "no output is named 'los' (did you mean 'loss'");
  options.loss = "logits";
  const std::string text = error_of(ErrorCode::ShapeMismatch, g, options);
  EXPECT_HAS(text, "the loss 'logits' must be a float scalar (rank 0), found f32[3]");
  EXPECT_HAS(text, "training_test.cpp:");
  g.output("other", mean(w));
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, sgd()),
             "several outputs could be the loss ('loss', 'other'); name one");
}

TEST(TrainingErrors, ParametersNamesAndOptions) {
  {
    Graph g;
    g.parameter("w", {3});
    g.output("loss", sum(g.input("x", {3})));
    EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, sgd()), "the loss 'loss' depends on no trainable parameter");
  }
  {
    Graph g;
    build_model(g, 2);
    PipelineOptions options = sgd();
    options.train.accumulate = 0;
    EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, options), "accumulate must be >= 1");
    options = sgd();
    options.train.clip_norm = 0;
    EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, options), "clip_norm must be finite and > 0, found 0");
    options = sgd();
    options.gradients = {"ww"};
    EXPECT_HAS(error_of(ErrorCode::NotFound, g, options), "no value is named 'ww'");
  }
  {
    Graph leaf, output;
    build_model(leaf, 2);
    build_model(output, 2);
    leaf.input("aeshna.lr", {});
    output.output("aeshna.status", output.input("more", {3}));
    for (const bool training : {true, false}) {
      PipelineOptions options = sgd();
      options.training = training;
      EXPECT_ERROR(compile_plan(leaf, options, Caps{}), ErrorCode::InvalidArgument,
                   "the leaf name 'aeshna.lr' begins with the reserved prefix 'aeshna.'");
      EXPECT_ERROR(compile_plan(output, options, Caps{}), ErrorCode::InvalidArgument,
                   "the output name 'aeshna.status' begins with the reserved prefix 'aeshna.'");
    }
  }
  {
    Graph g;
    const Value w = g.parameter("w", {3});
    g.assign(w, w * 0.5);
    g.output("loss", sum(w));
    EXPECT_HAS(error_of(ErrorCode::InvalidArgument, g, sgd()), "'w' is assigned already");
  }
}

}  // namespace
}  // namespace aeshna
