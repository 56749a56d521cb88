#include "compile/index_map.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

bool AffineExpr::is_constant() const {
  return std::ranges::all_of(coefficient, [](std::int64_t c) { return c == 0; });
}

IndexMap identity_map(std::size_t space_rank, std::size_t first, std::size_t count) {
  IndexMap map;
  for (std::size_t i = 0; i < count; ++i) {
    AffineExpr e;
    e.coefficient.assign(space_rank, 0);
    e.coefficient[first + i] = 1;
    map.axes.push_back(std::move(e));
  }
  return map;
}

AffineExpr zero_expr(std::size_t space_rank) {
  AffineExpr e;
  e.coefficient.assign(space_rank, 0);
  return e;
}

IndexMap map_broadcast(const IndexMap& result, const Shape& result_shape, const Shape& operand_shape) {
  IndexMap map;
  map.guards = result.guards;
  const int lead = result_shape.rank() - operand_shape.rank();
  for (int d = 0; d < operand_shape.rank(); ++d) {
    const auto& e = result.axes[static_cast<std::size_t>(d + lead)];
    map.axes.push_back(operand_shape[d] == 1 ? zero_expr(e.coefficient.size()) : e);
  }
  return map;
}

IndexMap map_permute(const IndexMap& result, std::span<const std::int64_t> axes) {
  IndexMap map;
  map.guards = result.guards;
  map.axes.resize(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) map.axes[static_cast<std::size_t>(axes[i])] = result.axes[i];
  return map;
}

IndexMap map_slice(const IndexMap& result, std::span<const std::int64_t> starts, std::span<const std::int64_t> steps) {
  IndexMap map = result;
  for (std::size_t d = 0; d < map.axes.size(); ++d) {
    for (auto& c : map.axes[d].coefficient) c *= steps[d];
    map.axes[d].offset = map.axes[d].offset * steps[d] + starts[d];
  }
  return map;
}

IndexMap map_flip(const IndexMap& result, std::span<const std::int64_t> axes, const Shape& shape) {
  IndexMap map = result;
  for (const std::int64_t axis : axes) {
    AffineExpr& e = map.axes[static_cast<std::size_t>(axis)];
    for (auto& c : e.coefficient) c = -c;
    e.offset = shape[static_cast<int>(axis)] - 1 - e.offset;
  }
  return map;
}

IndexMap map_windows(const IndexMap& result, std::span<const std::int64_t> strides, std::span<const std::int64_t> dilations) {
  IndexMap map = result;
  const std::size_t first = map.axes.size() - 2 * strides.size();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    AffineExpr& e = map.axes[first + i];
    const AffineExpr& position = map.axes[first + strides.size() + i];
    for (std::size_t j = 0; j < e.coefficient.size(); ++j)
      e.coefficient[j] = e.coefficient[j] * strides[i] + position.coefficient[j] * dilations[i];
    e.offset = e.offset * strides[i] + position.offset * dilations[i];
  }
  map.axes.resize(first + strides.size());
  return map;
}

GuardedMap map_pad(const IndexMap& result, std::span<const std::int64_t> before, const Shape& source_shape,
                   std::span<const std::int64_t> extents) {
  GuardedMap out;
  out.map = result;
  for (std::size_t d = 0; d < out.map.axes.size(); ++d) {
    AffineExpr& e = out.map.axes[d];
    e.offset -= before[d];
    const std::int64_t extent = source_shape[static_cast<int>(d)];
    // Range of the expression over the whole space: no guard is needed when it never leaves the source.
    std::int64_t low = e.offset, high = e.offset;
    std::vector<Access::Guard::Term> terms;
    for (std::size_t j = 0; j < extents.size(); ++j) {
      if (e.coefficient[j] == 0) continue;
      terms.push_back({static_cast<std::uint32_t>(j), e.coefficient[j]});
      const std::int64_t reach = e.coefficient[j] * std::max<std::int64_t>(extents[j] - 1, 0);
      (reach < 0 ? low : high) += reach;
    }
    if (low >= 0 && high < extent) continue;
    if (high < 0 || low >= extent) out.never = true;
    std::int64_t from = -e.offset, to = extent - e.offset;  // of the terms' sum
    if (terms.size() == 1 && terms[0].coefficient > 0) {    // of the coordinate itself
      const std::int64_t c = std::exchange(terms[0].coefficient, 1);
      from = from <= 0 ? 0 : ceil_div(from, c);
      to = to <= 0 ? 0 : ceil_div(to, c);
    }
    if (from >= to) out.never = true;
    out.guards.emplace_back(std::move(terms), from, std::max(from, to));
  }
  return out;
}

std::optional<IndexMap> map_reshape(const IndexMap& result, const Shape& result_shape, const Shape& source_shape,
                                    std::span<const std::int64_t> extents, std::optional<SplitRequest>& split) {
  IndexMap map;
  map.guards = result.guards;
  const std::size_t space_rank = extents.size();
  if (result_shape.elements() == 0 || source_shape.elements() == 0) {
    map.axes.assign(static_cast<std::size_t>(source_shape.rank()), zero_expr(space_rank));
    return map;
  }
  // Axes of extent 1 carry nothing. The others fall into groups of equal products; a group of the result is flattened into
  // one linear expression, which is then cut into the group's source axes.
  map.axes.assign(static_cast<std::size_t>(source_shape.rank()), zero_expr(space_rank));
  int r = 0, s = 0;
  while (true) {
    while (r < result_shape.rank() && result_shape[r] == 1) ++r;
    while (s < source_shape.rank() && source_shape[s] == 1) ++s;
    if (r == result_shape.rank() || s == source_shape.rank()) break;
    int r_end = r + 1, s_end = s + 1;
    std::int64_t r_size = result_shape[r], s_size = source_shape[s];
    while (r_size != s_size) {
      if (r_size < s_size) {
        r_size *= result_shape[r_end++];
      } else {
        s_size *= source_shape[s_end++];
      }
    }
    AffineExpr linear = zero_expr(space_rank);
    std::int64_t stride = 1;
    for (int d = r_end - 1; d >= r; --d) {
      const AffineExpr& e = result.axes[static_cast<std::size_t>(d)];
      for (std::size_t j = 0; j < space_rank; ++j) linear.coefficient[j] += e.coefficient[j] * stride;
      linear.offset += e.offset * stride;
      stride *= result_shape[d];
    }
    // Dimensions that run backwards are counted from their other end meanwhile.
    std::vector<bool> backwards(space_rank, false);
    for (std::size_t j = 0; j < space_rank; ++j) {
      std::int64_t& c = linear.coefficient[j];
      if (c >= 0) continue;
      backwards[j] = true;
      linear.offset += c * std::max<std::int64_t>(extents[j] - 1, 0);
      c = -c;
    }
    // Cut into source axes, innermost first: the terms below the axis' upper bound belong to it.
    std::int64_t axis_stride = 1;
    for (int d = s_end - 1; d >= s; --d) {
      AffineExpr& axis = map.axes[static_cast<std::size_t>(d)];
      const std::int64_t upper = axis_stride * source_shape[d];
      const bool outermost = d == s;
      std::int64_t reach = 0;
      for (std::size_t j = 0; j < space_rank; ++j) {
        const std::int64_t c = linear.coefficient[j];
        if (c == 0) continue;
        if (!outermost && c % upper == 0) continue;  // belongs to an outer axis
        if (c % axis_stride != 0) return std::nullopt;
        if (!outermost && c * (extents[j] - 1) >= upper) {
          // One dimension of the space runs over several source axes: splitting it there helps when it divides.
          if (upper % c == 0 && extents[j] % (upper / c) == 0 && upper / c > 1 && upper / c < extents[j]) {
            split = SplitRequest{static_cast<std::uint32_t>(j), upper / c};
          }
          return std::nullopt;
        }
        axis.coefficient[j] = c / axis_stride;
        reach += c * (extents[j] - 1);
        linear.coefficient[j] = 0;
      }
      // The constant part: its share of this axis must not carry into the next one.
      if (linear.offset < 0) return std::nullopt;
      const std::int64_t share = outermost ? linear.offset : linear.offset % upper;
      if (share % axis_stride != 0) return std::nullopt;
      if (!outermost && share + reach >= upper) return std::nullopt;
      axis.offset = share / axis_stride;
      for (std::size_t j = 0; j < space_rank; ++j) {
        if (!backwards[j] || axis.coefficient[j] == 0) continue;
        axis.offset += axis.coefficient[j] * std::max<std::int64_t>(extents[j] - 1, 0);
        axis.coefficient[j] = -axis.coefficient[j];
      }
      linear.offset -= share;
      axis_stride = upper;
    }
    r = r_end;
    s = s_end;
  }
  return map;
}

Access dense_access(const IndexMap& map, const Shape& shape, std::size_t space_rank) {
  Access access;
  access.strides.assign(space_rank, 0);
  const auto strides = dense_strides(shape);
  for (std::size_t d = 0; d < map.axes.size(); ++d) {
    for (std::size_t j = 0; j < access.strides.size(); ++j) access.strides[j] += map.axes[d].coefficient[j] * strides[d];
    access.offset += map.axes[d].offset * strides[d];
  }
  access.guards = map.guards;
  return access;
}

}  // namespace aeshna
