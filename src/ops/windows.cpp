// Flips, and windows: the view on which convolutions and pooling are built. Movement ops: access maps, not kernels.

#include "base/checked.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

// ---- flip

OpDef flip_op() {
  OpDef op = movement_record("flip", "x with the order along attr axes reversed.", MovementKind::Flip);
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const Ints& axes = ctx.attrs.get<Ints>("axes");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] < (i == 0 ? 0 : axes[i - 1] + 1) || axes[i] >= ctx.inputs[0].shape.rank()) {
        ctx.fail(ErrorCode::InvalidArgument, formatted("axes must ascend within rank {}", ctx.inputs[0].shape.rank()));
      }
    }
    return {ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape& shape = ctx.inputs[0]->type.shape;
    Strides strides = dense_strides(shape);
    std::int64_t start = 0;
    for (const std::int64_t axis : ctx.node.attrs.get<Ints>("axes")) {
      std::int64_t& stride = strides[static_cast<std::size_t>(axis)];
      start += stride * (shape[static_cast<int>(axis)] - 1);
      stride = -stride;
    }
    double* out = ctx.results[0].data.data();
    walk<1>(shape, {strides}, [&](const auto& at) { *out++ = ctx.inputs[0]->data[static_cast<std::size_t>(at[0])]; }, {start});
  };
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value>, std::span<const Value> dy) {
    return std::vector<Value>{c.add("flip", {dy[0]}, c.like.attrs)};
  };
  op.cases = [] {
    const auto one = [](Shape shape, Ints axes) {
      return OpCase{.inputs = {f32_type(shape)}, .attrs = {{"axes", std::move(axes)}}, .ranges = {}, .values = {}};
    };
    return std::vector<OpCase>{one({5}, {0}), one({3, 4, 5}, {1}), one({3, 4, 5}, {0, 2}), one({4, 8}, {1}), one({0, 3}, {0}), one({1, 7}, {0, 1}),
                               one({2, 3}, {})};
  };
  return op;
}

// ---- windows

/// Attrs of windows: one entry per windowed axis, which are the last ones.
struct Geometry {
  Ints kernel, stride, dilation, before, after;
  std::size_t count() const { return kernel.size(); }
  explicit Geometry(const Attrs& attrs)
      : kernel(attrs.get<Ints>("kernel")),
        stride(attrs.get<Ints>("stride")),
        dilation(attrs.get<Ints>("dilation")),
        before(attrs.get<Ints>("before")),
        after(attrs.get<Ints>("after")) {}
};

/// What x[..., lead] is without its last `count` axes.
Ints leading(const Shape& shape, std::size_t count) {
  return {shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(count)};
}

std::vector<TensorType> infer_windows(const InferContext& ctx) {
  const Geometry g(ctx.attrs);
  const Shape& x = ctx.inputs[0].shape;
  const std::size_t n = g.count();
  if (n == 0 || g.stride.size() != n || g.dilation.size() != n || g.before.size() != n || g.after.size() != n) {
    ctx.fail(ErrorCode::InvalidArgument, "kernel, stride, dilation, before and after must have one entry per windowed axis");
  }
  if (static_cast<std::size_t>(x.rank()) < n) {
    ctx.fail(ErrorCode::ShapeMismatch, formatted("windows over {} axes of a tensor of rank {}", n, x.rank()));
  }
  const double value = ctx.attrs.get<double>("value");
  if (!is_float(ctx.inputs[0].dtype) && value != 0) {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("padding of {} with {}; only 0 is possible", dtype_name(ctx.inputs[0].dtype), value));
  }
  Ints dims = leading(x, n);
  for (std::size_t i = 0; i < n; ++i) {
    dims.push_back(window_count(ctx, static_cast<int>(dims.size()), x[static_cast<int>(dims.size())], g.kernel[i], g.stride[i], g.dilation[i],
                                g.before[i], g.after[i]));
  }
  dims.insert(dims.end(), g.kernel.begin(), g.kernel.end());
  return {{ctx.inputs[0].dtype, Shape(dims)}};
}

void eval_windows(const EvalContext& ctx) {
  const Geometry g(ctx.node.attrs);
  const HostTensor& x = *ctx.inputs[0];
  HostTensor& y = ctx.results[0];
  const std::size_t n = g.count(), lead = static_cast<std::size_t>(x.type.shape.rank()) - n;
  const Strides x_strides = dense_strides(x.type.shape);
  const double fill = ctx.node.attrs.get<double>("value");
  const Shape& shape = y.type.shape;
  std::array<std::int64_t, Shape::kMaxRank> at{};
  for (double& out : y.data) {
    std::int64_t offset = 0;
    bool inside = true;
    for (std::size_t d = 0; d < lead; ++d) offset += at[d] * x_strides[d];
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t index = at[lead + i] * g.stride[i] + at[lead + n + i] * g.dilation[i] - g.before[i];
      inside = inside && index >= 0 && index < x.type.shape[static_cast<int>(lead + i)];
      offset += index * x_strides[lead + i];
    }
    out = inside ? x.data[static_cast<std::size_t>(offset)] : fill;
    for (int d = shape.rank() - 1; d >= 0 && ++at[static_cast<std::size_t>(d)] == shape[d]; --d) at[static_cast<std::size_t>(d)] = 0;
  }
}

/// The adjoint: dx[h] = sum of dy at the (window, position) pairs that see h. Positions of x are taken by their remainder r modulo
/// the stride, h = stride * q + r: a position k of a window sees such an h only if stride divides r + before - k * dilation, and then
/// from window q + (r + before - k * dilation) / stride. So dx is an interleaving of sums of shifted slices; nothing is scattered.
class Fold {
 public:
  Fold(const BuildContext& c, const Expr& dy, const Shape& x)
      : c_(c), g_(c.like.attrs), dy_(dy), x_(x), lead_(leading(x, g_.count())) {
    for (std::size_t i = 0; i < g_.count(); ++i) rows_.push_back(ceil_div(extent(i), g_.stride[i]));
  }
  Expr run() { return interleave({}); }

 private:
  const BuildContext& c_;
  Geometry g_;
  Expr dy_;
  Shape x_;
  Ints lead_, rows_;
  Ints positions_, shifts_;  ///< in a window, of the term that is being built

  std::int64_t extent(std::size_t i) const { return x_[static_cast<int>(lead_.size() + i)]; }
  std::int64_t windows(std::size_t i) const { return dy_.shape()[static_cast<int>(lead_.size() + i)]; }

  /// Given the remainders of the first axes: [lead..., rows of those, extents of the others].
  Expr interleave(Ints remainders) {
    const std::size_t i = remainders.size();
    if (i == g_.count()) return sum(remainders);
    std::vector<Expr> parts;
    for (std::int64_t r = 0; r < g_.stride[i]; ++r) {
      remainders.push_back(r);
      parts.push_back(interleave(remainders));
      remainders.pop_back();
    }
    return interleaved(c_, parts, lead_.size() + i, extent(i));
  }

  /// Rows q of the given remainders: [lead..., rows...].
  Expr sum(const Ints& remainders) {
    Expr total;
    add_positions(remainders, total);
    if (total.context != nullptr) return total;
    Ints dims = lead_;
    dims.insert(dims.end(), rows_.begin(), rows_.end());
    return expand_to({c_, c_.scalar(0, dy_.value.dtype())}, Shape(dims));
  }

  void add_positions(const Ints& remainders, Expr& total) {
    const std::size_t i = positions_.size();
    if (i == g_.count()) {
      const Expr one = term();
      total = total.context == nullptr ? one : total + one;
      return;
    }
    for (std::int64_t k = 0; k < g_.kernel[i]; ++k) {
      const std::int64_t steps = remainders[i] + g_.before[i] - k * g_.dilation[i];
      if (steps % g_.stride[i] != 0) continue;
      const std::int64_t shift = steps / g_.stride[i];
      if (std::min(windows(i), rows_[i] + shift) <= std::max<std::int64_t>(shift, 0)) continue;  // sees nothing
      positions_.push_back(k);
      shifts_.push_back(shift);
      add_positions(remainders, total);
      positions_.pop_back();
      shifts_.pop_back();
    }
  }

  /// dy at the current positions, row q taken from window q + shift; zero where there is none.
  Expr term() const {
    Expr part = dy_;
    const std::size_t n = g_.count();
    for (std::size_t i = 0; i < n; ++i) part = slice_axis(part, lead_.size() + n + i, positions_[i], positions_[i] + 1);
    Ints dims = lead_;
    for (std::size_t i = 0; i < n; ++i) dims.push_back(windows(i));
    part = reshape_to(part, Shape(dims));
    Ints before(dims.size()), after(dims.size());
    bool padded = false;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t axis = lead_.size() + i;
      const std::int64_t low = std::max<std::int64_t>(shifts_[i], 0), high = std::min(windows(i), rows_[i] + shifts_[i]);
      part = slice_axis(part, axis, low, high);
      before[axis] = low - shifts_[i];
      after[axis] = rows_[i] + shifts_[i] - high;
      padded = padded || before[axis] != 0 || after[axis] != 0;
    }
    return padded ? apply("pad", {part}, {{"before", before}, {"after", after}, {"value", 0.0}}) : part;
  }
};

OpDef windows_op() {
  OpDef op = movement_record("windows",
                      "[..., extents] -> [..., windows, kernel]: the windows of the last axes, every attr stride positions, of elements "
                      "attr dilation apart, of x padded with attr value (attrs before, after).",
                      MovementKind::Windows);
  op.infer = infer_windows;
  op.eval = eval_windows;
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>, std::span<const Value> dy) {
    return std::vector<Value>{Fold(c, {c, dy[0]}, in[0].shape()).run().value};
  };
  op.cases = [] {
    const auto one = [](Shape shape, Ints kernel, Ints stride, Ints dilation, Ints before, Ints after) {
      return OpCase{.inputs = {f32_type(shape)},
                    .attrs = {{"kernel", std::move(kernel)},
                              {"stride", std::move(stride)},
                              {"dilation", std::move(dilation)},
                              {"before", std::move(before)},
                              {"after", std::move(after)},
                              {"value", 0.0}},
                    .ranges = {},
                    .values = {}};
    };
    return std::vector<OpCase>{
        one({7}, {3}, {1}, {1}, {0}, {0}),
        one({2, 7}, {3}, {2}, {1}, {1}, {1}),
        one({2, 9}, {2}, {3}, {2}, {1}, {0}),
        one({8}, {2}, {2}, {1}, {0}, {0}),
        one({5}, {1}, {2}, {1}, {0}, {0}),
        one({3, 5, 6}, {3, 2}, {1, 1}, {1, 1}, {1, 0}, {1, 1}),
        one({2, 6, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}),
        one({2, 7, 5}, {2, 3}, {2, 1}, {1, 2}, {0, 2}, {1, 2}),
        one({1, 4, 4}, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}),
        one({0, 4, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}),
        one({2, 11, 3}, {3, 1}, {4, 2}, {1, 1}, {3, 0}, {2, 0}),
    };
  };
  return op;
}

}  // namespace

std::int64_t window_count(const InferContext& ctx, int axis, std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                          std::int64_t dilation, std::int64_t before, std::int64_t after) {
  if (kernel < 1 || stride < 1 || dilation < 1) {
    ctx.fail(ErrorCode::InvalidArgument, formatted("kernel {}, stride {} and dilation {} of axis {} must be at least 1",
                                                   kernel, stride, dilation, axis));
  }
  if (before < 0 || after < 0) {
    ctx.fail(ErrorCode::InvalidArgument, formatted("negative padding ({}, {}) of axis {}", before, after, axis));
  }
  const auto [padded, span] = guarded(ctx, [&] {
    const char* what = "the extent of a window";
    return std::pair(checked_add(checked_add(extent, before, what), after, what),
                     checked_add(checked_mul(dilation, kernel - 1, what), std::int64_t{1}, what));
  });
  if (padded > std::numeric_limits<std::int32_t>::max()) {
    ctx.fail(ErrorCode::LimitExceeded,
             formatted("axis {} has {} elements with its padding; positions of windows are 32-bit", axis, padded));
  }
  if (span > padded) {
    ctx.fail(
        ErrorCode::ShapeMismatch,
        formatted(
            "a kernel of {} with dilation {} spans {} elements of axis {}, whose padded extent is {} ({} + {} + {})",
            kernel, dilation, span, axis, padded, before, extent, after));
  }
  return (padded - span) / stride + 1;
}

std::vector<OpDef> window_ops() { return {flip_op(), windows_op()}; }

Value flip(Operand x, const Axes& axes) {
  return build("flip", {x}, {{"axes", resolve_axes("flip", axes, resolve_value("flip", x).shape().rank(), x.line())}});
}

Value windows(Operand x, const WindowOptions& options) {
  const std::size_t n = options.kernel.size();
  const auto or_all = [n](const Ints& values, std::int64_t otherwise) { return values.empty() ? Ints(n, otherwise) : values; };
  return build("windows", {x},
               {{"kernel", options.kernel},
                {"stride", or_all(options.stride, 1)},
                {"dilation", or_all(options.dilation, 1)},
                {"before", or_all(options.before, 0)},
                {"after", or_all(options.after, 0)},
                {"value", options.value}});
}

}  // namespace aeshna
