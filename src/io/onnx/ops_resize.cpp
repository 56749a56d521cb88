// Resizing and sampling.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMaxMatrix = 1 << 24;

struct Resizing {
  std::string mode, coordinates, nearest;
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
};

/// One axis: n elements become m.
struct AxisResize {
  int axis = 0;
  std::int64_t n = 0, m = 0;
  double scale = 1, start = 0, end = 1;  ///< start, end: of the region that tf_crop_and_resize takes
};

/// Where result o lies in the operand.
double original(const Resizing& r, const AxisResize& a, std::int64_t index) {
  const auto o = static_cast<double>(index), n = static_cast<double>(a.n), m = static_cast<double>(a.m);
  if (r.coordinates == "half_pixel") return (o + 0.5) / a.scale - 0.5;
  if (r.coordinates == "half_pixel_symmetric") {
    const double adjustment = m / (a.scale * n), center = n / 2;
    return center * (1 - adjustment) + (o + 0.5) / a.scale - 0.5;
  }
  if (r.coordinates == "pytorch_half_pixel") return a.m > 1 ? (o + 0.5) / a.scale - 0.5 : 0;
  if (r.coordinates == "tf_half_pixel_for_nn") return (o + 0.5) / a.scale;
  if (r.coordinates == "align_corners") return a.scale * n == 1 ? 0 : o * (n - 1) / (a.scale * n - 1);
  if (r.coordinates == "tf_crop_and_resize") {
    return a.m > 1 ? a.start * (n - 1) + o * (a.end - a.start) * (n - 1) / (m - 1) : 0.5 * (a.start + a.end) * (n - 1);
  }
  return o / a.scale;  // asymmetric
}

std::int64_t nearest_of(const Resizing& r, double x) {
  if (r.nearest == "round_prefer_floor") return static_cast<std::int64_t>(std::ceil(x - 0.5));
  if (r.nearest == "round_prefer_ceil") return static_cast<std::int64_t>(std::floor(x + 0.5));
  return static_cast<std::int64_t>(r.nearest == "floor" ? std::floor(x) : std::ceil(x));
}

double cubic(double x, double a) {  // Keys' kernel
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// [m, n]: the weight of every element of the operand in each of the result; zero rows: outside, for tf_crop_and_resize.
std::vector<double> weights(const Resizing& r, const AxisResize& a) {
  std::vector<double> matrix(static_cast<std::size_t>(a.m * a.n));
  const double scale = r.antialias ? std::min(a.scale, 1.0) : 1.0;
  const double reach = r.mode == "linear" ? 1 : 2;
  const auto first = static_cast<std::int64_t>(std::floor(-reach / scale)) + 1;
  const std::int64_t taps = 2 - 2 * first;
  for (std::int64_t o = 0; o < a.m; ++o) {
    const double x = original(r, a, o);
    const double base = std::ceil(x) - 1, ratio = x - base;  // in (0, 1]
    std::vector<double> w;
    double total = 0;
    for (std::int64_t i = first; i < first + taps; ++i) {
      const double distance = (static_cast<double>(i) - ratio) * scale;
      double value = r.mode == "linear" ? std::max(0.0, 1 - std::abs(distance)) : cubic(distance, r.cubic_a);
      const double at = base + static_cast<double>(i);
      if (r.exclude_outside && (at < 0 || at >= static_cast<double>(a.n))) value = 0;
      w.push_back(value);
      total += value;
    }
    for (std::int64_t i = 0; i < taps; ++i) {
      const double at = std::clamp(base + static_cast<double>(first + i), 0.0, static_cast<double>(a.n - 1));
      matrix[static_cast<std::size_t>(o * a.n) + static_cast<std::size_t>(at)] +=
          w[static_cast<std::size_t>(i)] / total;
    }
  }
  return matrix;
}

/// The vocabulary's own op, where it means the same.
std::optional<Value> whole(Value x, const Resizing& r, const std::vector<AxisResize>& axes) {
  const int rank = x.shape().rank();
  const std::size_t count = axes.size();
  if (!is_float(x.dtype()) || count == 0 || count > 2 || r.antialias || r.exclude_outside) return std::nullopt;
  std::vector<std::int64_t> sizes;
  int first = rank;
  for (const AxisResize& a : axes) {
    if (std::abs(a.scale * static_cast<double>(a.n) - static_cast<double>(a.m)) > 1e-6) return std::nullopt;
    if (r.coordinates == "pytorch_half_pixel" && a.m == 1) return std::nullopt;
    first = std::min(first, a.axis);
  }
  if (first < rank - 2) return std::nullopt;
  for (int i = first; i < rank; ++i) {
    const auto found = std::ranges::find(axes, i, &AxisResize::axis);
    if (found == axes.end() && r.coordinates == "tf_half_pixel_for_nn") return std::nullopt;
    sizes.push_back(found == axes.end() ? x.shape()[i] : found->m);
  }
  ResizeOptions o;
  o.mode = r.mode == "nearest" ? ResizeMode::Nearest : r.mode == "linear" ? ResizeMode::Linear : ResizeMode::Cubic;
  o.cubic_a = r.cubic_a;
  if (r.coordinates == "half_pixel" || r.coordinates == "pytorch_half_pixel" ||
      r.coordinates == "half_pixel_symmetric") {
    o.coordinates = ResizeCoordinates::HalfPixel;
  } else if (r.coordinates == "align_corners") {
    o.coordinates = ResizeCoordinates::AlignCorners;
  } else if (r.coordinates == "asymmetric") {
    o.coordinates = ResizeCoordinates::Asymmetric;
  } else {
    return std::nullopt;
  }
  o.rounding = r.nearest == "floor"               ? NearestRounding::Floor
               : r.nearest == "ceil"              ? NearestRounding::Ceil
               : r.nearest == "round_prefer_ceil" ? NearestRounding::PreferCeil
                                                  : NearestRounding::PreferFloor;
  return resize(x, sizes, o);
}

Value resized(Context& c, Value x, const Resizing& r, const std::vector<AxisResize>& axes) {
  if (auto y = whole(x, r, axes)) return *y;
  for (const AxisResize& a : axes) {
    if (a.n < 1 || a.m < 1) c.refuse(formatted("an axis of {} elements becomes {}", a.n, a.m));
    if (a.m > kMaxMatrix / a.n) c.refuse(formatted("an axis of {} elements becomes {}", a.n, a.m));
    const bool crop = r.coordinates == "tf_crop_and_resize";
    if (r.mode == "nearest") {
      std::vector<double> index;
      for (std::int64_t o = 0; o < a.m; ++o)
        index.push_back(static_cast<double>(std::clamp<std::int64_t>(nearest_of(r, original(r, a, o)), 0, a.n - 1)));
      x = gather(x, c.tensor({a.m}, index, DType::i64), a.axis);
    } else {
      if (!is_float(x.dtype())) c.refuse("mode " + r.mode + " of " + std::string(dtype_name(x.dtype())));
      Ints dims = dims_of(x.shape());
      std::int64_t outer = 1, inner = 1;
      for (int i = 0; i < x.shape().rank(); ++i)
        (i < a.axis ? outer : i > a.axis ? inner : dims[static_cast<std::size_t>(i)]) *= i == a.axis ? 1 : x.shape()[i];
      dims[static_cast<std::size_t>(a.axis)] = a.m;
      x = reshape(matmul(c.tensor({a.m, a.n}, weights(r, a), x.dtype()), reshape(x, {outer, a.n, inner})), dims);
    }
    if (crop) {
      std::vector<double> inside;
      for (std::int64_t o = 0; o < a.m; ++o) {
        const double at = original(r, a, o);
        inside.push_back(at >= 0 && at <= static_cast<double>(a.n - 1) ? 1 : 0);
      }
      Ints dims(static_cast<std::size_t>(x.shape().rank()), 1);
      dims[static_cast<std::size_t>(a.axis)] = a.m;
      x = select(c.tensor(Shape(std::span<const std::int64_t>(dims)), inside, DType::boolean), x, r.extrapolation);
    }
  }
  return x;
}

std::vector<double> known_numbers(Context& c, std::size_t i, std::string_view what) {
  return c.known(i, what).to_doubles();
}

bool given(Context& c, std::size_t i) { return c.has(i) && c.shape(i).elements() > 0; }

Values resize_op(Context& c) {
  Resizing r;
  r.mode = c.text("mode", "nearest");
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic") c.refuse("mode is '" + r.mode + "'");
  r.coordinates = c.text("coordinate_transformation_mode", c.opset < 11 ? "asymmetric" : "half_pixel");
  constexpr std::array known = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
                                "align_corners", "asymmetric",           "tf_crop_and_resize"};
  if (std::ranges::find(known, r.coordinates) == known.end())
    c.refuse("coordinate_transformation_mode is '" + r.coordinates + "'");
  r.nearest = c.text("nearest_mode", c.opset < 11 ? "floor" : "round_prefer_floor");
  r.cubic_a = c.number("cubic_coeff_a", -0.75);
  r.extrapolation = c.number("extrapolation_value", 0);
  r.exclude_outside = c.flag("exclude_outside", false);
  r.antialias = c.flag("antialias", false);
  const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
  const int rank = c.rank(0);
  Ints all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  Ints listed;
  for (const std::int64_t axis : c.ints("axes", all)) listed.push_back(c.axis(axis, rank));
  const std::size_t scales_at = c.opset < 11 ? 1 : 2;
  const bool by_scale = given(c, scales_at);
  if (by_scale == (c.opset >= 11 && given(c, 3))) c.refuse("either scales or sizes must be given");
  const std::vector<double> wanted =
      by_scale ? known_numbers(c, scales_at, "the scales") : known_numbers(c, 3, "the sizes");
  if (wanted.size() != listed.size())
    c.refuse(formatted("{} scales or sizes for {} axes", wanted.size(), listed.size()));
  std::vector<double> roi;
  if (r.coordinates == "tf_crop_and_resize") {
    roi = known_numbers(c, 1, "the region");
    if (roi.size() != 2 * listed.size()) c.refuse("the region does not fit the axes");
    for (const double r_at : roi) {
      if (!(std::abs(r_at) < 1e6)) c.refuse(formatted("a region at {}", r_at));
    }
  }
  double common = 0;
  for (std::size_t i = 0; i < listed.size() && !by_scale && policy != "stretch"; ++i) {
    const double s = wanted[i] / static_cast<double>(c.shape(0)[static_cast<int>(listed[i])]);
    common = i == 0 ? s : policy == "not_larger" ? std::min(common, s) : std::max(common, s);
  }
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    c.refuse("keep_aspect_ratio_policy is '" + policy + "'");
  std::vector<AxisResize> axes;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    AxisResize a;
    a.axis = static_cast<int>(listed[i]);
    a.n = c.shape(0)[a.axis];
    const auto n = static_cast<double>(a.n);
    a.scale = by_scale ? wanted[i] : common > 0 ? common : wanted[i] / n;
    const double size = by_scale ? std::floor(n * a.scale) : common > 0 ? std::floor(n * common + 0.5) : wanted[i];
    if (!(a.scale > 0) || !(size < 1e9)) c.refuse(formatted("a scale of {}", a.scale));
    a.m = static_cast<std::int64_t>(size);
    if (!roi.empty()) a.start = roi[i], a.end = roi[i + listed.size()];
    if (a.m == a.n && a.scale == 1 && (roi.empty() || (a.start == 0 && a.end == 1))) continue;
    axes.push_back(a);
  }
  std::ranges::sort(axes, {}, &AxisResize::axis);
  return {resized(c, c.in(0), r, axes)};
}

Values upsample(Context& c) {
  Resizing r;
  r.mode = c.text("mode", "nearest");
  if (r.mode != "nearest" && r.mode != "linear") c.refuse("mode is '" + r.mode + "'");
  r.coordinates = "asymmetric";
  r.nearest = "floor";
  const std::vector<double> scales = c.opset < 9 ? c.numbers("scales") : known_numbers(c, 1, "the scales");
  if (static_cast<int>(scales.size()) != c.rank(0)) c.refuse("the scales do not fit the operand");
  std::vector<AxisResize> axes;
  for (int i = 0; i < c.rank(0); ++i) {
    const double scale = scales[static_cast<std::size_t>(i)],
                 size = std::floor(static_cast<double>(c.shape(0)[i]) * scale);
    if (!(scale > 0) || !(size < 1e9)) c.refuse(formatted("a scale of {}", scale));
    if (scale != 1) axes.push_back({i, c.shape(0)[i], static_cast<std::int64_t>(size), scale, 0, 1});
  }
  return {resized(c, c.in(0), r, axes)};
}

// ---- sampling at points

Values affine_grid(Context& c) {
  const bool align = c.flag("align_corners", false);
  const Ints size = c.ints(1, "the size");
  const std::size_t axes = size.size() < 2 ? 0 : size.size() - 2;
  if (axes < 2 || axes > 3) c.refuse(formatted("{} spatial axes", axes));
  std::int64_t points = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    if (size[i + 2] < 0 || size[i + 2] > (1 << 20)) c.refuse(formatted("an axis of {}", size[i + 2]));
    points *= size[i + 2];
  }
  if (points > (1 << 24)) c.refuse(formatted("{} points", points));
  std::vector<double> base;  // [points, axes + 1], the last spatial axis first
  for (std::int64_t p = 0; p < points; ++p) {
    std::int64_t rest = p;
    for (std::size_t i = axes; i-- > 0;) {
      const std::int64_t n = size[i + 2], k = rest % n;
      rest /= n;
      base.push_back(align ? (n > 1 ? 2.0 * static_cast<double>(k) / static_cast<double>(n - 1) - 1 : -1.0)
                           : (2.0 * static_cast<double>(k) + 1) / static_cast<double>(n) - 1);
    }
    base.push_back(1);
  }
  const auto wide = static_cast<std::int64_t>(axes) + 1;
  const Value grid = matmul(c.tensor({1, points, wide}, base, c.dtype(0)), c.in(0), false, true);
  Ints dims = {size[0]};
  dims.insert(dims.end(), size.begin() + 2, size.end());
  dims.push_back(static_cast<std::int64_t>(axes));
  return {reshape(grid, dims)};
}

/// x mirrored into [low, high].
Value mirrored(Value x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return mul(x, 0);
  const Value t = mod(sub(x, low), 2 * range);
  return add(select(less_equal(t, range), t, sub(2 * range, t)), low);
}

Values grid_sample(Context& c) {
  std::string mode = c.text("mode", c.opset < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const std::string padding = c.text("padding_mode", "zeros");
  const bool align = c.flag("align_corners", false);
  if (mode != "linear" && mode != "nearest" && mode != "cubic") c.refuse("mode is '" + mode + "'");
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    c.refuse("padding_mode is '" + padding + "'");
  const Shape& s = c.shape(0);
  const Shape& gs = c.shape(1);
  const int axes = s.rank() - 2;
  if (axes < 1 || axes > 3 || gs.rank() != s.rank() || gs[gs.rank() - 1] != axes)
    c.refuse("the grid does not fit the operand");
  std::int64_t area = 1, points = 1;
  for (int i = 0; i < axes; ++i) area *= s[i + 2], points *= gs[i + 1];
  const Value x = reshape(c.in(0), {s[0], s[1], area}), grid = reshape(c.in(1), {gs[0], points, axes});
  // For each axis, the taps: where they are and how much they count, all [N, 1, points].
  struct Tap {
    Value index, weight;
  };
  std::vector<std::vector<Tap>> taps;
  for (int i = 0; i < axes; ++i) {
    const auto n = static_cast<double>(s[i + 2]);
    const double low = align ? 0 : -0.5, high = align ? n - 1 : n - 0.5;
    const Value g = reshape(slice(grid, {2}, {axes - 1 - i}, {axes - i}), {gs[0], 1, points});
    Value at = align ? mul(add(g, 1), (n - 1) / 2) : mul(sub(mul(add(g, 1), n), 1), 0.5);
    if (mode == "nearest") at = round(at);
    if (padding == "border")
      at = select(logical_or(less(at, low), greater(at, high)), minimum(maximum(at, 0), n - 1), at);
    if (padding == "reflection") at = mirrored(at, low, high);
    const auto tap = [&](Value where, Value weight) {
      if (padding == "reflection") where = mirrored(where, low, high);
      const Value inside = minimum(maximum(where, 0), n - 1);
      if (padding == "zeros") {
        const Value zero = mul(inside, 0);
        weight = select(equal(where, inside), weight ? weight : add(zero, 1), zero);
      }
      return Tap{cast(inside, DType::i32), weight};
    };
    std::vector<Tap>& axis = taps.emplace_back();
    if (mode == "nearest") {
      axis.push_back(tap(at, {}));
      continue;
    }
    const Value base = floor(at), t = at - base;
    if (mode == "linear") {
      axis.push_back(tap(base, sub(1, t)));
      axis.push_back(tap(add(base, 1), t));
      continue;
    }
    constexpr double a = -0.75;
    for (int k = -1; k <= 2; ++k) {  // Keys' kernel at distance |t - k|
      const Value d = k <= 0 ? sub(t, k) : sub(k, t);
      const bool near = k == 0 || k == 1;
      const Value w = near ? add(mul(mul(sub(mul(d, a + 2), a + 3), d), d), 1)
                           : sub(mul(add(mul(sub(mul(d, a), 5 * a), d), 8 * a), d), 4 * a);
      axis.push_back(tap(add(base, k), w));
    }
  }
  Value y;
  std::vector<std::size_t> chosen(taps.size(), 0);
  for (bool more = true; more;) {
    Value index, weight;
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const Tap& t = taps[i][chosen[i]];
      index = index ? add(mul(index, s[static_cast<int>(i) + 2]), t.index) : t.index;
      if (t.weight) weight = weight ? weight * t.weight : t.weight;
    }
    Value part = gather_elements(x, index, 2);
    if (weight) part = part * weight;
    y = y ? y + part : part;
    more = false;
    for (std::size_t i = taps.size(); i-- > 0;) {
      if (++chosen[i] < taps[i].size()) {
        more = true;
        break;
      }
      chosen[i] = 0;
    }
  }
  Ints dims = {s[0], s[1]};
  for (int i = 0; i < axes; ++i) dims.push_back(gs[i + 1]);
  return {reshape(y, dims)};
}

}  // namespace

std::span<const Op> resize_ops() {
  static constexpr std::array table = {
      Op{"AffineGrid", affine_grid, 20, false},
      Op{"GridSample", grid_sample, 16, false},
      Op{"Resize", resize_op, 10, false},
      Op{"Upsample", upsample, 7, false},
  };
  return table;
}

}  // namespace aeshna::onnx
