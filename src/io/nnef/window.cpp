#include "io/nnef/window.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/checked.h"

namespace aeshna::nnef {
namespace {

constexpr std::int64_t kMaxTable = 1 << 20;  // entries of an index or count table made for one axis

std::int64_t modulo(std::int64_t a, std::int64_t n) { return (a % n + n) % n; }

/// The element that stands at position i, which may be outside an axis of n.
std::int64_t source(std::int64_t i, std::int64_t n, Border border) {
  if (border == Border::Replicate || n == 1) return std::clamp<std::int64_t>(i, 0, n - 1);
  const std::int64_t period = border == Border::Reflect ? 2 * n - 2 : 2 * n;
  const std::int64_t at = modulo(i, period);
  return at < n ? at : period - at - (border == Border::Reflect ? 0 : 1);
}

/// One entry for each axis, all of them `fallback` if none is given.
Ints one_each(const Call& c, std::string_view name, std::size_t n, std::int64_t fallback) {
  Ints list = c.ints(name);
  if (list.empty()) list.assign(n, fallback);
  if (list.size() != n) c.wrong(formatted("'{}' has {} entries for {} axes", name, list.size(), n));
  if (std::ranges::any_of(list, [](std::int64_t v) { return v < 1; }))
    c.wrong(formatted("'{}' must be positive", name));
  return list;
}

Windows with_auto_padding(const Call& c, Windows w, const Ints& extents) {
  for (std::size_t i = 0; i < w.axes(); ++i) {
    if (w.size[i] < 1) c.wrong(formatted("a window of size {}", w.size[i]));
    const std::int64_t count = (extents[i] + w.stride[i] - 1) / w.stride[i];
    const std::int64_t total = std::max<std::int64_t>((count - 1) * w.stride[i] + w.span(i) - extents[i], 0);
    if (total > INT32_MAX) c.wrong(formatted("windows that span {} elements", w.span(i)));
    w.before.push_back(total / 2);
    w.after.push_back(total - total / 2);
  }
  return w;
}

Ints numbers_from(std::int64_t first, std::size_t count) {
  Ints list(count);
  std::iota(list.begin(), list.end(), first);
  return list;
}

/// What max_pool and avg_pool take: one or two last axes of [N, C, ...].
bool spatial(const Windows& w) { return (w.axes() == 3 || w.axes() == 4) && !w.active(0) && !w.active(1); }

}  // namespace

Border border_of(const Call& c) {
  struct Named {
    std::string_view name;
    Border border;
  };
  static constexpr std::array<Named, 5> table = {{{"constant", Border::Constant},
                                                  {"ignore", Border::Ignore},
                                                  {"replicate", Border::Replicate},
                                                  {"reflect", Border::Reflect},
                                                  {"reflect-even", Border::ReflectEven}}};
  for (const Named& n : table) {
    if (n.name == c.text("border")) return n.border;
  }
  c.wrong(formatted("border '{}'; there are 'constant', 'ignore', 'replicate', 'reflect' and 'reflect-even'",
                    c.text("border")));
}

Value padded(const Call& c, Value x, Ints before, Ints after, Border border, double value) {
  const std::size_t rank = before.size();
  Ints axes, starts, ends;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t n = x.shape()[static_cast<int>(i)], first = std::max<std::int64_t>(-before[i], 0),
                       last = n + std::min<std::int64_t>(after[i], 0);
    if (last <= first)
      c.wrong(formatted("padding ({}, {}) leaves nothing of axis {} of extent {}", before[i], after[i], i, n));
    if (first > 0 || last < n) {
      axes.push_back(static_cast<std::int64_t>(i));
      starts.push_back(first);
      ends.push_back(last);
    }
    before[i] = std::max<std::int64_t>(before[i], 0);
    after[i] = std::max<std::int64_t>(after[i], 0);
  }
  if (!axes.empty()) x = slice(x, axes, starts, ends);
  const auto nothing = [](const Ints& list) {
    return std::ranges::all_of(list, [](std::int64_t v) { return v == 0; });
  };
  if (nothing(before) && nothing(after)) return x;
  if (border == Border::Constant || border == Border::Ignore) return pad(x, before, after, value);
  for (std::size_t i = 0; i < rank; ++i) {
    if (before[i] == 0 && after[i] == 0) continue;
    const std::int64_t n = x.shape()[static_cast<int>(i)], extent = n + before[i] + after[i];
    if (extent > kMaxTable) c.refuse(formatted("a border that makes {} elements of {}", extent, n));
    std::vector<double> table;
    for (std::int64_t o = 0; o < extent; ++o) table.push_back(static_cast<double>(source(o - before[i], n, border)));
    x = gather(x, x.graph().constant(Literal::from_doubles({DType::i32, {extent}}, table)),
               static_cast<std::int64_t>(i));
  }
  return x;
}

Windows windows_of(const Call& c, const Ints& size, const Ints& extents) {
  const std::size_t n = extents.size();
  if (size.size() != n) c.wrong(formatted("windows over {} axes of {}", size.size(), n));
  Windows w{.size = size,
            .stride = one_each(c, "stride", n, 1),
            .dilation = one_each(c, "dilation", n, 1),
            .before = {},
            .after = {}};
  const Pairs padding = c.pairs("padding");
  if (padding.empty()) return with_auto_padding(c, std::move(w), extents);
  if (padding.size() != n) c.wrong(formatted("'padding' has {} entries for {} axes", padding.size(), n));
  for (std::size_t i = 0; i < n; ++i) {
    if (size[i] < 1) c.wrong(formatted("a window of size {}", size[i]));
    w.before.push_back(padding[i].first);
    w.after.push_back(padding[i].second);
  }
  return w;
}

Windows windows_around(const Call& c, const Ints& size, const Ints& extents) {
  if (size.size() != extents.size())
    c.wrong(formatted("'size' has {} entries for {} axes", size.size(), extents.size()));
  const Ints ones(size.size(), 1);
  return with_auto_padding(c, {.size = size, .stride = ones, .dilation = ones, .before = {}, .after = {}}, extents);
}

std::int64_t window_count(const Call& c, const Windows& w, std::size_t i, std::int64_t extent) {
  const std::int64_t rest = extent + w.before[i] + w.after[i] - w.span(i);
  if (rest < 0)
    c.wrong(formatted("a window that spans {} does not fit an extent of {} with padding ({}, {})", w.span(i), extent,
                      w.before[i], w.after[i]));
  return rest / w.stride[i] + 1;
}

void make_border(const Call& c, Value& x, Windows& w, Border border) {
  const bool negative = std::ranges::any_of(w.before, [](std::int64_t v) { return v < 0; }) ||
                        std::ranges::any_of(w.after, [](std::int64_t v) { return v < 0; });
  const bool made = border == Border::Replicate || border == Border::Reflect || border == Border::ReflectEven;
  if (!made && negative) {  // what a negative padding cuts off is no border
    Ints cut_before, cut_after;
    for (std::size_t i = 0; i < w.axes(); ++i) {
      cut_before.push_back(std::min<std::int64_t>(w.before[i], 0));
      cut_after.push_back(std::min<std::int64_t>(w.after[i], 0));
      w.before[i] -= cut_before[i];
      w.after[i] -= cut_after[i];
    }
    x = padded(c, x, cut_before, cut_after, Border::Constant);
  }
  if (!made) return;
  x = padded(c, x, w.before, w.after, border);
  w.before.assign(w.axes(), 0);
  w.after.assign(w.axes(), 0);
}

WindowView window_view(const Call& c, Value x, const Windows& w, double fill) {
  Ints still, seen;
  WindowOptions options{.kernel = {}, .stride = {}, .dilation = {}, .before = {}, .after = {}, .value = fill};
  for (std::size_t i = 0; i < w.axes(); ++i) {
    (w.active(i) ? seen : still).push_back(static_cast<std::int64_t>(i));
    if (!w.active(i)) continue;
    (void)window_count(c, w, i, x.shape()[static_cast<int>(i)]);
    options.kernel.push_back(w.size[i]);
    options.stride.push_back(w.stride[i]);
    options.dilation.push_back(w.dilation[i]);
    options.before.push_back(w.before[i]);
    options.after.push_back(w.after[i]);
  }
  if (seen.empty()) return {x, {}};
  const std::size_t rank = w.axes();
  if (rank + seen.size() > Shape::kMaxRank)
    c.refuse(formatted("windows over {} axes of a tensor of rank {}", seen.size(), rank));
  Ints order = still;  // windows() wants its axes last
  order.insert(order.end(), seen.begin(), seen.end());
  const Value view = windows(permute(x, order), options);
  Ints back(rank + seen.size());
  for (std::size_t i = 0; i < rank; ++i) back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  std::iota(back.begin() + static_cast<std::ptrdiff_t>(rank), back.end(), static_cast<std::int64_t>(rank));
  return {permute(view, back), numbers_from(static_cast<std::int64_t>(rank), seen.size())};
}

namespace {

/// How many elements that exist each window along axis i sees; at least 1, so that an empty window averages to 0.
Value counts(const Call& c, const Windows& w, std::size_t i, std::int64_t extent) {
  const std::int64_t out = window_count(c, w, i, extent), d = w.dilation[i];
  if (out > kMaxTable) c.refuse(formatted("border 'ignore' for {} windows along an axis", out));
  std::vector<double> table;
  for (std::int64_t o = 0; o < out; ++o) {
    const std::int64_t start = o * w.stride[i] - w.before[i];
    const std::int64_t first = start < 0 ? (-start + d - 1) / d : 0;
    const std::int64_t behind = start >= extent ? 0 : std::min(w.size[i], (extent - 1 - start) / d + 1);
    table.push_back(static_cast<double>(std::max<std::int64_t>(behind - first, 1)));
  }
  Ints dims(w.axes(), 1);
  dims[i] = out;
  return c.graph.constant(Literal::from_doubles({DType::f32, Shape(std::span<const std::int64_t>(dims))}, table));
}

}  // namespace

PoolOptions pool_options(const Windows& w) {
  const auto last = [](const Ints& list) { return Ints(list.begin() + 2, list.end()); };
  return {.kernel = last(w.size),
          .stride = last(w.stride),
          .padding = last(w.before),
          .padding_after = last(w.after),
          .dilation = last(w.dilation)};
}

bool poolable(const Windows& w, const Shape& x) {
  bool fits = spatial(w);
  for (std::size_t i = 0; fits && i < w.axes(); ++i)
    // With gaps a window could see padding alone.
    fits = std::max(w.before[i], w.after[i]) <= (w.dilation[i] == 1 ? w.size[i] / 2 : 0) &&
           w.span(i) <= x[static_cast<int>(i)] + w.before[i] + w.after[i];
  return fits;
}

Value box(Call& c, Value x, Windows w, Border border, bool normalize) {
  make_border(c, x, w, border);
  if (normalize && poolable(w, x.shape())) {
    PoolOptions options = pool_options(w);
    options.count_include_pad = border != Border::Ignore;
    return avg_pool(x, options);
  }
  const WindowView view = window_view(c, x, w, 0);
  if (view.kernel.empty()) return x;
  Value y = sum(view.value, view.kernel);
  if (!normalize) return y;
  if (border != Border::Ignore) {
    double volume = 1;
    for (const std::int64_t s : w.size) volume *= static_cast<double>(s);
    return div(y, volume);
  }
  for (std::size_t i = 0; i < w.axes(); ++i) {
    if (w.active(i)) y = y / counts(c, w, i, x.shape()[static_cast<int>(i)]);
  }
  return y;
}

Value transposed_conv(const Call& c, Value x, Value filter, const Windows& w, const Ints& extents, std::int64_t groups,
                      std::optional<Value> bias) {
  ConvOptions options{.stride = w.stride,
                      .padding = {},
                      .dilation = w.dilation,
                      .padding_after = {},
                      .output_padding = {},
                      .groups = groups};
  for (std::size_t i = 0; i < w.axes(); ++i) {
    const std::int64_t n = x.shape()[static_cast<int>(i) + 2], full = (n - 1) * w.stride[i] + w.span(i);
    if (w.before[i] < 0) c.refuse(formatted("a padding of {}", w.before[i]));
    const std::int64_t after = full - w.before[i] - extents[i];
    if (extents[i] < 1 || -after >= w.stride[i])
      c.wrong(formatted("{} elements of axis {} cannot come of {} with these windows", extents[i], i + 2, n));
    options.padding.push_back(w.before[i]);
    options.padding_after.push_back(std::max<std::int64_t>(after, 0));
    options.output_padding.push_back(std::max<std::int64_t>(-after, 0));
  }
  return conv_transpose(x, filter, options, std::move(bias));
}

Ints spread_extents(const Call& c, const Ints& n, const Ints& size) {
  const Ints given = c.ints("output_shape");
  if (!given.empty()) {
    if (given.size() != n.size())
      c.wrong(formatted("'output_shape' has {} entries for {} axes", given.size(), n.size()));
    return given;
  }
  Ints stride = c.ints("stride"), dilation = c.ints("dilation"), extents;
  const Pairs padding = c.pairs("padding");
  if (stride.empty()) stride.assign(n.size(), 1);
  if (dilation.empty()) dilation.assign(n.size(), 1);
  if (stride.size() != n.size() || dilation.size() != n.size() || (!padding.empty() && padding.size() != n.size()) ||
      size.size() != n.size())
    c.wrong(formatted("'size', 'padding', 'stride' and 'dilation' need {} entries", n.size()));
  for (std::size_t i = 0; i < n.size(); ++i) {
    const std::int64_t starts = checked_mul(n[i] - (padding.empty() ? 0 : 1), stride[i], "the extent of the result");
    extents.push_back(padding.empty()
                          ? starts
                          : checked_add(starts, (size[i] - 1) * dilation[i] + 1 - padding[i].first - padding[i].second,
                                        "the extent of the result"));
    if (extents[i] < 1 || extents[i] > INT32_MAX) c.wrong(formatted("axis {} would get the extent {}", i, extents[i]));
  }
  return extents;
}

Windows spread_windows(const Call& c, const Ints& n, const Ints& size, const Ints& extents) {
  const Windows w = windows_of(c, size, extents);
  for (std::size_t i = 0; i < n.size(); ++i) {
    if (const std::int64_t count = window_count(c, w, i, extents[i]); count != n[i])
      c.wrong(formatted("an extent of {} along axis {} has {} windows, the operand {}", extents[i], i, count, n[i]));
  }
  return w;
}

void no_made_border(const Call& c) {
  const Border border = border_of(c);
  if (border != Border::Constant && border != Border::Ignore) c.refuse(formatted("border '{}'", c.text("border")));
}

}  // namespace aeshna::nnef
