#pragma once
// Runs the assignments of a graph: known values are computed, fragments expanded, operations handed on.
#include <map>

#include "io/nnef/value.h"

namespace aeshna::nnef {

/// One call of an operation.
struct Invocation {
  const Fragment& declaration;
  std::vector<Any> arguments;   ///< one for each parameter, of its type
  std::optional<Type> element;  ///< what the generic type stands for, where that is known
  Place place;
  const Expr* target = nullptr;  ///< what the call is assigned to, if it is the whole right-hand side
  bool in_graph = false;         ///< in the graph itself, not in a fragment
};

/// The operations that exist, and what becomes of a call.
class Operations {
 public:
  virtual ~Operations() = default;
  virtual const Fragment* declaration(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;
  /// One for each result.
  virtual std::vector<Any> call(const Invocation& invocation) = 0;
};

using Names = std::map<std::string, Any, std::less<>>;

/// Runs the graph and returns what its names stand for. Work and memory are bounded by the limits in evaluate.cpp, whatever the
/// document says. Error(CorruptFile) with file and place; Error(LimitExceeded).
Names evaluate(const Document& document, Operations& operations);

}  // namespace aeshna::nnef
