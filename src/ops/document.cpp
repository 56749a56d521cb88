// The vocabulary as a page, made from the records.
#include "ops/document.h"

#include "base/format.h"
#include "ir/op.h"

namespace aeshna {
namespace {

const char* kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::Leaf: return "leaf";
    case OpKind::Sink: return "sink";
    case OpKind::Pointwise: return "pointwise";
    case OpKind::Gather:
      return "gather";
    case OpKind::Movement: return "movement";
    case OpKind::Index: return "index";
    case OpKind::Random: return "random";
    case OpKind::Reduce: return "reduction";
    case OpKind::Product: return "product";
    case OpKind::Kernel: return "kernel of its own";
    case OpKind::Composite: return "composite";
  }
  return "?";
}

const char* gradient_name(const OpDef& op) {
  if (op.kind == OpKind::Leaf || op.kind == OpKind::Sink) return "";
  switch (op.gradient) {
    case GradientKind::Rule: return "rule";
    case GradientKind::Expansion: return "of its expansion";
    case GradientKind::Zero: return "zero";
    case GradientKind::NotDifferentiable: return "refused by name";
  }
  return "?";
}

std::string operands(const OpDef& op) {
  if (op.max_inputs < 0) return formatted("{} or more", op.min_inputs);
  if (op.min_inputs == op.max_inputs) return std::to_string(op.min_inputs);
  return formatted("{} to {}", op.min_inputs, op.max_inputs);
}

std::string compute_types(const OpDef& op) {
  if (op.kind != OpKind::Pointwise || op.name == "cast") return "";
  std::string text;
  const std::pair<std::string_view, std::string_view> types[] = {{"f32", op.pointwise.glsl_f32},
                                                                 {"i32", op.pointwise.glsl_i32},
                                                                 {"u32", op.pointwise.glsl_u32},
                                                                 {"bool", op.pointwise.glsl_bool}};
  for (const auto& [name, expression] : types) {
    if (!expression.empty()) text += formatted("{}{}", text.empty() ? "" : " ", name);
  }
  return text;
}

}  // namespace

std::string ops_markdown() {
  std::string text =
      "# Ops\n\nMade from the records by `aeshna ops`; a test compares. Each record is run by the test harness: types, values "
      "and gradients\nelementwise against the double-precision interpreter, and the gradient against central differences. "
      "Errors of the\nproject's own math functions are stated in `src/kernels/math.glsl` and asserted in "
      "`tests/kernels/math_test.cpp`.\n\n"
      "| op | kind | operands | computes in | gradient | |\n|---|---|---|---|---|---|\n";
  for (const OpDef& op : op_table()) {
    std::string doc;
    for (const char c : op.doc) {
      if (c == '|') doc += '\\';  // a column separator otherwise
      doc += c;
    }
    text += formatted("| `{}` | {} | {} | {} | {} | {} |\n", op.name, kind_name(op.kind), operands(op),
                      compute_types(op), gradient_name(op), doc);
  }
  return text;
}

}  // namespace aeshna
