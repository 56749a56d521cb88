#pragma once
// What the layers share: parameters under a name, refusals that say which layer.
#include <string>
#include <string_view>
#include <utility>

#include "aeshna/nn.h"
#include "base/format.h"

namespace aeshna::nn {

/// One call of a builder function: its refusals say which function it is and where it was called.
class Call {
 public:
  /// `who` opens every message: "[nn::linear] 'name'".
  Call(std::string who, const Loc& loc) : who_(std::move(who)), loc_(loc) {}

  [[noreturn]] void reject(ErrorCode code, std::string_view message) const;
  template <class... Args>
  void require(bool ok, std::format_string<Args...> format, Args&&... args) const {
    if (!ok) reject(ErrorCode::InvalidArgument, formatted(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void require_shape(bool ok, std::format_string<Args...> format, Args&&... args) const {
    if (!ok) reject(ErrorCode::ShapeMismatch, formatted(format, std::forward<Args>(args)...));
  }

  Operand at(Value v) const { return {v, loc_}; }
  Operand at(double number) const { return {number, loc_}; }
  const Loc& loc() const { return loc_; }

 private:
  std::string who_;
  Loc loc_;
};

/// One layer being built.
class Layer : public Call {
 public:
  /// Refuses an empty name and an empty x.
  Layer(std::string_view kind, std::string_view name, const Value& x, const Loc& loc);

  /// "<name>.<part>"
  std::string part(std::string_view part) const { return formatted("{}.{}", name_, part); }
  Value parameter(std::string_view part, Shape shape, std::optional<Init> init, bool trainable) const;
  Graph& graph() const { return x_.graph(); }
  const Value& x() const { return x_; }

 private:
  std::string name_;
  Value x_;
};

/// scale (x A^T) B^T, [..., out], of a layer's x; parameters "<name>.lora_A.weight" [rank, in] and, at first zero,
/// "<name>.lora_B.weight" [out, rank].
Value low_rank(const Layer& layer, std::int64_t out, std::int64_t rank, double scale, bool trainable);

}  // namespace aeshna::nn
