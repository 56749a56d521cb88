#pragma once
// How ops are translated: one table of names and functions, each of which sees a node through a Context.
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/ops.h"
#include "io/onnx/model.h"

namespace aeshna::onnx {

using Ints = std::vector<std::int64_t>;
using Values = std::vector<Value>;

/// Why a node cannot be translated. Caught by the importer, which lists them all.
struct Refusal {
  std::string reason;
  std::size_t input = SIZE_MAX;  ///< the input whose value should have been known
};

/// What a name of the model stands for.
struct Symbol {
  TensorType type = {};
  std::optional<Literal> known = {};               ///< its value, where it does not depend on the graph's inputs
  std::string weight = {};                         ///< known and a weight: the name of the parameter it becomes
  Value value = {};                                ///< in the imported graph; made of `known` when first asked for
  int bits = 0;                                    ///< 4: a 4-bit type, kept in 8 bits
  std::optional<std::vector<Symbol*>> items = {};  ///< of a sequence, which is no tensor
  std::set<std::string> inputs = {};               ///< inputs of the graph that it depends on
};

/// The graph that a node is translated into, and how a known value gets there.
class Target {
 public:
  explicit Target(aeshna::Graph& graph) : graph(graph) {}
  virtual ~Target() = default;
  virtual Value value(Symbol& symbol) = 0;
  aeshna::Graph& graph;
};

/// A node, as its translation sees it. Attributes that were not read when it returns are refused by name.
class Context {
 public:
  Context(Target& target, const Node& node, std::span<Symbol* const> inputs, std::int64_t opset, bool f64_as_f32)
      : graph(target.graph), node(node), opset(opset), target_(target), inputs_(inputs), f64_as_f32_(f64_as_f32) {}

  aeshna::Graph& graph;
  const Node& node;
  const std::int64_t opset;
  int result_bits = 0;  ///< set to 4 by ops whose results are 4-bit integers

  // ---- inputs
  std::size_t inputs() const { return inputs_.size(); }
  std::size_t outputs() const { return node.outputs.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  bool wants(std::size_t output) const { return output < node.outputs.size() && !node.outputs[output].empty(); }
  Value in(std::size_t i);
  std::optional<Value> maybe(std::size_t i) { return has(i) ? std::optional(in(i)) : std::nullopt; }
  const TensorType& type(std::size_t i);
  DType dtype(std::size_t i) { return type(i).dtype; }
  const Shape& shape(std::size_t i) { return type(i).shape; }
  int rank(std::size_t i) { return shape(i).rank(); }
  int bits(std::size_t i) { return symbol(i).bits; }
  /// The value of an input that must be known now; `what` says what for.
  const Literal& known(std::size_t i, std::string_view what);
  const Literal* if_known(std::size_t i);
  Ints ints(std::size_t i, std::string_view what);
  std::int64_t integer(std::size_t i, std::string_view what);
  double number(std::size_t i, std::string_view what);

  // ---- attributes
  bool has_attribute(std::string_view name) const { return find(name) != nullptr; }
  std::int64_t integer(std::string_view name, std::optional<std::int64_t> fallback = {});
  bool flag(std::string_view name, bool fallback) { return integer(name, fallback ? 1 : 0) != 0; }
  double number(std::string_view name, std::optional<double> fallback = {});
  std::string text(std::string_view name, std::string_view fallback);
  Ints ints(std::string_view name, Ints fallback = {});
  std::vector<double> numbers(std::string_view name, std::vector<double> fallback = {});
  std::vector<std::string> texts(std::string_view name);
  const Attribute& attribute(std::string_view name);           ///< any kind; refuses where it is absent
  void ignore(std::string_view name) { read_.emplace(name); }  ///< has no meaning here
  /// The attribute `name` may be there with this value alone.
  void only(std::string_view name, std::int64_t value);
  void refuse_unread() const;

  // ---- both: an attribute in old opsets, an input from `since` on
  Ints ints_since(std::int64_t since, std::string_view name, std::size_t i, Ints fallback = {});

  // ---- help
  [[noreturn]] void refuse(std::string reason) const { throw Refusal{std::move(reason)}; }
  int axis(std::int64_t axis, int rank) const;
  Ints axes(const Ints& axes, int rank) const;  ///< normalized, ascending, distinct
  /// The dtype that the attribute `name` gives as ONNX's number; sets result_bits.
  DType element(std::string_view name, std::optional<DType> fallback = {});
  DType element(std::int64_t number);
  Value constant(double value, DType dtype = DType::f32) { return graph.constant(value, dtype); }
  Value tensor(const Shape& shape, std::span<const double> values, DType dtype = DType::f32) {
    return graph.constant(Literal::from_doubles({dtype, shape}, values));
  }
  /// The operand with one element count that broadcasts: a scalar of this value in that shape.
  Value filled(const Shape& shape, double value, DType dtype);

 private:
  const Attribute* find(std::string_view name) const;
  const Attribute* read(std::string_view name, Attribute::Kind kind);
  Symbol& symbol(std::size_t i);

  Target& target_;
  std::span<Symbol* const> inputs_;
  bool f64_as_f32_;
  std::set<std::string, std::less<>> read_;
};

using Translate = Values (*)(Context&);

struct Op {
  const char* name;
  Translate translate;
  std::int64_t since = 1;  ///< opset in which the op appeared
  bool fold = true;        ///< evaluated at load time where all inputs are known
  const char* domain = "";
};

// One family each; the files say what is in them.
std::span<const Op> math_ops();
std::span<const Op> logic_ops();
std::span<const Op> shape_ops();
std::span<const Op> index_ops();
std::span<const Op> reduce_ops();
std::span<const Op> product_ops();
std::span<const Op> window_ops();
std::span<const Op> norm_ops();
std::span<const Op> loss_ops();
std::span<const Op> resize_ops();
std::span<const Op> quantize_ops();
std::span<const Op> recurrent_ops();
std::span<const Op> signal_ops();

/// The first opset that has this op of the default domain, if the importer resolves it itself (branches, loops, sequences); else 0.
std::int64_t control_since(std::string_view op);
/// Null where there is no such op.
const Op* find_op(std::string_view domain, std::string_view name);
std::span<const Op* const> all_ops();  ///< by name

// ---- what families share
/// Integers of less than 32 bits as i32, the others as they are: arithmetic is defined for these.
Value widen(Value x);
/// f(widen(a), ...) as the dtype of a.
template <class F>
Value in_wide(Value a, F f) {
  const DType dtype = a.dtype();
  const Value y = f(widen(a));
  return y.dtype() == dtype ? y : cast(y, dtype);
}
template <class F>
Value in_wide(Value a, Value b, F f) {
  const DType dtype = a.dtype();
  const Value y = f(widen(a), widen(b));
  return y.dtype() == dtype ? y : cast(y, dtype);
}
/// Operand 1. Before opset 7 it was put at the attribute `axis`, on request.
Value second_operand(Context& c);
/// The elements of an integer or boolean constant.
Ints to_ints(const Literal& literal);
Value reshaped(Value x, const Ints& dims);
Ints dims_of(const Shape& shape);
/// 0, 1, ..., n - 1 in this dtype, as [n].
Value counted(Context& c, std::int64_t n, DType dtype);
/// Indices that may count from the end of an axis of `extent`, as i32 or i64 in [0, extent).
Value from_start(Value indices, std::int64_t extent);

}  // namespace aeshna::onnx
