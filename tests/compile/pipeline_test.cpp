// The stage table as a whole, on a small training graph, for the default Caps.
#include "compile/pipeline.h"

#include <gtest/gtest.h>

#include <set>

#include "aeshna/ops.h"
#include "compile/stages.h"
#include "support/expect_error.h"

namespace aeshna {
namespace {

void build_mlp(Graph& g) {
  const Value x = g.input("x", {17, 12}), labels = g.input("labels", {17}, DType::i32);
  const Value w1 = g.parameter("w1", {33, 12}), b1 = g.parameter("b1", {33}), w2 = g.parameter("w2", {5, 33}),
              b2 = g.parameter("b2", {5});
  const Value logits = linear(relu(linear(x, w1, b1)), w2, b2);
  g.output("logits", logits);
  g.output("loss", cross_entropy(logits, labels));
}

PipelineOptions adam() {
  PipelineOptions options;
  options.training = true;
  options.optimizer = Adam{};
  options.train.clip_norm = 1.0f;
  return options;
}

TEST(Pipeline, TheTableIsComplete) {
  std::vector<std::string_view> names;
  for (const Stage& stage : stages()) {
    names.push_back(stage.name);
    EXPECT_FALSE(stage.doc.empty()) << stage.name;
    EXPECT_NE(stage.run, nullptr) << stage.name;
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"verify", "rewrite", "train", "expand", "status", "simplify", "fuse",
                                                  "select", "schedule", "plan"}));
}

TEST(Pipeline, EveryStageCanBeDumped) {
  Graph g;
  build_mlp(g);
  std::set<std::string> texts;
  for (const Stage& stage : stages()) {
    const std::string text = dump_stage(g, adam(), Caps(), stage.name);
    EXPECT_FALSE(text.empty()) << stage.name;
    texts.insert(text);
  }
  EXPECT_GE(texts.size(), stages().size() - 2);  // verify and rewrite may print the same graph, schedule and plan too
  EXPECT_NE(dump_stage(g, adam(), Caps(), "train").find("cross_entropy"), std::string::npos);
  EXPECT_EQ(dump_stage(g, adam(), Caps(), "expand").find("cross_entropy("), std::string::npos);
  EXPECT_ERROR(dump_stage(g, adam(), Caps(), "fuze"), ErrorCode::NotFound,
               "there is no stage 'fuze' (did you mean 'fuse'");
}

TEST(Pipeline, PlansShareKernelsAndNameEveryStep) {
  Graph g;
  build_mlp(g);
  const std::string before = g.print();
  const Plan plan = compile_plan(g, adam(), Caps());
  EXPECT_EQ(g.print(), before) << "the user's graph is copied, never changed";
  for (const std::string& problem : check_plan(plan, Caps())) ADD_FAILURE() << problem;
  std::set<std::string> keys;
  for (const PlanKernel& kernel : plan.kernels) {
    EXPECT_TRUE(keys.insert(kernel.source.key).second) << kernel.name;
    EXPECT_FALSE(kernel.source.glsl.empty());
  }
  std::size_t dispatches = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.kind != PlanStep::Kind::Dispatch) continue;
    ++dispatches;
    ASSERT_LT(step.kernel, plan.kernels.size());
    ASSERT_FALSE(step.push.empty());
    EXPECT_EQ(step.push[0], step.spec.workgroups);
    EXPECT_EQ(plan.kernels[step.kernel].local, step.spec.local);
  }
  EXPECT_LT(plan.kernels.size(), dispatches);  // both matrices' and both biases' updates are one kernel each
  ASSERT_EQ(plan.times.size(), stages().size());
  for (std::size_t i = 0; i < plan.times.size(); ++i) EXPECT_EQ(plan.times[i].stage, stages()[i].name);
  EXPECT_EQ(plan.checks.size(), 3u);  // labels, loss, gradient norm
  for (const char* name : {"aeshna.lr", "labels", "x"}) EXPECT_TRUE(plan.inputs.contains(name)) << name;
  for (const char* name : {"aeshna.grad_norm", "aeshna.status", "logits", "loss"})
    EXPECT_TRUE(plan.outputs.contains(name)) << name;
}

TEST(Pipeline, CompilesTheSameWayTwice) {
  Graph g;
  build_mlp(g);
  EXPECT_EQ(dump_stage(g, adam(), Caps(), "plan"), dump_stage(g, adam(), Caps(), "plan"));
}

TEST(Pipeline, InferenceIsOneForwardList) {
  Graph g;
  const Value x = g.input("x", {4}), w = g.parameter("w", {4});
  const Value loss = sum(x * w * w);
  g.output("loss", loss);
  g.output("dw", gradients(loss, {w})[0]);  // asked for by the user: part of inference
  const Plan plan = compile_plan(g, {}, Caps());
  EXPECT_FALSE(plan.steps.empty());
  for (const PlanStep& step : plan.steps) EXPECT_EQ(step.segment, Segment::Forward);
  EXPECT_TRUE(plan.checks.empty());
  EXPECT_FALSE(plan.outputs.contains("aeshna.status"));
}

TEST(Pipeline, InnerGradientsAreThoseOfTheGraphAsBuilt) {
  // y = x * 1 would be rewritten to x, and the gradient of y to that of x.
  Graph g;
  const Value x = g.parameter("x", {4});
  const Value y = (x * 1).named("y");
  g.output("loss", sum(x * y * 3));
  PipelineOptions options;
  options.training = true;
  options.gradients = {"y"};
  const std::string text = dump_stage(g, options, Caps(), "simplify");
  EXPECT_NE(text.find("grad/y"), std::string::npos);
  // d/dy = 3 x, one product; d/dx of the rewritten graph would be a sum of two.
  EXPECT_EQ(text.find("add"), std::string::npos) << text;
}

TEST(Pipeline, ErrorsNameTheStage) {
  Graph g;
  g.output("y", exp(g.input("x", {4})));
  PipelineOptions options;
  options.training = true;
  EXPECT_ERROR(compile_plan(g, options, Caps()), ErrorCode::InvalidArgument, "compiler stage 'train'");
}

}  // namespace
}  // namespace aeshna
