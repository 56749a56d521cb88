// The benchmark's models as their publishers describe them: names, shapes, counts, what each must be blind to; refusals.
#include "aeshna/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/format.h"
#include "nn/workload_support.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::Workload;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Shapes = std::map<std::string, Shape>;

const auto here = HasSubstr("models_test.cpp:");

/// Of the published configurations; GFLOP of the full and the minimal phase.
struct Published {
  const char* name;
  std::int64_t batch, parameters, trainable, tensors;
  double gflop[2];
};
constexpr Published kPublished[] = {
    {"smollm2", 1, 134'515'008, 134'515'008, 272, {35.56, 0.269}},
    {"smolvla", 1, 99'848'592, 99'848'592, 152, {9.82, 0.249}},
    {"unet", 1, 10'928'768, 10'928'768, 181, {2.51, 2.51}},
    {"resnet50", 4, 25'530'472, 25'530'472, 108, {32.7, 8.18}},
    {"whisper", 1, 8'208'384, 7'632'384, 67, {36.94, 36.94}},
};

TEST(Models, HaveThePublishedSizes) {
  ASSERT_EQ(models::workloads().size(), std::size(kPublished));
  for (const Published& want : kPublished) {
    SCOPED_TRACE(want.name);
    const Workload &w = models::find_workload(want.name), &small = models::find_workload(want.name, true);
    EXPECT_EQ(w.batch, want.batch);
    EXPECT_EQ(w.parameters, want.parameters);
    EXPECT_EQ(w.trainable, want.trainable);
    EXPECT_EQ(w.parameter_tensors, want.tensors);
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(w.forward_flop[i] * 1e-9 / want.gflop[i], 1, 2e-3);
    EXPECT_TRUE(small.small);
    EXPECT_GT(small.forward_flop[0], 5e5);
    EXPECT_LE(small.forward_flop[0], 20e6);
  }
}

TEST(Models, HaveThePublishedInputsAndOutputs) {
  const std::map<std::string, std::pair<Shapes, Shape>> want = {
      {"smollm2", {{{"ids", {1, 128}}, {"labels", {1, 128}}}, {1, 128, 49152}}},
      {"smolvla",
       {{{"noisy_actions", {1, 50, 32}}, {"timestep", {1, 1, 1440}}, {"vlm_kv", {1, 16, 320}}}, {1, 50, 32}}},
      {"unet",
       {{{"latent", {1, 4, 32, 32}},
         {"timestep_embedding", {1, 64}},
         {"text_context", {1, 77, 768}},
         {"noise_target", {1, 4, 32, 32}}},
        {1, 4, 32, 32}}},
      {"resnet50", {{{"images", {4, 3, 224, 224}}, {"labels", {4}}}, {4, 1000}}},
      {"whisper", {{{"mel", {1, 80, 3000}}}, {1, 1500, 384}}},
  };
  const std::map<std::string, Shape> minimal = {{"smollm2", {1, 1, 49152}},
                                                {"smolvla", {1, 1, 32}},
                                                {"unet", {1, 4, 32, 32}},
                                                {"resnet50", {1, 1000}},
                                                {"whisper", {1, 1500, 384}}};
  for (const Workload& w : models::workloads()) {
    SCOPED_TRACE(w.name);
    const auto train = workload_graph(w, Phase::Train, w.batch), full = workload_graph(w, Phase::Full, w.batch),
               least = workload_graph(w, Phase::Minimal, w.batch);
    Shapes inputs;
    for (const Node& node : train->nodes()) {
      if (!is_input(node)) continue;
      inputs.emplace(node.name, node.results[0].shape);
      EXPECT_EQ(node.results[0].dtype, node.name == "ids" || node.name == "labels" ? DType::i32 : DType::f32)
          << node.name;
    }
    EXPECT_EQ(inputs, want.at(w.name).first);
    ASSERT_EQ(train->outputs().size(), 2u);
    EXPECT_EQ(train->outputs()[0].name, "output");
    EXPECT_EQ(train->outputs()[1].name, "loss");
    EXPECT_EQ(train->type(train->outputs()[1].value).shape.rank(), 0);
    const std::pair<const Graph*, Shape> outputs[] = {
        {train.get(), want.at(w.name).second}, {full.get(), want.at(w.name).second}, {least.get(), minimal.at(w.name)}};
    for (const auto& [graph, shape] : outputs) EXPECT_EQ(graph->type(graph->outputs()[0].value).shape, shape);
    EXPECT_EQ(full->outputs().size(), 1u);
    EXPECT_FALSE(full->leaf("labels") || full->leaf("noise_target"));
  }
}

// ---- names, as the checkpoints have them

void add_llama_layer(Shapes& s, const std::string& name, std::int64_t width, std::int64_t q, std::int64_t context,
                     std::int64_t kv, std::int64_t ffn) {
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) s[name + norm + ".weight"] = {width};
  s[name + "self_attn.q_proj.weight"] = {q, width};
  for (const char* part : {"k_proj", "v_proj"}) s[name + "self_attn." + part + ".weight"] = {kv, context};
  s[name + "self_attn.o_proj.weight"] = {width, q};
  for (const char* part : {"gate_proj", "up_proj"}) s[name + "mlp." + part + ".weight"] = {ffn, width};
  s[name + "mlp.down_proj.weight"] = {width, ffn};
}

void add_affine(Shapes& s, const std::string& name, Shape weight) {
  s[name + ".bias"] = {weight[0]};
  s[name + ".weight"] = std::move(weight);
}

Shapes smollm2_shapes() {
  Shapes s = {{"model.embed_tokens.weight", {49152, 576}}, {"model.norm.weight", {576}}};
  for (int i = 0; i < 30; ++i) add_llama_layer(s, formatted("model.layers.{}.", i), 576, 576, 576, 192, 1536);
  return s;
}

Shapes smolvla_shapes() {
  Shapes s;
  add_affine(s, "model.action_in_proj", {720, 32});
  add_affine(s, "model.action_time_mlp_in", {720, 1440});
  add_affine(s, "model.action_time_mlp_out", {720, 720});
  add_affine(s, "model.action_out_proj", {32, 720});
  for (int i = 0; i < 16; ++i) {
    add_llama_layer(s, formatted("model.vlm_with_expert.lm_expert.layers.{}.", i), 720, 960, i % 2 == 0 ? 720 : 320,
                    320, 2048);
  }
  return s;
}

Shapes unet_shapes() {
  Shapes s = {{"conv_in.weight", {64, 4, 3, 3}}, {"conv_out.weight", {4, 64, 3, 3}}};
  add_affine(s, "conv_out.norm", {64});
  add_affine(s, "time_mlp.fc1", {256, 64});
  add_affine(s, "time_mlp.fc2", {256, 256});
  const auto resblock = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    add_affine(s, name + ".norm1", {in});
    add_affine(s, name + ".norm2", {out});
    add_affine(s, name + ".time_proj", {out, 256});
    s[name + ".conv1.weight"] = {out, in, 3, 3};
    s[name + ".conv2.weight"] = {out, out, 3, 3};
    if (in != out) s[name + ".res_conv.weight"] = {out, in, 1, 1};
  };
  const auto attn = [&](const std::string& name, std::int64_t c) {
    add_affine(s, name + ".norm", {c});
    for (const char* part : {".proj_in.weight", ".proj_out.weight"}) s[name + part] = {c, c, 1, 1};
    for (const char* norm : {"norm1", "norm2", "norm3"}) add_affine(s, name + ".transformer." + norm, {c});
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      s[name + ".transformer.self_attn." + part + ".weight"] = {c, c};
      s[name + ".transformer.cross_attn." + part + ".weight"] = {c, *part == 'k' || *part == 'v' ? 768 : c};
    }
    add_affine(s, name + ".transformer.ff.fc1", {4 * c, c});
    add_affine(s, name + ".transformer.ff.fc2", {c, 4 * c});
  };
  resblock("encoder.0.resblock", 64, 64);
  resblock("encoder.1.resblock", 64, 128);
  resblock("encoder.2.resblock", 128, 256);
  resblock("middle.resblock", 256, 256);
  resblock("decoder.2.resblock", 512, 256);
  resblock("decoder.1.resblock", 384, 128);
  resblock("decoder.0.resblock", 192, 64);
  attn("encoder.1.attn", 128);
  attn("encoder.2.attn", 256);
  attn("middle.attn", 256);
  attn("decoder.2.attn", 256);
  attn("decoder.1.attn", 128);
  s["encoder.0.downsample.weight"] = {64, 64, 3, 3};
  s["encoder.1.downsample.weight"] = {128, 128, 3, 3};
  return s;
}

Shapes resnet50_shapes() {
  Shapes s = {
      {"conv1.weight", {64, 3, 7, 7}}, {"bn1.fused_bias", {64}}, {"fc.weight", {1000, 2048}}, {"fc.bias", {1000}}};
  const int blocks[] = {3, 4, 6, 3};
  std::int64_t in = 64;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::int64_t mid = 32 << stage, out = 4 * mid;
    for (int block = 0; block < blocks[stage - 1]; ++block) {
      const std::string name = formatted("layer{}.{}.", stage, block);
      s[name + "conv1.weight"] = {mid, in, 1, 1};
      s[name + "conv2.weight"] = {mid, mid, 3, 3};
      s[name + "conv3.weight"] = {out, mid, 1, 1};
      s[name + "bn1.fused_bias"] = s[name + "bn2.fused_bias"] = {mid};
      s[name + "bn3.fused_bias"] = {out};
      if (block == 0) {
        s[name + "downsample.0.weight"] = {out, in, 1, 1};
        s[name + "downsample.1.fused_bias"] = {out};
      }
      in = out;
    }
  }
  return s;
}

Shapes whisper_shapes() {
  const std::string encoder = "model.encoder.";
  Shapes s = {{encoder + "conv1.weight", {384, 80, 3}},
              {encoder + "conv2.weight", {384, 384, 3}},
              {encoder + "conv1.fused_bias", {384}},
              {encoder + "conv2.fused_bias", {384}},
              {encoder + "embed_positions.weight", {1500, 384}}};
  add_affine(s, encoder + "layer_norm", {384});
  for (int i = 0; i < 4; ++i) {
    const std::string name = formatted("{}layers.{}.", encoder, i);
    for (const char* part : {"q_proj", "v_proj", "out_proj"}) add_affine(s, name + "self_attn." + part, {384, 384});
    s[name + "self_attn.k_proj.weight"] = {384, 384};
    for (const char* norm : {"self_attn_layer_norm", "final_layer_norm"}) add_affine(s, name + norm, {384});
    add_affine(s, name + "fc1", {1536, 384});
    add_affine(s, name + "fc2", {384, 1536});
  }
  return s;
}

TEST(Models, NameTheirParametersAsPublished) {
  const std::map<std::string, Shapes> want = {{"smollm2", smollm2_shapes()},
                                              {"smolvla", smolvla_shapes()},
                                              {"unet", unet_shapes()},
                                              {"resnet50", resnet50_shapes()},
                                              {"whisper", whisper_shapes()}};
  for (const Workload& w : models::workloads()) {
    SCOPED_TRACE(w.name);
    const auto graph = workload_graph(w, Phase::Train, w.batch);
    Shapes found;
    for (const Node& node : graph->nodes()) {
      if (!is_parameter(node)) continue;
      found.emplace(node.name, node.results[0].shape);
      EXPECT_EQ(node.attrs.get<bool>("trainable"), node.name != "model.encoder.embed_positions.weight") << node.name;
    }
    EXPECT_EQ(found, want.at(w.name));
  }
}

// ---- what a model is blind to, in the interpreter

/// The output of a workload's full phase.
std::vector<double> output_of(const Workload& w, const TensorMap& leaves, std::int64_t batch = 1) {
  return interpret(*workload_graph(w, Phase::Full, batch), leaves).outputs.at("output").data;
}

TEST(Models, TreatEachSampleAlone) {
  for (const Workload& w : models::workloads(true)) {
    SCOPED_TRACE(w.name);
    constexpr std::int64_t kBatch = 3;
    TensorMap all = random_samples(w, kBatch);
    const std::vector<double> together = output_of(w, all, kBatch);
    const auto size = static_cast<std::ptrdiff_t>(together.size() / kBatch);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const std::vector<double> alone = output_of(w, sample(w, all, b));
      const auto first = together.begin() + b * size;
      EXPECT_LT(relative_l2(std::vector<double>(first, first + size), alone), 1e-12) << b;
    }
  }
}

/// Rows [first, end) of the second axis.
void change_rows(HostTensor& x, std::int64_t first, std::int64_t end) {
  const std::int64_t rows = x.type.shape[1], width = x.type.shape.elements() / x.type.shape[0] / rows;
  for (std::int64_t i = 0; i < x.type.shape.elements(); ++i) {
    double& value = x.data[static_cast<std::size_t>(i)];
    const std::int64_t row = i / width % rows;
    if (row >= first && row < end) value = x.type.dtype == DType::i32 ? 60 - value : 0.5 - value;
  }
}

/// Equal before this element, different from it on.
void expect_change_from(const std::vector<double>& before, const std::vector<double>& after, std::size_t first) {
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < first; ++i) ASSERT_EQ(before[i], after[i]) << i;
  EXPECT_NE(before[first], after[first]);
}

TEST(Models, SmolLm2IsCausal) {
  const Workload& w = models::find_workload("smollm2", true);
  TensorMap leaves = random_samples(w, 1);
  const std::vector<double> before = output_of(w, leaves);
  for (const std::int64_t position : {15, 9, 1}) {
    TensorMap changed = leaves;
    change_rows(changed.at("ids"), position, position + 1);
    expect_change_from(before, output_of(w, changed), static_cast<std::size_t>(position * 67));
  }
}

TEST(Models, SmolVlaIsCausalAmongActionsAndSeesAllOfAContextWithoutOrder) {
  const Workload& w = models::find_workload("smolvla", true);
  const TensorMap leaves = random_samples(w, 1);
  const std::vector<double> before = output_of(w, leaves);
  TensorMap changed = leaves;
  change_rows(changed.at("noisy_actions"), 4, 5);
  expect_change_from(before, output_of(w, changed), 4 * 6);
  changed = leaves;
  change_rows(changed.at("vlm_kv"), 4, 5);  // the last token of the context, and the first action sees it
  expect_change_from(before, output_of(w, changed), 0);
  changed = leaves;
  rotate_rows(changed.at("vlm_kv"));
  EXPECT_LT(relative_l2(output_of(w, changed), before), 1e-12);
  changed = leaves;
  change_rows(changed.at("timestep"), 0, 1);
  expect_change_from(before, output_of(w, changed), 0);
}

TEST(Models, UNetSeesTheTextWithoutOrderAndTheImageInPlace) {
  const Workload& w = models::find_workload("unet", true);
  const TensorMap leaves = random_samples(w, 1);
  const std::vector<double> before = output_of(w, leaves);
  TensorMap changed = leaves;
  rotate_rows(changed.at("text_context"));
  EXPECT_LT(relative_l2(output_of(w, changed), before), 1e-12);
  change_rows(changed.at("text_context"), 8, 9);
  expect_change_from(before, output_of(w, changed), 0);
  changed = leaves;
  change_rows(changed.at("timestep_embedding"), 3, 4);
  expect_change_from(before, output_of(w, changed), 0);
}

TEST(Models, WhisperAddsItsPositionsAndSeesTheWholeSound) {
  const Workload& w = models::find_workload("whisper", true);
  TensorMap leaves = random_samples(w, 1);
  const std::vector<double> before = output_of(w, leaves);
  TensorMap changed = leaves;
  changed.at("mel").data[59] += 1;  // the end of the first channel
  expect_change_from(before, output_of(w, changed), 0);
  // Positions of an empty sound: all tokens are equal, and so is what each gives, but for the border of the convolutions.
  std::ranges::fill(leaves.at("mel").data, 0.0);
  std::ranges::fill(leaves.at("model.encoder.embed_positions.weight").data, 0.25);
  const std::vector<double> silent = output_of(w, leaves);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_NEAR(silent[10 * 48 + i], silent[17 * 48 + i], 1e-12) << i;
  leaves.at("model.encoder.embed_positions.weight").data[10 * 48] = 1;
  EXPECT_NE(output_of(w, leaves)[10 * 48], silent[10 * 48]);
}

// ---- refusals

TEST(Models, Errors) {
  Graph g;
  const Value ids = g.input("ids", {2, 5}, DType::i32), x = g.input("x", {2, 5, 32}),
              image = g.input("image", {2, 3, 8, 8});
  const auto says = [&](std::string_view text) { return AllOf(StartsWith(std::string(text)), here); };
  EXPECT_THAT(message([&] { models::smollm2({}); }), says("[models::smollm2] needs ids: the Value is empty"));
  EXPECT_THAT(message([&] { models::smollm2(x); }),
              says("[models::smollm2] needs ids i32[batch, sequence], not f32[2, 5, 32]"));
  EXPECT_THAT(message([&] { models::smollm2(g.input("i", {2}, DType::i32)); }),
              says("[models::smollm2] needs ids i32[batch, sequence], not i32[2]"));
  EXPECT_THAT(message([&] {
                models::smollm2(g.input("none", {2, 0}, DType::i32));
              }),
              says("[models::smollm2] needs ids i32"));
  EXPECT_THAT(message([&] { models::smollm2(ids, {.heads = 8}); }),
              says("[models::smollm2] cannot share 3 key-value heads among 8 heads"));
  EXPECT_THAT(message([&] { models::smollm2(ids, {.head_dim = 63}); }),
              says("[models::smollm2] rotates pairs: head_dim 63 is odd"));
  EXPECT_THAT(message([&] { models::smollm2(ids, {.kv_heads = 0}); }),
              says("[models::smollm2] needs a number of key-value heads from 1 to 1048576, not 0"));
  EXPECT_THAT(message([&] { models::smollm2(ids, {.vocab = std::int64_t{1} << 40}); }),
              says("[models::smollm2] needs a vocab from 1 to 1048576, not 1099511627776"));
  EXPECT_THAT(message([&] { models::smollm2(ids, {.eps = std::numeric_limits<double>::quiet_NaN()}); }),
              says("[models::smollm2] needs a finite eps above 0, not nan"));
  const Value position = g.input("position", {2}, DType::i32);
  EXPECT_THAT(message([&] { models::smollm2_decode(ids, g.input("p", {1}, DType::i32), 16); }),
              says("[models::smollm2_decode] needs position i32[2], one for each sequence, not i32[1]"));
  EXPECT_THAT(message([&] { models::smollm2_decode(ids, position, 4); }),
              says("[models::smollm2_decode] cannot append 5 positions to caches of 4"));

  const Value time = g.input("time", {2, 1, 1440}), context = g.input("context", {2, 16, 320});
  EXPECT_THAT(message([&] { models::smolvla_expert(image, time, context); }),
              says("[models::smolvla_expert] needs noisy_actions f32[batch, actions, 32], not f32[2, 3, 8, 8]"));
  EXPECT_THAT(message([&] { models::smolvla_expert(x, context, context); }),
              says("[models::smolvla_expert] needs timestep f32[2, 1, 1440], not f32[2, 16, 320]"));
  EXPECT_THAT(message([&] { models::smolvla_expert(x, time, x); }),
              says("[models::smolvla_expert] needs vlm_kv f32[2, tokens, 320], not f32[2, 5, 32]"));
  EXPECT_THAT(message([&] { models::smolvla_expert(x, time, context, {.kv_heads = 4}); }),
              says("[models::smolvla_expert] cannot share 4 key-value heads among 15 heads"));

  const Value latent = g.input("latent", {2, 4, 8, 12}), step = g.input("step", {2, 64}),
              text = g.input("text", {2, 7, 768});
  EXPECT_THAT(message([&] { models::unet(image, step, text); }),
              says("[models::unet] needs latent f32[batch, 4, H, W], not f32[2, 3, 8, 8]"));
  EXPECT_THAT(message([&] {
                models::unet(g.input("odd", {2, 4, 8, 6}), step, text);
              }),
              says("[models::unet] needs a latent with H and W multiples of 4, not f32[2, 4, 8, 6]"));
  EXPECT_THAT(message([&] { models::unet(latent, text, text); }),
              says("[models::unet] needs timestep_embedding f32[2, 64], not f32[2, 7, 768]"));
  EXPECT_THAT(message([&] { models::unet(latent, step, context); }),
              says("[models::unet] needs text_context f32[2, tokens, 768], not f32[2, 16, 320]"));
  EXPECT_THAT(message([&] { models::unet(latent, step, text, {.groups = 24}); }),
              says("[models::unet] cannot split the 64 channels of level 0 into 24 groups"));
  EXPECT_THAT(message([&] { models::unet(latent, step, text, {.head_dim = 96}); }),
              says("[models::unet] cannot split the 128 channels of level 1 into heads of 96"));
  EXPECT_THAT(message([&] { models::unet(latent, step, text, {.multipliers = {1}}); }),
              says("[models::unet] needs 2 to 8 levels, not 1"));
  EXPECT_THAT(message([&] {
                models::unet(latent, step, text, {.multipliers = {1, -2}});
              }),
              says("[models::unet] needs a multiplier from 1 to 1048576, not -2"));

  EXPECT_THAT(message([&] { models::resnet50(latent); }),
              says("[models::resnet50] needs images f32[batch, 3, H, W], not f32[2, 4, 8, 12]"));
  EXPECT_THAT(message([&] { models::resnet50(image, {.blocks = {}}); }),
              says("[models::resnet50] needs 1 to 8 stages, not 0"));
  EXPECT_THAT(message([&] {
                models::resnet50(image, {.blocks = {3, 0}});
              }),
              says("[models::resnet50] needs a number of blocks from 1 to 1048576, not 0"));
  EXPECT_THAT(message([&] { models::resnet50(image, {.classes = 0}); }),
              says("[models::resnet50] needs a number of classes from 1 to 1048576, not 0"));

  EXPECT_THAT(message([&] { models::whisper_encoder(x); }),
              says("[models::whisper_encoder] needs mel f32[batch, 80, 3000], not f32[2, 5, 32]"));
  EXPECT_THAT(message([&] { models::whisper_encoder(x, {.heads = 7}); }),
              says("[models::whisper_encoder] cannot split a width of 384 into 7 heads"));
}

TEST(Models, InputsOfAnotherTypeAreDTypeMismatches) {
  Graph g;
  EXPECT_ERROR(models::smollm2(g.input("ids", {2, 5})), ErrorCode::DTypeMismatch,
               "needs ids i32[batch, sequence], not f32[2, 5]");
  EXPECT_ERROR(models::smollm2(g.input("row", {5}, DType::i32)), ErrorCode::ShapeMismatch, "not i32[5]");
  EXPECT_ERROR(models::smollm2({}), ErrorCode::InvalidArgument, "needs ids");
}

}  // namespace
}  // namespace aeshna::test
