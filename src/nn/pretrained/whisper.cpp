// The encoder of Whisper: transformers' names but for two biases, and OpenAI's own.
#include <array>

#include "aeshna/models.h"
#include "nn/pretrained/architecture.h"

namespace aeshna::pretrained {

namespace {

Architecture whisper(const models::WhisperConfig& config) {
  return {.title = formatted("whisper encoder, {} layers of width {}", config.layers, config.width),
          .input = "mel",
          .input_shape = {1, config.mels, 2 * config.positions},
          .build = [config](Graph& graph,
                            Value mel) { graph.output("last_hidden_state", models::whisper_encoder(mel, config)); },
          .source = {},
          .unused = {},
          .layers = config.layers};
}

/// "model.encoder.conv1.fused_bias" -> "encoder.conv1.bias"
std::string plain_name(std::string parameter) {
  replace_prefix(parameter, "model.", "");
  if (const std::size_t at = parameter.find(".fused_bias"); at != std::string::npos)
    parameter.replace(at, std::string::npos, ".bias");
  return parameter;
}

std::string openai_name(const std::string& parameter) {
  std::string name = plain_name(parameter);
  if (name == "encoder.embed_positions.weight") return "encoder.positional_embedding";
  if (replace_prefix(name, "encoder.layer_norm.", "encoder.ln_post.")) return name;
  if (!replace_prefix(name, "encoder.layers.", "encoder.blocks.")) return name;
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> table = {
      {{"self_attn.q_proj.", "attn.query."},
       {"self_attn.k_proj.", "attn.key."},
       {"self_attn.v_proj.", "attn.value."},
       {"self_attn.out_proj.", "attn.out."},
       {"self_attn_layer_norm.", "attn_ln."},
       {"final_layer_norm.", "mlp_ln."},
       {"fc1.", "mlp.0."},
       {"fc2.", "mlp.2."}}};
  const std::size_t end = name.find('.', std::string_view("encoder.blocks.").size()) + 1;
  std::string rest = name.substr(end);
  for (const auto& [from, to] : table)
    if (replace_prefix(rest, from, to)) break;
  return name.substr(0, end) + rest;
}

}  // namespace

Architecture read_whisper(Config& config, const SafetensorsFolder& checkpoint) {
  ignore_common_fields(config);
  // Of the decoder, of training and of generation.
  config.ignore({"decoder_*",
                 "begin_suppress_tokens",
                 "suppress_tokens",
                 "forced_decoder_ids",
                 "vocab_size",
                 "max_target_positions",
                 "max_length",
                 "is_encoder_decoder",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "dropout",
                 "activation_dropout",
                 "encoder_layerdrop",
                 "init_std",
                 "mask_*",
                 "apply_spec_augment",
                 "median_filter_width",
                 "classifier_proj_size",
                 "lang_to_id",
                 "task_to_id",
                 "alignment_heads",
                 "num_hidden_layers"});
  models::WhisperConfig c;
  c.mels = config.size("num_mel_bins", 80);
  c.width = config.size("d_model", 384);
  c.layers = config.size("encoder_layers", 4);
  c.heads = config.size("encoder_attention_heads", 6);
  c.ffn = config.size("encoder_ffn_dim", 1536);
  c.positions = config.size("max_source_positions", 1500);
  if (config.text("activation_function", "gelu") != "gelu") config.refuse("activation_function other than 'gelu'");
  config.require("scale_embedding", false);
  config.require("use_weighted_layer_sum", false);
  Architecture a = whisper(c);
  // Without the task's head the names have no "model." before them.
  const bool bare = checkpoint.contains("encoder.conv1.weight");
  const std::string prefix = bare ? "" : "model.";
  a.source = [prefix](const std::string& parameter) { return Source{.tensor = prefix + plain_name(parameter)}; };
  a.unused = {prefix + "decoder.*", "proj_out.weight"};
  return a;
}

Architecture read_openai_whisper(Config& config, const SafetensorsFolder&) {
  config.ignore({"n_vocab", "n_text_*", "model_type"});
  models::WhisperConfig c;
  c.mels = config.size("n_mels");
  c.width = config.size("n_audio_state");
  c.layers = config.size("n_audio_layer");
  c.heads = config.size("n_audio_head");
  c.positions = config.size("n_audio_ctx");
  c.ffn = 4 * c.width;
  Architecture a = whisper(c);
  a.source = [](const std::string& parameter) { return Source{.tensor = openai_name(parameter)}; };
  a.unused = {"decoder.*", "alignment_heads"};
  return a;
}

}  // namespace aeshna::pretrained
