// The greedy rewriter: one walk after another until no rule applies.
#include <map>

#include "base/fail.h"
#include "compile/node_steps.h"
#include "compile/rules.h"
#include "compile/stages.h"
#include "ir/rebuild.h"

namespace aeshna {

namespace {

bool applies_to(const RewriteRule& rule, const OpDef& op) {
  if (rule.op == "*pointwise") return op.kind == OpKind::Pointwise;
  if (rule.op == "*reduce") return op.kind == OpKind::Reduce;
  return rule.op == op.name;
}

/// The rules of each op, found once.
class RuleIndex {
 public:
  explicit RuleIndex(bool differentiable_only) : differentiable_only_(differentiable_only) {}
  const std::vector<const RewriteRule*>& of(const OpDef& op) {
    const auto [entry, fresh] = rules_.try_emplace(&op);
    if (fresh) {
      for (const RewriteRule& rule : rewrite_rules()) {
        if (applies_to(rule, op) && (rule.before_autodiff || !differentiable_only_)) entry->second.push_back(&rule);
      }
    }
    return entry->second;
  }

 private:
  bool differentiable_only_;
  std::map<const OpDef*, std::vector<const RewriteRule*>> rules_;
};

/// The first rule that applies to a node, whose operands are rewritten already, and what it makes of it.
const RewriteRule* apply_rules(Rebuilder& rebuild, NodeId id, RuleIndex& index, Value& replacement) {
  const Node& node = rebuild.source().node(id);
  const auto& rules = index.of(*node.op);
  if (rules.empty() || node.results.size() != 1) return nullptr;
  std::vector<Value> inputs;
  for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input));
  Node like = node;
  like.name.clear();
  const BuildContext build{rebuild.target(), like};
  for (const RewriteRule* rule : rules) {
    replacement = rule->apply(Match{build, node, inputs});
    if (replacement) return rule;
  }
  return nullptr;
}

struct Walk {
  std::shared_ptr<Graph> graph;
  bool changed = false;
  const RewriteRule* rule = nullptr;  ///< the last one applied
};

/// One walk in node order. What rules append is looked at by the next.
Walk walk(const Graph& graph, RuleIndex& index) {
  Walk result;
  Rebuilder rebuild(graph);
  CommonNodes common;
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    bool changed = true;
    Value replacement;
    if (!live[id]) {
      rebuild.drop(id);
    } else if (!fold_node(rebuild, id)) {
      if (const RewriteRule* rule = apply_rules(rebuild, id, index, replacement)) {
        result.rule = rule;
        rebuild.map(id, {replacement});
      } else {
        changed = common.merge_or_copy(rebuild, id);
      }
    }
    result.changed = result.changed || changed;
  }
  result.graph = rebuild.finish();
  return result;
}

}  // namespace

std::shared_ptr<Graph> rewrite(const Graph& graph, bool differentiable_only) {
  constexpr int kMaxRounds = 200;  // far above what any graph needs: two rules that undo each other are a bug
  RuleIndex index(differentiable_only);
  Walk last = walk(graph, index);
  for (int round = 0; last.changed; ++round) {
    if (round == kMaxRounds) {
      fail(ErrorCode::Internal, "rewriting does not end; the last rule was {}",
           last.rule != nullptr ? std::string_view(last.rule->algebra) : "none");
    }
    last = walk(*last.graph, index);
  }
  return last.graph;
}

}  // namespace aeshna
