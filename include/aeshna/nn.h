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

}  // namespace aeshna::nn
