#pragma once
// Sliding windows: their geometry, borders, and the view through them.
#include "io/nnef/operation.h"

namespace aeshna::nnef {

/// One entry for each axis that windows slide along.
struct Windows {
  Ints size, stride, dilation, before, after;
  std::size_t axes() const { return size.size(); }
  std::int64_t span(std::size_t i) const { return (size[i] - 1) * dilation[i] + 1; }
  bool active(std::size_t i) const { return size[i] != 1 || stride[i] != 1 || before[i] != 0 || after[i] != 0; }
  friend bool operator==(const Windows&, const Windows&) = default;
};

enum class Border : std::uint8_t { Constant, Ignore, Replicate, Reflect, ReflectEven };
Border border_of(const Call& c);

/// More elements, or fewer where a count is negative, along each axis; `value` is that of a constant border.
Value padded(const Call& c, Value x, Ints before, Ints after, Border border, double value = 0);

/// From the arguments padding, stride and dilation. Without padding each axis of n gives ceil(n / stride) windows, and what that
/// needs is padded half before and half behind, the odd one behind.
Windows windows_of(const Call& c, const Ints& size, const Ints& extents);
/// Stride 1, one window for each element.
Windows windows_around(const Call& c, const Ints& size, const Ints& extents);
/// Windows along an axis of that extent; at least one, else the call is wrong.
std::int64_t window_count(const Call& c, const Windows& w, std::size_t i, std::int64_t extent);

/// Replicated and reflected borders are made, so that none is left of them.
void make_border(const Call& c, Value& x, Windows& w, Border border);

/// x [...] seen through windows over all its axes: [windows..., kernel...], where only axes with something to see have a kernel axis.
struct WindowView {
  Value value;
  Axes kernel;
};
WindowView window_view(const Call& c, Value x, const Windows& w, double fill);

/// Whether max_pool and avg_pool take it: the last one or two axes of [N, C, ...], padding of half a window at most.
bool poolable(const Windows& w, const Shape& x);
PoolOptions pool_options(const Windows& w);

/// What deconv, debox and desample give: `output_shape`, or what n windows of these sizes need.
Ints spread_extents(const Call& c, const Ints& n, const Ints& size);
/// The windows over those extents, of which there must be n.
Windows spread_windows(const Call& c, const Ints& n, const Ints& size, const Ints& extents);
/// Refuses borders that would have to be made of the result.
void no_made_border(const Call& c);

/// The sum or the average over each window.
Value box(Call& c, Value x, Windows w, Border border, bool normalize);

/// x [N, C, n...] or [N, C, n] with filter [C, K / groups, size...] to [N, K, extents...], or the 1-D case along the last axis:
/// element i of an axis adds to the results i stride - before + k dilation that exist.
Value transposed_conv(const Call& c, Value x, Value filter, const Windows& w, const Ints& extents, std::int64_t groups,
                      std::optional<Value> bias = {});

}  // namespace aeshna::nnef
