// split_reductions: a reduction whose single result needs more of a tensor than one descriptor covers becomes reductions of slices,
// whose results are combined in order. (What a row split cannot do: it cuts kernels between results.)
#include <algorithm>
#include <map>
#include <optional>
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
        bytes_(static_cast<std::int64_t>(std::min<std::uint64_t>(caps.max_storage_range, INT64_MAX)) -
               std::max<std::int64_t>(caps.storage_alignment, 4)),
        uses_(count_uses(graph)),
        rebuild_(graph) {}

  struct Cut {
    int axis;
    std::int64_t rows;  ///< of a slice
  };

  /// Whether one result of this reduction reaches over more than a descriptor covers, and where to cut.
  std::optional<Cut> cut(const Node& node) const {
    if (node.op->kind != OpKind::Reduce || combining(node.op->reduce).empty()) return std::nullopt;
    const Shape& shape = graph_.type(node.inputs[0]).shape;
    const DeviceUnit unit = device_unit(graph_.type(node.inputs[0]).dtype);
    const std::int64_t limit = bytes_ / unit.bytes * unit.elements;
    if (limit < 1 || shape.elements() <= limit) return std::nullopt;
    // The outermost reduced axis in memory decides: everything inside it lies between two of its rows.
    const auto& axes = node.attrs.get<Ints>("axes");
    const Ints order = memory_order(node.inputs[0]);
    std::int64_t inner = shape.elements();
    for (const std::int64_t axis : order) {
      const std::int64_t extent = shape[static_cast<int>(axis)];
      const std::int64_t whole = inner;
      inner /= extent;
      if (extent < 2 || std::ranges::find(axes, axis) == axes.end()) continue;
      if (whole <= limit) return std::nullopt;
      return Cut{static_cast<int>(axis), std::max<std::int64_t>(limit / inner, 1)};
    }
    return std::nullopt;
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
      for (std::int64_t start = 0; start < extent; start += where->rows) {
        // The parts of a 16-bit sum are f32: it is rounded once.
        ValueId part = sliced(node.inputs[0], where->axis, start, std::min(start + where->rows, extent), node);
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
                   {{"axes", std::move(axes)}, {"starts", std::move(starts)}, {"ends", std::move(ends)}, {"steps", std::move(steps)}}, like);
    }
    sliced_.emplace(key, result);
    return result;
  }

  const Graph& graph_;
  std::int64_t bytes_;  ///< that a window covers wherever it begins
  std::vector<std::vector<std::uint32_t>> uses_;
  Rebuilder rebuild_;
  std::map<std::tuple<ValueId, int, std::int64_t>, ValueId> sliced_;
};

}  // namespace

std::shared_ptr<Graph> split_reductions(std::shared_ptr<Graph> graph, const Caps& caps) {
  while (true) {  // rows that are too long by themselves are cut again, along the next axis
    Splitter splitter(*graph, caps);
    if (std::ranges::none_of(graph->nodes(), [&](const Node& node) { return splitter.cut(node).has_value(); })) return graph;
    graph = splitter.run();
  }
}

}  // namespace aeshna
