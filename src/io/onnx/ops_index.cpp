// Gathers, scatters, orders and scans.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMaxDense = 1 << 24;  // comparisons of a scatter that has no op of its own

/// Operand i as indices into an axis of `extent`, where negative ones count from the end.
Value indices(Context& c, std::size_t i, std::int64_t extent) {
  const Literal* known = c.if_known(i);
  if (known == nullptr) return from_start(c.in(i), extent);
  std::vector<double> values;
  for (const std::int64_t v : to_ints(*known)) values.push_back(static_cast<double>(v < 0 ? v + extent : v));
  return c.tensor(known->type().shape, values, DType::i64);
}

Values gather_op(Context& c) {
  const int axis = c.axis(c.integer("axis", 0), c.rank(0));
  return {gather(c.in(0), indices(c, 1, c.shape(0)[axis]), axis)};
}

/// x without what lies beyond `shape` along the other axes.
Value cut_to(Value x, const Shape& shape, int axis) {
  Ints axes, starts, ends;
  for (int i = 0; i < x.shape().rank(); ++i) {
    if (i == axis || x.shape()[i] <= shape[i]) continue;
    axes.push_back(i);
    starts.push_back(0);
    ends.push_back(shape[i]);
  }
  return axes.empty() ? x : slice(x, axes, starts, ends);
}

Values gather_elements_op(Context& c) {
  const int axis = c.axis(c.integer("axis", 0), c.rank(0));
  if (c.rank(1) != c.rank(0)) c.refuse("the indices have another rank");
  return {gather_elements(cut_to(c.in(0), c.shape(1), axis), indices(c, 1, c.shape(0)[axis]), axis)};
}

/// What GatherND and ScatterND address: rows [P, R] of x by one linear index each.
struct Rows {
  Ints batch, rest;
  std::int64_t positions = 1, row = 1;
  Value linear;  ///< i32 or i64 [Q]
};

Rows rows_of(Context& c, std::size_t index_input, std::int64_t batch_dims) {
  const Shape& x = c.shape(0);
  const Shape& index = c.shape(index_input);
  if (index.rank() < 1 || batch_dims < 0 || batch_dims >= index.rank()) c.refuse("the indices have too few axes");
  const std::int64_t depth = index[index.rank() - 1];
  if (batch_dims + depth > x.rank() || depth < 1)
    c.refuse(formatted("indices of {} axes into a tensor of rank {}", depth, x.rank()));
  Rows rows;
  Ints dims = dims_of(x);
  rows.batch.assign(dims.begin(), dims.begin() + batch_dims);
  rows.rest.assign(dims.begin() + batch_dims + depth, dims.end());
  for (std::int64_t i = 0; i < batch_dims + depth; ++i) rows.positions *= dims[static_cast<std::size_t>(i)];
  for (const std::int64_t d : rows.rest) rows.row *= d;
  const Value all = c.in(index_input);
  Ints outer = dims_of(index);
  outer.pop_back();
  std::int64_t stride = 1;
  for (std::int64_t k = depth; k-- > 0;) {
    const std::int64_t extent = dims[static_cast<std::size_t>(batch_dims + k)];
    Value one = reshape(slice(all, {index.rank() - 1}, {k}, {k + 1}), outer);
    one = mul(from_start(one, extent), stride);
    rows.linear = rows.linear ? rows.linear + one : one;
    stride *= extent;
  }
  for (std::int64_t b = batch_dims; b-- > 0;) {
    const Value at = iota(c.graph, Shape(std::span<const std::int64_t>(outer)), b);
    rows.linear = rows.linear + mul(cast(at, rows.linear.dtype()), stride);
    stride *= dims[static_cast<std::size_t>(b)];
  }
  rows.linear = reshape(rows.linear, {-1});
  return rows;
}

Values gather_nd(Context& c) {
  const Rows rows = rows_of(c, 1, c.integer("batch_dims", 0));
  Ints result = dims_of(c.shape(1));
  result.pop_back();
  result.insert(result.end(), rows.rest.begin(), rows.rest.end());
  return {reshaped(gather(reshape(c.in(0), {rows.positions, rows.row}), rows.linear, 0), result)};
}

/// x [P, R] with updates [Q, R] at rows `index` [Q], combined by `how`.
Value scattered(Context& c, Value x, Value index, Value updates, const std::string& how) {
  if (how == "none") return scatter(x, reshape(index, {-1, 1}), updates, 0);
  if (how == "add") return scatter_add(x, reshape(index, {-1, 1}), updates, 0);
  if (how != "mul" && how != "max" && how != "min") c.refuse("reduction is '" + how + "'");
  // Every row compares all indices: [P, Q, R].
  const std::int64_t p = x.shape()[0], q = updates.shape()[0], r = x.shape()[1];
  if (p > kMaxDense / std::max<std::int64_t>(q * r, 1))
    c.refuse(formatted("a scatter with reduction '{}' of {} rows into {}", how, q, p));
  const Value hit = equal(reshape(iota(c.graph, {p}, 0), {p, 1, 1}), reshape(cast(index, DType::i32), {1, q, 1}));
  const Value u = reshape(updates, {1, q, r});
  const Value whole = reshape(x, {p, 1, r});
  if (how == "mul") return x * prod(select(hit, u, c.constant(1, x.dtype())), {1});
  const Value other = select(hit, u, expand(whole, {p, q, r}));
  if (q == 0) return x;
  return how == "max" ? maximum(x, reduce_max(other, {1})) : minimum(x, reduce_min(other, {1}));
}

Values scatter_nd(Context& c) {
  const std::string how = c.text("reduction", "none");
  const Rows rows = rows_of(c, 1, 0);
  const Value x = c.in(0);
  const Value updates = reshape(c.in(2), {rows.linear.shape()[0], rows.row});
  return {reshape(scattered(c, reshape(x, {rows.positions, rows.row}), rows.linear, updates, how), dims_of(x.shape()))};
}

Values scatter_elements(Context& c) {
  const int rank = c.rank(0), axis = c.axis(c.integer("axis", 0), rank);
  const std::string how = c.text("reduction", "none");
  const Value x = c.in(0), updates = c.in(2);
  const Value index = indices(c, 1, x.shape()[axis]);
  const Shape s = index.shape();
  bool whole = true;
  for (int i = 0; i < rank; ++i) whole = whole && (i == axis || s[i] == x.shape()[i]);
  if (whole && how == "none") return {scatter(x, index, updates, axis)};
  if (whole && how == "add") return {scatter_add(x, index, updates, axis)};
  // One linear index for every element.
  Value linear;
  std::int64_t stride = 1;
  for (int i = rank; i-- > 0;) {
    const Value at = mul(i == axis ? cast(index, DType::i32) : iota(c.graph, s, i), stride);
    linear = linear ? linear + at : at;
    stride *= x.shape()[i];
  }
  const Value y = scattered(c, reshape(x, {-1, 1}), reshape(linear, {-1}), reshape(updates, {-1, 1}), how);
  return {reshape(y, dims_of(x.shape()))};
}

Values one_hot_op(Context& c) {
  const Literal& d = c.known(1, "the depth");
  if (d.type().shape.elements() != 1) c.refuse("the depth has more than one element");
  const auto depth = static_cast<std::int64_t>(d.at(0));
  if (depth < 0 || depth > INT32_MAX) c.refuse(formatted("a depth of {}", depth));
  const int rank = c.rank(0) + 1, axis = c.axis(c.integer("axis", -1), rank);
  Ints dims = dims_of(c.shape(0));
  dims.insert(dims.begin() + axis, 1);
  const Value at = reshape(from_start(is_float(c.dtype(0)) ? cast(c.in(0), DType::i32) : c.in(0), depth), dims);
  dims[static_cast<std::size_t>(axis)] = depth;
  const Value hit = equal(cast(at, DType::i32), iota(c.graph, Shape(std::span<const std::int64_t>(dims)), axis));
  const Value values = c.in(2);
  if (values.shape() != Shape{2}) c.refuse("values is no [2]");
  const Value off = reshape(slice(values, {0}, {0}, {1}), {}), on = reshape(slice(values, {0}, {1}, {2}), {});
  return {in_wide(on, off, [&](Value a, Value b) { return select(hit, a, b); })};
}

Values topk_op(Context& c) {
  const std::int64_t k = c.opset < 10 ? c.integer("k") : c.integer(1, "k");
  const int axis = c.axis(c.integer("axis", -1), c.rank(0));
  const bool largest = c.flag("largest", true);
  c.ignore("sorted");  // sorted is one of the orders that unsorted allows
  Value x = widen(c.in(0));
  const bool wide = x.dtype() == DType::i64 || x.dtype() == DType::u64;  // 32 bits on a device
  if (wide) x = cast(x, x.dtype() == DType::i64 ? DType::i32 : DType::u32);
  const SortResult result = topk(x, k, axis, largest);
  const DType dtype = c.dtype(0);
  return {result.values.dtype() == dtype ? result.values : cast(result.values, dtype),
          cast(result.indices, DType::i64)};
}

Values cumsum_op(Context& c) {
  const int axis = c.axis(c.integer(1, "the axis"), c.rank(0));
  const bool exclusive = c.flag("exclusive", false), reverse = c.flag("reverse", false);
  const DType dtype = c.dtype(0);
  const Value x = dtype == DType::i64 ? cast(c.in(0), DType::i32) : c.in(0);
  const Value y = cumsum(x, axis, exclusive, reverse);
  return {y.dtype() == dtype ? y : cast(y, dtype)};
}

Values reverse_sequence(Context& c) {
  const int rank = c.rank(0);
  const int batch = c.axis(c.integer("batch_axis", 1), rank), time = c.axis(c.integer("time_axis", 0), rank);
  if (rank < 2 || batch == time) c.refuse("batch_axis and time_axis must differ");
  const Value x = c.in(0);
  Ints lengths(static_cast<std::size_t>(rank), 1), steps = lengths;
  lengths[static_cast<std::size_t>(batch)] = x.shape()[batch];
  steps[static_cast<std::size_t>(time)] = x.shape()[time];
  const Value n = reshape(cast(c.in(1), DType::i32), lengths);
  const Value t = reshape(iota(c.graph, {x.shape()[time]}, 0), steps);
  return {gather_elements(x, select(less(t, n), sub(n, 1) - t, t), time)};
}

Values compress(Context& c) {
  const Literal& condition = c.known(1, "the condition");
  Value x = c.in(0);
  int axis = 0;
  if (c.has_attribute("axis")) {
    axis = c.axis(c.integer("axis"), x.shape().rank());
  } else {
    x = reshape(x, {-1});
  }
  std::vector<double> kept;
  const std::int64_t n = std::min(condition.type().shape.elements(), x.shape()[axis]);
  for (std::int64_t i = 0; i < n; ++i) {
    if (condition.at(i) != 0) kept.push_back(static_cast<double>(i));
  }
  return {gather(x, c.tensor({static_cast<std::int64_t>(kept.size())}, kept, DType::i64), axis)};
}

Values non_zero(Context& c) {
  const Literal& x = c.known(0, "the operand");
  const Shape& shape = x.type().shape;
  std::vector<std::vector<double>> found(static_cast<std::size_t>(std::max(shape.rank(), 1)));
  const auto strides = dense_strides(shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    if (x.at(i) == 0) continue;
    for (int d = 0; d < shape.rank(); ++d)
      found[static_cast<std::size_t>(d)].push_back(
          static_cast<double>(i / strides[static_cast<std::size_t>(d)] % shape[d]));
    if (shape.rank() == 0) found[0].push_back(0);
  }
  std::vector<double> all;
  for (const std::vector<double>& row : found) all.insert(all.end(), row.begin(), row.end());
  return {
      c.tensor({static_cast<std::int64_t>(found.size()), static_cast<std::int64_t>(found[0].size())}, all, DType::i64)};
}

}  // namespace

std::span<const Op> index_ops() {
  static constexpr std::array table = {
      Op{"Compress", compress, 9},
      Op{"CumSum", cumsum_op, 11},
      Op{"Gather", gather_op},
      Op{"GatherElements", gather_elements_op, 11},
      Op{"GatherND", gather_nd, 11},
      Op{"NonZero", non_zero, 9},
      Op{"OneHot", one_hot_op, 9},
      Op{"ReverseSequence", reverse_sequence, 10},
      Op{"Scatter", scatter_elements, 9},
      Op{"ScatterElements", scatter_elements, 11},
      Op{"ScatterND", scatter_nd, 11},
      Op{"TopK", topk_op},
  };
  return table;
}

}  // namespace aeshna::onnx
