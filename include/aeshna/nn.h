#pragma once
// Layers: small functions that create named parameters and append ops. Every layer takes a name, which its parameters carry
// ("<name>.weight"; open scopes come before it), and throws Error(InvalidArgument or ShapeMismatch) "[nn::layer] 'name' ..." with
// the caller's line. Parameters lie as the field has them: linear [out, in], convolution [out, in / groups, kernel...].
#include <cstdint>
#include <string_view>
#include <vector>

#include "aeshna/ops.h"

namespace aeshna::nn {

/// A low-rank adapter (Hu et al. 2021) beside a linear: y + alpha / rank * (x A^T) B^T. The linear itself is frozen; trained are
/// "<name>.lora_A.weight" [rank, in] and "<name>.lora_B.weight" [out, rank] (names as in PEFT). B starts at zero: y is unchanged.
struct Lora {
  std::int64_t rank = 8;
  double alpha = 16;
};

struct LinearOptions {
  bool bias = true;
  std::optional<Init> init = {};
  std::optional<Lora> lora = {};
  bool trainable = true;
};
/// x [..., in] -> [..., out]. Parameters "<name>.weight" [out, in] and "<name>.bias" [out].
Value linear(Value x, std::int64_t out, std::string_view name, LinearOptions options = {}, Loc loc = Loc::current());

enum class Activation : std::uint8_t { Relu, Gelu, GeluTanh, Silu, Tanh };
Value activate(Value x, Activation activation, Loc loc = Loc::current());

/// While training, elements are zero with probability p in [0, 1), else divided by 1 - p; otherwise, or if p is 0, x itself.
Value dropout(Value x, double p, bool training, Loc loc = Loc::current());

struct MlpOptions {
  Activation activation = Activation::Relu;
  bool bias = true;
  double dropout = 0;  ///< after every activation
  bool training = false;
  std::optional<Lora> lora = {};
  bool trainable = true;
};
/// Linear + activation for every hidden width, then a linear of `out`. Parameters "<name>.<i>.weight" and ".bias".
Value mlp(Value x, const std::vector<std::int64_t>& hidden, std::int64_t out, std::string_view name, MlpOptions options = {},
          Loc loc = Loc::current());

struct SwigluOptions {
  bool bias = false;
  std::optional<Lora> lora = {};
  bool trainable = true;
};
/// down(silu(gate(x)) * up(x)), from the width of x to `hidden` and back (Shazeer 2020). Linears "<name>.gate_proj", ".up_proj" and
/// ".down_proj".
Value swiglu(Value x, std::int64_t hidden, std::string_view name, SwigluOptions options = {}, Loc loc = Loc::current());

struct LayerNormOptions {
  double eps = 1e-5;
  std::int64_t axes = 1;  ///< the last ones
  bool affine = true;     ///< "<name>.weight" (ones) and, if `bias`, "<name>.bias"
  bool bias = true;
  bool trainable = true;
};
Value layer_norm(Value x, std::string_view name, LayerNormOptions options = {}, Loc loc = Loc::current());

struct RmsNormOptions {
  double eps = 1e-6;
  std::int64_t axes = 1;
  bool trainable = true;
};
/// Parameter "<name>.weight" (ones).
Value rms_norm(Value x, std::string_view name, RmsNormOptions options = {}, Loc loc = Loc::current());

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  bool trainable = true;
};
/// x [N, C, ...]; parameters "<name>.weight" (ones) and "<name>.bias" [C].
Value group_norm(Value x, std::int64_t groups, std::string_view name, GroupNormOptions options = {}, Loc loc = Loc::current());

struct BatchNormOptions {
  bool training = false;  ///< the batch's statistics, and the running ones are updated; else the running ones
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = true;
  bool trainable = true;
};
/// x [N, C, ...]; parameters "<name>.weight" (ones) and "<name>.bias" [C]; states "<name>.running_mean" (zeros) and
/// "<name>.running_var" (ones) [C].
Value batch_norm(Value x, std::string_view name, BatchNormOptions options = {}, Loc loc = Loc::current());

struct EmbeddingOptions {
  std::optional<Init> init = {};  ///< default: standard normal
  bool trainable = true;
};
/// Rows of the parameter "<name>.weight" [count, width]: ids [...] i32 -> [..., width]. An id outside [0, count) sets the step's
/// status word (Error OutOfRange).
Value embedding(Value ids, std::int64_t count, std::int64_t width, std::string_view name, EmbeddingOptions options = {},
                Loc loc = Loc::current());

struct ConvLayerOptions {
  std::vector<std::int64_t> stride = {}, padding = {}, dilation = {}, padding_after = {};  ///< as ConvOptions
  std::int64_t groups = 1;
  bool bias = true;
  std::optional<Init> init = {};
  bool trainable = true;
};
/// x [N, C, L] or [N, C, H, W] -> [N, out, ...], by the number of extents in `kernel` (one counts for all axes). Parameters
/// "<name>.weight" [out, C / groups, kernel...] and "<name>.bias" [out].
Value conv(Value x, std::int64_t out, std::vector<std::int64_t> kernel, std::string_view name, ConvLayerOptions options = {},
           Loc loc = Loc::current());

struct ResBlockOptions {
  std::int64_t stride = 1;
  std::int64_t groups = 0;  ///< 0: batch_norm "bn1", "bn2"; else group_norm of so many groups, "norm1", "norm2"
  bool training = false;    ///< of batch_norm
  bool trainable = true;
};
/// relu(skip(x) + norm(conv(relu(norm(conv(x)))))) with 3x3 convolutions without bias, x [N, C, H, W] -> [N, channels, ...] (He et
/// al. 2015). Where shape or stride differ the skip is a 1x1 convolution "<name>.downsample.0" and a norm "<name>.downsample.1".
Value res_block(Value x, std::int64_t channels, std::string_view name, ResBlockOptions options = {}, Loc loc = Loc::current());

struct MultiHeadAttentionOptions {
  std::int64_t heads = 8;
  std::int64_t kv_heads = 0;  ///< heads is a multiple of it; 0: heads
  std::int64_t head_dim = 0;  ///< 0: width / heads
  bool bias = true;
  bool causal = false;
  std::int64_t window = 0;  ///< with causal: keys that a query sees at most; 0: all
  std::optional<Value> mask = {};  ///< as AttentionOptions
  std::optional<RopeOptions> rope = {};  ///< of queries and keys
  std::optional<Value> context = {};  ///< [B, S2, width2] that keys and values come from; unset: x
  double dropout = 0;  ///< of the result
  bool training = false;
  std::optional<Lora> lora = {};
  bool trainable = true;
};
/// x [B, S, width] -> [B, S, width]. Linears "<name>.q_proj", ".k_proj", ".v_proj", ".o_proj".
Value multi_head_attention(Value x, std::string_view name, MultiHeadAttentionOptions options = {}, Loc loc = Loc::current());

struct TransformerBlockOptions {
  MultiHeadAttentionOptions attention = {};
  bool rms = false;             ///< rms_norm instead of layer_norm
  bool gated = false;           ///< swiglu instead of an mlp with `activation`
  Activation activation = Activation::Gelu;
  std::int64_t hidden = 0;      ///< of the feed-forward part; 0: 4 * width
  double eps = 1e-5;
  double dropout = 0;           ///< of the results of attention and feed-forward part
  bool training = false;
  std::optional<Lora> lora = {};  ///< in every linear; everything else of the block is then frozen
  bool trainable = true;
};
/// Pre-norm: x + attention(norm1(x)), then that + feed-forward(norm2(it)). Layers "<name>.norm1", ".attn", ".norm2", ".mlp"; training,
/// dropout, lora and trainable of the block count for its attention too.
Value transformer_block(Value x, std::string_view name, TransformerBlockOptions options = {}, Loc loc = Loc::current());

}  // namespace aeshna::nn
