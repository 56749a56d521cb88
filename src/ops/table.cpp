// The one place where the families become the op table.
#include <algorithm>

#include "base/fail.h"
#include "ops/families.h"

namespace aeshna {

namespace {

std::vector<OpDef> build_table() {
  std::vector<OpDef> table;
  for (auto family : {leaf_ops,   pointwise_ops, shape_ops,   reduce_ops, matmul_ops, softmax_ops, loss_ops,
                      random_ops, window_ops,    conv_ops,    pool_ops,   resize_ops, norm_ops,    attention_ops,
                      rope_ops,   index_ops,     scatter_ops, order_ops,  cache_ops,  winograd_ops}) {
    for (OpDef& op : family()) table.push_back(std::move(op));
  }
  std::ranges::sort(table, {}, &OpDef::name);
  const auto twin = std::ranges::adjacent_find(table, {}, &OpDef::name);
  AESHNA_CHECK(twin == table.end());
  return table;
}

}  // namespace

std::span<const OpDef> op_table() {
  static const std::vector<OpDef> table = build_table();
  return table;
}

const OpDef& find_op(std::string_view name) {
  const auto table = op_table();
  const auto found =
      std::ranges::lower_bound(table, name, {}, [](const OpDef& op) -> std::string_view { return op.name; });
  if (found == table.end() || found->name != name) fail(ErrorCode::NotFound, "there is no op named \"{}\"", name);
  return *found;
}

}  // namespace aeshna
