// Pointwise ops: ONE table of rows. A row is everything about an op: its device expressions, its value in double, its
// derivative, its cost. The records, their checks and their tests follow from it.
//
// GLSL expressions are in a, b, c, of the compute dtype of the LAST operand (so that select and comparisons choose by the
// data, not by the condition or the result). ae_* functions are kernels/math.glsl. Integer divisions never see a divisor 0
// or -1: some drivers trap on INT_MIN / -1 and on x / 0 even in the branch that is not taken.
//
// Gradients at kinks and ties follow PyTorch.
#include <cmath>
#include <numbers>

#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "base/quant.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

/// Which dtypes a row's data operands may have.
enum class Domain : std::uint8_t {
  Float,    ///< f32 f16 bf16 f64
  Number,   ///< floats and i32 u32 i64 u64
  Boolean,  ///< boolean
  Word,     ///< u32
  Scalar,   ///< every dtype that is not quantized
};

/// What a derivative rule sees: operands, result and its gradient, all before broadcasting is undone.
struct Grad {
  Expr a, b, c, y, dy;
};

/// One factor per operand; an empty Expr is zero.
using Rule = std::vector<Expr> (*)(const Grad&);

struct Row {
  std::string_view name;
  std::string_view doc;
  Domain domain = Domain::Float;
  PointwiseDef def;
  Rule rule = nullptr;  ///< null: the gradient is zero
  /// Where the harness draws operands, and how exact f32 is. The fixed points of special_values() are added for unary rows.
  double low = -2, high = 2;
  double rtol = 2e-6;
  bool minus_infinity = true;  ///< false: the value there is undefined (inf * 0)
};

constexpr double kSqrt2 = std::numbers::sqrt2;
constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
constexpr double kInvSqrt2Pi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
constexpr double kGeluK = kTwoOverSqrtPi / std::numbers::sqrt2;  // sqrt(2 / pi)
constexpr double kGeluC = 0.044715;                              // Hendrycks & Gimpel 2016

double nan_max(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::fmax(a, b); }
double nan_min(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::fmin(a, b); }
double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
double log1p_exp(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// Exact while it fits a double, else its low 32 bits (i32 and u32 wrap).
double int_mul(double a, double b, double) {
  const double product = a * b;
  if (std::fabs(product) <= 9007199254740992.0) return product;
  return static_cast<double>(static_cast<std::uint32_t>(static_cast<std::int64_t>(a)) *
                             static_cast<std::uint32_t>(static_cast<std::int64_t>(b)));
}
double int_div(double a, double b, double) {
  return b == 0 ? 0 : static_cast<double>(static_cast<std::int64_t>(a) / static_cast<std::int64_t>(b));
}
double int_fmod(double a, double b, double) { return b == 0 ? 0 : std::fmod(a, b); }
double int_mod(double a, double b, double) { return b == 0 ? 0 : floor_mod(a, b); }
double philox_word(double low, double high, double counter) {
  const auto u32 = [](double v) { return static_cast<std::uint32_t>(v); };
  return philox4x32_10({u32(counter), 0, 0, 0}, {u32(low), u32(high)})[0];
}

/// Both halves of maximum and minimum: the loser gets nothing, a tie shares.
std::vector<Expr> extreme_rule(const Grad& g, std::string_view a_loses, std::string_view b_loses) {
  const Expr shared = where(apply("equal", {g.a, g.b}), g.dy * 0.5, g.dy);
  return {where(apply(a_loses, {g.a, g.b}), 0, shared), where(apply(b_loses, {g.a, g.b}), 0, shared)};
}

std::vector<Expr> clamp_rule(
    const Grad& g) {  // as torch.clamp with tensor bounds; low > high gives the gradient to high
  const Expr below = apply("less", {g.a, g.b}), above = apply("greater", {g.a, g.c});
  const Expr crossed = apply("less", {g.c, g.b}), ordered = apply("less", {g.b, g.c});
  return {where(apply("logical_or", {below, above}), 0, g.dy), where(apply("logical_and", {ordered, below}), g.dy, 0),
          where(apply("logical_or", {above, crossed}), g.dy, 0)};
}

std::vector<Expr> pow_rule(const Grad& g) {
  const Expr da = g.dy * g.b * apply("pow", {g.a, g.b - 1.0});
  const Expr flat =
      apply("logical_and", {apply("equal", {g.a, g.a.number(0)}), apply("greater_equal", {g.b, g.b.number(0)})});
  return {where(apply("equal", {g.b, g.b.number(0)}), 0, da), where(flat, 0, g.dy * g.y * apply("log", {g.a}))};
}

/// Of mod and fmod: the whole number of times that b was taken off. From the remainder, which is exact, and not as floor(a / b):
/// devices may round a division to either side of a whole number.
std::vector<Expr> mod_rule(const Grad& g) { return {g.dy, -(g.dy * apply("round", {(g.a - g.y) / g.b}))}; }

std::vector<Expr> gelu_erf_rule(const Grad& g) {
  const Expr cdf = 0.5 * (1.0 + apply("erf", {g.a * (1 / kSqrt2)}));
  const Expr pdf = kInvSqrt2Pi * apply("exp", {g.a * g.a * -0.5});
  return {g.dy * (cdf + g.a * pdf)};
}

std::vector<Expr> gelu_tanh_rule(const Grad& g) {
  const Expr squared = g.a * g.a;
  const Expr t = apply("tanh", {kGeluK * g.a * (1.0 + kGeluC * squared)});
  const Expr inner = kGeluK * (1.0 + 3 * kGeluC * squared);
  return {g.dy * (0.5 * (1.0 + t) + 0.5 * g.a * (1.0 - t * t) * inner)};
}

std::vector<Expr> cast_rule(const Grad& g) {
  const DType source = g.a.value.dtype();
  if (!is_float(source) || !is_float(g.dy.value.dtype())) return {{}};
  return {cast_to(g.dy, source)};
}

// Shorthands of the table: a device expression that is the same for several dtypes, and lambdas of one shape.
#define AE_EVAL(expression) \
  [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return expression; }
#define AE_RULE(...) [](const Grad& g) -> std::vector<Expr> { return {__VA_ARGS__}; }

// clang-format off
const std::vector<Row>& rows() {
  using enum Domain;
  static const std::vector<Row> table = {
    // ---- one operand
    {"neg", "-x (unsigned: modulo 2^32).", Number,
     {1, "-a", "-a", "0u - a", "", AE_EVAL(-a)}, AE_RULE(-g.dy)},
    {"abs", "|x|; gradient 0 at 0.", Number,
     {1, "abs(a)", "abs(a)", "a", "", AE_EVAL(std::fabs(a))}, AE_RULE(g.dy * apply("sign", {g.a}))},
    {"sign", "-1, 0 or 1; NaN stays NaN.", Number,
     {1, "(a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : a)", "sign(a)", "min(a, 1u)", "", AE_EVAL(a > 0 ? 1 : a < 0 ? -1 : a)}},
    {"exp", "e^x.", Float,
     {1, "ae_exp(a)", "", "", "", AE_EVAL(std::exp(a)), nullptr, false, 8}, AE_RULE(g.dy * g.y)},
    {"log", "Natural logarithm; log(0) = -inf, negative: NaN.", Float,
     {1, "ae_log(a)", "", "", "", AE_EVAL(std::log(a)), nullptr, false, 8}, AE_RULE(g.dy / g.a), 0.1, 4},
    {"log1p", "log(1 + x), exact near 0.", Float,
     {1, "ae_log1p(a)", "", "", "", AE_EVAL(std::log1p(a)), nullptr, false, 10}, AE_RULE(g.dy / (1.0 + g.a)), -0.9, 3},
    {"expm1", "e^x - 1, exact near 0.", Float,
     {1, "ae_expm1(a)", "", "", "", AE_EVAL(std::expm1(a)), nullptr, false, 10}, AE_RULE(g.dy * (g.y + 1.0))},
    {"sqrt", "Square root; negative: NaN.", Float,
     {1, "ae_sqrt(a)", "", "", "", AE_EVAL(std::sqrt(a)), nullptr, false, 4}, AE_RULE(g.dy * 0.5 / g.y), 0.1, 4},
    {"rsqrt", "1 / sqrt(x); rsqrt(+-0) = inf, negative: NaN.", Float,
     {1, "ae_rsqrt(a)", "", "", "", AE_EVAL(1 / std::sqrt(a + 0.0)), nullptr, false, 5},
     AE_RULE(g.dy * -0.5 * g.y * g.y * g.y), 0.1, 4},
    {"recip", "1 / x.", Float,
     {1, "(1.0 / a)", "", "", "", AE_EVAL(1 / a), nullptr, false, 3}, AE_RULE(-(g.dy * g.y * g.y)), 0.3, 4},
    {"sin", "Sine of radians.", Float,
     {1, "ae_sin(a)", "", "", "", AE_EVAL(std::sin(a)), nullptr, false, 12}, AE_RULE(g.dy * apply("cos", {g.a})), -8, 8},
    {"cos", "Cosine of radians.", Float,
     {1, "ae_cos(a)", "", "", "", AE_EVAL(std::cos(a)), nullptr, false, 12}, AE_RULE(-(g.dy * apply("sin", {g.a}))), -8, 8},
    {"tanh", "Hyperbolic tangent; +-1 far out, never NaN.", Float,
     {1, "ae_tanh(a)", "", "", "", AE_EVAL(std::tanh(a)), nullptr, false, 10}, AE_RULE(g.dy * (1.0 - g.y * g.y))},
    {"sigmoid", "1 / (1 + e^-x).", Float,
     {1, "ae_sigmoid(a)", "", "", "", AE_EVAL(logistic(a)), nullptr, false, 9}, AE_RULE(g.dy * g.y * (1.0 - g.y)), -6, 6},
    {"erf", "Error function.", Float,
     {1, "ae_erf(a)", "", "", "", AE_EVAL(std::erf(a)), nullptr, false, 12},
     AE_RULE(g.dy * kTwoOverSqrtPi * apply("exp", {-(g.a * g.a)}))},
    {"relu", "max(x, 0); gradient 0 at 0.", Float,
     {1, "ae_max(a, 0.0)", "", "", "", AE_EVAL(nan_max(a, 0))},
     AE_RULE(where(apply("less_equal", {g.y, g.y.number(0)}), 0, g.dy))},
    {"silu", "x * sigmoid(x).", Float,
     {1, "ae_silu(a)", "", "", "", AE_EVAL(a * logistic(a)), nullptr, false, 9},
     [](const Grad& g) -> std::vector<Expr> {
       const Expr s = apply("sigmoid", {g.a});
       return {g.dy * s * (1.0 + g.a * (1.0 - s))};
     }, -6, 6, 2e-6, false},
    {"gelu_erf", "x * Phi(x), with erf.", Float,
     {1, "ae_gelu_erf(a)", "", "", "", AE_EVAL(0.5 * a * std::erfc(-a / kSqrt2)), nullptr, false, 14}, gelu_erf_rule, -4, 4, 2e-6, false},
    {"gelu_tanh", "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).", Float,
     {1, "ae_gelu_tanh(a)", "", "", "", AE_EVAL(0.5 * a * (1 + std::tanh(kGeluK * a * (1 + kGeluC * a * a)))), nullptr, false, 12},
     gelu_tanh_rule, -4, 4, 2e-6, false},
    {"softplus", "log(1 + e^x), as max(x, 0) + log1p(e^-|x|).", Float,
     {1, "ae_softplus(a)", "", "", "", AE_EVAL(std::isnan(a) ? a : log1p_exp(a)), nullptr, false, 12},
     AE_RULE(g.dy * apply("sigmoid", {g.a})), -6, 6},
    {"floor", "Largest integer <= x.", Float, {1, "floor(a)", "", "", "", AE_EVAL(std::floor(a))}},
    {"ceil", "Smallest integer >= x.", Float, {1, "ceil(a)", "", "", "", AE_EVAL(std::ceil(a))}},
    {"round", "Nearest integer, half to even.", Float, {1, "ae_round(a)", "", "", "", AE_EVAL(std::nearbyint(a)), nullptr, false, 2}},
    {"is_finite", "Neither NaN nor infinite, tested by bits; boolean.", Float,
     {1, "ae_isfinite(a)", "", "", "", AE_EVAL(std::isfinite(a)), nullptr, true}},
    {"logical_not", "not x.", Boolean, {1, "", "", "", "!a", AE_EVAL(a == 0)}},
    {"stop_gradient", "x, whose gradient is zero.", Scalar, {1, "a", "a", "a", "a", AE_EVAL(a), AE_EVAL(a)}},
    {"cast", "x as attr dtype. Float to integer truncates and saturates, NaN gives 0; integer to integer wraps; to boolean: x != 0.", Scalar,
     {1, "a", "a", "a", "a", AE_EVAL(a), AE_EVAL(a)}, cast_rule},  // the conversion itself is codegen's, and eval's below

    // ---- two operands
    {"add", "a + b.", Number, {2, "a + b", "a + b", "a + b", "", AE_EVAL(a + b)}, AE_RULE(g.dy, g.dy)},
    {"sub", "a - b.", Number, {2, "a - b", "a - b", "a - b", "", AE_EVAL(a - b)}, AE_RULE(g.dy, -g.dy)},
    {"mul", "a * b.", Number, {2, "a * b", "a * b", "a * b", "", AE_EVAL(a * b), int_mul}, AE_RULE(g.dy * g.b, g.dy * g.a)},
    {"div", "a / b; integers truncate, and division by zero gives 0 for them.", Number,
     {2, "a / b", "(b == 0 ? 0 : b == -1 ? 0 - a : a / ((b == 0 || b == -1) ? 1 : b))", "(b == 0u ? 0u : a / max(b, 1u))", "",
      AE_EVAL(a / b), int_div, false, 3},
     AE_RULE(g.dy / g.b, -(g.dy * g.y / g.b)), 0.5, 3},
    {"pow", "a^b.", Float, {2, "ae_pow(a, b)", "", "", "", AE_EVAL(std::pow(a, b)), nullptr, false, 16}, pow_rule, 0.3, 2.5, 8e-6},
    {"maximum", "Larger of a and b; NaN if either is; ties share the gradient.", Number,
     {2, "ae_max(a, b)", "max(a, b)", "max(a, b)", "", AE_EVAL(nan_max(a, b))},
     [](const Grad& g) { return extreme_rule(g, "less", "greater"); }},
    {"minimum", "Smaller of a and b; NaN if either is; ties share the gradient.", Number,
     {2, "ae_min(a, b)", "min(a, b)", "min(a, b)", "", AE_EVAL(nan_min(a, b))},
     [](const Grad& g) { return extreme_rule(g, "greater", "less"); }},
    {"mod", "a - b * floor(a / b): the sign of b; integers: 0 for b = 0.", Number,
     {2, "ae_mod(a, b)",
      "((b == 0 || b == -1) ? 0 : (a - a / ((b == 0 || b == -1) ? 1 : b) * b) + "
      "(((a - a / ((b == 0 || b == -1) ? 1 : b) * b) != 0 && (a ^ b) < 0) ? b : 0))",
      "(b == 0u ? 0u : a % max(b, 1u))", "", AE_EVAL(floor_mod(a, b)), int_mod, false, 6},
     mod_rule, 0.5, 3, 4e-6},
    {"fmod", "a - b * trunc(a / b): the sign of a; integers: 0 for b = 0.", Number,
     {2, "ae_fmod(a, b)", "((b == 0 || b == -1) ? 0 : a - a / ((b == 0 || b == -1) ? 1 : b) * b)", "(b == 0u ? 0u : a % max(b, 1u))", "",
      AE_EVAL(std::fmod(a, b)), int_fmod, false, 6},
     mod_rule, 0.5, 3, 4e-6},
    {"equal", "a == b; boolean.", Scalar, {2, "a == b", "a == b", "a == b", "a == b", AE_EVAL(a == b), nullptr, true}},
    {"not_equal", "a != b; boolean; true for NaN.", Scalar, {2, "a != b", "a != b", "a != b", "a != b", AE_EVAL(a != b), nullptr, true}},
    {"less", "a < b; boolean.", Number, {2, "a < b", "a < b", "a < b", "", AE_EVAL(a < b), nullptr, true}},
    {"less_equal", "a <= b; boolean.", Number, {2, "a <= b", "a <= b", "a <= b", "", AE_EVAL(a <= b), nullptr, true}},
    {"greater", "a > b; boolean.", Number, {2, "a > b", "a > b", "a > b", "", AE_EVAL(a > b), nullptr, true}},
    {"greater_equal", "a >= b; boolean.", Number, {2, "a >= b", "a >= b", "a >= b", "", AE_EVAL(a >= b), nullptr, true}},
    {"logical_and", "a and b.", Boolean, {2, "", "", "", "a && b", AE_EVAL(a != 0 && b != 0)}},
    {"logical_or", "a or b.", Boolean, {2, "", "", "", "a || b", AE_EVAL(a != 0 || b != 0)}},
    {"logical_xor", "a xor b.", Boolean, {2, "", "", "", "a != b", AE_EVAL((a != 0) != (b != 0))}},

    // ---- three operands
    {"philox", "Word 0 of Philox4x32-10 at counter (c, 0, 0, 0) with the key (a, b): 32 random bits as a function of their operands alone.",
     Word, {3, "", "", "ae_philox(uvec4(c, 0u, 0u, 0u), uvec2(a, b)).x", "", nullptr, philox_word, false, 32}},
    {"select", "b where the boolean a is true, else c.", Scalar,
     {3, "(a ? b : c)", "(a ? b : c)", "(a ? b : c)", "(a ? b : c)", AE_EVAL(a != 0 ? b : c)},
     AE_RULE({}, where(g.a, g.dy, 0), where(g.a, 0, g.dy))},
    {"clamp", "min(max(a, b), c); NaN stays NaN; gradient 1 inside and on the bounds.", Number,
     {3, "ae_min(ae_max(a, b), c)", "min(max(a, b), c)", "min(max(a, b), c)", "", AE_EVAL(nan_min(nan_max(a, b), c))}, clamp_rule},
  };
  return table;
}
// clang-format on

#undef AE_EVAL
#undef AE_RULE

bool in_domain(Domain domain, DType dtype) {
  const bool number =
      is_float(dtype) || dtype == DType::i32 || dtype == DType::u32 || dtype == DType::i64 || dtype == DType::u64;
  switch (domain) {
    case Domain::Float:
      return is_float(dtype) && dtype != DType::f8e4m3 && dtype != DType::f8e5m2;
    case Domain::Number:
      return number && dtype != DType::f8e4m3 && dtype != DType::f8e5m2;
    case Domain::Boolean:
      return dtype == DType::boolean;
    case Domain::Word:
      return dtype == DType::u32;
    case Domain::Scalar:
      return dtype_info(dtype).kind != DTypeInfo::Kind::Quantized;
  }
  return false;
}

std::string_view domain_name(Domain domain) {
  switch (domain) {
    case Domain::Float:
      return "f32, f16, bf16 or f64";
    case Domain::Number:
      return "floats, i32, u32, i64 or u64";
    case Domain::Boolean:
      return "booleans";
    case Domain::Word:
      return "u32";
    case Domain::Scalar:
      return "a dtype that is not quantized";
  }
  return "?";
}

std::vector<TensorType> infer_pointwise(const Row& row, const InferContext& ctx) {
  const bool is_select = row.name == "select";
  if (is_select && ctx.inputs[0].dtype != DType::boolean) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("the condition must be boolean, not {}", dtype_name(ctx.inputs[0].dtype)));
  }
  const DType dtype = ctx.inputs.back().dtype;
  Shape shape = ctx.inputs[0].shape;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    const TensorType& input = ctx.inputs[i];
    if (input.dtype != dtype && !(is_select && i == 0)) {
      ctx.fail(ErrorCode::DTypeMismatch, formatted("the operands have different dtypes: {} and {}", input.to_string(),
                                                   ctx.inputs.back().to_string()));
    }
    shape = guarded(ctx, [&] { return broadcast_shapes(shape, input.shape); });
  }
  const bool dequantizes = row.name == "cast" && is_quantized(dtype) && is_float(ctx.attrs.get<DType>("dtype"));
  if (!in_domain(row.domain, dtype) && !dequantizes) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("is defined for {}, not for {}", domain_name(row.domain), dtype_name(dtype)));
  }
  DType result = row.def.boolean_result ? DType::boolean : dtype;
  if (row.name == "cast") {
    result = ctx.attrs.get<DType>("dtype");
    if (!in_domain(Domain::Scalar, result))
      ctx.fail(ErrorCode::Unsupported, formatted("cannot cast to {}", dtype_name(result)));
  }
  return {{result, shape}};
}

/// cast, in double. Device values of 64-bit integers have 32 bits, so they saturate there.
double convert(DType from, DType to, double v) {
  if (to == DType::boolean) return v != 0;
  if (is_float(to) || from == DType::boolean) return v;
  if (!is_float(from)) return wrap_integer(to, v);
  if (std::isnan(v)) return 0;
  const auto& info = dtype_info(to);
  const double bits = 8.0 * info.block_bytes / info.block_elements;
  const bool is_signed = info.kind == DTypeInfo::Kind::Signed;
  const double low = is_signed ? -std::exp2(bits - 1) : 0;
  const double high = std::exp2(is_signed ? bits - 1 : bits) - 1;
  return std::fmin(std::fmax(std::trunc(v), low), high);
}

void eval_pointwise(const PointwiseDef& def, const EvalContext& ctx) {
  HostTensor& y = ctx.results[0];
  const DType dtype = ctx.inputs.back()->type.dtype;
  const bool integer = is_integer(dtype) || dtype == DType::boolean;
  const auto f = integer && def.eval_int != nullptr ? def.eval_int : def.eval;
  const bool wrap = is_integer(dtype) && !def.boolean_result;
  static const std::vector<double> none(1, 0);
  std::array<const double*, 3> data{none.data(), none.data(), none.data()};
  std::array<Strides, 3> strides{};
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    data[i] = ctx.inputs[i]->data.data();
    strides[i] = broadcast_strides(ctx.inputs[i]->type.shape, y.type.shape);
  }
  std::size_t n = 0;
  walk<3>(y.type.shape, strides, [&](const std::array<std::int64_t, 3>& at) {
    const double v = f(data[0][at[0]], data[1][at[1]], data[2][at[2]]);
    y.data[n++] = wrap ? wrap_integer(dtype, v) : v;
  });
}

void eval_cast(const EvalContext& ctx) {
  const HostTensor& x = *ctx.inputs[0];
  HostTensor& y = ctx.results[0];
  for (std::size_t i = 0; i < y.data.size(); ++i) y.data[i] = convert(x.type.dtype, y.type.dtype, x.data[i]);
}

std::vector<Value> vjp_pointwise(Rule rule, const BuildContext& context, std::span<const Value> inputs,
                                 std::span<const Value> results, std::span<const Value> dy) {
  if (!dy[0]) return std::vector<Value>(inputs.size());
  const auto operand = [&](std::size_t i) { return i < inputs.size() ? Expr(context, inputs[i]) : Expr(); };
  const std::vector<Expr> parts = rule({operand(0), operand(1), operand(2), {context, results[0]}, {context, dy[0]}});
  std::vector<Value> gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(parts[i].value ? sum_to(parts[i], inputs[i].shape()).value : Value());
  }
  return gradients;
}

// ---- cases

std::vector<double> special_values(bool minus_infinity) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,   -0.0, 0.5,  -0.5,  1,    -1,  1.5,
                                2.5, -2.5, 1e-3, -1e-3, 13,   -13, 20,
                                -20, 89,   -89,  1e4,   -1e4, inf, std::numeric_limits<double>::quiet_NaN()};
  if (minus_infinity) values.push_back(-inf);
  return values;
}

/// Shapes of one operand set: same shapes, broadcasting both ways, rank 0, no elements.
std::vector<std::vector<Shape>> case_shapes(int arity) {
  if (arity == 1) return {{Shape{}}, {Shape{0}}, {Shape{1}}, {Shape{3, 5}}, {Shape{2, 0, 3}}, {Shape{257}}};
  if (arity == 2) {
    return {{Shape{}, Shape{}},      {Shape{7}, Shape{7}},          {Shape{3, 5}, Shape{5}},
            {Shape{5}, Shape{3, 5}}, {Shape{3, 1}, Shape{1, 5}},    {Shape{2, 3, 5}, Shape{}},
            {Shape{}, Shape{4, 1}},  {Shape{2, 1, 3}, Shape{4, 1}}, {Shape{0, 3}, Shape{1, 3}},
            {Shape{1}, Shape{0}},    {Shape{17, 13}, Shape{17, 13}}};
  }
  return {{Shape{}, Shape{}, Shape{}},
          {Shape{7}, Shape{7}, Shape{7}},
          {Shape{3, 5}, Shape{5}, Shape{3, 1}},
          {Shape{4, 1}, Shape{}, Shape{3}},
          {Shape{0}, Shape{1}, Shape{}}};
}

std::vector<DType> case_dtypes(const Row& row) {
  if (row.domain == Domain::Boolean) return {DType::boolean};
  if (row.domain == Domain::Word) return {DType::u32};
  if (row.domain == Domain::Float) return {DType::f32};
  if (row.domain == Domain::Number) return {DType::f32, DType::i32, DType::u32};
  return {DType::f32, DType::i32, DType::u32, DType::boolean};
}

std::vector<OpCase> cast_cases() {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> floats = {
      0, -0.0, 0.5, -0.5, 1.9, -1.9, 3e9, -3e9, 1e20, -1e20, inf, -inf, std::numeric_limits<double>::quiet_NaN()};
  const std::vector<double> integers = {0, 1, 2, 7, 16777216, 2147483647};
  std::vector<OpCase> cases;
  for (const DType from : {DType::f32, DType::i32, DType::u32, DType::boolean}) {
    for (const DType to : {DType::f32, DType::i32, DType::u32, DType::boolean}) {
      OpCase c{.inputs = {{from, Shape{13}}}, .attrs = {{"dtype", to}}, .ranges = {}, .values = {}, .gradient = false};
      c.values = {from == DType::f32 ? floats : from == DType::boolean ? std::vector<double>{0, 1} : integers};
      if (from == DType::i32) c.values[0].insert(c.values[0].end(), {-1, -2147483648.0});
      if (from == DType::u32) c.values[0].insert(c.values[0].end(), {2147483648.0, 4294967295.0});
      cases.push_back(std::move(c));
    }
  }
  cases.push_back({.inputs = {f32_type({3, 5})}, .attrs = {{"dtype", DType::f32}}, .ranges = {}, .values = {}});
  return cases;
}

/// Kinks, ties and domain edges by hand; gradients there are in pointwise_test.cpp, since differences cannot see them.
void add_edge_cases(const Row& row, std::vector<OpCase>& cases) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto edge = [&](DType dtype, std::vector<std::vector<double>> values) {
    const auto n = static_cast<std::int64_t>(values[0].size());
    std::vector<TensorType> inputs(values.size(), TensorType{dtype, Shape{n}});
    cases.push_back({.inputs = std::move(inputs),
                     .attrs = {},
                     .ranges = {},
                     .values = std::move(values),
                     .rtol = row.rtol,
                     .gradient = false});
  };
  if (row.def.arity == 1 && row.domain != Domain::Boolean) edge(DType::f32, {special_values(row.minus_infinity)});
  if (row.name == "pow") {
    edge(DType::f32, {{-2, -2, 0, 0, 0, 2, -2, 1, nan, 10, 0.5}, {3, 2, 0, 2, 0.5, -3, 0, nan, 0, 30, 1e4}});
  } else if (row.name == "maximum" || row.name == "minimum" || row.name == "equal" || row.name == "not_equal" ||
             row.name == "less" || row.name == "less_equal" || row.name == "greater" || row.name == "greater_equal") {
    edge(DType::f32, {{1, nan, 1, nan, inf, -inf, 0, 2}, {1, 1, nan, nan, -inf, -inf, -0.0, 3}});
    edge(DType::i32, {{1, -5, 2147483647, -2147483648.0}, {1, 3, -1, 0}});
    edge(DType::u32, {{1, 5, 4294967295.0, 2147483648.0}, {1, 3, 1, 0}});
  } else if (row.name == "div" || row.name == "mod" || row.name == "fmod" || row.name == "mul" || row.name == "add" ||
             row.name == "sub") {
    edge(DType::i32,
         {{7, -7, 7, -7, 6, 0, 5, -2147483648.0, 2147483647, 65536}, {3, 3, -3, -3, 3, 5, 0, -1, 2, 65537}});
    edge(DType::u32, {{7, 0, 5, 4294967295.0, 4294967295.0, 65536}, {3, 5, 0, 2, 4294967295.0, 65537}});
    if (row.name == "mod" || row.name == "fmod") edge(DType::f32, {{7.5, -7.5, 7.5, -7.5, 0.25}, {2, 2, -2, -2, 8}});
  } else if (row.name == "philox") {
    edge(DType::u32, {{0, 4294967295.0, 3735928559.0}, {0, 4294967295.0, 305419896}, {0, 4294967295.0, 41}});
  } else if (row.name == "clamp") {
    edge(DType::f32,
         {{-2, -1, 0, 1, 2, nan, inf, -inf, 0.5}, {-1, -1, -1, -1, -1, -1, -1, -1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 0}});
  }
}

std::vector<OpCase> pointwise_cases(const Row& row) {
  if (row.name == "cast") return cast_cases();
  std::vector<OpCase> cases;
  const auto arity = static_cast<std::size_t>(row.def.arity);
  for (const DType dtype : case_dtypes(row)) {
    for (const std::vector<Shape>& shapes : case_shapes(row.def.arity)) {
      if (dtype != DType::f32 && shapes[0].rank() == 0 && arity == 1) continue;
      OpCase c{.inputs = {}, .attrs = {}, .ranges = {}, .values = {}, .rtol = row.rtol};
      for (const Shape& shape : shapes) c.inputs.push_back({dtype, shape});
      if (row.name == "select") c.inputs[0].dtype = DType::boolean;
      if (dtype == DType::f32) c.ranges.assign(arity, {row.low, row.high});
      if (dtype == DType::i32) c.ranges.assign(arity, {-9, 9});
      if (dtype == DType::u32) c.ranges.assign(arity, {0, 9});
      if (dtype == DType::boolean || row.name == "select") c.ranges.insert(c.ranges.begin(), {0, 1});
      c.ranges.resize(arity, {0, 1});
      if (row.name == "clamp" && dtype == DType::f32) c.ranges = {{-2, 2}, {-1.5, -0.5}, {0.5, 1.5}};
      if (row.name == "mod" || row.name == "fmod") {  // quotients stay clear of the jumps, and of one another
        if (dtype == DType::f32) c.ranges = {{5.2, 5.8}, {0.95, 1.02}};
      }
      if (row.name == "floor" || row.name == "ceil" || row.name == "round" || row.name == "sign")
        c.ranges = {{0.55, 0.95}};
      c.gradient = dtype == DType::f32;
      cases.push_back(std::move(c));
    }
  }
  add_edge_cases(row, cases);
  return cases;
}

OpDef record(const Row& row) {
  OpDef op;
  op.name = row.name;
  op.doc = row.doc;
  op.kind = OpKind::Pointwise;
  op.min_inputs = op.max_inputs = row.def.arity;
  op.pointwise = row.def;
  op.infer = [&row](const InferContext& ctx) { return infer_pointwise(row, ctx); };
  op.eval = [&row](const EvalContext& ctx) { eval_pointwise(row.def, ctx); };
  if (row.name == "cast") {
    op.eval = eval_cast;
    op.reads_quantized = true;
  }
  op.gradient = row.rule != nullptr ? GradientKind::Rule : GradientKind::Zero;
  if (row.rule != nullptr) {
    op.vjp = [rule = row.rule](const BuildContext& context, std::span<const Value> inputs,
                               std::span<const Value> results,
                               std::span<const Value> dy) { return vjp_pointwise(rule, context, inputs, results, dy); };
  }
  op.lower = lower_pointwise;
  op.cases = [&row] { return pointwise_cases(row); };
  return op;
}

}  // namespace

std::vector<OpDef> pointwise_ops() {
  std::vector<OpDef> ops;
  for (const Row& row : rows()) ops.push_back(record(row));
  return ops;
}

// ---- public functions

Value neg(Operand x) { return build("neg", {x}); }
Value abs(Operand x) { return build("abs", {x}); }
Value sign(Operand x) { return build("sign", {x}); }
Value exp(Operand x) { return build("exp", {x}); }
Value log(Operand x) { return build("log", {x}); }
Value log1p(Operand x) { return build("log1p", {x}); }
Value expm1(Operand x) { return build("expm1", {x}); }
Value sqrt(Operand x) { return build("sqrt", {x}); }
Value rsqrt(Operand x) { return build("rsqrt", {x}); }
Value recip(Operand x) { return build("recip", {x}); }
Value sin(Operand x) { return build("sin", {x}); }
Value cos(Operand x) { return build("cos", {x}); }
Value tanh(Operand x) { return build("tanh", {x}); }
Value sigmoid(Operand x) { return build("sigmoid", {x}); }
Value erf(Operand x) { return build("erf", {x}); }
Value relu(Operand x) { return build("relu", {x}); }
Value silu(Operand x) { return build("silu", {x}); }
Value gelu_erf(Operand x) { return build("gelu_erf", {x}); }
Value gelu_tanh(Operand x) { return build("gelu_tanh", {x}); }
Value softplus(Operand x) { return build("softplus", {x}); }
Value floor(Operand x) { return build("floor", {x}); }
Value ceil(Operand x) { return build("ceil", {x}); }
Value round(Operand x) { return build("round", {x}); }
Value is_finite(Operand x) { return build("is_finite", {x}); }
Value logical_not(Operand x) { return build("logical_not", {x}); }
Value stop_gradient(Operand x) { return build("stop_gradient", {x}); }

Value add(Operand a, Operand b) { return build("add", {a, b}); }
Value sub(Operand a, Operand b) { return build("sub", {a, b}); }
Value mul(Operand a, Operand b) { return build("mul", {a, b}); }
Value div(Operand a, Operand b) { return build("div", {a, b}); }
Value pow(Operand a, Operand b) { return build("pow", {a, b}); }
Value maximum(Operand a, Operand b) { return build("maximum", {a, b}); }
Value minimum(Operand a, Operand b) { return build("minimum", {a, b}); }
Value mod(Operand a, Operand b) { return build("mod", {a, b}); }
Value fmod(Operand a, Operand b) { return build("fmod", {a, b}); }
Value equal(Operand a, Operand b) { return build("equal", {a, b}); }
Value not_equal(Operand a, Operand b) { return build("not_equal", {a, b}); }
Value less(Operand a, Operand b) { return build("less", {a, b}); }
Value less_equal(Operand a, Operand b) { return build("less_equal", {a, b}); }
Value greater(Operand a, Operand b) { return build("greater", {a, b}); }
Value greater_equal(Operand a, Operand b) { return build("greater_equal", {a, b}); }
Value logical_and(Operand a, Operand b) { return build("logical_and", {a, b}); }
Value logical_or(Operand a, Operand b) { return build("logical_or", {a, b}); }
Value logical_xor(Operand a, Operand b) { return build("logical_xor", {a, b}); }
Value clamp(Operand x, Operand low, Operand high) { return build("clamp", {x, low, high}); }

Value select(Operand condition, Operand if_true, Operand if_false) {
  const Value c = resolve_value("select", condition);
  if (if_true.is_number() && if_false.is_number()) {  // no partner to take a dtype from: f32
    if_true = Operand(c.graph().constant(if_true.number(), DType::f32, condition.line()), if_true.line());
  }
  const std::vector<Value> branches = resolve("select", {if_true, if_false});
  const Value values[] = {c, branches[0], branches[1]};
  return c.graph().add("select", values, {}, condition.line());
}

Value cast(Operand x, DType dtype) {
  const Value v = resolve_value("cast", x);
  if (v.dtype() == dtype) return v;
  const Value values[] = {v};
  return v.graph().add("cast", values, {{"dtype", dtype}}, x.line());
}

}  // namespace aeshna
