// Graph: building, names, scopes, and one test per error message.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/ops.h"
#include "base/format.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "support/expect_error.h"

namespace aeshna {
namespace {

/// What `body` throws, as text; fails the test when it throws nothing.
std::string thrown(ErrorCode code, auto body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_parts(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Graph, AttributesThatAreMissingOrMistypedNameTheOp) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  EXPECT_ERROR(g.add("softmax", {&x, 1}, {}, SourceLine{}), ErrorCode::InvalidArgument,
               "[softmax] attribute 'axis' is missing");
  EXPECT_ERROR(g.add("permute", {&x, 1}, {{"axes", 1.5}}, SourceLine{}), ErrorCode::InvalidArgument,
               "[permute] attribute 'axes' has another type than expected");
}

TEST(Graph, LeavesKeepTypeAndOptions) {
  Graph g;
  const Value x = g.input("x", {2, 3}, DType::i32);
  EXPECT_EQ(x.type(), (TensorType{DType::i32, {2, 3}}));
  const Value w = g.parameter("w", {4, 3}, {.lr_scale = 2, .decay_scale = 0});
  EXPECT_EQ(leaf_init(w.node()), Init::kaiming_uniform(std::sqrt(1.0 / 3.0)));
  EXPECT_TRUE(w.node().attrs.get<bool>("trainable"));
  EXPECT_EQ(w.node().attrs.get<double>("lr_scale"), 2);
  EXPECT_EQ(w.node().attrs.get<double>("decay_scale"), 0);
  EXPECT_EQ(leaf_init(g.parameter("b", {4}).node()), Init::zeros());
  EXPECT_EQ(leaf_init(g.parameter("c", {4}, {.init = Init::normal(1, 2)}).node()), Init::normal(1, 2));
  const Value s = g.state("s", {}, DType::u32, Init::constant(5));
  EXPECT_EQ(leaf_init(s.node()), Init::constant(5));
  int n = 0;
  for (const Init& bad : {Init::uniform(NAN, 1), Init::uniform(2, 1), Init::normal(0, -1), Init::kaiming_normal(INFINITY)}) {
    const Value leaf = g.parameter(formatted("bad{}", n++), {4}, {.init = bad});
    EXPECT_ERROR(leaf_init(leaf.node()), ErrorCode::InvalidArgument, formatted("'{}' cannot be initialised", leaf.node().name));
  }
  const Value c = g.constant(0.5);
  EXPECT_EQ(c.type(), (TensorType{DType::f32, {}}));
  EXPECT_EQ(g.leaf("w"), w.id().node);
  EXPECT_EQ(g.leaf("nothing"), std::nullopt);
  EXPECT_TRUE(is_input(x.node()) && is_parameter(w.node()) && is_state(s.node()) && is_constant(c.node()));
}

TEST(Graph, NodesKnowTheirBuilderLine) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value y = relu(x);
  EXPECT_EQ(y.node().line.line, x.node().line.line + 1);
  EXPECT_TRUE(y.node().line.file.ends_with("graph_test.cpp"));
  EXPECT_TRUE(y.node().origins.empty());
  EXPECT_EQ(clone(g)->node(y.id().node).origins, std::vector<NodeId>{y.id().node});
  EXPECT_EQ(SourceLine{}.to_string(), "?");
}

TEST(Graph, ScopesPrefixNames) {
  Graph g;
  const Scope outer(g, "encoder");
  {
    const Scope inner(g, "0");
    EXPECT_EQ(g.parameter("w", {2, 2}).node().name, "encoder/0/w");
    EXPECT_EQ(relu(g.input("x", {2})).named("h").node().name, "encoder/0/h");
  }
  EXPECT_EQ(g.input("x", {2}).node().name, "encoder/x");
  EXPECT_EQ(g.find("encoder/0/h").node().op->name, "relu");
}

TEST(Graph, FindSeesLeavesOutputsAndNames) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value h = relu(x).named("hidden");
  g.output("result", h);
  EXPECT_EQ(g.find("x"), x);
  EXPECT_EQ(g.find("hidden"), h);
  EXPECT_EQ(g.find("result"), h);
  expect_parts(thrown(ErrorCode::NotFound, [&] { g.find("hiden"); }), {"'hiden'", "did you mean 'hidden'"});
  neg(x).named("hidden");
  expect_parts(thrown(ErrorCode::InvalidArgument, [&] { g.find("hidden"); }), {"'hidden' is that of 2 values"});
}

TEST(Graph, SegmentsFollowTheirInputs) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value h = relu(x);
  g.mutable_node(h.id().node).segment = Segment::Backward;
  EXPECT_EQ(neg(h).node().segment, Segment::Backward);
  EXPECT_EQ(neg(x).node().segment, Segment::Forward);
  const NodeId copy = g.add_node(find_op("neg"), {h.id()}, {}, x.node());
  EXPECT_EQ(g.node(copy).segment, Segment::Backward);
}

TEST(Graph, BuildErrorsNameTheThing) {
  Graph g;
  Graph other;
  const Value x = g.input("x", {2, 3});
  const Value s = g.state("s", {2, 3});
  const Value foreign = other.input("y", {2});
  const auto invalid = [](auto body) { return thrown(ErrorCode::InvalidArgument, body); };
  expect_parts(invalid([&] { g.input("x", {1}); }), {"[input]", "'x' is taken", "graph_test.cpp:"});
  expect_parts(invalid([&] { g.state("x", {1}); }), {"[state]", "'x' is taken"});
  expect_parts(invalid([&] { g.input("", {1}); }), {"[input] needs a name"});
  expect_parts(invalid([&] { g.parameter("i", {1}, {.dtype = DType::i32}); }), {"[parameter] 'i'", "i32", "trainable"});
  expect_parts(invalid([&] { g.parameter("i", {1}, {.lr_scale = INFINITY}); }), {"'i'", "inf"});
  expect_parts(thrown(ErrorCode::OutOfRange, [&] { g.constant(0.5, DType::i32); }), {"0.5", "i32", "graph_test.cpp:"});
  expect_parts(invalid([&] { g.constant(Literal()); }), {"[constant]", "no data"});
  expect_parts(invalid([&] { g.output("", x); }), {"[output]"});
  g.output("o", x);
  expect_parts(invalid([&] { g.output("o", s); }), {"'o' is taken", "graph_test.cpp:"});
  expect_parts(invalid([&] { g.output("p", foreign); }), {"'p'", "another graph"});
  expect_parts(invalid([&] { g.output("p", Value()); }), {"empty Value"});
  expect_parts(invalid([&] { static_cast<void>(Value().type()); }), {"empty Value"});
  expect_parts(invalid([&] { x.named("z"); }), {"'x' is a leaf", "'z'"});
  expect_parts(invalid([&] { relu(x).named(""); }), {"empty name"});
  expect_parts(invalid([&] { g.push_scope(""); }), {"scope"});
  expect_parts(invalid([&] { g.pop_scope(); }), {"pop_scope"});
  expect_parts(invalid([&] { static_cast<void>(g.node(999)); }), {"999"});
  expect_parts(invalid([&] { static_cast<void>(g.type({x.id().node, 1})); }), {"no result 1", "input"});
  const Value foreign_operands[] = {x, foreign};
  expect_parts(invalid([&] {
                 g.add("add", foreign_operands, {}, {"b.cpp", 7});
               }),
               {"[add] operand 1", "another graph", "b.cpp:7"});
  const Value empty_operands[] = {x, Value()};
  expect_parts(invalid([&] { g.add("add", empty_operands, {}, {"b.cpp", 7}); }), {"[add] operand 1", "empty Value"});
  const Value one[] = {x};
  expect_parts(invalid([&] {
                 g.add("add", one, {}, {"b.cpp", 7});
               }),
               {"[add] takes 2 operands, got 1", "f32[2, 3]", "b.cpp:7"});
  expect_parts(thrown(ErrorCode::NotFound, [&] { g.add("frobnicate", one, {}, {}); }), {"frobnicate"});
}

TEST(Graph, AssignErrorsNameTheThing) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value s = g.state("s", {2});
  const Value w = g.parameter("w", {2});
  expect_parts(thrown(ErrorCode::InvalidArgument, [&] { g.assign(x, s); }), {"[assign]", "'input'"});
  expect_parts(thrown(ErrorCode::InvalidArgument, [&] { g.assign(relu(s), s); }), {"[assign]", "'relu'"});
  expect_parts(thrown(ErrorCode::ShapeMismatch, [&] { g.assign(s, g.input("y", {3})); }), {"'s'", "f32[2]", "f32[3]"});
  expect_parts(thrown(ErrorCode::DTypeMismatch, [&] { g.assign(s, g.input("z", {2}, DType::i32)); }),
               {"'s'", "i32[2]"});
  EXPECT_TRUE(g.assigns().empty());
  g.assign(s, x);
  g.assign(w, x);
  EXPECT_EQ(g.assigns().size(), 2u);
  expect_parts(thrown(ErrorCode::InvalidArgument, [&] { g.assign(s, w); }),
               {"'s' is assigned already", "graph_test.cpp:"});
}

TEST(Graph, AFailedCallAddsNothing) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const std::string before = g.print();
  EXPECT_THROW(g.input("x", {1}), Error);
  EXPECT_THROW(add(x, g.value({5, 0})), Error);
  EXPECT_THROW(matmul(x, x), Error);
  EXPECT_EQ(g.print(), before);
}

TEST(Rebuild, CloneIsEqual) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  const Value w = g.parameter("w", {3, 3});
  const Value h = relu(matmul(x, w)).named("h");
  g.mutable_node(h.id().node).precision = Precision::Full;
  g.assign(w, neg(w));
  g.output("a", h);
  g.output("b", h);
  EXPECT_EQ(clone(g)->print(), g.print());
}

TEST(Rebuild, MapMergesOriginsPrecisionSegmentAndName) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value h = relu(x);
  const Value y = neg(h).named("y");
  g.output("out", y);
  g.mutable_node(y.id().node).precision = Precision::Full;
  g.mutable_node(y.id().node).segment = Segment::Backward;

  Rebuilder rebuilder(g);
  rebuilder.copy(x.id().node);
  rebuilder.copy(h.id().node);
  const Value a = abs(rebuilder.mapped(h.id()));
  const Value b = sign(a);
  rebuilder.map(y.id().node, {b});
  const auto result = rebuilder.finish();

  for (const Value& value : {a, b}) {
    const Node& node = result->node(value.id().node);
    EXPECT_EQ(node.origins, std::vector<NodeId>{y.id().node});
    EXPECT_EQ(node.precision, Precision::Full);
    EXPECT_EQ(node.segment, Segment::Backward);
  }
  EXPECT_EQ(result->find("y"), b);
  EXPECT_EQ(result->find("out"), b);
  EXPECT_EQ(result->node(1).precision, Precision::Contract);
}

TEST(Rebuild, TwoNodesMergedIntoOneKeepBothOrigins) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value a = relu(x);
  const Value b = neg(a);
  g.output("out", b);
  Rebuilder rebuilder(g);
  rebuilder.copy(0);
  rebuilder.drop(a.id().node);
  const NodeId merged =
      rebuilder.target().add_node(find_op("abs"), {rebuilder.mapped(x.id()).id()}, {}, clone(g)->node(a.id().node));
  rebuilder.map(b.id().node, {rebuilder.target().value({merged, 0})});
  EXPECT_EQ(rebuilder.finish()->node(merged).origins, (std::vector<NodeId>{1, 2}));
}

TEST(Rebuild, MistakesOfAPassAreInternalErrors) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value y = relu(x);
  g.output("y", y);
  Rebuilder rebuilder(g);
  expect_parts(thrown(ErrorCode::Internal, [&] { rebuilder.copy(y.id().node); }), {"node 0", "input", "no stand-in"});
  const Value copy = rebuilder.copy(0)[0];
  expect_parts(thrown(ErrorCode::Internal, [&] { rebuilder.map(1, {}); }), {"relu", "1 results, its replacement 0"});
  expect_parts(thrown(ErrorCode::Internal, [&] { rebuilder.map(1, {rebuilder.target().constant(1.0)}); }),
               {"f32[2]", "f32[]"});
  rebuilder.drop(1);
  expect_parts(thrown(ErrorCode::Internal, [&] { rebuilder.finish(); }), {"relu", "no stand-in"});
  EXPECT_TRUE(copy);
}

TEST(Rebuild, CountUses) {
  Graph g;
  const Value x = g.input("x", {2});
  const Value s = g.state("s", {2});
  const Value y = mul(x, x);
  g.assign(s, y);
  g.output("a", y);
  g.output("b", y);
  const auto uses = count_uses(g);
  EXPECT_EQ(uses[0], std::vector<std::uint32_t>{2});  // x * x reads x twice
  EXPECT_EQ(uses[1], std::vector<std::uint32_t>{1});
  EXPECT_EQ(uses[2], std::vector<std::uint32_t>{3});
  EXPECT_TRUE(uses[3].empty());
}

}  // namespace
}  // namespace aeshna
