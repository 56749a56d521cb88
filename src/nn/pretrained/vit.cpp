// Vision transformers: DINOv3's names are those of models::vit; transformers' ViT and timm have their own.
#include <array>
#include <optional>

#include "aeshna/models.h"
#include "nn/pretrained/timm.h"

namespace aeshna::pretrained {

namespace {

struct Rename {
  std::string_view from, to;
};

/// The rename that fits the name's beginning.
bool rename(std::string& name, std::span<const Rename> table) {
  for (const Rename& r : table)
    if (replace_prefix(name, r.from, r.to)) return true;
  return false;
}

/// "layer.3.norm1.weight" as "layer.3." and "norm1.weight"; "" and the name outside of layers.
std::pair<std::string, std::string> split_layer(const std::string& name) {
  if (!name.starts_with("layer.")) return {"", name};
  const std::size_t end = name.find('.', std::string_view("layer.").size()) + 1;
  return {name.substr(0, end), name.substr(end)};
}

Source transformers_source(const std::string& prefix, const std::string& parameter) {
  static constexpr std::array<Rename, 2> outside = {
      {{"embeddings.patch_embeddings.", "embeddings.patch_embeddings.projection."}, {"norm.", "layernorm."}}};
  static constexpr std::array<Rename, 8> inside = {{{"norm1.", "layernorm_before."},
                                                    {"norm2.", "layernorm_after."},
                                                    {"attention.q_proj.", "attention.attention.query."},
                                                    {"attention.k_proj.", "attention.attention.key."},
                                                    {"attention.v_proj.", "attention.attention.value."},
                                                    {"attention.o_proj.", "attention.output.dense."},
                                                    {"mlp.up_proj.", "intermediate.dense."},
                                                    {"mlp.down_proj.", "output.dense."}}};
  if (parameter.starts_with("classifier.")) return {.tensor = parameter};
  auto [layer, name] = split_layer(parameter);
  if (layer.empty()) {
    rename(name, outside);
    return {.tensor = prefix + name};
  }
  rename(name, inside);
  return {.tensor = formatted("{}encoder.{}{}", prefix, layer, name)};
}

Source timm_source(const std::string& parameter) {
  static constexpr std::array<Rename, 4> outside = {{{"embeddings.cls_token", "cls_token"},
                                                     {"embeddings.position_embeddings", "pos_embed"},
                                                     {"embeddings.patch_embeddings.", "patch_embed.proj."},
                                                     {"classifier.", "head."}}};
  static constexpr std::array<Rename, 3> inside = {
      {{"attention.o_proj.", "attn.proj."}, {"mlp.up_proj.", "mlp.fc1."}, {"mlp.down_proj.", "mlp.fc2."}}};
  static constexpr std::array<std::string_view, 3> fused = {"attention.q_proj.", "attention.k_proj.",
                                                            "attention.v_proj."};
  auto [layer, name] = split_layer(parameter);
  if (layer.empty()) {
    rename(name, outside);
    return {.tensor = name};
  }
  replace_prefix(layer, "layer.", "blocks.");
  for (std::int64_t i = 0; i < 3; ++i)
    if (replace_prefix(name, fused[static_cast<std::size_t>(i)], "attn.qkv."))
      return {.tensor = layer + name, .part = i, .parts = 3};
  rename(name, inside);
  return {.tensor = layer + name};
}

std::string title(std::string_view kind, const models::VitConfig& c) {
  return formatted("{}, {} layers of width {}", kind, c.layers, c.width);
}

Architecture vit(const models::VitConfig& config, std::string title) {
  return {.title = std::move(title),
          .input = "pixels",
          .input_shape = {1, config.channels, config.image_height, config.image_width},
          .build =
              [config](Graph& graph, Value pixels) {
                const Value tokens = models::vit(pixels, config);
                if (config.classes > 0) graph.output("logits", models::vit_logits(tokens, config));
                graph.output("last_hidden_state", tokens);
                if (!config.rope) return;
                const Value first = slice(tokens, {1}, {0}, {1});
                graph.output("pooler_output", reshape(first, {pixels.shape()[0], config.width}));
              },
          .source = {},
          .unused = {},
          .layers = config.layers};
}

/// "vit_small_patch16_224".
std::optional<models::VitConfig> timm_config(std::string_view name) {
  struct Size {
    std::string_view name;
    std::int64_t width, layers, heads;
  };
  static constexpr std::array<Size, 4> sizes = {
      {{"tiny", 192, 12, 3}, {"small", 384, 12, 6}, {"base", 768, 12, 12}, {"large", 1024, 24, 16}}};
  for (const Size& size : sizes) {
    for (const std::int64_t patch : {8, 16, 32}) {
      for (const std::int64_t image : {224, 384}) {
        if (name != formatted("vit_{}_patch{}_{}", size.name, patch, image)) continue;
        return models::VitConfig{.patch = patch,
                                 .image_height = image,
                                 .image_width = image,
                                 .width = size.width,
                                 .layers = size.layers,
                                 .heads = size.heads,
                                 .ffn = 4 * size.width};
      }
    }
  }
  return std::nullopt;
}

/// The fields that all of transformers' ViTs have; what `c` holds are their defaults.
void read_sizes(Config& config, models::VitConfig& c) {
  c.channels = config.size("num_channels", c.channels);
  c.patch = config.size("patch_size", c.patch);
  std::tie(c.image_height, c.image_width) = config.height_and_width("image_size", c.image_height);
  c.width = config.size("hidden_size", c.width);
  c.layers = config.size("num_hidden_layers", c.layers);
  c.heads = config.size("num_attention_heads", c.heads);
  c.ffn = config.size("intermediate_size", c.ffn);
  c.eps = config.number("layer_norm_eps", c.eps);
  c.activation = config.activation("hidden_act", "gelu");
}

}  // namespace

Architecture read_vit(Config& config, const SafetensorsFolder& checkpoint) {
  ignore_common_fields(config);
  config.ignore({"encoder_stride", "pooler_*"});
  models::VitConfig c = {.width = 768, .layers = 12, .heads = 12, .ffn = 3072, .eps = 1e-12};
  read_sizes(config, c);
  c.query_bias = c.key_bias = c.value_bias = config.flag("qkv_bias", true);
  c.classes = classes_of(config, checkpoint, "classifier.weight");
  Architecture a = vit(c, title("vit", c));
  // A model with a head has the rest under a name of its own.
  const std::string prefix = checkpoint.contains("vit.embeddings.cls_token") ? "vit." : "";
  a.source = [prefix](const std::string& parameter) { return transformers_source(prefix, parameter); };
  a.unused = {prefix + "embeddings.mask_token", prefix + "pooler.dense.*"};
  return a;
}

Architecture read_dinov3(Config& config, const SafetensorsFolder&) {
  ignore_common_fields(config);
  config.ignore({"layerscale_value", "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "apply_layernorm",
                 "reshape_hidden_states", "return_class_token"});
  models::VitConfig c = {.classes = 0, .eps = 1e-5, .rope = true, .layer_scale = true};
  read_sizes(config, c);
  if (config.has("num_register_tokens") && config.field("num_register_tokens").count() > 0)
    c.registers = config.size("num_register_tokens");
  c.rope_base = config.number("rope_theta", 100);
  if (config.has("rope_parameters")) {  // as newer versions write it
    const JsonField rope = config.field("rope_parameters");
    c.rope_base = rope.number("rope_theta").value_or(c.rope_base);
    if (const auto type = rope.text("rope_type"); type && *type != "default")
      config.refuse(formatted("the rope_type '{}'", *type));
    for (const auto& [key, value] : rope.members())
      if (key != "rope_theta" && key != "rope_type" && rope.has(key))
        config.refuse(formatted("the field '{}'", value.path()));
  }
  c.gated = config.flag("use_gated_mlp", false);
  c.query_bias = config.flag("query_bias", true);
  c.key_bias = config.flag("key_bias", false);
  c.value_bias = config.flag("value_bias", true);
  c.out_bias = config.flag("proj_bias", true);
  c.mlp_bias = config.flag("mlp_bias", true);
  Architecture a = vit(c, title("dinov3_vit", c));
  a.source = [](const std::string& parameter) { return Source{.tensor = parameter}; };
  a.unused = {"embeddings.mask_token"};
  return a;
}

std::optional<Architecture> timm_vit(std::string_view name, std::int64_t classes) {
  std::optional<models::VitConfig> config = timm_config(name);
  if (!config) return std::nullopt;
  config->classes = classes;
  Architecture a = vit(*config, std::string(name));
  a.source = timm_source;
  return a;
}

}  // namespace aeshna::pretrained
