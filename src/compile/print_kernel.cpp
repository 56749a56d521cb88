// Fused kernels as text, for `aeshna dump --stage fuse`.

#include "base/format.h"
#include "compile/stages.h"
#include "ir/op.h"

namespace aeshna {

namespace {

std::string list(std::span<const std::int64_t> values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += formatted("{}{}", i == 0 ? "" : ", ", values[i]);
  return text + "]";
}

std::string access(const Access& a) {
  std::string text = list(a.strides);
  if (a.offset != 0) text += formatted(" + {}", a.offset);
  for (const Access::Dynamic& dynamic : a.dynamic)
    text += formatted(" + {} * (index < {})", dynamic.stride, dynamic.extent);
  for (const Access::Guard& guard : a.guards) {
    text += formatted(" if {} <= ", guard.low);
    for (std::size_t i = 0; i < guard.terms.size(); ++i) {
      const auto& [dim, coefficient] = guard.terms[i];
      text += formatted("{}{}x{}", i == 0 ? "" : " + ", coefficient == 1 ? "" : formatted("{} ", coefficient), dim);
    }
    text += formatted(" < {}", guard.high);
  }
  if (!a.guards.empty() || !a.dynamic.empty()) text += formatted(" else {}", a.fill);
  return text;
}

std::string_view reduce_name(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"sum", "max", "min", "prod", "argmax", "argmin"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string instruction(const Instr& i) {
  switch (i.kind) {
    case Instr::Kind::Load:
      return formatted("load @{} {}", i.operand, access(i.access));
    case Instr::Kind::Literal:
      return formatted("{}", i.literal);
    case Instr::Kind::Index:
      return formatted("index x{}", i.dim);
    case Instr::Kind::Op:
      return i.rounding == DType::f32 ? i.op->name : formatted("{} to {}", i.op->name, dtype_name(i.rounding));
    case Instr::Kind::Reduce:
      return formatted("reduce {}", reduce_name(i.reduce));
    case Instr::Kind::Product:
      return "product";
    case Instr::Kind::Random:
      return formatted("random stream {}", i.literal);
  }
  return "?";
}

std::string body(std::string_view name, const Body& b) {
  std::string text;
  for (std::size_t i = 0; i < b.instrs.size(); ++i) {
    text += formatted("  {}{} = {}", name, i, instruction(b.instrs[i]));
    for (const std::uint32_t arg : b.instrs[i].args) text += formatted(" {}{}", name, arg);
    text += formatted(" : {}\n", dtype_name(b.instrs[i].dtype));
  }
  for (const Store& store : b.stores) {
    text += formatted("  store @{} {} = {}{}{}\n", store.operand, access(store.access), name, store.value,
                      store.outer ? " (outer)" : "");
  }
  return text;
}

}  // namespace

std::string print_kernel(const FusedKernel& kernel, const Graph& graph) {
  constexpr std::string_view kKinds[] = {"pointwise", "reduction", "matmul", "template"};
  constexpr std::string_view kSegments[] = {"forward", "backward", "update"};
  std::string text = formatted("{} {} over {}", kSegments[static_cast<std::size_t>(kernel.segment)],
                               kKinds[static_cast<std::size_t>(kernel.kind)], list(kernel.space));
  if (kernel.kind == FusedKernel::Kind::Reduction) text += formatted(", outer {}", kernel.outer_rank);
  if (kernel.kind == FusedKernel::Kind::Matmul) {
    text += formatted(", {} row and {} column dimensions, k {}", kernel.row_rank, kernel.column_rank, kernel.k);
    if (!kernel.a.k.empty()) text += " = " + list(kernel.a.k) + " of a";
    if (!kernel.b.k.empty()) text += " = " + list(kernel.b.k) + " of b";
  }
  text += "\n  nodes";
  for (const NodeId id : kernel.nodes) text += formatted(" %{}={}", id, graph.node(id).op->name);
  text += "\n";
  for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
    const KernelOperand& operand = kernel.operands[i];
    const Node& node = graph.node(operand.value.node);
    text += formatted("  @{} {} %{}.{}{}: {} x {}", i, operand.written ? "out" : "in", operand.value.node,
                      operand.value.result, node.name.empty() ? "" : " '" + node.name + "'", dtype_name(operand.dtype),
                      operand.elements);
    if (operand.in_place_of) text += formatted(", in place of @{}", *operand.in_place_of);
    text += "\n";
  }
  for (std::size_t i = 0; i < kernel.call.views.size(); ++i) {
    if (kernel.call.input_operands[i] == TemplateCall::kUnbound) {
      text += formatted("  input {} is updated in place\n", i);
    } else {
      text += formatted("  input {} = @{} {}\n", i, kernel.call.input_operands[i], access(kernel.call.views[i]));
    }
  }
  return text + body("a", kernel.a) + body("b", kernel.b) + body("v", kernel.body);
}

}  // namespace aeshna
