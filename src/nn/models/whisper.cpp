// The encoder of Whisper (arXiv 2212.04356): two convolutions over a log-mel spectrogram, then pre-norm transformer layers.
#include "nn/models/model.h"

namespace aeshna::models {

WhisperConfig WhisperConfig::small() {
  return {.mels = 10, .width = 48, .layers = 2, .heads = 3, .ffn = 80, .positions = 30};
}

Value whisper_encoder(Value mel, const WhisperConfig& config, Loc loc) {
  const Model model("whisper_encoder", loc);
  const auto& c = config;
  model.require_extents({{"number of mels", c.mels},
                         {"width", c.width},
                         {"number of layers", c.layers},
                         {"number of heads", c.heads},
                         {"feed-forward width", c.ffn},
                         {"number of positions", c.positions}});
  model.require(c.width % c.heads == 0, "cannot split a width of {} into {} heads", c.width, c.heads);
  model.require_eps(c.eps);
  model.require_input(mel, "mel", DType::f32, {-1, c.mels, 2 * c.positions},
                      formatted("[batch, {}, {}]", c.mels, 2 * c.positions));

  const std::string encoder = "model.encoder.";
  const auto convolved = [&](Value v, std::int64_t stride, const std::string& name) {
    return gelu_erf(
        model.at(biased_conv(v, c.width, 3, stride, encoder + name + ".weight", encoder + name + ".fused_bias", loc)));
  };
  Value x = convolved(convolved(mel, 1, "conv1"), 2, "conv2");
  const Value positions =
      mel.graph().parameter(encoder + "embed_positions.weight", {c.positions, c.width}, {.trainable = false}, loc);
  x = add(model.at(permute(model.at(x), {0, 2, 1}, loc)), model.at(positions));
  const auto normalized = [&](const std::string& name) { return nn::layer_norm(x, name, {.eps = c.eps}, loc); };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = formatted("{}layers.{}.", encoder, i);
    const Value own = normalized(name + "self_attn_layer_norm");
    x = add(model.at(x), model.at(attend(own, own, c.heads, name + "self_attn", true, loc)));
    const Value wide = nn::linear(normalized(name + "final_layer_norm"), c.ffn, name + "fc1", {}, loc);
    x = add(model.at(x), model.at(nn::linear(gelu_erf(model.at(wide)), c.width, name + "fc2", {}, loc)));
  }
  return normalized(encoder + "layer_norm");
}

}  // namespace aeshna::models
