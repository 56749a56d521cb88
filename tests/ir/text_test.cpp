// The text form: exact round trips, and an Error for every text that is none.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "aeshna/ops.h"
#include "base/philox.h"
#include "ir/verify.h"

namespace aeshna {
namespace {

/// One of everything the grammar knows.
void build(Graph& g) {
  const Scope scope(g, "net \"1\"\\\n\x01");
  const Value x = g.input("x", {2, 3});
  const Value w = g.parameter("w", {4, 3}, {.init = Init::uniform(-0.1, 1e-300), .lr_scale = 0.1, .decay_scale = -0.0});
  const Value s = g.state("s", {2, 4}, DType::f32, Init::constant(std::nan("")));
  const Value c = g.constant(Literal::from_doubles({DType::f16, {2, 1}}, std::array<double, 2>{INFINITY, -0.0}));
  g.constant(Literal::from_doubles({DType::i64, {0, 5}}, {}));
  g.constant(0.1);
  const Value h = matmul(x, w, false, true).named("h");
  const Value y = mul(relu(h), cast(c, DType::f32));
  const Value p = pad(y, {0, 1}, {2, 0}, -INFINITY);
  g.mutable_node(y.id().node).precision = Precision::Full;
  g.mutable_node(p.id().node).segment = Segment::Backward;
  g.assign(s, y);
  g.mutable_node(g.assigns()[0]).segment = Segment::Update;
  g.output("y", y);
  g.output("padded", p);
}

std::string parse_error(std::string_view text) {
  Graph g;
  try {
    parse_graph(text, g);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::CorruptFile) << error.what();
    EXPECT_TRUE(g.nodes().empty());  // a failed parse changes nothing
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

TEST(GraphText, RoundTrip) {
  Graph g;
  build(g);
  const std::string text = g.print();
  Graph parsed;
  parse_graph(text, parsed);
  EXPECT_EQ(parsed.print(), text);
  verify(parsed, "parse");
  ASSERT_EQ(parsed.nodes().size(), g.nodes().size());
  for (NodeId id = 0; id < g.nodes().size(); ++id) {
    const Node& a = g.node(id);
    const Node& b = parsed.node(id);
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.attrs, b.attrs) << id;
    EXPECT_EQ(a.results, b.results);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.line.to_string(), b.line.to_string());
    EXPECT_EQ(a.segment, b.segment);
    EXPECT_EQ(a.precision, b.precision);
  }
  EXPECT_TRUE(std::ranges::equal(parsed.assigns(), g.assigns()));
  EXPECT_EQ(parsed.leaf(g.node(0).name), 0u);
}

TEST(GraphText, LooksAsDocumented) {
  Graph g;
  parse_graph(R"(aeshna graph 1
%0 = input() {dims = [2, 3], dtype = f32} : f32[2, 3] @"mnist.cpp":10 "x"
%1 = constant() {value = f32[] 0x0000003f /* 0.5 */} : f32[]
%2 = relu(%0) : f32[2, 3] @"mnist.cpp":12 #backward full "h"
output "h" = %2 @"mnist.cpp":13
end
)",
              g);
  EXPECT_EQ(g.print(), R"(aeshna graph 1
%0 = input() {dims = [2, 3], dtype = f32} : f32[2, 3] @"mnist.cpp":10 "x"
%1 = constant() {value = f32[] 0x0000003f /* 0.5 */} : f32[]
%2 = relu(%0) : f32[2, 3] @"mnist.cpp":12 #backward full "h"
output "h" = %2 @"mnist.cpp":13
end
)");
  EXPECT_EQ(g.node(1).attrs.get<Literal>("value").at(0), 0.5);
  EXPECT_EQ(g.node(2).segment, Segment::Backward);
  EXPECT_EQ(g.node(2).precision, Precision::Full);
}

TEST(GraphText, EveryDoubleKeepsItsBits) {
  PhiloxStream stream(8, 9);
  std::vector<double> values = {
      0.0, -0.0, 1.0, -1.0, 5e-324, std::numeric_limits<double>::max(), INFINITY, -INFINITY, 1e22, 123456789012345680.0,
      0.1};
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(stream.next_u32() | static_cast<std::uint64_t>(stream.next_u32()) << 32);
    values.push_back(std::isnan(value) ? 2.0 : value);
  }
  for (const double value : values) {
    Graph g;
    g.state("s", {}, DType::f32, Init::constant(value));
    Graph parsed;
    parse_graph(g.print(), parsed);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(parsed.node(0).attrs.get<double>("init_a")),
              std::bit_cast<std::uint64_t>(value))
        << value;
  }
}

TEST(GraphText, EveryAttributeKindRoundTrips) {
  Graph g;
  g.input("x", {2});
  const Attrs attrs{{"dtype", DType::f16},
                    {"dims", std::vector<std::int64_t>{256}},
                    {"a bool", true},
                    {"another dtype", DType::q4_K},
                    {"b", std::numeric_limits<std::int64_t>::min()},
                    {"c", 3.0},
                    {"d", std::string("\"quoted\" \\ \n \t \x7f \xc3\xa9")},
                    {"e", std::vector<std::int64_t>{}},
                    {"f", std::vector<double>{}},
                    {"g", std::vector<double>{1.0, NAN, -INFINITY, 1e-7}},
                    {"h", std::vector<std::int64_t>{-1, 0, 1}},
                    {"i", Literal::from_doubles({DType::boolean, {3}}, std::array{1.0, 0.0, 1.0})},
                    {"1", Literal(TensorType{DType::q8_0, {32}}, std::vector<std::byte>(34, std::byte{0xa5}))},
                    {"", false}};
  Node like;
  like.name = "leaf";
  g.add_node(*g.node(0).op, {}, attrs, like);
  Graph parsed;
  parse_graph(g.print(), parsed);
  EXPECT_EQ(parsed.node(1).attrs, attrs);
  EXPECT_EQ(parsed.print(), g.print());
}

TEST(GraphText, TruncationAtEveryByteIsAnError) {
  Graph g;
  build(g);
  const std::string text = g.print();
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {  // the last newline may be missing
    Graph parsed;
    try {
      parse_graph(std::string_view(text).substr(0, length), parsed);
      ADD_FAILURE() << "accepted a text of " << length << " of " << text.size() << " bytes";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::CorruptFile) << error.what();
      ASSERT_NE(error.message().find("line "), std::string::npos) << error.message();
    }
  }
}

TEST(GraphText, ErrorsNameThePlace) {
  const auto expect = [](std::string_view body, std::string_view place, std::string_view message) {
    const std::string error = parse_error("aeshna graph 1\n" + std::string(body));
    EXPECT_NE(error.find(place), std::string::npos) << error;
    EXPECT_NE(error.find(message), std::string::npos) << error;
  };
  const std::string x = "%0 = input() {dims = [2], dtype = f32} : f32[2] \"x\"\n";
  EXPECT_NE(parse_error("").find("expected 'aeshna graph 1'"), std::string::npos);
  EXPECT_NE(parse_error("aeshna graph 2\nend\n").find("line 1"), std::string::npos);
  expect("", "line 2, column 1", "'end'");
  expect("%1 = input()\nend\n", "line 2", "expected node %0");
  expect("%0 = inptu()\nend\n", "line 2", "inptu");
  expect(x + "%1 = relu(%1) : f32[2]\nend\n", "line 3", "no node 1");
  expect(x + "%1 = relu(%0:1) : f32[2]\nend\n", "line 3", "no result 1");
  expect(x + "%1 = relu(%0) : f32[3]\nend\n", "line 3", "f32[3] is written");
  expect(x + "%1 = relu(%0)\nend\n", "line 3", "0 types");
  expect(x + "%1 = add(%0) : f32[2]\nend\n", "line 3", "takes 2 operands");
  expect(x + "%1 = relu(%0) : f32[2] #sideways\nend\n", "line 3, column 25", "'backward' or 'update'");
  expect(x + "%1 = relu(%0) : f32[2] #backward\n%2 = neg(%1) : f32[2]\nend\n", "line 4", "later segment");
  expect(x + "%1 = input() {dims = [2], dtype = f32} : f32[2] \"x\"\nend\n", "line 3", "'x' is taken");
  expect("%0 = input() {dims = [-2], dtype = f32} : f32[2] \"x\"\nend\n", "line 2", "negative dimension");
  expect("%0 = input() {dims = [2], dtype = f32} : f32[1, 1, 1, 1, 1, 1, 1, 1, 1] \"x\"\nend\n", "line 2", "at most 8");
  expect("%0 = input() {dims = [2], dims = [2]}\nend\n", "line 2", "'dims' is given twice");
  expect("%0 = input() {dims = [99999999999999999999]}\nend\n", "line 2", "too large");
  expect("%0 = input() {a = 1e999}\nend\n", "line 2", "no number");
  expect("%0 = input() {a = (1)}\nend\n", "line 2", "with a point");
  expect("%0 = input() {a = f33}\nend\n", "line 2", "'f33' is no dtype");
  expect("%0 = constant() {value = f32[2] 0x00}\nend\n", "line 2", "needs 8 bytes");
  expect("%0 = constant() {value = f32[4294967296, 4294967296] 0x00}\nend\n", "line 2", "does not fit");
  expect("%0 = constant() {value = f32[] 0x0}\nend\n", "line 2", "hexadecimal");
  expect("%0 = input() {dims = [2] /* open\nend\n", "line 2", "comment");
  expect("%0 = input() \"open\nend\n", "line 2", "not closed");
  expect("%0 = input() \"\\q\"\nend\n", "line 2", "escape");
  expect(x + "output \"o\" = %1\nend\n", "line 3", "no node 1");
  expect(x + "output \"o\" = %0\noutput \"o\" = %0\nend\n", "line 4", "'o' is taken");
  expect(x + "end\nmore\n", "line 4", "nothing after");
}

TEST(GraphText, HundredThousandBracketsAreNoStackOverflow) {
  parse_error("aeshna graph 1\n%0 = input() {a = " + std::string(100000, '[') + "\n");
  parse_error("aeshna graph 1\n%0 = input() {a = " + std::string(100000, '(') + "\n");
  parse_error("aeshna graph 1\n%0 = input" + std::string(100000, '(') + "\n");
}

TEST(GraphText, SpacingAndCommentsAreFree) {
  Graph g;
  parse_graph(
      "aeshna graph 1 \r\n\n  %0=input( ){ dims=[ 2 ],dtype = f32/* x */}:f32[2]\"x\"\r\n output \"o\"=%0 \n\nend", g);
  EXPECT_EQ(g.nodes().size(), 1u);
  EXPECT_EQ(g.outputs()[0].name, "o");
}

TEST(GraphText, OnlyIntoAnEmptyGraph) {
  Graph g;
  g.input("x", {1});
  try {
    parse_graph("aeshna graph 1\nend\n", g);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
  }
}

}  // namespace
}  // namespace aeshna
