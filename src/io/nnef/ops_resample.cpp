// Up- and downsampling by whole factors of the axes behind [N, C].
#include <algorithm>
#include <array>

#include "base/checked.h"
#include "io/nnef/window.h"

namespace aeshna::nnef {
namespace {

Ints factors_of(const Call& c, const Value& x) {
  Ints factors = c.ints("factor");
  if (factors.size() + 2 != static_cast<std::size_t>(x.shape().rank()))
    c.wrong(formatted("{} factors for {} axes behind the channels", factors.size(), x.shape().rank() - 2));
  if (std::ranges::any_of(factors, [](std::int64_t f) { return f < 1; })) c.wrong("'factor' must be positive");
  return factors;
}

Ints divided(const Call& c, const Value& x) {
  const Ints factors = factors_of(c, x);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::int64_t n = x.shape()[static_cast<int>(i) + 2];
    if (n % factors[i] != 0) c.wrong(formatted("the factor {} does not divide the extent {}", factors[i], n));
  }
  return factors;
}

Results nearest_downsample(Call& c) {
  const Value x = c.tensor("input");
  const Ints factors = divided(c, x);
  Ints axes, starts, ends;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    axes.push_back(static_cast<std::int64_t>(i) + 2);
    starts.push_back(0);
    ends.push_back(x.shape()[static_cast<int>(i) + 2]);
  }
  return {slice(x, axes, starts, ends, factors)};
}

Results area_downsample(Call& c) {
  const Value x = c.tensor("input");
  Ints size = divided(c, x);
  size.insert(size.begin(), {1, 1});
  const Ints ones(size.size(), 1), none(size.size(), 0);
  return {box(c, x, {.size = size, .stride = size, .dilation = ones, .before = none, .after = none}, Border::Constant,
              true)};
}

Results nearest_upsample(Call& c) {
  Value x = c.tensor("input");
  const Ints factors = factors_of(c, x);
  for (std::size_t i = 0; i < factors.size(); ++i)
    x = repeat_interleave(x, factors[i], static_cast<std::int64_t>(i) + 2);
  return {x};
}

/// A constant border is a ring of zeros that is cut off afterwards; where the corners are aligned no result sees it.
Results multilinear_upsample(Call& c) {
  Value x = c.tensor("input");
  const Ints factors = factors_of(c, x);
  if (factors.size() > 2) c.refuse(formatted("{} axes; one or two are supported", factors.size()));
  const std::string& method = c.text("method");
  ResizeOptions options{.mode = ResizeMode::Linear};
  if (method == "symmetric") {
    options.coordinates = ResizeCoordinates::HalfPixel;
  } else if (method == "asymmetric") {
    options.coordinates = ResizeCoordinates::Asymmetric;
  } else if (method == "aligned") {
    options.coordinates = ResizeCoordinates::AlignCorners;
  } else {
    c.wrong(formatted("method '{}'; there are 'symmetric', 'asymmetric' and 'aligned'", method));
  }
  const Border border = border_of(c);
  if (border != Border::Constant && border != Border::Replicate) c.refuse(formatted("border '{}'", c.text("border")));
  const bool ring = border == Border::Constant && method != "aligned";
  Ints before(static_cast<std::size_t>(x.shape().rank()), 0), sizes, axes, starts, ends;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::int64_t n = x.shape()[static_cast<int>(i) + 2];
    before[i + 2] = ring ? 1 : 0;
    sizes.push_back(checked_mul(n + 2 * before[i + 2], factors[i], "the extent of the result"));
    if (sizes[i] > INT32_MAX) c.wrong(formatted("an extent of {}", sizes[i]));
    axes.push_back(static_cast<std::int64_t>(i) + 2);
    starts.push_back(factors[i]);
    ends.push_back(factors[i] + n * factors[i]);
  }
  if (!ring) return {resize(x, sizes, options)};
  return {slice(resize(pad(x, before, before), sizes, options), axes, starts, ends)};
}

constexpr const char* kSample = "(input: tensor<scalar>, factor: integer[]) -> (output: tensor<scalar>)";

}  // namespace

std::span<const Operation> resample_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"nearest_downsample", kSample, nearest_downsample},
      {"area_downsample", kSample, area_downsample},
      {"nearest_upsample", kSample, nearest_upsample},
      {"multilinear_upsample",
       "(input: tensor<scalar>, factor: integer[], method: string = 'symmetric', border: string = 'replicate') -> "
       "(output: tensor<scalar>)",
       multilinear_upsample, "over one or two axes; borders 'constant' and 'replicate'"},
  });
  return table;
}

}  // namespace aeshna::nnef
