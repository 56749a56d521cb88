// Pooling over the one or two spatial axes of x [N, C, ...]: a reduction over windows of x. Gradients are gathers: every position of
// x adds up the windows that see it, so that nothing is scattered and the order of the additions is fixed.
#include <cmath>
#include <limits>
#include <optional>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// One spatial axis.
struct Axis {
  std::int64_t extent = 0, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;
  std::int64_t out = 0;
  std::int64_t span() const { return dilation * (kernel - 1) + 1; }
  /// Padding at the end of windows that are there: less than `after`, or more with ceil_mode.
  std::int64_t used_after() const { return std::max<std::int64_t>((out - 1) * stride + span() - extent - before, 0); }
  /// Positions of window o inside [low, high) of x's coordinates.
  std::int64_t count(std::int64_t o, std::int64_t low, std::int64_t high) const {
    std::int64_t n = 0;
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t at = o * stride - before + k * dilation;
      n += at >= low && at < high ? 1 : 0;
    }
    return n;
  }
};

struct Pool {
  std::int64_t rows = 1;  ///< N * C
  std::vector<Axis> axes;
  Shape flat() const {  ///< [rows, extents]
    Ints dims{rows};
    for (const Axis& a : axes) dims.push_back(a.extent);
    return Shape(dims);
  }
  Shape result(const Shape& x) const {
    Ints dims{x[0], x[1]};
    for (const Axis& a : axes) dims.push_back(a.out);
    return Shape(dims);
  }
};

Pool pool_of(const Shape& x, const Attrs& attrs) {
  Pool p;
  p.rows = x[0] * x[1];
  const bool ceil_mode = attrs.get<bool>("ceil_mode");
  for (int d = 2; d < x.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d - 2);
    Axis a;
    a.extent = x[d];
    a.kernel = attrs.get<Ints>("kernel")[i];
    a.stride = attrs.get<Ints>("stride")[i];
    a.dilation = attrs.get<Ints>("dilation")[i];
    a.before = attrs.get<Ints>("before")[i];
    a.after = attrs.get<Ints>("after")[i];
    const std::int64_t room = a.extent + a.before + a.after - a.span();
    a.out = room / a.stride + 1;
    // As in PyTorch: a last window that is only partly there counts if it starts before the end of x.
    if (ceil_mode && room % a.stride != 0 && a.out * a.stride < a.extent + a.before) ++a.out;
    p.axes.push_back(a);
  }
  return p;
}

Pool infer_pool(const InferContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  if (!is_float(x.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(x.dtype)));
  const std::size_t n = ctx.attrs.get<Ints>("kernel").size();
  if (n < 1 || n > 2 || static_cast<std::size_t>(x.shape.rank()) != n + 2) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("a kernel of {} axes needs x [N, C, {}], not {}", n,
                                                 n == 1 ? "L" : "H, W (one or two spatial axes)", x.to_string()));
  }
  for (const char* name : {"stride", "dilation", "before", "after"}) {
    const std::size_t given = ctx.attrs.get<Ints>(name).size();
    if (given != n)
      ctx.fail(ErrorCode::InvalidArgument, formatted("{} has {} entries for {} spatial axes", name, given, n));
  }
  ctx.attrs.get<bool>("ceil_mode");
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = [&](const char* name) { return ctx.attrs.get<Ints>(name)[i]; };
    const int axis = static_cast<int>(i) + 2;
    window_count(ctx, axis, x.shape[axis], at("kernel"), at("stride"), at("dilation"), at("before"), at("after"));
    if (at("stride") > INT32_MAX)
      ctx.fail(ErrorCode::InvalidArgument,
               formatted("stride {} of axis {} is more than 32 bits hold", at("stride"), axis));
    const std::int64_t half = (at("dilation") * (at("kernel") - 1) + 1) / 2;
    if (at("before") > half || at("after") > half) {
      ctx.fail(ErrorCode::InvalidArgument,
               formatted("padding ({}, {}) of axis {} is more than {}, half of what the kernel spans", at("before"),
                         at("after"), axis, half));
    }
  }
  const Pool pool = guarded(ctx, [&] {
    x.shape.elements();
    return pool_of(x.shape, ctx.attrs);
  });
  for (std::size_t i = 0; i < n; ++i) {
    const Axis& a = pool.axes[i];
    if (a.dilation == 1) continue;  // every window starts before the end and is at most half padding
    for (std::int64_t o = 0; o < a.out; ++o) {
      if (a.count(o, 0, a.extent) == 0)
        ctx.fail(ErrorCode::InvalidArgument, formatted("window {} of axis {} sees nothing but padding", o, i + 2));
    }
  }
  return pool;
}

/// f(row, output index in the row, [ (linear index in x's row) of each position inside ]) in row-major order.
template <class F>
void for_each_window(const Pool& p, F&& f) {
  const Axis one{.extent = 1, .out = 1};
  const Axis &h = p.axes.size() == 2 ? p.axes[0] : one, &w = p.axes.back();
  std::vector<std::int64_t> inside;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t i = 0; i < h.out; ++i) {
      for (std::int64_t j = 0; j < w.out; ++j) {
        inside.clear();
        for (std::int64_t a = 0; a < h.kernel; ++a) {
          for (std::int64_t b = 0; b < w.kernel; ++b) {
            const std::int64_t y = i * h.stride - h.before + a * h.dilation,
                               x = j * w.stride - w.before + b * w.dilation;
            if (y >= 0 && y < h.extent && x >= 0 && x < w.extent) inside.push_back(y * w.extent + x);
          }
        }
        f(row, i * w.out + j, inside);
      }
    }
  }
}

// ---- expansions

Expr windows_of(const BuildContext& c, const Expr& x, const Pool& p, double fill) {
  Ints kernel, stride, dilation, before, after;
  for (const Axis& a : p.axes) {
    kernel.push_back(a.kernel);
    stride.push_back(a.stride);
    dilation.push_back(a.dilation);
    before.push_back(a.before);
    after.push_back(a.used_after());
  }
  return {c, c.add("windows", {x.value},
                   {{"kernel", kernel},
                    {"stride", stride},
                    {"dilation", dilation},
                    {"before", before},
                    {"after", after},
                    {"value", fill}})};
}

/// Axes of the windows' positions: behind rows and windows.
Ints kernel_axes(const Pool& p) {
  const auto n = static_cast<std::int64_t>(p.axes.size());
  return n == 1 ? Ints{2} : Ints{3, 4};
}

Expr iota(const BuildContext& c, const Ints& dims, std::size_t axis) {
  Ints own(dims.size(), 1);
  own[axis] = dims[axis];
  return {c, c.add("iota", {}, {{"dims", own}, {"axis", static_cast<std::int64_t>(axis)}})};
}

/// dx [rows, extents]: sum of g over the windows that see each position; with `index` (the linear position in x's row that each
/// window chose) over those that chose it.
///
/// A position h = stride * q + r - before is at position k = r + stride * m of window q - m, m = 0, 1, ... So the sum is over a few
/// neighbouring windows, the same for all r: a reduction over windows of g, for every remainder r.
Expr gather_windows(const BuildContext& c, const Pool& p, Expr g, std::optional<Expr> index) {
  const std::size_t n = p.axes.size();
  Ints kernel, stride(n, 1), dilation, before, after, rows, rest;
  Ints steps;  // stride, or 1 where the gaps are filled with zeros
  for (std::size_t i = 0; i < n; ++i) {
    const Axis& a = p.axes[i];
    std::int64_t step = a.stride, out = a.out;
    if (step > 1 && a.dilation > 1) {
      g = spread(g, i + 1, step);
      if (index) index = spread(*index, i + 1, step);
      out = (out - 1) * step + 1;
      step = 1;
    }
    steps.push_back(step);
    rest.push_back(step);
    if (step == 1) {  // the padding is in the shift
      kernel.push_back(a.kernel);
      dilation.push_back(a.dilation);
      rows.push_back(a.extent);
      before.push_back((a.kernel - 1) * a.dilation - a.before);
      after.push_back(a.extent + a.before - out);
    } else {
      kernel.push_back((a.kernel + step - 1) / step);
      dilation.push_back(1);
      rows.push_back((a.extent + a.before + step - 1) / step);
      before.push_back(kernel.back() - 1);
      after.push_back(rows.back() - out);
    }
  }
  const Attrs attrs = {{"kernel", kernel}, {"stride", stride}, {"dilation", dilation},
                       {"before", before}, {"after", after},   {"value", 0.0}};
  // [rows, (q, 1)..., m...], beside [rows, (q, r)..., m...]
  Ints seen{p.rows}, full{p.rows};
  for (std::size_t i = 0; i < n; ++i) {
    seen.insert(seen.end(), {rows[i], 1});
    full.insert(full.end(), {rows[i], rest[i]});
  }
  seen.insert(seen.end(), kernel.begin(), kernel.end());
  full.insert(full.end(), kernel.begin(), kernel.end());
  const auto neighbours = [&](const Expr& x) {
    return reshape_to({c, c.add("windows", {x.value}, attrs)}, Shape(seen));
  };
  Expr value = neighbours(g);
  if (index) {
    // Where (q, r) is in x's row: counted from the padding's start, less what that is too much. Positions in the padding alias
    // others and are cut off below.
    std::int64_t pitch = 1, surplus = 0;
    std::optional<Expr> position;
    for (std::size_t i = n; i-- > 0;) {
      const Axis& a = p.axes[i];
      Ints dims(full.size(), 1);
      dims[1 + 2 * i] = rows[i];
      dims[2 + 2 * i] = rest[i];
      Expr at = reshape_to(iota(c, {rows[i] * rest[i]}, 0), Shape(dims));
      if (pitch > 1) at = at * static_cast<double>(pitch);
      position = position ? *position + at : at;
      if (steps[i] > 1) surplus += a.before * pitch;
      pitch *= a.extent;
    }
    if (surplus > 0) position = *position - static_cast<double>(surplus);
    value = where(apply("equal", {neighbours(*index), *position}), value, 0);
  } else {
    // Where the stride does not divide the kernel, the last neighbour is too far away for some remainders.
    Ints dims(full.size(), 1);
    bool all = true;
    for (std::size_t i = 0; i < n; ++i) {
      dims[2 + 2 * i] = rest[i];
      dims[1 + 2 * n + i] = kernel[i];
      all = all && (steps[i] == 1 || p.axes[i].kernel % steps[i] == 0);
    }
    if (!all) {
      std::vector<double> inside;
      const auto sees = [&](std::size_t i, std::int64_t r, std::int64_t m) {
        return steps[i] == 1 || r + steps[i] * (kernel[i] - 1 - m) < p.axes[i].kernel;
      };
      for (std::int64_t r = 0; r < rest[0]; ++r) {
        for (std::int64_t q = 0; q < (n == 2 ? rest[1] : 1); ++q) {
          for (std::int64_t m = 0; m < kernel[0]; ++m) {
            for (std::int64_t l = 0; l < (n == 2 ? kernel[1] : 1); ++l)
              inside.push_back(sees(0, r, m) && (n == 1 || sees(1, q, l)));
          }
        }
      }
      const Expr mask(c,
                      c.add("constant", {}, {{"value", Literal::from_doubles({DType::boolean, Shape(dims)}, inside)}}));
      value = where(mask, value, 0);
    }
  }
  Ints axes, joined{p.rows};
  std::int64_t terms = 1;
  for (std::size_t i = 0; i < n; ++i) {
    axes.push_back(static_cast<std::int64_t>(1 + 2 * n + i));
    joined.push_back(rows[i] * rest[i]);
    terms *= kernel[i];
  }
  value = expand_to(value, Shape(full));
  if (terms > 1) value = reduce("sum", value, axes, false);
  Expr dx = reshape_to(value, Shape(joined));
  for (std::size_t i = 0; i < n; ++i) {
    const Axis& a = p.axes[i];
    if (steps[i] > 1 && joined[i + 1] != a.extent) dx = slice_axis(dx, i + 1, a.before, a.before + a.extent);
  }
  return dx;
}

Shape flat_result(const Pool& p) {
  Ints dims{p.rows};
  for (const Axis& a : p.axes) dims.push_back(a.out);
  return Shape(dims);
}

// ---- max_pool

std::vector<Value> expand_max(const BuildContext& c, std::span<const Value> in) {
  const Shape x = in[0].shape(), y = c.like.results[0].shape;
  const Pool p = pool_of(x, c.like.attrs);
  if (y.elements() == 0) return {reshape_to({c, in[0]}, y).value, cast_to(reshape_to({c, in[0]}, y), DType::i32).value};
  const Expr w = windows_of(c, reshape_to({c, in[0]}, p.flat()), p, -std::numeric_limits<double>::infinity());
  const Expr largest = reduce("max", w, kernel_axes(p), false), chosen = reduce("argmax", w, kernel_axes(p), false);
  // The position in the window becomes one in x. Padding is chosen only where the whole window is -inf: then the first position
  // inside is meant.
  const Shape flat = flat_result(p);
  const Ints dims(flat.begin(), flat.end());
  Expr rest = chosen;
  std::optional<Expr> position;
  for (std::size_t i = 0; i < p.axes.size(); ++i) {
    const Axis& a = p.axes[i];
    const bool last = i + 1 == p.axes.size();
    Expr k = last ? rest : rest / rest.number(static_cast<double>(p.axes[i + 1].kernel));
    if (!last) rest = rest - k * static_cast<double>(p.axes[i + 1].kernel);
    const Expr start = iota(c, dims, i + 1) * static_cast<double>(a.stride) - static_cast<double>(a.before);
    if (a.before > 0) {
      Expr missing = apply("maximum", {-start, start.number(0)});
      if (a.dilation > 1) {
        const double d = static_cast<double>(a.dilation);
        missing = (missing + (d - 1)) / missing.number(d);
      }
      k = apply("maximum", {k, missing});
    }
    const Expr at = start + k * static_cast<double>(a.dilation);
    position = position ? *position * static_cast<double>(a.extent) + at : at;
  }
  return {reshape_to(largest, y).value, reshape_to(*position, y).value};
}

Attrs pool_attrs(Ints kernel, Ints stride, Ints dilation, Ints before, Ints after, bool ceil_mode) {
  return {{"kernel", std::move(kernel)}, {"stride", std::move(stride)}, {"dilation", std::move(dilation)},
          {"before", std::move(before)}, {"after", std::move(after)},   {"ceil_mode", ceil_mode}};
}

/// Shapes and attrs for both kinds.
std::vector<OpCase> pool_cases(bool dilated) {
  const auto one = [](Shape x, Attrs attrs) {
    OpCase c{.inputs = {f32_type(x)}, .attrs = std::move(attrs), .ranges = {}, .values = {}};
    return c;
  };
  std::vector<OpCase> cases = {
      one({2, 3, 4, 6}, pool_attrs({2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false)),
      one({1, 2, 7, 5}, pool_attrs({3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false)),  // as in a ResNet's stem
      one({2, 1, 6, 7}, pool_attrs({3, 2}, {1, 1}, {1, 1}, {1, 0}, {0, 1}, false)),  // overlapping, asymmetric
      one({1, 2, 5, 7}, pool_attrs({2, 3}, {2, 2}, {1, 1}, {0, 1}, {0, 1}, true)),   // partial last windows
      one({1, 1, 8, 9}, pool_attrs({2, 2}, {3, 4}, {1, 1}, {0, 0}, {0, 0}, true)),   // gaps
      one({2, 2, 11}, pool_attrs({3}, {2}, {1}, {1}, {0}, false)),
      one({3, 1, 5}, pool_attrs({5}, {5}, {1}, {0}, {0}, false)),
      one({1, 1, 1, 1}, pool_attrs({1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false)),
      one({0, 3, 4, 4}, pool_attrs({2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false)),
      one({1, 3, 17, 19}, pool_attrs({5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, false)),
  };
  if (dilated) {
    cases.push_back(one({1, 2, 9, 8}, pool_attrs({2, 3}, {1, 1}, {3, 2}, {1, 2}, {2, 0}, false)));
    cases.push_back(one({2, 1, 12}, pool_attrs({3}, {2}, {2}, {1}, {1}, false)));
    cases.push_back(one({1, 1, 9, 9}, pool_attrs({3, 2}, {2, 3}, {2, 3}, {2, 1}, {1, 0}, true)));
  }
  return cases;
}

OpDef max_pool_op() {
  OpDef op;
  op.name = "max_pool";
  op.doc =
      "Largest value of each window of x [N, C, ...] (attrs kernel, stride, dilation, before, after, ceil_mode; "
      "padding is -inf), and "
      "where it is: the linear index in x's spatial axes, the first of equals.";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Pool p = infer_pool(ctx);
    std::int64_t positions = 1;
    for (const Axis& a : p.axes) positions *= a.extent;
    if (positions > std::numeric_limits<std::int32_t>::max() / 2)
      ctx.fail(ErrorCode::LimitExceeded,
               formatted("{} positions for each channel do not fit the i32 of the index", positions));
    const Shape y = p.result(ctx.inputs[0].shape);
    return {{ctx.inputs[0].dtype, y}, {DType::i32, y}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor& x = *ctx.inputs[0];
    const Pool p = pool_of(x.type.shape, ctx.node.attrs);
    const std::int64_t area = p.flat().elements() / std::max<std::int64_t>(p.rows, 1);
    std::size_t out = 0;
    for_each_window(p, [&](std::int64_t row, std::int64_t, const Ints& inside) {
      std::int64_t best = inside.front();
      const auto at = [&](std::int64_t i) { return x.data[static_cast<std::size_t>(row * area + i)]; };
      for (const std::int64_t i : inside) {
        if (!std::isnan(at(best)) && (std::isnan(at(i)) || at(i) > at(best))) best = i;
      }
      ctx.results[0].data[out] = at(best);
      ctx.results[1].data[out++] = static_cast<double>(best);
    });
  };
  op.expand = expand_max;
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value> out,
              std::span<const Value> dys) -> std::vector<Value> {
    const Pool p = pool_of(in[0].shape(), c.like.attrs);
    const Shape flat = flat_result(p);
    if (in[0].shape().elements() == 0) return {Value()};
    return {
        reshape_to(gather_windows(c, p, reshape_to({c, dys[0]}, flat), reshape_to({c, out[1]}, flat)), in[0].shape())
            .value};
  };
  op.cases = [] {
    std::vector<OpCase> cases = pool_cases(true);
    const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    OpCase edge = cases[1];
    edge.values = {{1, 1, -inf, -inf, -inf, nan, 2, -inf, -inf, -inf, 2, 2, -inf, -inf, -inf, inf, inf, 0, -1}};
    edge.gradient = false;
    cases.push_back(edge);
    return cases;
  };
  return op;
}

// ---- avg_pool

/// 1 / what a window is divided by, [outputs...] or one number.
Expr inverse_counts(const BuildContext& c, const Pool& p, bool include_pad, DType dtype) {
  std::vector<std::vector<double>> counts;
  bool equal = true;
  for (const Axis& a : p.axes) {
    std::vector<double> axis;
    for (std::int64_t o = 0; o < a.out; ++o) {
      const std::int64_t n = include_pad ? a.count(o, -a.before, a.extent + a.after) : a.count(o, 0, a.extent);
      axis.push_back(static_cast<double>(n));
      equal = equal && n == a.kernel;
    }
    counts.push_back(std::move(axis));
  }
  Ints dims;
  double all = 1;
  for (const Axis& a : p.axes) {
    dims.push_back(a.out);
    all *= static_cast<double>(a.kernel);
  }
  if (equal) return {c, c.scalar(1 / all, dtype)};
  std::vector<double> values;
  if (counts.size() == 1) {
    for (const double n : counts[0]) values.push_back(1 / n);
  } else {
    for (const double m : counts[0]) {
      for (const double n : counts[1]) values.push_back(1 / (m * n));
    }
  }
  return {c, c.add("constant", {}, {{"value", Literal::from_doubles({dtype, Shape(dims)}, values)}})};
}

OpDef avg_pool_op() {
  OpDef op;
  op.name = "avg_pool";
  op.doc =
      "Mean of each window of x [N, C, ...] (attrs as max_pool, padding is 0); attr count_include_pad: padding counts "
      "in the divisor.";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    ctx.attrs.get<bool>("count_include_pad");
    return {{ctx.inputs[0].dtype, infer_pool(ctx).result(ctx.inputs[0].shape)}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor& x = *ctx.inputs[0];
    const Pool p = pool_of(x.type.shape, ctx.node.attrs);
    const bool include_pad = ctx.node.attrs.get<bool>("count_include_pad");
    const std::int64_t area = p.flat().elements() / std::max<std::int64_t>(p.rows, 1);
    std::size_t n = 0;
    for_each_window(p, [&](std::int64_t row, std::int64_t o, const Ints& inside) {
      double sum = 0, count = static_cast<double>(inside.size());
      for (const std::int64_t i : inside) sum += x.data[static_cast<std::size_t>(row * area + i)];
      if (include_pad) {
        count = 1;
        for (std::size_t i = p.axes.size(); i-- > 0;) {
          const Axis& a = p.axes[i];
          count *= static_cast<double>(a.count(o % a.out, -a.before, a.extent + a.after));
          o /= a.out;
        }
      }
      ctx.results[0].data[n++] = sum / count;
    });
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Shape y = c.like.results[0].shape;
    if (y.elements() == 0) return {reshape_to({c, in[0]}, y).value};
    const Pool p = pool_of(in[0].shape(), c.like.attrs);
    const Expr sum = reduce("sum", windows_of(c, reshape_to({c, in[0]}, p.flat()), p, 0), kernel_axes(p), false);
    return {
        reshape_to(sum * inverse_counts(c, p, c.like.attrs.get<bool>("count_include_pad"), in[0].dtype()), y).value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dys) -> std::vector<Value> {
    if (in[0].shape().elements() == 0) return {Value()};
    const Pool p = pool_of(in[0].shape(), c.like.attrs);
    const Expr g = reshape_to({c, dys[0]}, flat_result(p)) *
                   inverse_counts(c, p, c.like.attrs.get<bool>("count_include_pad"), in[0].dtype());
    return {reshape_to(gather_windows(c, p, g, {}), in[0].shape()).value};
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const bool include_pad : {true, false}) {
      for (OpCase c : pool_cases(include_pad)) {
        c.attrs.set("count_include_pad", include_pad);
        cases.push_back(std::move(c));
      }
    }
    return cases;
  };
  return op;
}

// ---- public functions

/// One entry per spatial axis: a single entry counts for all, none is `otherwise`.
Ints per_axis(std::string_view op, const char* name, const Ints& given, std::size_t n, const Ints& otherwise,
              const Loc& line) {
  if (given.empty()) return otherwise;
  if (given.size() == 1) return Ints(n, given[0]);
  if (given.size() != n)
    op_error(ErrorCode::InvalidArgument, op, formatted("{} has {} entries for {} spatial axes", name, given.size(), n),
             line);
  return given;
}

/// Number of spatial axes.
std::size_t spatial_axes(std::string_view op, const Operand& x) {
  const Value v = resolve_value(op, x);
  if (v.shape().rank() < 3)
    op_error(ErrorCode::ShapeMismatch, op, formatted("needs x [N, C, spatial...], not {}", v.type().to_string()),
             x.line());
  return static_cast<std::size_t>(v.shape().rank()) - 2;
}

Value build_pool(std::string_view op, const Operand& x, const PoolOptions& options, bool average) {
  const std::size_t n = spatial_axes(op, x);
  const auto get = [&](const char* name, const Ints& given, const Ints& otherwise) {
    return per_axis(op, name, given, n, otherwise, x.line());
  };
  if (options.kernel.empty()) op_error(ErrorCode::InvalidArgument, op, "needs a kernel", x.line());
  const Ints kernel = get("kernel", options.kernel, {}), before = get("padding", options.padding, Ints(n, 0));
  Attrs attrs = pool_attrs(kernel, get("stride", options.stride, kernel), get("dilation", options.dilation, Ints(n, 1)),
                           before, get("padding_after", options.padding_after, before), options.ceil_mode);
  if (average) attrs.set("count_include_pad", options.count_include_pad);
  return build(op, {x}, std::move(attrs));
}

/// Options of a pool whose windows divide the extents evenly, or nothing.
std::optional<PoolOptions> even_windows(const Shape& shape, const Ints& out) {
  PoolOptions options;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t extent = shape[static_cast<int>(i) + 2];
    if (extent % out[i] != 0 || extent == 0) return std::nullopt;
    options.kernel.push_back(extent / out[i]);
  }
  return options;
}

Ints adaptive_out(std::string_view op, const Operand& x, const Ints& out) {
  const Ints all = per_axis(op, "out", out, spatial_axes(op, x), {}, x.line());
  if (all.empty()) op_error(ErrorCode::InvalidArgument, op, "needs the extents of the result", x.line());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 1 || all[i] > x.value().shape()[static_cast<int>(i) + 2]) {
      op_error(ErrorCode::InvalidArgument, op,
               formatted("cannot make {} windows of axis {} of {}", all[i], i + 2, x.value().type().to_string()),
               x.line());
    }
  }
  return all;
}

}  // namespace

std::vector<OpDef> pool_ops() { return {max_pool_op(), avg_pool_op()}; }

Value max_pool(Operand x, const PoolOptions& options) { return build_pool("max_pool", x, options, false); }

MaxPoolResult max_pool_with_indices(Operand x, const PoolOptions& options) {
  const Value values = build_pool("max_pool", x, options, false);
  return {values, values.graph().value({values.id().node, 1})};
}

Value avg_pool(Operand x, const PoolOptions& options) { return build_pool("avg_pool", x, options, true); }

Value global_max_pool(Operand x) { return adaptive_max_pool(x, {1}); }

Value global_avg_pool(Operand x) {
  Axes axes;
  for (std::size_t i = 0; i < spatial_axes("global_avg_pool", x); ++i) axes.push_back(static_cast<std::int64_t>(i) + 2);
  return mean(x, axes, true);
}

Value adaptive_max_pool(Operand x, const std::vector<std::int64_t>& out) {
  const char* const op = "adaptive_max_pool";
  const Ints all = adaptive_out(op, x, out);
  const auto options = even_windows(x.value().shape(), all);
  if (!options) {
    op_error(ErrorCode::InvalidArgument, op,
             formatted("the extents of the result must divide those of {}", x.value().type().to_string()), x.line());
  }
  return build_pool("max_pool", x, *options, false);
}

Value adaptive_avg_pool(Operand x, const std::vector<std::int64_t>& out) {
  const char* const op = "adaptive_avg_pool";
  const Ints all = adaptive_out(op, x, out);
  const Value v = x.value();
  const Shape shape = v.shape();
  if (const auto options = even_windows(shape, all)) return build_pool("avg_pool", x, *options, true);
  // Windows of different widths: a product with the matrix of the weights, axis by axis.
  if (all.size() > 2)
    op_error(ErrorCode::ShapeMismatch, op, formatted("has one or two spatial axes, not {}", all.size()), x.line());
  const auto weights = [&](std::size_t i) {
    const std::int64_t extent = shape[static_cast<int>(i) + 2], rows = all[i];
    std::vector<double> values(static_cast<std::size_t>(rows * extent), 0.0);
    for (std::int64_t o = 0; o < rows; ++o) {
      const std::int64_t first = o * extent / rows, end = ((o + 1) * extent + rows - 1) / rows;
      for (std::int64_t h = first; h < end; ++h)
        values[static_cast<std::size_t>(o * extent + h)] = 1 / static_cast<double>(end - first);
    }
    return Operand(v.graph().constant(Literal::from_doubles({v.dtype(), {rows, extent}}, values), x.line()), x.line());
  };
  const Value wide = matmul(Operand(v, x.line()), weights(all.size() - 1), false, true);
  return all.size() == 1 ? wide : matmul(weights(0), Operand(wide, x.line()));
}

}  // namespace aeshna
