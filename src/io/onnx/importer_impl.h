#pragma once
// Translates a model node by node. importer.cpp: nodes and folding; leaves.cpp: inputs, weights, outputs; control.cpp: functions, branches,
// loops; sequence.cpp: sequences.
#include <deque>
#include <set>
#include <unordered_map>

#include "io/onnx/importer.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {

using Symbols = std::vector<Symbol*>;
using Opsets = std::map<std::string, std::int64_t>;

inline constexpr int kMaxNesting = 32;                // of subgraphs and functions
inline constexpr std::int64_t kMaxIterations = 1024;  // of a loop that is unrolled

/// Names of one graph; null: made by a node that is not supported.
struct Scope {
  std::unordered_map<std::string, Symbol*> names;
  const Scope* outer = nullptr;
  /// Whether the name is known, and what it stands for.
  std::pair<bool, Symbol*> find(const std::string& name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (const auto found = s->names.find(name); found != s->names.end()) return {true, found->second};
    }
    return {false, nullptr};
  }
};

bool on_device(DType dtype);
/// Why a node that computes with this dtype is refused.
std::string off_device(DType dtype);
/// Error(OutOfRange) if the dtype cannot hold the values.
Literal converted(const Literal& literal, DType dtype);

/// Nodes that the outputs need, each after what it reads. Error(CorruptFile) for a cycle or a name that is made twice.
std::vector<const Node*> in_order(std::span<const Node> nodes, std::span<const std::string> outputs,
                                  const std::string& file);

class Importer final : public Target {
 public:
  Importer(const Model& model, const ImportOptions& options, Outcome& outcome)
      : Target(*outcome.model.graph), model_(model), options_(options), outcome_(outcome) {}

  void run();

  /// The value of a symbol in the imported graph.
  Value value(Symbol& s) override;

 private:
  Symbol* symbol(Symbol s);

  Symbol* constant(const Literal& literal, std::string weight = {}, int bits = 0);

  // ---- leaves

  /// The mean and variance of a batch normalization are no weights that training changes.
  void find_statistics(std::span<const Node> nodes);

  void declare(Scope& scope, const std::string& name, Symbol* s) const;

  void declare_initializers(const Graph& from, Scope& scope);

  void declare_inputs(Scope& scope);

  std::optional<Shape> input_shape(const ValueInfo& info, std::vector<std::string>& open) const;

  Literal bound_value(const ValueInfo& info, const Literal& given, DType dtype) const;

  void add_output(const std::string& name, const Scope& scope);

  // ---- nodes

  void refuse(UnsupportedNode node);

  void run_nodes(std::span<const Node> nodes, std::span<const std::string> outputs, Scope& scope, const Opsets& opsets,
                 int depth);

  void count(std::size_t nodes);

  void run_node(const Node& node, Scope& scope, const Opsets& opsets, int depth);

  /// Errors and dumps of the graph name the node of the file.
  void name_nodes(const Node& node, std::size_t first, const Symbols& results);

  Symbols translate(const Node& node, std::span<Symbol* const> inputs, bool complete, Scope& scope,
                    const Opsets& opsets, int depth);

  Symbols constants(const Op& op, const Node& node, std::span<Symbol* const> inputs, std::int64_t opset);

  /// The results of a node whose inputs are known; none if they are too large to keep.
  std::optional<Symbols> evaluate(const Op& op, const Node& node, std::span<Symbol* const> inputs, std::int64_t opset);

  // ---- functions and control flow

  const Function* find_function(const Node& node) const;

  Symbols call(const Function& function, const Node& node, std::span<Symbol* const> inputs, int depth);

  Symbols collect(std::span<const std::string> names, const Scope& scope) const;

  /// One evaluation of a subgraph.
  Symbols run_body(const Graph& body, std::span<Symbol* const> arguments, const Scope& outer, const Opsets& opsets,
                   int depth);

  Symbols branch(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                 int depth);

  Symbol* stacked(const Symbols& parts, std::size_t axis, bool reversed);

  Symbols loop(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets, int depth);

  Symbols scan(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets, int depth);

  // ---- sequences, which exist while a model is loaded only

  /// Null: this op has nothing to do with them.
  using SequenceOp = Symbols (Importer::*)(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                                           const Opsets& opsets, int depth);
  static SequenceOp sequence_op(const Node& node);
  Symbol* sequence(Symbols list);
  Symbols sequence_construct(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                             const Opsets& opsets, int depth);
  Symbols sequence_insert(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                          int depth);
  Symbols sequence_erase(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                         int depth);
  Symbols sequence_at(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                      int depth);
  Symbols sequence_length(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                          int depth);
  Symbols split_to_sequence(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                            int depth);
  Symbols concat_from_sequence(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                               const Opsets& opsets, int depth);
  Symbols sequence_map(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                       int depth);
  Symbols optional_has_element(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                               const Opsets& opsets, int depth);
  Symbols optional_element(const Node& node, std::span<Symbol* const> inputs, const Scope& scope, const Opsets& opsets,
                           int depth);

  const Model& model_;
  const ImportOptions& options_;
  Outcome& outcome_;
  std::deque<Symbol> symbols_;
  std::deque<std::vector<Node>> kept_;
  std::set<std::string> statistics_;
  std::size_t translated_ = 0;
  std::int64_t folded_ = 0;
};

}  // namespace aeshna::onnx
