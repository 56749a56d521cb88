#pragma once
// How the standard operations become ops of a graph: one table of names, signatures and functions.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aeshna/ops.h"
#include "base/format.h"
#include "io/nnef/evaluate.h"

namespace aeshna::nnef {

using Ints = std::vector<std::int64_t>;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
using Results = std::vector<Any>;

/// Well-formed, but not supported. Caught by the importer, which lists them all.
struct Refusal {
  std::string reason;
};
/// Against the rules of the format: the file is wrong.
struct Violation {
  std::string message;
};

/// One call, as the operation's function sees it; arguments by the names of the signature.
class Call {
 public:
  Call(Graph& g, const Invocation& i) : graph(g), invocation(i) {}
  Graph& graph;
  const Invocation& invocation;

  Value tensor(std::string_view name);  ///< a known value becomes a constant of rank 0
  std::vector<Value> tensors(std::string_view name);
  std::optional<double> known(std::string_view name) const;  ///< of a tensor that was written as a number
  const Any& any(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  Ints ints(
      std::string_view name) const;  ///< of magnitudes below 2^31, so that arithmetic on two of them cannot overflow
  Pairs pairs(std::string_view name) const;
  std::int64_t axis(std::string_view name, int rank) const;
  Ints axes(std::string_view name, int rank) const;  ///< ascending, distinct

  [[noreturn]] void refuse(std::string reason) const { throw Refusal{std::move(reason)}; }
  [[noreturn]] void wrong(std::string message) const { throw Violation{std::move(message)}; }

 private:
  Value made(const Any& value);
};

using Translate = Results (*)(Call&);

struct Operation {
  const char* name;
  const char* signature;          ///< as NNEF declares a fragment
  Translate translate = nullptr;  ///< null: not supported, or a leaf, which the importer makes
  const char* note = "";          ///< what is not supported, and why; for docs/nnef.md
  bool leaf = false;
};

// One family each; the files say what is in them.
std::span<const Operation> leaf_operations();
std::span<const Operation> pointwise_operations();
std::span<const Operation> shape_operations();
std::span<const Operation> reduce_operations();
std::span<const Operation> window_operations();
std::span<const Operation> resample_operations();
std::span<const Operation> product_operations();
std::span<const Operation> norm_operations();
std::span<const Operation> region_operations();
/// All of them, by family.
std::span<const Operation* const> all_operations();

// ---- what families share
/// NNEF aligns shapes at their first axes: ones are appended to the shorter one.
void align(Value& a, Value& b);
Value left_aligned(Value x, int rank);
/// f of the two, aligned so.
template <class F>
Value aligned(F f, Value a, Value b) {
  align(a, b);
  return f(a, b);
}
Ints dims_of(const Shape& shape);
/// Half up in magnitude, as C's round.
Value round_half_away(Value x);

}  // namespace aeshna::nnef
