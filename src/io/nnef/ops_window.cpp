// Pools, sums over windows, and their transposes.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "io/nnef/window.h"

namespace aeshna::nnef {
namespace {

constexpr std::int64_t kMaxVolume = 1 << 20;  // of a window whose positions are compared one by one

Windows pool_windows(Call& c, const Value& x) { return windows_of(c, c.ints("size"), dims_of(x.shape())); }

Results box_op(Call& c) {
  const Value x = c.tensor("input");
  return {box(c, x, pool_windows(c, x), border_of(c), c.flag("normalize"))};
}
Results avg_pool_op(Call& c) {
  const Value x = c.tensor("input");
  return {box(c, x, pool_windows(c, x), border_of(c), true)};
}
Results rms_pool_op(Call& c) {
  const Value x = c.tensor("input");
  return {sqrt(box(c, mul(x, x), pool_windows(c, x), border_of(c), true))};
}

/// A constant border is of zeros, which may win.
Results max_pool_op(Call& c) {
  Value x = c.tensor("input");
  Windows w = pool_windows(c, x);
  const Border border = border_of(c);
  make_border(c, x, w, border);
  if (border == Border::Constant) {
    x = padded(c, x, w.before, w.after, border);
    w.before.assign(w.axes(), 0);
    w.after.assign(w.axes(), 0);
  }
  if (poolable(w, x.shape())) return {max_pool(x, pool_options(w))};
  const WindowView view = window_view(c, x, w, -std::numeric_limits<double>::infinity());
  return {view.kernel.empty() ? x : reduce_max(view.value, view.kernel)};
}

Ints axes_from_zero(std::size_t count) {
  Ints axes(count);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// A sum over windows is a product of sums along axes, and so is its transpose.
Results debox_op(Call& c) {
  Value x = c.tensor("input");
  no_made_border(c);
  const Ints n = dims_of(x.shape()), size = c.ints("size"), extents = spread_extents(c, n, size);
  const Windows w = spread_windows(c, n, size, extents);
  if (c.flag("normalize") && c.text("border") == "ignore") c.refuse("border 'ignore' with normalize");
  double volume = 1;
  for (std::size_t i = 0; i < w.axes(); ++i) {
    volume *= static_cast<double>(w.size[i]);
    if (!w.active(i)) continue;
    Ints order = axes_from_zero(w.axes()), dims;
    std::swap(order[i], order.back());
    const Value rows = permute(x, order);
    dims = dims_of(rows.shape());
    const Value ones = expand(reshape(c.graph.constant(1.0), {1, 1, 1}), {1, 1, w.size[i]});
    const Windows along{.size = {w.size[i]},
                        .stride = {w.stride[i]},
                        .dilation = {w.dilation[i]},
                        .before = {w.before[i]},
                        .after = {w.after[i]}};
    const Value spread =
        transposed_conv(c, reshape(rows, {rows.shape().elements() / n[i], 1, n[i]}), ones, along, {extents[i]}, 1);
    dims.back() = extents[i];
    x = permute(reshape(spread, dims), order);
  }
  return {c.flag("normalize") ? div(x, volume) : x};
}

// ---- positions of maxima

/// [windows..., positions], where positions count row-major through the kernel.
Value flat_view(const Call& c, const Value& x, const Windows& w, double fill) {
  const WindowView view = window_view(c, x, w, fill);
  Ints dims = dims_of(view.value.shape());
  dims.resize(w.axes());
  dims.push_back(-1);
  return reshape(view.value, dims);
}

double fill_of(Border border) { return border == Border::Ignore ? -std::numeric_limits<double>::infinity() : 0; }

Value squeezed(const Value& x) {
  Ints dims = dims_of(x.shape());
  dims.pop_back();
  return reshape(x, dims);
}

Windows position_windows(Call& c, Value& x) {
  if (x.shape().rank() == Shape::kMaxRank) c.refuse("positions in a tensor of rank 8");
  Windows w = pool_windows(c, x);
  make_border(c, x, w, border_of(c));
  return w;
}

Results argmax_pool_op(Call& c) {
  Value x = c.tensor("input");
  const auto named = std::make_shared<const Windows>(pool_windows(c, x));
  const Windows w = position_windows(c, x);
  return {Tensor{argmax(flat_view(c, x, w, fill_of(border_of(c))), -1), named}};
}

Results max_pool_with_index_op(Call& c) {
  Results index = argmax_pool_op(c), maximum = max_pool_op(c);
  return {maximum[0], index[0]};
}

/// The positions that an argmax_pool with these windows gave.
Value positions_of(const Call& c, const Windows& w) {
  const Tensor* index = c.any("index").get<Tensor>();
  if (index == nullptr || !index->positions) c.refuse("an index that no argmax_pool of this graph made");
  if (*index->positions != w) c.refuse("an index that argmax_pool made with other windows");
  return index->value;
}

Results sample_op(Call& c) {
  Value x = c.tensor("input");
  const Value index = positions_of(c, pool_windows(c, x));
  const Windows w = position_windows(c, x);
  Ints dims = dims_of(index.shape());
  dims.push_back(1);
  return {squeezed(gather_elements(flat_view(c, x, w, 0), reshape(index, dims), -1))};
}

/// Windows that do not overlap tile their extents with gaps: each position is compared with the index, and nothing is scattered.
Results desample_op(Call& c) {
  const Value x = c.tensor("input");
  no_made_border(c);
  const Ints n = dims_of(x.shape()), size = c.ints("size"), extents = spread_extents(c, n, size);
  const Windows w = spread_windows(c, n, size, extents);
  const Value index = positions_of(c, w);
  if (index.shape() != x.shape())
    c.wrong(formatted("an index of {} for {}", index.shape().to_string(), x.shape().to_string()));
  const std::size_t rank = n.size();
  Ints seen, spread = n, order, before(rank, 0), after(rank, 0);
  std::int64_t volume = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    if (w.span(i) > w.stride[i]) c.refuse("windows that overlap");
    if (w.dilation[i] != 1 && w.size[i] != 1) c.refuse("dilation");
    volume *= w.size[i];
    if (volume > kMaxVolume) c.refuse("windows of more than 2^20 elements");
    if (w.size[i] > 1 || w.stride[i] > 1) seen.push_back(static_cast<std::int64_t>(i));
  }
  if (rank + seen.size() > Shape::kMaxRank)
    c.refuse(formatted("windows over {} axes of a tensor of rank {}", seen.size(), rank));
  Ints dims = n;
  dims.push_back(1);
  Ints all = n;
  all.push_back(volume);
  Value y = select(equal(reshape(index, dims),
                         iota(c.graph, Shape(std::span<const std::int64_t>(all)), static_cast<std::int64_t>(rank))),
                   reshape(x, dims), 0.0);
  for (const std::int64_t i : seen) spread.push_back(w.size[static_cast<std::size_t>(i)]);
  y = reshape(y, spread);  // [windows..., kernel...]
  Ints none(spread.size(), 0), gaps = none;
  for (std::size_t k = 0; k < seen.size(); ++k)
    gaps[rank + k] = w.stride[static_cast<std::size_t>(seen[k])] - w.size[static_cast<std::size_t>(seen[k])];
  y = pad(y, none, gaps);
  Ints tiled;
  for (std::size_t i = 0; i < rank; ++i) {
    order.push_back(static_cast<std::int64_t>(i));
    const auto at = std::ranges::find(seen, static_cast<std::int64_t>(i));
    if (at != seen.end()) order.push_back(static_cast<std::int64_t>(rank) + (at - seen.begin()));
    tiled.push_back(at == seen.end() ? n[i] : n[i] * w.stride[i]);
    before[i] = -w.before[i];
    after[i] = extents[i] + w.before[i] - tiled[i];
  }
  return {padded(c, reshape(permute(y, order), tiled), before, after, Border::Constant)};
}

#define NNEF_WINDOWS                                                                                           \
  "size: integer[], border: string = 'constant', padding: (integer, integer)[] = [], stride: integer[] = [], " \
  "dilation: integer[] = []"

}  // namespace

std::span<const Operation> window_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"box", "(input: tensor<scalar>, " NNEF_WINDOWS ", normalize: logical = false) -> (output: tensor<scalar>)",
       box_op},
      {"debox",
       "(input: tensor<scalar>, " NNEF_WINDOWS
       ", output_shape: integer[] = [], normalize: logical = false) -> (output: tensor<scalar>)",
       debox_op, "borders 'constant' and 'ignore'"},
      {"max_pool", "(input: tensor<scalar>, " NNEF_WINDOWS ") -> (output: tensor<scalar>)", max_pool_op},
      {"avg_pool", "(input: tensor<scalar>, " NNEF_WINDOWS ") -> (output: tensor<scalar>)", avg_pool_op},
      {"rms_pool", "(input: tensor<scalar>, " NNEF_WINDOWS ") -> (output: tensor<scalar>)", rms_pool_op},
      {"argmax_pool", "(input: tensor<scalar>, " NNEF_WINDOWS ") -> (index: tensor<integer>)", argmax_pool_op,
       "the index is for sample and desample alone: programs disagree on what it counts"},
      {"max_pool_with_index",
       "(input: tensor<scalar>, " NNEF_WINDOWS ") -> (output: tensor<scalar>, index: tensor<integer>)",
       max_pool_with_index_op, "the index as of argmax_pool"},
      {"sample", "(input: tensor<scalar>, index: tensor<integer>, " NNEF_WINDOWS ") -> (output: tensor<scalar>)",
       sample_op, "with the index of an argmax_pool of equal windows"},
      {"desample",
       "(input: tensor<scalar>, index: tensor<integer>, " NNEF_WINDOWS
       ", output_shape: integer[] = []) -> (output: tensor<scalar>)",
       desample_op,
       "with the index of an argmax_pool of equal windows that do not overlap, without dilation; borders 'constant' "
       "and 'ignore'"},
  });
  return table;
}

}  // namespace aeshna::nnef
