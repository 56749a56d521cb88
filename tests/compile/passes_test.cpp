// Dead code, common subexpressions, constant folding, expansion of composites.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "base/format.h"
#include "compile/stages.h"
#include "ir/leaf.h"
#include "ir/verify.h"
#include "support/graph_values.h"

namespace aeshna {
namespace {

using test::count_ops;
using test::formula;

// ---- dead code

TEST(EliminateDead, KeepsOutputsAssignsChecksAndNamedLeaves) {
  Graph g;
  const Value x = g.input("x", {3}), unused = g.input("unused", {2});
  const Value counter = g.state("counter", {}), weight = g.parameter("weight", {3});
  g.output("y", exp(x));
  g.assign(counter, counter + 1);
  const Value operands[] = {logical_not(is_finite(sum(x)))};
  g.add("check", operands, {{"code", std::string("non_finite")}, {"what", std::string("sum")}}, SourceLine());
  sin(cos(x * 3));
  g.constant(5);

  const auto after = eliminate_dead(g);
  verify(*after, "test");
  EXPECT_EQ(count_ops(*after, "sin") + count_ops(*after, "cos") + count_ops(*after, "mul"), 0);
  EXPECT_EQ(count_ops(*after, "constant"), 1);  // of counter + 1
  EXPECT_EQ(count_ops(*after, "exp"), 1);
  EXPECT_EQ(count_ops(*after, "check"), 1);
  EXPECT_EQ(count_ops(*after, "is_finite"), 1);
  ASSERT_EQ(after->assigns().size(), 1u);
  for (const Value& leaf : {x, unused, counter, weight}) EXPECT_TRUE(after->leaf(leaf.node().name)) << leaf.node().name;
}

TEST(EliminateDead, LeavesTheSourceUntouched) {
  Graph g;
  const Value x = g.input("x", {3});
  exp(x);
  g.output("y", x);
  const std::string before = g.print();
  eliminate_dead(g);
  EXPECT_EQ(g.print(), before);
}

// ---- common subexpressions

TEST(MergeCommon, EqualNodesAndConstantsBecomeOne) {
  Graph g;
  const Value x = g.input("x", {3}), y = g.input("y", {3});
  g.output("a", exp(x * 2) + exp(x * 2));
  g.output("b", x + y);
  g.output("c", y + x);  // commutative
  g.output("d", x - y);
  g.output("e", y - x);  // not
  const auto after = merge_common(g);
  verify(*after, "test");
  EXPECT_EQ(count_ops(*after, "exp"), 1);
  EXPECT_EQ(count_ops(*after, "mul"), 1);
  EXPECT_EQ(count_ops(*after, "constant"), 1);
  EXPECT_EQ(count_ops(*after, "add"), 2);  // of a, and of b and c
  EXPECT_EQ(count_ops(*after, "sub"), 2);
}

TEST(MergeCommon, AttributesAreComparedByBits) {
  Graph g;
  const Value x = g.input("x", {3});
  g.output("a", pad(x, {1}, {1}, 0.0));
  g.output("b", pad(x, {1}, {1}, -0.0));
  g.output("c", x + 0.0);
  g.output("d", x + -0.0);
  g.output("e", sum(x, {0}, true));
  g.output("f", sum(x, {0}, false));
  const auto after = merge_common(g);
  EXPECT_EQ(count_ops(*after, "pad"), 2);
  EXPECT_EQ(count_ops(*after, "add"), 2);
  EXPECT_EQ(count_ops(*after, "sum"), 2);
}

TEST(MergeCommon, RandomNodesStayApart) {
  Graph g;
  const Value a = random_uniform(g, {4}), b = random_uniform(g, {4});
  const Value in[] = {g.value(a.node().inputs[0]), g.value(a.node().inputs[1])};
  const Value twin = g.add("random_uniform", in, a.node().attrs, SourceLine());
  g.output("y", a + b + twin);
  EXPECT_EQ(count_ops(*merge_common(g), "random_uniform"), 3);
  EXPECT_EQ(count_ops(*merge_common(*expand_composites(g)), "random_bits"), 3);
}

TEST(MergeCommon, ProductsOfDifferentPrecisionStayApart) {
  Graph g;
  const Value x = g.input("x", {3, 3});
  const Value a = matmul(x, x), b = matmul(x, x), c = exp(x), d = exp(x);
  g.mutable_node(b.id().node).precision = Precision::Full;
  g.mutable_node(d.id().node).precision = Precision::Full;
  g.output("y", a + b + c + d);
  const auto after = merge_common(g);
  EXPECT_EQ(count_ops(*after, "matmul"), 2);
  EXPECT_EQ(count_ops(*after, "exp"), 1);
}

TEST(MergeCommon, TheMergedNodeRunsInTheEarlierSegmentAndKeepsOrigins) {
  Graph g;
  const Value x = g.input("x", {3});
  const Value late = exp(x), early = exp(x);
  g.mutable_node(late.id().node).segment = Segment::Backward;
  g.output("y", early);
  const Value uses = late * 2;
  g.output("z", uses);
  const auto after = merge_common(g);
  verify(*after, "test");
  const Node& node = after->node(after->outputs()[0].value.node);
  EXPECT_EQ(node.segment, Segment::Forward);
  EXPECT_EQ(node.origins, (std::vector<NodeId>{late.id().node, early.id().node}));
}

// ---- constant folding

TEST(FoldConstants, EvaluatesChainsAndRoundsToStorage) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value c = exp(g.constant(1.0)) * 2;
  const Value v = g.constant(Literal::from_doubles({DType::f32, {2}}, std::vector<double>{1, 3}));
  g.output("y", x * c);
  g.output("z", x + reshape(sum(v * v, {0}, true), {1}));
  const auto after = eliminate_dead(*fold_constants(g));
  verify(*after, "test");
  EXPECT_EQ(formula(*after, "y"), formatted("mul(x, {})", static_cast<double>(static_cast<float>(std::exp(1.0)) * 2)));
  EXPECT_EQ(count_ops(*after, "constant"), 2);
  const auto leaves = test::random_leaves(g, 1);
  EXPECT_TRUE(test::identical(interpret(*after, leaves, Rounding::Storage).outputs.at("z"),
                              interpret(g, leaves, Rounding::Storage).outputs.at("z")));
}

TEST(FoldConstants, KeepsWhatIsCheaperOrNotConstant) {
  Graph g;
  const Value x = g.input("x", {2});
  g.output("a", expand(g.constant(2), {1000}) + iota(g, {1000}, 0).graph().constant(1));
  g.output("b", cast(iota(g, {1000}, 0), DType::f32));
  g.output("c", random_uniform(g, {3}));
  g.output("d", x * 2);
  const auto after = fold_constants(g);
  EXPECT_EQ(count_ops(*after, "expand"), 1);
  EXPECT_EQ(count_ops(*after, "iota"), count_ops(g, "iota"));
  EXPECT_EQ(count_ops(*after, "random_uniform"), 1);
  EXPECT_EQ(count_ops(*after, "mul"), 1);
}

TEST(FoldConstants, LargeResultsStayNodes) {
  const auto folded = [](std::int64_t n) {
    Graph g;
    std::vector<double> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7);
    g.output("y", exp(g.constant(Literal::from_doubles({DType::f32, {n}}, values))));
    return count_ops(*fold_constants(g), "exp") == 0;
  };
  EXPECT_TRUE(folded(65536));
  EXPECT_FALSE(folded(65537));
}

TEST(FoldConstants, NonFiniteValuesAndNarrowTypes) {
  Graph g;
  g.output("nan", g.constant(0) / g.constant(0));
  g.output("inf", g.constant(1) / g.constant(0));
  g.output("half", cast(g.constant(1e6), DType::f16));
  g.output("wrap", g.constant(2147483647, DType::i32) + 1);
  const auto after = fold_constants(g);
  const auto result = interpret(*after, {}).outputs;
  EXPECT_TRUE(std::isnan(result.at("nan").data[0]));
  EXPECT_TRUE(std::isinf(result.at("inf").data[0]));
  EXPECT_TRUE(std::isinf(result.at("half").data[0]));
  EXPECT_EQ(result.at("wrap").data[0], -2147483648.0);
  for (const Graph::Output& output : after->outputs())
    EXPECT_TRUE(is_constant(after->node(output.value.node))) << output.name;
}

// ---- composites

TEST(ExpandComposites, NoneIsLeftAndValuesAgree) {
  Graph g;
  const Value x = g.input("x", {5, 7}), labels = g.input("labels", {5}, DType::i32), target = g.input("target", {5, 7});
  g.output("loss", cross_entropy(x, clamp(labels, 0, 6)));
  g.output("softmax", softmax(x, 0));
  g.output("log_softmax", log_softmax(x));
  g.output("lse", logsumexp(x, {1}));
  g.output("mean", mean(x));
  g.output("mse", mse(x, target));
  g.output("bce", bce_with_logits(x, target, Reduction::Sum));
  g.output("normal", random_normal(g, {9}));
  const auto after = expand_composites(g);
  verify(*after, "test");
  for (const Node& node : after->nodes()) EXPECT_NE(node.op->kind, OpKind::Composite) << node.op->name;
  const auto leaves = test::random_leaves(g, 3);
  const auto want = interpret(g, leaves).outputs, got = interpret(*after, leaves).outputs;
  for (const auto& [name, value] : want)
    EXPECT_LE(test::difference(got.at(name), value), 2e-7) << name;  // 1 / n is an f32 constant
}

TEST(ExpandComposites, ResultsKeepTheNameAndEveryNodeTheLine) {
  Graph g;
  const Value y = softmax(g.input("x", {5})).named("probabilities");
  g.output("y", y);
  const auto after = expand_composites(g);
  EXPECT_EQ(after->find("probabilities").id(), after->outputs()[0].value);
  for (const Node& node : after->nodes()) {
    if (node.op->kind != OpKind::Leaf) {
      EXPECT_EQ(node.line.line, y.node().line.line);
    }
  }
}

TEST(ExpandComposites, AnExpansionOfTheWrongTypeIsOurBug) {
  OpDef broken;
  broken.name = "broken";
  broken.infer = [](const InferContext& ctx) { return std::vector<TensorType>{ctx.inputs[0]}; };
  broken.expand = [](const BuildContext& c, std::span<const Value> in) {
    return std::vector<Value>{c.add("sum", {in[0]}, {{"axes", std::vector<std::int64_t>{0}}, {"keepdims", false}})};
  };
  Graph g;
  const Value x = g.input("x", {3});
  g.output("y", g.value({g.add_node(broken, {x.id()}, {}, Node{}), 0}));
  try {
    expand_composites(g);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Internal);
    EXPECT_NE(std::string(e.what()).find("[broken] expands to f32[] instead of f32[3]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace aeshna
