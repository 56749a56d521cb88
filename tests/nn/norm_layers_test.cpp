// Layers around the normalization ops, dropout and the low-rank adapter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "aeshna/nn.h"
#include "aeshna/session.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const auto here = HasSubstr("norm_layers_test.cpp:");

TEST(NormLayers, NameTheirParametersAndStates) {
  Graph g;
  const Value x = g.input("x", {4, 6, 5});
  EXPECT_EQ(nn::layer_norm(x, "ln", {.axes = 2}).shape(), x.shape());
  EXPECT_EQ(shape_of(g, "ln.weight"), (Shape{6, 5}));
  EXPECT_EQ(shape_of(g, "ln.bias"), (Shape{6, 5}));
  nn::layer_norm(x, "plain", {.affine = false});
  EXPECT_FALSE(g.leaf("plain.weight") || g.leaf("plain.bias"));
  nn::layer_norm(x, "half", {.bias = false});
  EXPECT_TRUE(g.leaf("half.weight") && !g.leaf("half.bias"));
  nn::rms_norm(x, "rms");
  EXPECT_EQ(shape_of(g, "rms.weight"), (Shape{5}));
  nn::group_norm(x, 3, "gn");
  EXPECT_EQ(shape_of(g, "gn.bias"), (Shape{6}));
  nn::batch_norm(x, "bn", {.training = true});
  EXPECT_EQ(g.assigns().size(), 2u);
  for (const char* leaf : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"})
    EXPECT_EQ(shape_of(g, leaf), (Shape{6})) << leaf;
  nn::batch_norm(x, "frozen", {.trainable = false});
  EXPECT_EQ(g.assigns().size(), 2u) << "inference updates nothing";
  EXPECT_FALSE(g.node(*g.leaf("frozen.weight")).attrs.get<bool>("trainable"));
}

TEST(NormLayers, FreshOnesAreTheBareOps) {
  Graph g;
  const Value x = g.input("x", {3, 4});
  const TensorMap leaves = {{"x", tensor({3, 4}, {1, 2, 3, 4, 0, 0, 1, 0, -5, 2, 2, 7})},
                            {"ln.weight", tensor({4}, {1, 1, 1, 1})},
                            {"ln.bias", tensor({4}, {0, 0, 0, 0})}};
  EXPECT_EQ(value_of(nn::layer_norm(x, "ln"), leaves).data, value_of(layer_norm(x), leaves).data);
}

TEST(Lora, IsTheLinearAtFirstAndAddsAlphaOverRankTimesBA) {
  Graph g;
  const Value x = g.input("x", {1, 2});
  const Value y = nn::linear(x, 2, "fc", {.lora = nn::Lora{.rank = 1, .alpha = 3}});
  TensorMap leaves = {{"x", tensor({1, 2}, {1, 10})},
                      {"fc.weight", tensor({2, 2}, {1, 2, 3, 4})},
                      {"fc.bias", tensor({2}, {0, 100})},
                      {"fc.lora_A.weight", tensor({1, 2}, {5, 7})},
                      {"fc.lora_B.weight", tensor({2, 1}, {0, 0})}};
  EXPECT_THAT(value_of(y, leaves).data, ElementsAre(21, 143));
  leaves["fc.lora_B.weight"] = tensor({2, 1}, {1, -1});
  EXPECT_THAT(value_of(y, leaves).data, ElementsAre(21 + 3 * 75, 143 - 3 * 75));
  const auto trainable = [&](const char* leaf) { return g.node(*g.leaf(leaf)).attrs.get<bool>("trainable"); };
  EXPECT_FALSE(trainable("fc.weight") || trainable("fc.bias"));
  EXPECT_TRUE(trainable("fc.lora_A.weight") && trainable("fc.lora_B.weight"));
}

TEST(LoraSession, TrainsTheAdapterAlone) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {8, 6});
  const Value y = nn::linear(x, 5, "fc", {.lora = nn::Lora{.rank = 2, .alpha = 4}});
  g.output("loss", mse(y, g.input("t", {8, 5})));
  Weights weights(g, {.seed = 3, .device = test_device().device});
  EXPECT_THAT(weights.get("fc.lora_B.weight").to_doubles(), testing::Each(0.0));
  EXPECT_THAT(weights.get("fc.lora_A.weight").to_doubles(), testing::Contains(testing::Ne(0.0)));
  const std::vector<double> before = weights.get("fc.weight").to_doubles();
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
  std::vector<float> inputs, targets;
  for (int i = 0; i < 48; ++i) inputs.push_back(static_cast<float>(i * 7 % 11) / 5 - 1);
  for (int i = 0; i < 40; ++i) targets.push_back(static_cast<float>(i * 5 % 7) / 3 - 1);
  session.set("x", std::span<const float>(inputs));
  session.set("t", std::span<const float>(targets));
  session.step();
  const float first = session.read_scalar("loss");
  for (int i = 0; i < 40; ++i) session.step();
  EXPECT_LT(session.read_scalar("loss"), 0.8f * first);
  EXPECT_EQ(weights.get("fc.weight").to_doubles(), before);
  EXPECT_THAT(weights.get("fc.lora_B.weight").to_doubles(), testing::Contains(testing::Ne(0.0)));
}

TEST(Dropout, IsNothingOutsideTraining) {
  Graph g;
  const Value x = g.input("x", {3});
  EXPECT_EQ(nn::dropout(x, 0.5, false), x);
  EXPECT_EQ(nn::dropout(x, 0, true), x);
  EXPECT_FALSE(g.leaf("aeshna.seed"));
  EXPECT_THAT(message([&] { nn::dropout(x, 1, true); }), AllOf(StartsWith("[nn::dropout]"), HasSubstr("[0, 1)"), here));
}

TEST(DropoutSession, KeepsTheMeanAndDrawsAnewEachStep) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {10000}), w = g.parameter("w", {1}, {.init = Init::constant(1)});
  const Value y = nn::dropout(x, 0.25, true);
  g.output("y", y);
  g.output("loss", mean(y * w));
  Weights weights(g, {.seed = 5, .device = test_device().device});
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0}});
  session.set("x", std::span<const float>(std::vector<float>(10000, 3.0f)));
  session.step();
  const std::vector<float> first = session.read("y");
  int dropped = 0;
  for (const float v : first) {
    EXPECT_TRUE(v == 0 || v == 4) << v;
    dropped += v == 0;
  }
  EXPECT_NEAR(dropped, 2500, 200);  // four and a half deviations
  session.step();
  EXPECT_NE(session.read("y"), first);
}

TEST(Swiglu, IsDownOfSiluGateTimesUp) {
  Graph g;
  const Value x = g.input("x", {1, 1});
  const Value y = nn::swiglu(x, 2, "ff");
  const TensorMap leaves = {{"x", tensor({1, 1}, {2})},
                            {"ff.gate_proj.weight", tensor({2, 1}, {1, -1})},
                            {"ff.up_proj.weight", tensor({2, 1}, {3, 5})},
                            {"ff.down_proj.weight", tensor({1, 2}, {1, 10})}};
  const auto silu_of = [](double v) { return v / (1 + std::exp(-v)); };
  EXPECT_NEAR(value_of(y, leaves).data[0], silu_of(2) * 6 + 10 * silu_of(-2) * 10, 1e-12);
  EXPECT_FALSE(g.leaf("ff.down_proj.bias"));
}

TEST(Mlp, TakesItsActivation) {
  for (const auto& [activation, op] : {std::pair(nn::Activation::Gelu, "gelu_erf"),
                                       {nn::Activation::Silu, "silu"},
                                       {nn::Activation::GeluTanh, "gelu_tanh"},
                                       {nn::Activation::Tanh, "tanh"}}) {
    Graph g;
    nn::mlp(g.input("x", {2, 3}), {4}, 5, "m", {.activation = activation, .bias = false});
    EXPECT_FALSE(g.leaf("m.0.bias"));
    int found = 0;
    for (const Node& node : g.nodes()) found += node.op->name == op;
    EXPECT_EQ(found, 1) << op;
  }
}

TEST(NormLayers, Errors) {
  Graph g;
  const Value x = g.input("x", {2, 6}), v = g.input("v", {6});
  EXPECT_THAT(message([&] { nn::layer_norm(x, ""); }), AllOf(StartsWith("[nn::layer_norm] needs a name"), here));
  EXPECT_THAT(message([&] { nn::layer_norm({}, "a"); }),
              AllOf(StartsWith("[nn::layer_norm] 'a' needs an input"), here));
  EXPECT_THAT(message([&] { nn::rms_norm(x, "a", {.axes = 3}); }),
              AllOf(StartsWith("[nn::rms_norm] 'a' cannot"), here));
  EXPECT_THAT(message([&] { nn::group_norm(x, 4, "a"); }),
              AllOf(StartsWith("[nn::group_norm] 'a' cannot split 6 channels into 4 groups"), here));
  EXPECT_THAT(message([&] { nn::batch_norm(v, "a"); }),
              AllOf(StartsWith("[nn::batch_norm] 'a' needs an input [N, C"), here));
  EXPECT_THAT(message([&] { nn::layer_norm(x, "a", {.eps = 0}); }), AllOf(StartsWith("[layer_norm] epsilon"), here));
  EXPECT_THAT(message([&] { nn::linear(x, 2, "l", {.lora = nn::Lora{.rank = 0}}); }),
              AllOf(StartsWith("[nn::linear] 'l' needs a LoRA rank"), here));
  EXPECT_THAT(message([&] { nn::swiglu(x, 0, "s"); }),
              AllOf(StartsWith("[nn::swiglu] 's' needs a hidden width"), here));
}

}  // namespace
}  // namespace aeshna::test
