// Scans and orders. cumsum is a composite: a row that one workgroup should not walk alone is cut into blocks (block_sums), the
// sums of the blocks are summed up, and each block is scanned from its start value (scan).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"
#include "ops/order.h"

namespace aeshna {

int infer_axis(const InferContext& ctx) {
  const Shape& x = ctx.inputs[0].shape;
  const std::int64_t axis = ctx.attrs.get<std::int64_t>("axis");
  if (axis < 0 || axis >= x.rank())
    ctx.fail(ErrorCode::InvalidArgument, formatted("axis {} is out of range for rank {}", axis, x.rank()));
  return static_cast<int>(axis);
}

void need_number(const InferContext& ctx, const TensorType& x) {
  if (!is_float(x.dtype) && x.dtype != DType::i32 && x.dtype != DType::u32)
    ctx.fail(ErrorCode::DTypeMismatch,
             formatted("is defined for floats, i32 and u32, not for {}", dtype_name(x.dtype)));
}

namespace {

using Ints = std::vector<std::int64_t>;

// ---- running sums

std::int64_t infer_block(const InferContext& ctx, bool may_be_whole) {
  const std::int64_t block = ctx.attrs.get<std::int64_t>("block");
  if (block < (may_be_whole ? 0 : 1) || block > UINT32_MAX)
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr block must be a number of elements, not {}", block));
  return block;
}

Shape block_shape(const Shape& x, int axis, std::int64_t block) { return x.with(axis, ceil_div(x[axis], block)); }

/// y = running sums of x along the axis within each block (0: the axis is one), from `offsets` if given.
void eval_scan(const HostTensor& x, const HostTensor* offsets, HostTensor& y, const Attrs& attrs, std::int64_t block) {
  const AxisSplit split = split_axis(x.type.shape, attrs.get<std::int64_t>("axis"));
  const bool exclusive = attrs.get<bool>("exclusive"), reverse = attrs.get<bool>("reverse");
  if (block == 0) block = std::max<std::int64_t>(split.extent, 1);
  const std::int64_t blocks = ceil_div(split.extent, block);
  for (std::int64_t o = 0; o < split.outer; ++o) {
    for (std::int64_t i = 0; i < split.inner; ++i) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * block, end = std::min(begin + block, split.extent);
        double sum = offsets != nullptr ? offsets->data[static_cast<std::size_t>((o * blocks + b) * split.inner + i)] : 0;
        for (std::int64_t p = begin; p < end; ++p) {
          const std::int64_t along = reverse ? begin + end - 1 - p : p;
          const auto at = static_cast<std::size_t>((o * split.extent + along) * split.inner + i);
          const double before = sum;
          sum += x.data[at];
          y.data[at] = wrap_integer(y.type.dtype, exclusive ? before : sum);
        }
      }
    }
  }
}

Value add_scan(const BuildContext& c, std::vector<Value> inputs, std::int64_t axis, bool exclusive, bool reverse,
               std::int64_t block) {
  return c.add("scan", std::move(inputs), {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}, {"block", block}});
}

/// Positions that one item of a scan walks: 0 for the whole axis, less where there are too few rows to fill a device. From the
/// shape alone, so that sums are the same on every device.
std::int64_t choose_block(const AxisSplit& split) {
  const std::int64_t lines = split.outer * split.inner;
  if (split.inner >= 8) {  // a thread per line
    const std::int64_t wanted = 32768 / std::max<std::int64_t>(lines, 1);
    if (split.extent <= 512 || wanted < 2) return 0;
    return std::max<std::int64_t>(64, ceil_div(split.extent, std::min<std::int64_t>(wanted, 512)));
  }
  return split.extent <= 16384 || lines >= 512 ? 0 : 4096;
}

std::vector<Value> expand_cumsum(const BuildContext& c, std::span<const Value> in) {
  const std::int64_t axis = c.like.attrs.get<std::int64_t>("axis");
  const bool exclusive = c.like.attrs.get<bool>("exclusive"), reverse = c.like.attrs.get<bool>("reverse");
  const std::int64_t block = choose_block(split_axis(in[0].shape(), axis));
  if (block == 0) return {add_scan(c, {in[0]}, axis, exclusive, reverse, 0)};
  const Value sums = c.add("block_sums", {in[0]}, {{"axis", axis}, {"block", block}});
  const Value starts = c.add("cumsum", {sums}, {{"axis", axis}, {"exclusive", true}, {"reverse", reverse}});
  return {add_scan(c, {in[0], starts}, axis, exclusive, reverse, block)};
}

OpCase scan_case(std::vector<TensorType> inputs, std::int64_t axis, std::int64_t length, Attrs more) {
  OpCase c{.inputs = std::move(inputs), .attrs = std::move(more), .ranges = {}, .values = {}};
  c.attrs.set("axis", axis);
  const bool is_float = c.inputs[0].dtype == DType::f32;
  if (is_float) c.atol *= std::sqrt(std::max(1.0, static_cast<double>(length)));
  if (!is_float) c.ranges.assign(c.inputs.size(), {0, 1000});
  c.gradient = is_float;
  return c;
}

OpDef cumsum_op() {
  OpDef op;
  op.name = "cumsum";
  op.doc = "Running sums along attr axis; exclusive: without the element itself; reverse: from the end.";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_number(ctx, ctx.inputs[0]);
    infer_axis(ctx);
    ctx.attrs.get<bool>("exclusive");
    ctx.attrs.get<bool>("reverse");
    return {ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) { eval_scan(*ctx.inputs[0], nullptr, ctx.results[0], ctx.node.attrs, 0); };
  op.expand = expand_cumsum;
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    Attrs attrs = c.like.attrs;
    attrs.set("reverse", !attrs.get<bool>("reverse"));
    return {c.add("cumsum", {dy[0]}, std::move(attrs))};
  };
  op.cases = [] {
    const auto one = [](Shape shape, std::int64_t axis, bool exclusive, bool reverse, DType dtype = DType::f32) {
      return scan_case({{dtype, shape}}, axis, shape[static_cast<int>(axis)],
                       {{"exclusive", exclusive}, {"reverse", reverse}});
    };
    std::vector<OpCase> cases;
    for (const bool exclusive : {false, true}) {
      for (const bool reverse : {false, true}) {
        cases.push_back(one({5, 7}, 1, exclusive, reverse));
        cases.push_back(one({3, 260}, 1, exclusive, reverse));
      }
    }
    for (const OpCase& c : {one({3, 4, 5}, 1, false, false), one({2, 13, 17}, 1, true, true), one({1}, 0, false, false),
                            one({0, 3}, 1, false, false), one({3, 0}, 1, false, false), one({2, 1031}, 1, false, false),
                            one({2, 2304}, 1, false, true), one({97, 3}, 0, false, false),
                            one({17387}, 0, true, false),  // blocks of rows
                            one({2, 600, 9}, 1, false, true),  // blocks of columns
                            one({2, 75}, 1, false, false, DType::i32), one({40}, 0, true, true, DType::u32)}) {
      cases.push_back(c);
    }
    return cases;
  };
  return op;
}

OpDef scan_op() {
  OpDef op;
  op.name = "scan";
  op.doc =
      "cumsum within blocks of attr block elements (0: one block), each from its own start value if operand 2 (x with the "
      "axis of one element per block) is given.";
  op.kind = OpKind::Kernel;
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.lower = lower_scan;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_number(ctx, ctx.inputs[0]);
    const int axis = infer_axis(ctx);
    const std::int64_t block = infer_block(ctx, ctx.inputs.size() == 1);
    ctx.attrs.get<bool>("exclusive");
    ctx.attrs.get<bool>("reverse");
    if (ctx.inputs.size() > 1) {
      const TensorType starts{ctx.inputs[0].dtype, block_shape(ctx.inputs[0].shape, axis, block)};
      if (ctx.inputs[1] != starts)
        ctx.fail(ErrorCode::ShapeMismatch,
                 formatted("the start values must be {}, not {}", starts.to_string(), ctx.inputs[1].to_string()));
    }
    return {ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) {
    eval_scan(*ctx.inputs[0], ctx.inputs.size() > 1 ? ctx.inputs[1] : nullptr, ctx.results[0], ctx.node.attrs,
              ctx.node.attrs.get<std::int64_t>("block"));
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    const Attrs& attrs = c.like.attrs;
    const std::int64_t axis = attrs.get<std::int64_t>("axis"), block = attrs.get<std::int64_t>("block");
    std::vector<Value> result = {
        add_scan(c, {dy[0]}, axis, attrs.get<bool>("exclusive"), !attrs.get<bool>("reverse"), block)};
    if (in.size() > 1) result.push_back(c.add("block_sums", {dy[0]}, {{"axis", axis}, {"block", block}}));
    return result;
  };
  op.cases = [] {
    const auto one = [](Shape shape, int axis, std::int64_t block, bool starts, bool exclusive, bool reverse) {
      std::vector<TensorType> inputs = {f32_type(shape)};
      if (starts) inputs.push_back(f32_type(block_shape(shape, axis, block)));
      return scan_case(std::move(inputs), axis, block == 0 ? shape[axis] : block,
                       {{"exclusive", exclusive}, {"reverse", reverse}, {"block", block}});
    };
    return std::vector<OpCase>{one({3, 7}, 1, 0, false, false, false),  one({3, 7}, 1, 3, true, false, true),
                               one({3, 8}, 1, 4, true, true, true),     one({2, 11, 9}, 1, 4, true, false, true),
                               one({2, 11, 2}, 1, 4, true, true, false), one({2, 11, 2}, 1, 5, false, false, false),
                               one({2, 0}, 1, 5, true, false, false)};
  };
  return op;
}

OpDef block_sums_op() {
  OpDef op;
  op.name = "block_sums";
  op.doc = "Sums of every attr block consecutive elements along attr axis; the last block may be shorter.";
  op.kind = OpKind::Kernel;
  op.gradient = GradientKind::Rule;
  op.lower = lower_scan;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_number(ctx, ctx.inputs[0]);
    const int axis = infer_axis(ctx);
    return {{ctx.inputs[0].dtype, block_shape(ctx.inputs[0].shape, axis, infer_block(ctx, false))}};
  };
  op.eval = [](const EvalContext& ctx) {
    const HostTensor& x = *ctx.inputs[0];
    HostTensor& y = ctx.results[0];
    const AxisSplit split = split_axis(x.type.shape, ctx.node.attrs.get<std::int64_t>("axis"));
    const std::int64_t block = ctx.node.attrs.get<std::int64_t>("block"), blocks = ceil_div(split.extent, block);
    for (std::int64_t e = 0; e < std::ssize(x.data); ++e) {
      const std::int64_t inner = e % split.inner, along = e / split.inner % split.extent;
      const std::int64_t outer = e / split.inner / split.extent;
      y.data[static_cast<std::size_t>((outer * blocks + along / block) * split.inner + inner)] +=
          x.data[static_cast<std::size_t>(e)];
    }
    for (double& v : y.data) v = wrap_integer(y.type.dtype, v);
  };
  op.vjp = [](const BuildContext& c, std::span<const Value> in, std::span<const Value>,
              std::span<const Value> dy) -> std::vector<Value> {
    // Every element of a block gets its entry of dy: a scan over zeros that starts there.
    const Expr zeros = expand_to({c, c.scalar(0, in[0].dtype())}, in[0].shape());
    const Attrs& attrs = c.like.attrs;
    return {add_scan(c, {zeros.value, dy[0]}, attrs.get<std::int64_t>("axis"), true, false, attrs.get<std::int64_t>("block"))};
  };
  op.cases = [] {
    const auto one = [](Shape shape, int axis, std::int64_t block) {
      return scan_case({f32_type(shape)}, axis, block, {{"block", block}});
    };
    return std::vector<OpCase>{one({3, 7}, 1, 3),     one({3, 8}, 1, 4),  one({11, 9}, 0, 4), one({2, 11, 3}, 1, 20),
                               one({2, 0, 3}, 1, 2), one({2500}, 0, 2100)};
  };
  return op;
}

}  // namespace

std::vector<OpDef> order_ops() {
  std::vector<OpDef> ops = sort_ops();
  for (OpDef& op : std::vector{cumsum_op(), scan_op(), block_sums_op()}) ops.push_back(std::move(op));
  return ops;
}

// ---- public functions

namespace {

/// [outer, extent, inner] with the axis repeated: as a whole, or element by element. Movement ops alone: no kernel.
Value repeat(const Operand& x, int axis, std::int64_t count, bool interleave) {
  const Value v = x.value();
  const Shape shape = v.shape();
  const AxisSplit split = split_axis(shape, axis);
  const Loc& line = x.line();
  const Ints dims = interleave ? Ints{split.outer * split.extent, 1, split.inner} : Ints{split.outer, 1, split.extent * split.inner};
  const Shape result = shape.with(axis, checked_mul(split.extent, count, "a repeated extent"));
  const Value whole = expand({reshape(x, dims, line), line}, {dims[0], count, dims[2]}, line);
  return reshape({whole, line}, {result.begin(), result.end()}, line);
}

Value checked_repeat(std::string_view op, const Operand& x, int axis, std::int64_t count, bool interleave) {
  if (count < 0) op_error(ErrorCode::InvalidArgument, op, formatted("{} repeats of axis {}", count, axis), x.line());
  try {
    return count == 1 ? x.value() : repeat(x, axis, count, interleave);
  } catch (const Error& e) {
    op_error(e.code(), op, e.message(), x.line());
  }
}

}  // namespace

Value tile(Operand x, const std::vector<std::int64_t>& repeats) {
  Value v = resolve_value("tile", x);
  if (std::ssize(repeats) != v.shape().rank()) {
    op_error(ErrorCode::InvalidArgument, "tile",
             formatted("{} repeats for {}: one per axis is needed", repeats.size(), v.type().to_string()), x.line());
  }
  for (std::size_t d = 0; d < repeats.size(); ++d)
    v = checked_repeat("tile", {v, x.line()}, static_cast<int>(d), repeats[d], false);
  return v;
}

Value repeat_interleave(Operand x, std::int64_t repeats, std::int64_t axis) {
  const Value v = resolve_value("repeat_interleave", x);
  const auto axes = resolve_axes("repeat_interleave", {axis}, v.shape().rank(), x.line());
  return checked_repeat("repeat_interleave", {v, x.line()}, static_cast<int>(axes[0]), repeats, true);
}

Value cumsum(Operand x, std::int64_t axis, bool exclusive, bool reverse) {
  const int rank = resolve_value("cumsum", x).shape().rank();
  return build("cumsum", {x}, {{"axis", axis < 0 ? axis + rank : axis}, {"exclusive", exclusive}, {"reverse", reverse}});
}

}  // namespace aeshna
