// split_reductions: a reduction whose single result needs more of a tensor than one descriptor covers, or lies in several buffers,
// becomes reductions of slices, whose results are combined in order. (What a row split cannot do: it cuts kernels between results.)
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "compile/stages.h"
#include "ir/device_types.h"
#include "ir/op.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

std::string_view combining(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::Sum:
      return "add";
    case ReduceKind::Max:
      return "maximum";
    case ReduceKind::Min:
      return "minimum";
    case ReduceKind::Prod:
      return "mul";
    default:
      return {};  // an index: stays whole
  }
}

class Splitter {
 public:
  Splitter(const Graph& graph, const Caps& caps)
      : graph_(graph),
        caps_(caps),
        bytes_(static_cast<std::int64_t>(std::min<std::uint64_t>(caps.max_storage_range, INT64_MAX)) -
               std::max<std::int64_t>(caps.storage_alignment, 4)),
        uses_(count_uses(graph)),
        rebuild_(graph) {}

  struct Cut {
    int axis;
    std::vector<std::int64_t> starts;  ///< of the slices; the first is 0
  };

  /// Whether one result of this reduction reaches over more than a window, and where to cut.
  std::optional<Cut> cut(const Node& node) {
    if (node.op->kind != OpKind::Reduce || combining(node.op->reduce).empty()) return std::nullopt;
    const Shape& shape = graph_.type(node.inputs[0]).shape;
    if (shape.elements() == 0) return std::nullopt;
    auto [axis, rows] = long_axis(node, shape);
    std::set<std::int64_t> starts;
    for (const View& view : views(node.inputs[0])) add_cuts(node, shape, view, axis, starts);
    if (axis < 0) return std::nullopt;
    starts.insert(0);
    for (auto at = starts.begin(); at != starts.end(); ++at) {
      const auto next = std::next(at);
      const std::int64_t end = next == starts.end() ? shape[axis] : *next;
      if (end - *at > rows) starts.insert(*at + rows);
    }
    return Cut{axis, {starts.begin(), starts.end()}};
  }

  std::shared_ptr<Graph> run() {
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.node(id);
      const auto where = cut(node);
      if (!where) {
        rebuild_.copy(id);
        continue;
      }
      sliced_.clear();
      const std::int64_t extent = graph_.type(node.inputs[0]).shape[where->axis];
      const bool half = is_half(node.results[0].dtype);
      std::optional<ValueId> total;
      for (std::size_t i = 0; i < where->starts.size(); ++i) {
        const std::int64_t end = i + 1 < where->starts.size() ? where->starts[i + 1] : extent;
        // The parts of a 16-bit sum are f32: it is rounded once.
        ValueId part = sliced(node.inputs[0], where->axis, where->starts[i], end, node);
        if (half) part = add(find_op("cast"), {part}, {{"dtype", DType::f32}}, node);
        const ValueId result = add(*node.op, {part}, node.attrs, node);
        total = total ? add(find_op(combining(node.op->reduce)), {*total, result}, {}, node) : result;
      }
      if (half) total = add(find_op("cast"), {*total}, {{"dtype", node.results[0].dtype}}, node);
      rebuild_.map(id, {rebuild_.target().value(*total)});
    }
    return rebuild_.finish();
  }

 private:
  /// The outermost reduced axis in memory if a result reaches over more than a window wherever that begins, with the rows that a
  /// slice may have; else axis -1. Everything inside that axis lies between two of its rows.
  std::pair<int, std::int64_t> long_axis(const Node& node, const Shape& shape) const {
    const std::pair none(-1, shape.elements());
    const DeviceUnit unit = device_unit(graph_.type(node.inputs[0]).dtype);
    const std::int64_t limit = bytes_ / unit.bytes * unit.elements;
    if (limit < 1 || shape.elements() <= limit) return none;
    std::int64_t inner = shape.elements();
    for (const std::int64_t axis : memory_order(node.inputs[0])) {
      const std::int64_t extent = shape[static_cast<int>(axis)];
      const std::int64_t whole = inner;
      inner /= extent;
      if (extent < 2 || !reduces(node, axis)) continue;
      if (whole <= limit) return none;
      return {static_cast<int>(axis), std::max<std::int64_t>(limit / inner, 1)};
    }
    return none;
  }

  static bool reduces(const Node& node, std::int64_t axis) { return std::ranges::contains(node.attrs.get<Ints>("axes"), axis); }

  /// How a value lies in a tensor that several buffers hold.
  struct View {
    std::int64_t part = 0;  ///< elements of a buffer
    std::int64_t offset = 0;
    Ints strides;  ///< per axis of the value
    friend bool operator==(const View&, const View&) = default;
  };

  static Ints dense_strides(const Shape& shape) {
    Ints strides(static_cast<std::size_t>(shape.rank()), 1);
    for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[static_cast<int>(d)];
    return strides;
  }

  /// Of what a value is computed from, elementwise or by movement, and of itself: any of them may be what a kernel reads.
  const std::vector<View>& views(ValueId value) {
    if (const auto found = views_.find(value); found != views_.end()) return found->second;
    const Node& node = graph_.node(value.node);
    const TensorType& type = graph_.type(value);
    std::vector<View> result;
    const auto add = [&](View view) {
      if (!std::ranges::contains(result, view)) result.push_back(std::move(view));
    };
    if (const std::int64_t part = part_elements(type, caps_); part > 0) add({part, 0, dense_strides(type.shape)});
    if (node.op->kind == OpKind::Pointwise) {
      for (const ValueId input : node.inputs) {
        if (graph_.type(input).shape != type.shape) continue;
        for (const View& view : views(input)) add(view);
      }
    } else if (node.op->movement == MovementKind::Permute) {
      const auto& axes = node.attrs.get<Ints>("axes");
      for (View view : views(node.inputs[0])) {
        const Ints strides = view.strides;
        for (std::size_t d = 0; d < axes.size(); ++d) view.strides[d] = strides[static_cast<std::size_t>(axes[d])];
        add(std::move(view));
      }
    } else if (node.op->movement == MovementKind::Slice) {
      const auto &starts = node.attrs.get<Ints>("starts"), &steps = node.attrs.get<Ints>("steps");
      for (View view : views(node.inputs[0])) {
        for (std::size_t d = 0; d < starts.size(); ++d) {
          view.offset += view.strides[d] * starts[d];
          view.strides[d] *= steps[d];
        }
        add(std::move(view));
      }
    } else if (node.op->movement == MovementKind::Reshape) {
      const Ints dense = dense_strides(graph_.type(node.inputs[0]).shape);
      for (const View& view : views(node.inputs[0])) {
        if (view.strides == dense) add({view.part, view.offset, dense_strides(type.shape)});
      }
    }
    return views_.emplace(value, std::move(result)).first->second;
  }

  /// Coordinates of the outermost reduced axis of a view (into `axis`, where that is not known) at which to cut, so that no result
  /// needs elements from both sides of the end of a buffer; where a single row does, it comes to stand alone.
  void add_cuts(const Node& node, const Shape& shape, const View& view, int& axis, std::set<std::int64_t>& starts) const {
    int outermost = -1;
    std::int64_t stride = 0, high = view.offset;
    for (int d = 0; d < shape.rank(); ++d) {
      const std::int64_t own = view.strides[static_cast<std::size_t>(d)];
      high += own * (shape[d] - 1);
      if (shape[d] < 2 || own <= stride || !reduces(node, d)) continue;
      outermost = d;
      stride = own;
    }
    if (outermost < 0 || (axis >= 0 && axis != outermost)) return;
    std::int64_t inner = 0, repeat = 0;  // elements within a row; distance of the results that the axis belongs to
    for (int d = 0; d < shape.rank(); ++d) {
      const std::int64_t own = view.strides[static_cast<std::size_t>(d)];
      if (d == outermost || shape[d] < 2) continue;
      if (own <= stride) inner += own * (shape[d] - 1);
      if (own > stride) repeat = repeat == 0 ? own : std::min(repeat, own);
    }
    for (std::int64_t end = (view.offset / view.part + 1) * view.part; end <= high; end += view.part) {
      const std::int64_t at = repeat > 0 ? (end - view.offset) % repeat : end - view.offset;
      const std::int64_t before = at > inner ? (at - 1 - inner) / stride + 1 : 0;  // rows that end before the cut
      for (const std::int64_t start : {before, ceil_div(at, stride)}) {
        if (start <= 0 || start >= shape[outermost]) continue;
        starts.insert(start);
        axis = outermost;
      }
    }
  }

  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, const Node& like) {
    Node plain = like;
    plain.name.clear();
    return {rebuild_.target().add_node(op, std::move(inputs), std::move(attrs), plain), 0};
  }

  /// Axes of a value, outermost in memory first.
  Ints memory_order(ValueId value) const {
    Ints order, stored;  // stored[d]: axis d of the value in memory
    for (int d = 0; d < graph_.type(value).shape.rank(); ++d) order.push_back(d);
    stored = order;
    for (const Node* node = &graph_.node(value.node);; node = &graph_.node(node->inputs[0].node)) {
      if (node->op->movement == MovementKind::Permute) {
        const auto& axes = node->attrs.get<Ints>("axes");
        for (std::int64_t& axis : stored) axis = axes[static_cast<std::size_t>(axis)];
      } else if (node->op->movement != MovementKind::Slice) {
        break;
      }
    }
    std::ranges::sort(order, {}, [&](std::int64_t d) { return stored[static_cast<std::size_t>(d)]; });
    return order;
  }

  /// Rows [start, end) of a value of the old graph. Pointwise nodes that nobody else reads are computed for the rows alone.
  ValueId sliced(ValueId value, int axis, std::int64_t start, std::int64_t end, const Node& like) {
    const auto key = std::tuple(value, axis, start);
    if (const auto found = sliced_.find(key); found != sliced_.end()) return found->second;
    const Node& node = graph_.node(value.node);
    const Shape& shape = graph_.type(value).shape;
    ValueId result;
    if (node.op->kind == OpKind::Pointwise && uses_[value.node][0] == 1) {
      std::vector<ValueId> inputs;
      for (const ValueId input : node.inputs) {
        const Shape& operand = graph_.type(input).shape;
        const int own = axis - (shape.rank() - operand.rank());
        const bool varies = own >= 0 && operand[own] != 1;
        inputs.push_back(varies ? sliced(input, own, start, end, like) : rebuild_.mapped(input).id());
      }
      result = add(*node.op, std::move(inputs), node.attrs, node);
    } else {
      Ints axes, starts, ends(shape.begin(), shape.end()), steps;
      for (int d = 0; d < shape.rank(); ++d) {
        axes.push_back(d);
        starts.push_back(d == axis ? start : 0);
        steps.push_back(1);
      }
      ends[static_cast<std::size_t>(axis)] = end;
      result = add(find_op("slice"), {rebuild_.mapped(value).id()},
                   {{"axes", std::move(axes)},
                    {"starts", std::move(starts)},
                    {"ends", std::move(ends)},
                    {"steps", std::move(steps)}},
                   like);
    }
    sliced_.emplace(key, result);
    return result;
  }

  const Graph& graph_;
  const Caps& caps_;
  std::int64_t bytes_;  ///< that a window covers wherever it begins
  std::vector<std::vector<std::uint32_t>> uses_;
  Rebuilder rebuild_;
  std::map<ValueId, std::vector<View>> views_;
  std::map<std::tuple<ValueId, int, std::int64_t>, ValueId> sliced_;
};

}  // namespace

std::shared_ptr<Graph> split_reductions(std::shared_ptr<Graph> graph, const Caps& caps) {
  while (true) {  // rows that are too long by themselves are cut again, along the next axis
    Splitter splitter(*graph, caps);
    if (std::ranges::none_of(graph->nodes(), [&](const Node& node) { return splitter.cut(node).has_value(); }))
      return graph;
    graph = splitter.run();
  }
}

}  // namespace aeshna
