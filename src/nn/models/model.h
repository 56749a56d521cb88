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

}  // namespace aeshna::models
