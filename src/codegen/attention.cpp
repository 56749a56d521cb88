// Attention and its gradients: the hooks of attention_forward.glsl and attention_gradient.glsl.
#include <array>
#include <numbers>
#include <string>

#include "base/fail.h"
#include "base/format.h"
#include "codegen/families.h"

namespace aeshna {
namespace {

/// Writes the hooks of one attention kernel.
class AttentionHooks {
 public:
  /// `required`: the first optional operand.
  AttentionHooks(KernelWriter& writer, std::size_t required)
      : writer_(writer), call_(writer.fused().call), vector_(writer.spec().constant("VEC") != 0), required_(required) {
    AESHNA_CHECK(writer.fused().kind == FusedKernel::Kind::Template && call_.inputs.size() >= required);
  }

  void constants() {
    writer_.define_constants("PARTS");
    const std::int64_t parts = writer_.spec().constant("PARTS");
    writer_.define("SPLIT", parts > 1 ? 1 : 0);
    if (parts > 1) number("PARTS", parts);
    const Shape &q = call_.inputs[0].shape, &k = call_.inputs[1].shape;
    number("HEADS", q[1]);
    number("KV_HEADS", k[1]);
    number("GROUP", q[1] / k[1]);
    number("QUERIES", q[2]);
    number("KEYS", k[2]);
    number("QUERY_OFFSET", call_.attrs.get<std::int64_t>("query_offset"));
    number("WINDOW", call_.attrs.get<std::int64_t>("window"));
    const double scale = call_.attrs.get<double>("scale");
    writer_.define("SCALE", glsl_literal(DType::f32, scale));
    writer_.define("SCALE2", glsl_literal(DType::f32, scale * std::numbers::log2e));
  }

  /// `fetch_<name>(element, d)` and `<name>_AT(batch, head, row)`; `rows_axis` and `heads_axis` of the input.
  void tensor(std::string_view name, std::size_t input, int heads_axis, int rows_axis) {
    const std::string buffer = writer_.input(input);
    if (vector_) {
      writer_.set_vector_view(call_.input_operands[input]);
      writer_.add(
          formatted("vec4 fetch_{}(uint element, uint d) {{ return {}[(element >> 2) + d]; }}\n", name, buffer));
    } else {
      writer_.add(
          formatted("vec4 fetch_{}(uint element, uint d) {{\n  vec4 value = vec4(0.0);\n  [[unroll]] for (uint c = 0; "
                    "c < 4; ++c) {{\n"
                    "    if (d * 4 + c < D) value[c] = {}[element + d * 4 + c];\n  }}\n  return value;\n}}\n",
                    name, buffer));
    }
    const std::string stride = writer_.number(this->stride(input, rows_axis));
    writer_.define(formatted("{}_STRIDE", name), stride);
    writer_.define(
        formatted("{}_AT(batch, head, row)", name),
        formatted("({} + (batch) * {} + (head) * {} + (row) * {})", writer_.number(call_.views[input].offset),
                  writer_.number(this->stride(input, 0)), writer_.number(this->stride(input, heads_axis)), stride));
  }

  /// The optional operands.
  void options() {
    const bool mask = writer_.spec().constant("MASK") != 0;
    if (mask) {
      std::string element = writer_.number(call_.views[required_].offset);
      constexpr std::array kAxes = {"batch", "head", "query", "key"};
      for (int axis = 0; axis < 4; ++axis) {
        const std::int64_t stride = this->stride(required_, axis);
        if (stride != 0)
          element += formatted(" + ({}) * {}", kAxes[static_cast<std::size_t>(axis)], writer_.number(stride));
      }
      writer_.define("MASK_AT(batch, head, query, key)", formatted("{}[{}]", writer_.input(required_), element));
    }
    if (writer_.spec().constant("POSITION") != 0) writer_.define("POSITIONS", writer_.input(required_ + (mask ? 1 : 0)));
  }

  void dense_input(std::string_view macro, std::size_t input) { writer_.define(macro, writer_.input(input)); }
  void dense_result(std::string_view macro, std::size_t result) {
    writer_.define(macro, writer_.result(result));
  }
  /// `store_<name>(element, d, value)` into a result.
  void store(std::string_view name, std::size_t result) {
    const std::uint32_t operand = call_.result_operands[result];
    if (vector_) {
      writer_.set_vector_view(operand);
      writer_.add(formatted("void store_{}(uint element, uint d, vec4 value) {{ B{}[(element >> 2) + d] = value; }}\n",
                            name, operand));
    } else {
      writer_.add(
          formatted("void store_{}(uint element, uint d, vec4 value) {{\n  [[unroll]] for (uint c = 0; c < 4; ++c) {{\n"
                    "    if (d * 4 + c < D) B{}[element + d * 4 + c] = value[c];\n  }}\n}}\n",
                    name, operand));
    }
  }

  KernelSource finish(std::string_view name) {
    writer_.add(kernel_text("attention_tile"));
    return writer_.finish(name);
  }

 private:
  void number(std::string_view macro, std::int64_t value) { writer_.define(macro, writer_.number(value)); }
  /// 0 where there is one coordinate.
  std::int64_t stride(std::size_t input, int axis) const {
    return call_.inputs[input].shape[axis] > 1 ? call_.views[input].strides.at(static_cast<std::size_t>(axis)) : 0;
  }

  KernelWriter& writer_;
  const TemplateCall& call_;
  bool vector_;
  std::size_t required_;
};

}  // namespace

KernelSource generate_attention(KernelWriter& writer) {
  AttentionHooks hooks(writer, 3);
  hooks.constants();
  hooks.tensor("Q", 0, 1, 2);
  hooks.tensor("K", 1, 1, 2);
  hooks.tensor("V", 2, 1, 2);
  hooks.options();
  hooks.store("out", 0);
  hooks.dense_result("LSE", 1);
  writer.set_workspace_type("vec4");
  return hooks.finish("attention_forward");
}

KernelSource generate_attention_gradient(KernelWriter& writer) {
  AttentionHooks hooks(writer, 6);
  hooks.constants();
  hooks.tensor("Q", 0, 1, 2);
  hooks.tensor("K", 1, 1, 2);
  hooks.tensor("V", 2, 1, 2);
  hooks.tensor("G", 3, 2, 1);
  hooks.dense_input("LSE", 4);
  hooks.dense_input("DELTA", 5);
  hooks.options();
  hooks.store("first", 0);
  if (writer.spec().constant("DKV") != 0) hooks.store("second", 1);
  writer.set_workspace_type("vec4");
  return hooks.finish("attention_gradient");
}

}  // namespace aeshna
