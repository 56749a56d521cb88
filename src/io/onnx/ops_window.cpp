// Pools, and what else looks through windows.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/format.h"
#include "io/onnx/window.h"

namespace aeshna::onnx {

Ints spatial(const Shape& x) { return x.rank() < 2 ? Ints() : Ints(x.begin() + 2, x.end()); }

Geometry window_geometry(Context& c, const Ints& kernel, const Ints& extents) {
  const std::size_t axes = extents.size();
  const Ints one(axes, 1);
  Geometry g{kernel, c.ints("strides", one), c.ints("dilations", one), Ints(axes, 0), Ints(axes, 0)};
  const Ints pads = c.ints("pads", Ints(2 * axes, 0));
  const std::string automatic = c.text("auto_pad", "NOTSET");
  if (kernel.size() != axes || g.stride.size() != axes || g.dilation.size() != axes || pads.size() != 2 * axes)
    c.refuse(formatted("kernel_shape, strides, dilations or pads do not fit {} spatial axes", axes));
  for (std::size_t i = 0; i < axes; ++i) {
    if (extents[i] < 0 || extents[i] > INT32_MAX) c.refuse(formatted("a spatial axis of {}", extents[i]));
    if (kernel[i] < 1 || g.stride[i] < 1 || g.dilation[i] < 1) c.refuse("a kernel, stride or dilation is below 1");
    if (std::max({kernel[i], g.stride[i], g.dilation[i], pads[i], pads[axes + i]}) > INT32_MAX)
      c.refuse("a kernel, stride, dilation or pad is above 2^31");
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const std::int64_t windows = (extents[i] + g.stride[i] - 1) / g.stride[i];
      const std::int64_t total = std::max<std::int64_t>((windows - 1) * g.stride[i] + g.span(i) - extents[i], 0);
      g.before[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      g.after[i] = total - g.before[i];
    } else if (automatic == "NOTSET") {
      g.before[i] = pads[i];
      g.after[i] = pads[axes + i];
      if (g.before[i] < 0 || g.after[i] < 0) c.refuse("negative pads");
    } else if (automatic != "VALID") {
      c.refuse("auto_pad is '" + automatic + "'");
    }
    if (g.span(i) > extents[i] + g.before[i] + g.after[i])
      c.refuse(
          formatted("a kernel that spans {} in {} padded elements", g.span(i), extents[i] + g.before[i] + g.after[i]));
  }
  return g;
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Pool {
  Geometry g;
  Ints extents, out;  ///< per spatial axis
};

Pool pool_of(Context& c) {
  Pool p;
  p.extents = spatial(c.shape(0));
  if (p.extents.empty() || p.extents.size() > 3)
    c.refuse(formatted("{} spatial axes; 1 to 3 are supported", p.extents.size()));
  p.g = window_geometry(c, c.ints("kernel_shape"), p.extents);
  const bool ceil_mode = c.flag("ceil_mode", false);
  for (std::size_t i = 0; i < p.extents.size(); ++i) {
    std::int64_t out = p.g.windows(i, p.extents[i]);
    const std::int64_t rest = p.extents[i] + p.g.before[i] + p.g.after[i] - p.g.span(i) - (out - 1) * p.g.stride[i];
    // A last window that is only partly there counts if it starts before the end of the data.
    if (ceil_mode && rest > 0 && out * p.g.stride[i] < p.extents[i] + p.g.before[i]) ++out;
    p.out.push_back(out);
  }
  return p;
}

/// x [N, C, ...] -> [N, C, windows..., kernel...]
Value pool_windows(Value x, const Pool& p, double value) {
  WindowOptions options{.kernel = p.g.kernel,
                        .stride = p.g.stride,
                        .dilation = p.g.dilation,
                        .before = p.g.before,
                        .after = {},
                        .value = value};
  for (std::size_t i = 0; i < p.out.size(); ++i) {  // exactly as much as the last window needs, or has
    const std::int64_t end = (p.out[i] - 1) * p.g.stride[i] + p.g.span(i) - p.g.before[i];
    options.after.push_back(std::max<std::int64_t>(end - p.extents[i], 0));
  }
  Value w = windows(x, options);
  Ints axes, starts, ends;
  for (std::size_t i = 0; i < p.out.size(); ++i) {
    axes.push_back(static_cast<std::int64_t>(i) + 2);
    starts.push_back(0);
    ends.push_back(p.out[i]);
  }
  return slice(w, axes, starts, ends);
}

Axes kernel_axes(const Pool& p) {
  Axes axes(p.out.size());
  std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(2 + p.out.size()));
  return axes;
}

/// Whether max_pool and avg_pool take it: two axes at most, padding of half a kernel at most.
bool plain(const Pool& p) {
  bool fits = p.g.axes() <= 2;
  for (std::size_t i = 0; i < p.g.axes(); ++i) fits = fits && std::max(p.g.before[i], p.g.after[i]) <= p.g.span(i) / 2;
  return fits;
}

PoolOptions options_of(const Pool& p) {
  PoolOptions o{.kernel = p.g.kernel,
                .stride = p.g.stride,
                .padding = p.g.before,
                .padding_after = p.g.after,
                .dilation = p.g.dilation};
  for (std::size_t i = 0; i < p.g.axes(); ++i) o.ceil_mode = o.ceil_mode || p.out[i] > p.g.windows(i, p.extents[i]);
  return o;
}

/// The index along i of every element in the whole tensor, for indices [N, C, ...] in the spatial axes.
Value whole_index(Context& c, Value index, const Pool& p, bool column_major) {
  const Shape shape = index.shape();
  std::int64_t area = 1;
  for (const std::int64_t e : p.extents) area *= e;
  if (column_major) {  // storage_order = 1: the first spatial axis varies fastest
    Value rest = index, turned;
    std::int64_t stride = area;
    for (std::size_t i = p.extents.size(); i-- > 0;) {
      stride /= p.extents[i];
      const Value at = mul(mod(rest, p.extents[i]), stride);
      turned = turned ? turned + at : at;
      rest = div(rest, p.extents[i]);
    }
    index = turned;
  }
  const Value channel = iota(c.graph, shape, 1) + mul(iota(c.graph, shape, 0), shape[1]);
  return cast(index + mul(channel, area), DType::i64);
}

Values max_pool_op(Context& c) {
  const Pool p = pool_of(c);
  const bool column_major = c.flag("storage_order", false);
  const DType dtype = c.dtype(0);
  if (!c.wants(1)) {
    if (is_float(dtype) && plain(p)) return {max_pool(c.in(0), options_of(p))};
    const bool integer = !is_float(dtype);
    const double lowest = !integer ? -kInf : dtype == DType::i8 ? -128 : dtype == DType::u8 ? 0 : -2147483648.0;
    return {in_wide(c.in(0), [&](Value x) { return reduce_max(pool_windows(x, p, lowest), kernel_axes(p)); })};
  }
  if (!is_float(dtype) || !plain(p))
    c.refuse("Indices with three axes, of integers, or with padding of more than half a kernel");
  const MaxPoolResult r = max_pool_with_indices(c.in(0), options_of(p));
  return {r.values, whole_index(c, r.indices, p, column_major)};
}

/// How many elements each window counts. What sticks out beyond the padding, of a window that ceil_mode adds, does not count, as in
/// PyTorch; with dilations, which PyTorch does not have, it does, as in ONNX's own test.
std::vector<double> counts(const Pool& p, std::size_t axis, bool with_padding) {
  std::vector<double> result;
  const std::int64_t low = with_padding ? -p.g.before[axis] : 0;
  const std::int64_t high = p.extents[axis] + (with_padding ? p.g.after[axis] : 0);
  for (std::int64_t o = 0; o < p.out[axis]; ++o) {
    std::int64_t n = 0;
    for (std::int64_t k = 0; k < p.g.kernel[axis]; ++k) {
      const std::int64_t at = o * p.g.stride[axis] - p.g.before[axis] + k * p.g.dilation[axis];
      n += at >= low && (at < high || (with_padding && p.g.dilation[axis] > 1)) ? 1 : 0;
    }
    result.push_back(static_cast<double>(n));
  }
  return result;
}

Values average_pool(Context& c) {
  const Pool p = pool_of(c);
  const bool with_padding = c.flag("count_include_pad", false);
  const bool dilated = std::ranges::any_of(p.g.dilation, [](std::int64_t d) { return d > 1; });
  if (plain(p) && !dilated) {
    PoolOptions options = options_of(p);
    options.count_include_pad = with_padding;
    return {avg_pool(c.in(0), options)};
  }
  Value y = sum(pool_windows(c.in(0), p, 0), kernel_axes(p));
  for (std::size_t i = 0; i < p.out.size(); ++i) {
    if (p.out[i] * p.g.kernel[i] > (1 << 24)) c.refuse("more than 2^24 windows");
    Ints dims(p.out.size() + 2, 1);
    dims[i + 2] = p.out[i];
    y = y / c.tensor(Shape(std::span<const std::int64_t>(dims)), counts(p, i, with_padding), y.dtype());
  }
  return {y};
}

Values lp_pool(Context& c) {
  const double p = static_cast<double>(c.integer("p", 2));
  const Pool pool = pool_of(c);
  const Value w = abs(pool_windows(c.in(0), pool, 0));
  const Axes axes = kernel_axes(pool);
  if (p == 1) return {sum(w, axes)};
  if (p == 2) return {sqrt(sum(mul(w, w), axes))};
  return {pow(sum(pow(w, p), axes), 1 / p)};
}

Axes spatial_axes(Context& c) {
  if (c.rank(0) < 3) c.refuse("no spatial axes");
  Axes axes(static_cast<std::size_t>(c.rank(0)) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

Values global_average(Context& c) { return {mean(c.in(0), spatial_axes(c), true)}; }
Values global_max(Context& c) { return {reduce_max(c.in(0), spatial_axes(c), true)}; }
Values global_lp(Context& c) {
  const double p = static_cast<double>(c.integer("p", 2));
  const Value x = abs(c.in(0));
  return {p == 2 ? sqrt(sum(mul(x, x), spatial_axes(c), true)) : pow(sum(pow(x, p), spatial_axes(c), true), 1 / p)};
}

Values max_unpool(Context& c) {
  const Ints extents = spatial(c.shape(0));
  const Geometry g = window_geometry(c, c.ints("kernel_shape"), Ints(extents.size(), INT32_MAX));
  Ints inferred = {c.shape(0)[0], c.shape(0)[1]};
  for (std::size_t i = 0; i < extents.size(); ++i)
    inferred.push_back((extents[i] - 1) * g.stride[i] + g.kernel[i] - g.before[i] - g.after[i]);
  const Ints dims = c.has(2) ? c.ints(2, "output_shape") : inferred;
  std::int64_t size = 1, own = 1;
  for (const std::int64_t d : dims) size = checked_mul(size, d, "elements");
  for (const std::int64_t d : inferred) own *= d;
  Value index = cast(reshape(c.in(1), {-1}), DType::i32);
  if (dims != inferred && dims.size() == inferred.size()) {  // the indices count in the inferred shape
    Value rest = index, turned;
    std::int64_t stride = 1;
    for (std::size_t i = dims.size(); i-- > 0;) {
      const Value at = mul(mod(rest, inferred[i]), stride);
      turned = turned ? turned + at : at;
      rest = div(rest, inferred[i]);
      stride *= dims[i];
    }
    index = turned;
  }
  return {reshape(scatter(c.filled({size}, 0, c.dtype(0)), index, reshape(c.in(0), {-1}), 0), dims)};
}

Values lrn(Context& c) {
  const double alpha = c.number("alpha", 1e-4), beta = c.number("beta", 0.75), bias = c.number("bias", 1);
  const std::int64_t size = c.integer("size");
  if (size < 1 || size > 65536 || c.rank(0) < 2) c.refuse(formatted("size is {}", size));
  const Value x = c.in(0);
  // Channels last, so that the windows lie along the last axis.
  Ints there(static_cast<std::size_t>(x.shape().rank())), back = there;
  std::iota(there.begin(), there.end(), 0);
  std::rotate(there.begin() + 1, there.begin() + 2, there.end());
  for (std::size_t i = 0; i < there.size(); ++i)
    back[static_cast<std::size_t>(there[i])] = static_cast<std::int64_t>(i);
  const Value squares = permute(mul(x, x), there);
  const Value sums =
      sum(windows(squares, {.kernel = {size}, .before = {(size - 1) / 2}, .after = {size - 1 - (size - 1) / 2}}), {-1});
  return {x / pow(add(mul(permute(sums, back), alpha / static_cast<double>(size)), bias), beta)};
}

/// Columns back to an image: each position of the kernel is spread to where its windows are, and all are added.
Values col2im(Context& c) {
  const Ints image = c.ints(1, "the image's shape"), block = c.ints(2, "the block's shape");
  const Geometry g = window_geometry(c, block, image);
  const Shape& s = c.shape(0);
  std::int64_t area = 1;
  for (const std::int64_t b : block) area *= b;
  if (s.rank() != 3 || s[1] % area != 0 || area > 4096) c.refuse("the operand does not fit the block");
  const std::size_t axes = image.size();
  Ints split = {s[0], s[1] / area, area}, padded = {s[0], s[1] / area};
  std::int64_t windows_count = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    split.push_back(g.windows(i, image[i]));
    windows_count *= split.back();
    padded.push_back(image[i] + g.before[i] + g.after[i]);
  }
  if (windows_count != s[2]) c.refuse(formatted("{} columns for {} windows", s[2], windows_count));
  const Value x = reshape(c.in(0), split);
  Value y;
  for (std::int64_t k = 0; k < area; ++k) {
    Ints dims = split;
    dims.erase(dims.begin() + 2);
    Value part = reshape(slice(x, {2}, {k}, {k + 1}), dims);
    std::int64_t rest = k;
    Ints before(axes + 2, 0), after(axes + 2, 0);
    for (std::size_t i = axes; i-- > 0;) {
      const std::int64_t offset = rest % block[i] * g.dilation[i], stride = g.stride[i], n = dims[i + 2];
      rest /= block[i];
      if (stride > 1) {  // zeros between the elements
        Ints inner = dims_of(part.shape()), none(inner.size() + 1, 0), more = none, joined = inner;
        inner.insert(inner.begin() + static_cast<std::ptrdiff_t>(i) + 3, 1);
        more[i + 3] = stride - 1;
        joined[i + 2] = n * stride;
        part = slice(reshape(pad(reshape(part, inner), none, more), joined), {static_cast<std::int64_t>(i) + 2}, {0},
                     {(n - 1) * stride + 1});
      }
      before[i + 2] = offset;
      after[i + 2] = padded[i + 2] - offset - ((n - 1) * stride + 1);
    }
    part = pad(part, before, after);
    y = y ? y + part : part;
  }
  Ints where, starts, ends;
  for (std::size_t i = 0; i < axes; ++i) {
    where.push_back(static_cast<std::int64_t>(i) + 2);
    starts.push_back(g.before[i]);
    ends.push_back(g.before[i] + image[i]);
  }
  return {slice(y, where, starts, ends)};
}

}  // namespace

std::span<const Op> window_ops() {
  static constexpr std::array table = {
      Op{"AveragePool", average_pool, 1, false}, Op{"Col2Im", col2im, 18, false},
      Op{"GlobalAveragePool", global_average},   Op{"GlobalLpPool", global_lp},
      Op{"GlobalMaxPool", global_max},           Op{"LRN", lrn, 1, false},
      Op{"LpPool", lp_pool, 1, false},           Op{"MaxPool", max_pool_op, 1, false},
      Op{"MaxUnpool", max_unpool, 9, false},
  };
  return table;
}

}  // namespace aeshna::onnx
