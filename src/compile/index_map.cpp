#include "compile/index_map.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

bool AffineExpr::is_constant() const {
  return std::ranges::all_of(coefficient, [](std::int64_t c) { return c == 0; });
}

std::optional<std::uint32_t> AffineExpr::single_dim() const {
  std::optional<std::uint32_t> found;
  for (std::uint32_t j = 0; j < coefficient.size(); ++j) {
    if (coefficient[j] == 0) continue;
    if (found) return std::nullopt;
    found = j;
  }
  return found;
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

namespace {

AffineExpr zero_expr(std::size_t space_rank) {
  AffineExpr e;
  e.coefficient.assign(space_rank, 0);
  return e;
}

}  // namespace

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

std::optional<GuardedMap> map_pad(const IndexMap& result, std::span<const std::int64_t> before, const Shape& source_shape,
                                  std::span<const std::int64_t> extents) {
  GuardedMap out;
  out.map = result;
  for (std::size_t d = 0; d < out.map.axes.size(); ++d) {
    AffineExpr& e = out.map.axes[d];
    e.offset -= before[d];
    const std::int64_t extent = source_shape[static_cast<int>(d)];
    if (e.is_constant()) {
      if (e.offset < 0 || e.offset >= extent) out.never = true;
      continue;
    }
    // Range of the expression over the whole space: no guard is needed when it never leaves the source.
    std::int64_t low = e.offset, high = e.offset;
    for (std::size_t j = 0; j < extents.size(); ++j) {
      const std::int64_t reach = e.coefficient[j] * std::max<std::int64_t>(extents[j] - 1, 0);
      (reach < 0 ? low : high) += reach;
    }
    if (low >= 0 && high < extent) continue;
    const auto dim = e.single_dim();
    if (!dim) return std::nullopt;
    const std::int64_t c = e.coefficient[*dim];
    if (c <= 0) return std::nullopt;  // negative strides never arise from the vocabulary
    // 0 <= c x + o < extent
    const std::int64_t first = e.offset >= 0 ? 0 : ceil_div(-e.offset, c);
    const std::int64_t last = extent - e.offset <= 0 ? 0 : ceil_div(extent - e.offset, c);
    if (first >= last) out.never = true;
    out.guards.push_back({*dim, first, std::max(first, last)});
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
        if (c < 0 || c % axis_stride != 0) return std::nullopt;
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
