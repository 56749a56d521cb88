#pragma once
// Folders of vision and speech models as their publishers lay them out, with small configurations and random weights.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/hash.h"
#include "base/philox.h"
#include "io/safetensors.h"
#include "ir/interpreter.h"
#include "support/temp_dir.h"

namespace aeshna::test {

/// Values in [low, high] that depend on the name alone, as f32 holds them.
inline HostTensor random_tensor(const std::string& name, const Shape& shape, double low, double high) {
  PhiloxStream random(Hasher().add(name).low(), 0);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& v : values) v = static_cast<float>(low + (high - low) * random.next_uniform());
  HostTensor tensor({DType::f32, shape});
  tensor.data = std::move(values);
  return tensor;
}

struct PretrainedFolder {
  std::shared_ptr<TempDir> holder = std::make_shared<TempDir>();  ///< copies are of the same folder
  const TempDir& dir = *holder;
  std::string config = "{}";
  TensorMap tensors = {};
  std::map<std::string, DType> dtypes = {};  ///< other than f32

  void add(const std::string& name, const Shape& shape, double low = -0.5, double high = 0.5) {
    tensors.insert_or_assign(name, random_tensor(name, shape, low, high));
  }
  void add_affine(const std::string& name, const Shape& weight, bool bias = true) {
    add(name + ".weight", weight);
    if (bias) add(name + ".bias", {weight[0]});
  }
  void add_norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", {width}, 0.5, 1.5);
    add(name + ".bias", {width});
  }
  void add_batch_norm(const std::string& name, std::int64_t width) {
    add_norm(name, width);
    add(name + ".running_mean", {width});
    add(name + ".running_var", {width}, 0.2, 1.2);
    tensors.insert_or_assign(name + ".num_batches_tracked", HostTensor({DType::f32, {}}));
    dtypes[name + ".num_batches_tracked"] = DType::i64;
  }

  /// The folder's path.
  std::filesystem::path write() const {
    dir.write("config.json", config);
    std::vector<Literal> values;
    std::vector<SafetensorsTensor> list;
    for (const auto& [name, tensor] : tensors) {
      const auto other = dtypes.find(name);
      values.push_back(
          Literal::from_doubles({other == dtypes.end() ? DType::f32 : other->second, tensor.type.shape}, tensor.data));
    }
    std::size_t i = 0;
    for (const auto& [name, tensor] : tensors) {
      list.push_back({name, values[i].type(), values[i].bytes()});
      ++i;
    }
    write_safetensors(dir / "model.safetensors", list);
    return dir.path();
  }
};

/// Where a vision transformer's tensors are in a naming; layers by number and part: norm1, norm2, q, k, v, o, up, down, gate, scale1, scale2.
struct VitNames {
  std::string cls, registers, positions, patch, norm, head;
  std::function<std::string(std::int64_t, const std::string&)> layer;
};

inline VitNames dinov3_names() {
  const std::map<std::string, std::string> parts = {{"norm1", "norm1"},
                                                    {"norm2", "norm2"},
                                                    {"q", "attention.q_proj"},
                                                    {"k", "attention.k_proj"},
                                                    {"v", "attention.v_proj"},
                                                    {"o", "attention.o_proj"},
                                                    {"up", "mlp.up_proj"},
                                                    {"down", "mlp.down_proj"},
                                                    {"gate", "mlp.gate_proj"},
                                                    {"scale1", "layer_scale1.lambda1"},
                                                    {"scale2", "layer_scale2.lambda1"}};
  return {"embeddings.cls_token",
          "embeddings.register_tokens",
          "",
          "embeddings.patch_embeddings",
          "norm",
          "",
          [=](std::int64_t i, const std::string& part) { return formatted("layer.{}.{}", i, parts.at(part)); }};
}

inline VitNames transformers_names(const std::string& prefix) {
  const std::map<std::string, std::string> parts = {
      {"norm1", "layernorm_before"},      {"norm2", "layernorm_after"},
      {"q", "attention.attention.query"}, {"k", "attention.attention.key"},
      {"v", "attention.attention.value"}, {"o", "attention.output.dense"},
      {"up", "intermediate.dense"},       {"down", "output.dense"}};
  return {prefix + "embeddings.cls_token",
          "",
          prefix + "embeddings.position_embeddings",
          prefix + "embeddings.patch_embeddings.projection",
          prefix + "layernorm",
          "classifier",
          [=](std::int64_t i, const std::string& part) {
            return formatted("{}encoder.layer.{}.{}", prefix, i, parts.at(part));
          }};
}

struct VitSize {
  std::int64_t patch = 4, patches = 6, width = 24, layers = 2, heads = 3, ffn = 40, registers = 0, classes = 5;
  bool rope = false, scale = false, gated = false, key_bias = true;
};

inline void add_vit(PretrainedFolder& f, const VitNames& n, const VitSize& s) {
  f.add(n.cls, {1, 1, s.width});
  if (s.registers > 0) f.add(n.registers, {1, s.registers, s.width});
  if (!s.rope) f.add(n.positions, {1, 1 + s.patches, s.width});
  f.add_affine(n.patch, {s.width, 3, s.patch, s.patch});
  for (std::int64_t i = 0; i < s.layers; ++i) {
    f.add_norm(n.layer(i, "norm1"), s.width);
    f.add_norm(n.layer(i, "norm2"), s.width);
    for (const char* part : {"q", "k", "v", "o"})
      f.add_affine(n.layer(i, part), {s.width, s.width}, *part != 'k' || s.key_bias);
    f.add_affine(n.layer(i, "up"), {s.ffn, s.width});
    if (s.gated) f.add_affine(n.layer(i, "gate"), {s.ffn, s.width});
    f.add_affine(n.layer(i, "down"), {s.width, s.ffn});
    if (s.scale) {
      f.add(n.layer(i, "scale1"), {s.width});
      f.add(n.layer(i, "scale2"), {s.width});
    }
  }
  f.add_norm(n.norm, s.width);
  if (s.classes > 0) f.add_affine(n.head, {s.classes, s.width});
}

inline PretrainedFolder dinov3_folder(bool gated = false) {
  PretrainedFolder f;
  f.config = formatted(
      R"({{"architectures":["DINOv3ViTModel"],"model_type":"dinov3_vit","image_size":8,"patch_size":4,"hidden_size":24,"intermediate_size":40,)"
      R"("num_hidden_layers":2,"num_attention_heads":3,"num_register_tokens":2,"layer_norm_eps":1e-05,"rope_theta":100.0,"hidden_act":"{}",)"
      R"("use_gated_mlp":{},"key_bias":false,"query_bias":true,"value_bias":true,"proj_bias":true,"mlp_bias":true,"layerscale_value":1.0,)"
      R"("pos_embed_rescale":2.0,"pos_embed_jitter":null,"num_channels":3,"drop_path_rate":0.0,"attention_dropout":0.0,"torch_dtype":"float32",)"
      R"("transformers_version":"4.56.0"}})",
      gated ? "silu" : "gelu", gated);
  add_vit(f, dinov3_names(),
          {.registers = 2, .classes = 0, .rope = true, .scale = true, .gated = gated, .key_bias = false});
  f.add("embeddings.mask_token", {1, 1, 24});
  return f;
}

inline PretrainedFolder vit_folder(bool head) {
  PretrainedFolder f;
  f.config = formatted(
      R"({{"architectures":["{}"],"model_type":"vit","image_size":[12,8],"patch_size":4,"hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,)"
      R"("num_attention_heads":3,"layer_norm_eps":1e-05,"hidden_act":"gelu","qkv_bias":true,"num_channels":3,"encoder_stride":16,)"
      R"("id2label":{{"0":"a","1":"b","2":"c","3":"d","4":"e"}}}})",
      head ? "ViTForImageClassification" : "ViTModel");
  add_vit(f, transformers_names(head ? "vit." : ""), {.classes = head ? 5 : 0});
  if (!head) f.add_affine("pooler.dense", {24, 24});
  return f;
}

inline PretrainedFolder resnet_folder() {
  PretrainedFolder f;
  f.config =
      R"({"architectures":["ResNetForImageClassification"],"model_type":"resnet","num_channels":3,"embedding_size":4,"hidden_sizes":[16,32],)"
      R"("depths":[1,2],"layer_type":"bottleneck","hidden_act":"relu","downsample_in_first_stage":false,"downsample_in_bottleneck":false,)"
      R"("out_features":["stage2"],"torch_dtype":"float32"})";
  const auto unit = [&](const std::string& name, Shape weight) {
    const std::int64_t out = weight[0];
    f.add(name + ".convolution.weight", std::move(weight));
    f.add_batch_norm(name + ".normalization", out);
  };
  unit("resnet.embedder.embedder", {4, 3, 7, 7});
  std::int64_t in = 4;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const std::int64_t inside = 4 << stage, outside = 4 * inside;
    for (std::int64_t layer = 0; layer < stage + 1; ++layer) {
      const std::string name = formatted("resnet.encoder.stages.{}.layers.{}.", stage, layer);
      if (layer == 0) unit(name + "shortcut", {outside, in, 1, 1});
      unit(name + "layer.0", {inside, in, 1, 1});
      unit(name + "layer.1", {inside, inside, 3, 3});
      unit(name + "layer.2", {outside, inside, 1, 1});
      in = outside;
    }
  }
  f.add_affine("classifier.1", {5, 32});
  return f;
}

}  // namespace aeshna::test
