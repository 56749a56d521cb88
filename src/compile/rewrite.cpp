// The greedy rewriter: one walk after another until no rule applies.
#include <map>

#include "base/fail.h"
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

/// One walk in node order, so that a rule sees operands that are rewritten already. Returns the last rule applied, if any.
const RewriteRule* walk(std::shared_ptr<Graph>& graph, RuleIndex& index) {
  const RewriteRule* applied = nullptr;
  Rebuilder rebuild(*graph);
  for (std::size_t i = 0; i < graph->nodes().size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph->node(id);
    const auto& rules = index.of(*node.op);
    Value replacement;
    if (!rules.empty() && node.results.size() == 1) {
      std::vector<Value> inputs;
      for (const ValueId& input : node.inputs) inputs.push_back(rebuild.mapped(input));
      Node like = node;
      like.name.clear();
      const BuildContext build{rebuild.target(), like};
      for (const RewriteRule* rule : rules) {
        replacement = rule->apply(Match{build, node, inputs});
        if (!replacement) continue;
        applied = rule;
        break;
      }
    }
    if (replacement) {
      rebuild.map(id, {replacement});
    } else {
      rebuild.copy(id);
    }
  }
  graph = rebuild.finish();
  return applied;
}

std::shared_ptr<Graph> clean(const Graph& graph) { return eliminate_dead(*merge_common(*fold_constants(graph))); }

}  // namespace

std::shared_ptr<Graph> rewrite(const Graph& graph, bool differentiable_only) {
  constexpr int kMaxRounds = 200;  // far above what any graph needs: two rules that undo each other are a bug
  RuleIndex index(differentiable_only);
  std::shared_ptr<Graph> current = clean(graph);
  for (int round = 0;; ++round) {
    const RewriteRule* applied = walk(current, index);
    if (applied == nullptr) return current;
    if (round == kMaxRounds)
      fail(ErrorCode::Internal, "rewriting does not end; the last rule was {}", applied->algebra);
    current = clean(*current);
  }
}

}  // namespace aeshna
