#pragma once
// Affine index maps: how the coordinates of an iteration space address a tensor seen through movement ops.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "aeshna/graph.h"
#include "ir/kernel.h"

namespace aeshna {

/// sum(coefficient[j] * x[j]) + offset, over the dimensions x of an iteration space.
struct AffineExpr {
  std::vector<std::int64_t> coefficient;
  std::int64_t offset = 0;
  bool is_constant() const;
  friend bool operator==(const AffineExpr&, const AffineExpr&) = default;
};

/// One expression per axis of a tensor, valid where all guards hold (outside, nothing may be read).
struct IndexMap {
  std::vector<AffineExpr> axes;
  std::vector<Access::Guard> guards;
  friend bool operator==(const IndexMap&, const IndexMap&) = default;
};

/// A request to split dimension `dim` of the space into (extent / inner, inner); the builder restarts with it.
struct SplitRequest {
  std::uint32_t dim;
  std::int64_t inner;
};

/// The constant 0.
AffineExpr zero_expr(std::size_t space_rank);

/// axes[i] = x[first + i].
IndexMap identity_map(std::size_t space_rank, std::size_t first, std::size_t count);

/// Operand of a broadcasting op: trailing axes align, axes of extent 1 read index 0.
IndexMap map_broadcast(const IndexMap& result, const Shape& result_shape, const Shape& operand_shape);
IndexMap map_permute(const IndexMap& result, std::span<const std::int64_t> axes);
IndexMap map_slice(const IndexMap& result, std::span<const std::int64_t> starts, std::span<const std::int64_t> steps);

/// Coordinates of `axes` run backwards.
IndexMap map_flip(const IndexMap& result, std::span<const std::int64_t> axes, const Shape& shape);
/// Source of a view of windows: result axes are those of the source, the last ones counting windows, then the positions in a
/// window; source = window * stride + position * dilation. The source is the padded tensor: map_pad follows.
IndexMap map_windows(const IndexMap& result, std::span<const std::int64_t> strides, std::span<const std::int64_t> dilations);

struct GuardedMap {
  IndexMap map;                       ///< shifted, without the new guards
  std::vector<Access::Guard> guards;  ///< where the source exists
  bool never = false;                 ///< no coordinate is inside
};
/// Source of `pad` (or of one part of a concat with `before` = its start).
GuardedMap map_pad(const IndexMap& result, std::span<const std::int64_t> before, const Shape& source_shape,
                   std::span<const std::int64_t> extents);

/// Source of a reshape. Nullopt when the map cannot be expressed; then `split`, if set, says which split of the space would help.
std::optional<IndexMap> map_reshape(const IndexMap& result, const Shape& result_shape, const Shape& source_shape,
                                    std::span<const std::int64_t> extents, std::optional<SplitRequest>& split);

/// Memory access of a dense tensor under a map.
Access dense_access(const IndexMap& map, const Shape& shape, std::size_t space_rank);

}  // namespace aeshna
