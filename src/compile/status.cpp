// Check sinks become one status word, and the placeholders of training.cpp become "no check has failed".
#include <optional>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ops/appended.h"

namespace aeshna {

namespace {

/// A check in the target graph.
struct Check {
  Value bad;
  ErrorCode code;
  Segment segment;
};

ErrorCode parse_code(const std::string& name) {
  return name == "out_of_range" ? ErrorCode::OutOfRange : ErrorCode::NonFinite;  // the op's infer admits no other
}

/// Words are i32 scalars: the index of the first failed check plus 1, or 0.
class StatusBuilder {
 public:
  explicit StatusBuilder(Graph& target) : target_(target) {}

  void add(Check check) {
    last_segment_ = std::max(last_segment_, check.segment);
    checks_.push_back(check);
  }
  bool any() const { return !checks_.empty(); }
  Segment last_segment() const { return last_segment_; }

  /// Of all checks so far; a word carried over from earlier micro-steps comes first.
  Value word() const {
    Value word = failed_from(carried_count_, Segment::Update);
    return carried_ ? select(not_equal(carried_, 0), carried_, word) : word;
  }

  /// Ends a micro-step: its word joins the state `aeshna.bad`, which the first micro-step of an update starts anew.
  Value end_micro_step() {
    const Value micro = word();
    const Value first = not_equal(target_.value({*target_.leaf(reserved::first_micro), 0}), 0);
    const Value state = target_.state(reserved::bad, {}, DType::i32, Init::zeros());
    const Value earlier = select(first, integer(0), state);
    carried_ = select(not_equal(earlier, 0), earlier, micro);
    carried_count_ = checks_.size();
    target_.assign(state, carried_);
    return equal(micro, 0);
  }

  /// i32[2] {code, number} of a word; both are zero while no check has failed, so that each is updated from its own old value.
  Value pair(Value word) const {
    Value code = select(equal(word, 0), integer(0), integer(static_cast<int>(ErrorCode::NonFinite)));
    for (std::size_t i = 0; i < checks_.size(); ++i) {
      if (checks_[i].code == ErrorCode::NonFinite) continue;
      code = select(equal(word, integer(i + 1)), integer(static_cast<int>(checks_[i].code)), code);
    }
    return select(equal(iota(target_, {2}, 0), 0), code, word);
  }

  /// The state and output `aeshna.status`: the first failure since the host last cleared it.
  void store(Value word) {
    const Value state = target_.state(reserved::status, {2}, DType::i32, Init::zeros());
    const Value next = select(not_equal(state, 0), state, pair(word));
    target_.assign(state, next);
    target_.output(reserved::status, next);
  }

  /// The output `aeshna.status.forward`, for evaluation inside a training session.
  void store_forward() { target_.output(reserved::forward_status, pair(failed_from(0, Segment::Forward))); }

 private:
  template <class T>
  Value integer(T value) const {
    return target_.constant(static_cast<double>(value), DType::i32);
  }

  /// Word of the checks from number `begin` on whose segment is at most `last`.
  Value failed_from(std::size_t begin, Segment last) const {
    Value word = integer(0);
    for (std::size_t i = checks_.size(); i-- > begin;) {
      if (checks_[i].segment <= last) word = select(checks_[i].bad, integer(i + 1), word);
    }
    return word;
  }

  Graph& target_;
  std::vector<Check> checks_;
  Value carried_;                  ///< word of this update's micro-steps
  std::size_t carried_count_ = 0;  ///< checks that `carried_` covers
  Segment last_segment_ = Segment::Forward;
};

}  // namespace

std::shared_ptr<Graph> lower_checks(const Graph& graph, std::vector<std::string>& checks) {
  Rebuilder rebuild(graph);
  Graph& target = rebuild.target();
  StatusBuilder status(target);
  bool done = false;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.node(id);
    if (node.op->name == "check") {
      AESHNA_CHECK(!done);  // `ok` depends on every check
      const std::string& what = node.attrs.get<std::string>("what");
      checks.push_back(formatted("{} ({})", what, node.line.to_string()));
      status.add({rebuild.mapped(node.inputs[0]), parse_code(node.attrs.get<std::string>("code")), node.segment});
      rebuild.drop(id);
    } else if (is_input(node) && node.name == reserved::micro_ok) {
      Value micro_ok;
      {
        AppendScope scope(target, node.segment, node.line);
        micro_ok = status.end_micro_step();
      }
      rebuild.map(id, {micro_ok});
    } else if (is_input(node) && node.name == reserved::ok) {
      Value ok;
      {
        AppendScope scope(target, node.segment, node.line);
        const Value word = status.word();
        status.store(word);
        ok = equal(word, 0);
      }
      rebuild.map(id, {ok});
      done = true;
    } else {
      rebuild.copy(id);
    }
  }
  if (done) {
    AppendScope scope(target, Segment::Forward);
    status.store_forward();
  } else if (status.any()) {
    AppendScope scope(target, status.last_segment());
    status.store(status.word());
  }
  return rebuild.finish();
}

}  // namespace aeshna
