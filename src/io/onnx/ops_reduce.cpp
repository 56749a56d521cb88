// Reductions, softmax and its relatives.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Reduced {
  Axes axes;
  bool keep = true, nothing = false;
  Ints result;         ///< dims
  bool empty = false;  ///< no elements are reduced, but there are results
};

/// Axes are an attribute before opset `since`, an input from then on.
Reduced reduced(Context& c, std::int64_t since) {
  Reduced r;
  const int rank = c.rank(0);
  r.keep = c.flag("keepdims", true);
  const bool noop = c.flag("noop_with_empty_axes", false);
  r.axes = c.axes(c.ints_since(since, "axes", 1), rank);
  if (r.axes.empty() && (noop || rank == 0)) {
    r.nothing = true;
    return r;
  }
  if (r.axes.empty()) {
    r.axes.resize(static_cast<std::size_t>(rank));
    std::iota(r.axes.begin(), r.axes.end(), 0);
  }
  bool results = true;
  for (int i = 0; i < rank; ++i) {
    const bool listed = std::ranges::find(r.axes, i) != r.axes.end();
    if (!listed || r.keep) r.result.push_back(listed ? 1 : c.shape(0)[i]);
    if (!listed) results = results && c.shape(0)[i] > 0;
  }
  r.empty = results && c.shape(0).elements() == 0;
  return r;
}

template <Value (*F)(Operand, const Axes&, bool)>
Value over(Value x, const Reduced& r) {
  return r.nothing ? x : F(x, r.axes, r.keep);
}

Values reduce_sum(Context& c) {
  const Reduced r = reduced(c, 13);
  return {in_wide(c.in(0), [&](Value x) { return over<sum>(x, r); })};
}
Values reduce_prod(Context& c) {
  const Reduced r = reduced(c, 18);
  return {in_wide(c.in(0), [&](Value x) { return over<prod>(x, r); })};
}

Values reduce_mean(Context& c) {
  const Reduced r = reduced(c, 18);
  const Value x = c.in(0);
  if (r.nothing) return {x};
  if (is_float(x.dtype())) return {mean(x, r.axes, r.keep)};
  std::int64_t count = 1;
  for (const std::int64_t a : r.axes) count *= x.shape()[static_cast<int>(a)];
  return {in_wide(x, [&](Value y) { return div(sum(y, r.axes, r.keep), count); })};
}

/// The neutral element of max (of min, with the opposite sign) in this dtype.
double lowest(DType dtype, bool of_max) {
  if (is_float(dtype)) return of_max ? -kInf : kInf;
  switch (dtype) {
    case DType::i8:
      return of_max ? -128 : 127;
    case DType::i16:
      return of_max ? -32768 : 32767;
    case DType::u8:
      return of_max ? 0 : 255;
    case DType::u16:
      return of_max ? 0 : 65535;
    case DType::u32:
    case DType::u64:
      return of_max ? 0 : 4294967295.0;
    default:
      return of_max ? -2147483648.0 : 2147483647.0;
  }
}

template <bool of_max>
Values extreme(Context& c) {
  const Reduced r = reduced(c, 18);
  if (c.dtype(0) == DType::boolean) {
    const Value x = over < of_max ? reduce_max : reduce_min > (cast(c.in(0), DType::i32), r);
    return {cast(x, DType::boolean)};
  }
  if (r.empty)
    return {c.filled(Shape(std::span<const std::int64_t>(r.result)), lowest(c.dtype(0), of_max), c.dtype(0))};
  return {in_wide(c.in(0), [&](Value x) { return over < of_max ? reduce_max : reduce_min > (x, r); })};
}

Values reduce_l1(Context& c) {
  const Reduced r = reduced(c, 18);
  return {in_wide(c.in(0), [&](Value x) { return over<sum>(abs(x), r); })};
}
Values reduce_l2(Context& c) {
  const Reduced r = reduced(c, 18);
  return {in_wide(c.in(0), [&](Value x) {
    const Value f = is_float(x.dtype()) ? x : cast(x, DType::f32);
    return sqrt(over<sum>(mul(f, f), r));
  })};
}
Values reduce_sum_square(Context& c) {
  const Reduced r = reduced(c, 18);
  return {in_wide(c.in(0), [&](Value x) { return over<sum>(mul(x, x), r); })};
}
Values reduce_log_sum(Context& c) {
  const Reduced r = reduced(c, 18);
  return {log(over<sum>(c.in(0), r))};
}
Values reduce_log_sum_exp(Context& c) {
  const Reduced r = reduced(c, 18);
  if (r.empty) return {c.filled(Shape(std::span<const std::int64_t>(r.result)), -kInf, c.dtype(0))};
  return {over<logsumexp>(c.in(0), r)};
}

template <Value (*F)(Operand, std::int64_t, bool)>
Values arg(Context& c) {
  const int axis = c.axis(c.integer("axis", 0), c.rank(0));
  const bool keep = c.flag("keepdims", true), last = c.flag("select_last_index", false);
  Value x = widen(c.in(0));
  if (x.dtype() == DType::boolean) x = cast(x, DType::i32);
  const Value i = F(last ? flip(x, {axis}) : x, axis, keep);
  return {cast(last ? sub(x.shape()[axis] - 1, i) : i, DType::i64)};
}

// ---- softmax: before opset 13 over everything from the axis on

template <class F>
Values softened(Context& c, F f) {
  const int rank = c.rank(0);
  const std::int64_t given = c.integer("axis", c.opset < 13 ? 1 : -1);
  const Value x = c.in(0);
  if (rank == 0) return {reshape(f(reshape(x, {1}), std::int64_t{0}), {})};
  if (c.opset >= 13) return {f(x, std::int64_t{c.axis(given, rank)})};
  const std::int64_t axis = given == rank ? rank : c.axis(given, rank);
  if (axis == rank - 1) return {f(x, std::int64_t{rank - 1})};
  Ints dims = {1, 1};
  for (int i = 0; i < rank; ++i) dims[i < axis ? 0 : 1] *= x.shape()[i];
  return {reshape(f(reshape(x, dims), std::int64_t{1}), dims_of(x.shape()))};
}

Values softmax_op(Context& c) {
  return softened(c, [](Value x, std::int64_t axis) { return softmax(x, axis); });
}
Values log_softmax_op(Context& c) {
  return softened(c, [](Value x, std::int64_t axis) { return log_softmax(x, axis); });
}
Values hardmax_op(Context& c) {  // 1 at the first maximum
  return softened(c, [&](Value x, std::int64_t axis) {
    const Value at = argmax(x, axis, true);
    return cast(equal(at, iota(c.graph, x.shape(), axis)), x.dtype());
  });
}

}  // namespace

std::span<const Op> reduce_ops() {
  static constexpr std::array table = {
      Op{"ArgMax", arg<argmax>},          Op{"ArgMin", arg<argmin>},
      Op{"Hardmax", hardmax_op},          Op{"LogSoftmax", log_softmax_op},
      Op{"ReduceL1", reduce_l1},          Op{"ReduceL2", reduce_l2},
      Op{"ReduceLogSum", reduce_log_sum}, Op{"ReduceLogSumExp", reduce_log_sum_exp},
      Op{"ReduceMax", extreme<true>},     Op{"ReduceMean", reduce_mean},
      Op{"ReduceMin", extreme<false>},    Op{"ReduceProd", reduce_prod},
      Op{"ReduceSum", reduce_sum},        Op{"ReduceSumSquare", reduce_sum_square},
      Op{"Softmax", softmax_op},
  };
  return table;
}

}  // namespace aeshna::onnx
