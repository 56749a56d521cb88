// Matrix products. The record sees operands of rank >= 2; vectors are reshaped by the public function.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/quant.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// batch ++ {M, K} times batch ++ {K, N}; each operand stored with its last two dimensions swapped if transposed.
struct Product {
  Shape batch;
  std::int64_t m = 0, n = 0, k_a = 0, k_b = 0;
};

Shape leading(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(shape.rank() - 2))); }

Shape append(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  Ints dims(batch.begin(), batch.end());
  dims.push_back(rows);
  dims.push_back(columns);
  return Shape(dims);
}

Product split(const Shape& a, const Shape& b, const Attrs& attrs) {
  const bool ta = attrs.get<bool>("transpose_a"), tb = attrs.get<bool>("transpose_b");
  const int last_a = a.rank() - 1, last_b = b.rank() - 1;
  return {broadcast_shapes(leading(a), leading(b)), a[ta ? last_a : last_a - 1], b[tb ? last_b - 1 : last_b],
          a[ta ? last_a - 1 : last_a], b[tb ? last_b : last_b - 1]};
}

std::vector<TensorType> infer(const InferContext& ctx) {
  const TensorType &a = ctx.inputs[0], &b = ctx.inputs[1];
  if (is_quantized(a.dtype) && is_quantized(b.dtype)) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("both operands are quantized: {} and {}", a.to_string(), b.to_string()));
  }
  const bool quantized = is_quantized(a.dtype) || is_quantized(b.dtype);
  const DType dtype = is_quantized(a.dtype) ? b.dtype : a.dtype;
  if (a.dtype != b.dtype && !quantized) {
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("the operands have different dtypes: {} and {}", a.to_string(), b.to_string()));
  }
  if (!is_float(dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(dtype)));
  if (a.shape.rank() < 2 || b.shape.rank() < 2) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("needs operands of rank >= 2: {} and {}", a.to_string(), b.to_string()));
  }
  const Product p = guarded(ctx, [&] { return split(a.shape, b.shape, ctx.attrs); });
  if (p.k_a != p.k_b) {
    const auto word = [&](const char* attr) { return ctx.attrs.get<bool>(attr) ? " transposed" : ""; };
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("contracted extents differ: {}{} has {}, {}{} has {}", a.to_string(), word("transpose_a"), p.k_a,
                       b.to_string(), word("transpose_b"), p.k_b));
  }
  return {{dtype, append(p.batch, p.m, p.n)}};
}

void eval(const EvalContext& ctx) {
  const HostTensor &a = *ctx.inputs[0], &b = *ctx.inputs[1];
  HostTensor& y = ctx.results[0];
  const Product p = split(a.type.shape, b.type.shape, ctx.node.attrs);
  const bool ta = ctx.node.attrs.get<bool>("transpose_a"), tb = ctx.node.attrs.get<bool>("transpose_b");
  const std::int64_t a_row = ta ? 1 : p.k_a, a_k = ta ? p.m : 1;
  const std::int64_t b_k = tb ? 1 : p.n, b_column = tb ? p.k_b : 1;
  // Strides over the batch, in matrices.
  const Strides batch_a = broadcast_strides(leading(a.type.shape), p.batch),
                batch_b = broadcast_strides(leading(b.type.shape), p.batch);
  double* out = y.data.data();
  walk<2>(p.batch, {batch_a, batch_b}, [&](const auto& at) {
    const double* x = a.data.data() + at[0] * p.m * p.k_a;
    const double* w = b.data.data() + at[1] * p.k_b * p.n;
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k_a; ++k) sum += x[i * a_row + k * a_k] * w[j * b_column + k * b_k];
        *out++ = sum;
      }
    }
  });
}

Contraction contraction(const Node& node, std::span<const TensorType> inputs) {
  const int rank = node.results[0].shape.rank();
  const auto m = static_cast<std::size_t>(rank) - 2, n = m + 1, k = m + 2;
  Contraction c;
  c.roles.assign(m, Contraction::Role::Batch);
  c.roles.insert(c.roles.end(), {Contraction::Role::Row, Contraction::Role::Column});
  const bool transpose[2] = {node.attrs.get<bool>("transpose_a"), node.attrs.get<bool>("transpose_b")};
  for (std::size_t side = 0; side < 2; ++side) {
    const Shape& shape = inputs[side].shape;
    auto& index = c.operands[side];
    const auto lead = static_cast<std::size_t>(rank - shape.rank());
    for (int d = 0; d < shape.rank() - 2; ++d) {
      index.emplace_back();
      if (shape[d] != 1) index.back().terms = {{lead + static_cast<std::size_t>(d)}};
    }
    const std::size_t last[2] = {side == 0 ? m : k, side == 0 ? k : n};
    index.push_back({.terms = {{last[transpose[side] ? 1 : 0]}}});
    index.push_back({.terms = {{last[transpose[side] ? 0 : 1]}}});
  }
  const Shape& a = inputs[0].shape;
  c.k = {a[a.rank() - (transpose[0] ? 2 : 1)]};
  return c;
}

Expr product(const Expr& a, const Expr& b, bool transpose_a, bool transpose_b) {
  return apply("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

/// [..., R, C] -> [prod(...) * R, C]
Expr flatten_rows(const Expr& x) {
  const Shape shape = x.shape();
  const std::int64_t columns = shape[shape.rank() - 1];
  std::int64_t rows = 1;
  for (int d = 0; d < shape.rank() - 1; ++d) rows *= shape[d];
  return reshape_to(x, {rows, columns});
}

std::vector<Value> vjp(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                       std::span<const Value> dys) {
  const bool ta = c.like.attrs.get<bool>("transpose_a"), tb = c.like.attrs.get<bool>("transpose_b");
  const Expr a(c, in[0]), b(c, in[1]), dy(c, dys[0]);
  if (is_quantized(a.value.dtype())) {  // frozen
    const Expr db = tb ? product(dy, a, true, ta) : product(a, dy, !ta, false);
    return {Value(), sum_to(db, in[1].shape()).value};
  }
  const Expr da = ta ? product(b, dy, tb, true) : product(dy, b, false, !tb);
  if (is_quantized(b.value.dtype())) return {sum_to(da, in[0].shape()).value, Value()};
  // One weight matrix for a whole batch of rows (linear layers): one product with a long K instead of a batch and a sum.
  if (leading(b.shape()).elements() == 1 && a.shape().rank() > 2 && !ta && leading(a.shape()) == leading(dy.shape())) {
    const Expr rows = flatten_rows(a), d = flatten_rows(dy);
    const Expr db = tb ? product(d, rows, true, false) : product(rows, d, true, false);
    return {sum_to(da, in[0].shape()).value, reshape_to(db, in[1].shape()).value};
  }
  const Expr db = tb ? product(dy, a, true, ta) : product(a, dy, !ta, false);
  return {sum_to(da, in[0].shape()).value, sum_to(db, in[1].shape()).value};
}

std::vector<OpCase> cases() {
  const auto one = [](Shape a, Shape b, bool ta = false, bool tb = false) {
    OpCase c{.inputs = {f32_type(a), f32_type(b)},
             .attrs = {{"transpose_a", ta}, {"transpose_b", tb}},
             .ranges = {},
             .values = {}};
    const std::int64_t k = a[a.rank() - (ta ? 2 : 1)];
    const double error =
        std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));  // rounding errors add like a random walk
    c.rtol *= error;
    c.atol *= 2 * error;
    return c;
  };
  return {
      one({5, 7}, {7, 3}),
      one({7, 5}, {7, 3}, true),
      one({5, 7}, {3, 7}, false, true),
      one({7, 5}, {3, 7}, true, true),
      one({1, 64}, {64, 33}),  // GEMV
      one({1, 64}, {33, 64}, false, true),
      one({64, 1}, {1, 17}),  // K = 1
      one({1, 1}, {1, 1}),
      one({3, 0}, {0, 4}),  // K = 0: zeros
      one({0, 3}, {3, 4}),
      one({3, 2}, {2, 0}),
      one({16, 16}, {16, 16}),
      one({17, 19}, {19, 15}),
      one({65, 130}, {130, 67}),
      one({33, 147}, {147, 50}),  // K % 4 != 0, N % 16 != 0
      one({64, 64}, {64, 128}),
      one({8, 1031}, {1031, 8}),  // long K
      one({2, 5, 7}, {2, 7, 3}),
      one({2, 5, 7}, {7, 3}),  // one weight for a batch
      one({2, 5, 7}, {3, 7}, false, true),
      one({5, 7}, {4, 7, 3}),
      one({2, 1, 5, 7}, {3, 7, 4}),  // batch broadcast both ways
      one({2, 1, 7, 5}, {3, 4, 7}, true, true),
      one({1, 3, 5, 4}, {2, 3, 4, 5}),
  };
}

}  // namespace

std::vector<OpDef> matmul_ops() {
  OpDef op;
  op.name = "matmul";
  op.doc =
      "[..., M, K] x [..., K, N]; leading dimensions broadcast; attrs transpose_a, transpose_b swap an operand's last "
      "two. One operand may be quantized; the result then has the other's dtype.";
  op.kind = OpKind::Product;
  op.min_inputs = op.max_inputs = 2;
  op.infer = infer;
  op.eval = eval;
  op.gradient = GradientKind::Rule;
  op.vjp = vjp;
  op.lower = lower_matmul;
  op.reads_quantized = true;
  op.contraction = contraction;
  op.cases = cases;
  return {op};
}

Value matmul(Operand a, Operand b, bool transpose_a, bool transpose_b) {
  const std::vector<Value> operands = resolve("matmul", {a, b});
  Value x = operands[0], w = operands[1];
  const Loc& line = a.line();
  const Shape xs = x.shape(), ws = w.shape();
  if (xs.rank() == 0 || ws.rank() == 0) {
    op_error(ErrorCode::ShapeMismatch, "matmul",
             formatted("scalars have no matrix product: {} and {}", x.type().to_string(), w.type().to_string()), line);
  }
  if ((xs.rank() == 1 && transpose_a) || (ws.rank() == 1 && transpose_b)) {
    op_error(ErrorCode::InvalidArgument, "matmul",
             formatted("a vector cannot be transposed: {} and {}", x.type().to_string(), w.type().to_string()), line);
  }
  if (xs.rank() == 1) x = reshape(x, {1, xs[0]}, line);
  if (ws.rank() == 1) w = reshape(w, {ws[0], 1}, line);
  // A batch of rows times one matrix is one product of all the rows.
  const bool flatten = xs.rank() > 2 && !transpose_a && ws.rank() <= 2;
  if (flatten) {
    std::int64_t rows = 1;
    for (int d = 0; d < xs.rank() - 1; ++d) rows *= xs[d];
    x = reshape(x, {rows, xs[xs.rank() - 1]}, line);
  }
  Value y;
  const Value values[] = {x, w};
  try {
    y = x.graph().add("matmul", values, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, line);
  } catch (Error& e) {
    if (flatten || xs.rank() == 1 || ws.rank() == 1) {
      throw e.context(formatted("matmul of {} and {}", TensorType{x.dtype(), xs}.to_string(),
                                TensorType{w.dtype(), ws}.to_string()));
    }
    throw;
  }
  Ints dims(y.shape().begin(), y.shape().end());
  if (flatten) {
    dims.assign(xs.begin(), xs.end() - 1);
    dims.push_back(y.shape()[1]);
  }
  if (ws.rank() == 1) dims.pop_back();
  if (xs.rank() == 1) dims.erase(dims.end() - (ws.rank() == 1 ? 1 : 2));
  return Shape(dims) == y.shape() ? y : reshape(y, std::move(dims), line);
}

Value linear(Operand x, Operand w, std::optional<Value> bias) {
  const Value y = matmul(x, w, false, true);
  return bias ? add(Operand(y, x.line()), Operand(*bias, x.line())) : y;
}

}  // namespace aeshna
