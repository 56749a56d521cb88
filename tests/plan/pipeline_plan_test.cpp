// Plans of real graphs, through the whole compiler: sound, in place where it matters, within a device's limits.
#include <gtest/gtest.h>

#include "aeshna/ops.h"
#include "plan/plan_builder.h"

namespace aeshna {
namespace {

using test::copies;
using test::joined;

/// A two-layer classifier with the loss as output.
void build_classifier(Graph& g) {
  const Value x = g.input("x", {30, 64});
  const Value labels = g.input("labels", {30}, DType::i32);
  const Value w1 = g.parameter("w1", {96, 64});
  const Value b1 = g.parameter("b1", {96});
  const Value w2 = g.parameter("w2", {10, 96});
  const Value b2 = g.parameter("b2", {10});
  const Value logits = linear(relu(linear(x, w1, b1)), w2, b2);
  g.output("logits", logits);
  g.output("loss", cross_entropy(logits, labels));
}

PipelineOptions training(Optimizer optimizer) {
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  options.optimizer = optimizer;
  return options;
}

Plan sound_plan(const Graph& g, const PipelineOptions& options, const Caps& caps = {}) {
  Plan plan = compile_plan(g, options, caps);
  EXPECT_EQ(joined(check_plan(plan, caps)), "") << print_plan(plan);
  return plan;
}

TEST(PipelinePlan, InferenceAndTrainingAreSound) {
  Graph g;
  build_classifier(g);
  sound_plan(g, {});
  for (const Optimizer& optimizer : {Optimizer(Sgd{}), Optimizer(Sgd{.momentum = 0.9f, .nesterov = true}),
                                     Optimizer(Adam{}), Optimizer(AdamW{}), Optimizer(LaProp{})}) {
    PipelineOptions options = training(optimizer);
    for (const bool fusion : {true, false}) {
      for (const bool aliasing : {true, false}) {
        options.fusion = fusion;
        options.aliasing = aliasing;
        sound_plan(g, options);
      }
    }
    options.train.clip_norm = 1.0f;
    options.train.accumulate = 4;
    options.gradients = {"w1", "logits"};
    sound_plan(g, options);
  }
}

TEST(PipelinePlan, MatricesAndMomentsAreUpdatedInPlace) {
  Graph g;
  build_classifier(g);
  const Plan plan = sound_plan(g, training(Adam{}));
  for (const std::string& note : plan.notes) {
    EXPECT_FALSE(note.contains("'w1'") || note.contains("'w2'") || note.contains("/w1'") || note.contains("/w2'"))
        << note;
  }
}

TEST(PipelinePlan, AliasingSavesMemory) {
  Graph g;
  Value h = g.input("x", {64, 256});
  for (int i = 0; i < 8; ++i) h = softmax(linear(h, g.parameter("w" + std::to_string(i), {256, 256})));
  g.output("y", h);
  PipelineOptions options;
  const Plan shared = sound_plan(g, options);
  options.aliasing = false;
  const Plan apart = sound_plan(g, options);
  EXPECT_LT(2 * shared.memory.arena_bytes, apart.memory.arena_bytes);
}

TEST(PipelinePlan, SmallLimits) {
  Graph g;
  build_classifier(g);
  Caps caps;
  caps.max_buffer_size = 65536;
  caps.max_storage_range = 8192;
  caps.storage_alignment = 64;
  caps.max_storage_buffers = 6;
  PipelineOptions options;
  options.tiny_tiles = true;
  sound_plan(g, options, caps);
}

}  // namespace
}  // namespace aeshna
