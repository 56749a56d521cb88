#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/attrs.h"
#include "aeshna/error.h"
#include "aeshna/shape.h"

namespace aeshna {

struct OpDef;
class Graph;

using NodeId = std::uint32_t;

/// One result of one node.
struct ValueId {
  NodeId node = 0;
  std::uint32_t result = 0;
  friend auto operator<=>(const ValueId&, const ValueId&) = default;
};

/// Where the user wrote it.
struct SourceLine {
  std::string file;
  std::uint32_t line = 0;
  SourceLine() = default;
  SourceLine(std::string file_name, std::uint32_t line_number) : file(std::move(file_name)), line(line_number) {}
  SourceLine(const std::source_location& l) : file(l.file_name()), line(l.line()) {}  // NOLINT: implicit on purpose
  std::string to_string() const;  ///< "file.cpp:12", "?" when unknown
};

/// Which recorded list a node belongs to; forward < backward < update (design: recorded segments).
enum class Segment : std::uint8_t { Forward, Backward, Update };

/// `Full`: products of this node never take reduced-precision inputs (the derivative region).
enum class Precision : std::uint8_t { Contract, Full };

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;
  Attrs attrs;
  std::vector<TensorType> results;
  std::string name;             ///< leaves: their unique name; others: optional, for messages and dumps
  SourceLine line;              ///< builder line
  std::vector<NodeId> origins;  ///< nodes of the user's graph that this one stands for; empty: itself (no pass has made it)
  Segment segment = Segment::Forward;
  Precision precision = Precision::Contract;
};

/// A handle on a value of a graph; cheap to copy. Valid while the graph lives (and is not moved).
class Value {
 public:
  Value() = default;
  Value(Graph* graph, ValueId id) : graph_(graph), id_(id) {}
  explicit operator bool() const { return graph_ != nullptr; }
  Graph& graph() const;
  ValueId id() const { return id_; }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  const Node& node() const;
  /// Names the value (a scope prefix is added; the last name given counts); returns itself. Leaves keep their name: Error(InvalidArgument).
  Value named(std::string_view name) const;
  friend bool operator==(const Value&, const Value&) = default;

 private:
  Graph* graph_ = nullptr;
  ValueId id_;
};

/// How a parameter or state gets its first value. Drawn on the CPU from Philox4x32-10 keyed by the
/// Weights' seed and the parameter's name, so that the result does not depend on the order of construction.
struct Init {
  enum class Kind : std::uint8_t { Zeros, Constant, Uniform, Normal, KaimingUniform, KaimingNormal, XavierUniform, XavierNormal };
  Kind kind = Kind::Zeros;
  double a = 0;  ///< Constant: value; Uniform: low; Normal: mean; Kaiming*/Xavier*: gain
  double b = 0;  ///< Uniform: high; Normal: standard deviation
  static Init zeros() { return {}; }
  static Init constant(double value) { return {Kind::Constant, value, 0}; }
  static Init uniform(double low, double high) { return {Kind::Uniform, low, high}; }
  static Init normal(double mean, double stddev) { return {Kind::Normal, mean, stddev}; }
  static Init kaiming_uniform(double gain = 1.4142135623730951) { return {Kind::KaimingUniform, gain, 0}; }
  static Init kaiming_normal(double gain = 1.4142135623730951) { return {Kind::KaimingNormal, gain, 0}; }
  static Init xavier_uniform(double gain = 1) { return {Kind::XavierUniform, gain, 0}; }
  static Init xavier_normal(double gain = 1) { return {Kind::XavierNormal, gain, 0}; }
  friend bool operator==(const Init&, const Init&) = default;
};

struct ParameterOptions {
  /// Unset (the default): Kaiming uniform with gain sqrt(1/3) for rank >= 2 (bound 1/sqrt(fan_in), as torch's Linear), zeros below.
  std::optional<Init> init = {};
  DType dtype = DType::f32;
  bool trainable = true;   ///< false: frozen; no gradient, no optimizer state
  double lr_scale = 1;     ///< multiplier of the learning rate
  double decay_scale = 1;  ///< multiplier of the weight decay
};

/// A typed static graph in SSA form. Nodes are in topological order: a node's inputs precede it.
/// Builders validate at once: a wrong shape or dtype throws Error naming the op, the types and the caller's line.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = delete;  // Values point at their graph
  Graph& operator=(Graph&&) = delete;

  using Loc = std::source_location;
  /// Data written by the host before a step. Names are unique among leaves.
  Value input(std::string_view name, Shape shape, DType dtype = DType::f32, Loc loc = Loc::current());
  /// A tensor of Weights.
  Value parameter(std::string_view name, Shape shape, ParameterOptions options = {}, Loc loc = Loc::current());
  Value constant(Literal value, Loc loc = Loc::current());
  Value constant(double value, DType dtype = DType::f32, Loc loc = Loc::current());
  /// Persistent device state (running statistics, counters, caches). Reading it gives the value at the start of the step.
  Value state(std::string_view name, Shape shape, DType dtype = DType::f32, Init init = {}, Loc loc = Loc::current());
  /// The state's (or parameter's) value after the step; at most one assign per leaf.
  void assign(Value state, Value value, Loc loc = Loc::current());
  /// Names a result that the host may read after a step. Output names are unique.
  void output(std::string_view name, Value value, Loc loc = Loc::current());

  /// Appends a node of the named op; infers and checks its types. Used by the op functions, passes and importers.
  Value add(std::string_view op, std::span<const Value> inputs, Attrs attrs, SourceLine line, std::uint32_t result = 0);
  /// The general form for passes: everything but op, inputs and attrs is copied from `like`; returns the new node's id.
  NodeId add_node(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, const Node& like);

  /// Layers push a scope; names given inside are prefixed "scope/".
  void push_scope(std::string_view name);
  void pop_scope();

  std::span<const Node> nodes() const { return nodes_; }
  const Node& node(NodeId id) const;
  Node& mutable_node(NodeId id);  ///< for passes: names, segments, precision, origins; never inputs or types
  const TensorType& type(ValueId id) const;
  Value value(ValueId id) { return Value(this, id); }

  struct Output {
    std::string name;
    ValueId value;
    SourceLine line;
  };
  std::span<const Output> outputs() const { return outputs_; }
  /// assign sinks in order of creation.
  std::span<const NodeId> assigns() const { return assigns_; }
  /// Leaf (input, parameter, state) by name; nullopt when absent.
  std::optional<NodeId> leaf(std::string_view name) const;
  /// Any named value; throws Error(NotFound) listing near names.
  Value find(std::string_view name);

  /// Text form; parse_graph(print(g)) prints the same text. See docs/graph-text.md.
  std::string print() const;

 private:
  friend class GraphAccess;  // ir/: rebuild and parse
  friend class Value;
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
  std::vector<NodeId> assigns_;
  std::map<std::string, NodeId, std::less<>> leaves_;
  std::vector<std::string> scopes_;
  void rename(NodeId id, std::string_view name);
  Value add_leaf(std::string_view op, std::string_view name, TensorType type, Attrs attrs, SourceLine line);
};

/// Appends the graph written in `text` to the empty graph `into`. Throws Error(CorruptFile) with line and column.
void parse_graph(std::string_view text, Graph& into);

/// RAII scope for names: `Scope s(graph, "encoder");`
class Scope {
 public:
  Scope(Graph& graph, std::string_view name) : graph_(graph) { graph_.push_scope(name); }
  ~Scope() { graph_.pop_scope(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
};

/// An argument of an op: a Value or a number (which takes the other operand's dtype). Captures the caller's line.
class Operand {
 public:
  using Loc = std::source_location;
  Operand(Value v, Loc loc = Loc::current()) : value_(v), line_(loc) {}          // NOLINT: implicit on purpose
  Operand(double v, Loc loc = Loc::current()) : number_(v), line_(loc) {}        // NOLINT
  Operand(float v, Loc loc = Loc::current()) : number_(v), line_(loc) {}         // NOLINT
  Operand(int v, Loc loc = Loc::current()) : number_(v), line_(loc) {}           // NOLINT
  Operand(std::int64_t v, Loc loc = Loc::current()) : number_(static_cast<double>(v)), line_(loc) {}  // NOLINT
  bool is_number() const { return !value_; }
  double number() const { return number_; }
  const Value& value() const { return value_; }
  const Loc& line() const { return line_; }

 private:
  Value value_;
  double number_ = 0;
  Loc line_;
};

}  // namespace aeshna
