// verify: sound graphs pass; each planted fault is named.
#include <gtest/gtest.h>

#include <functional>

#include "aeshna/ops.h"
#include "ir/graph_access.h"
#include "ir/verify.h"

namespace aeshna {
namespace {

struct Fixture {
  Graph g;
  Value x = g.input("x", {2});
  Value s = g.state("s", {2});
  Value h = relu(x);
  Value y = add(h, s);
  Fixture() {
    g.assign(s, y);
    g.output("y", y);
  }
  Node& node(Value v) { return g.mutable_node(v.id().node); }
};

TEST(Verify, AcceptsASoundGraph) {
  Fixture f;
  EXPECT_NO_THROW(verify(f.g, "build"));
  EXPECT_NO_THROW(verify(Graph(), "build"));
}

TEST(Verify, NamesEachFault) {
  const auto expect = [](std::string_view part, std::function<void(Fixture&)> plant) {
    Fixture f;
    plant(f);
    try {
      verify(f.g, "my stage");
      ADD_FAILURE() << "not found: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Internal);
      const std::string text = error.what();
      EXPECT_NE(text.find(part), std::string::npos) << text;
      EXPECT_NE(text.find("my stage"), std::string::npos) << text;
    }
  };
  expect("does not precede", [](Fixture& f) { f.node(f.h).inputs[0] = f.y.id(); });
  expect("does not precede", [](Fixture& f) { f.node(f.h).inputs[0] = {99, 0}; });
  expect("has 1 results", [](Fixture& f) { f.node(f.h).inputs[0].result = 1; });
  expect("later segment", [](Fixture& f) { f.node(f.h).segment = Segment::Backward; });
  expect("takes 2 to 2 operands, the node has 1", [](Fixture& f) { f.node(f.y).inputs.pop_back(); });
  expect("stored as f32[3], but inferred as f32[2]", [](Fixture& f) { f.node(f.h).results[0].shape = {3}; });
  expect("0 results are stored", [](Fixture& f) { f.node(f.h).results.clear(); });
  expect("no longer infer", [](Fixture& f) { f.node(f.x).attrs = {}; });
  expect("no op", [](Fixture& f) { f.node(f.h).op = nullptr; });
  expect("has no name", [](Fixture& f) { f.node(f.x).name = ""; });
  expect("another leaf is named 'x'", [](Fixture& f) { f.node(f.s).name = "x"; });
  expect("does not lead from 'z'", [](Fixture& f) { f.node(f.x).name = "z"; });
  expect("not in the list of assigns", [](Fixture& f) { GraphAccess::assigns(f.g).clear(); });
  expect("list of assigns has 2", [](Fixture& f) { GraphAccess::assigns(f.g).push_back(0); });
  expect("neither state nor parameter", [](Fixture& f) { f.g.mutable_node(f.g.assigns()[0]).inputs[0] = f.x.id(); });
  expect("value that does not exist", [](Fixture& f) { GraphAccess::outputs(f.g)[0].value = {99, 0}; });
  expect("shares its name", [](Fixture& f) { GraphAccess::outputs(f.g).push_back(f.g.outputs()[0]); });
  expect("output ''", [](Fixture& f) { GraphAccess::outputs(f.g)[0].name = ""; });
  expect("'s' is assigned twice", [](Fixture& f) {
    auto& nodes = GraphAccess::nodes(f.g);
    nodes.push_back(nodes[f.g.assigns()[0]]);
    GraphAccess::assigns(f.g).push_back(static_cast<NodeId>(nodes.size() - 1));
  });
}

}  // namespace
}  // namespace aeshna
