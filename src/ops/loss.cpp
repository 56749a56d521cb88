// Losses. Composites whose gradients are written out: shorter kernels and better conditioned than the expansion's.
// attr reduction: "mean", "sum" or "none"; scalars have rank 0.
#include <cmath>
#include <limits>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

const char* reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::Mean:
      return "mean";
    case Reduction::Sum:
      return "sum";
    case Reduction::None:
      return "none";
  }
  return "?";
}

const std::string& infer_reduction(const InferContext& ctx) {
  const std::string& reduction = ctx.attrs.get<std::string>("reduction");
  if (reduction != "mean" && reduction != "sum" && reduction != "none") {
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr reduction must be mean, sum or none, not \"{}\"", reduction));
  }
  return reduction;
}

Ints all_axes(const Shape& shape) {
  Ints axes;
  for (int d = 0; d < shape.rank(); ++d) axes.push_back(d);
  return axes;
}

Expr total(const Expr& x) { return x.shape().rank() == 0 ? x : reduce("sum", x, all_axes(x.shape()), false); }

// ---- elementwise losses: mse, l1, bce_with_logits

struct Elementwise {
  std::string_view name, doc;
  double (*eval)(double x, double t);
  Expr (*expand)(const Expr& x, const Expr& t);
  /// d/dx and d/dt of one element.
  std::pair<Expr, Expr> (*slope)(const Expr& x, const Expr& t);
};

std::vector<TensorType> infer_elementwise(const InferContext& ctx) {
  const TensorType &x = ctx.inputs[0], &t = ctx.inputs[1];
  if (x.dtype != t.dtype) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("the operands have different dtypes: {} and {}", x.to_string(), t.to_string()));
  }
  if (!is_float(x.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(x.dtype)));
  if (x.shape != t.shape)
    ctx.fail(ErrorCode::ShapeMismatch, formatted("the shapes differ: {} and {}", x.to_string(), t.to_string()));
  const std::string& reduction = infer_reduction(ctx);
  if (reduction == "mean" && x.shape.elements() == 0)
    ctx.fail(ErrorCode::ShapeMismatch, "the mean of no elements is undefined");
  return {{x.dtype, reduction == "none" ? x.shape : Shape{}}};
}

/// 1 / (elements that a mean averages over), 1 for the other reductions.
double mean_factor(const std::string& reduction, const Shape& shape) {
  return reduction == "mean" ? 1 / static_cast<double>(shape.elements()) : 1;
}

OpDef elementwise_op(const Elementwise& loss) {
  OpDef op;
  op.name = loss.name;
  op.doc = loss.doc;
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.infer = infer_elementwise;
  op.eval = [f = loss.eval](const EvalContext& ctx) {
    const auto &x = ctx.inputs[0]->data, &t = ctx.inputs[1]->data;
    auto& y = ctx.results[0].data;
    const std::string& reduction = ctx.node.attrs.get<std::string>("reduction");
    for (std::size_t i = 0; i < x.size(); ++i) y[reduction == "none" ? i : 0] += f(x[i], t[i]);
    if (reduction == "mean") y[0] /= static_cast<double>(x.size());
  };
  op.expand = [f = loss.expand](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const std::string& reduction = c.like.attrs.get<std::string>("reduction");
    const Expr each = f({c, in[0]}, {c, in[1]});
    if (reduction == "none") return {each.value};
    if (reduction == "sum") return {total(each).value};
    return {(total(each) * mean_factor(reduction, in[0].shape())).value};
  };
  op.vjp = [f = loss.slope](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                            std::span<const Value> dys) -> std::vector<Value> {
    const double factor = mean_factor(c.like.attrs.get<std::string>("reduction"), in[0].shape());
    const Expr dy = factor == 1 ? Expr(c, dys[0]) : Expr(c, dys[0]) * factor;  // broadcasts when the loss is a scalar
    const auto [dx, dt] = f({c, in[0]}, {c, in[1]});
    return {(dy * dx).value, (dy * dt).value};
  };
  op.cases = [name = loss.name] {
    std::vector<OpCase> cases;
    for (const char* reduction : {"mean", "sum", "none"}) {
      for (const Shape& shape : {Shape{5, 7}, Shape{}, Shape{1}, Shape{1031}, Shape{0, 3}}) {
        if (shape.elements() == 0 && std::string_view(reduction) == "mean") continue;
        OpCase c{.inputs = {f32_type(shape), f32_type(shape)},
                 .attrs = {{"reduction", std::string(reduction)}},
                 .ranges = {},
                 .values = {}};
        c.ranges = {{-4, 4}, {0, 1}};
        if (name == "l1") c.ranges = {{1.2, 4}, {0, 1}};  // the kink is tested in loss_test.cpp
        cases.push_back(std::move(c));
      }
    }
    if (name == "bce_with_logits") {
      OpCase edge{.inputs = {f32_type({8}), f32_type({8})},
                  .attrs = {{"reduction", std::string("none")}},
                  .ranges = {},
                  .values = {}};
      edge.values = {{0, 13, -13, 89, -89, 1e4, -1e4, 20}, {0, 1, 0, 1, 1, 0, 1, 0.5}};
      edge.gradient = false;
      cases.push_back(std::move(edge));
    }
    return cases;
  };
  return op;
}

constexpr Elementwise kMse = {"mse", "(prediction - target)^2, reduced by attr reduction.",
                              [](double x, double t) { return (x - t) * (x - t); },
                              [](const Expr& x, const Expr& t) {
                                const Expr d = x - t;
                                return d * d;
                              },
                              [](const Expr& x, const Expr& t) { return std::pair(2.0 * (x - t), -2.0 * (x - t)); }};

constexpr Elementwise kL1 = {"l1", "|prediction - target|, reduced by attr reduction; gradient 0 where they are equal.",
                             [](double x, double t) { return std::fabs(x - t); },
                             [](const Expr& x, const Expr& t) { return apply("abs", {x - t}); },
                             [](const Expr& x, const Expr& t) {
                               const Expr s = apply("sign", {x - t});
                               return std::pair(s, -s);
                             }};

constexpr Elementwise kBce = {
    "bce_with_logits",
    "Binary cross-entropy of sigmoid(logits): max(x, 0) - x t + log1p(exp(-|x|)), reduced by attr reduction.",
    [](double x, double t) { return std::fmax(x, 0) - x * t + std::log1p(std::exp(-std::fabs(x))); },
    [](const Expr& x, const Expr& t) {
      return apply("maximum", {x, x.number(0)}) - x * t + apply("log1p", {apply("exp", {-apply("abs", {x})})});
    },
    [](const Expr& x, const Expr& t) { return std::pair(apply("sigmoid", {x}) - t, -x); }};

// ---- cross_entropy

bool dense_labels(const TensorType& labels) { return is_float(labels.dtype); }

Shape row_shape(const Shape& logits) { return Shape(logits.dims().first(static_cast<std::size_t>(logits.rank() - 1))); }

std::vector<TensorType> infer_cross_entropy(const InferContext& ctx) {
  const TensorType &logits = ctx.inputs[0], &labels = ctx.inputs[1];
  if (!is_float(logits.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("logits must be floats, not {}", dtype_name(logits.dtype)));
  if (logits.shape.rank() < 1 || logits.shape[logits.shape.rank() - 1] == 0) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("logits need at least one class along their last axis: {}", logits.to_string()));
  }
  const Shape rows = row_shape(logits.shape);
  if (dense_labels(labels)) {
    if (labels != logits) {
      ctx.fail(labels.dtype != logits.dtype ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
               formatted("dense labels must have the logits' type {}, not {}", logits.to_string(), labels.to_string()));
    }
  } else if (labels.dtype != DType::i32 && labels.dtype != DType::i64) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("labels must be i32 indices or floats, not {}", dtype_name(labels.dtype)));
  } else if (labels.shape != rows) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("labels for logits {} must have shape {}, not {}", logits.to_string(),
                                                 rows.to_string(), labels.shape.to_string()));
  }
  ctx.attrs.get<std::int64_t>("ignore_index");
  return {{logits.dtype, infer_reduction(ctx) == "none" ? rows : Shape{}}};
}

void eval_cross_entropy(const EvalContext& ctx) {
  const HostTensor &logits = *ctx.inputs[0], &labels = *ctx.inputs[1];
  auto& y = ctx.results[0].data;
  const std::string& reduction = ctx.node.attrs.get<std::string>("reduction");
  const auto ignore = static_cast<double>(ctx.node.attrs.get<std::int64_t>("ignore_index"));
  const auto classes = static_cast<std::size_t>(logits.type.shape[logits.type.shape.rank() - 1]);
  const bool dense = dense_labels(labels.type);
  double count = 0;
  for (std::size_t row = 0; row < logits.data.size() / classes; ++row) {
    const double* x = &logits.data[row * classes];
    double shift = -std::numeric_limits<double>::infinity(), sum = 0, loss = 0;
    for (std::size_t i = 0; i < classes; ++i) shift = std::fmax(shift, x[i]);
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(x[i] - shift);
    const auto log_softmax = [&](std::size_t i) { return x[i] - shift - std::log(sum); };
    if (dense) {
      for (std::size_t i = 0; i < classes; ++i) {
        if (const double p = labels.data[row * classes + i]; p != 0) loss -= p * log_softmax(i);
      }
      count += 1;
    } else if (const double label = labels.data[row];
               label != ignore && label >= 0 && label < static_cast<double>(classes)) {
      loss = -log_softmax(static_cast<std::size_t>(label));
      count += 1;
    }
    y[reduction == "none" ? row : 0] += loss;
  }
  if (reduction == "mean") y[0] /= std::fmax(count, 1);
}

/// What expansion and gradient share: the rows that count (index labels), their labels as one-hot, and how many.
struct Rows {
  Expr hit;     ///< boolean [..., C]: the label's class in a row that counts
  Expr counts;  ///< boolean [..., 1]
};

Rows index_rows(const BuildContext& c, Value labels, const Shape& logits) {
  const std::int64_t ignore = c.like.attrs.get<std::int64_t>("ignore_index");
  const int last = logits.rank() - 1;
  const Expr label = cast_to(reshape_to({c, labels}, logits.with(last, 1)), DType::i32);
  const Expr in_range = apply("logical_and", {apply("greater_equal", {label, label.number(0)}),
                                              apply("less", {label, label.number(static_cast<double>(logits[last]))})});
  const bool can_match = ignore >= 0 && ignore < logits[last];  // elsewhere the range already excludes it
  const Expr counts =
      can_match
          ? apply("logical_and", {in_range, apply("not_equal", {label, label.number(static_cast<double>(ignore))})})
          : in_range;
  const Expr classes(c,
                     c.add("iota", {}, {{"dims", Ints(logits.begin(), logits.end())}, {"axis", std::int64_t{last}}}));
  return {apply("logical_and", {apply("equal", {classes, label}), counts}), counts};
}

/// 1 / max(rows that count, 1), a scalar: all ignored gives loss 0 and gradient 0.
Expr inverse_count(const Rows& rows, DType dtype) {
  const Expr count = total(cast_to(rows.counts, dtype));
  return apply("recip", {apply("maximum", {count, count.number(1)})});
}

std::vector<Value> expand_cross_entropy(const BuildContext& c, std::span<const Value> in) {
  const Shape shape = in[0].shape();
  const int last = shape.rank() - 1;
  const std::string& reduction = c.like.attrs.get<std::string>("reduction");
  const Expr log_softmax = apply("log_softmax", {{c, in[0]}}, {{"axis", std::int64_t{last}}});
  Expr losses, factor;  // losses: [...]
  if (dense_labels(in[1].type())) {
    const Expr labels(c, in[1]);
    const Expr terms =
        where(apply("equal", {labels, labels.number(0)}), 0, labels * log_softmax);  // 0 * -inf is 0 here
    losses = -reduce("sum", terms, {last}, false);
    factor = losses.number(1 / std::fmax(static_cast<double>(row_shape(shape).elements()), 1));
  } else {
    const Rows rows = index_rows(c, in[1], shape);
    losses = -reduce("sum", where(rows.hit, log_softmax, 0), {last}, false);
    if (reduction == "mean") factor = inverse_count(rows, in[0].dtype());
  }
  if (reduction == "none") return {losses.value};
  return {(reduction == "sum" ? total(losses) : total(losses) * factor).value};
}

std::vector<Value> vjp_cross_entropy(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                                     std::span<const Value> dys) {
  const Shape shape = in[0].shape();
  const int last = shape.rank() - 1;
  const std::string& reduction = c.like.attrs.get<std::string>("reduction");
  const Expr x(c, in[0]);
  Expr dy(c, dys[0]);  // a scalar, or one per row: then [..., 1]
  if (reduction == "none") dy = reshape_to(dy, shape.with(last, 1));
  const Expr softmax = apply("softmax", {x}, {{"axis", std::int64_t{last}}});
  if (dense_labels(in[1].type())) {
    if (reduction == "mean") dy = dy * (1 / std::fmax(static_cast<double>(row_shape(shape).elements()), 1));
    const Expr labels(c, in[1]);
    const Expr log_softmax = apply("log_softmax", {x}, {{"axis", std::int64_t{last}}});
    return {(dy * (softmax * reduce("sum", labels, {last}, true) - labels)).value, (-(dy * log_softmax)).value};
  }
  const Rows rows = index_rows(c, in[1], shape);
  if (reduction == "mean") dy = dy * inverse_count(rows, in[0].dtype());
  return {where(rows.counts, dy * (softmax - cast_to(rows.hit, in[0].dtype())), 0).value, Value()};
}

std::vector<OpCase> cross_entropy_cases() {
  const auto one = [](Shape logits, const char* reduction, std::vector<double> labels, std::int64_t ignore = -100) {
    OpCase c{.inputs = {f32_type(logits), {DType::i32, row_shape(logits)}},
             .attrs = {{"reduction", std::string(reduction)}, {"ignore_index", ignore}},
             .ranges = {{-4, 4}},
             .values = {{}, std::move(labels)}};
    c.rtol = 4e-6;
    return c;
  };
  const auto dense = [](Shape logits, const char* reduction) {
    OpCase c{.inputs = {f32_type(logits), f32_type(logits)},
             .attrs = {{"reduction", std::string(reduction)}, {"ignore_index", std::int64_t{-100}}},
             .ranges = {{-4, 4}, {0.05, 1}},
             .values = {}};
    c.rtol = 4e-6;
    return c;
  };
  std::vector<OpCase> cases = {
      one({5, 7}, "mean", {0, 6, 3, 1, 2}),
      one({5, 7}, "sum", {0, 6, 3, 1, 2}),
      one({5, 7}, "none", {0, 6, 3, 1, 2}),
      one({5, 7}, "mean", {0, -100, 3, -100, 2}),
      one({5, 7}, "none", {0, -100, 3, -100, 2}),
      one({4, 3}, "mean", {-100}),           // all ignored: 0, not NaN
      one({4, 3}, "mean", {0, 2, 1, 2}, 2),  // a class is ignored
      one({4, 3}, "mean", {0, 7, -1, 2}),    // labels out of range count nowhere
      one({2, 3, 5}, "mean", {0, 4, 2, 1, 3, -100}),
      one({7}, "mean", {3}),  // one row, rank 1
      one({3, 1}, "sum", {0}),
      one({0, 5}, "mean", {0}),
      one({2, 1031}, "mean", {1030, 5}),
      dense({5, 7}, "mean"),
      dense({2, 3, 5}, "sum"),
      dense({5, 7}, "none"),
      dense({0, 5}, "mean"),
  };
  OpCase extreme = one({3, 3}, "none", {0, 1, 2});
  extreme.values[0] = {1e4, -1e4, 0, 1e4, -1e4, 0, 89, 89, -89};
  cases.push_back(extreme);
  cases.back().gradient = false;
  return cases;
}

OpDef cross_entropy_op() {
  OpDef op;
  op.name = "cross_entropy";
  op.doc =
      "-log_softmax(logits)[label] per row of [..., C]; labels are i32 indices (attr ignore_index) or dense; attr "
      "reduction.";
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.infer = infer_cross_entropy;
  op.eval = eval_cross_entropy;
  op.expand = expand_cross_entropy;
  op.vjp = vjp_cross_entropy;
  op.cases = cross_entropy_cases;
  return op;
}

Value build_elementwise(std::string_view op, const Operand& prediction, const Operand& target, Reduction reduction) {
  std::vector<Value> operands = resolve(op, {prediction, target});
  // A number stands for a whole tensor; two tensors must agree.
  if (target.is_number())
    operands[1] = expand(Operand(operands[1], prediction.line()),
                         {operands[0].shape().begin(), operands[0].shape().end()}, prediction.line());
  return operands[0].graph().add(op, operands, {{"reduction", std::string(reduction_name(reduction))}},
                                 prediction.line());
}

}  // namespace

std::vector<OpDef> loss_ops() {
  return {cross_entropy_op(), elementwise_op(kMse), elementwise_op(kL1), elementwise_op(kBce)};
}

// ---- public functions

Value mse(Operand prediction, Operand target, Reduction reduction) {
  return build_elementwise("mse", prediction, target, reduction);
}
Value l1(Operand prediction, Operand target, Reduction reduction) {
  return build_elementwise("l1", prediction, target, reduction);
}
Value bce_with_logits(Operand logits, Operand target, Reduction reduction) {
  return build_elementwise("bce_with_logits", logits, target, reduction);
}

Value cross_entropy(Operand logits, Operand labels, Reduction reduction, std::int64_t ignore_index) {
  const Value x = resolve_value("cross_entropy", logits), t = resolve_value("cross_entropy", labels);
  const Loc& line = logits.line();
  const Value operands[] = {x, t};
  const Value loss =
      x.graph().add("cross_entropy", operands,
                    {{"reduction", std::string(reduction_name(reduction))}, {"ignore_index", ignore_index}}, line);
  if (dense_labels(t.type())) return loss;
  // A bad label never reaches memory (the classes are compared, not indexed), but it must not pass unseen.
  const Operand label(t, line);
  const auto classes = static_cast<double>(x.shape()[x.shape().rank() - 1]);
  const auto at = [&](Value v) { return Operand(v, line); };
  const Value outside = logical_or(at(less(label, Operand(0, line))), at(greater_equal(label, Operand(classes, line))));
  const Value bad = logical_and(at(outside), at(not_equal(label, Operand(static_cast<double>(ignore_index), line))));
  const Value any = greater(at(sum(at(cast(at(bad), DType::i32)))), Operand(0, line));
  x.graph().add("check", {&any, 1},
                {{"code", std::string("out_of_range")}, {"what", std::string("a label of cross_entropy")}}, line);
  return loss;
}

}  // namespace aeshna
