#pragma once
// Rewrite rules as data: see rules.cpp for the list, rewrite.cpp for the driver.
#include <span>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"
#include "ir/op.h"

namespace aeshna {

/// A node of the old graph that is about to be copied, with its operands already in the new one.
struct Match {
  const BuildContext& build;  ///< the new graph; nodes like `node`
  const Node& node;
  std::span<const Value> in;

  const TensorType& type() const { return node.results[0]; }
  const Shape& shape() const { return node.results[0].shape; }
};

struct RewriteRule {
  std::string_view op;       ///< op that it applies to, or a class: "*pointwise", "*reduce"
  std::string_view algebra;  ///< "x * 1 -> x": its name in tests and messages
  /// What stands for the node's only result, or an empty Value if the pattern does not match.
  Value (*apply)(const Match&);
  bool before_autodiff = true;  ///< false: would change or lose a gradient
};

std::span<const RewriteRule> rewrite_rules();

}  // namespace aeshna
