// Leaves and sinks. Leaves carry attrs "dtype" and "dims" (constants: "value", a Literal); whatever else they carry
// (initialiser, training flags) belongs to the graph and to Weights. Their values come from outside: only constants have an eval.

#include "base/format.h"
#include "base/quant.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

OpDef leaf(std::string name, std::string doc) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Leaf;
  op.min_inputs = op.max_inputs = 0;
  op.gradient = GradientKind::Zero;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const TensorType type{ctx.attrs.get<DType>("dtype"), Shape(ctx.attrs.get<std::vector<std::int64_t>>("dims"))};
    if (is_quantized(type.dtype)) {
      if (ctx.op.name != "parameter") {
        ctx.fail(ErrorCode::Unsupported,
                 formatted("{} cannot be written by steps: only parameters and constants are quantized",
                           dtype_name(type.dtype)));
      }
      guarded(ctx, [&] { return type.bytes(); });  // whole blocks along the last axis
    }
    return {type};
  };
  return op;
}

OpDef constant() {
  OpDef op = leaf("constant", "A value fixed when the graph is built; attr value.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    return {ctx.attrs.get<Literal>("value").type()};
  };
  op.eval = [](const EvalContext& ctx) { ctx.results[0].data = ctx.node.attrs.get<Literal>("value").to_doubles(); };
  return op;
}

OpDef assign() {
  OpDef op;
  op.name = "assign";
  op.doc = "assign(leaf, value): the value of a state or parameter after the step; no result.";
  op.kind = OpKind::Sink;
  op.min_inputs = op.max_inputs = 2;
  op.gradient = GradientKind::Zero;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    if (ctx.inputs[0] != ctx.inputs[1]) ctx.fail(ErrorCode::ShapeMismatch, "the new value must have the leaf's type");
    return {};
  };
  op.eval = [](const EvalContext&) {};  // the interpreter collects assigned values itself
  return op;
}

OpDef check() {
  OpDef op;
  op.name = "check";
  op.doc =
      "check(bad): a true scalar makes the step bad; attrs code (out_of_range or non_finite) and what (for the "
      "message).";
  op.kind = OpKind::Sink;
  op.gradient = GradientKind::Zero;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    if (ctx.inputs[0] != TensorType{DType::boolean, {}}) ctx.fail(ErrorCode::ShapeMismatch, "needs a boolean scalar");
    const std::string& code = ctx.attrs.get<std::string>("code");
    if (code != "out_of_range" && code != "non_finite") {
      ctx.fail(ErrorCode::InvalidArgument, "attr code must be out_of_range or non_finite, not \"" + code + "\"");
    }
    ctx.attrs.get<std::string>("what");
    return {};
  };
  op.eval = [](const EvalContext&) {};  // a bad step is the runtime's matter: it becomes the state aeshna.status
  return op;
}

}  // namespace

std::vector<OpDef> leaf_ops() {
  return {
      leaf("input", "Data that the host writes before a step; attrs dtype, dims."),
      leaf("parameter", "A trainable or frozen tensor of Weights; attrs dtype, dims."),
      leaf("state", "Persistent device state, read as of the start of the step; attrs dtype, dims."),
      constant(),
      assign(),
      check(),
  };
}

}  // namespace aeshna
