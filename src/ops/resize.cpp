// Resizing along the last one or two axes. Every axis is a table of taps, worked out in double on the host: result o is the sum of
// weight[t, o] * x[index[t, o]]. The value is one fused kernel of gathers; the gradient has the same form with the transposed table
// (for each input, the results that it contributes to), so it needs no scatter and has a fixed order.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/format.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

// ---- tables

/// Of one axis, [taps, length].
struct Table {
  std::int64_t taps = 1, length = 0;
  std::vector<double> index;     ///< -1: none
  std::vector<double> weight;    ///< empty: all 1
  std::vector<double> base;      ///< [length]: index of the first tap (of cubic, of the second), before it is clamped
  std::vector<double> fraction;  ///< [length]: where between that and the next one the result lies
};

struct Rule {
  std::string mode, coordinates, rounding;
  double cubic_a = -0.75;
};

Rule rule_of(const Attrs& attrs) {
  return {attrs.get<std::string>("mode"), attrs.get<std::string>("coordinates"), attrs.get<std::string>("rounding"),
          attrs.get_or<double>("cubic_a", -0.75)};
}

/// `ratio` unset: that of the extents. A product before the division gives whole numbers where they are whole.
double source(const Rule& rule, std::int64_t o, std::int64_t in, std::int64_t out, std::optional<double> ratio) {
  const auto x = static_cast<double>(o);
  const auto scaled = [&](double v) {
    return ratio ? v * *ratio : v * static_cast<double>(in) / static_cast<double>(out);
  };
  if (rule.coordinates == "half_pixel") return scaled(x + 0.5) - 0.5;
  if (rule.coordinates == "align_corners")
    return out == 1 ? 0 : x * static_cast<double>(in - 1) / static_cast<double>(out - 1);
  return scaled(x);
}

double rounded(const std::string& rounding, double x) {
  if (rounding == "floor") return std::floor(x);
  if (rounding == "ceil") return std::ceil(x);
  return rounding == "prefer_floor" ? std::ceil(x - 0.5) : std::floor(x + 0.5);
}

double cubic(double a, double d) {  // Keys' kernel
  d = std::fabs(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Table table_of(const Rule& rule, std::int64_t in, std::int64_t out, std::optional<double> ratio) {
  Table table;
  table.length = out;
  table.taps = rule.mode == "nearest" ? 1 : rule.mode == "linear" ? 2 : 4;
  const std::int64_t first = rule.mode == "cubic" ? -1 : 0;
  for (std::int64_t o = 0; o < out; ++o) {
    const double at = source(rule, o, in, out, ratio);
    table.base.push_back(rule.mode == "nearest"
                             ? std::clamp(rounded(rule.rounding, at), 0.0, static_cast<double>(in - 1))
                             : std::floor(at));
    table.fraction.push_back(at - std::floor(at));
  }
  for (std::int64_t t = 0; t < table.taps; ++t) {
    for (std::int64_t o = 0; o < out; ++o) {
      const double at = source(rule, o, in, out, ratio);
      const double base = rule.mode == "nearest" ? rounded(rule.rounding, at) : std::floor(at);
      const double tap = base + static_cast<double>(first + t);
      table.index.push_back(std::clamp(tap, 0.0, static_cast<double>(in - 1)));
      if (rule.mode == "linear") table.weight.push_back(1 - std::fabs(at - tap));
      if (rule.mode == "cubic") table.weight.push_back(cubic(rule.cubic_a, at - tap));
    }
  }
  return table;
}

/// For each of `in` inputs the results that it contributes to, in ascending order.
Table transposed(const Table& table, std::int64_t in) {
  std::vector<std::vector<std::pair<double, double>>> lists(static_cast<std::size_t>(in));
  for (std::int64_t o = 0; o < table.length; ++o) {
    for (std::int64_t t = 0; t < table.taps; ++t) {
      const auto k = static_cast<std::size_t>(t * table.length + o);
      const double weight = table.weight.empty() ? 1 : table.weight[k];
      auto& list = lists[static_cast<std::size_t>(table.index[k])];
      if (!list.empty() && list.back().first == static_cast<double>(o)) {
        list.back().second += weight;  // taps that were clamped to one input
      } else if (weight != 0) {
        list.emplace_back(static_cast<double>(o), weight);
      }
    }
  }
  Table result;
  result.length = in;
  for (const auto& list : lists) result.taps = std::max(result.taps, std::ssize(list));
  const auto size = static_cast<std::size_t>(result.taps * in);
  result.index.assign(size, -1);
  result.weight.assign(size, 0);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (std::size_t t = 0; t < lists[i].size(); ++t) {
      const std::size_t k = t * lists.size() + i;
      result.index[k] = lists[i][t].first;
      result.weight[k] = lists[i][t].second;
    }
  }
  if (table.weight.empty()) result.weight.clear();  // those without an index read 0
  return result;
}

/// The factor if this is a repetition of every element, else 0.
std::int64_t repetition(const Table& table, std::int64_t in) {
  if (!table.weight.empty() || in == 0 || table.length % in != 0) return 0;
  const std::int64_t factor = table.length / in;
  for (std::int64_t o = 0; o < table.length; ++o) {
    if (table.index[static_cast<std::size_t>(o)] != static_cast<double>(o / factor)) return 0;
  }
  return factor;
}

bool is_identity(const Table& table, std::int64_t in) {
  if (table.length != in) return false;
  for (std::size_t k = 0; k < table.index.size(); ++k) {
    const double weight = table.weight.empty() ? 1 : table.weight[k];
    if (weight != 0 && (weight != 1 || table.index[k] != static_cast<double>(static_cast<std::int64_t>(k) % in)))
      return false;
  }
  return true;
}

/// The axes of a node: x seen as [rows, in...] and [rows, out...].
struct Axes {
  std::int64_t rows = 1;
  Ints in, out;
  std::vector<Table> tables;
};

Axes axes_of(const Attrs& attrs, const Shape& x) {
  Axes a;
  a.out = attrs.get<Ints>("sizes");
  const auto ratios = attrs.get_or<std::vector<double>>("ratios", {});
  const int first = x.rank() - static_cast<int>(a.out.size());
  for (int d = 0; d < first; ++d) a.rows *= x[d];
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    a.in.push_back(x[first + static_cast<int>(i)]);
    a.tables.push_back(
        table_of(rule_of(attrs), a.in[i], a.out[i], ratios.empty() ? std::nullopt : std::optional(ratios[i])));
  }
  return a;
}

// ---- graph

Shape with_rows(std::int64_t rows, const Ints& extents) {
  Ints dims = {rows};
  dims.insert(dims.end(), extents.begin(), extents.end());
  return Shape(dims);
}

Expr constant(const BuildContext& c, TensorType type, std::span<const double> values) {
  return {c, c.add("constant", {}, {{"value", Literal::from_doubles(std::move(type), values)}})};
}

Expr gathered(const Expr& x, const Expr& index, int axis) {
  return apply("gather_elements", {x, index}, {{"axis", std::int64_t{axis}}});
}

/// Keys' kernel at distance d, which is in [0, 1] for `near`, else in [1, 2].
Expr cubic(double a, const Expr& d, bool near) {
  if (near) return (((a + 2) * d - (a + 3)) * d) * d + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/// Sum over taps, axis by axis: the gathers of all axes are nested, so that each is one load of x. Of a table only the first tap
/// and where between its neighbours a result lies are in memory; the rest is arithmetic.
Expr interpolated(const BuildContext& c, const Axes& a, const Rule& rule, const Expr& x, std::size_t axis = 0) {
  const bool weighted = rule.mode != "nearest";  // then in f32, rounded once at the end
  if (axis == a.in.size()) return weighted ? cast_to(x, DType::f32) : x;
  const Table& table = a.tables[axis];
  const int at = static_cast<int>(axis) + 1, rank = static_cast<int>(a.in.size()) + 1;
  if (is_identity(table, a.in[axis])) return interpolated(c, a, rule, x, axis + 1);
  Ints dims(static_cast<std::size_t>(rank), 1);
  dims[static_cast<std::size_t>(at)] = table.length;
  const Expr base = constant(c, {DType::i32, Shape(dims)}, table.base);
  if (table.weight.empty()) return interpolated(c, a, rule, gathered(x, base, at), axis + 1);
  const Expr f = constant(c, {DType::f32, Shape(dims)}, table.fraction);
  std::vector<Expr> weights;
  if (rule.mode == "linear") {
    weights = {1.0 - f, f};
  } else {
    const double k = rule.cubic_a;
    weights = {cubic(k, f + 1, false), cubic(k, f, true), cubic(k, 1.0 - f, true), cubic(k, 2.0 - f, false)};
  }
  Expr sum;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const double offset = static_cast<double>(t) - (rule.mode == "cubic" ? 1 : 0);
    const Expr tap = offset == 0 ? base : base + offset;
    const Expr index = apply("clamp", {tap, tap.number(0), tap.number(static_cast<double>(a.in[axis] - 1))});
    const Expr term = interpolated(c, a, rule, gathered(x, index, at), axis + 1) * weights[t];
    sum = t == 0 ? term : sum + term;
  }
  return sum;
}

std::vector<Value> expand_resize(const BuildContext& c, std::span<const Value> in) {
  const Shape shape = c.like.results[0].shape;
  if (shape.elements() == 0) return {expand_to(Expr(c, c.scalar(0, in[0].dtype())), shape).value};
  const Axes a = axes_of(c.like.attrs, in[0].shape());
  Ints ones = {a.rows}, repeated = {a.rows};
  for (std::size_t i = 0; i < a.in.size(); ++i) {
    const std::int64_t factor = repetition(a.tables[i], a.in[i]);
    ones.insert(ones.end(), {a.in[i], 1});
    repeated.insert(repeated.end(), {a.in[i], factor});
  }
  if (std::ranges::none_of(repeated, [](std::int64_t e) { return e == 0; })) {
    return {reshape_to(expand_to(reshape_to({c, in[0]}, Shape(ones)), Shape(repeated)), shape).value};
  }
  const Expr y = interpolated(c, a, rule_of(c.like.attrs), reshape_to({c, in[0]}, with_rows(a.rows, a.in)));
  return {reshape_to(cast_to(y, in[0].dtype()), shape).value};
}

/// One axis of the gradient: for each input the weighted sum of what it contributed to.
Expr pulled_back(const BuildContext& c, const Expr& dy, const Table& forward, std::int64_t in, int axis) {
  const Table table = transposed(forward, in);
  const Shape from = dy.shape();
  Ints one(static_cast<std::size_t>(from.rank()), 1);
  one[static_cast<std::size_t>(axis)] = table.taps * in;
  const Expr index = reshape_to(constant(c, {DType::i32, {table.taps * in}}, table.index), Shape(one));
  Ints split, wide;
  for (int d = 0; d < from.rank(); ++d) {
    split.push_back(d == axis ? table.taps : from[d]);
    wide.push_back(d == axis ? table.taps : 1);
    if (d == axis) {
      split.push_back(in);
      wide.push_back(in);
    }
  }
  Expr terms = cast_to(reshape_to(gathered(dy, index, axis), Shape(split)), DType::f32);
  if (!table.weight.empty()) terms = terms * constant(c, {DType::f32, Shape(wide)}, table.weight);
  return table.taps == 1 ? reshape_to(terms, from.with(axis, in)) : reduce("sum", terms, {axis}, false);
}

std::vector<Value> vjp_resize(const BuildContext& c, std::span<const Value> in, std::span<const Value>,
                              std::span<const Value> dy) {
  const Shape x = in[0].shape();
  if (dy[0].shape().elements() == 0) return {Value()};
  const Axes a = axes_of(c.like.attrs, x);
  Expr g = reshape_to({c, dy[0]}, with_rows(a.rows, a.out));
  Ints repeated = {a.rows}, axes;
  for (std::size_t i = 0; i < a.in.size(); ++i) {
    const std::int64_t factor = repetition(a.tables[i], a.in[i]);
    repeated.insert(repeated.end(), {a.in[i], factor});
    axes.push_back(2 * static_cast<std::int64_t>(i) + 2);
  }
  if (std::ranges::none_of(repeated, [](std::int64_t e) { return e == 0; })) {
    return {reshape_to(reduce("sum", reshape_to(g, Shape(repeated)), axes, false), x).value};
  }
  // The axis that shrinks most first: less is left for the other.
  Ints order(a.in.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t i) {
    return static_cast<double>(a.in[static_cast<std::size_t>(i)]) /
           static_cast<double>(a.out[static_cast<std::size_t>(i)]);
  });
  for (const std::int64_t i : order) {
    const auto k = static_cast<std::size_t>(i);
    if (!is_identity(a.tables[k], a.in[k])) g = pulled_back(c, g, a.tables[k], a.in[k], static_cast<int>(i) + 1);
  }
  return {reshape_to(cast_to(g, in[0].dtype()), x).value};
}

// ---- the record

std::vector<TensorType> infer_resize(const InferContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  if (!is_float(x.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for floats, not for {}", dtype_name(x.dtype)));
  const Ints& sizes = ctx.attrs.get<Ints>("sizes");
  const auto oneof = [&](std::string_view name, std::initializer_list<std::string_view> known) {
    const std::string& value = ctx.attrs.get<std::string>(name);
    if (std::ranges::find(known, value) != known.end()) return;
    std::string list;
    for (const std::string_view k : known) list += formatted("{}{}", list.empty() ? "" : ", ", k);
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr {} must be one of {}, not \"{}\"", name, list, value));
  };
  oneof("mode", {"nearest", "linear", "cubic"});
  oneof("coordinates", {"half_pixel", "align_corners", "asymmetric"});
  oneof("rounding", {"floor", "ceil", "prefer_floor", "prefer_ceil"});
  const int first = x.shape.rank() - static_cast<int>(sizes.size());
  if (sizes.empty() || sizes.size() > 2 || first < 0) {
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("sizes must list the last one or two axes of {}, not {}", x.to_string(), sizes.size()));
  }
  const auto ratios = ctx.attrs.get_or<std::vector<double>>("ratios", {});
  if (!ratios.empty() && ratios.size() != sizes.size())
    ctx.fail(ErrorCode::InvalidArgument, "ratios must have one entry per size");
  if (const double a = ctx.attrs.get_or<double>("cubic_a", 0); !std::isfinite(a) || std::fabs(a) > 1e6)
    ctx.fail(ErrorCode::InvalidArgument, formatted("attr cubic_a is {}", a));
  Shape shape = x.shape;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int d = first + static_cast<int>(i);
    if (x.shape[d] < 1 || sizes[i] < 1) {
      ctx.fail(ErrorCode::ShapeMismatch, formatted("cannot resize axis {} from {} to {}", d, x.shape[d], sizes[i]));
    }
    if (!ratios.empty() && !(ratios[i] > 0 && std::isfinite(ratios[i]))) {
      ctx.fail(ErrorCode::InvalidArgument, formatted("the ratio {} of axis {} is not positive", ratios[i], d));
    }
    shape = shape.with(d, sizes[i]);
  }
  guarded(ctx, [&] { return shape.elements(); });
  return {{x.dtype, shape}};
}

void eval_resize(const EvalContext& ctx) {
  const Axes a = axes_of(ctx.node.attrs, ctx.inputs[0]->type.shape);
  std::vector<double> data = ctx.inputs[0]->data;
  std::int64_t outer = a.rows;
  for (std::size_t i = 0; i < a.in.size(); ++i) {
    const Table& table = a.tables[i];
    std::int64_t inner = 1;
    for (std::size_t k = i + 1; k < a.in.size(); ++k) inner *= a.in[k];
    std::vector<double> next(static_cast<std::size_t>(outer * table.length * inner), 0.0);
    for (std::int64_t r = 0; r < outer; ++r) {
      for (std::int64_t t = 0; t < table.taps; ++t) {
        for (std::int64_t o = 0; o < table.length; ++o) {
          const auto k = static_cast<std::size_t>(t * table.length + o);
          for (std::int64_t j = 0; j < inner; ++j) {
            const auto from =
                static_cast<std::size_t>((r * a.in[i] + static_cast<std::int64_t>(table.index[k])) * inner + j);
            next[static_cast<std::size_t>((r * table.length + o) * inner + j)] +=
                data[from] * (table.weight.empty() ? 1 : table.weight[k]);
          }
        }
      }
    }
    data = std::move(next);
    outer *= table.length;
  }
  ctx.results[0].data = std::move(data);
}

OpDef resize_op() {
  OpDef op;
  op.name = "resize";
  op.doc =
      "x resized to attr sizes along its last one or two axes; attrs mode (nearest, linear, cubic), coordinates "
      "(half_pixel, "
      "align_corners, asymmetric), rounding (floor, ceil, prefer_floor, prefer_ceil; nearest only).";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::Rule;
  op.infer = infer_resize;
  op.eval = eval_resize;
  op.expand = expand_resize;
  op.vjp = vjp_resize;
  op.cases = [] {
    std::vector<OpCase> cases;
    const auto one = [&](Shape x, Ints sizes, const char* mode, const char* coordinates,
                         const char* rounding = "floor") {
      cases.push_back(OpCase{.inputs = {f32_type(x)},
                             .attrs = {{"sizes", std::move(sizes)},
                                       {"mode", std::string(mode)},
                                       {"coordinates", std::string(coordinates)},
                                       {"rounding", std::string(rounding)}},
                             .ranges = {},
                             .values = {}});
      cases.back().rtol = cases.back().atol = 4e-6;
    };
    for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
      one({2, 3, 5, 4}, {8, 7}, "linear", coordinates);
      one({1, 2, 7, 9}, {3, 5}, "cubic", coordinates);
      one({3, 7}, {17}, "nearest", coordinates, "prefer_floor");
    }
    one({2, 5, 7}, {3, 16}, "nearest", "asymmetric");
    one({2, 5, 7}, {11, 3}, "nearest", "half_pixel", "prefer_ceil");
    one({9}, {4}, "nearest", "align_corners", "ceil");
    one({2, 3, 4}, {6, 12}, "nearest", "asymmetric");  // whole factors: no kernel of its own
    one({2, 3, 4}, {3, 4}, "nearest", "half_pixel", "prefer_floor");
    one({2, 3, 4}, {3, 9}, "linear", "half_pixel");  // one axis keeps its extent
    one({1, 1, 1}, {5, 4}, "linear", "half_pixel");
    one({0, 3}, {5}, "linear", "half_pixel");
    one({5, 2}, {3, 1}, "cubic", "align_corners");
    one({3, 6}, {11}, "linear", "half_pixel");
    cases.back().attrs.set("ratios", std::vector<double>{0.55});  // a scale of its own, not the ratio of extents
    return cases;
  };
  return op;
}

const char* name_of(ResizeMode mode) {
  switch (mode) {
    case ResizeMode::Nearest:
      return "nearest";
    case ResizeMode::Linear:
      return "linear";
    case ResizeMode::Cubic:
      return "cubic";
  }
  return "?";
}

const char* name_of(ResizeCoordinates coordinates) {
  switch (coordinates) {
    case ResizeCoordinates::HalfPixel:
      return "half_pixel";
    case ResizeCoordinates::AlignCorners:
      return "align_corners";
    case ResizeCoordinates::Asymmetric:
      return "asymmetric";
  }
  return "?";
}

const char* name_of(NearestRounding rounding) {
  switch (rounding) {
    case NearestRounding::Floor:
      return "floor";
    case NearestRounding::Ceil:
      return "ceil";
    case NearestRounding::PreferFloor:
      return "prefer_floor";
    case NearestRounding::PreferCeil:
      return "prefer_ceil";
  }
  return "?";
}

Attrs attrs_of(Ints sizes, const ResizeOptions& options) {
  Attrs attrs = {{"sizes", std::move(sizes)},
                 {"mode", std::string(name_of(options.mode))},
                 {"coordinates", std::string(name_of(options.coordinates))},
                 {"rounding", std::string(name_of(options.rounding))}};
  if (options.mode == ResizeMode::Cubic) attrs.set("cubic_a", options.cubic_a);
  return attrs;
}

}  // namespace

std::vector<OpDef> resize_ops() { return {resize_op()}; }

Value resize(Operand x, std::vector<std::int64_t> sizes, ResizeOptions options) {
  return build("resize", {x}, attrs_of(std::move(sizes), options));
}

Value resize_by(Operand x, const std::vector<double>& scales, ResizeOptions options) {
  const Shape shape = resolve_value("resize", x).shape();
  if (scales.empty() || std::ssize(scales) > shape.rank()) {
    op_error(ErrorCode::InvalidArgument, "resize",
             formatted("{} scales for {}: one for each of the last one or two axes", scales.size(),
                       x.value().type().to_string()),
             x.line());
  }
  Ints sizes;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const int d = shape.rank() - static_cast<int>(scales.size()) + static_cast<int>(i);
    const double size = std::floor(static_cast<double>(shape[d]) * scales[i]);
    if (!(scales[i] > 0) || !std::isfinite(scales[i]) || size > 9e15) {
      op_error(ErrorCode::InvalidArgument, "resize", formatted("the scale {} of axis {} is not usable", scales[i], d),
               x.line());
    }
    sizes.push_back(static_cast<std::int64_t>(size));
    ratios.push_back(1 / scales[i]);
  }
  Attrs attrs = attrs_of(std::move(sizes), options);
  attrs.set("ratios", std::move(ratios));
  return build("resize", {x}, std::move(attrs));
}

}  // namespace aeshna
