#pragma once
// The text of an NNEF 1.0 graph (Khronos, "Neural Network Exchange Format", chapter 3) as a tree. Fragments, operator expressions and
// comprehensions are kept as they are written; evaluate.h expands them.
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::nnef {

struct Place {
  std::uint32_t line = 1, column = 1;
  friend auto operator<=>(const Place&, const Place&) = default;
};
/// Error(CorruptFile) "file:line:column: message".
[[noreturn]] void wrong_at(std::string_view file, Place place, std::string_view message);

struct Type {
  enum class Kind : std::uint8_t { Integer, Scalar, Logical, String, Generic, Tensor, Array, Tuple };
  Kind kind = Kind::Scalar;
  std::vector<Type> items = {};  ///< Tensor: its element (none: any); Array: its item; Tuple: its items
  /// As it is written.
  std::string to_string() const;
  /// Holds tensors.
  bool is_tensor() const {
    return kind == Kind::Tensor || ((kind == Kind::Array || kind == Kind::Tuple) && items[0].is_tensor());
  }
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : std::uint8_t {
    Integer,
    Scalar,
    Logical,
    String,
    Name,
    Array,
    Tuple,
    Subscript,  ///< items: sequence, first, last (either may be null); `range`: [first:last]
    Unary,
    Binary,         ///< text: the operator
    IfElse,         ///< items: condition, then, else
    Comprehension,  ///< items: iterables, condition (may be null), item; targets: one for each iterable
    Builtin,        ///< text: shape_of, length_of, range_of, integer, scalar, logical or string
    Call,           ///< text: the operation; names: of the arguments, empty where positional
  };
  Kind kind = Kind::Integer;
  Place place;
  int depth = 1;  ///< of the tree, bounded when it is built: who walks it may recurse
  std::int64_t integer = 0;
  double scalar = 0;
  bool logical = false, range = false;
  std::string text;
  std::vector<ExprPtr> items, targets;
  std::vector<std::string> names;
  std::optional<Type> element;  ///< Call: what is written in < >
};

struct Assignment {
  ExprPtr target;  ///< names, tuples and arrays of them
  ExprPtr value;
};

struct Parameter {
  std::string name;
  Type type;
  ExprPtr fallback;  ///< null: must be given
  Place place;
};

struct Fragment {
  std::string name;
  Place place;
  bool generic = false;
  std::optional<Type> generic_default;
  std::vector<Parameter> parameters, results;
  std::vector<Assignment> body;
  bool has_body = false;
};

struct Document {
  std::string file, version;
  std::vector<std::string> extensions;
  std::vector<Fragment> fragments;
  Fragment graph;  ///< parameters and results are tensors without types
};

inline constexpr std::string_view kFragmentExtension = "KHR_enable_fragment_definitions";
inline constexpr std::string_view kOperatorExtension = "KHR_enable_operator_expressions";

/// Error(CorruptFile) that says where and what was expected; Error(Unsupported) for another version or extension.
Document parse_document(std::string_view text, const std::string& file);
/// "(x: tensor<scalar>) -> (y: tensor<scalar>)", perhaps after "<?>": how the standard operations are declared.
Fragment parse_signature(std::string_view name, std::string_view signature);

}  // namespace aeshna::nnef
