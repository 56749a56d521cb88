// print_plan: a finished plan as text, for people. Deterministic: nothing that was measured is in it.
#include <algorithm>
#include <map>

#include "base/format.h"
#include "compile/pipeline.h"
#include "compile/plan.h"

namespace aeshna {

namespace {

std::string_view home_name(Home home) {
  switch (home) {
    case Home::Arena:
      return "arena";
    case Home::Input:
      return "input";
    case Home::Parameter:
      return "parameter";
    case Home::State:
      return "state";
    case Home::Output:
      return "output";
    case Home::Constant:
      return "constant";
    case Home::Workspace:
      return "workspace";
    case Home::Counters:
      return "counters";
  }
  return "?";
}

std::string_view segment_name(Segment segment) {
  return segment == Segment::Forward ? "forward" : segment == Segment::Backward ? "backward" : "update";
}

bool in_arena(const Placement& placement) { return placement.home == Home::Arena || placement.home == Home::Workspace; }

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {}

  std::string run() {
    summary();
    kernels();
    steps();
    arenas();
    pinned();
    memory();
    for (const std::string& note : plan_.notes) line("note: {}", note);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(std::format_string<Args...> format, Args&&... args) {
    text_ += formatted(format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  /// Before code generation there are no kernels yet: a variant stands for one.
  std::string kernel_name(const PlanStep& step) const {
    return step.kernel < plan_.kernels.size() ? plan_.kernels[step.kernel].name
                                              : step.spec.family + " " + step.spec.variant;
  }

  void summary() {
    const auto copies = std::ranges::count(plan_.steps, PlanStep::Kind::Copy, &PlanStep::kind);
    line("plan: {} dispatches and {} copies in {} barrier groups, {} distinct kernels",
         plan_.steps.size() - static_cast<std::size_t>(copies), copies, plan_.barrier_groups, plan_.kernels.size());
  }

  void kernels() {
    std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> uses;
    for (const PlanStep& step : plan_.steps) {
      if (step.kind == PlanStep::Kind::Dispatch && step.spec.workgroups > 0) ++uses[{step.kernel, kernel_name(step)}];
    }
    line("\nkernels");
    for (const auto& [kernel, count] : uses) {
      const auto& [index, name] = kernel;
      if (index < plan_.kernels.size()) {
        const PlanKernel& k = plan_.kernels[index];
        line("  k{:<3} {:4} x  {}  (local {}x{}x{}, shared {} B, {} bindings)", index, count, name, k.local[0],
             k.local[1], k.local[2], k.shared_bytes, k.source.bindings);
      } else {
        line("  {:4} x  {}", count, name);
      }
    }
  }

  void steps() {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const bool new_segment = i == 0 || plan_.steps[i - 1].segment != step.segment;
      if (new_segment) line("\n{}", segment_name(step.segment));
      if (new_segment || plan_.steps[i - 1].group != step.group) line("  group {}", step.group);
      if (step.kind == PlanStep::Kind::Copy) {
        line("    copy");
      } else {
        line("    {}: {} workgroups of {}x{}x{}", kernel_name(step), step.spec.workgroups, step.spec.local[0],
             step.spec.local[1], step.spec.local[2]);
      }
      for (const PlanOperand& operand : step.operands) print_operand(operand);
    }
  }

  void print_operand(const PlanOperand& operand) {
    const Placement& p = plan_.placements.at(operand.placement);
    const std::string_view access = operand.read && operand.written ? "rw" : operand.written ? "w " : "r ";
    const std::string place = in_arena(p)
                                  ? formatted("{} {} +{}", home_name(p.home), p.arena, p.offset + operand.offset)
                              : operand.offset > 0 ? formatted("{} +{}", home_name(p.home), operand.offset)
                                                   : std::string(home_name(p.home));
    line("      {} {:<24} {:<24} {:>12} B  {}{}", access, p.name, p.type.to_string(), operand.bytes, place,
         p.part > 0 ? formatted(" part {}", p.part) : "");
  }

  /// One row per placement; a column stands for one or more barrier groups, '#' where the memory is live.
  void arenas() {
    constexpr std::uint32_t kColumns = 64;
    const std::uint32_t per_column = std::max(1u, (plan_.barrier_groups + kColumns - 1) / kColumns);
    const std::uint32_t columns = (plan_.barrier_groups + per_column - 1) / per_column;
    for (std::uint32_t arena = 0; arena < plan_.arenas.size(); ++arena) {
      line("\narena {}: {} B", arena, plan_.arenas[arena]);
      std::vector<const Placement*> rows;
      for (const Placement& p : plan_.placements) {
        if (in_arena(p) && p.arena == arena) rows.push_back(&p);
      }
      std::ranges::stable_sort(rows, {}, [](const Placement* p) { return std::pair(p->offset, p->first_group); });
      for (const Placement* p : rows) {
        std::string picture(columns, '.');
        for (std::uint32_t g = p->first_group; g <= p->last_group && g / per_column < columns; ++g)
          picture[g / per_column] = '#';
        line("  {:>12} {:>12} B  {}  {} ({} to {})", p->offset, p->bytes, picture, p->name, p->first_group,
             p->last_group);
      }
    }
  }

  void pinned() {
    line("\npinned");
    for (const Placement& p : plan_.placements) {
      if (!in_arena(p) && p.home != Home::Counters)
        line("  {:<10} {:<24} {:<24} {:>12} B{}", home_name(p.home), p.name, p.type.to_string(), p.bytes,
             p.part > 0 ? formatted("  part {}", p.part) : "");
    }
    for (const auto& [name, index] : plan_.outputs) {
      if (plan_.placements.at(index).name != name) line("  output '{}' is '{}'", name, plan_.placements[index].name);
    }
  }

  void memory() {
    const MemoryReport& m = plan_.memory;
    line("\nmemory");
    line("  transient, logical   {:>14} B", m.logical_bytes);
    line("  arenas, physical     {:>14} B{}", m.arena_bytes,
         m.logical_bytes == 0 ? ""
                              : formatted("  ({:.1f} %)", 100.0 * static_cast<double>(m.arena_bytes) /
                                                              static_cast<double>(m.logical_bytes)));
    line("  largest workspace    {:>14} B (in the arenas)", m.workspace_bytes);
    line("  pinned               {:>14} B", m.pinned_bytes);
    line("  counters             {:>14} B", plan_.counters * 4);
  }

  const Plan& plan_;
  std::string text_;
};

}  // namespace

std::string print_plan(const Plan& plan) { return Printer(plan).run(); }

}  // namespace aeshna
