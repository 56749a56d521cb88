// Constants, shapes and movement.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;  // sums of a few of them do not overflow

Literal of_ints(const Ints& values, const Shape& shape) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  return Literal({DType::i64, shape}, {bytes, bytes + values.size() * 8});
}

Value constant_ints(Context& c, const Ints& values) {
  return c.graph.constant(of_ints(values, Shape{static_cast<std::int64_t>(values.size())}));
}

const Literal& tensor_of(Context& c, const Attribute& a) {
  if (a.kind != Attribute::Kind::Tensor || !a.tensor) c.refuse(formatted("attribute '{}' is no tensor", a.name));
  if (!a.tensor->unsupported.empty()) c.refuse(a.tensor->unsupported);
  return a.tensor->value;
}

Values constant_op(Context& c) {
  if (c.node.attributes.size() != 1) c.refuse(formatted("{} attributes, one is expected", c.node.attributes.size()));
  const std::string& name = c.node.attributes[0].name;
  if (name == "value") return {c.graph.constant(tensor_of(c, c.attribute(name)))};
  if (name == "value_int") return {c.graph.constant(of_ints({c.integer(name)}, {}))};
  if (name == "value_ints") return {constant_ints(c, c.ints(name))};
  if (name == "value_float") return {c.constant(c.number(name))};
  if (name == "value_floats") {
    const std::vector<double> values = c.numbers(name);
    return {c.tensor({static_cast<std::int64_t>(values.size())}, values)};
  }
  c.refuse(formatted("attribute '{}' is not supported", name));
}

Shape shape_of(Context& c, const Ints& dims) {
  for (const std::int64_t d : dims) {
    if (d < 0) c.refuse(formatted("a dimension is {}", d));
  }
  return Shape(std::span<const std::int64_t>(dims));
}

Values constant_of_shape(Context& c) {
  const Shape shape = shape_of(c, c.ints(0, "the shape"));
  if (!c.has_attribute("value")) return {c.filled(shape, 0, DType::f32)};
  const Literal& value = tensor_of(c, c.attribute("value"));
  if (value.type().shape.elements() != 1) c.refuse("attribute 'value' has more than one element");
  return {expand(reshaped(c.graph.constant(value), {}), dims_of(shape))};
}

Values shape_op(Context& c) {
  const std::int64_t rank = c.rank(0);
  const auto clamped = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const std::int64_t start = clamped(c.integer("start", 0)), end = std::max(start, clamped(c.integer("end", rank)));
  const Ints dims = dims_of(c.shape(0));
  return {constant_ints(c, {dims.begin() + start, dims.begin() + end})};
}

Values size_op(Context& c) { return {c.graph.constant(of_ints({c.shape(0).elements()}, {}))}; }

Values range_op(Context& c) {
  const DType dtype = c.dtype(0);
  const double start = c.number(0, "the start"), limit = c.number(1, "the limit"), delta = c.number(2, "the step");
  if (delta == 0 || !std::isfinite(start) || !std::isfinite(limit) || !std::isfinite(delta))
    c.refuse("the step is 0, or a bound is infinite");
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (count > 1e9) c.refuse(formatted("{} elements", count));
  const Value i =
      counted(c, static_cast<std::int64_t>(count), is_float(dtype) || dtype == DType::i64 ? dtype : DType::i32);
  const Value y = add(mul(i, delta), start);
  return {y.dtype() == dtype ? y : cast(y, dtype)};
}

// ---- shapes

Values reshape_op(Context& c) {
  c.ignore("consumed_inputs");
  const bool zero = c.flag("allowzero", false);
  Ints dims = c.ints(1, "the shape");
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 0 || zero) continue;
    if (i >= static_cast<std::size_t>(c.rank(0))) c.refuse("a dimension is 0, and the operand has none to copy there");
    dims[i] = c.shape(0)[static_cast<int>(i)];
  }
  c.result_bits = c.bits(0);
  const Value x = c.in(0);
  if (const auto open = std::ranges::find(dims, -1); open != dims.end()) {  // with dimensions of 0 too
    if (std::ranges::find(dims, 0) != dims.end()) *open = 0;
  }
  return {reshaped(x, dims)};
}

Values flatten_op(Context& c) {
  const int rank = c.rank(0);
  std::int64_t axis = c.integer("axis", 1);
  if (axis < -rank || axis > rank) c.refuse(formatted("axis {} of a tensor of rank {}", axis, rank));
  if (axis < 0) axis += rank;
  Ints dims = {1, 1};
  for (int i = 0; i < rank; ++i) dims[i < axis ? 0 : 1] *= c.shape(0)[i];
  return {reshaped(c.in(0), dims)};
}

Values transpose_op(Context& c) {
  const int rank = c.rank(0);
  Ints perm(static_cast<std::size_t>(rank));
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = c.ints("perm", perm);
  c.result_bits = c.bits(0);
  if (rank == 0) return {c.in(0)};
  return {permute(c.in(0), perm)};
}

Values squeeze_op(Context& c) {
  const int rank = c.rank(0);
  Ints ones;
  for (int i = 0; i < rank; ++i) {
    if (c.shape(0)[i] == 1) ones.push_back(i);
  }
  const Ints axes = c.axes(c.ints_since(13, "axes", 1, ones), rank);
  Ints dims;
  for (int i = 0; i < rank; ++i) {
    const bool listed = std::ranges::find(axes, i) != axes.end();
    if (listed && c.shape(0)[i] != 1) c.refuse(formatted("axis {} has {} elements", i, c.shape(0)[i]));
    if (!listed) dims.push_back(c.shape(0)[i]);
  }
  c.result_bits = c.bits(0);
  return {reshaped(c.in(0), dims)};
}

Values unsqueeze_op(Context& c) {
  const Ints given = c.ints_since(13, "axes", 1);
  const int rank = c.rank(0) + static_cast<int>(given.size());
  const Ints axes = c.axes(given, rank);
  Ints dims;
  for (int i = 0, from = 0; i < rank; ++i)
    dims.push_back(std::ranges::find(axes, i) != axes.end() ? 1 : c.shape(0)[from++]);
  c.result_bits = c.bits(0);
  return {reshaped(c.in(0), dims)};
}

Values expand_op(Context& c) {
  return {expand(c.in(0), dims_of(broadcast_shapes(c.shape(0), shape_of(c, c.ints(1, "the shape")))))};
}

Values tile_op(Context& c) { return {tile(c.in(0), c.ints(1, "repeats"))}; }

Values concat_op(Context& c) {
  std::vector<Value> parts;
  for (std::size_t i = 0; i < c.inputs(); ++i) parts.push_back(c.in(i));
  const std::int64_t axis = c.integer("axis", c.opset < 4 ? std::optional<std::int64_t>(1) : std::nullopt);
  if (parts.empty()) c.refuse("no operands");
  c.result_bits = c.bits(0);
  return {parts.size() == 1 ? parts[0] : concat(parts, axis)};
}

Values split_op(Context& c) {
  const int axis = c.axis(c.integer("axis", 0), c.rank(0));
  const std::int64_t extent = c.shape(0)[axis];
  Ints sizes = c.ints_since(13, "split", 1);
  const auto parts = static_cast<std::int64_t>(c.outputs());
  if (c.integer("num_outputs", parts) != parts) c.refuse(formatted("num_outputs does not fit its {} results", parts));
  if (sizes.empty()) {
    if (extent % parts != 0 && c.opset < 18) c.refuse(formatted("{} elements in {} equal parts", extent, parts));
    const std::int64_t size = (extent + parts - 1) / parts;
    for (std::int64_t i = 0; i < parts; ++i) sizes.push_back(std::clamp<std::int64_t>(extent - i * size, 0, size));
  }
  std::int64_t sum = 0;
  for (const std::int64_t s : sizes) {
    if (s < 0 || s > extent) c.refuse(formatted("a part of {} elements", s));
    sum += s;
  }
  if (sum != extent || sizes.size() != c.outputs())
    c.refuse(formatted("{} parts of {} elements in all, of {}", sizes.size(), sum, extent));
  Values results;
  std::int64_t start = 0;
  for (const std::int64_t s : sizes) {
    results.push_back(slice(c.in(0), {axis}, {start}, {start + s}));
    start += s;
  }
  return results;
}

Values slice_op(Context& c) {
  const int rank = c.rank(0);
  Ints starts = c.ints_since(10, "starts", 1), ends = c.ints_since(10, "ends", 2);
  Ints all(starts.size());
  std::iota(all.begin(), all.end(), 0);
  const Ints axes = c.ints_since(10, "axes", 3, all);
  const Ints steps = c.opset < 10 || !c.has(4) ? Ints(starts.size(), 1) : c.ints(4, "steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    c.refuse("starts, ends, axes and steps have different lengths");
  Value x = c.in(0);
  Ints used;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = c.axis(axes[i], rank);
    if (std::ranges::find(used, axis) != used.end()) c.refuse("an axis is listed twice");
    used.push_back(axis);
    const std::int64_t extent = x.shape()[axis], step = steps[i];
    if (step == 0 || step < -INT32_MAX) c.refuse(formatted("a step of {}", step));
    const auto place = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
      return std::clamp(v < 0 ? std::max<std::int64_t>(v, -extent - 1) + extent : v, low, high);
    };
    if (step > 0) {
      const std::int64_t start = place(starts[i], 0, extent), end = std::max(start, place(ends[i], 0, extent));
      if (start != 0 || end != extent || step != 1)
        x = slice(x, {axis}, {start}, {end}, {std::min(step, std::max<std::int64_t>(extent, 1))});
      continue;
    }
    const std::int64_t start = place(starts[i], -1, extent - 1), end = std::min(start, place(ends[i], -1, extent - 1));
    const std::int64_t count = (start - end - step - 1) / -step;
    if (count == 0) {
      x = slice(x, {axis}, {0}, {0});
      continue;
    }
    x = flip(slice(x, {axis}, {start + (count - 1) * step}, {start + 1},
                   {std::min(-step, std::max<std::int64_t>(extent, 1))}),
             {axis});
  }
  c.result_bits = c.bits(0);
  return {x};
}

// ---- padding

/// x with these counts before and after each axis; negative ones cut off.
Value padded(Context& c, Value x, Ints before, Ints after, double value) {
  Ints axes, starts, ends;
  for (int i = 0; i < x.shape().rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const std::int64_t extent = x.shape()[i];
    if (before[k] >= 0 && after[k] >= 0) continue;
    axes.push_back(i);
    starts.push_back(std::max<std::int64_t>(-before[k], 0));
    ends.push_back(extent + std::min<std::int64_t>(after[k], 0));
    if (starts.back() > ends.back()) c.refuse(formatted("more than the {} elements of axis {} are cut off", extent, i));
    before[k] = std::max<std::int64_t>(before[k], 0);
    after[k] = std::max<std::int64_t>(after[k], 0);
  }
  if (!axes.empty()) x = slice(x, axes, starts, ends);
  return pad(x, before, after, value);
}

/// The element that lies at i, outside of [0, n), by mode.
std::int64_t reflected(std::int64_t i, std::int64_t n, const std::string& mode) {
  if (mode == "edge") return std::clamp<std::int64_t>(i, 0, n - 1);
  if (mode == "wrap") return (i % n + n) % n;
  if (n == 1) return 0;
  const std::int64_t period = 2 * (n - 1);
  const std::int64_t j = (i % period + period) % period;
  return j < n ? j : period - j;
}

Values pad_op(Context& c) {
  const std::string mode = c.text("mode", "constant");
  const int rank = c.rank(0);
  Ints all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  const Ints pads = c.ints_since(11, "pads", 1);
  double value = c.opset < 11 ? c.number("value", 0) : 0;
  if (c.opset >= 11 && c.has(2)) value = c.number(2, "the value of the padding");
  const Ints axes = c.has(3) ? c.ints(3, "axes") : all;
  if (pads.size() != 2 * axes.size()) c.refuse(formatted("{} pads for {} axes", pads.size(), axes.size()));
  for (const std::int64_t p : pads) {
    if (p < -kMaxExtent || p > kMaxExtent) c.refuse(formatted("a pad of {}", p));
  }
  Ints before(all.size(), 0), after(all.size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(c.axis(axes[i], rank));
    before[axis] = pads[i];
    after[axis] = pads[i + axes.size()];
  }
  Value x = c.in(0);
  if (mode == "constant") return {padded(c, x, before, after, value)};
  if (mode != "edge" && mode != "reflect" && mode != "wrap") c.refuse("mode is '" + mode + "'");
  for (int axis = 0; axis < rank; ++axis) {
    const auto k = static_cast<std::size_t>(axis);
    const std::int64_t n = x.shape()[axis];
    if (before[k] == 0 && after[k] == 0) continue;
    if (n == 0) c.refuse("padding from an axis without elements");
    Ints index;
    const std::int64_t first = -before[k], last = checked_add(n, after[k], "the padded axis");
    if (last - first > (1 << 24) || last < first) c.refuse(formatted("an axis padded to {}", last - first));
    for (std::int64_t i = first; i < last; ++i) index.push_back(reflected(i, n, mode));
    x = gather(x, constant_ints(c, index), axis);
  }
  return {x};
}

Values center_crop_pad(Context& c) {
  const int rank = c.rank(0);
  Ints all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  const Ints axes = c.ints("axes", all), target = c.ints(1, "the shape");
  if (axes.size() != target.size()) c.refuse("the shape has another length than the axes");
  Ints before(all.size(), 0), after(all.size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = c.axis(axes[i], rank);
    const auto k = static_cast<std::size_t>(axis);
    if (target[i] < 0 || target[i] > kMaxExtent) c.refuse(formatted("an extent of {}", target[i]));
    const std::int64_t more = target[i] - c.shape(0)[axis];
    // Of an odd number, the last element is the one that is added or cut off.
    before[k] = more >= 0 ? more / 2 : -(-more / 2);
    after[k] = more - before[k];
  }
  return {padded(c, c.in(0), before, after, 0)};
}

// ---- rearrangements

Values depth_to_space(Context& c) {
  const std::int64_t b = c.integer("blocksize");
  const std::string mode = c.text("mode", "DCR");
  if (c.rank(0) != 4 || b < 1 || b > 32768 || c.shape(0)[1] % (b * b) != 0)
    c.refuse("the operand is no [N, C b b, H, W]");
  const Shape& s = c.shape(0);
  const std::int64_t n = s[0], d = s[1] / (b * b), h = s[2], w = s[3];
  if (mode != "DCR" && mode != "CRD") c.refuse("mode is '" + mode + "'");
  const Value x = mode == "DCR" ? permute(reshape(c.in(0), {n, b, b, d, h, w}), {0, 3, 4, 1, 5, 2})
                                : permute(reshape(c.in(0), {n, d, b, b, h, w}), {0, 1, 4, 2, 5, 3});
  return {reshape(x, {n, d, h * b, w * b})};
}

Values space_to_depth(Context& c) {
  const std::int64_t b = c.integer("blocksize");
  if (c.rank(0) != 4 || b < 1 || b > 32768 || c.shape(0)[2] % b != 0 || c.shape(0)[3] % b != 0)
    c.refuse("the operand is no [N, C, H b, W b]");
  const Shape& s = c.shape(0);
  const std::int64_t n = s[0], d = s[1], h = s[2] / b, w = s[3] / b;
  return {reshape(permute(reshape(c.in(0), {n, d, h, b, w, b}), {0, 3, 5, 1, 2, 4}), {n, d * b * b, h, w})};
}

/// Column minus row of the last two axes.
Value diagonal(Context& c, std::int64_t rows, std::int64_t columns) {
  return iota(c.graph, {rows, columns}, 1) - iota(c.graph, {rows, columns}, 0);
}

Values trilu(Context& c) {
  const bool upper = c.flag("upper", true);
  const int rank = c.rank(0);
  if (rank < 2) c.refuse(formatted("an operand of rank {}", rank));
  const Value k = c.has(1) ? cast(reshaped(c.in(1), {}), DType::i32) : c.constant(0, DType::i32);
  const Value d = diagonal(c, c.shape(0)[rank - 2], c.shape(0)[rank - 1]);
  const Value keep = upper ? greater_equal(d, k) : less_equal(d, k);
  return {in_wide(c.in(0), [&](Value x) { return select(keep, x, c.constant(0, x.dtype())); })};
}

Values eye_like(Context& c) {
  const std::int64_t k = c.integer("k", 0);
  if (c.rank(0) != 2) c.refuse(formatted("an operand of rank {}", c.rank(0)));
  const DType dtype = c.element("dtype", c.dtype(0));
  return {cast(equal(diagonal(c, c.shape(0)[0], c.shape(0)[1]), k), dtype)};
}

}  // namespace

std::span<const Op> shape_ops() {
  static constexpr std::array table = {
      Op{"CenterCropPad", center_crop_pad, 18},
      Op{"Concat", concat_op},
      Op{"Constant", constant_op, 1, false},
      Op{"ConstantOfShape", constant_of_shape, 9},
      Op{"DepthToSpace", depth_to_space},
      Op{"Expand", expand_op, 8},
      Op{"EyeLike", eye_like, 9},
      Op{"Flatten", flatten_op},
      Op{"Pad", pad_op},
      Op{"Range", range_op, 11},
      Op{"Reshape", reshape_op},
      Op{"Shape", shape_op, 1, false},
      Op{"Size", size_op, 1, false},
      Op{"Slice", slice_op},
      Op{"SpaceToDepth", space_to_depth},
      Op{"Split", split_op},
      Op{"Squeeze", squeeze_op},
      Op{"Tile", tile_op, 6},
      Op{"Transpose", transpose_op},
      Op{"Trilu", trilu, 14},
      Op{"Unsqueeze", unsqueeze_op},
  };
  return table;
}

}  // namespace aeshna::onnx
