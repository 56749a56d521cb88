#pragma once
// What an expression of a graph gives: a tensor of the imported graph, or a value that is known when the file is read.
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "aeshna/graph.h"
#include "io/nnef/syntax.h"

namespace aeshna::nnef {

struct Any;
struct Windows;

/// The result of an operation that is not supported: everything computed from it is unknown too, so that one run finds all of them.
struct Unknown {};

struct Tensor {
  Value value;
  /// Set if these are positions in windows (argmax_pool's result), which mean something to sample and desample alone.
  std::shared_ptr<const Windows> positions = {};
};

/// An array or a tuple; immutable and shared.
struct List {
  bool tuple = false;
  std::shared_ptr<const std::vector<Any>> items;
  int depth = 1;  ///< of lists in lists
};

struct Any {
  std::variant<Unknown, std::int64_t, double, bool, std::string, Tensor, List> value;

  Any() = default;
  Any(std::int64_t v) : value(v) {}            // NOLINT: implicit on purpose
  Any(double v) : value(v) {}                  // NOLINT
  Any(bool v) : value(v) {}                    // NOLINT
  Any(std::string v) : value(std::move(v)) {}  // NOLINT
  Any(Tensor v) : value(std::move(v)) {}       // NOLINT
  Any(Value v) : value(Tensor{v}) {}           // NOLINT
  Any(List v) : value(std::move(v)) {}         // NOLINT

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  /// Not known, or a list that holds something that is not.
  bool unknown() const;
};

Any make_array(std::vector<Any> items);
Any make_tuple(std::vector<Any> items);
/// "tensor<scalar>", "(integer, integer)[]".
std::string type_text(const Any& value);
/// The element type of a tensor: f32 scalar, i32 integer, boolean logical.
Type::Kind element_of(DType dtype);
DType dtype_of(Type::Kind element);

}  // namespace aeshna::nnef
