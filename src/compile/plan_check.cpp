// check_plan: proves a finished plan by its own means, from steps, operands and placements alone.
//
// Three checks: the form of every range (bounds, alignment, limits); hazards inside each barrier group by comparing byte intervals;
// and a simulation that keeps, for every byte of every buffer, which value of the graph it holds, and runs the recorded
// segments in every kind of legal order: a read that does not find its value is a fault, whatever the cause.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/format.h"
#include "compile/stages.h"
#include "ir/device_types.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna {

namespace {

constexpr std::uint64_t kWord = 4;
constexpr ValueId kUnknown{UINT32_MAX, 0};

/// One piece of memory that is addressed as a whole.
using Space = std::tuple<Home, std::uint32_t, std::string>;

struct Interval {
  Space space;
  std::uint64_t begin = 0, end = 0;
  bool overlaps(const Interval& other) const { return space == other.space && begin < other.end && other.begin < end; }
  bool operator==(const Interval&) const = default;
};

/// What the bytes of one space hold: value and where in it, by start of the piece.
class Contents {
 public:
  struct Piece {
    std::uint64_t end = 0;
    ValueId value = kUnknown;
    std::uint64_t offset = 0;  ///< byte of the value that lies at the piece's start
  };

  void write(std::uint64_t begin, std::uint64_t end, ValueId value, std::uint64_t offset) {
    if (begin == end) return;
    cut(begin);
    cut(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_[begin] = {end, value, offset};
  }

  bool holds(std::uint64_t begin, std::uint64_t end, ValueId value, std::uint64_t offset) const {
    if (begin == end) return true;
    for (const auto& [start, piece] : between(begin, end)) {
      if (start > begin) return false;
      if (piece.value != value || piece.offset + (begin - start) != offset) return false;
      offset += std::min(end, piece.end) - begin;
      begin = std::min(end, piece.end);
    }
    return begin == end;
  }

  std::vector<std::pair<std::uint64_t, Piece>> between(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::pair<std::uint64_t, Piece>> found;
    auto at = pieces_.upper_bound(begin);
    if (at != pieces_.begin() && std::prev(at)->second.end > begin) --at;
    for (; at != pieces_.end() && at->first < end; ++at) found.push_back(*at);
    return found;
  }

  void rename(ValueId from, ValueId to) {
    for (auto& [start, piece] : pieces_) {
      if (piece.value == from) piece.value = to;
    }
  }

  void clear() { pieces_.clear(); }

 private:
  void cut(std::uint64_t at) {
    auto piece = pieces_.lower_bound(at);
    if (piece == pieces_.begin()) return;
    --piece;
    if (piece->second.end <= at) return;
    Piece rest = piece->second;
    rest.offset += at - piece->first;
    piece->second.end = at;
    pieces_.emplace(at, rest);
  }

  std::map<std::uint64_t, Piece> pieces_;
};

class Checker {
 public:
  Checker(const Plan& plan, const Caps& caps) : plan_(plan), caps_(caps) {}

  std::vector<std::string> run() {
    form();
    if (!findings_.empty()) return std::move(findings_);  // what follows relies on sound indices
    hazards();
    lifetimes();
    if (plan_.graph != nullptr) {
      const auto f = Segment::Forward, b = Segment::Backward, u = Segment::Update;
      for (const std::vector<Segment>& order : std::vector<std::vector<Segment>>{
               {f, f}, {f, b, f, b}, {f, b, u, f, b, u}, {f, b, f, b, u}, {f, b, f, f, b, u, f}}) {
        simulate(order);
      }
    }
    return std::move(findings_);
  }

 private:
  const Plan& plan_;
  const Caps& caps_;
  std::vector<std::string> findings_;
  std::map<Space, Contents> memory_;

  template <class... Args>
  void found(std::format_string<Args...> format, Args&&... args) {
    findings_.push_back(formatted(format, std::forward<Args>(args)...));
  }

  // ---- form

  static bool in_arena(const Placement& placement) {
    return placement.home == Home::Arena || placement.home == Home::Workspace;
  }

  Interval interval(const PlanOperand& operand) const {
    const Placement& p = plan_.placements[operand.placement];
    Space space{p.home, p.part, p.name};
    if (in_arena(p)) space = {Home::Arena, p.arena, ""};
    if (p.home == Home::Constant) space = {Home::Constant, p.constant, std::to_string(p.part)};
    if (p.home == Home::Counters) space = {Home::Counters, 0, ""};
    const std::uint64_t begin = p.offset + operand.offset;
    return {space, begin, begin + operand.bytes};
  }

  std::string name(const PlanOperand& operand) const { return plan_.placements[operand.placement].name; }

  std::string name(std::size_t step) const {
    const PlanStep& s = plan_.steps[step];
    return s.kind == PlanStep::Kind::Copy ? formatted("step {} (copy)", step)
                                          : formatted("step {} ({} {})", step, s.spec.family, s.spec.variant);
  }

  void form() {
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      const Placement& p = plan_.placements[i];
      if (in_arena(p)) {
        if (p.arena >= plan_.arenas.size() || p.offset > plan_.arenas[p.arena] ||
            p.bytes > plan_.arenas[p.arena] - p.offset) {
          found("placement '{}' lies outside its arena", p.name);
        }
        if (p.offset % caps_.storage_alignment != 0) found("placement '{}' at byte {} is misaligned", p.name, p.offset);
      }
      if (p.bytes > caps_.max_buffer_size) found("placement '{}' of {} bytes exceeds max_buffer_size", p.name, p.bytes);
      if (p.home != Home::Workspace && p.home != Home::Counters) part_form(i);
      if (p.home == Home::Counters && p.bytes != plan_.counters * kWord)
        found("the counters' placement has {} bytes for {} counters", p.bytes, plan_.counters);
    }
    for (const std::uint64_t bytes : plan_.arenas) {
      if (bytes > caps_.max_buffer_size) found("an arena of {} bytes exceeds max_buffer_size", bytes);
    }
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) step_form(i);
    for (const auto* names : {&plan_.inputs, &plan_.parameters, &plan_.states, &plan_.outputs}) {
      for (const auto& [name, placement] : *names) {
        if (placement >= plan_.placements.size()) found("'{}' has no placement", name);
      }
    }
  }

  /// The parts of a tensor follow one another and are all of it.
  void part_form(std::size_t i) {
    const Placement& p = plan_.placements[i];
    const bool last = i + 1 == plan_.placements.size() || plan_.placements[i + 1].part == 0;
    const std::uint64_t end = p.first_byte + p.bytes;
    const auto follows = [&](const Placement& before) {
      return before.home == p.home && before.name == p.name && before.type == p.type && before.part + 1 == p.part &&
             before.first_byte + before.bytes == p.first_byte;
    };
    const bool joined = p.part == 0 ? p.first_byte == 0 : i > 0 && follows(plan_.placements[i - 1]);
    if (!joined || (last && end != device_bytes(p.type)))
      found("placement {} of '{}': its parts are not the whole tensor", p.part, p.name);
  }

  void step_form(std::size_t i) {
    const PlanStep& step = plan_.steps[i];
    if (step.group >= plan_.barrier_groups) found("{} is in group {} of {}", name(i), step.group, plan_.barrier_groups);
    if (i > 0) {
      const PlanStep& before = plan_.steps[i - 1];
      if (before.group > step.group) found("{} goes back to group {}", name(i), step.group);
      if (before.segment > step.segment) found("{} goes back to an earlier segment", name(i));
      if (before.segment != step.segment && before.group == step.group)
        found("{} begins a segment inside group {}", name(i), step.group);
    }
    for (const PlanOperand& operand : step.operands) {
      if (operand.placement >= plan_.placements.size()) {
        found("{} has an operand without placement", name(i));
        return;
      }
      const Placement& p = plan_.placements[operand.placement];
      if (operand.offset > p.bytes || operand.bytes > p.bytes - operand.offset)
        found("{} reaches outside '{}'", name(i), p.name);
      const bool copy = step.kind == PlanStep::Kind::Copy;
      const std::uint64_t alignment = copy ? kWord : caps_.storage_alignment;
      if ((p.offset + operand.offset) % alignment != 0) found("{}: the range of '{}' is misaligned", name(i), p.name);
      if (!copy && operand.bytes > caps_.max_storage_range)
        found("{}: {} bytes of '{}' exceed max_storage_range", name(i), operand.bytes, p.name);
    }
    if (step.kind == PlanStep::Kind::Copy) {
      const auto& o = step.operands;
      if (o.size() != 2 || !o[0].read || o[0].written || o[1].read || !o[1].written || o[0].bytes != o[1].bytes)
        found("{} is no copy", name(i));
      return;
    }
    if (step.spec.fused == nullptr) {
      found("{} has no fused kernel", name(i));
      return;
    }
    const auto& operands = step.spec.fused->operands;
    const std::size_t expected =
        operands.size() + (step.spec.workspace_bytes > 0 ? 1 : 0) + (step.spec.counters > 0 ? 1 : 0);
    if (step.operands.size() != expected) {
      found("{} binds {} ranges, the kernel has {}", name(i), step.operands.size(), expected);
      return;
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (step.operands[k].written != operands[k].written || step.operands[k].read == operands[k].written) {
        found("{}: operand {} is not bound as the kernel uses it", name(i), k);
      }
      if (step.operands[k].bytes != device_bytes(operands[k].dtype, operands[k].elements)) {
        found("{}: operand {} covers {} bytes of {} elements", name(i), k, step.operands[k].bytes,
              operands[k].elements);
      }
      const Home home = plan_.placements[step.operands[k].placement].home;
      const bool read_only = home == Home::Input || home == Home::Constant;
      if (operands[k].written && read_only) found("{} writes the read-only '{}'", name(i), name(step.operands[k]));
    }
  }

  // ---- hazards

  /// May operands `a` and `b` of one dispatch share memory? Only the same range, read and written by the same invocation.
  static bool tied(const PlanStep& step, std::size_t a, std::size_t b) {
    if (step.kind != PlanStep::Kind::Dispatch) return false;
    const auto& operands = step.spec.fused->operands;
    if (a >= operands.size() || b >= operands.size()) return false;
    return operands[a].in_place_of == b || operands[b].in_place_of == a;
  }

  void hazards() {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      for (std::size_t a = 0; a < step.operands.size(); ++a) {
        for (std::size_t b = a + 1; b < step.operands.size(); ++b) {
          if (!step.operands[a].written && !step.operands[b].written) continue;
          const Interval x = interval(step.operands[a]), y = interval(step.operands[b]);
          if (!x.overlaps(y) || (x == y && tied(step, a, b))) continue;
          found("{}: operands '{}' and '{}' overlap", name(i), name(step.operands[a]), name(step.operands[b]));
        }
      }
      for (std::size_t j = i; j-- > 0 && plan_.steps[j].group == step.group;) pair_hazards(j, i);
    }
  }

  void pair_hazards(std::size_t first, std::size_t second) {
    for (const PlanOperand& a : plan_.steps[first].operands) {
      for (const PlanOperand& b : plan_.steps[second].operands) {
        if (!a.written && !b.written) continue;
        if (!interval(a).overlaps(interval(b))) continue;
        const char* kind = a.written && b.written ? "WAW" : a.written ? "RAW" : "WAR";
        found("{} between {} and {} in group {}: '{}' and '{}' overlap", kind, name(first), name(second),
              plan_.steps[second].group, name(a), name(b));
      }
    }
  }

  // ---- lifetimes as stated by the placements

  void lifetimes() {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      for (const PlanOperand& operand : plan_.steps[i].operands) {
        const Placement& p = plan_.placements[operand.placement];
        if (in_arena(p) && (plan_.steps[i].group < p.first_group || plan_.steps[i].group > p.last_group)) {
          found("{} uses '{}' in group {}, outside its life from {} to {}", name(i), p.name, plan_.steps[i].group,
                p.first_group, p.last_group);
        }
      }
    }
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < plan_.placements.size(); ++i) {
      if (in_arena(plan_.placements[i]) && plan_.placements[i].bytes > 0) order.push_back(i);
    }
    std::ranges::sort(
        order, {}, [&](std::uint32_t i) { return std::pair(plan_.placements[i].arena, plan_.placements[i].offset); });
    for (std::size_t a = 0; a < order.size(); ++a) {
      const Placement& x = plan_.placements[order[a]];
      for (std::size_t b = a + 1; b < order.size(); ++b) {
        const Placement& y = plan_.placements[order[b]];
        if (y.arena != x.arena || y.offset >= x.offset + x.bytes) break;
        if (x.first_group > y.last_group || y.first_group > x.last_group) continue;
        if (takes_over(order[a], order[b]) || takes_over(order[b], order[a])) continue;
        found("'{}' and '{}' overlap in arena {} while both are live", x.name, y.name, x.arena);
      }
    }
  }

  /// Is `heir` written in place over `from` in the last group of `from`?
  bool takes_over(std::uint32_t from, std::uint32_t heir) const {
    const Placement& x = plan_.placements[from];
    const Placement& y = plan_.placements[heir];
    if (x.last_group != y.first_group || x.offset != y.offset || x.bytes != y.bytes) return false;
    return std::ranges::any_of(plan_.steps, [&](const PlanStep& step) {
      if (step.group != y.first_group) return false;
      for (std::size_t a = 0; a < step.operands.size(); ++a) {
        for (std::size_t b = 0; b < step.operands.size(); ++b) {
          const bool pair = step.operands[a].placement == from && step.operands[b].placement == heir;
          if (pair && step.operands[b].written && tied(step, a, b)) return true;
        }
      }
      return false;
    });
  }

  // ---- simulation

  ValueId leaf_value(const std::string& name) const {
    const auto node = plan_.graph->leaf(name);
    return node ? ValueId{*node, 0} : kUnknown;
  }

  void simulate(const std::vector<Segment>& order) {
    memory_.clear();
    std::string done;
    const std::size_t before = findings_.size();
    for (std::size_t i = 0; i < order.size() && findings_.size() == before; ++i) {
      if (order[i] == Segment::Forward) start_step();
      done += order[i] == Segment::Forward ? "F" : order[i] == Segment::Backward ? "B" : "U";
      for (std::size_t s = 0; s < plan_.steps.size() && findings_.size() == before; ++s) {
        if (plan_.steps[s].segment == order[i]) execute(s, done);
      }
      if (findings_.size() == before) end_segment(order[i], done);
    }
  }

  /// Leaves hold their values; nothing computed in an earlier step may be relied on.
  void start_step() {
    for (auto& [space, contents] : memory_) {
      const Home home = std::get<0>(space);
      if (home == Home::Arena || home == Home::Output) contents.clear();
    }
    for (const NodeId id : plan_.graph->assigns()) {
      const Node& assign = plan_.graph->node(id);
      for (auto& [space, contents] : memory_) {
        const bool own = std::get<2>(space) == plan_.graph->node(assign.inputs[0].node).name;
        if (own && (std::get<0>(space) == Home::State || std::get<0>(space) == Home::Parameter))
          contents.rename(canonical(assign.inputs[1]), assign.inputs[0]);
      }
    }
    for (std::uint32_t i = 0; i < plan_.placements.size(); ++i) {
      const Placement& p = plan_.placements[i];
      if (p.home != Home::Input && p.home != Home::Parameter && p.home != Home::State) continue;
      const Interval whole = interval({.placement = i, .offset = 0, .bytes = p.bytes});
      const auto [entry, fresh] = memory_.try_emplace(whole.space);
      if (fresh) entry->second.write(whole.begin, whole.end, leaf_value(p.name), p.first_byte);
    }
  }

  bool is_constant_operand(const PlanOperand& operand) const {
    return plan_.placements[operand.placement].home == Home::Constant;
  }

  void execute(std::size_t index, const std::string& done) {
    const PlanStep& step = plan_.steps[index];
    if (step.kind == PlanStep::Kind::Copy) {
      const Interval from = interval(step.operands[0]), to = interval(step.operands[1]);
      if (is_constant_operand(step.operands[0])) {
        const std::uint64_t first = plan_.placements[step.operands[0].placement].first_byte + step.operands[0].offset;
        memory_[to.space].write(to.begin, to.end, constant_value(step.operands[0]), first);
        return;
      }
      const auto pieces = memory_[from.space].between(from.begin, from.end);
      Contents& target = memory_[to.space];
      target.write(to.begin, to.end, kUnknown, 0);
      for (const auto& [start, piece] : pieces) {
        const std::uint64_t begin = std::max(start, from.begin), end = std::min(piece.end, from.end);
        target.write(to.begin + (begin - from.begin), to.begin + (end - from.begin), piece.value,
                     piece.offset + (begin - start));
      }
      return;
    }
    const auto& operands = step.spec.fused->operands;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].written || is_constant_operand(step.operands[k])) continue;
      const Interval range = interval(step.operands[k]);
      const auto first = device_bytes(operands[k].dtype, operands[k].first_element);
      if (!memory_[range.space].holds(range.begin, range.end, operands[k].value, first)) {
        found("{} does not find the value of operand {} in '{}' (order {})", name(index), k, name(step.operands[k]),
              done);
      }
    }
    if (const auto& call = step.spec.fused->call; call.updated) {  // the kernel leaves most of it as it is
      const PlanOperand& result = step.operands[call.result_operands[0]];
      const Interval range = interval(result);
      if (!memory_[range.space].holds(range.begin, range.end, canonical(*call.updated), 0))
        found("{} does not find the old contents of what it updates in '{}' (order {})", name(index), name(result), done);
    }
    for (std::size_t k = 0; k < step.operands.size(); ++k) {
      if (!step.operands[k].written) continue;
      const Interval range = interval(step.operands[k]);
      const bool tensor = k < operands.size();
      memory_[range.space].write(range.begin, range.end, tensor ? operands[k].value : kUnknown,
                                 tensor ? device_bytes(operands[k].dtype, operands[k].first_element) : 0);
    }
  }

  /// The graph's constant with the literal of a Constant placement.
  ValueId constant_value(const PlanOperand& operand) const {
    const Literal& literal = plan_.constants.at(plan_.placements[operand.placement].constant);
    for (NodeId id = 0; id < plan_.graph->nodes().size(); ++id) {
      const Node& node = plan_.graph->node(id);
      if (is_constant(node) && node.attrs.get<Literal>("value") == literal) return {id, 0};
    }
    return kUnknown;
  }

  /// Equal constants are one value.
  ValueId canonical(ValueId value) const {
    const Node& node = plan_.graph->node(value.node);
    if (!is_constant(node)) return value;
    for (NodeId id = 0; id < value.node; ++id) {
      const Node& other = plan_.graph->node(id);
      if (is_constant(other) && other.attrs.get<Literal>("value") == node.attrs.get<Literal>("value")) return {id, 0};
    }
    return value;
  }

  /// After its segment, an assigned leaf holds its new value, and an output its value.
  void end_segment(Segment segment, const std::string& done) {
    for (const NodeId id : plan_.graph->assigns()) {
      const Node& assign = plan_.graph->node(id);
      const std::string& leaf = plan_.graph->node(assign.inputs[0].node).name;
      if (assign.segment != segment || assign.inputs[0] == assign.inputs[1]) continue;
      expect_whole(plan_.parameters.contains(leaf) ? plan_.parameters : plan_.states, leaf, assign.inputs[1], done);
    }
    for (const Graph::Output& output : plan_.graph->outputs()) {
      if (plan_.graph->node(output.value.node).segment <= segment)
        expect_whole(plan_.outputs, output.name, output.value, done);
    }
  }

  void expect_whole(const std::map<std::string, std::uint32_t, std::less<>>& names, const std::string& name,
                    ValueId value, const std::string& done) {
    const auto at = names.find(name);
    if (at == names.end()) return found("'{}' has no placement", name);
    for (std::uint32_t i = at->second; i == at->second || (i < plan_.placements.size() && plan_.placements[i].part > 0); ++i) {
      const Placement& p = plan_.placements[i];
      const Interval whole = interval({.placement = i, .offset = 0, .bytes = p.bytes});
      if (!memory_[whole.space].holds(whole.begin, whole.end, canonical(value), p.first_byte))
        return found("'{}' does not hold its new value after {}", name, done);
    }
  }
};

}  // namespace

std::vector<std::string> check_plan(const Plan& plan, const Caps& caps) { return Checker(plan, caps).run(); }

}  // namespace aeshna
