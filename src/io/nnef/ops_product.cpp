// Matrix products and convolutions.
#include <array>

#include "io/nnef/window.h"

namespace aeshna::nnef {
namespace {

/// None for the default of 0; [K] for what NNEF writes as [1, K], or as one number for all.
std::optional<Value> channel_bias(Call& c, std::int64_t channels) {
  if (c.known("bias") == 0.0) return std::nullopt;
  const Value bias = c.tensor("bias");
  const std::int64_t n = bias.shape().elements();
  if (bias.shape().rank() > 2 || (bias.shape().rank() == 2 && bias.shape()[0] != 1) || (n != channels && n != 1))
    c.wrong(formatted("a bias of {} for {} channels", bias.shape().to_string(), channels));
  return expand(reshape(bias, {n}), {channels});
}

void check_filter(const Call& c, const Value& x, const Value& filter) {
  const int rank = x.shape().rank();
  if (rank < 3 || filter.shape().rank() != rank)
    c.wrong(formatted("a filter of {} for an input of {}", filter.shape().to_string(), x.shape().to_string()));
  if (rank > 4) c.refuse(formatted("a convolution over {} axes; one or two are supported", rank - 2));
}

Ints spatial_of(const Value& x) { return {x.shape().begin() + 2, x.shape().end()}; }

Value conv_of(Call& c, Value x, const Value& filter, Windows w, Border border, std::int64_t groups,
              std::optional<Value> bias) {
  check_filter(c, x, filter);
  if (groups == 0) groups = x.shape()[1];
  if (groups < 1 || filter.shape()[1] * groups != x.shape()[1] || filter.shape()[0] % groups != 0)
    c.wrong(formatted("a filter of {} with {} groups for an input of {}", filter.shape().to_string(), groups,
                      x.shape().to_string()));
  for (Ints* list : {&w.size, &w.stride, &w.dilation}) list->insert(list->begin(), {1, 1});
  for (Ints* list : {&w.before, &w.after}) list->insert(list->begin(), {0, 0});
  make_border(c, x, w, border);
  for (std::size_t i = 2; i < w.axes(); ++i) (void)window_count(c, w, i, x.shape()[static_cast<int>(i)]);
  const auto last = [](const Ints& list) { return Ints(list.begin() + 2, list.end()); };
  return conv(x, filter,
              {.stride = last(w.stride),
               .padding = last(w.before),
               .dilation = last(w.dilation),
               .padding_after = last(w.after),
               .output_padding = {},
               .groups = groups},
              std::move(bias));
}

Windows one_by_one(std::size_t axes) {
  return {.size = Ints(axes, 1),
          .stride = Ints(axes, 1),
          .dilation = Ints(axes, 1),
          .before = Ints(axes, 0),
          .after = Ints(axes, 0)};
}

Results conv_op(Call& c) {
  const Value x = c.tensor("input"), filter = c.tensor("filter");
  check_filter(c, x, filter);
  const Windows w = windows_of(c, spatial_of(filter), spatial_of(x));
  return {conv_of(c, x, filter, w, border_of(c), c.integer("groups"), channel_bias(c, filter.shape()[0]))};
}

Results separable_conv_op(Call& c) {
  const Value x = c.tensor("input"), plane = c.tensor("plane_filter"), point = c.tensor("point_filter");
  check_filter(c, x, plane);
  check_filter(c, x, point);
  const Windows w = windows_of(c, spatial_of(plane), spatial_of(x));
  const Value filtered = conv_of(c, x, plane, w, border_of(c), 0, std::nullopt);
  const Windows through = windows_around(c, spatial_of(point), spatial_of(filtered));
  return {
      conv_of(c, filtered, point, through, Border::Constant, c.integer("groups"), channel_bias(c, point.shape()[0]))};
}

/// The geometry's arguments are those of the call; without `output` the channels of planes are those of the input.
Value deconv_of(Call& c, const Value& x, const Value& filter, std::int64_t groups, bool biased) {
  check_filter(c, x, filter);
  const Ints given = c.ints("output_shape");
  if (!given.empty() && given.size() != static_cast<std::size_t>(x.shape().rank()))
    c.wrong(formatted("'output_shape' has {} entries", given.size()));
  if (groups == 0) groups = given.empty() ? x.shape()[1] : given[1];
  if (groups < 1 || filter.shape()[0] != x.shape()[1] || filter.shape()[0] % groups != 0)
    c.wrong(formatted("a filter of {} with {} groups for an input of {}", filter.shape().to_string(), groups,
                      x.shape().to_string()));
  const std::int64_t channels = filter.shape()[1] * groups;
  if (!given.empty() && (given[0] != x.shape()[0] || given[1] != channels))
    c.wrong(formatted("'output_shape' is not that of {} samples with {} channels", x.shape()[0], channels));
  const Ints n = spatial_of(x), size = spatial_of(filter);
  const Ints extents = given.empty() ? spread_extents(c, n, size) : Ints(given.begin() + 2, given.end());
  const Windows w = spread_windows(c, n, size, extents);
  return transposed_conv(c, x, filter, w, extents, groups, biased ? channel_bias(c, channels) : std::nullopt);
}

Results deconv_op(Call& c) {
  no_made_border(c);
  return {deconv_of(c, c.tensor("input"), c.tensor("filter"), c.integer("groups"), true)};
}

Results separable_deconv_op(Call& c) {
  no_made_border(c);
  const Value x = c.tensor("input"), plane = c.tensor("plane_filter"), point = c.tensor("point_filter");
  check_filter(c, x, point);
  check_filter(c, x, plane);
  const Ints n = spatial_of(x);
  if (spatial_of(point) != Ints(n.size(), 1)) c.wrong(formatted("a point filter of {}", point.shape().to_string()));
  const std::int64_t groups = c.integer("groups") == 0 ? x.shape()[1] : c.integer("groups");
  if (groups < 1 || point.shape()[0] != x.shape()[1] || point.shape()[0] % groups != 0)
    c.wrong(formatted("a point filter of {} with {} groups for an input of {}", point.shape().to_string(), groups,
                      x.shape().to_string()));
  const Value filtered = transposed_conv(c, x, point, one_by_one(n.size()), n, groups);
  return {deconv_of(c, filtered, plane, 0, true)};
}

Results matmul_op(Call& c) {
  const Value a = c.tensor("A"), b = c.tensor("B");
  if (a.shape().rank() != b.shape().rank() || a.shape().rank() < 2)
    c.wrong(formatted("a product of {} and {}; equal ranks of at least 2 are needed", a.shape().to_string(),
                      b.shape().to_string()));
  return {matmul(a, b, c.flag("transposeA"), c.flag("transposeB"))};
}

Results linear_op(Call& c) {
  const Value x = c.tensor("input"), filter = c.tensor("filter");
  if (x.shape().rank() != 2 || filter.shape().rank() != 2)
    c.wrong(formatted("{} and {} are no matrices", x.shape().to_string(), filter.shape().to_string()));
  return {linear(x, filter, channel_bias(c, filter.shape()[0]))};
}

#define NNEF_WINDOWS \
  "border: string = 'constant', padding: (integer, integer)[] = [], stride: integer[] = [], dilation: integer[] = []"

}  // namespace

std::span<const Operation> product_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"matmul",
       "(A: tensor<scalar>, B: tensor<scalar>, transposeA: logical = false, transposeB: logical = false) -> (C: "
       "tensor<scalar>)",
       matmul_op},
      {"linear",
       "(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0) -> (output: tensor<scalar>)",
       linear_op},
      {"conv",
       "(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0, " NNEF_WINDOWS
       ", groups: integer = 1) -> (output: tensor<scalar>)",
       conv_op, "over one or two axes"},
      {"deconv",
       "(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0, " NNEF_WINDOWS
       ", output_shape: integer[] = [], groups: integer = 1) -> (output: tensor<scalar>)",
       deconv_op, "over one or two axes; borders 'constant' and 'ignore'"},
      {"separable_conv",
       "(input: tensor<scalar>, plane_filter: tensor<scalar>, point_filter: tensor<scalar>, bias: tensor<scalar> = "
       "0.0, " NNEF_WINDOWS ", groups: integer = 1) -> (output: tensor<scalar>)",
       separable_conv_op, "over one or two axes"},
      {"separable_deconv",
       "(input: tensor<scalar>, plane_filter: tensor<scalar>, point_filter: tensor<scalar>, bias: tensor<scalar> = "
       "0.0, " NNEF_WINDOWS ", output_shape: integer[] = [], groups: integer = 1) -> (output: tensor<scalar>)",
       separable_deconv_op, "over one or two axes; borders 'constant' and 'ignore'"},
  });
  return table;
}

}  // namespace aeshna::nnef
