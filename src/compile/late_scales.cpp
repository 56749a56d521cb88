// late_scales: a product of a few rows that are scaled by a statistic of themselves (rms_norm before a projection while decoding) is
// scaled behind the product instead of in front: (x r) W = (x W) r, with r one number for each row.
//
// The statistic and the product then need nothing of each other and run side by side; whoever reads the product multiplies. With few rows
// a dispatch takes about as long as the barrier before it, so that this saves what the norm took. Products of many rows keep their
// order: there the norm costs little beside the product, and storing its result is what makes the product's loads cheap.
// Results differ by rounding alone: one factor of each row is applied after the sum instead of before it.
#include <map>

#include "compile/stages.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ops/build.h"
#include "ops/matmul_variants.h"

namespace aeshna {

namespace {

bool is(const Node& node, std::string_view op) { return node.op->name == op; }

/// The rows of a product, as the graph has them: scaled [..., K] = x [..., K] * scale [..., 1], perhaps times weight.
struct ScaledRows {
  ValueId x, scale;
  std::optional<ValueId> weight;
};

class LateScales {
 public:
  explicit LateScales(const Graph& graph) : graph_(graph), rebuild_(graph) {}

  /// Null if there is nothing to scale late.
  std::shared_ptr<Graph> run() {
    std::map<NodeId, ScaledRows> found;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id)
      if (const std::optional<ScaledRows> rows = match(id)) found.emplace(id, *rows);
    if (found.empty()) return nullptr;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const auto rows = found.find(id);
      if (rows == found.end()) {
        rebuild_.copy(id);
      } else {
        replace(id, rows->second);
      }
    }
    return rebuild_.finish();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }

  /// r [..., 1] of x [..., K], and a reduction is somewhere behind it.
  bool scales_rows(ValueId x, ValueId r) const {
    const Shape &rows = shape(x), &one = shape(r);
    if (rows.rank() != one.rank() || rows.rank() == 0 || one != rows.with(rows.rank() - 1, 1) ||
        rows[rows.rank() - 1] == 1)
      return false;
    for (int depth = 0; depth < 8; ++depth) {
      const Node& node = graph_.node(r.node);
      if (node.op->kind == OpKind::Reduce) return true;
      if ((node.op->kind != OpKind::Pointwise && node.op->movement != MovementKind::Reshape) || node.inputs.empty())
        return false;
      r = node.inputs[0];
    }
    return false;
  }

  std::optional<ScaledRows> scaled(ValueId v, bool weighted) const {
    const Node& node = graph_.node(v.node);
    if (!is(node, "mul")) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const ValueId x = node.inputs[i], r = node.inputs[1 - i];
      if (shape(x) == shape(v) && scales_rows(x, r)) return ScaledRows{x, r, std::nullopt};
    }
    for (std::size_t i = 0; i < 2 && weighted; ++i) {
      const ValueId inner = node.inputs[i];
      if (shape(inner) != shape(v) || !is(graph_.node(inner.node), "mul")) continue;
      if (auto rows = scaled(inner, false)) {
        rows->weight = node.inputs[1 - i];
        return rows;
      }
    }
    return std::nullopt;
  }

  std::optional<ScaledRows> match(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!is(node, "matmul") || node.attrs.get<bool>("transpose_a")) return std::nullopt;
    ValueId rows = node.inputs[0];
    const Shape a = shape(rows), b = shape(node.inputs[1]);
    if (a.rank() != 2 || b.rank() != 2 || a[0] > kGemvRows || node.results[0].dtype != DType::f32) return std::nullopt;
    while (graph_.node(rows.node).op->movement == MovementKind::Reshape) rows = graph_.node(rows.node).inputs[0];
    const Shape& own = shape(rows);
    if (own.rank() == 0 || own[own.rank() - 1] != a[1]) return std::nullopt;
    return scaled(rows, true);
  }

  void replace(NodeId id, const ScaledRows& rows) {
    const Node& node = graph_.node(id);
    const Shape a = shape(node.inputs[0]);
    Node like = node;
    like.name.clear();
    const BuildContext build{rebuild_.target(), like};
    const auto reshaped = [&](Value v, std::vector<std::int64_t> dims) {
      return build.add("reshape", {v}, {{"dims", std::move(dims)}});
    };
    const auto [known, fresh] = unscaled_.try_emplace(node.inputs[0]);
    if (fresh) {
      const Value x = rebuild_.mapped(rows.x);
      known->second = reshaped(rows.weight ? build.add("mul", {x, rebuild_.mapped(*rows.weight)}) : x, {a[0], a[1]});
    }
    const Value product = build.add("matmul", {known->second, rebuild_.mapped(node.inputs[1])}, node.attrs);
    rebuild_.map(id, {build.add("mul", {product, reshaped(rebuild_.mapped(rows.scale), {a[0], 1})})});
  }

  const Graph& graph_;
  Rebuilder rebuild_;
  std::map<ValueId, Value> unscaled_;  ///< by what was the product's operand
};

}  // namespace

std::shared_ptr<Graph> late_scales(std::shared_ptr<Graph> graph) {
  const std::shared_ptr<Graph> scaled = LateScales(*graph).run();
  return scaled ? eliminate_dead(*scaled) : graph;
}

}  // namespace aeshna
