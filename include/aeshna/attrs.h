#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "aeshna/shape.h"

namespace aeshna {

/// An immutable tensor value on the host: constants of a graph, small file contents.
/// Elements are in their storage format, row-major, little-endian; booleans are one byte.
class Literal {
 public:
  Literal() = default;
  Literal(TensorType type, std::vector<std::byte> bytes);
  static Literal scalar(double value, DType dtype = DType::f32);
  /// Each value is converted to `type.dtype`; throws Error(OutOfRange) if an integer type cannot hold it exactly.
  static Literal from_doubles(TensorType type, std::span<const double> values);

  const TensorType& type() const { return type_; }
  std::span<const std::byte> bytes() const { return bytes_ ? std::span<const std::byte>(*bytes_) : std::span<const std::byte>(); }
  /// Element in row-major order as a double (exact for every dtype of up to 53 significant bits). Not for quantized types.
  double at(std::int64_t index) const;
  std::vector<double> to_doubles() const;
  friend bool operator==(const Literal& a, const Literal& b);

 private:
  TensorType type_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
};

/// The closed set of attribute values; each round-trips exactly through the text form.
using AttrValue =
    std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>, std::vector<double>, Literal>;

/// Attributes of a node, sorted by name.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> values);

  void set(std::string name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  /// Throws Error(InvalidArgument) naming the attribute when it is absent or of another type.
  template <class T>
  const T& get(std::string_view name) const {
    const AttrValue* value = find(name);
    if (value != nullptr) {
      if (const T* typed = std::get_if<T>(value)) return *typed;
    }
    missing(name, value != nullptr);
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    return find(name) != nullptr ? get<T>(name) : std::move(fallback);
  }
  std::span<const std::pair<std::string, AttrValue>> items() const { return items_; }
  /// Numbers are compared by bits: 0 and -0 differ, a NaN equals itself.
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  [[noreturn]] static void missing(std::string_view name, bool wrong_type);
  std::vector<std::pair<std::string, AttrValue>> items_;
};

}  // namespace aeshna
