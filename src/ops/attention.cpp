// Scaled dot-product attention and its gradients, each one kernel that never holds a matrix of scores. Memory holds the
// sequence before the heads: results are [B, S, heads, D], so that heads are split and merged by views alone.
#include "ops/attention.h"

#include <cmath>

#include "base/format.h"
#include "ir/device_types.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

AttentionProblem AttentionProblem::of(std::span<const TensorType> inputs, const Attrs& attrs, std::size_t required) {
  const Shape &q = inputs[0].shape, &k = inputs[1].shape;
  AttentionProblem p{.batch = q[0],
                     .heads = q[1],
                     .kv_heads = k[1],
                     .queries = q[2],
                     .keys = k[2],
                     .head_dim = q[3],
                     .scale = attrs.get<double>("scale"),
                     .causal = attrs.get<bool>("causal"),
                     .ring = attrs.get<bool>("ring"),
                     .window = attrs.get<std::int64_t>("window"),
                     .query_offset = attrs.get<std::int64_t>("query_offset"),
                     .mask = {},
                     .position = {}};
  for (std::size_t i = required; i < inputs.size(); ++i) (inputs[i].dtype == DType::i32 ? p.position : p.mask) = i;
  return p;
}

namespace {

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kMaxHeadDim = 256;

// ---- types

void expect_shape(const InferContext& ctx, std::size_t input, std::string_view what, const Shape& want) {
  const Shape& shape = ctx.inputs[input].shape;
  if (shape != want) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("{} must be {}, not {}", what, want.to_string(), shape.to_string()));
  }
}

void infer_operands(const InferContext& ctx, bool half) {
  constexpr const char* kNames[] = {"q", "k", "v"};
  const DType dtype = ctx.inputs[0].dtype;
  if (dtype != DType::f32 && !(half && is_half(dtype)))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is not defined for {}", dtype_name(dtype)));
  for (std::size_t i = 0; i < 3; ++i) {
    if (ctx.inputs[i].dtype != dtype) {
      ctx.fail(ErrorCode::DTypeMismatch,
               formatted("q is {}, but {} is {}", dtype_name(dtype), kNames[i], dtype_name(ctx.inputs[i].dtype)));
    }
    if (ctx.inputs[i].shape.rank() != 4) {
      ctx.fail(ErrorCode::ShapeMismatch, formatted("{} must be [batch, heads, sequence, head_dim], not {}", kNames[i],
                                                   ctx.inputs[i].shape.to_string()));
    }
  }
  const Shape &q = ctx.inputs[0].shape, &k = ctx.inputs[1].shape;
  if (q[0] != k[0]) ctx.fail(ErrorCode::ShapeMismatch, formatted("q has a batch of {}, k of {}", q[0], k[0]));
  if (q[3] != k[3]) ctx.fail(ErrorCode::ShapeMismatch, formatted("q has head_dim {}, k {}", q[3], k[3]));
  expect_shape(ctx, 2, "v", k);
  if (q[3] < 1 || q[3] > kMaxHeadDim)
    ctx.fail(ErrorCode::Unsupported, formatted("head_dim must be 1 to {}, not {}", kMaxHeadDim, q[3]));
  if (k[1] == 0 || q[1] % k[1] != 0) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("the {} heads of q are no multiple of the {} heads of k and v", q[1], k[1]));
  }
  if (q[2] >= kMaxPositions || k[2] >= kMaxPositions)
    ctx.fail(ErrorCode::LimitExceeded,
             formatted("a sequence of {}; positions stay below {}", std::max(q[2], k[2]), kMaxPositions));
}

/// The optional operands from `required` on, and the attributes.
void infer_options(const InferContext& ctx, std::size_t required) {
  const Shape &q = ctx.inputs[0].shape, &k = ctx.inputs[1].shape;
  bool mask = false, position = false;
  for (std::size_t i = required; i < ctx.inputs.size(); ++i) {
    const TensorType& type = ctx.inputs[i];
    if ((type.dtype == DType::f32 || type.dtype == ctx.inputs[0].dtype) && !mask && !position) {
      mask = true;
      const Shape full{q[0], q[1], q[2], k[2]};
      bool fits = type.shape.rank() == 4;
      for (int d = 0; fits && d < 4; ++d) fits = type.shape[d] == 1 || type.shape[d] == full[d];
      if (!fits) {
        ctx.fail(ErrorCode::ShapeMismatch,
                 formatted("mask {} does not broadcast to the scores {}", type.shape.to_string(), full.to_string()));
      }
    } else if (type.dtype == DType::i32 && !position) {
      position = true;
      expect_shape(ctx, i, "position (of each sequence's first query)", Shape{q[0]});
    } else {
      ctx.fail(ErrorCode::DTypeMismatch,
               formatted("operand {} must be a mask (of floats) or after it the position (i32), not {}", i,
                         type.to_string()));
    }
  }
  const auto p = AttentionProblem::of(ctx.inputs, ctx.attrs, required);
  if (!std::isfinite(p.scale)) ctx.fail(ErrorCode::InvalidArgument, formatted("attr scale is {}", p.scale));
  if (!std::isfinite(static_cast<float>(p.scale)))
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr scale {} is no f32", p.scale));
  if (p.window < 0 || p.window >= kMaxPositions) {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("attr window is {}; 0 means none, and positions stay below {}", p.window, kMaxPositions));
  }
  if (p.query_offset <= -kMaxPositions || p.query_offset >= kMaxPositions)
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr query_offset is {}", p.query_offset));
  if (p.position && p.query_offset != 0)
    ctx.fail(ErrorCode::InvalidArgument, "both attr query_offset and operand position say where the queries are");
  if (!p.causal && (p.window != 0 || p.query_offset != 0 || p.position || p.ring)) {
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr {} needs attr causal: without it every query sees every key",
                                                   p.window != 0 ? "window"
                                                   : p.ring      ? "ring"
                                                   : p.position  ? "position"
                                                                 : "query_offset"));
  }
  if (p.ring && p.window == 0) ctx.fail(ErrorCode::InvalidArgument, "attr ring needs attr window");
  if (p.ring && p.keys < p.window + p.queries - 1) {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("attr ring needs window + queries - 1 = {} slots at least; there are {}",
                       p.window + p.queries - 1, p.keys));
  }
}

std::vector<TensorType> infer_attention(const InferContext& ctx) {
  infer_operands(ctx, true);
  infer_options(ctx, kAttentionOperands);
  const Shape& q = ctx.inputs[0].shape;
  return {{ctx.inputs[0].dtype, {q[0], q[2], q[1], q[3]}}, f32_type({q[0], q[1], q[2]})};
}

void infer_gradient(const InferContext& ctx) {
  infer_operands(ctx, false);
  const Shape& q = ctx.inputs[0].shape;
  for (std::size_t i = 3; i < 6; ++i) {
    if (ctx.inputs[i].dtype != DType::f32)
      ctx.fail(ErrorCode::DTypeMismatch,
               formatted("operand {} must be f32, not {}", i, dtype_name(ctx.inputs[i].dtype)));
  }
  expect_shape(ctx, 3, "the result's gradient", {q[0], q[2], q[1], q[3]});
  expect_shape(ctx, 4, "lse", {q[0], q[1], q[2]});
  expect_shape(ctx, 5, "delta", {q[0], q[2], q[1]});
  infer_options(ctx, kGradientOperands);
}

std::vector<TensorType> infer_dq(const InferContext& ctx) {
  infer_gradient(ctx);
  return {ctx.inputs[3]};
}

std::vector<TensorType> infer_dkv(const InferContext& ctx) {
  infer_gradient(ctx);
  const Shape& k = ctx.inputs[1].shape;
  return {2, f32_type({k[0], k[2], k[1], k[3]})};
}

// ---- the same in other ops: gradients of gradients, and of masks. These do hold the scores.

Expr permuted(const Expr& x, Ints axes) { return apply("permute", {x}, {{"axes", std::move(axes)}}); }
Expr product(const Expr& a, const Expr& b, bool transpose_a, bool transpose_b) {
  return apply("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}
Expr indices(const BuildContext& c, Shape shape, std::int64_t axis) {
  return {c, c.add("iota", {}, {{"dims", Ints(shape.begin(), shape.end())}, {"axis", axis}})};
}

/// Scores and what follows from them, as [B, KV, group, queries, keys]: the query heads that share a KV head side by side.
struct Composite {
  const BuildContext& c;
  AttentionProblem p;
  std::span<const Value> in;

  Composite(const BuildContext& context, std::span<const Value> inputs, std::size_t required)
      : c(context), p(problem(context, inputs, required)), in(inputs) {}

  Shape grouped(std::int64_t rows, std::int64_t columns) const {
    return {p.batch, p.kv_heads, p.group(), rows, columns};
  }
  Expr query_side(const Expr& x) const { return reshape_to(x, grouped(p.queries, p.head_dim)); }
  Expr key_side(std::size_t input) const {
    return reshape_to({c, in[input]}, {p.batch, p.kv_heads, 1, p.keys, p.head_dim});
  }
  Expr dout() const { return query_side(permuted({c, in[3]}, {0, 2, 1, 3})); }
  /// lse, or delta put into its order, as a column.
  Expr column(const Expr& x) const { return reshape_to(x, grouped(p.queries, 1)); }

  /// i32 position of each query, [B or 1, 1, 1, queries, 1], and of each key.
  Expr query_positions() const {
    const Expr i = indices(c, {1, 1, 1, p.queries, 1}, 3);
    if (!p.position) return i + static_cast<double>(p.query_offset);
    return i + reshape_to({c, in[*p.position]}, {p.batch, 1, 1, 1, 1});
  }
  Expr key_positions(const Expr& queries) const {
    const Expr j = indices(c, {1, 1, 1, 1, p.keys}, 4);
    if (!p.ring) return j;
    const Expr last = reduce("max", queries, {3}, true);
    return last - apply("mod", {last - j, j.number(static_cast<double>(p.keys))});
  }
  Expr seen(const Expr& scores) const {
    const Expr ordinary = apply("greater", {scores, scores.number(kMaskedScore)});
    if (!p.causal) return ordinary;
    const Expr at = query_positions(), key = key_positions(at);
    Expr all = apply("logical_and", {ordinary, apply("less_equal", {key, at})});
    if (p.window > 0) all = apply("logical_and", {all, apply("greater", {key, at - static_cast<double>(p.window)})});
    if (p.ring) all = apply("logical_and", {all, apply("greater_equal", {key, key.number(0)})});
    return all;
  }

  /// exp(scores - lse) where the query sees the key, else 0.
  Expr weights() const {
    Expr s = product(query_side({c, in[0]}), key_side(1), false, true) * p.scale;
    if (p.mask) {
      const Shape m = in[*p.mask].shape();
      const std::int64_t heads[] = {m[1] == 1 ? 1 : p.kv_heads, m[1] == 1 ? 1 : p.group()};
      s = s + reshape_to({c, in[*p.mask]}, {m[0], heads[0], heads[1], m[2], m[3]});
    }
    const Expr lse(c, in[4]);
    const Expr finite = where(apply("greater", {lse, lse.number(kMaskedScore)}), lse, 0);  // a row without keys: -inf
    const Expr see = seen(s);
    return where(see, apply("exp", {where(see, s - column(finite), 0)}), 0);
  }
  /// The gradient of the scores.
  Expr score_gradient(const Expr& weights) const {
    const Expr delta = permuted({c, in[5]}, {0, 2, 1});
    return weights * (product(dout(), key_side(2), false, true) - column(delta));
  }

 private:
  static AttentionProblem problem(const BuildContext& c, std::span<const Value> inputs, std::size_t required) {
    std::vector<TensorType> types;
    for (const Value& input : inputs) types.push_back(input.type());
    return AttentionProblem::of(types, c.like.attrs, required);
  }
};

std::vector<Value> expand_dq(const BuildContext& c, std::span<const Value> in) {
  const Composite a(c, in, kGradientOperands);
  const Expr dq = product(a.score_gradient(a.weights()), a.key_side(1), false, false) * a.p.scale;
  return {permuted(reshape_to(dq, in[0].shape()), {0, 2, 1, 3}).value};
}

std::vector<Value> expand_dkv(const BuildContext& c, std::span<const Value> in) {
  const Composite a(c, in, kGradientOperands);
  const Expr weights = a.weights();
  const auto key_gradient = [&](const Expr& x) { return permuted(reduce("sum", x, {2}, false), {0, 2, 1, 3}).value; };
  const Expr dk = product(a.score_gradient(weights), a.query_side({c, in[0]}), true, false) * a.p.scale;
  return {key_gradient(dk), key_gradient(product(weights, a.dout(), true, false))};
}

std::vector<Value> vjp_attention(const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
                                 std::span<const Value> dys) {
  const Expr o(c, out[0]);
  const Expr dout = dys[0] ? Expr(c, dys[0]) : expand_to(o.number(0), o.shape());
  // Row sums of weight times gradient of weight. The gradient of lse enters the scores in the same way, with the other sign.
  Expr delta = reduce("sum", dout * o, {3}, false);
  if (dys[1]) delta = delta - permuted({c, dys[1]}, {0, 2, 1});

  std::vector<Value> operands = {in[0], in[1], in[2], dout.value, out[1], delta.value};
  operands.insert(operands.end(), in.begin() + kAttentionOperands, in.end());
  const auto of_heads = [&](Value v) { return permuted({c, v}, {0, 2, 1, 3}).value; };
  const Value dq = c.add("attention_dq", operands, c.like.attrs), dk = c.add("attention_dkv", operands, c.like.attrs);
  std::vector<Value> gradients = {of_heads(dq), of_heads(dk), of_heads(c.graph.value({dk.id().node, 1}))};
  gradients.resize(in.size());
  if (const Composite a(c, operands, kGradientOperands); a.p.mask) {
    // A mask that is learned: its gradient is as large as the scores of its dimensions' extents. Removed where nobody asks.
    const Shape scores{a.p.batch, a.p.heads, a.p.queries, a.p.keys};
    gradients[kAttentionOperands] =
        sum_to(reshape_to(a.score_gradient(a.weights()), scores), in[kAttentionOperands].shape()).value;
  }
  return gradients;
}

// ---- cases

struct CaseShape {
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim;
};
struct CaseOptions {
  bool causal = false;
  std::int64_t window = 0, query_offset = 0;
  std::optional<Shape> mask = {};
  std::vector<double> position = {};
  bool ring = false;
};

/// A case of the op, or of its gradients.
OpCase attention_case(bool gradient, const CaseShape& s, const CaseOptions& o = {}) {
  OpCase c{.inputs = {f32_type({s.batch, s.heads, s.queries, s.head_dim}), f32_type({s.batch, s.kv_heads, s.keys, s.head_dim}),
                      f32_type({s.batch, s.kv_heads, s.keys, s.head_dim})},
           .attrs = {{"scale", 1 / std::sqrt(static_cast<double>(s.head_dim))},
                     {"causal", o.causal},
                     {"window", o.window},
                     {"query_offset", o.query_offset},
                     {"ring", o.ring}},
           .ranges = {{-2, 2}, {-2, 2}, {-2, 2}},
           .values = {}};
  if (gradient) {
    c.inputs.push_back(f32_type({s.batch, s.queries, s.heads, s.head_dim}));
    c.inputs.push_back(f32_type({s.batch, s.heads, s.queries}));
    c.inputs.push_back(f32_type({s.batch, s.queries, s.heads}));
    // Any lse does; one near the real one keeps the weights, and with them rounding errors, near 1 / keys.
    const double lse = std::log(static_cast<double>(std::max<std::int64_t>(s.keys, 1))) + 1;
    c.ranges.insert(c.ranges.end(), {{-2, 2}, {lse, lse + 1}, {-1, 1}});
  }
  if (o.mask) {
    c.inputs.push_back(f32_type(*o.mask));
    c.ranges.emplace_back(-3, 3);
  }
  if (!o.position.empty()) {
    c.inputs.push_back({DType::i32, {s.batch}});
    c.ranges.emplace_back(0, 0);
    c.values.resize(c.inputs.size());
    c.values.back() = o.position;
  }
  c.rtol = 1e-5;
  c.atol = 4e-6;
  return c;
}

std::vector<OpCase> cases(bool gradient) {
  const auto one = [gradient](CaseShape s, CaseOptions o = {}) { return attention_case(gradient, s, o); };
  std::vector<OpCase> cases = {
      one({1, 2, 2, 5, 7, 8}),
      one({2, 4, 2, 9, 9, 16}, {.causal = true}),
      one({1, 3, 1, 6, 11, 4}, {.causal = true, .query_offset = 5}),
      one({1, 1, 1, 13, 13, 5}, {.causal = true, .window = 4}),  // head_dim no multiple of 4
      one({1, 2, 1, 3, 5, 3}),
      one({1, 1, 1, 1, 1, 1}),
      one({2, 2, 1, 5, 6, 8}, {.mask = Shape{2, 1, 5, 6}}),
      one({2, 2, 2, 5, 6, 4}, {.causal = true, .query_offset = 1, .mask = Shape{1, 2, 1, 6}}),
      one({3, 2, 1, 2, 12, 8}, {.causal = true, .position = {0, 4, 10}}),
      one({2, 2, 2, 2, 6, 4}, {.causal = true, .window = 4, .position = {2, 11}, .ring = true}),
      one({0, 2, 1, 3, 4, 8}),
      one({1, 2, 1, 0, 4, 8}),
      one({1, 1, 1, 70, 67, 20}, {.causal = true, .query_offset = 3}),
  };
  // Rows that see no key: 0, and -inf as their lse.
  cases.push_back(one({1, 1, 1, 6, 6, 8}, {.causal = true, .query_offset = -3}));
  cases.push_back(one({1, 2, 1, 3, 0, 4}));
  OpCase masked = one({1, 1, 1, 4, 5, 8}, {.mask = Shape{1, 1, 4, 5}});
  const double inf = HUGE_VAL, low = -3.4028234663852886e38;
  masked.values.resize(masked.inputs.size());
  masked.values.back() = {0, -inf, 1, 2, -inf, -inf, -inf, -inf, -inf, -inf, low, low, low, low, low, 1, low, -1e4, 0, 1e4};
  cases.push_back(masked);
  for (std::size_t i = cases.size() - 3; i < cases.size(); ++i) cases[i].gradient = false;  // their lse is in the loss
  return cases;
}

// ---- records

bool accepts_view(std::size_t input, const Access& access, std::size_t heads_operands, std::size_t required) {
  for (const std::int64_t stride : access.strides) {
    if (stride < 0) return false;
  }
  if (input < heads_operands) return access.strides.size() == 4 && access.strides[3] == 1;
  return input >= required && access.strides.size() == 4;  // a mask
}

OpDef record(std::string name, std::string doc, std::size_t required) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Kernel;
  op.min_inputs = static_cast<int>(required);
  op.max_inputs = static_cast<int>(required) + 2;
  const std::size_t heads_operands = required == kGradientOperands ? 4 : 3;
  op.accepts_view = [=](std::size_t input, const Access& access) {
    return accepts_view(input, access, heads_operands, required);
  };
  op.cases = [=] { return cases(required == kGradientOperands); };
  return op;
}

OpDef attention_op() {
  OpDef op = record("attention",
                    "softmax(scale q k^T + mask) v of q [B, H, Sq, D], k and v [B, KV, Sk, D] as [B, Sq, H, D], and the rows' "
                    "logsumexp [B, H, Sq]; operands mask f32, position i32[B]; attrs scale, causal, window, query_offset, ring.",
                    kAttentionOperands);
  op.gradient = GradientKind::Rule;
  op.infer = infer_attention;
  op.eval = eval_attention;
  op.vjp = vjp_attention;
  op.lower = lower_attention;
  return op;
}

OpDef gradient_op(std::string name, std::string doc) {
  OpDef op = record(std::move(name), std::move(doc), kGradientOperands);
  op.gradient = GradientKind::Expansion;
  op.lower = lower_attention_gradient;
  return op;
}

OpDef dq_op() {
  OpDef op = gradient_op("attention_dq",
                         "Gradient of attention for q as [B, Sq, H, D]; operands q, k, v, the result's gradient, lse, and delta "
                         "[B, Sq, H]: row sums of result times gradient; then as attention.");
  op.infer = infer_dq;
  op.eval = eval_attention_dq;
  op.expand = expand_dq;
  return op;
}

OpDef dkv_op() {
  OpDef op = gradient_op("attention_dkv", "Gradients of attention for k and v as [B, Sk, KV, D]; operands as attention_dq.");
  op.infer = infer_dkv;
  op.eval = eval_attention_dkv;
  op.expand = expand_dkv;
  return op;
}

}  // namespace

std::vector<OpDef> attention_ops() { return {attention_op(), dq_op(), dkv_op()}; }

// ---- public functions

AttentionResult attention_with_lse(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  const Loc& line = q.line();
  std::vector<Value> operands = resolve("attention", {q, k, v});
  const Shape &qs = operands[0].shape(), &ks = operands[1].shape();
  const std::int64_t queries = qs.rank() == 4 ? qs[2] : 0, keys = ks.rank() == 4 ? ks[2] : 0;
  const std::int64_t head_dim = qs.rank() == 4 ? qs[3] : 0;
  if (options.causal && queries != keys && !options.query_offset && !options.position) {
    op_error(
        ErrorCode::InvalidArgument, "attention",
        formatted("attr causal with {} queries and {} keys is ambiguous: set query_offset (0: the first query sees the "
                  "first key; {}: the last query sees the last key) or position",
                  queries, keys, keys - queries),
        line);
  }
  if (options.mask) {
    Value mask = *options.mask;
    if (mask.dtype() == DType::boolean) {  // f32 even for f16 operands: f16 does not reach what masks
      constexpr double kLowest = -3.4028234663852886e38;  // finite: infinities are no arithmetic on every device
      mask = select(Operand(mask, line), Operand(mask.graph().constant(0, DType::f32, line), line), Operand(kLowest, line));
    }
    std::vector<std::int64_t> dims(mask.shape().begin(), mask.shape().end());
    if (dims.size() < 4) dims.insert(dims.begin(), 4 - dims.size(), 1);
    if (dims.size() != static_cast<std::size_t>(mask.shape().rank())) mask = reshape(Operand(mask, line), dims, line);
    operands.push_back(mask);
  }
  if (options.position) operands.push_back(*options.position);
  for (const Value& operand : operands) {
    if (&operand.graph() != &operands[0].graph())
      op_error(ErrorCode::InvalidArgument, "attention", "the operands belong to different graphs", line);
  }
  const double scale = options.scale.value_or(head_dim > 0 ? 1 / std::sqrt(static_cast<double>(head_dim)) : 1);
  const Value out = operands[0].graph().add("attention", operands,
                                            {{"scale", scale},
                                             {"causal", options.causal},
                                             {"window", options.window},
                                             {"query_offset", options.query_offset.value_or(0)},
                                             {"ring", options.ring}},
                                            line);
  return {permute(Operand(out, line), {0, 2, 1, 3}, line), out.graph().value({out.id().node, 1})};
}

Value attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  return attention_with_lse(std::move(q), std::move(k), std::move(v), options).out;
}

}  // namespace aeshna
