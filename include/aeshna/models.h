#pragma once
// The built-in models, those of the benchmark suite among them: functions from inputs to outputs that name their parameters as the published checkpoints do.
// Defaults are the published configurations; small() is for tests. Any batch size will do. They throw Error(InvalidArgument for a
// configuration, ShapeMismatch or DTypeMismatch for an input) "[models::name] ..." with the caller's line.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "aeshna/nn.h"

namespace aeshna::models {

/// SmolLM2-135M, a Llama: rms_norm, rotary embedding (half-split), grouped-query attention, SwiGLU, logits = h E^T.
struct SmolLm2Config {
  std::int64_t vocab = 49152, hidden = 576, layers = 30, heads = 9, kv_heads = 3, head_dim = 64, ffn = 1536;
  double eps = 1e-5, rope_base = 100000;
  static SmolLm2Config small();
};
/// ids i32 [B, S] -> logits [B, S, vocab], causal, positions 0 .. S-1.
Value smollm2(Value ids, const SmolLm2Config& config = {}, Loc loc = Loc::current());
/// The same over key-value caches: ids i32 [B, S] at positions position[b] .. position[b] + S - 1 (i32 [B]) -> logits [B, S, vocab].
/// The states "cache.<layer>/keys" and "/values" have `capacity` positions. Equal to smollm2() at the same positions.
Value smollm2_decode(Value ids, Value position, std::int64_t capacity, const SmolLm2Config& config = {}, Loc loc = Loc::current());

/// SmolVLA's action expert: even layers attend causally among the action tokens, odd ones to the context of the vision-language model.
struct SmolVlaConfig {
  std::int64_t action_dim = 32, hidden = 720, layers = 16, heads = 15, kv_heads = 5, head_dim = 64, ffn = 2048;
  std::int64_t context_width = 320, timestep_width = 1440;
  double eps = 1e-5;
  static SmolVlaConfig small();
};
/// noisy_actions [B, S, action_dim], timestep [B, 1, timestep_width], vlm_kv [B, C, context_width] -> [B, S, action_dim].
Value smolvla_expert(Value noisy_actions, Value timestep, Value vlm_kv, const SmolVlaConfig& config = {}, Loc loc = Loc::current());

/// A reduced latent-diffusion U-Net: three levels, cross-attention on the lower two.
struct UNetConfig {
  std::int64_t in_channels = 4, base = 64, groups = 16, head_dim = 32, context_width = 768, time_dim = 256;
  std::vector<std::int64_t> multipliers = {1, 2, 4};
  double eps = 1e-5;
  static UNetConfig small();
};
/// latent [B, 4, H, W], timestep_embedding [B, base], text_context [B, T, context_width] -> [B, 4, H, W]; H and W are multiples of
/// 2^(levels - 1).
Value unet(Value latent, Value timestep_embedding, Value text_context, const UNetConfig& config = {}, Loc loc = Loc::current());

/// ResNet with bottleneck blocks (torchvision's v1.5: the stride is on the 3x3) whose batch norms are folded: each convolution is
/// followed by a bias "<bn>.fused_bias".
struct ResNetConfig {
  std::vector<std::int64_t> blocks = {3, 4, 6, 3};
  std::int64_t width = 64, classes = 1000;
  static ResNetConfig small();
};
/// images [B, 3, H, W] -> logits [B, classes].
Value resnet50(Value images, const ResNetConfig& config = {}, Loc loc = Loc::current());
/// The weights of resnet50(), by name, from a torchvision checkpoint with batch norms (safetensors): w * scale / sqrt(var + eps), and
/// the bias that leaves. For Weights::set. Errors name file and tensor: NotFound, ShapeMismatch, DTypeMismatch (not floats),
/// OutOfRange (a negative variance, a result that is not finite), InvalidArgument (a tensor that the model does not have).
std::map<std::string, Literal> fold_resnet50_batch_norms(const std::filesystem::path& file, const ResNetConfig& config = {},
                                                         double eps = 1e-5);

/// The encoder of Whisper-tiny; its positions are a frozen parameter.
struct WhisperConfig {
  std::int64_t mels = 80, width = 384, layers = 4, heads = 6, ffn = 1536, positions = 1500;
  double eps = 1e-5;
  static WhisperConfig small();
};
/// mel [B, mels, 2 * positions] -> [B, positions, width].
Value whisper_encoder(Value mel, const WhisperConfig& config = {}, Loc loc = Loc::current());

/// A vision transformer (arXiv 2010.11929), by default ViT-S/16 with its head: square patches, a class token, pre-norm layers. With registers
/// (arXiv 2309.16588), LayerScale, gated feed-forward layers and DINOv3's rotary positions where asked for. Parameters are named as in DINOv3's
/// checkpoints; learned positions are "embeddings.position_embeddings" [1, 1 + patches, width].
struct VitConfig {
  std::int64_t channels = 3, patch = 16;
  std::int64_t image_height = 224,
               image_width = 224;  ///< that learned positions are for; with `rope` any multiple of the patch will do
  std::int64_t width = 384, layers = 12, heads = 6, ffn = 1536;
  std::int64_t registers = 0;
  std::int64_t classes = 1000;  ///< of vit_logits()
  double eps = 1e-6;
  bool rope =
      false;  ///< patches turn by their place in the image, from -1 to 1 along both axes, class token and registers do not
  double rope_base = 100;
  bool layer_scale = false;  ///< a factor for each feature of what a layer adds
  bool gated = false;        ///< down(activation(gate(x)) * up(x)), else down(activation(up(x)))
  nn::Activation activation = nn::Activation::Gelu;
  bool query_bias = true, key_bias = true, value_bias = true, out_bias = true, mlp_bias = true;
  static VitConfig dinov3_vits16();
  static VitConfig small();
};
/// images [B, channels, H, W] -> tokens [B, 1 + registers + (H / patch) (W / patch), width], normalized: class token, registers, patches row by row.
Value vit(Value images, const VitConfig& config = {}, Loc loc = Loc::current());
/// What vit() gave -> logits [B, classes], a linear "classifier" of the class token.
Value vit_logits(Value tokens, const VitConfig& config = {}, Loc loc = Loc::current());

}  // namespace aeshna::models
