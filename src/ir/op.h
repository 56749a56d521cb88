#pragma once
// An op is ONE record. Everything else (types, gradients, reference, kernels, tests, docs) is derived from it.
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"
#include "ir/kernel.h"

namespace aeshna {

struct Caps;

/// What the compiler may assume about an op. Movement ops become access maps, never kernels of their own when they can be fused.
enum class OpKind : std::uint8_t {
  Leaf,       ///< input, parameter, state, constant
  Sink,       ///< assign, and checks that write the status word
  Pointwise,  ///< one scalar result per element of the broadcast shape; `pointwise` is set
  Gather,     ///< gather_elements: one element of x for each element of the index; a load whose address depends on data
  Movement,   ///< reshape permute slice expand pad concat: `movement` says which
  Index,      ///< iota: a function of coordinates alone
  Random,     ///< random_bits: a function of coordinates, seed and step
  Reduce,     ///< `reduce` says how; attrs "axes" (sorted ints), "keepdims" (bool)
  Product,    ///< matmul, convolutions: `contraction` says how
  Kernel,     ///< has a kernel template of its own: operands and results are in memory, nothing is fused into it (`lower`,
              ///< `accepts_view`, `updates`); may have several results
  Composite,  ///< has `expand`; gone before fusion
};

enum class MovementKind : std::uint8_t { None, Reshape, Permute, Slice, Expand, Pad, Concat, Flip, Windows };

/// How the gradient of an op is found.
enum class GradientKind : std::uint8_t {
  Rule,               ///< `vjp`
  Expansion,          ///< differentiate `expand`
  Zero,               ///< zero_gradient: floor, sign, comparisons
  NotDifferentiable,  ///< an error that names the op and the path
};

/// A dense tensor of the interpreter: every element a double, row-major (integers up to 2^53, booleans 0 or 1).
struct HostTensor {
  TensorType type;
  std::vector<double> data;
  HostTensor() = default;
  explicit HostTensor(TensorType t) : type(std::move(t)), data(static_cast<std::size_t>(type.shape.elements())) {}
};

/// Inputs of `infer`. `fail` throws Error with "[op] message", the operand types and the builder line as contexts.
struct InferContext {
  const OpDef& op;
  std::span<const TensorType> inputs;
  const Attrs& attrs;
  const SourceLine& line;
  [[noreturn]] void fail(ErrorCode code, std::string message) const;
};

/// Where vjp and expand append nodes. `line`, segment, precision and origins come from the node being treated.
struct BuildContext {
  Graph& graph;
  const Node& like;  ///< a COPY's reference: stays valid while nodes are appended
  Value add(std::string_view op, std::vector<Value> inputs, Attrs attrs = {}, std::uint32_t result = 0) const;
  Value scalar(double value, DType dtype = DType::f32) const;
};

struct EvalContext {
  const Node& node;
  std::span<const HostTensor* const> inputs;
  std::span<HostTensor> results;  ///< allocated with the inferred types, zero-filled
};

/// Shapes and values on which the harness runs a record.
struct OpCase {
  std::vector<TensorType> inputs;
  Attrs attrs;
  std::vector<std::pair<double, double>> ranges;  ///< per input: values are drawn from [low, high]; missing: [-2, 2]
  std::vector<std::vector<double>> values;        ///< per input: explicit values instead (cycled); empty: drawn
  double rtol = 2e-6;                             ///< elementwise |got - want| <= atol + rtol * |want|; reductions scale it by sqrt(K)
  double atol = 1e-6;
  bool gradient = true;  ///< false: this case sits on a kink or a domain edge
};

using ReduceOp = ReduceKind;

struct PointwiseDef {
  int arity = 1;
  /// GLSL expression in a, b, c (already of the compute dtype), e.g. "max(a, 0.0)" or "ae_exp(a)".
  std::string_view glsl_f32;
  std::string_view glsl_i32;   ///< empty: not defined for i32
  std::string_view glsl_u32;
  std::string_view glsl_bool;  ///< empty: not defined for booleans
  double (*eval)(double a, double b, double c) = nullptr;      ///< floats
  double (*eval_int)(double a, double b, double c) = nullptr;  ///< i32/u32/bool; null: eval, wrapped to the dtype's range
  bool boolean_result = false;                                  ///< comparisons, is_finite
  int cost = 1;                                                 ///< relative cost; >= 8: transcendental, not recomputed across a large broadcast
};

/// How a Product contracts: result[r] = sum over k of operand0[index0(r, k)] * operand1[index1(r, k)].
struct Contraction {
  enum class Role : std::uint8_t { Batch, Row, Column };  ///< axes of operand 0 and 1, of 0 alone, of 1 alone
  std::vector<Role> roles;                                ///< per axis of the result
  std::vector<std::int64_t> k;                            ///< contracted extents
  /// One axis of an operand: sum of result axes and, counted on from them, of k axes, each times a coefficient.
  struct Index {
    struct Term {
      std::size_t axis;
      std::int64_t coefficient = 1;
    };
    std::vector<Term> terms;
    std::int64_t offset = 0;  ///< an index outside the operand reads 0
  };
  std::array<std::vector<Index>, 2> operands;
};

struct OpDef {
  std::string name;
  std::string doc;  ///< one line, goes to docs/ops.md
  OpKind kind = OpKind::Composite;
  int min_inputs = 1;
  int max_inputs = 1;  ///< -1: any number
  std::function<std::vector<TensorType>(const InferContext&)> infer;
  GradientKind gradient = GradientKind::NotDifferentiable;
  /// d(inputs) for d(results); an empty Value means zero. `inputs` and `results` are the node's own values; dy[i] may be empty.
  std::function<std::vector<Value>(const BuildContext&, std::span<const Value> inputs, std::span<const Value> results,
                                   std::span<const Value> dy)>
      vjp;
  std::function<void(const EvalContext&)> eval;
  std::function<std::vector<Value>(const BuildContext&, std::span<const Value> inputs)> expand;
  /// Fused kernels anchored at this op, best first; each rejected candidate says why (see Candidate).
  std::function<std::vector<Candidate>(const FusedKernel&, const Caps&)> lower;
  /// Product: of a node with these operands.
  std::function<Contraction(const Node& node, std::span<const TensorType> inputs)> contraction;
  std::function<std::vector<OpCase>()> cases;
  PointwiseDef pointwise;
  /// Kernel: whether operand `input`, a view (`access` over its own axes, without guards; strides of flipped axes are negative) of
  /// something in memory, can be read as it is. Unset: only dense operands; others are put in memory first.
  std::function<bool(std::size_t input, const Access& access)> accepts_view;
  /// Kernel: this operand is updated in place: result 0 holds its old contents where the kernel does not write. The operand is
  /// not bound; the planner gives the kernel its memory, or a copy of it.
  std::optional<std::size_t> updates;
  /// `infer` has a rule for quantized operands; everywhere else they are refused by name.
  bool reads_quantized = false;
  /// Composite: its results are elements of its operands; f16 and bf16 go through it as they are (compile/widen.h).
  bool moves_elements = false;
  /// Its result is large and cheap to make: the derivative region makes it again rather than have it kept.
  bool recomputed = false;
  MovementKind movement = MovementKind::None;
  ReduceKind reduce = ReduceKind::Sum;
};

/// All records, defined in ops/table.cpp, sorted by name.
std::span<const OpDef> op_table();
/// Throws Error(NotFound).
const OpDef& find_op(std::string_view name);

}  // namespace aeshna
