// One mirror test per rewrite rule: the pattern as a graph, what must stand there afterwards, and equal results on random
// values and on NaN, infinities and signed zeros.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "aeshna/ops.h"
#include "compile/rules.h"
#include "compile/stages.h"
#include "ir/verify.h"
#include "support/graph_values.h"

namespace aeshna {
namespace {

using test::formula;

/// Leaves that the cases are written in.
struct Leaves {
  Graph& g;
  Value x = g.input("x", {3, 4}), a = g.input("a", {3, 4}), b = g.input("b", {3, 4}), row = g.input("row", {4});
  Value column = g.input("column", {3, 1}), s = g.input("s", {});
  Value i = g.input("i", {3, 4}, DType::i32), p = g.input("p", {3, 4}, DType::boolean),
        h = g.input("h", {3, 4}, DType::f16);
  Value batch = g.input("batch", {2, 3, 4}), w = g.input("w", {4, 5}), one = g.input("one", {2, 1, 3});
  Value number(double v, DType d = DType::f32) const { return g.constant(v, d); }
  Value same(double v, Shape shape, DType d = DType::f32) const {
    const std::vector<double> values(static_cast<std::size_t>(shape.elements()), v);
    return g.constant(Literal::from_doubles({d, shape}, values));
  }
};

struct RuleCase {
  std::string_view algebra;
  Value (*build)(const Leaves&);
  std::string_view expected;
  double tolerance = 0;  ///< 0: bit for bit, special values included
};

// clang-format off
const RuleCase kCases[] = {
    {"x + -0 -> x", [](const Leaves& l) { return l.x + -0.0; }, "x"},
    {"-0 + x -> x", [](const Leaves& l) { return -0.0 + l.x; }, "x"},
    {"x - 0 -> x", [](const Leaves& l) { return l.x - 0.0; }, "x"},
    {"x * 1 -> x", [](const Leaves& l) { return l.x * 1; }, "x"},
    {"1 * x -> x", [](const Leaves& l) { return l.same(1, {2, 3, 4}) * l.x; }, "expand(x){dims=[2, 3, 4]}"},
    {"i * 0 -> 0 (integers)", [](const Leaves& l) { return l.i * 0; }, "expand(0){dims=[3, 4]}"},
    {"0 * i -> 0 (integers)", [](const Leaves& l) { return 0 * l.i; }, "expand(0){dims=[3, 4]}"},
    {"x / 1 -> x", [](const Leaves& l) { return l.x / 1; }, "x"},
    {"pow(x, 1) -> x", [](const Leaves& l) { return pow(l.x, 1); }, "x"},
    {"p and true -> p", [](const Leaves& l) { return logical_and(l.p, l.number(1, DType::boolean)); }, "p"},
    {"true and p -> p", [](const Leaves& l) { return logical_and(l.number(1, DType::boolean), l.p); }, "p"},
    {"p or false -> p", [](const Leaves& l) { return logical_or(l.p, l.number(0, DType::boolean)); }, "p"},
    {"false or p -> p", [](const Leaves& l) { return logical_or(l.number(0, DType::boolean), l.p); }, "p"},
    {"-(-x) -> x", [](const Leaves& l) { return -(-l.x); }, "x"},
    {"x * -1 -> -x", [](const Leaves& l) { return l.x * -1; }, "neg(x)"},
    {"-1 * x -> -x", [](const Leaves& l) { return -1 * l.x; }, "neg(x)"},
    {"a + -b -> a - b", [](const Leaves& l) { return l.a + -l.b; }, "sub(a, b)"},
    {"a - -b -> a + b", [](const Leaves& l) { return l.a - -l.b; }, "add(a, b)"},
    {"-a * -b -> a * b", [](const Leaves& l) { return -l.a * -l.b; }, "mul(a, b)"},
    {"-a / -b -> a / b", [](const Leaves& l) { return -l.a / -l.b; }, "div(a, b)"},
    {"abs(-x) -> abs(x)", [](const Leaves& l) { return abs(-l.x); }, "abs(x)"},
    {"abs(abs(x)) -> abs(x)", [](const Leaves& l) { return abs(abs(l.x)); }, "abs(x)"},
    {"relu(relu(x)) -> relu(x)", [](const Leaves& l) { return relu(relu(l.x)); }, "relu(x)"},
    {"not not p -> p", [](const Leaves& l) { return logical_not(logical_not(l.p)); }, "p"},
    {"not (a == b) -> a != b", [](const Leaves& l) { return logical_not(equal(l.a, l.b)); }, "not_equal(a, b)"},
    {"not (a != b) -> a == b", [](const Leaves& l) { return logical_not(not_equal(l.a, l.b)); }, "equal(a, b)"},
    {"maximum(x, x) -> x", [](const Leaves& l) { return maximum(l.x, l.x); }, "x"},
    {"minimum(x, x) -> x", [](const Leaves& l) { return minimum(l.x, l.x); }, "x"},
    {"pow(x, 2) -> x * x", [](const Leaves& l) { return pow(l.x, 2); }, "mul(x, x)", 1e-15},
    {"x / 2^k -> x * 2^-k", [](const Leaves& l) { return l.x / 8; }, "mul(x, 0.125)"},
    {"select(true, a, b) -> a", [](const Leaves& l) { return select(l.number(1, DType::boolean), l.a, l.b); }, "a"},
    {"select(false, a, b) -> b", [](const Leaves& l) { return select(l.number(0, DType::boolean), l.a, l.row); }, "expand(row){dims=[3, 4]}"},
    {"select(p, a, a) -> a", [](const Leaves& l) { return select(l.p, l.a, l.a); }, "a"},
    {"select(not p, a, b) -> select(p, b, a)", [](const Leaves& l) { return select(logical_not(l.p), l.a, l.b); }, "select(p, b, a)"},
    {"cast(x: T, T) -> x", [](const Leaves& l) {
       const Value in[] = {l.x};
       return l.g.add("cast", in, {{"dtype", DType::f32}}, SourceLine()); }, "x"},
    {"cast(cast(x: T, wider), T) -> x", [](const Leaves& l) { return cast(cast(l.h, DType::f32), DType::f16); }, "h"},
    {"stop_gradient(x) -> x", [](const Leaves& l) { return stop_gradient(l.x); }, "x"},
    {"constant(c, c, ...) -> expand(c)", [](const Leaves& l) { return l.same(2.5, {3, 4}); }, "expand(2.5){dims=[3, 4]}"},
    {"reshape(x) to its own shape -> x", [](const Leaves& l) { return reshape(l.x, {3, 4}); }, "x"},
    {"reshape(reshape(x)) -> reshape(x)", [](const Leaves& l) { return reshape(reshape(l.x, {12}), {2, 6}); }, "reshape(x){dims=[2, 6]}"},
    {"permute(x) of no element -> reshape(x)", [](const Leaves& l) { return permute(l.one, {1, 0, 2}); }, "reshape(one){dims=[1, 2, 3]}"},
    {"permute(permute(x)) -> permute(x)", [](const Leaves& l) { return permute(permute(l.batch, {1, 2, 0}), {0, 2, 1}); }, "permute(batch){axes=[1, 0, 2]}"},
    {"expand(x) to its own shape -> x", [](const Leaves& l) { return expand(l.x, {3, 4}); }, "x"},
    {"expand(expand(x)) -> expand(x)", [](const Leaves& l) { return expand(expand(l.s, {4}), {3, 4}); }, "expand(s){dims=[3, 4]}"},
    {"expand(x) by axes of extent 1 -> reshape(x)", [](const Leaves& l) { return expand(l.row, {1, 4}); }, "reshape(row){dims=[1, 4]}"},
    {"slice(x) of everything -> x", [](const Leaves& l) { return slice(l.x, {0, 1}, {0, 0}, {3, 4}); }, "x"},
    {"pad(x) by nothing -> x", [](const Leaves& l) { return pad(l.x, {0, 0}, {0, 0}, 7); }, "x"},
    {"concat(x) -> x", [](const Leaves& l) { return concat({l.x}, 1); }, "x"},
    {"f(expand(x), y) -> expand(f(x, y))", [](const Leaves& l) { return exp(expand(l.row, {3, 4})); }, "expand(exp(row)){dims=[3, 4]}"},
    {"reduce(x) over axes of extent 1 -> reshape(x)", [](const Leaves& l) { return reduce_max(l.one, {1}); }, "reshape(one){dims=[2, 3]}"},
    {"sum(expand(x)) -> x * n", [](const Leaves& l) { return sum(expand(l.row, {3, 4}), {0}, true); }, "reshape(mul(row, 3)){dims=[1, 4]}", 1e-15},
    {"max(expand(x)) -> x", [](const Leaves& l) { return reduce_max(expand(l.column, {3, 4}), {1}); }, "reshape(column){dims=[3]}"},
    {"min(expand(x)) -> x", [](const Leaves& l) { return reduce_min(expand(l.s, {3, 4})); }, "s"},
    {"matmul(transpose(a), b) -> matmul(a, b, transpose_a)", [](const Leaves& l) { return matmul(transpose(l.x), l.a); }, "matmul(x, a){transpose_a=true, transpose_b=false}", 1e-15},
    {"matmul(a, transpose(b)) -> matmul(a, b, transpose_b)", [](const Leaves& l) { return matmul(l.batch, permute(l.batch, {0, 2, 1})); }, "matmul(batch, batch){transpose_a=false, transpose_b=true}", 1e-15},
    {"matmul(x[B, M, K], w[K, N]) -> matmul(x[B * M, K], w)", [](const Leaves& l) {
       const Value in[] = {l.batch, l.w};  // the builder does this already; expansions and gradients do not
       return l.g.add("matmul", in, {{"transpose_a", false}, {"transpose_b", false}}, SourceLine()); },
     "reshape(matmul(reshape(batch){dims=[6, 4]}, w){transpose_a=false, transpose_b=false}){dims=[2, 3, 5]}", 1e-15},
};
// clang-format on

/// NaN, infinities and signed zeros among ordinary numbers, so that each pair of them meets somewhere.
TensorMap special_leaves(const Graph& graph) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double values[] = {nan, 0.0, -0.0, inf, -inf, 1.5, -2};
  TensorMap leaves = test::random_leaves(graph, 5);
  std::size_t next = 0;
  for (auto& [name, leaf] : leaves) {
    if (!is_float(leaf.type.dtype)) continue;
    for (double& v : leaf.data) v = values[next++ % 7];
    ++next;
  }
  return leaves;
}

TEST(Rules, EachRuleDoesWhatItSays) {
  for (const RuleCase& c : kCases) {
    SCOPED_TRACE(c.algebra);
    Graph g;
    const Leaves leaves{.g = g};
    g.output("y", c.build(leaves));
    ASSERT_NE(formula(g), c.expected);
    const auto after = rewrite(g, false);
    verify(*after, "test");
    EXPECT_EQ(formula(*after), c.expected);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const TensorMap values = test::random_leaves(g, seed);
      const HostTensor want = interpret(g, values).outputs.at("y"), got = interpret(*after, values).outputs.at("y");
      EXPECT_LE(test::difference(got, want), c.tolerance);
    }
    const TensorMap values = special_leaves(g);
    const HostTensor want = interpret(g, values).outputs.at("y"), got = interpret(*after, values).outputs.at("y");
    if (c.tolerance == 0) {
      EXPECT_TRUE(test::identical(got, want));
    }
    EXPECT_LE(test::difference(got, want), c.tolerance);
  }
}

/// The rule alone, without the others and without cleaning, matches its own pattern.
TEST(Rules, EveryRuleHasACase) {
  std::set<std::string_view> rules, cases;
  for (const RewriteRule& rule : rewrite_rules())
    EXPECT_TRUE(rules.insert(rule.algebra).second) << rule.algebra << " is listed twice";
  for (const RuleCase& c : kCases) cases.insert(c.algebra);
  EXPECT_EQ(rules, cases);
}

TEST(Rules, EachCaseNeedsItsRule) {
  for (const RuleCase& c : kCases) {
    SCOPED_TRACE(c.algebra);
    Graph g;
    const Leaves leaves{.g = g};
    g.output("y", c.build(leaves));
    const RewriteRule* rule = nullptr;
    for (const RewriteRule& r : rewrite_rules()) {
      if (r.algebra == c.algebra) rule = &r;
    }
    ASSERT_NE(rule, nullptr);
    bool matched = false;
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      const Node node = g.nodes()[i];
      if (rule->op != node.op->name && !(rule->op == "*pointwise" && node.op->kind == OpKind::Pointwise) &&
          !(rule->op == "*reduce" && node.op->kind == OpKind::Reduce)) {
        continue;
      }
      std::vector<Value> in;
      for (const ValueId& id : node.inputs) in.push_back(g.value(id));
      const BuildContext build{g, node};
      matched = matched || rule->apply(Match{build, node, in});
    }
    EXPECT_TRUE(matched);
  }
}

// What looks like algebra and is none in floating point.
TEST(Rules, LeavesAloneWhatIsNotExact) {
  struct Case {
    const char* name;
    Value (*build)(const Leaves&);
  };
  const Case cases[] = {
      {"x + 0 turns -0 into +0", [](const Leaves& l) { return l.x + 0.0; }},
      {"x - -0 turns -0 into +0", [](const Leaves& l) { return l.x - -0.0; }},
      {"x * 0 is NaN for NaN and infinities", [](const Leaves& l) { return l.x * 0.0; }},
      {"x - x is NaN for infinities", [](const Leaves& l) { return l.x - l.x; }},
      {"x / 3 has no exact reciprocal", [](const Leaves& l) { return l.x / 3; }},
      {"x / 2^126 would multiply by a denormal", [](const Leaves& l) { return l.x / 0x1p126; }},
      {"sqrt(-0) is -0, pow(-0, 0.5) is 0", [](const Leaves& l) { return pow(l.x, 0.5); }},
      {"f32 to f16 and back rounds", [](const Leaves& l) { return cast(cast(l.x, DType::f16), DType::f32); }},
      {"f32 to i32 and back truncates", [](const Leaves& l) { return cast(cast(l.x, DType::i32), DType::f32); }},
      {"a permute that moves elements stays",
       [](const Leaves& l) {
         return permute(l.x, {1, 0});
       }},
      {"only a swap of the last two axes is a transpose",
       [](const Leaves& l) {
         return matmul(permute(l.batch, {1, 0, 2}), expand(l.w, {3, 4, 5}));
       }},
      {"an expanded axis that is not reduced",
       [](const Leaves& l) {
         return sum(expand(l.column, {3, 4}), {0});
       }},
      {"not (a < b) is not a >= b for NaN", [](const Leaves& l) { return logical_not(less(l.a, l.b)); }},
      {"argmax over an axis of extent 1 is an index", [](const Leaves& l) { return argmax(l.one, 1); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Graph g;
    const Leaves leaves{.g = g};
    g.output("y", c.build(leaves));
    const auto after = rewrite(g, false);
    const TensorMap values = special_leaves(g);
    const HostTensor want = interpret(g, values).outputs.at("y"), got = interpret(*after, values).outputs.at("y");
    EXPECT_TRUE(test::identical(got, want));
    EXPECT_EQ(formula(*after), formula(g));
  }
}

TEST(Rules, BeforeDifferentiationStopGradientStays) {
  Graph g;
  const Value x = g.input("x", {3});
  g.output("y", stop_gradient(x) * 1);
  EXPECT_EQ(formula(*rewrite(g, true)), "stop_gradient(x)");
  EXPECT_EQ(formula(*rewrite(g, false)), "x");
}

TEST(Rules, ChainsReachAFixedPoint) {
  Graph g;
  Value v = g.input("x", {2, 3});
  for (int i = 0; i < 50; ++i) v = -(transpose(transpose(v * 1) - 0.0));
  g.output("y", v);
  const auto once = rewrite(g, false);
  EXPECT_EQ(formula(*once), "x");
  EXPECT_EQ(rewrite(*once, false)->print(), once->print());
}

TEST(Rules, KeepNamesOriginsAndPrecision) {
  Graph g;
  const Value x = g.input("x", {3, 4}), w = g.input("w", {3, 5});
  const Value t = transpose(x);
  const Value y = matmul(t, w).named("product");
  g.mutable_node(y.id().node).precision = Precision::Full;
  g.output("y", y);
  const auto after = rewrite(g, false);
  const Value product = after->find("product");
  EXPECT_EQ(product.node().op->name, "matmul");
  EXPECT_EQ(product.node().precision, Precision::Full);
  EXPECT_EQ(product.node().origins, std::vector<NodeId>{y.id().node});
  EXPECT_EQ(product.node().line.line, y.node().line.line);
}

}  // namespace
}  // namespace aeshna
