#pragma once
// The oracle: plain loops in double over OpDef::eval.
#include <map>
#include <string>
#include <vector>

#include "aeshna/graph.h"
#include "ir/op.h"

namespace aeshna {

enum class Rounding {
  Exact,    ///< every value a double
  Storage,  ///< rounded to the node's dtype after each node (f32 arithmetic's own error, node by node)
  Upward,   ///< like Storage, f32 toward +infinity: a second sample of that error, for sums in which the first happens to vanish
};

using TensorMap = std::map<std::string, HostTensor, std::less<>>;

struct InterpreterResult {
  TensorMap outputs;
  TensorMap assigned;  ///< new values of assigned leaves
  std::vector<std::vector<HostTensor>> values;  ///< of every node, if asked for
};

/// Runs one step. `leaves` holds every input, parameter and state; missing or mistyped ones are Error(NotFound/ShapeMismatch).
InterpreterResult interpret(const Graph& graph, const TensorMap& leaves, Rounding rounding = Rounding::Exact, bool keep_values = false);

/// Rounds a double to a dtype's storage precision (ties to even; integers wrap; f16 overflow to inf).
double round_to(DType dtype, double value);

}  // namespace aeshna
