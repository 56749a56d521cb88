// Reverse mode: values against central differences of the interpreter, structure, and every error.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "compile/stages.h"
#include "ir/verify.h"
#include "support/expect_error.h"
#include "support/graph_values.h"

namespace aeshna {
namespace {

using test::count_ops;

/// Every element of d(output `loss`)/d(leaf) against a central difference, in exact arithmetic.
void expect_gradient(const Graph& g, std::string_view leaf, std::string_view gradient, TensorMap leaves,
                     double tolerance = 1e-7) {
  const HostTensor got = interpret(g, leaves).outputs.at(std::string(gradient));
  HostTensor& x = leaves.at(std::string(leaf));
  ASSERT_EQ(got.type, x.type) << leaf;
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double x0 = x.data[i];
    x.data[i] = x0 + h;
    const double up = interpret(g, leaves).outputs.at("loss").data[0];
    x.data[i] = x0 - h;
    const double down = interpret(g, leaves).outputs.at("loss").data[0];
    x.data[i] = x0;
    const double want = (up - down) / (2 * h);
    EXPECT_NEAR(got.data[i], want, tolerance * std::max(1.0, std::fabs(want))) << leaf << " element " << i;
  }
}

/// d(loss) for each leaf as outputs "d/<leaf>", checked by differences before and after the graph passes.
void check_gradients(Graph& g, Value loss, const std::vector<Value>& wrt) {
  g.output("loss", loss);
  const std::vector<Value> grads = gradients(loss, wrt);
  ASSERT_EQ(grads.size(), wrt.size());
  for (std::size_t i = 0; i < wrt.size(); ++i) g.output("d/" + wrt[i].node().name, grads[i]);
  verify(g, "test");
  const TensorMap leaves = test::random_leaves(g, 11);
  const auto compiled = rewrite(*expand_composites(g), false);
  verify(*compiled, "test");
  for (const Value& value : wrt) {
    const std::string name = value.node().name;
    expect_gradient(g, name, "d/" + name, leaves);
    EXPECT_LE(test::difference(interpret(*compiled, leaves).outputs.at("d/" + name),
                               interpret(g, leaves).outputs.at("d/" + name)),
              1e-6)
        << name;
  }
}

TEST(Autodiff, RepeatedInput) {
  Graph g;
  const Value x = g.input("x", {3});
  check_gradients(g, sum(x * x + x / (x * x + 2)), {x});
}

TEST(Autodiff, SharedWeightAndBroadcastBothSides) {
  Graph g;
  const Value x = g.input("x", {5, 3}), w = g.input("w", {3, 3}), row = g.input("row", {3}),
              column = g.input("column", {5, 1});
  const Value h = tanh(linear(x, w, row));
  check_gradients(g, mean(sigmoid(linear(h, w)) * column + row), {x, w, row, column});
}

TEST(Autodiff, FanOutOfInnerValues) {
  Graph g;
  const Value x = g.input("x", {4});
  const Value a = exp(x), b = a * x, c = a + b;
  check_gradients(g, sum(a * b * c) + sum(sin(c)), {x});
}

TEST(Autodiff, CompositesByRuleAndByExpansion) {
  Graph g;
  const Value x = g.input("x", {5, 7}), t = g.input("t", {5, 7}), labels = g.input("labels", {5}, DType::i32);
  Value loss = cross_entropy(x * 1.5, clamp(labels, 0, 6));  // a rule
  loss = loss + mse(softmax(x), t) + mean(logsumexp(x * t, {1}) * 2) + bce_with_logits(x, t);
  check_gradients(g, loss, {x, t});
}

TEST(Autodiff, MovementsReductionsAndProducts) {
  Graph g;
  const Value x = g.input("x", {2, 3, 4}), w = g.input("w", {4, 5});
  Value v = matmul(x, w);     // [2, 3, 5]
  v = permute(v, {2, 0, 1});  // [5, 2, 3]
  v = concat({slice(v, {0}, {1}, {5}, {2}), pad(slice(v, {0}, {0}, {1}), {0, 0, 0}, {1, 0, 0})}, 0);
  v = reshape(v, {4, 6}) * expand(reshape(sum(x, {0, 2}, true), {3}), {8, 3}).graph().constant(0.5);
  check_gradients(g, sum(prod(v + 3, {1})) * 1e-2 + sum(reduce_max(v, {0})) + sum(reduce_min(v, {1}, true)), {x, w});
}

TEST(Autodiff, InnerValuesCanBeAskedFor) {
  Graph g;
  const Value x = g.input("x", {3});
  const Value y = x * 2, z = y * y;
  const Value loss = sum(z * x);
  const auto grads = gradients(loss, {y, z, x});
  g.output("loss", loss);
  g.output("dy", grads[0]);
  g.output("dz", grads[1]);
  g.output("dx", grads[2]);
  const TensorMap leaves{{"x", test::tensor({3}, {1, -2, 3})}};
  const auto result = interpret(g, leaves).outputs;
  for (std::size_t i = 0; i < 3; ++i) {
    const double x0 = leaves.at("x").data[i];
    EXPECT_DOUBLE_EQ(result.at("dz").data[i], x0);
    EXPECT_DOUBLE_EQ(result.at("dy").data[i], 2 * (2 * x0) * x0);  // through z only
    EXPECT_DOUBLE_EQ(result.at("dx").data[i], 3 * 4 * x0 * x0);    // d(4 x^3)
  }
}

TEST(Autodiff, SecondDerivative) {
  Graph g;
  const Value x = g.input("x", {3});
  const Value first = gradients(sum(exp(x * x)), {x})[0];
  check_gradients(g, sum(first * first), {x});
}

TEST(Autodiff, DeadBranchesGetNothing) {
  Graph g;
  const Value x = g.input("x", {3}), y = g.input("y", {3});
  const Value dead = argmax(x * y, 0);  // would stop at the loss, but does not reach it
  g.output("dead", dead);
  const Value loss = sum(exp(x));
  const std::size_t before = g.nodes().size();
  const auto grads = gradients(loss, {x});
  g.output("dx", grads[0]);
  for (std::size_t i = before; i < g.nodes().size(); ++i) {
    for (const ValueId& input : g.nodes()[i].inputs) EXPECT_NE(input, y.id());
  }
}

TEST(Autodiff, OnlyPathsFromTheRequestedValuesAreDifferentiated) {
  Graph g;
  const Value x = g.input("x", {3}), w = g.input("w", {3});
  const Value loss = sum(sin(cos(x)) * w);
  const std::size_t before = g.nodes().size();
  gradients(loss, {w});
  for (std::size_t i = before; i < g.nodes().size(); ++i) {
    const std::string& op = g.nodes()[i].op->name;
    EXPECT_TRUE(op != "cos" && op != "sin" && op != "neg") << op;
  }
}

TEST(Autodiff, UnreachedValuesGetZerosOfTheirType) {
  Graph g;
  const Value x = g.input("x", {3}), y = g.input("y", {2, 0, 4}), s = g.input("s", {}),
              h = g.input("h", {2}, DType::f16);
  const auto grads = gradients(sum(exp(x)), {y, s, h});
  EXPECT_EQ(grads[0].type(), y.type());
  EXPECT_EQ(grads[1].type(), s.type());
  EXPECT_EQ(grads[2].type(), h.type());
  g.output("s", grads[1]);
  g.output("h", grads[2]);
  const auto result = interpret(g, test::random_leaves(g, 1)).outputs;
  EXPECT_EQ(result.at("s").data, std::vector<double>({0}));
  EXPECT_EQ(result.at("h").data, std::vector<double>({0, 0}));
}

TEST(Autodiff, GradientsHaveTheDTypeOfTheirValues) {
  Graph g;
  const Value h = g.input("h", {3}, DType::f16);
  const Value loss = sum(cast(h, DType::f32) * 2);
  const auto grad = gradients(loss, {h})[0];
  EXPECT_EQ(grad.type(), h.type());
}

TEST(Autodiff, IntegersAndZeroGradientsStopTheSweep) {
  Graph g;
  const Value x = g.input("x", {4}), i = g.input("i", {4}, DType::i32);
  const Value loss =
      sum(floor(x) * x + cast(i * 2, DType::f32) * x + stop_gradient(x) * 3 + cast(cast(x, DType::i32), DType::f32));
  const Value grad = gradients(loss, {x})[0];
  g.output("dx", grad);
  TensorMap leaves{{"x", test::tensor({4}, {0.5, 1.5, -0.5, 2.25})},
                   {"i", test::tensor({DType::i32, {4}}, {1, 2, 3, 4})}};
  EXPECT_EQ(interpret(g, leaves).outputs.at("dx").data, std::vector<double>({0 + 2, 1 + 4, -1 + 6, 2 + 8}));
}

TEST(Autodiff, SeedScalesTheLoss) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value loss = sum(x * x);
  const Value wrt[] = {x};
  g.output("dx", differentiate(g, loss, wrt, 0.25)[0]);
  EXPECT_EQ(interpret(g, {{"x", test::tensor({2}, {3, -8})}}).outputs.at("dx").data, std::vector<double>({1.5, -4}));
}

TEST(Autodiff, ReductionToAScalarOfARankZeroLossItself) {
  Graph g;
  const Value x = g.input("x", {});
  g.output("d", gradients(x, {x})[0]);
  EXPECT_EQ(interpret(g, {{"x", test::tensor(Shape{}, {3})}}).outputs.at("d").data, std::vector<double>({1}));
}

TEST(Autodiff, AppendedNodesAreBackwardFullPrecisionWithOrigins) {
  Graph g;
  const Value x = g.input("x", {3, 3}), w = g.input("w", {3, 3});
  const Value y = matmul(x, w);
  const Value loss = mean(relu(y));
  const std::size_t before = g.nodes().size();
  g.output("dw", gradients(loss, {w})[0]);
  verify(g, "test");
  bool product = false;
  for (std::size_t i = before; i < g.nodes().size(); ++i) {
    const Node& node = g.nodes()[i];
    if (node.op->kind == OpKind::Leaf) continue;
    if (node.op->name == "matmul") {
      product = true;
      EXPECT_EQ(node.segment, Segment::Backward);
      EXPECT_EQ(node.precision, Precision::Full);
      EXPECT_EQ(node.origins, std::vector<NodeId>{y.id().node});
      EXPECT_EQ(node.line.line, y.node().line.line);
    }
  }
  EXPECT_TRUE(product);
}

TEST(Autodiff, SeveralResultsOfOneNode) {
  OpDef split;  // x -> (2 x, 3 x)
  split.name = "split";
  split.kind = OpKind::Composite;
  split.gradient = GradientKind::Rule;
  split.infer = [](const InferContext& ctx) { return std::vector<TensorType>{ctx.inputs[0], ctx.inputs[0]}; };
  split.eval = [](const EvalContext& ctx) {
    for (std::size_t i = 0; i < ctx.inputs[0]->data.size(); ++i) {
      ctx.results[0].data[i] = 2 * ctx.inputs[0]->data[i];
      ctx.results[1].data[i] = 3 * ctx.inputs[0]->data[i];
    }
  };
  split.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value>, std::span<const Value> dy) {
    Value total;
    for (std::size_t r = 0; r < 2; ++r) {
      if (!dy[r]) continue;
      const Value part = c.add("mul", {dy[r], c.scalar(r == 0 ? 2 : 3)});
      total = total ? c.add("add", {total, part}) : part;
    }
    return std::vector<Value>{total};
  };
  const auto gradient_of = [&](bool first, bool second) {
    Graph g;
    const Value x = g.input("x", {2});
    const NodeId node = g.add_node(split, {x.id()}, {}, Node{});
    Value loss = g.constant(0);
    if (first) loss = loss + sum(g.value({node, 0}) * g.value({node, 0}));
    if (second) loss = loss + sum(g.value({node, 1}));
    g.output("dx", gradients(loss, {x})[0]);
    return interpret(g, {{"x", test::tensor({2}, {1, 5})}}).outputs.at("dx").data;
  };
  EXPECT_EQ(gradient_of(true, true), std::vector<double>({8 + 3, 40 + 3}));
  EXPECT_EQ(gradient_of(true, false), std::vector<double>({8, 40}));
  EXPECT_EQ(gradient_of(false, true), std::vector<double>({3, 3}));
}

// ---- errors

template <class F>
std::string error_of(ErrorCode code, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

OpDef opaque_op() {
  OpDef op;
  op.name = "opaque";
  op.kind = OpKind::Composite;
  op.gradient = GradientKind::NotDifferentiable;
  op.infer = [](const InferContext& ctx) { return std::vector<TensorType>{ctx.inputs[0]}; };
  return op;
}

TEST(AutodiffErrors, NotDifferentiableNamesOpLineAndPath) {
  const OpDef opaque = opaque_op();
  Graph g;
  const Value x = g.input("x", {3});
  Node like;
  like.line = SourceLine("model.cpp", 42);
  const Value y = g.value({g.add_node(opaque, {x.id()}, {}, like), 0});
  const Value loss = sum(exp(y)).named("total");
  const std::string text = error_of(ErrorCode::InvalidArgument, [&] { gradients(loss, {x}); });
  EXPECT_HAS(text, "[opaque] is not differentiable");
  EXPECT_HAS(text, "opaque (model.cpp:42)");
  EXPECT_HAS(text, "path loss <- sum 'total' (");
  EXPECT_HAS(text, " <- exp (");
  EXPECT_HAS(text, ") <- opaque (model.cpp:42)");
  EXPECT_NO_THROW(gradients(loss, {y}));  // nothing has to pass through it
}

TEST(AutodiffErrors, LossMustBeAFloatScalarOfThisGraph) {
  Graph g, other;
  const Value x = g.input("x", {3});
  EXPECT_HAS(error_of(ErrorCode::ShapeMismatch, [&] { gradients(exp(x), {x}); }),
             "the loss must be a float scalar (rank 0), found f32[3]");
  EXPECT_HAS(error_of(ErrorCode::ShapeMismatch, [&] { gradients(sum(x, {0}, true), {x}); }), "found f32[1]");
  EXPECT_HAS(error_of(ErrorCode::ShapeMismatch, [&] { gradients(argmax(x, 0), {x}); }), "found i32[]");
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, [&] { gradients(Value(), {x}); }), "the loss is an empty Value");
  const Value foreign = other.input("x", {});
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, [&] { gradients(sum(x), {foreign}); }), "not of this graph");
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, [&] { gradients(sum(x), {Value()}); }), "not of this graph");
  EXPECT_HAS(error_of(ErrorCode::InvalidArgument, [&] { differentiate(g, foreign, {}); }),
             "the loss is not a value of this graph");
}

TEST(AutodiffErrors, OnlyFloatsHaveGradients) {
  Graph g;
  const Value i = g.input("i", {3}, DType::i32);
  const std::string text = error_of(ErrorCode::DTypeMismatch, [&] { gradients(sum(cast(i, DType::f32)), {i}); });
  EXPECT_HAS(text, "only float values have gradients, found i32[3]");
  EXPECT_HAS(text, "input 'i' (");
}

TEST(AutodiffErrors, ARuleThatGivesTheWrongTypeIsOurBug) {
  OpDef op = opaque_op();
  op.name = "wrong_rule";
  op.gradient = GradientKind::Rule;
  op.vjp = [](const BuildContext& c, std::span<const Value>, std::span<const Value>, std::span<const Value>) {
    return std::vector<Value>{c.scalar(1)};
  };
  Graph g;
  const Value x = g.input("x", {3});
  const Value y = g.value({g.add_node(op, {x.id()}, {}, Node{}), 0});
  EXPECT_HAS(error_of(ErrorCode::Internal, [&] { gradients(sum(y), {x}); }),
             "[wrong_rule] gradient is f32[] but its value is f32[3]");
}

}  // namespace
}  // namespace aeshna
