#pragma once
// What the models share: refusals that say which model, and the parts that several of them have.
#include <initializer_list>
#include <string_view>
#include <utility>

#include "aeshna/models.h"
#include "nn/layer.h"

namespace aeshna::models {

/// One model being built.
class Model : public nn::Call {
 public:
  Model(std::string_view name, const Loc& loc) : Call(formatted("[models::{}]", name), loc) {}

  /// Extents of the configuration: each from 1 to 2^20, so that products of two stay far from any bound.
  void require_extents(std::initializer_list<std::pair<std::string_view, std::int64_t>> extents) const;
  void require_heads(std::int64_t heads, std::int64_t kv_heads) const;
  /// Of a norm: finite and positive.
  void require_eps(double eps) const;
  /// `x` has this dtype and these extents; -1 stands for any of at least 1. `form` is the shape in words.
  void require_input(const Value& x, std::string_view name, DType dtype, std::initializer_list<std::int64_t> extents,
                     std::string_view form) const;
};

/// x [N, C, L] or [N, C, H, W] -> [N, out, ...] by a convolution of this extent along each axis, padded by half of it; its weight
/// and its bias have names of their own.
Value biased_conv(Value x, std::int64_t out, std::int64_t extent, std::int64_t stride, std::string_view weight_name,
                  std::string_view bias_name, const Loc& loc);

/// Attention of x [B, S, width] to the tokens of `context` [B, T, any] -> [B, S, width]. Linears "<name>.q_proj", ".k_proj", ".v_proj"
/// and ".out_proj"; with `bias` all but the keys' have one.
Value attend(Value x, Value context, std::int64_t heads, std::string_view name, bool bias, const Loc& loc);

}  // namespace aeshna::models
