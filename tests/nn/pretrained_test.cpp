// Vision and speech models from files: every naming against plain loops or a table written by hand; what does not fit is refused, all at once.
#include "aeshna/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "aeshna/models.h"
#include "nn/plain_math.h"
#include "nn/pretrained_folder.h"
#include "nn/workload_support.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Outputs of what was imported, for one input.
TensorMap outputs(const ImportedModel& model, const HostTensor& input) {
  TensorMap leaves = {{model.inputs.at(0), input}};
  for (const auto& [name, value] : model.weights) leaves.emplace(name, host(value));
  return interpret(*model.graph, leaves).outputs;
}

ImportedModel import(const PretrainedFolder& folder, const HostTensor& input, const std::string& name = "pixels") {
  return import_hugging_face(folder.write(), {.shapes = {{name, input.type.shape}}});
}

Row flat(const Rows& rows) {
  Row all;
  for (const Row& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// ---- vision transformers

/// Pairs (i, i + d / 2) of each head, for the patches alone.
void turn(Rows& x, std::size_t heads, std::size_t before, std::size_t rows, std::size_t columns) {
  const std::size_t d = x[0].size() / heads;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      Row& token = x[before + r * columns + c];
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t i = 0; i < d / 2; ++i) {
          const bool vertical = i < d / 4;
          const double at = vertical ? (static_cast<double>(r) + 0.5) / static_cast<double>(rows)
                                     : (static_cast<double>(c) + 0.5) / static_cast<double>(columns);
          const double period = std::pow(100.0, 4.0 * static_cast<double>(i % (d / 4)) / static_cast<double>(d));
          const double angle = 2 * std::numbers::pi * (2 * at - 1) / period;
          double &a = token[h * d + i], &b = token[h * d + i + d / 2];
          const double first = a;
          a = first * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + first * std::sin(angle);
        }
      }
    }
  }
}

/// Tokens of one image [3, height, width], with an eps of 1e-5 in the norms.
Rows plain_vit(const TensorMap& tensors, const HostTensor& pixels, const VitNames& n, const VitSize& s) {
  const PlainMath m(tensors);
  const auto patch = static_cast<std::size_t>(s.patch), heads = static_cast<std::size_t>(s.heads);
  const auto height = static_cast<std::size_t>(pixels.type.shape[2]),
             width = static_cast<std::size_t>(pixels.type.shape[3]);
  const std::size_t rows = height / patch, columns = width / patch, before = 1 + static_cast<std::size_t>(s.registers);
  Rows x = m.rows(n.cls);
  if (s.registers > 0)
    for (const Row& row : m.rows(n.registers)) x.push_back(row);
  Rows cut;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      Row& values = cut.emplace_back();
      for (std::size_t channel = 0; channel < 3; ++channel)
        for (std::size_t i = 0; i < patch; ++i)
          for (std::size_t j = 0; j < patch; ++j)
            values.push_back(pixels.data[(channel * height + r * patch + i) * width + c * patch + j]);
    }
  }
  for (const Row& row : m.linear(cut, n.patch)) x.push_back(row);
  if (!s.rope) x = sum(x, m.rows(n.positions));
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto part = [&](const char* name) { return n.layer(i, name); };
    const auto scaled = [&](Rows update, const char* name) {
      return s.scale ? zip(std::move(update), {m.values(part(name))}, std::multiplies()) : update;
    };
    const Rows h = m.layer_norm(x, part("norm1"));
    Rows q = m.linear(h, part("q")), k = m.linear(h, part("k"));
    if (s.rope) {
      turn(q, heads, before, rows, columns);
      turn(k, heads, before, rows, columns);
    }
    x = sum(x, scaled(m.linear(PlainMath::attention(q, k, m.linear(h, part("v")), heads, heads, false), part("o")),
                      "scale1"));
    const Rows wide = m.layer_norm(x, part("norm2"));
    const Rows inner =
        s.gated ? zip(each(m.linear(wide, part("gate")), plain_silu), m.linear(wide, part("up")), std::multiplies())
                : each(m.linear(wide, part("up")), plain_gelu);
    x = sum(x, scaled(m.linear(inner, part("down")), "scale2"));
  }
  return m.layer_norm(x, n.norm);
}

TEST(Pretrained, Dinov3GivesTheSameTokens) {
  for (const bool gated : {false, true}) {
    const PretrainedFolder folder = dinov3_folder(gated);
    for (const Shape& shape : {Shape{1, 3, 8, 8}, Shape{1, 3, 12, 20}}) {  // any multiple of the patch
      const HostTensor pixels = random_tensor("pixels", shape, -2, 2);
      const ImportedModel model = import(folder, pixels);
      EXPECT_THAT(model.outputs, ElementsAre("last_hidden_state", "pooler_output"));
      const Rows want = plain_vit(folder.tensors, pixels, dinov3_names(),
                                  {.registers = 2, .rope = true, .scale = true, .gated = gated});
      const TensorMap got = outputs(model, pixels);
      EXPECT_LT(relative_l2(got.at("last_hidden_state").data, flat(want)), 1e-6) << gated;
      EXPECT_LT(relative_l2(got.at("pooler_output").data, want[0]), 1e-6) << gated;
    }
  }
}

TEST(Pretrained, VitGivesTheSameLogits) {
  for (const bool head : {true, false}) {
    const PretrainedFolder folder = vit_folder(head);
    const HostTensor pixels = random_tensor("pixels", {1, 3, 12, 8}, -2, 2);
    const ImportedModel model = import(folder, pixels);
    const VitNames names = transformers_names(head ? "vit." : "");
    const Rows want = plain_vit(folder.tensors, pixels, names, {});
    const TensorMap got = outputs(model, pixels);
    EXPECT_LT(relative_l2(got.at("last_hidden_state").data, flat(want)), 1e-7);
    ASSERT_EQ(got.contains("logits"), head);
    if (!head) continue;
    EXPECT_LT(relative_l2(got.at("logits").data, PlainMath(folder.tensors).linear({want[0]}, "classifier")[0]), 1e-7);
  }
}

TEST(Pretrained, SamplesOfABatchAreIndependent) {
  const PretrainedFolder folder = dinov3_folder();
  const HostTensor two = random_tensor("two", {2, 3, 8, 12}, -2, 2);
  HostTensor second = random_tensor("x", {1, 3, 8, 12}, 0, 1);
  second.data.assign(two.data.begin() + 3 * 8 * 12, two.data.end());
  const Row both = outputs(import(folder, two), two).at("pooler_output").data,
            alone = outputs(import(folder, second), second).at("pooler_output").data;
  EXPECT_LT(relative_l2(Row(both.begin() + 24, both.end()), alone), 1e-12);
}

/// timm's names by hand, with the values of the same model in transformers' names; q, k and v are one tensor.
TEST(Pretrained, TimmIsTheSameModelAsTransformers) {
  const VitSize size{.patch = 32, .patches = 49, .width = 192, .layers = 12, .heads = 3, .ffn = 768, .classes = 3};
  PretrainedFolder transformers, timm;
  const VitNames n = transformers_names("vit.");
  add_vit(transformers, n, size);
  transformers.config =
      R"({"model_type":"vit","image_size":224,"patch_size":32,"hidden_size":192,"intermediate_size":768,"num_hidden_layers":12,)"
      R"("num_attention_heads":3,"layer_norm_eps":1e-06})";
  timm.config =
      R"({"architecture":"vit_tiny_patch32_224","num_classes":3,"num_features":192,"global_pool":"token","pretrained_cfg":{"mean":[0.5,0.5,0.5],)"
      R"("std":[0.5,0.5,0.5],"input_size":[3,224,224],"crop_pct":0.9}})";
  const auto copy = [&](const std::string& from, const std::string& to) {
    timm.tensors.insert_or_assign(to, transformers.tensors.at(from));
  };
  const auto copy_affine = [&](const std::string& from, const std::string& to) {
    copy(from + ".weight", to + ".weight");
    copy(from + ".bias", to + ".bias");
  };
  copy(n.cls, "cls_token");
  copy(n.positions, "pos_embed");
  copy_affine(n.patch, "patch_embed.proj");
  copy_affine(n.norm, "norm");
  copy_affine("classifier", "head");
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const std::string block = formatted("blocks.{}.", i);
    copy_affine(n.layer(i, "norm1"), block + "norm1");
    copy_affine(n.layer(i, "norm2"), block + "norm2");
    copy_affine(n.layer(i, "o"), block + "attn.proj");
    copy_affine(n.layer(i, "up"), block + "mlp.fc1");
    copy_affine(n.layer(i, "down"), block + "mlp.fc2");
    for (const auto& [suffix, shape] : {std::pair<std::string, Shape>{".weight", {576, 192}}, {".bias", {576}}}) {
      HostTensor fused({DType::f32, shape});
      fused.data.clear();
      for (const char* part : {"q", "k", "v"}) {
        const Row& values = transformers.tensors.at(n.layer(i, part) + suffix).data;
        fused.data.insert(fused.data.end(), values.begin(), values.end());
      }
      timm.tensors.insert_or_assign(block + "attn.qkv" + suffix, fused);
    }
  }
  const ImportedModel a = import_hugging_face(timm.write()), b = import_hugging_face(transformers.write());
  EXPECT_EQ(a.graph->print(), b.graph->print());
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_THAT(a.outputs, ElementsAre("logits", "last_hidden_state"));
  const HuggingFaceInfo info = inspect_hugging_face(timm.dir.path());
  EXPECT_THAT(info.preprocessing, testing::Contains(std::pair<std::string, std::string>("std", "[0.5,0.5,0.5]")));
}

TEST(Pretrained, VitsHaveThePublishedSizes) {
  const auto count = [](const models::VitConfig& config) {
    Graph g;
    const Value tokens = models::vit(g.input("pixels", {1, 3, 224, 224}), config);
    if (config.classes > 0) models::vit_logits(tokens, config);
    std::int64_t elements = 0;
    for (const Node& node : g.nodes())
      if (is_parameter(node)) elements += node.results[0].shape.elements();
    return elements;
  };
  EXPECT_EQ(count({}), 22'050'664);                                        // vit_small_patch16_224
  EXPECT_EQ(count({.width = 768, .heads = 12, .ffn = 3072}), 86'567'656);  // ViT-B/16
  EXPECT_EQ(count(models::VitConfig::dinov3_vits16()) + 384, 21'596'544);  // with the mask token
  models::VitConfig plus = models::VitConfig::dinov3_vits16();
  plus.gated = true, plus.activation = nn::Activation::Silu;
  EXPECT_EQ(count(plus) + 384, 21'596'544 + 12 * (384 * 1536 + 1536));
}

TEST(Pretrained, VitRefusals) {
  Graph g;
  const auto refused = [&](const models::VitConfig& config, Shape shape) {
    Graph graph;
    return message([&] { models::vit(graph.input("pixels", shape), config); });
  };
  EXPECT_HAS(refused({.heads = 7}, {1, 3, 224, 224}), "cannot split a width of 384 into 7 heads");
  EXPECT_HAS(refused({}, {1, 3, 224, 240}), "needs images f32[batch, 3, 224, 224], not f32[1, 3, 224, 240]");
  EXPECT_HAS(refused({.image_height = 220}, {1, 3, 220, 224}),
             "cannot cut images of 220 x 224 into patches of 16 x 16");
  EXPECT_HAS(refused({.rope = true}, {1, 3, 224, 230}), "cannot cut images f32[1, 3, 224, 230] into patches");
  EXPECT_HAS(refused({.width = 390, .heads = 65, .rope = true}, {1, 3, 224, 224}), "a multiple of 4");
  EXPECT_HAS(refused({.patch = 1, .rope = true}, {1, 3, 1 << 15, 1 << 15}), "tables of positions for");
  EXPECT_HAS(refused({.registers = -1}, {1, 3, 224, 224}), "cannot have -1 registers");
  EXPECT_HAS(refused({.eps = 0}, {1, 3, 224, 224}), "[models::vit] needs a finite eps above 0");
}

// ---- ResNet

Image plain_unit(const PlainMath& m, const Image& x, const std::string& name, std::ptrdiff_t stride, bool active) {
  Image y = m.conv(x, name + ".convolution.weight", stride);
  const std::string norm = name + ".normalization.";
  for (std::size_t c = 0; c < y.planes.size(); ++c) {
    for (double& v : y.planes[c]) {
      v = (v - m.values(norm + "running_mean")[c]) / std::sqrt(m.values(norm + "running_var")[c] + 1e-5) *
              m.values(norm + "weight")[c] +
          m.values(norm + "bias")[c];
      if (active) v = std::max(v, 0.0);
    }
  }
  return y;
}

Row plain_resnet(const TensorMap& tensors, const HostTensor& pixels) {
  const PlainMath m(tensors);
  const auto height = static_cast<std::size_t>(pixels.type.shape[2]),
             width = static_cast<std::size_t>(pixels.type.shape[3]);
  Image x{height, width};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto first = pixels.data.begin() + static_cast<std::ptrdiff_t>(c * height * width);
    x.planes.emplace_back(first, first + static_cast<std::ptrdiff_t>(height * width));
  }
  x = plain_unit(m, x, "resnet.embedder.embedder", 2, true);
  Image pooled{(x.height - 1) / 2 + 1, (x.width - 1) / 2 + 1};  // 3 x 3, stride 2, padded by 1
  for (const Row& plane : x.planes) {
    Row& out = pooled.planes.emplace_back();
    for (std::size_t r = 0; r < pooled.height; ++r) {
      for (std::size_t c = 0; c < pooled.width; ++c) {
        double best = -INFINITY;
        for (std::size_t i = r == 0 ? 0 : 2 * r - 1; i < std::min(x.height, 2 * r + 2); ++i)
          for (std::size_t j = c == 0 ? 0 : 2 * c - 1; j < std::min(x.width, 2 * c + 2); ++j)
            best = std::max(best, plane[i * x.width + j]);
        out.push_back(best);
      }
    }
  }
  x = pooled;
  for (int stage = 0; stage < 2; ++stage) {
    for (int layer = 0; layer < stage + 1; ++layer) {
      const std::string name = formatted("resnet.encoder.stages.{}.layers.{}.", stage, layer);
      const std::ptrdiff_t stride = stage > 0 && layer == 0 ? 2 : 1;
      Image y = plain_unit(m, x, name + "layer.0", 1, true);
      y = plain_unit(m, plain_unit(m, y, name + "layer.1", stride, true), name + "layer.2", 1, false);
      if (layer == 0) x = plain_unit(m, x, name + "shortcut", stride, false);
      y.planes = each(sum(y.planes, x.planes), [](double v) { return std::max(v, 0.0); });
      x = y;
    }
  }
  Row mean;
  for (const Row& plane : x.planes)
    mean.push_back(std::accumulate(plane.begin(), plane.end(), 0.0) / static_cast<double>(plane.size()));
  return m.linear({mean}, "classifier.1")[0];
}

TEST(Pretrained, ResNetGivesTheSameLogits) {
  PretrainedFolder folder = resnet_folder();
  const HostTensor pixels = random_tensor("pixels", {1, 3, 21, 26}, -2, 2);
  const Row want = plain_resnet(folder.tensors, pixels);
  EXPECT_LT(relative_l2(outputs(import(folder, pixels), pixels).at("logits").data, want), 1e-6);
  // A head of 16-bit floats is widened exactly.
  folder.dtypes["classifier.1.weight"] = DType::bf16;
  const ImportedModel half = import(folder, pixels);
  EXPECT_EQ(half.weights.at("fc.weight").type().dtype, DType::f32);
  EXPECT_EQ(half.weights.at("fc.weight").to_doubles(),
            Literal::from_doubles({DType::bf16, {5, 32}}, folder.tensors.at("classifier.1.weight").data).to_doubles());
}

TEST(Pretrained, TimmResNetHasTorchvisionsNames) {
  PretrainedFolder folder;
  folder.config = R"({"architecture":"resnet50","num_classes":1000,"num_features":2048,"pretrained_cfg":{}})";
  folder.add("conv1.weight", {64, 3, 7, 7});
  folder.add_batch_norm("bn1", 64);
  for (int i = 0; i < 20; ++i) folder.add_batch_norm(formatted("x{}", i), 1);  // more tensors than layers
  const std::string said = message_of(ErrorCode::CorruptFile, [&] { import_hugging_face(folder.write()); });
  EXPECT_HAS(said,
             "not those of the model (resnet50)\n  missing: layer1.0.conv1.weight, layer1.0.bn1.weight, "
             "layer1.0.bn1.bias, layer1.0.bn1.running_mean");
  EXPECT_HAS(said,
             "and 252 more");  // of 53 convolutions with four tensors of a norm each, and two of fc
  EXPECT_THAT(said, Not(HasSubstr("num_batches_tracked")));
}

// ---- Whisper

const std::vector<std::pair<std::string, std::string>> kWhisperLayer = {
    {"self_attn.q_proj.weight", "attn.query.weight"},
    {"self_attn.q_proj.bias", "attn.query.bias"},
    {"self_attn.k_proj.weight", "attn.key.weight"},
    {"self_attn.v_proj.weight", "attn.value.weight"},
    {"self_attn.v_proj.bias", "attn.value.bias"},
    {"self_attn.out_proj.weight", "attn.out.weight"},
    {"self_attn.out_proj.bias", "attn.out.bias"},
    {"self_attn_layer_norm.weight", "attn_ln.weight"},
    {"self_attn_layer_norm.bias", "attn_ln.bias"},
    {"fc1.weight", "mlp.0.weight"},
    {"fc1.bias", "mlp.0.bias"},
    {"fc2.weight", "mlp.2.weight"},
    {"fc2.bias", "mlp.2.bias"},
    {"final_layer_norm.weight", "mlp_ln.weight"},
    {"final_layer_norm.bias", "mlp_ln.bias"}};

/// Parameter of the builder, name in transformers without "model.", name of OpenAI.
std::vector<std::array<std::string, 3>> whisper_names() {
  std::vector<std::array<std::string, 3>> all;
  for (const char* conv : {"conv1", "conv2"}) {
    const std::string name = formatted("encoder.{}.", conv);
    all.push_back({"model." + name + "weight", name + "weight", name + "weight"});
    all.push_back({"model." + name + "fused_bias", name + "bias", name + "bias"});
  }
  all.push_back(
      {"model.encoder.embed_positions.weight", "encoder.embed_positions.weight", "encoder.positional_embedding"});
  for (const char* part : {"weight", "bias"})
    all.push_back({formatted("model.encoder.layer_norm.{}", part), formatted("encoder.layer_norm.{}", part),
                   formatted("encoder.ln_post.{}", part)});
  for (int i = 0; i < 2; ++i)
    for (const auto& [ours, openai] : kWhisperLayer)
      all.push_back({formatted("model.encoder.layers.{}.{}", i, ours), formatted("encoder.layers.{}.{}", i, ours),
                     formatted("encoder.blocks.{}.{}", i, openai)});
  return all;
}

TEST(Pretrained, WhisperInEveryNaming) {
  const models::WhisperConfig small = models::WhisperConfig::small();
  Graph expected;
  expected.output("last_hidden_state", models::whisper_encoder(expected.input("mel", {1, 10, 60}), small));
  const std::vector<std::array<std::string, 3>> names = whisper_names();
  for (const std::string& naming : std::vector<std::string>{"model.", "", "openai"}) {
    PretrainedFolder folder;
    const bool openai = naming == "openai";
    folder.config =
        openai
            ? R"({"n_mels":10,"n_audio_ctx":30,"n_audio_state":48,"n_audio_head":3,"n_audio_layer":2,"n_vocab":51865,"n_text_ctx":448,)"
              R"("n_text_state":48,"n_text_head":3,"n_text_layer":2})"
            : R"({"model_type":"whisper","num_mel_bins":10,"d_model":48,"encoder_layers":2,"encoder_attention_heads":3,"encoder_ffn_dim":80,)"
              R"("max_source_positions":30,"activation_function":"gelu","scale_embedding":false,"decoder_layers":2,"vocab_size":51865,)"
              R"("begin_suppress_tokens":[220],"is_encoder_decoder":true,"max_length":448,"mask_time_prob":0.05})";
    std::map<std::string, std::string> file_names;
    for (const Node& node : expected.nodes()) {
      if (!is_parameter(node)) continue;
      const auto found = std::ranges::find(names, node.name, [](const auto& row) { return row[0]; });
      ASSERT_NE(found, names.end()) << node.name;
      Shape shape = node.results[0].shape;
      const std::string name = openai ? (*found)[2] : naming + (*found)[1];
      if (openai && shape[0] == 80)
        shape = shape.with(0, 192);  // OpenAI's feed-forward width is always four times the width
      if (openai && shape.rank() == 2 && shape[1] == 80) shape = shape.with(1, 192);
      folder.add(name, shape);
      file_names[node.name] = name;
    }
    folder.add((openai ? "" : naming) + "decoder.layers.0.fc1.weight", {4, 4});
    if (!openai) folder.add("proj_out.weight", {4, 4});
    const ImportedModel model = import_hugging_face(folder.write());
    ASSERT_EQ(model.weights.size(), names.size());
    for (const auto& [parameter, name] : file_names)
      EXPECT_EQ(model.weights.at(parameter).to_doubles(), folder.tensors.at(name).data) << name;
    models::WhisperConfig config = small;
    if (openai) config.ffn = 192;
    Graph graph;
    graph.output("last_hidden_state", models::whisper_encoder(graph.input("mel", {1, 10, 60}), config));
    EXPECT_EQ(interpret(*model.graph, random_leaves(*model.graph, 3)).outputs.at("last_hidden_state").data,
              interpret(graph, random_leaves(graph, 3)).outputs.at("last_hidden_state").data);
    EXPECT_EQ(inspect_hugging_face(folder.dir.path()).unused.size(), openai ? 1u : 2u);
  }
}

// ---- what is refused

TEST(Pretrained, AllThatDoesNotFitIsListedAtOnce) {
  PretrainedFolder folder = dinov3_folder();
  folder.tensors.erase("layer.1.norm2.bias");
  folder.tensors.erase("embeddings.cls_token");
  folder.add("layer.0.mlp.up_proj.bias", {41});
  folder.add("layer.2.norm1.weight", {24});
  folder.dtypes["norm.bias"] = DType::f64;
  folder.dtypes["norm.weight"] = DType::i32;
  for (double& v : folder.tensors.at("norm.weight").data) v = 1;
  const std::string said = message_of(ErrorCode::CorruptFile, [&] { import_hugging_face(folder.write()); });
  EXPECT_HAS(said, "\n  missing: embeddings.cls_token, layer.1.norm2.bias");
  EXPECT_HAS(said, "layer.0.mlp.up_proj.bias is f32[41] and should be f32[40]");
  EXPECT_HAS(said, "norm.bias is f64[24] and should be f32[24]");
  EXPECT_HAS(said, "norm.weight is i32[24] and should be a float, f32[24]");
  EXPECT_HAS(said, "\n  unknown: layer.2.norm1.weight");
  EXPECT_ERROR(inspect_hugging_face(folder.dir.path()), ErrorCode::CorruptFile, "missing");
}

TEST(Pretrained, DoublesAreRoundedOnlyOnRequest) {
  PretrainedFolder folder = dinov3_folder();
  folder.dtypes["norm.bias"] = DType::f64;
  folder.tensors.at("norm.bias").data[3] = 0.1;
  EXPECT_EQ(import_hugging_face(folder.write(), {.f64_as_f32 = true}).weights.at("norm.bias").at(3),
            static_cast<double>(0.1f));
  folder.tensors.at("norm.bias").data[3] = 1e300;
  EXPECT_ERROR(import_hugging_face(folder.write(), {.f64_as_f32 = true}), ErrorCode::OutOfRange,
               "'norm.bias' holds or gives 1e+300");
}

TEST(Pretrained, BatchNormsThatCannotBe) {
  PretrainedFolder folder = resnet_folder();
  folder.tensors.at("resnet.embedder.embedder.normalization.running_var").data[1] = -0.5;
  EXPECT_ERROR(import_hugging_face(folder.write()), ErrorCode::OutOfRange,
               "a variance of -0.5 in 'resnet.embedder.embedder.normalization.running_var'");
}

TEST(Pretrained, ConfigurationsAreHonouredOrRefused) {
  const auto refused = [](PretrainedFolder folder, const std::string& from, const std::string& to) {
    const std::size_t at = folder.config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    folder.config.replace(at, from.size(), to);
    return message([&] { import_hugging_face(folder.write()); });
  };
  EXPECT_HAS(refused(dinov3_folder(), "\"drop_path_rate\":0.0", "\"new_thing\":1,\"other\":{}"),
             "does not have: the field 'new_thing', the field 'other'");
  EXPECT_HAS(refused(dinov3_folder(), "gelu", "tanhshrink"), "the activation 'tanhshrink'");
  EXPECT_HAS(refused(dinov3_folder(), "\"rope_theta\":100.0",
                     "\"rope_parameters\":{\"rope_theta\":100,\"rope_type\":\"yarn\"}"),
             "the rope_type 'yarn'");
  EXPECT_HAS(refused(dinov3_folder(), "\"rope_theta\":100.0",
                     "\"rope_parameters\":{\"rope_theta\":100,\"partial_rotary_factor\":0.5}"),
             "the field 'rope_parameters.partial_rotary_factor'");
  EXPECT_HAS(refused(dinov3_folder(), "\"key_bias\":false", "\"key_bias\":true"),
             "missing: layer.0.attention.k_proj.bias");
  EXPECT_HAS(refused(dinov3_folder(), "\"num_register_tokens\":2", "\"num_register_tokens\":3"),
             "register_tokens is f32[1, 2, 24] and should be f32[1, 3, 24]");
  EXPECT_HAS(refused(dinov3_folder(), "\"rope_theta\":100.0", "\"rope_theta\":-1"), "needs a finite rope_base above 0");
  EXPECT_HAS(refused(vit_folder(true), ",\"4\":\"e\"", ""), "4 labels for 5 classes");
  EXPECT_HAS(refused(vit_folder(true), "\"qkv_bias\":true", "\"qkv_bias\":false"),
             "unknown: vit.encoder.layer.0.attention.attention.key.bias");
  EXPECT_HAS(refused(resnet_folder(), "bottleneck\",", "basic\","), "layer_type other than 'bottleneck'");
  EXPECT_HAS(refused(resnet_folder(), "\"downsample_in_bottleneck\":false", "\"downsample_in_bottleneck\":true"),
             "downsample_in_bottleneck = true");
  EXPECT_HAS(refused(resnet_folder(), "[16,32]", "[16,48]"), "hidden_sizes other than");
  EXPECT_HAS(refused(vit_folder(true), "\"vit\"", "\"swin\""),
             "the model_type 'swin' is not among those of vision and speech");
  PretrainedFolder timm;
  timm.add("x", {1});
  timm.config = R"({"architecture":"resnet50d","num_classes":10})";
  EXPECT_ERROR(import_hugging_face(timm.write()), ErrorCode::Unsupported, "the architecture 'resnet50d' of timm");
  timm.config =
      R"({"architecture":"vit_tiny_patch16_224","num_classes":10,"global_pool":"avg","model_args":{"img_size":256}})";
  EXPECT_ERROR(import_hugging_face(timm.write()), ErrorCode::Unsupported, "model_args, global_pool = 'avg'");
}

TEST(Pretrained, HostileConfigurations) {
  PretrainedFolder folder = dinov3_folder();
  const std::string good = folder.config;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"hidden_size\":24", "\"hidden_size\":\"24\""},
           {"\"hidden_size\":24", "\"hidden_size\":-24"},
           {"\"hidden_size\":24", "\"hidden_size\":0"},
           {"\"hidden_size\":24", "\"hidden_size\":24.5"},
           {"\"hidden_size\":24", "\"hidden_size\":1e30"},
           {"\"hidden_size\":24", "\"hidden_size\":[24]"},
           {"\"image_size\":8", "\"image_size\":[8]"},
           {"\"num_hidden_layers\":2", "\"num_hidden_layers\":1000000"},
           {"\"use_gated_mlp\":false", "\"use_gated_mlp\":0"},
           {"\"num_register_tokens\":2", "\"num_register_tokens\":4294967296"},
           {"\"rope_theta\":100.0", "\"rope_theta\":\"x\""}}) {
    folder.config = good;
    folder.config.replace(folder.config.find(from), from.size(), to);
    message_of(ErrorCode::CorruptFile, [&] { import_hugging_face(folder.write()); });
  }
  for (const char* text : {"", "[]", "7", "{", "{\"model_type\":7}"}) {
    folder.config = text;
    message_of(ErrorCode::CorruptFile, [&] { import_hugging_face(folder.write()); });
  }
  folder.config = good;
  folder.config.replace(folder.config.find("\"image_size\":8"), 14, "\"image_size\":1048576");
  EXPECT_HAS(message([&] { inspect_hugging_face(folder.write()); }), "cannot have tables of positions");
}

TEST(Pretrained, FilesOfAnIndex) {
  PretrainedFolder folder = dinov3_folder();
  folder.write();
  const std::filesystem::path whole = folder.dir / "model.safetensors";
  const auto weights = import_hugging_face(folder.dir.path()).weights;
  std::filesystem::rename(whole, folder.dir / "a.safetensors");
  PretrainedFolder second;
  second.add("norm.bias", {24});
  second.write();
  const auto index = [&](const std::string& map) {
    folder.dir.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  };
  index(R"({"norm.bias":"a.safetensors"})");
  EXPECT_EQ(import_hugging_face(folder.dir.path()).weights, weights);
  std::filesystem::copy_file(second.dir / "model.safetensors", folder.dir / "b.safetensors");
  for (const auto& [map, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"norm.bias":"../a.safetensors"})", "no file of the folder"},
           {R"({"norm.bias":"/etc/passwd"})", "no file of the folder"},
           {R"({"norm.bias":""})", "no file of the folder"},
           {R"({"norm.bias":"."})", "no file of the folder"},
           {R"({"norm.bias":7})", "weight_map.norm.bias"},
           {R"({"other":"a.safetensors"})", "'other' is not in a.safetensors"},
           {R"({"norm.bias":"a.safetensors","b":"b.safetensors"})", "'b' is not in b.safetensors"},
           {R"({"norm.weight":"a.safetensors","norm.bias":"b.safetensors"})", "tensor 'norm.bias' is in two files"},
           {"7", "weight_map"}}) {
    index(map);
    EXPECT_ERROR(import_hugging_face(folder.dir.path()), ErrorCode::CorruptFile, text);
  }
  index(R"({"norm.bias":"c.safetensors"})");
  EXPECT_ERROR(import_hugging_face(folder.dir.path()), ErrorCode::NotFound, "c.safetensors");
}

TEST(Pretrained, TruncatedFiles) {
  const PretrainedFolder folder = vit_folder(true);
  folder.write();
  const std::string bytes = read_text(folder.dir / "model.safetensors");
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    folder.dir.write("model.safetensors", bytes.substr(0, length));
    EXPECT_ERROR(import_hugging_face(folder.dir.path()), ErrorCode::CorruptFile, "model.safetensors");
  }
  std::filesystem::remove(folder.dir / "model.safetensors");
  EXPECT_ERROR(import_hugging_face(folder.dir.path()), ErrorCode::NotFound, "model.safetensors");
  EXPECT_ERROR(import_hugging_face(folder.dir / "none"), ErrorCode::NotFound, "config.json");
}

TEST(Pretrained, Options) {
  const PretrainedFolder folder = vit_folder(true);
  folder.write();
  EXPECT_ERROR(import_hugging_face(folder.dir.path(), {.shapes = {{"x", {1}}}}), ErrorCode::InvalidArgument,
               "has no input 'x'; its input is 'pixels'");
  EXPECT_ERROR(import_hugging_face(folder.dir.path(), {.binds = {{"pixels", Literal::scalar(1)}}}),
               ErrorCode::InvalidArgument, "cannot be bound");
  EXPECT_ERROR(import_hugging_face(folder.dir.path(), {.shapes = {{"pixels", {1, 3, 12, 12}}}}),
               ErrorCode::ShapeMismatch, "[batch, 3, 12, 8]");
  const auto trainable = [&](bool option) {
    const ImportedModel model = import_hugging_face(folder.dir.path(), {.trainable = option});
    std::set<bool> seen;
    for (const Node& node : model.graph->nodes())
      if (is_parameter(node)) seen.insert(node.attrs.get<bool>("trainable"));
    return seen;
  };
  EXPECT_THAT(trainable(false), ElementsAre(false));
  EXPECT_THAT(trainable(true), ElementsAre(true));
  const HuggingFaceInfo info = inspect_hugging_face(folder.dir.path());
  EXPECT_EQ(info.architecture, "vit, 2 layers of width 24");
  EXPECT_EQ(info.inputs.at(0).type, "f32[1, 3, 12, 8]");
  EXPECT_TRUE(imports_hugging_face(folder.dir.path()));
  folder.dir.write("config.json", "{\"model_type\":\"llama\"}");
  EXPECT_TRUE(is_hugging_face(folder.dir.path()));
  EXPECT_FALSE(imports_hugging_face(folder.dir.path()));
}

}  // namespace
}  // namespace aeshna::test
