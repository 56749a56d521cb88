// Convolution, embedding, attention and the blocks: names, shapes, values by hand, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

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

const auto here = HasSubstr("block_layers_test.cpp:");

/// Values for every parameter and state: `special`, else small numbers that differ.
TensorMap leaves_of(const Graph& g, TensorMap special) {
  for (const Node& node : g.nodes()) {
    if (node.name.empty() || special.contains(node.name) || (node.op->name != "parameter" && node.op->name != "state")) continue;
    HostTensor t(node.results[0]);
    for (std::size_t i = 0; i < t.data.size(); ++i) t.data[i] = 0.1 * std::sin(static_cast<double>(i + 3 * node.name.size()));
    special.emplace(node.name, std::move(t));
  }
  return special;
}

HostTensor filled(Shape shape, double value) {
  HostTensor t(TensorType{DType::f32, shape});
  std::ranges::fill(t.data, value);
  return t;
}

HostTensor identity(std::int64_t n) {
  HostTensor t = filled({n, n}, 0);
  for (std::int64_t i = 0; i < n; ++i) t.data[static_cast<std::size_t>(i * n + i)] = 1;
  return t;
}

TEST(Embedding, TakesRows) {
  Graph g;
  const Value y = nn::embedding(g.input("ids", {2}, DType::i32), 3, 2, "tok");
  EXPECT_EQ(shape_of(g, "tok.weight"), (Shape{3, 2}));
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_THAT(value_of(y, {{"ids", tensor({2}, {2, 0}, DType::i32)}, {"tok.weight", tensor({3, 2}, {1, 2, 3, 4, 5, 6})}}).data,
              ElementsAre(5, 6, 1, 2));
}

TEST(Conv, HasTheFieldsLayout) {
  Graph g;
  const Value x = g.input("x", {2, 4, 8, 9});
  const Value y = nn::conv(x, 6, {3, 2}, "c", {.stride = {2}, .padding = {1, 0}, .groups = 2});
  EXPECT_EQ(shape_of(g, "c.weight"), (Shape{6, 2, 3, 2}));
  EXPECT_EQ(shape_of(g, "c.bias"), (Shape{6}));
  EXPECT_EQ(y.shape(), (Shape{2, 6, 4, 4}));
  EXPECT_EQ(nn::conv(g.input("s", {2, 3, 10}), 5, {3}, "d", {.bias = false}).shape(), (Shape{2, 5, 8}));
  EXPECT_FALSE(g.leaf("d.bias"));
}

TEST(Conv, AddsItsBias) {
  Graph g;
  const Value y = nn::conv(g.input("x", {1, 1, 3}), 1, {2}, "c");
  EXPECT_THAT(value_of(y, {{"x", tensor({1, 1, 3}, {1, 2, 4})}, {"c.weight", tensor({1, 1, 2}, {10, 1})}, {"c.bias", tensor({1}, {100})}})
                  .data,
              ElementsAre(112, 124));
}

TEST(ResBlock, IsTheSkipWhereItsSecondConvolutionIsZero) {
  Graph g;
  const Value x = g.input("x", {1, 2, 3, 3});
  const Value y = nn::res_block(x, 2, "block");
  EXPECT_FALSE(g.leaf("block.downsample.0.weight"));
  HostTensor data = filled({1, 2, 3, 3}, 0);
  for (std::size_t i = 0; i < 18; ++i) data.data[i] = static_cast<double>(i) - 9;
  const TensorMap leaves = leaves_of(g, {{"x", data},
                                         {"block.conv2.weight", filled({2, 2, 3, 3}, 0)},
                                         {"block.bn1.running_var", filled({2}, 1)},
                                         {"block.bn2.running_mean", filled({2}, 0)},
                                         {"block.bn2.running_var", filled({2}, 1)},
                                         {"block.bn2.bias", filled({2}, 0)}});
  const auto got = value_of(y, leaves).data;
  for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(got[i], std::max(data.data[i], 0.0)) << i;
}

TEST(ResBlock, ProjectsWhereShapesDiffer) {
  Graph g;
  const Value x = g.input("x", {2, 4, 8, 8});
  EXPECT_EQ(nn::res_block(x, 8, "a", {.stride = 2, .training = true}).shape(), (Shape{2, 8, 4, 4}));
  EXPECT_EQ(shape_of(g, "a.downsample.0.weight"), (Shape{8, 4, 1, 1}));
  EXPECT_EQ(shape_of(g, "a.downsample.1.running_mean"), (Shape{8}));
  EXPECT_EQ(g.assigns().size(), 6u);
  EXPECT_EQ(nn::res_block(x, 4, "b", {.groups = 2}).shape(), x.shape());
  EXPECT_TRUE(g.leaf("b.norm1.weight"));
}

TEST(MultiHeadAttention, WithOneHeadAndIdentitiesIsAttentionOfX) {
  Graph g;
  const Value x = g.input("x", {1, 3, 4});
  const Value y = nn::multi_head_attention(x, "a", {.heads = 1, .bias = false, .causal = true});
  const Value same = reshape(x, {1, 1, 3, 4});
  const Value want = attention(same, same, same, {.causal = true});
  const TensorMap leaves = {{"x", tensor({1, 3, 4}, {1, 0, -1, 2, 0.5, 1, 1, 0, -2, 1, 0, 1})}, {"a.q_proj.weight", identity(4)},
                            {"a.k_proj.weight", identity(4)},                                   {"a.v_proj.weight", identity(4)},
                            {"a.o_proj.weight", identity(4)}};
  const auto a = value_of(y, leaves).data, b = value_of(want, leaves).data;
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  EXPECT_NEAR(a[0], 1, 1e-12) << "the first query sees itself alone";
}

TEST(MultiHeadAttention, SharesKeyValueHeadsAndTakesAContext) {
  Graph g;
  const Value x = g.input("x", {2, 5, 12}), context = g.input("context", {2, 7, 6});
  const Value y = nn::multi_head_attention(x, "a", {.heads = 4, .kv_heads = 2, .head_dim = 8, .context = context});
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(shape_of(g, "a.q_proj.weight"), (Shape{32, 12}));
  EXPECT_EQ(shape_of(g, "a.k_proj.weight"), (Shape{16, 6}));
  EXPECT_EQ(shape_of(g, "a.v_proj.bias"), (Shape{16}));
  EXPECT_EQ(shape_of(g, "a.o_proj.weight"), (Shape{12, 32}));
  nn::multi_head_attention(x, "r", {.heads = 3, .causal = true, .rope = RopeOptions{}});
  int ropes = 0;
  for (const Node& node : g.nodes()) ropes += node.op->name == "rope";
  EXPECT_EQ(ropes, 2);
}

TEST(TransformerBlock, IsCausalAndPreNorm) {
  Graph g;
  const Value x = g.input("x", {1, 4, 6});
  const Value y = nn::transformer_block(x, "b", {.attention = {.heads = 2, .causal = true}});
  EXPECT_EQ(shape_of(g, "b.mlp.0.weight"), (Shape{24, 6}));
  EXPECT_TRUE(g.leaf("b.norm1.bias") && g.leaf("b.attn.q_proj.bias"));
  HostTensor data = filled({1, 4, 6}, 0);
  for (std::size_t i = 0; i < 24; ++i) data.data[i] = std::cos(static_cast<double>(2 * i));
  const TensorMap leaves = leaves_of(g, {{"x", data}});
  const auto before = value_of(y, leaves).data;
  TensorMap moved = leaves;
  for (std::size_t i = 12; i < 24; ++i) moved.at("x").data[i] += 1;  // positions 2 and 3
  const auto after = value_of(y, moved).data;
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(before[i], after[i]) << i;
  EXPECT_NE(before[12], after[12]);
}

TEST(TransformerBlock, LlamaStyleAndFrozenBesideItsAdapters) {
  Graph g;
  const Value x = g.input("x", {1, 4, 8});
  nn::transformer_block(x, "b", {.attention = {.heads = 2, .kv_heads = 1, .bias = false, .causal = true, .rope = RopeOptions{}},
                                 .rms = true,
                                 .gated = true,
                                 .hidden = 20,
                                 .lora = nn::Lora{.rank = 2}});
  EXPECT_EQ(shape_of(g, "b.mlp.gate_proj.weight"), (Shape{20, 8}));
  EXPECT_FALSE(g.leaf("b.norm1.bias"));
  for (const Node& node : g.nodes()) {
    if (node.op->name != "parameter") continue;
    EXPECT_EQ(node.attrs.get<bool>("trainable"), node.name.find("lora_") != std::string::npos) << node.name;
  }
  EXPECT_TRUE(g.leaf("b.attn.v_proj.lora_B.weight"));
}

TEST(TransformerBlockSession, LearnsToCopyThePreviousToken) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kBatch = 4, kLength = 8, kTokens = 5;
  Graph g;
  const Value ids = g.input("ids", {kBatch, kLength}, DType::i32);
  const Value positions = g.parameter("positions", {kLength, 16}, {.init = Init::normal(0, 0.3)});
  Value x = nn::embedding(ids, kTokens, 16, "tok", {.init = Init::normal(0, 0.3)}) + positions;
  x = nn::transformer_block(x, "b", {.attention = {.heads = 2, .causal = true}});
  g.output("loss", cross_entropy(nn::linear(nn::layer_norm(x, "norm"), kTokens, "head"), g.input("previous", {kBatch, kLength}, DType::i32)));
  Session session = compile(g, Weights(g, {.seed = 2, .device = test_device().device}),
                            {.mode = Mode::Training, .optimizer = Adam{.lr = 1e-2f}});
  std::uint32_t state = 1;
  float first = 0, last = 0;
  for (int step = 0; step < 120; ++step) {
    std::vector<std::int32_t> tokens, previous;
    for (std::int64_t i = 0; i < kBatch * kLength; ++i) {
      state = state * 1664525u + 1013904223u;
      previous.push_back(i % kLength == 0 ? -100 : tokens.back());
      tokens.push_back(static_cast<std::int32_t>((state >> 16) % kTokens));
    }
    session.set("ids", std::span<const std::int32_t>(tokens));
    session.set("previous", std::span<const std::int32_t>(previous));
    session.step();
    last = session.read_scalar("loss");
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 1.3f);
  EXPECT_LT(last, 0.5f * first);
}

TEST(Blocks, Errors) {
  Graph g;
  const Value x = g.input("x", {2, 5, 12}), image = g.input("image", {1, 4, 8, 8});
  EXPECT_THAT(message([&] { nn::multi_head_attention(x, "a", {.heads = 5}); }),
              AllOf(StartsWith("[nn::multi_head_attention] 'a' cannot split a width of 12 into 5 heads"), here));
  EXPECT_THAT(message([&] { nn::multi_head_attention(x, "a", {.heads = 4, .kv_heads = 3}); }),
              AllOf(StartsWith("[nn::multi_head_attention] 'a' cannot share 3 key-value heads among 4 heads"), here));
  EXPECT_THAT(message([&] { nn::multi_head_attention(image, "a"); }),
              AllOf(StartsWith("[nn::multi_head_attention] 'a' needs an input [batch, sequence, width]"), here));
  EXPECT_THAT(message([&] { nn::multi_head_attention(x, "a", {.heads = 2, .context = g.input("c", {3, 5, 12})}); }),
              AllOf(StartsWith("[nn::multi_head_attention] 'a' needs a context [2, sequence, width]"), here));
  EXPECT_THAT(message([&] { nn::transformer_block(image, "b"); }), AllOf(StartsWith("[nn::transformer_block] 'b'"), here));
  EXPECT_THAT(message([&] { nn::conv(image, 6, {3}, "c", {.groups = 3}); }),
              AllOf(StartsWith("[nn::conv] 'c' cannot split 4 input and 6 output channels into 3 groups"), here));
  EXPECT_THAT(message([&] { nn::conv(image, 4, {9}, "big"); }), AllOf(StartsWith("[conv]"), here));
  EXPECT_THAT(message([&] { nn::conv(g.input("v", {3, 4}), 4, {1}, "c"); }), AllOf(StartsWith("[nn::conv] 'c' needs an input"), here));
  EXPECT_THAT(message([&] { nn::res_block(x, 4, "r"); }), AllOf(StartsWith("[nn::res_block] 'r' needs an input [N, C, H, W]"), here));
  EXPECT_THAT(message([&] { nn::embedding(g.input("i", {2}, DType::i32), 0, 4, "e"); }),
              AllOf(StartsWith("[nn::embedding] 'e' needs at least one row"), here));
}

}  // namespace
}  // namespace aeshna::test
