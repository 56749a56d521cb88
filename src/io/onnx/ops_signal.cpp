// Windows of signals, Fourier transforms (products with tables), random numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr double kTau = 2 * std::numbers::pi;
constexpr std::int64_t kMaxTable = 1 << 24;

/// sum over k of coefficients[k] cos(k t) over one period.
Values window(Context& c, std::array<double, 3> coefficients) {
  const std::int64_t size = c.integer(0, "the size");
  const bool periodic = c.flag("periodic", true);
  const DType dtype = c.element("output_datatype", DType::f32);
  if (size < 0 || size > kMaxTable) c.refuse(formatted("a size of {}", size));
  std::vector<double> values;
  const double period = static_cast<double>(periodic ? size : size - 1);
  for (std::int64_t i = 0; i < size; ++i) {
    const double t = period > 0 ? kTau * static_cast<double>(i) / period : 0;
    values.push_back(coefficients[0] + coefficients[1] * std::cos(t) + coefficients[2] * std::cos(2 * t));
  }
  return {c.tensor({size}, values, dtype)};
}

Values hann(Context& c) { return window(c, {0.5, -0.5, 0}); }
Values hamming(Context& c) { return window(c, {25.0 / 46, -(1 - 25.0 / 46), 0}); }
Values blackman(Context& c) { return window(c, {0.42, -0.5, 0.08}); }

/// [n, bins] cosines or sines of 2 pi i k / length.
Value table(Context& c, std::int64_t n, std::int64_t bins, std::int64_t length, bool sine, DType dtype) {
  if (n > kMaxTable || bins > kMaxTable || n * bins > kMaxTable) c.refuse(formatted("a transform of {} elements", n));
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < bins; ++k) {
      const double t = kTau * static_cast<double>(i * k % length) / static_cast<double>(length);
      values.push_back(sine ? std::sin(t) : std::cos(t));
    }
  }
  return c.tensor({n, bins}, values, dtype);
}

/// x [..., n], the imaginary part too if there is one -> [..., bins, 2]
Value transformed(Context& c, Value re, std::optional<Value> im, std::int64_t length, std::int64_t bins, bool inverse) {
  const std::int64_t n = re.shape()[re.shape().rank() - 1];
  const Value cosine = table(c, n, bins, length, false, re.dtype()), sine = table(c, n, bins, length, true, re.dtype());
  const double sign = inverse ? 1 : -1;  // of i sin
  Value out_re = matmul(re, cosine), out_im = mul(matmul(re, sine), sign);
  if (im) {
    out_re = out_re - mul(matmul(*im, sine), sign);
    out_im = out_im + matmul(*im, cosine);
  }
  if (inverse)
    out_re = mul(out_re, 1.0 / static_cast<double>(length)), out_im = mul(out_im, 1.0 / static_cast<double>(length));
  Ints dims = dims_of(out_re.shape());
  dims.push_back(1);
  return concat({reshape(out_re, dims), reshape(out_im, dims)}, -1);
}

Values dft(Context& c) {
  const bool inverse = c.flag("inverse", false), onesided = c.flag("onesided", false);
  const int rank = c.rank(0);
  const std::int64_t given = c.opset < 20 ? c.integer("axis", 1) : c.has(2) ? c.integer(2, "the axis") : -2;
  const int axis = c.axis(given, rank);
  if (axis == rank - 1) c.refuse("the axis of the real and imaginary parts");
  if (inverse && onesided) c.refuse("an inverse of one side");
  Value x = c.in(0);
  const std::int64_t parts = x.shape()[rank - 1], extent = x.shape()[axis];
  const std::int64_t length = c.has(1) ? c.integer(1, "dft_length") : extent;
  if (length < 1 || length > kMaxTable || parts < 1 || parts > 2) c.refuse(formatted("a length of {}", length));
  if (length < extent) x = slice(x, {axis}, {0}, {length});
  // The axis goes to the end, in front of the parts.
  Ints there, back(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank - 1; ++i) {
    if (i != axis) there.push_back(i);
  }
  there.push_back(axis);
  there.push_back(rank - 1);
  for (std::size_t i = 0; i < there.size(); ++i)
    back[static_cast<std::size_t>(there[i])] = static_cast<std::int64_t>(i);
  x = permute(x, there);
  Ints dims = dims_of(x.shape());
  dims.pop_back();
  const auto part = [&](std::int64_t p) { return reshape(slice(x, {-1}, {p}, {p + 1}), dims); };
  const Value y = transformed(c, part(0), parts == 2 ? std::optional(part(1)) : std::nullopt, length,
                              onesided ? length / 2 + 1 : length, inverse);
  return {permute(y, back)};
}

Values stft(Context& c) {
  const bool onesided = c.flag("onesided", true);
  const std::int64_t step = c.integer(1, "frame_step");
  if (c.rank(0) != 3 && c.rank(0) != 2) c.refuse("the signal is no [batch, length, 1]");
  const std::int64_t batch = c.shape(0)[0], total = c.shape(0)[1];
  const std::int64_t frame = c.has(3) ? c.integer(3, "frame_length") : c.has(2) ? c.shape(2).elements() : total;
  if (c.rank(0) == 3 && c.shape(0)[2] != 1) c.refuse("complex signals are not supported");
  if (step < 1 || frame < 1 || frame > total) c.refuse(formatted("frames of {} every {}", frame, step));
  Value frames = windows(reshape(c.in(0), {batch, total}), {.kernel = {frame}, .stride = {step}});
  if (c.has(2)) frames = frames * c.in(2);
  return {transformed(c, frames, std::nullopt, frame, onesided ? frame / 2 + 1 : frame, false)};
}

Values mel_weights(Context& c) {
  const std::int64_t bins = c.integer(0, "num_mel_bins"), length = c.integer(1, "dft_length"),
                     rate = c.integer(2, "sample_rate");
  const double low = c.number(3, "lower_edge_hertz"), high = c.number(4, "upper_edge_hertz");
  const DType dtype = c.element("output_datatype", DType::f32);
  const std::int64_t rows = length / 2 + 1;
  if (bins < 1 || length < 1 || length > kMaxTable || rate < 1 || bins > kMaxTable / rows) c.refuse("its sizes");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + mel(low)) / 2595) - 1);
    const double at = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(at >= 0 && at <= static_cast<double>(kMaxTable))) c.refuse(formatted("an edge at {} Hz", hertz));
    edges.push_back(static_cast<std::int64_t>(at));
  }
  std::vector<double> values(static_cast<std::size_t>(rows * bins));
  for (std::int64_t b = 0; b < bins; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t left = edges[at], middle = edges[at + 1], right = edges[at + 2];
    const auto set = [&](std::int64_t row, double v) {
      if (row >= 0 && row < rows) values[static_cast<std::size_t>(row * bins + b)] = v;
    };
    if (middle == left) set(middle, 1);
    for (std::int64_t j = left; j <= middle && middle != left; ++j)
      set(j, static_cast<double>(j - left) / static_cast<double>(middle - left));
    for (std::int64_t j = middle; j < right; ++j)
      set(j, static_cast<double>(right - j) / static_cast<double>(right - middle));
  }
  return {c.tensor({rows, bins}, values, dtype)};
}

// ---- random numbers: drawn by the session's own generator, anew in each step; the attribute seed has no meaning for it

Shape drawn_shape(Context& c, bool like) {
  c.ignore("seed");
  if (like) return c.shape(0);
  const Ints dims = c.ints("shape");
  return Shape(std::span<const std::int64_t>(dims));
}

template <bool like>
Values normal(Context& c) {
  const double mean = c.number("mean", 0), scale = c.number("scale", 1);
  const DType dtype = c.element("dtype", like ? c.dtype(0) : DType::f32);
  const Value y = random_normal(c.graph, drawn_shape(c, like), mean, scale);
  return {dtype == DType::f32 ? y : cast(y, dtype)};
}

template <bool like>
Values uniform(Context& c) {
  const double low = c.number("low", 0), high = c.number("high", 1);
  const DType dtype = c.element("dtype", like ? c.dtype(0) : DType::f32);
  const Value y = random_uniform(c.graph, drawn_shape(c, like), low, high);
  return {dtype == DType::f32 ? y : cast(y, dtype)};
}

Values bernoulli(Context& c) {
  const DType dtype = c.element("dtype", c.dtype(0));
  const Value p = cast(c.in(0), DType::f32);
  return {cast(less(random_uniform(c.graph, drawn_shape(c, true)), p), dtype)};
}

}  // namespace

std::span<const Op> signal_ops() {
  static constexpr std::array table = {
      Op{"Bernoulli", bernoulli, 15, false},
      Op{"BlackmanWindow", blackman, 17},
      Op{"DFT", dft, 17},
      Op{"HammingWindow", hamming, 17},
      Op{"HannWindow", hann, 17},
      Op{"MelWeightMatrix", mel_weights, 17},
      Op{"RandomNormal", normal<false>, 1, false},
      Op{"RandomNormalLike", normal<true>, 1, false},
      Op{"RandomUniform", uniform<false>, 1, false},
      Op{"RandomUniformLike", uniform<true>, 1, false},
      Op{"STFT", stft, 17},
  };
  return table;
}

}  // namespace aeshna::onnx
