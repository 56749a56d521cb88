// Operations that move elements or change shapes.
#include <algorithm>
#include <array>
#include <numeric>

#include "io/nnef/operation.h"
#include "io/nnef/window.h"

namespace aeshna::nnef {
namespace {

void check_rank(const Call& c, std::size_t rank) {
  if (rank > Shape::kMaxRank) c.refuse(formatted("a tensor of rank {}; the largest is {}", rank, Shape::kMaxRank));
}

/// 0 takes the input's extent, -1 what is left; only axis_count axes from axis_start on change.
Results reshape_op(Call& c) {
  const Value x = c.tensor("input");
  const int rank = x.shape().rank();
  const std::int64_t start = c.integer("axis_start");
  std::int64_t count = c.integer("axis_count");
  if (start < 0 || start > rank) c.wrong(formatted("'axis_start' is {} for rank {}", start, rank));
  if (count == -1) count = rank - start;
  if (count < 0 || start + count > rank)
    c.wrong(formatted("'axis_count' is {} from axis {} of rank {}", count, start, rank));
  const Ints own = dims_of(x.shape());
  Ints dims(own.begin(), own.begin() + start);
  std::int64_t left =
      std::accumulate(own.begin() + start, own.begin() + start + count, std::int64_t{1}, std::multiplies<>());
  std::size_t open = SIZE_MAX;
  const Ints shape = c.ints("shape");
  const auto mismatch = [&] { c.wrong(formatted("{} cannot get the shape asked for", x.shape().to_string())); };
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t d = shape[i];
    if (d == 0) {
      if (static_cast<std::int64_t>(i) >= count)
        c.wrong(formatted("'shape' has 0 at {}, where the input has no axis", i));
      d = own[static_cast<std::size_t>(start) + i];
    }
    if (d < -1) c.wrong(formatted("'shape' holds {}", d));
    if (d == -1) {
      if (open != SIZE_MAX) c.wrong("'shape' holds -1 twice");
      open = dims.size();
    } else {
      if (d == 0 || left % d != 0) mismatch();
      left /= d;
    }
    dims.push_back(d);
  }
  if (open != SIZE_MAX) dims[open] = left;
  if (open == SIZE_MAX && left != 1) mismatch();
  dims.insert(dims.end(), own.begin() + start + count, own.end());
  check_rank(c, dims.size());
  return {reshape(x, dims)};
}

/// Axes beyond those listed stay where they are.
Results transpose_op(Call& c) {
  const Value x = c.tensor("input");
  Ints axes = c.ints("axes"), sorted = axes;
  if (axes.size() > static_cast<std::size_t>(x.shape().rank()))
    c.wrong(formatted("{} axes for rank {}", axes.size(), x.shape().rank()));
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<std::int64_t>(i)) c.wrong("'axes' is no permutation");
  }
  for (int i = static_cast<int>(axes.size()); i < x.shape().rank(); ++i) axes.push_back(i);
  return {permute(x, axes)};
}

Results concat_op(Call& c) {
  const std::vector<Value> parts = c.tensors("values");
  if (parts.empty()) c.wrong("nothing to join");
  return {concat(parts, c.axis("axis", parts[0].shape().rank()))};
}

Results split_op(Call& c) {
  const Value x = c.tensor("value");
  const std::int64_t axis = c.axis("axis", x.shape().rank());
  const Ints ratios = c.ints("ratios");
  if (ratios.empty() || std::ranges::any_of(ratios, [](std::int64_t r) { return r < 1; }))
    c.wrong("'ratios' must be positive");
  const std::int64_t total = std::accumulate(ratios.begin(), ratios.end(), std::int64_t{0}),
                     extent = x.shape()[static_cast<int>(axis)];
  if (extent % total != 0) c.wrong(formatted("the sum {} of the ratios does not divide the extent {}", total, extent));
  std::vector<Any> parts;
  std::int64_t at = 0;
  for (const std::int64_t ratio : ratios) {
    const std::int64_t end = at + ratio * (extent / total);
    parts.emplace_back(slice(x, {axis}, {at}, {end}));
    at = end;
  }
  return {make_array(std::move(parts))};
}

Results stack_op(Call& c) {
  std::vector<Value> parts = c.tensors("values");
  if (parts.empty()) c.wrong("nothing to stack");
  const Ints dims = dims_of(parts[0].shape());
  check_rank(c, dims.size() + 1);
  const std::int64_t axis = c.axis("axis", static_cast<int>(dims.size()) + 1);
  for (Value& part : parts) {
    if (dims_of(part.shape()) != dims)
      c.wrong(formatted("shapes {} and {} differ", parts[0].shape().to_string(), part.shape().to_string()));
  }
  Ints with_axis = dims;
  with_axis.insert(with_axis.begin() + axis, 1);
  for (Value& part : parts) part = reshape(part, with_axis);
  return {concat(parts, axis)};
}

Results unstack_op(Call& c) {
  const Value x = c.tensor("value");
  const std::int64_t axis = c.axis("axis", x.shape().rank());
  Ints dims = dims_of(x.shape());
  const std::int64_t extent = dims[static_cast<std::size_t>(axis)];
  if (extent > (1 << 16)) c.refuse(formatted("{} results", extent));
  dims.erase(dims.begin() + axis);
  std::vector<Any> parts;
  for (std::int64_t i = 0; i < extent; ++i) parts.emplace_back(reshape(slice(x, {axis}, {i}, {i + 1}), dims));
  return {make_array(std::move(parts))};
}

/// Negative bounds count from the end; an end of 0 with stride 1 means the end. A negative stride runs from begin down to behind end.
Results slice_op(Call& c) {
  Value x = c.tensor("input");
  const Ints axes = c.ints("axes"), begin = c.ints("begin"), end = c.ints("end");
  Ints stride = c.ints("stride");
  (void)c.axes("axes", x.shape().rank());
  if (stride.empty()) stride.assign(axes.size(), 1);
  if (begin.size() != axes.size() || end.size() != axes.size() || stride.size() != axes.size())
    c.wrong("'axes', 'begin', 'end' and 'stride' differ in length");
  Ints starts, ends, steps, turned;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t n = x.shape()[static_cast<int>(axes[i])], s = stride[i];
    if (s == 0) c.wrong("'stride' holds 0");
    std::int64_t first = begin[i] < 0 ? begin[i] + n : begin[i];
    std::int64_t last = end[i] < 0 ? end[i] + n : end[i] == 0 && s == 1 ? n : end[i];
    first = std::clamp<std::int64_t>(first, s > 0 ? 0 : -1, s > 0 ? n : n - 1);
    last = std::clamp<std::int64_t>(last, -1, n);
    const std::int64_t distance = s > 0 ? last - first : first - last, step = s > 0 ? s : -s;
    if (distance < 1)
      c.wrong(formatted("nothing is left of axis {} of extent {} between {} and {}", axes[i], n, begin[i], end[i]));
    const std::int64_t count = (distance + step - 1) / step;
    starts.push_back(s > 0 ? first : first - (count - 1) * step);
    ends.push_back(s > 0 ? last : first + 1);
    steps.push_back(step);
    if (s < 0) turned.push_back(axes[i]);
  }
  x = axes.empty() ? x : slice(x, axes, starts, ends, steps);
  return {turned.empty() ? x : flip(x, turned)};
}

Results squeeze_op(Call& c) {
  const Value x = c.tensor("input");
  Ints dims = dims_of(x.shape()), axes = c.axes("axes", x.shape().rank());
  for (std::size_t i = axes.size(); i-- > 0;) {
    const auto at = dims.begin() + axes[i];
    if (*at != 1) c.wrong(formatted("axis {} has the extent {}, not 1", axes[i], *at));
    dims.erase(at);
  }
  return {reshape(x, dims)};
}

Results unsqueeze_op(Call& c) {
  const Value x = c.tensor("input");
  Ints dims = dims_of(x.shape());
  const std::size_t rank = dims.size() + c.ints("axes").size();
  check_rank(c, rank);
  for (const std::int64_t axis : c.axes("axes", static_cast<int>(rank))) dims.insert(dims.begin() + axis, 1);
  return {reshape(x, dims)};
}

Results tile_op(Call& c) {
  const Value x = c.tensor("input");
  const Ints repeats = c.ints("repeats");
  if (repeats.size() != static_cast<std::size_t>(x.shape().rank()))
    c.wrong(formatted("{} repeats for rank {}", repeats.size(), x.shape().rank()));
  if (std::ranges::any_of(repeats, [](std::int64_t r) { return r < 1; })) c.wrong("'repeats' must be positive");
  return {tile(x, repeats)};
}

Results pad_op(Call& c) {
  const Value x = c.tensor("input");
  const Pairs padding = c.pairs("padding");
  if (padding.size() != static_cast<std::size_t>(x.shape().rank()))
    c.wrong(formatted("{} paddings for rank {}", padding.size(), x.shape().rank()));
  Ints before, after;
  for (const auto& [b, a] : padding) {
    before.push_back(b);
    after.push_back(a);
  }
  if (c.text("border") == "ignore") c.wrong("border 'ignore' leaves nothing to pad with");
  return {padded(c, x, before, after, border_of(c), c.number("value"))};
}

Results gather_op(Call& c) {
  const Value x = c.tensor("input"), indices = c.tensor("indices");
  check_rank(c, static_cast<std::size_t>(x.shape().rank() + indices.shape().rank() - 1));
  return {gather(x, indices, c.axis("axis", x.shape().rank()))};
}

Results cast_op(Call& c) {
  if (!c.invocation.element) c.wrong("the type to cast to is not known: cast<scalar>(...)");
  const Type::Kind to = c.invocation.element->kind;
  if (to == Type::Kind::String || to == Type::Kind::Generic)
    c.wrong(formatted("a cast to {}", c.invocation.element->to_string()));
  return {cast(c.tensor("input"), dtype_of(to))};
}

}  // namespace

std::span<const Operation> shape_operations() {
  static constexpr auto table = std::to_array<Operation>({
      {"reshape",
       "<?>(input: tensor<?>, shape: integer[], axis_start: integer = 0, axis_count: integer = -1) -> (output: "
       "tensor<?>)",
       reshape_op},
      {"transpose", "<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)", transpose_op},
      {"concat", "<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)", concat_op},
      {"split", "<?>(value: tensor<?>, axis: integer, ratios: integer[]) -> (values: tensor<?>[])", split_op},
      {"slice",
       "<?>(input: tensor<?>, axes: integer[], begin: integer[], end: integer[], stride: integer[] = []) -> (output: "
       "tensor<?>)",
       slice_op, "empty results are an error"},
      {"squeeze", "<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)", squeeze_op},
      {"unsqueeze", "<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)", unsqueeze_op},
      {"stack", "<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)", stack_op},
      {"unstack", "<?>(value: tensor<?>, axis: integer) -> (values: tensor<?>[])", unstack_op, "up to 65,536 results"},
      {"tile", "<?>(input: tensor<?>, repeats: integer[]) -> (output: tensor<?>)", tile_op},
      {"pad",
       "(input: tensor<scalar>, padding: (integer, integer)[], border: string = 'constant', value: scalar = 0.0) -> "
       "(output: tensor<scalar>)",
       pad_op},
      {"gather", "<?>(input: tensor<?>, indices: tensor<integer>, axis: integer = 0) -> (output: tensor<?>)",
       gather_op},
      {"cast", "<?>(input: tensor<>) -> (output: tensor<?>)", cast_op},
  });
  return table;
}

}  // namespace aeshna::nnef
