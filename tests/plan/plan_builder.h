#pragma once
// Graphs with made-up kernels for the planner's tests: no device, no code generation, no fusion.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "aeshna/ops.h"
#include "compile/pipeline.h"
#include "compile/stages.h"

namespace aeshna::test {

inline Value with_segment(Value value, Segment segment) {
  value.graph().mutable_node(value.id().node).segment = segment;
  return value;
}

class PlanBuilder {
 public:
  PlanBuilder() { c.graph = std::make_shared<Graph>(); }

  Graph& graph() { return *c.graph; }

  struct KernelOptions {
    FusedKernel::Kind kind = FusedKernel::Kind::Pointwise;
    bool tie = false;  ///< each written operand in place of the first free read operand of its size
    std::uint64_t workspace = 0;
    std::uint32_t counters = 0;
    std::int64_t first = 0,
                 count = -1;  ///< rows: window of every operand that has as many elements as the first result
  };

  /// A kernel that computes `values` (and stores all of them) from the operands of their nodes.
  FusedKernel& kernel(std::vector<Value> values, KernelOptions options) {
    auto fused = std::make_shared<FusedKernel>();
    fused->kind = options.kind;
    fused->segment = values[0].node().segment;
    const std::int64_t size = values[0].shape().elements();
    const auto add = [&](ValueId id, bool written) {
      for (const KernelOperand& other : fused->operands) {
        if (other.value == id) return;
      }
      KernelOperand operand;
      operand.value = id;
      operand.dtype = graph().type(id).dtype;
      operand.elements = graph().type(id).shape.elements();
      operand.written = written;
      if (options.count >= 0 && operand.elements == size) {
        operand.first_element = options.first;
        operand.elements = options.count;
      }
      fused->operands.push_back(operand);
    };
    for (const Value& value : values) {
      fused->nodes.push_back(value.id().node);
      for (const ValueId input : value.node().inputs) {
        if (std::ranges::none_of(values, [&](const Value& own) { return own.id() == input; })) add(input, false);
      }
    }
    for (const Value& value : values) add(value.id(), true);
    if (options.tie) tie(*fused);

    KernelSpec spec;
    spec.family = "made-up";
    spec.variant = "v" + std::to_string(c.selected.size());
    spec.workgroups = 1;
    spec.workspace_bytes = options.workspace;
    spec.counters = options.counters;
    c.selected.emplace_back(*fused, spec);
    return c.selected.back().first;
  }
  FusedKernel& kernel(std::vector<Value> values) { return kernel(std::move(values), KernelOptions()); }
  FusedKernel& kernel(Value value) { return kernel(std::vector{value}); }
  FusedKernel& tied_kernel(Value value) {
    KernelOptions options;
    options.tie = true;
    return kernel({value}, options);
  }

  /// Ties the written operand of `kernel` to the operand that reads `value`.
  static void tie_to(FusedKernel& kernel, Value value) {
    for (std::uint32_t i = 0; i < kernel.operands.size(); ++i) {
      if (kernel.operands[i].value == value.id()) kernel.operands.back().in_place_of = i;
    }
  }

  Plan plan(bool aliasing = true) {
    Compilation copy = c;
    copy.options.aliasing = aliasing;
    for (auto& [fused, spec] : copy.selected) spec.fused = std::make_shared<const FusedKernel>(fused);
    schedule(copy);
    return std::move(copy.plan);
  }

  Compilation c;

 private:
  static void tie(FusedKernel& kernel) {
    for (KernelOperand& written : kernel.operands) {
      if (!written.written) continue;
      for (std::uint32_t i = 0; i < kernel.operands.size(); ++i) {
        const KernelOperand& read = kernel.operands[i];
        const bool taken =
            std::ranges::any_of(kernel.operands, [&](const KernelOperand& o) { return o.in_place_of == i; });
        if (read.written || taken || read.elements != written.elements || read.first_element != written.first_element)
          continue;
        written.in_place_of = i;
        break;
      }
    }
  }
};

/// Steps that copy.
inline std::size_t copies(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count(plan.steps, PlanStep::Kind::Copy, &PlanStep::kind));
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace aeshna::test
