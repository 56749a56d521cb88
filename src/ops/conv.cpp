// Convolutions over the last one or two axes, NC... row-major. Three composites (forward, input gradient, weight gradient), each
// the gradient of the others, become products: `conv_product` and `conv_weight_product` say how a convolution contracts, and the
// matrix-product kernels read their operand through windows (implicit GEMM). An input gradient is a forward convolution of dy
// with flipped weights, one for each remainder modulo the stride. Large 3x3 convolutions go through Winograd's tiles (winograd.cpp).
// Depthwise convolutions are reductions over windows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/lower.h"
#include "ops/winograd.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

/// Attrs of the composites, one entry per spatial axis.
struct Geometry {
  Ints stride, dilation, before, after;
  std::int64_t groups = 1;
  explicit Geometry(const Attrs& attrs)
      : stride(attrs.get<Ints>("stride")),
        dilation(attrs.get<Ints>("dilation")),
        before(attrs.get<Ints>("before")),
        after(attrs.get<Ints>("after")),
        groups(attrs.get<std::int64_t>("groups")) {}
  std::size_t rank() const { return stride.size(); }
};

Attrs conv_attrs(const Geometry& g) {
  return {{"stride", g.stride}, {"dilation", g.dilation}, {"before", g.before}, {"after", g.after}, {"groups", g.groups}};
}

Ints spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Shape with_spatial(Ints lead, const Ints& extents) {
  lead.insert(lead.end(), extents.begin(), extents.end());
  return Shape(lead);
}

/// What all three share: ranks, dtypes, attrs; x [N, C, spatial], w [Co, C / groups, kernel], y [N, Co, windows].
Geometry check(const InferContext& ctx) {
  const Geometry g(ctx.attrs);
  const int rank = ctx.inputs[0].shape.rank();
  for (const TensorType& input : ctx.inputs) {
    if (!is_float(input.dtype))
      ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(input.dtype)));
    if (input.dtype != ctx.inputs[0].dtype) {
      ctx.fail(ErrorCode::DTypeMismatch, formatted("the operands have different dtypes: {} and {}",
                                                   ctx.inputs[0].to_string(), input.to_string()));
    }
    if (input.shape.rank() != rank || rank < 3 || rank > 4) {
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("needs operands of equal rank 3 or 4 (batch, channels, one or two spatial axes): {} and {}",
                         ctx.inputs[0].to_string(), input.to_string()));
    }
  }
  const auto n = static_cast<std::size_t>(rank) - 2;
  for (const auto& [list, name] : {std::pair{&g.stride, "stride"}, {&g.dilation, "dilation"}, {&g.before, "before"}, {&g.after, "after"}}) {
    if (list->size() != n)
      ctx.fail(ErrorCode::InvalidArgument, formatted("{} has {} entries for {} spatial axes", name, list->size(), n));
  }
  if (g.groups < 1) ctx.fail(ErrorCode::InvalidArgument, formatted("groups must be at least 1, not {}", g.groups));
  return g;
}

/// Channels of x and w agree and the groups divide them.
void check_channels(const InferContext& ctx, const Geometry& g, std::int64_t channels, std::int64_t outputs, std::int64_t per_group) {
  if (channels % g.groups != 0 || outputs % g.groups != 0) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("groups {} must divide {} input and {} output channels", g.groups, channels, outputs));
  }
  if (per_group * g.groups != channels) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("the weight has {} input channels for each of {} groups; the input has {} channels", per_group,
                       g.groups, channels));
  }
}

Ints window_counts(const InferContext& ctx, const Geometry& g, const Ints& extents, const Ints& kernel) {
  Ints counts;
  for (std::size_t i = 0; i < g.rank(); ++i) {
    counts.push_back(window_count(ctx, static_cast<int>(i) + 2, extents[i], kernel[i], g.stride[i], g.dilation[i], g.before[i], g.after[i]));
  }
  return counts;
}

/// f(x index, w index, y index) for every product of a convolution.
template <class F>
void for_each_product(const Geometry& g, const Shape& x, const Shape& w, const Shape& y, F&& f) {
  const auto two = [&](const Shape& s) { return std::pair{g.rank() == 2 ? s[2] : 1, s[s.rank() - 1]}; };
  const auto attr = [&](const Ints& v, std::int64_t otherwise) { return std::pair{g.rank() == 2 ? v[0] : otherwise, v.back()}; };
  const auto [xh, xw] = two(x);
  const auto [kh, kw] = two(w);
  const auto [yh, yw] = two(y);
  const auto [sh, sw] = attr(g.stride, 1);
  const auto [dh, dw] = attr(g.dilation, 1);
  const auto [ph, pw] = attr(g.before, 0);
  const std::int64_t in = w[1], out = y[1] / g.groups;
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t co = 0; co < y[1]; ++co) {
      const std::int64_t first = co / out * in;
      for (std::int64_t i = 0; i < yh; ++i) {
        for (std::int64_t j = 0; j < yw; ++j) {
          const std::int64_t at_y = ((n * y[1] + co) * yh + i) * yw + j;
          for (std::int64_t c = 0; c < in; ++c) {
            for (std::int64_t a = 0; a < kh; ++a) {
              const std::int64_t h = i * sh + a * dh - ph;
              if (h < 0 || h >= xh) continue;
              for (std::int64_t b = 0; b < kw; ++b) {
                const std::int64_t v = j * sw + b * dw - pw;
                if (v < 0 || v >= xw) continue;
                f(static_cast<std::size_t>(((n * x[1] + first + c) * xh + h) * xw + v),
                  static_cast<std::size_t>(((co * in + c) * kh + a) * kw + b), static_cast<std::size_t>(at_y));
              }
            }
          }
        }
      }
    }
  }
}

// ---- expansions. Channels are split into (groups, channels of a group).

Expr grouped(const Expr& x, std::int64_t groups) {
  const Shape s = x.shape();
  return reshape_to(x, with_spatial({s[0], groups, s[1] / groups}, spatial(s)));
}
/// [Co, Ci / groups, kernel] -> [groups, Co / groups, Ci / groups, kernel]
Expr grouped_weight(const Expr& w, std::int64_t groups) {
  const Shape s = w.shape();
  return reshape_to(w, with_spatial({groups, s[0] / groups, s[1]}, spatial(s)));
}

/// Depthwise: products of few channels would leave a product's tiles empty.
bool is_depthwise(const Geometry& g, const Shape& w) { return g.groups > 1 && w[1] == 1 && w[0] / g.groups <= 2; }

Expr windows_of(const Expr& x, const Geometry& g, Ints kernel) {
  return apply("windows", {x},
               {{"kernel", std::move(kernel)},
                {"stride", g.stride},
                {"dilation", g.dilation},
                {"before", g.before},
                {"after", g.after},
                {"value", 0.0}});
}

Ints last_axes(int rank, std::size_t count) {
  Ints axes(count);
  std::iota(axes.begin(), axes.end(), rank - static_cast<std::int64_t>(count));
  return axes;
}

/// Neighbouring windows, of neighbouring elements.
bool unit_steps(const Ints& stride, const Ints& dilation) {
  return stride == Ints(stride.size(), 1) && dilation == stride;
}

Expr conv_product(const Expr& w, const Expr& x, Ints stride, Ints dilation, Ints before, Ints out) {
  if (unit_steps(stride, dilation)) {
    if (const auto y = winograd_product(w, x, before, out)) return *y;
  }
  return apply("conv_product", {w, x},
               {{"stride", std::move(stride)}, {"dilation", std::move(dilation)}, {"before", std::move(before)}, {"out", std::move(out)}});
}

Expr conv_weight_product(const Expr& dy, const Expr& x, Ints stride, Ints dilation, Ints before, Ints kernel) {
  if (unit_steps(stride, dilation)) {
    if (const auto dw = winograd_weight_product(dy, x, before, kernel)) return *dw;
  }
  return apply("conv_weight_product", {dy, x},
               {{"stride", std::move(stride)},
                {"dilation", std::move(dilation)},
                {"before", std::move(before)},
                {"kernel", std::move(kernel)}});
}

Expr expand_conv(const Expr& x, const Expr& w, const Geometry& g, const Shape& y) {
  const Ints kernel = spatial(w.shape()), out = spatial(y);
  const Expr gx = grouped(x, g.groups), gw = grouped_weight(w, g.groups);
  if (!is_depthwise(g, w.shape())) {
    return reshape_to(conv_product(gw, gx, g.stride, g.dilation, g.before, out), y);
  }
  // [N, G, 1, out, kernel] * [G, m, 1..., kernel], summed over the kernel.
  Ints dims{g.groups, w.shape()[0] / g.groups};
  dims.resize(2 + g.rank(), 1);
  const Expr product = windows_of(gx, g, kernel) * reshape_to(gw, with_spatial(dims, kernel));
  return reshape_to(reduce("sum", product, last_axes(product.shape().rank(), g.rank()), false), y);
}

Expr expand_weight_gradient(const Expr& x, const Expr& dy, const Geometry& g, const Shape& w) {
  const Expr gx = grouped(x, g.groups), gy = grouped(dy, g.groups);
  const Ints kernel = spatial(w);
  if (!is_depthwise(g, w)) {
    return reshape_to(conv_weight_product(gy, gx, g.stride, g.dilation, g.before, kernel), w);
  }
  // [N, G, m, out, 1...] * [N, G, 1, out, kernel], summed over N and out.
  const Shape s = gy.shape();
  Ints dims(s.begin(), s.end()), axes{0};
  dims.resize(dims.size() + g.rank(), 1);
  for (std::size_t i = 0; i < g.rank(); ++i) axes.push_back(3 + static_cast<std::int64_t>(i));
  return reshape_to(reduce("sum", reshape_to(gy, Shape(dims)) * windows_of(gx, g, kernel), axes, false), w);
}

/// One spatial axis of an input gradient for the positions h = stride * q + r of x: the taps k = first + t * step see them, tap t
/// from window q + shift - t * dilation.
struct Phase {
  std::int64_t first = 0, step = 1, taps = 0, dilation = 1, shift = 0;
};

Phase phase_of(std::int64_t r, std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t before) {
  Phase phase;
  phase.step = stride / std::gcd(stride, dilation);
  phase.dilation = phase.step * dilation / stride;
  for (std::int64_t k = 0; k < std::min(kernel, phase.step); ++k) {
    if ((r + before - k * dilation) % stride != 0) continue;
    phase.first = k;
    phase.taps = (kernel - k + phase.step - 1) / phase.step;
    phase.shift = (r + before - k * dilation) / stride;
  }
  return phase;
}

/// dx [N, C, extents] of dy and w: the positions of x fall into stride x stride interleaved grids, each a convolution of dy with
/// stride 1 and with the taps that see it.
class InputGradient {
 public:
  InputGradient(const BuildContext& c, const Expr& dy, const Expr& w, const Geometry& g, const Shape& x)
      : c_(c), g_(g), x_(x), y_(grouped(dy, g.groups)) {
    // [groups, Ci, Co, kernel]: what were inputs are outputs.
    const Expr gw = grouped_weight(w, g.groups);
    Ints axes{0, 2, 1};
    for (std::size_t i = 0; i < g.rank(); ++i) axes.push_back(3 + static_cast<std::int64_t>(i));
    w_ = apply("permute", {gw}, {{"axes", axes}});
    for (std::size_t i = 0; i < g.rank(); ++i) rows_.push_back((x[static_cast<int>(i) + 2] + g.stride[i] - 1) / g.stride[i]);
  }

  Expr run() {
    bool apart = true;  // no position of x lies in two windows
    for (std::size_t i = 0; i < g_.rank(); ++i) apart = apart && span(i) <= g_.stride[i];
    const bool strided = std::ranges::any_of(g_.stride, [](std::int64_t s) { return s > 1; });
    return apart && strided ? shuffled() : reshape_to(interleave({}), x_);
  }

 private:
  std::int64_t kernel(std::size_t i) const { return w_.shape()[static_cast<int>(3 + i)]; }
  std::int64_t span(std::size_t i) const { return g_.dilation[i] * (kernel(i) - 1) + 1; }

  /// Every tap is an output channel of one product; its results only need their places: window o, tap k at o * stride + k * dilation.
  Expr shuffled() {
    const Shape w = w_.shape(), y = y_.shape();  // [groups, Ci, Co, kernel], [N, groups, Co, windows]
    const std::size_t n = g_.rank();
    std::int64_t taps = 1;
    Ints axes{0, 1};
    for (std::size_t i = 0; i < n; ++i) {
      taps *= kernel(i);
      axes.push_back(static_cast<std::int64_t>(3 + i));
    }
    axes.push_back(2);
    const Expr flat = reshape_to(apply("permute", {w_}, {{"axes", axes}}), with_spatial({w[0], w[1] * taps, w[2]}, Ints(n, 1)));
    const Ints windows(y.begin() + 3, y.end());
    Expr x = conv_product(flat, y_, Ints(n, 1), Ints(n, 1), Ints(n, 0), windows);
    // [N, groups, Ci, kernel..., windows...] -> [N, groups, Ci, windows 0, kernel 0, windows 1, kernel 1]
    Ints dims{y[0], y[1], w[1]};
    for (std::size_t i = 0; i < n; ++i) dims.push_back(kernel(i));
    dims.insert(dims.end(), windows.begin(), windows.end());
    x = reshape_to(x, Shape(dims));
    Ints order{0, 1, 2};
    for (std::size_t i = 0; i < n; ++i) {
      order.push_back(static_cast<std::int64_t>(3 + n + i));
      order.push_back(static_cast<std::int64_t>(3 + i));
    }
    x = apply("permute", {x}, {{"axes", order}});
    for (std::size_t i = 0; i < n; ++i) x = place(x, i);
    return reshape_to(x, x_);
  }

  /// Axes 3 + i (windows) and 4 + i (taps) become the positions of x along spatial axis i.
  Expr place(Expr x, std::size_t i) const {
    const std::size_t axis = 3 + i;
    const std::int64_t extent = x_[static_cast<int>(i) + 2], count = x.shape()[static_cast<int>(axis)];
    if (g_.dilation[i] > 1 && kernel(i) > 1) x = spread(x, axis + 1, g_.dilation[i]);
    if (count > 1) x = fitted(x, axis + 1, 0, g_.stride[i]);
    return fitted(merge_axes(x, axis), axis, -g_.before[i], extent);
  }

  /// Elements [0, extent) of an axis moved by `shift`: cut, or zeros.
  Expr fitted(const Expr& x, std::size_t axis, std::int64_t shift, std::int64_t extent) const {
    const std::int64_t old = x.shape()[static_cast<int>(axis)];
    const std::int64_t low = std::clamp<std::int64_t>(-shift, 0, old), high = std::clamp<std::int64_t>(extent - shift, low, old);
    const Expr part = slice_axis(x, axis, low, high);
    const std::int64_t before = std::clamp<std::int64_t>(low + shift, 0, extent), after = extent - before - (high - low);
    if (before == 0 && after == 0) return part;
    Ints pads(static_cast<std::size_t>(x.shape().rank()), 0), ends = pads;
    pads[axis] = before;
    ends[axis] = after;
    return apply("pad", {part}, {{"before", pads}, {"after", ends}, {"value", 0.0}});
  }
  /// [N, groups, Ci, rows of the grids of the given remainders..., extents of the other axes]
  Expr interleave(Ints remainders) {
    const std::size_t i = remainders.size();
    if (i == g_.rank()) return grid(remainders);
    std::vector<Expr> parts;
    for (std::int64_t r = 0; r < g_.stride[i]; ++r) {
      remainders.push_back(r);
      parts.push_back(interleave(remainders));
      remainders.pop_back();
    }
    return interleaved(c_, parts, 3 + i, x_[static_cast<int>(i) + 2]);
  }

  Expr grid(const Ints& remainders) {
    const Shape w = w_.shape();
    Ints dilation, before, flipped;
    Expr taps = w_;
    bool seen = true;
    for (std::size_t i = 0; i < g_.rank(); ++i) {
      const std::size_t axis = 3 + i;
      const std::int64_t kernel = w[static_cast<int>(axis)];
      const Phase phase = phase_of(remainders[i], kernel, g_.stride[i], g_.dilation[i], g_.before[i]);
      seen = seen && phase.taps > 0;
      if (!seen) break;
      if (phase.taps != kernel) taps = slice_axis(taps, axis, phase.first, kernel, phase.step);
      if (phase.taps > 1) flipped.push_back(static_cast<std::int64_t>(axis));
      dilation.push_back(phase.dilation);
      before.push_back(phase.dilation * (phase.taps - 1) - phase.shift);
    }
    if (!seen) {
      const Shape y = y_.shape();
      return expand_to({c_, c_.scalar(0, y_.value.dtype())}, with_spatial({y[0], y[1], w[1]}, rows_));
    }
    if (!flipped.empty()) taps = apply("flip", {taps}, {{"axes", flipped}});
    return conv_product(taps, y_, Ints(g_.rank(), 1), dilation, before, rows_);
  }

  const BuildContext& c_;
  const Geometry& g_;
  Shape x_;
  Expr y_, w_;
  Ints rows_;  ///< positions of x per remainder, the last ones perhaps outside
};

// ---- the products

Contraction conv_contraction(const Node& node, std::span<const TensorType> inputs) {
  using Role = Contraction::Role;
  const Ints &stride = node.attrs.get<Ints>("stride"), &dilation = node.attrs.get<Ints>("dilation"), &before = node.attrs.get<Ints>("before");
  const std::size_t n = stride.size(), k = 3 + n;  // result [N, G, Co, out...]; k axes: Ci, kernel...
  Contraction c;
  c.roles = {Role::Column, Role::Batch, Role::Row};
  c.roles.resize(k, Role::Column);
  c.k = {inputs[0].shape[2]};
  c.operands[0] = {{.terms = {{1}}}, {.terms = {{2}}}, {.terms = {{k}}}};
  c.operands[1] = {{.terms = {{0}}}, {.terms = {{1}}}, {.terms = {{k}}}};
  for (std::size_t i = 0; i < n; ++i) {
    c.k.push_back(inputs[0].shape[3 + static_cast<int>(i)]);
    c.operands[0].push_back({.terms = {{k + 1 + i}}});
    c.operands[1].push_back({.terms = {{3 + i, stride[i]}, {k + 1 + i, dilation[i]}}, .offset = -before[i]});
  }
  return c;
}

Contraction weight_contraction(const Node& node, std::span<const TensorType> inputs) {
  using Role = Contraction::Role;
  const Ints &stride = node.attrs.get<Ints>("stride"), &dilation = node.attrs.get<Ints>("dilation"), &before = node.attrs.get<Ints>("before");
  const std::size_t n = stride.size(), k = 3 + n;  // result [G, Co, Ci, kernel...]; k axes: N, out...
  Contraction c;
  c.roles = {Role::Batch, Role::Row};
  c.roles.resize(k, Role::Column);
  c.k = {inputs[0].shape[0]};
  c.operands[0] = {{.terms = {{k}}}, {.terms = {{0}}}, {.terms = {{1}}}};
  c.operands[1] = {{.terms = {{k}}}, {.terms = {{0}}}, {.terms = {{2}}}};
  for (std::size_t i = 0; i < n; ++i) {
    c.k.push_back(inputs[0].shape[3 + static_cast<int>(i)]);
    c.operands[0].push_back({.terms = {{k + 1 + i}}});
    c.operands[1].push_back({.terms = {{k + 1 + i, stride[i]}, {3 + i, dilation[i]}}, .offset = -before[i]});
  }
  return c;
}

/// result[r] = sum over k, in double, straight from the contraction.
void eval_product(const EvalContext& ctx) {
  const TensorType inputs[] = {ctx.inputs[0]->type, ctx.inputs[1]->type};
  const Contraction c = ctx.node.op->contraction(ctx.node, inputs);
  const Shape& result = ctx.results[0].type.shape;
  Ints dims(result.begin(), result.end());
  dims.insert(dims.end(), c.k.begin(), c.k.end());
  const auto depth = static_cast<std::size_t>(Shape(c.k).elements());
  std::vector<std::int64_t> at(dims.size(), 0);
  const auto element = [&](std::size_t side) {
    const Strides strides = dense_strides(inputs[side].shape);
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < c.operands[side].size(); ++axis) {
      std::int64_t index = c.operands[side][axis].offset;
      for (const auto& [a, coefficient] : c.operands[side][axis].terms) index += coefficient * at[a];
      if (index < 0 || index >= inputs[side].shape[static_cast<int>(axis)]) return 0.0;
      offset += index * strides[axis];
    }
    return ctx.inputs[side]->data[static_cast<std::size_t>(offset)];
  };
  for (double& out : ctx.results[0].data) {
    for (std::size_t k = 0; k < depth; ++k) {
      out += element(0) * element(1);
      for (std::size_t d = at.size(); d-- > 0 && ++at[d] == dims[d];) at[d] = 0;
    }
  }
}

OpDef product_record(std::string name, std::string doc, Contraction (*contraction)(const Node&, std::span<const TensorType>),
                     std::vector<TensorType> (*infer)(const InferContext&)) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Product;
  op.min_inputs = op.max_inputs = 2;
  op.infer = infer;
  op.eval = eval_product;
  op.gradient = GradientKind::NotDifferentiable;  // expansions are made after differentiation
  op.lower = lower_matmul;
  op.contraction = contraction;
  return op;
}

double scaled_tolerance(std::int64_t terms) { return std::sqrt(static_cast<double>(std::max<std::int64_t>(terms, 1))); }

OpCase product_case(std::vector<TensorType> inputs, Attrs attrs, std::int64_t terms) {
  OpCase c{.inputs = std::move(inputs), .attrs = std::move(attrs), .ranges = {}, .values = {}};
  c.rtol *= scaled_tolerance(terms);
  c.atol *= 2 * scaled_tolerance(terms);
  c.gradient = false;
  return c;
}

bool equal_floats(const InferContext& ctx) {
  return is_float(ctx.inputs[0].dtype) && ctx.inputs[0].dtype == ctx.inputs[1].dtype;
}

/// Attrs of the products: one entry per spatial axis, and positions that kernels can compute in 32 bits.
void check_steps(const InferContext& ctx, std::size_t rank) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  for (const auto& [name, lowest] : {std::pair{"stride", std::int64_t{1}}, {"dilation", 1}, {"before", -most}}) {
    const Ints& list = ctx.attrs.get<Ints>(name);
    if (list.size() != rank || std::ranges::any_of(list, [&](std::int64_t v) { return v < lowest || v > most; })) {
      ctx.fail(ErrorCode::InvalidArgument,
               formatted("{} must have {} entries from {} to {}, one for each spatial axis", name, rank, lowest, most));
    }
  }
}

OpDef conv_product_op() {
  OpDef op = product_record(
      "conv_product", "w [G, Co, Ci, kernel] with x [N, G, Ci, extents] -> [N, G, Co, attr out]; what conv expands to.", conv_contraction,
      [](const InferContext& ctx) -> std::vector<TensorType> {
        const Shape &w = ctx.inputs[0].shape, &x = ctx.inputs[1].shape;
        const Ints& out = ctx.attrs.get<Ints>("out");
        if (w.rank() != x.rank() || w.rank() != 3 + static_cast<int>(out.size()) || w[0] != x[1] || w[2] != x[2] ||
            !equal_floats(ctx)) {
          ctx.fail(ErrorCode::ShapeMismatch,
                   formatted("{} and {} do not fit", ctx.inputs[0].to_string(), ctx.inputs[1].to_string()));
        }
        check_steps(ctx, out.size());
        return {{ctx.inputs[1].dtype, guarded(ctx, [&] { return with_spatial({x[0], x[1], w[1]}, out); })}};
      });
  op.cases = [] {
    return std::vector<OpCase>{
        product_case({f32_type({2, 3, 4, 3}), f32_type({2, 2, 4, 9})}, {{"stride", Ints{2}}, {"dilation", Ints{1}}, {"before", Ints{1}}, {"out", Ints{5}}}, 12),
        product_case({f32_type({1, 5, 3, 2, 3}), f32_type({2, 1, 3, 6, 5})},
                     {{"stride", Ints{1, 2}}, {"dilation", Ints{2, 1}}, {"before", Ints{-1, 1}}, {"out", Ints{3, 3}}}, 18),
    };
  };
  return op;
}

OpDef conv_weight_product_op() {
  OpDef op = product_record(
      "conv_weight_product", "dy [N, G, Co, windows] with x [N, G, Ci, extents] -> [G, Co, Ci, attr kernel].", weight_contraction,
      [](const InferContext& ctx) -> std::vector<TensorType> {
        const Shape &y = ctx.inputs[0].shape, &x = ctx.inputs[1].shape;
        const Ints& kernel = ctx.attrs.get<Ints>("kernel");
        if (y.rank() != x.rank() || y.rank() != 3 + static_cast<int>(kernel.size()) || y[0] != x[0] || y[1] != x[1] ||
            !equal_floats(ctx)) {
          ctx.fail(ErrorCode::ShapeMismatch,
                   formatted("{} and {} do not fit", ctx.inputs[0].to_string(), ctx.inputs[1].to_string()));
        }
        check_steps(ctx, kernel.size());
        return {{ctx.inputs[1].dtype, guarded(ctx, [&] { return with_spatial({x[1], y[2], x[2]}, kernel); })}};
      });
  op.cases = [] {
    return std::vector<OpCase>{
        product_case({f32_type({2, 2, 3, 5}), f32_type({2, 2, 4, 9})}, {{"stride", Ints{2}}, {"dilation", Ints{1}}, {"before", Ints{1}}, {"kernel", Ints{3}}}, 10),
        product_case({f32_type({2, 1, 3, 4, 4}), f32_type({2, 1, 5, 6, 8})},
                     {{"stride", Ints{1, 2}}, {"dilation", Ints{1, 1}}, {"before", Ints{0, 1}}, {"kernel", Ints{3, 3}}}, 32),
    };
  };
  return op;
}

// ---- the composites

struct ConvCase {
  Shape x, w;
  Ints stride, dilation, before, after;
  std::int64_t groups = 1;
};

/// Cases of all three: shapes of x and w.
std::vector<ConvCase> conv_cases() {
  return {
      {{2, 3, 7}, {4, 3, 3}, {1}, {1}, {1}, {1}},
      {{1, 5, 12}, {3, 5, 3}, {2}, {1}, {1}, {1}},
      {{2, 4, 11}, {6, 2, 2}, {3}, {2}, {0}, {1}, 2},
      {{1, 3, 5, 5}, {2, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 8, 6, 6}, {16, 8, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},   // a plain product
      {{2, 5, 7, 6}, {4, 5, 1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},    // remainders that no tap sees
      {{2, 3, 15, 13}, {5, 3, 7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},  // K = 147
      {{1, 4, 8, 9}, {3, 4, 3, 2}, {2, 1}, {1, 2}, {0, 2}, {1, 0}},    // asymmetric
      {{2, 6, 5, 5}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 6},  // depthwise
      {{1, 4, 6, 7}, {8, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 1}, 4},  // depthwise, two outputs for each channel
      {{2, 6, 5, 4}, {9, 2, 3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}, 3},
      {{1, 1, 4, 4}, {1, 1, 4, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {{1, 2, 9, 9}, {3, 2, 2, 2}, {3, 3}, {3, 2}, {1, 0}, {2, 1}},
      {{2, 3, 8, 12}, {5, 3, 2, 4}, {2, 4}, {1, 1}, {0, 0}, {0, 0}},  // patches
      {{1, 2, 11, 7}, {3, 2, 2, 3}, {5, 4}, {2, 1}, {1, 2}, {0, 1}},  // windows apart, padding, dilation
      {{1, 2, 9}, {3, 2, 2}, {1000}, {3}, {2}, {1}},                  // one window
      {{1, 1, 1}, {1, 1, 3}, {3}, {1}, {4}, {0}},                     // that sees padding alone
      {{1, 2, 3, 3}, {2, 2, 1, 1}, {1, 1}, {1, 1}, {2, 1}, {1, 2}},  // more padding than the kernel needs
      {{0, 2, 4, 4}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 17, 14, 14}, {19, 17, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{3, 16, 7, 7}, {20, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
  };
}

Attrs attrs_of(const ConvCase& c) {
  return {{"stride", c.stride}, {"dilation", c.dilation}, {"before", c.before}, {"after", c.after}, {"groups", c.groups}};
}

Shape output_of(const ConvCase& c) {
  Ints out;
  for (std::size_t i = 0; i < c.stride.size(); ++i) {
    const int d = static_cast<int>(i) + 2;
    out.push_back((c.before[i] + c.x[d] + c.after[i] - c.dilation[i] * (c.w[d] - 1) - 1) / c.stride[i] + 1);
  }
  return with_spatial({c.x[0], c.w[0]}, out);
}

OpDef record(std::string name, std::string doc) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Composite;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  return op;
}

Attrs with(Attrs attrs, std::string name, const Shape& extents) {
  attrs.set(std::move(name), spatial(extents));
  return attrs;
}

OpDef conv_op() {
  OpDef op = record("conv",
                    "x [N, C, extents] with w [Co, C / groups, kernel] -> [N, Co, windows], one or two spatial axes; attrs stride, dilation, "
                    "before, after, groups.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Geometry g = check(ctx);
    const Shape &x = ctx.inputs[0].shape, &w = ctx.inputs[1].shape;
    check_channels(ctx, g, x[1], w[0], w[1]);
    return {{ctx.inputs[0].dtype, with_spatial({x[0], w[0]}, window_counts(ctx, g, spatial(x), spatial(w)))}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor &x = *ctx.inputs[0], &w = *ctx.inputs[1];
    auto& y = ctx.results[0];
    for_each_product(Geometry(ctx.node.attrs), x.type.shape, w.type.shape, y.type.shape,
                     [&](std::size_t i, std::size_t j, std::size_t k) { y.data[k] += x.data[i] * w.data[j]; });
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    return {expand_conv({c, in[0]}, {c, in[1]}, Geometry(c.like.attrs), c.like.results[0].shape).value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>, std::span<const Value> dy) -> std::vector<Value> {
    return {c.add("conv_input_gradient", {dy[0], in[1]}, with(c.like.attrs, "extents", in[0].shape())),
            c.add("conv_weight_gradient", {in[0], dy[0]}, with(c.like.attrs, "kernel", in[1].shape()))};
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const ConvCase& c : conv_cases()) {
      cases.push_back(product_case({f32_type(c.x), f32_type(c.w)}, attrs_of(c), c.w.elements() / std::max<std::int64_t>(c.w[0], 1)));
      cases.back().gradient = true;
    }
    return cases;
  };
  return op;
}

OpDef conv_input_gradient_op() {
  OpDef op = record("conv_input_gradient",
                    "d(x) of conv, from dy [N, Co, windows] and w [Co, C / groups, kernel]; attr extents: spatial extents of x. Also the "
                    "transposed convolution of dy.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Geometry g = check(ctx);
    const Shape &y = ctx.inputs[0].shape, &w = ctx.inputs[1].shape;
    const Ints& extents = ctx.attrs.get<Ints>("extents");
    if (extents.size() != g.rank()) ctx.fail(ErrorCode::InvalidArgument, "extents must have one entry per spatial axis");
    check_channels(ctx, g, w[1] * g.groups, y[1], w[1]);
    if (w[0] != y[1]) {
      ctx.fail(ErrorCode::ShapeMismatch, formatted("the weight has {} output channels, dy has {}", w[0], y[1]));
    }
    if (window_counts(ctx, g, extents, spatial(w)) != spatial(y)) {
      ctx.fail(ErrorCode::ShapeMismatch,
               formatted("dy {} is not what an input of extents {} gives", y.to_string(), Shape(extents).to_string()));
    }
    return {{ctx.inputs[0].dtype, with_spatial({y[0], w[1] * g.groups}, extents)}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor &y = *ctx.inputs[0], &w = *ctx.inputs[1];
    auto& x = ctx.results[0];
    for_each_product(Geometry(ctx.node.attrs), x.type.shape, w.type.shape, y.type.shape,
                     [&](std::size_t i, std::size_t j, std::size_t k) { x.data[i] += y.data[k] * w.data[j]; });
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    const Geometry g(c.like.attrs);
    return {InputGradient(c, {c, in[0]}, {c, in[1]}, g, c.like.results[0].shape).run().value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>, std::span<const Value> dx) -> std::vector<Value> {
    const Attrs conv = conv_attrs(Geometry(c.like.attrs));
    return {c.add("conv", {dx[0], in[1]}, conv), c.add("conv_weight_gradient", {dx[0], in[0]}, with(conv, "kernel", in[1].shape()))};
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const ConvCase& c : conv_cases()) {
      cases.push_back(product_case({f32_type(output_of(c)), f32_type(c.w)}, with(attrs_of(c), "extents", c.x), c.w.elements() / c.w[1]));
      cases.back().gradient = true;
    }
    return cases;
  };
  return op;
}

OpDef conv_weight_gradient_op() {
  OpDef op = record("conv_weight_gradient", "d(w) of conv, from x [N, C, extents] and dy [N, Co, windows]; attr kernel.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Geometry g = check(ctx);
    const Shape &x = ctx.inputs[0].shape, &y = ctx.inputs[1].shape;
    const Ints& kernel = ctx.attrs.get<Ints>("kernel");
    if (kernel.size() != g.rank()) ctx.fail(ErrorCode::InvalidArgument, "kernel must have one entry per spatial axis");
    check_channels(ctx, g, x[1], y[1], x[1] / g.groups);
    if (x[0] != y[0] || window_counts(ctx, g, spatial(x), kernel) != spatial(y)) {
      ctx.fail(ErrorCode::ShapeMismatch, formatted("dy {} is not what {} and a kernel of {} give", y.to_string(),
                                                   x.to_string(), Shape(kernel).to_string()));
    }
    return {{ctx.inputs[0].dtype, with_spatial({y[1], x[1] / g.groups}, kernel)}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor &x = *ctx.inputs[0], &y = *ctx.inputs[1];
    auto& w = ctx.results[0];
    for_each_product(Geometry(ctx.node.attrs), x.type.shape, w.type.shape, y.type.shape,
                     [&](std::size_t i, std::size_t j, std::size_t k) { w.data[j] += y.data[k] * x.data[i]; });
  };
  op.expand = [](const BuildContext& c, std::span<const Value> in) -> std::vector<Value> {
    return {expand_weight_gradient({c, in[0]}, {c, in[1]}, Geometry(c.like.attrs), c.like.results[0].shape).value};
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>, std::span<const Value> dw) -> std::vector<Value> {
    const Attrs conv = conv_attrs(Geometry(c.like.attrs));
    return {c.add("conv_input_gradient", {in[1], dw[0]}, with(conv, "extents", in[0].shape())), c.add("conv", {in[0], dw[0]}, conv)};
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const ConvCase& c : conv_cases()) {
      const Shape y = output_of(c);
      cases.push_back(product_case({f32_type(c.x), f32_type(y)}, with(attrs_of(c), "kernel", c.w), y.elements() / y[1]));
      cases.back().gradient = true;
    }
    return cases;
  };
  return op;
}

Attrs attrs_of(const ConvOptions& o, std::size_t n) {
  const auto all = [n](const Ints& values, std::int64_t otherwise) {
    return values.empty() ? Ints(n, otherwise) : values.size() == 1 ? Ints(n, values[0]) : values;
  };
  const Ints before = all(o.padding, 0);
  return {{"stride", all(o.stride, 1)},
          {"dilation", all(o.dilation, 1)},
          {"before", before},
          {"after", o.padding_after.empty() ? before : all(o.padding_after, 0)},
          {"groups", o.groups}};
}

Value with_bias(std::string_view op, const Value& y, const std::optional<Value>& bias, const Loc& line) {
  if (!bias) return y;
  if (!*bias || bias->shape() != Shape{y.shape()[1]}) {
    op_error(ErrorCode::ShapeMismatch, op,
             formatted("the bias must be [{}], one for each output channel, not {}", y.shape()[1],
                       *bias ? bias->type().to_string() : "empty"),
             line);
  }
  Ints dims(static_cast<std::size_t>(y.shape().rank()) - 1, 1);
  dims[0] = -1;
  return add(Operand(y, line), Operand(reshape(Operand(*bias, line), dims, line), line));
}

std::size_t spatial_rank(std::string_view op, const Operand& x) {
  const int rank = resolve_value(op, x).shape().rank();
  return static_cast<std::size_t>(std::max(rank - 2, 0));
}

}  // namespace

std::vector<OpDef> conv_ops() {
  return {conv_op(), conv_input_gradient_op(), conv_weight_gradient_op(), conv_product_op(), conv_weight_product_op()};
}

Value conv(Operand x, Operand w, const ConvOptions& options, std::optional<Value> bias) {
  if (!options.output_padding.empty())
    op_error(ErrorCode::InvalidArgument, "conv", "output_padding is an option of conv_transpose", x.line());
  return with_bias("conv", build("conv", {x, w}, attrs_of(options, spatial_rank("conv", x))), bias, x.line());
}

Value conv_transpose(Operand x, Operand w, const ConvOptions& options, std::optional<Value> bias) {
  const std::size_t n = spatial_rank("conv_transpose", x);
  Attrs attrs = attrs_of(options, n);
  const Shape xs = resolve_value("conv_transpose", x).shape(), ws = resolve_value("conv_transpose", w).shape();
  const Geometry g(attrs);
  if (n < 1 || n > 2 || ws.rank() != xs.rank() || g.stride.size() != n || g.dilation.size() != n || g.before.size() != n || g.after.size() != n ||
      (!options.output_padding.empty() && options.output_padding.size() != 1 && options.output_padding.size() != n)) {
    op_error(ErrorCode::ShapeMismatch, "conv_transpose",
             formatted("needs operands of equal rank 3 or 4 and options with one entry per spatial axis: {} and {}",
                       xs.to_string(), ws.to_string()),
             x.line());
  }
  Ints extents;
  for (std::size_t i = 0; i < n; ++i) {
    const int d = static_cast<int>(i) + 2;
    const std::int64_t more = options.output_padding.empty() ? 0 : options.output_padding[options.output_padding.size() == 1 ? 0 : i];
    if (more < 0 || (more > 0 && more >= g.stride[i])) {
      op_error(ErrorCode::InvalidArgument, "conv_transpose",
               formatted("output_padding {} of axis {} must be at least 0 and less than the stride {}", more, d,
                         g.stride[i]),
               x.line());
    }
    if (g.stride[i] < 1 || g.dilation[i] < 1 || g.before[i] < 0 || g.after[i] < 0 || xs[d] < 1) {
      op_error(ErrorCode::InvalidArgument, "conv_transpose",
               formatted("stride {} and dilation {} of axis {} must be at least 1, padding ({}, {}) at least 0, its "
                         "extent {} at least 1",
                         g.stride[i], g.dilation[i], d, g.before[i], g.after[i], xs[d]),
               x.line());
    }
    try {
      const char* what = "the extent of a transposed convolution";
      const std::int64_t reach = checked_add(checked_mul(xs[d] - 1, g.stride[i], what), checked_mul(g.dilation[i], ws[d] - 1, what), what);
      extents.push_back(checked_add(reach, more + 1, what) - checked_add(g.before[i], g.after[i], what));
    } catch (const Error& e) {
      op_error(e.code(), "conv_transpose", e.message(), x.line());
    }
    if (extents.back() < 1) {
      op_error(ErrorCode::ShapeMismatch, "conv_transpose",
               formatted("padding leaves nothing of axis {}: its extent would be {}", d, extents.back()), x.line());
    }
  }
  attrs.set("extents", extents);
  return with_bias("conv_transpose", build("conv_input_gradient", {x, w}, std::move(attrs)), bias, x.line());
}

}  // namespace aeshna
