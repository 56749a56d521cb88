// Algebra on graphs. Rules hold in IEEE arithmetic for every input, NaN, infinities and -0 included: x + 0 -> x is no rule
// for floats (-0 + 0 = +0), nor is x * 0 -> 0 (NaN, infinities), x - x -> 0, or pow(x, 0.5) -> sqrt(x) (they differ at -0 and -inf).
// Two liberties, both in favour of accuracy: pow(x, 2) -> x * x, and sum(expand(x)) -> x * n, which round once where the
// left-hand side may round often. Rules that may run before differentiation create differentiable ops only.
#include "compile/rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "ir/leaf.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

// ---- patterns

/// The node that makes `v`, if its op has this name.
const Node* made_by(Value v, std::string_view op) {
  const Node& node = v.node();
  return node.op->name == op ? &node : nullptr;
}
Value operand(Value v, std::size_t i = 0) { return v.graph().value(v.node().inputs[i]); }
/// The operand of a unary `op` that makes `v`; empty if another op does.
Value under(std::string_view op, Value v) { return made_by(v, op) != nullptr ? operand(v) : Value(); }

/// The value of a literal whose elements are equal bit for bit.
std::optional<double> uniform(const Literal& literal) {
  const std::int64_t n = literal.type().shape.elements();
  if (n == 0 || dtype_info(literal.type().dtype).kind == DTypeInfo::Kind::Quantized) return std::nullopt;
  const double first = literal.at(0);
  for (std::int64_t i = 1; i < n; ++i) {
    if (std::bit_cast<std::uint64_t>(literal.at(i)) != std::bit_cast<std::uint64_t>(first)) return std::nullopt;
  }
  return first;
}
/// The same of a constant, also behind an expand.
std::optional<double> uniform(Value v) {
  if (made_by(v, "expand") != nullptr) v = operand(v);
  return is_constant(v.node()) ? uniform(v.node().attrs.get<Literal>("value")) : std::nullopt;
}
bool is_uniform(Value v, double wanted) {
  const auto found = uniform(v);
  return found && std::bit_cast<std::uint64_t>(*found) == std::bit_cast<std::uint64_t>(wanted);
}
/// The additive identity: -0 for floats (x + -0 = x for every x), 0 for integers.
bool is_add_identity(Value v) { return is_uniform(v, is_float(v.dtype()) ? -0.0 : 0.0); }

// ---- constructions

Value make(const Match& m, std::string_view op, std::vector<Value> in, Attrs attrs = {}) {
  return m.build.add(op, std::move(in), std::move(attrs));
}
Ints ints(const Shape& shape) { return {shape.begin(), shape.end()}; }
Value reshaped(const Match& m, Value x, const Shape& shape) {
  return x.shape() == shape ? x : make(m, "reshape", {x}, {{"dims", ints(shape)}});
}
Value expanded(const Match& m, Value x, const Shape& shape) {
  return x.shape() == shape ? x : make(m, "expand", {x}, {{"dims", ints(shape)}});
}
/// x with the shape of the node that it replaces (the other operand may have stretched it).
Value as_result(const Match& m, Value x) { return expanded(m, x, m.shape()); }
Value scalar(const Match& m, double value, DType dtype) { return m.build.scalar(value, dtype); }

/// 1 / c if that is exact: c a power of two whose reciprocal is a normal number.
std::optional<double> exact_reciprocal(double c, DType dtype) {
  int exponent = 0;
  if (dtype != DType::f32 || !std::isfinite(c) || std::fabs(std::frexp(c, &exponent)) != 0.5) return std::nullopt;
  return exponent > -120 && exponent < 120 ? std::optional(1 / c) : std::nullopt;
}

/// Whether every value of `from` is a value of `to`.
bool widening(DType from, DType to) {
  if (from == DType::boolean) return true;
  if (to == DType::f64)
    return from == DType::f32 || from == DType::f16 || from == DType::bf16 || from == DType::i32 || from == DType::u32;
  return to == DType::f32 && (from == DType::f16 || from == DType::bf16);
}

/// The permutation swaps the last two axes and nothing else.
bool swaps_last_two(const Ints& axes) {
  const auto n = static_cast<std::int64_t>(axes.size());
  if (n < 2) return false;
  for (std::int64_t d = 0; d < n - 2; ++d) {
    if (axes[static_cast<std::size_t>(d)] != d) return false;
  }
  return axes[axes.size() - 2] == n - 1 && axes[axes.size() - 1] == n - 2;
}

/// A matmul whose operand `which` is a transpose takes the operand under it and flips its flag.
Value absorb_transpose(const Match& m, std::size_t which, const char* flag) {
  const Node* permute = made_by(m.in[which], "permute");
  if (permute == nullptr || !swaps_last_two(permute->attrs.get<Ints>("axes"))) return {};
  Attrs attrs = m.node.attrs;
  attrs.set(flag, !attrs.get<bool>(flag));
  std::vector<Value> in(m.in.begin(), m.in.end());
  in[which] = operand(in[which]);
  return make(m, "matmul", std::move(in), std::move(attrs));
}

/// reduce(expand(x)) over axes that the expand made: f(x without those axes, number of equal elements), expanded to the result.
Value reduce_of_expand(const Match& m, Value (*f)(const Match&, Value x, double n)) {
  const Value source = under("expand", m.in[0]);
  if (!source) return {};
  const Shape full = m.in[0].shape();
  const int added = full.rank() - source.shape().rank();
  double count = 1;
  Ints axes = m.node.attrs.get<Ints>("axes"), kept;
  for (const std::int64_t axis : axes) {
    const int d = static_cast<int>(axis);
    if (d >= added && source.shape()[d - added] != 1) return {};
    count *= static_cast<double>(full[d]);
  }
  if (count < 1 || axes.empty()) return {};
  const bool keepdims = m.node.attrs.get<bool>("keepdims");
  for (int d = added; d < full.rank(); ++d) {
    if (keepdims || !std::ranges::contains(axes, d)) kept.push_back(source.shape()[d - added]);
  }
  return as_result(m, f(m, reshaped(m, source, Shape(kept)), count));
}

/// f(..., expand(x), ...) -> expand(f(..., x, ...)), where the outer expand is often not needed.
Value broadcast_instead_of_expand(const Match& m) {
  std::vector<Value> in(m.in.begin(), m.in.end());
  bool found = false;
  Shape shape;
  for (Value& value : in) {
    if (const Value source = under("expand", value)) {
      value = source;
      found = true;
    }
    shape = broadcast_shapes(shape, value.shape());
  }
  if (!found) return {};
  return as_result(m, make(m, m.node.op->name, std::move(in), m.node.attrs));
}

/// A permute that moves only axes of extent 1 leaves the elements where they are.
bool keeps_order(const Ints& axes, const Shape& source) {
  std::int64_t last = -1;
  for (const std::int64_t axis : axes) {
    if (source[static_cast<int>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

Value composed_permute(const Match& m) {
  const Node* inner = made_by(m.in[0], "permute");
  if (inner == nullptr) return {};
  Ints axes;
  for (const std::int64_t axis : m.node.attrs.get<Ints>("axes"))
    axes.push_back(inner->attrs.get<Ints>("axes")[static_cast<std::size_t>(axis)]);
  return make(m, "permute", {operand(m.in[0])}, {{"axes", std::move(axes)}});
}

/// x[B.., M, K] times one matrix: the rows of all batches are rows of one product.
Value flatten_batch(const Match& m) {
  const Shape a = m.in[0].shape(), b = m.in[1].shape();
  if (a.rank() <= 2 || b.rank() != 2 || m.node.attrs.get<bool>("transpose_a")) return {};
  const std::int64_t k = a[a.rank() - 1];
  std::int64_t rows = 1;
  for (int d = 0; d < a.rank() - 1; ++d) rows *= a[d];
  return reshaped(m, make(m, "matmul", {reshaped(m, m.in[0], {rows, k}), m.in[1]}, m.node.attrs), m.shape());
}

bool all_extent_one(const Match& m) {
  return std::ranges::all_of(m.node.attrs.get<Ints>("axes"),
                             [&](std::int64_t d) { return m.in[0].shape()[static_cast<int>(d)] == 1; });
}

bool zero_counts(const Ints& counts) {
  return std::ranges::all_of(counts, [](std::int64_t n) { return n == 0; });
}

// Each rule is a row: op, algebra, body. The body may return an empty Value ("no match").
#define RULE(body) [](const Match& m) -> Value { body }
#define WHEN(condition, result) RULE(return (condition) ? (result) : Value();)

// clang-format off
constexpr RewriteRule kRules[] = {
    // ---- identities and absorbing elements
    {"add", "x + -0 -> x",              WHEN(is_add_identity(m.in[1]), as_result(m, m.in[0]))},
    {"add", "-0 + x -> x",              WHEN(is_add_identity(m.in[0]), as_result(m, m.in[1]))},
    {"sub", "x - 0 -> x",               WHEN(is_uniform(m.in[1], 0.0), as_result(m, m.in[0]))},
    {"mul", "x * 1 -> x",               WHEN(is_uniform(m.in[1], 1.0), as_result(m, m.in[0]))},
    {"mul", "1 * x -> x",               WHEN(is_uniform(m.in[0], 1.0), as_result(m, m.in[1]))},
    {"mul", "i * 0 -> 0 (integers)",    WHEN(is_integer(m.type().dtype) && is_uniform(m.in[1], 0.0), as_result(m, scalar(m, 0, m.type().dtype)))},
    {"mul", "0 * i -> 0 (integers)",    WHEN(is_integer(m.type().dtype) && is_uniform(m.in[0], 0.0), as_result(m, scalar(m, 0, m.type().dtype)))},
    {"div", "x / 1 -> x",               WHEN(is_uniform(m.in[1], 1.0), as_result(m, m.in[0]))},
    {"pow", "pow(x, 1) -> x",           WHEN(is_uniform(m.in[1], 1.0), as_result(m, m.in[0]))},
    {"logical_and", "p and true -> p",  WHEN(is_uniform(m.in[1], 1.0), as_result(m, m.in[0]))},
    {"logical_and", "true and p -> p",  WHEN(is_uniform(m.in[0], 1.0), as_result(m, m.in[1]))},
    {"logical_or", "p or false -> p",   WHEN(is_uniform(m.in[1], 0.0), as_result(m, m.in[0]))},
    {"logical_or", "false or p -> p",   WHEN(is_uniform(m.in[0], 0.0), as_result(m, m.in[1]))},

    // ---- signs
    {"neg", "-(-x) -> x",               RULE(return under("neg", m.in[0]);)},
    {"mul", "x * -1 -> -x",             WHEN(is_float(m.type().dtype) && is_uniform(m.in[1], -1.0), as_result(m, make(m, "neg", {m.in[0]})))},
    {"mul", "-1 * x -> -x",             WHEN(is_float(m.type().dtype) && is_uniform(m.in[0], -1.0), as_result(m, make(m, "neg", {m.in[1]})))},
    {"add", "a + -b -> a - b",          RULE(const Value b = under("neg", m.in[1]); return b ? make(m, "sub", {m.in[0], b}) : Value();)},
    {"sub", "a - -b -> a + b",          RULE(const Value b = under("neg", m.in[1]); return b ? make(m, "add", {m.in[0], b}) : Value();)},
    {"mul", "-a * -b -> a * b",         RULE(const Value a = under("neg", m.in[0]); const Value b = under("neg", m.in[1]);
                                             return a && b ? make(m, "mul", {a, b}) : Value();)},
    {"div", "-a / -b -> a / b",         RULE(const Value a = under("neg", m.in[0]); const Value b = under("neg", m.in[1]);
                                             return a && b ? make(m, "div", {a, b}) : Value();)},
    {"abs", "abs(-x) -> abs(x)",        RULE(const Value x = under("neg", m.in[0]); return x ? make(m, "abs", {x}) : Value();)},

    // ---- idempotent and inverse functions
    {"abs", "abs(abs(x)) -> abs(x)",    WHEN(made_by(m.in[0], "abs"), m.in[0])},
    {"relu", "relu(relu(x)) -> relu(x)", WHEN(made_by(m.in[0], "relu"), m.in[0])},
    {"logical_not", "not not p -> p",   RULE(return under("logical_not", m.in[0]);)},
    {"logical_not", "not (a == b) -> a != b", WHEN(made_by(m.in[0], "equal"), make(m, "not_equal", {operand(m.in[0]), operand(m.in[0], 1)}))},
    {"logical_not", "not (a != b) -> a == b", WHEN(made_by(m.in[0], "not_equal"), make(m, "equal", {operand(m.in[0]), operand(m.in[0], 1)}))},
    {"maximum", "maximum(x, x) -> x",   WHEN(m.in[0] == m.in[1], m.in[0])},
    {"minimum", "minimum(x, x) -> x",   WHEN(m.in[0] == m.in[1], m.in[0])},

    // ---- powers and divisions
    {"pow", "pow(x, 2) -> x * x",       WHEN(is_uniform(m.in[1], 2.0), as_result(m, make(m, "mul", {m.in[0], m.in[0]})))},
    {"div", "x / 2^k -> x * 2^-k",      RULE(const auto c = uniform(m.in[1]); const auto r = c ? exact_reciprocal(*c, m.type().dtype) : std::nullopt;
                                             return r ? as_result(m, make(m, "mul", {m.in[0], scalar(m, *r, m.type().dtype)})) : Value();)},

    // ---- select and cast
    {"select", "select(true, a, b) -> a", WHEN(is_uniform(m.in[0], 1.0), as_result(m, m.in[1]))},
    {"select", "select(false, a, b) -> b", WHEN(is_uniform(m.in[0], 0.0), as_result(m, m.in[2]))},
    {"select", "select(p, a, a) -> a",  WHEN(m.in[1] == m.in[2], as_result(m, m.in[1]))},
    {"select", "select(not p, a, b) -> select(p, b, a)", RULE(const Value p = under("logical_not", m.in[0]);
                                             return p ? make(m, "select", {p, m.in[2], m.in[1]}) : Value();)},
    {"cast", "cast(x: T, T) -> x",      WHEN(m.in[0].type() == m.type(), m.in[0])},
    {"cast", "cast(cast(x: T, wider), T) -> x", RULE(const Value x = under("cast", m.in[0]);
                                             return x && x.type() == m.type() && widening(x.dtype(), m.in[0].dtype()) ? x : Value();)},
    {"stop_gradient", "stop_gradient(x) -> x", RULE(return m.in[0];), false},

    // ---- movement
    {"constant", "constant(c, c, ...) -> expand(c)", RULE(const auto c = uniform(m.node.attrs.get<Literal>("value"));
                                             return c && m.shape().elements() > 1 ? expanded(m, scalar(m, *c, m.type().dtype), m.shape()) : Value();)},
    {"reshape", "reshape(x) to its own shape -> x", WHEN(m.in[0].type() == m.type(), m.in[0])},
    {"reshape", "reshape(reshape(x)) -> reshape(x)", RULE(const Value x = under("reshape", m.in[0]); return x ? reshaped(m, x, m.shape()) : Value();)},
    {"permute", "permute(x) of no element -> reshape(x)", WHEN(keeps_order(m.node.attrs.get<Ints>("axes"), m.in[0].shape()), reshaped(m, m.in[0], m.shape()))},
    {"permute", "permute(permute(x)) -> permute(x)", composed_permute},
    {"expand", "expand(x) to its own shape -> x", WHEN(m.in[0].type() == m.type(), m.in[0])},
    {"expand", "expand(expand(x)) -> expand(x)", RULE(const Value x = under("expand", m.in[0]); return x ? expanded(m, x, m.shape()) : Value();)},
    {"expand", "expand(x) by axes of extent 1 -> reshape(x)", WHEN(m.in[0].shape().elements() == m.shape().elements() && m.shape().elements() != 0,
                                             reshaped(m, m.in[0], m.shape()))},
    {"slice", "slice(x) of everything -> x", WHEN(m.in[0].type() == m.type() && std::ranges::all_of(m.node.attrs.get<Ints>("steps"), [](std::int64_t s) { return s == 1; }), m.in[0])},
    {"pad", "pad(x) by nothing -> x",   WHEN(zero_counts(m.node.attrs.get<Ints>("before")) && zero_counts(m.node.attrs.get<Ints>("after")), m.in[0])},
    {"concat", "concat(x) -> x",        WHEN(m.in.size() == 1, m.in[0])},
    {"*pointwise", "f(expand(x), y) -> expand(f(x, y))", broadcast_instead_of_expand},

    // ---- reductions
    {"*reduce", "reduce(x) over axes of extent 1 -> reshape(x)", WHEN(m.in[0].dtype() == m.type().dtype && m.node.op->reduce != ReduceKind::ArgMax &&
                                             m.node.op->reduce != ReduceKind::ArgMin && all_extent_one(m), reshaped(m, m.in[0], m.shape()))},
    {"sum", "sum(expand(x)) -> x * n",  RULE(if (!is_float(m.type().dtype)) return {};
                                             return reduce_of_expand(m, [](const Match& n, Value x, double count) {
                                               return make(n, "mul", {x, scalar(n, count, x.dtype())}); });)},
    {"max", "max(expand(x)) -> x",      RULE(return reduce_of_expand(m, [](const Match&, Value x, double) { return x; });)},
    {"min", "min(expand(x)) -> x",      RULE(return reduce_of_expand(m, [](const Match&, Value x, double) { return x; });)},

    // ---- products
    {"matmul", "matmul(transpose(a), b) -> matmul(a, b, transpose_a)", RULE(return absorb_transpose(m, 0, "transpose_a");)},
    {"matmul", "matmul(a, transpose(b)) -> matmul(a, b, transpose_b)", RULE(return absorb_transpose(m, 1, "transpose_b");)},
    {"matmul", "matmul(x[B, M, K], w[K, N]) -> matmul(x[B * M, K], w)", flatten_batch},
};
// clang-format on

#undef WHEN
#undef RULE

}  // namespace

std::span<const RewriteRule> rewrite_rules() { return kRules; }

}  // namespace aeshna
