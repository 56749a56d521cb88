// Every record of the op table on every one of its cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "aeshna/graph.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

std::vector<std::string> tested_ops() {
  std::vector<std::string> names;
  for (const OpDef& op : op_table()) {
    if (op.kind != OpKind::Leaf && op.kind != OpKind::Sink) names.push_back(op.name);
  }
  return names;
}

class OpRecord : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& op = find_op(GetParam());
  std::vector<OpCase> cases = op.cases ? op.cases() : std::vector<OpCase>();
};

TEST_P(OpRecord, IsComplete) {
  EXPECT_FALSE(op.doc.empty());
  EXPECT_TRUE(op.infer);
  EXPECT_TRUE(op.eval) << "the oracle needs a value";
  EXPECT_GE(cases.size(), 2u);
  if (op.kind == OpKind::Composite) {
    EXPECT_TRUE(op.expand);
  } else {
    EXPECT_TRUE(op.lower);
  }
  // What composites expand to, and kernels of gradients, exist only after differentiation.
  if (op.kind != OpKind::Product && op.kind != OpKind::Kernel) {
    EXPECT_NE(op.gradient, GradientKind::NotDifferentiable);
  }
  EXPECT_EQ(op.gradient == GradientKind::Rule, static_cast<bool>(op.vjp));
  if (op.kind == OpKind::Pointwise) {
    EXPECT_EQ(op.pointwise.arity, op.max_inputs);
    EXPECT_TRUE(op.pointwise.eval != nullptr || op.pointwise.eval_int != nullptr);
    EXPECT_FALSE(op.pointwise.glsl_f32.empty() && op.pointwise.glsl_bool.empty() && op.pointwise.glsl_u32.empty());
  }
  if (op.gradient == GradientKind::Rule) {
    EXPECT_TRUE(std::ranges::any_of(cases, [](const OpCase& c) { return c.gradient; }))
        << "no case checks the gradient";
  }
}

TEST_P(OpRecord, Values) {
  for (std::size_t k = 0; k < cases.size(); ++k) {
    SCOPED_TRACE(describe(op, cases[k], k));
    check_values(op, cases[k]);
  }
}

TEST_P(OpRecord, GradientMidGraph) {
  int checked = 0, repeated = 0, twice = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    SCOPED_TRACE(describe(op, cases[k], k));
    checked += check_gradient(op, cases[k], Placement::MidGraph);
    repeated += check_gradient(op, cases[k], Placement::Repeated);
    if (twice == 0) twice += check_gradient(op, cases[k], Placement::UsedTwice);
  }
  if (op.gradient == GradientKind::Rule || op.gradient == GradientKind::Expansion) {
    EXPECT_GT(checked, 0);
    EXPECT_GT(twice, 0);
  }
  if (op.kind == OpKind::Pointwise && op.gradient == GradientKind::Rule && op.min_inputs >= 2) {
    EXPECT_GT(repeated, 0);
  }
}

TEST_P(OpRecord, RejectsWrongOperands) {
  const auto expect_named = [&](const std::vector<TensorType>& types, const Attrs& attrs, bool must_fail) {
    Graph g;
    std::vector<Value> operands;
    for (std::size_t i = 0; i < types.size(); ++i)
      operands.push_back(g.input("x" + std::to_string(i), types[i].shape, types[i].dtype));
    try {
      g.add(op.name, operands, attrs, SourceLine("model.cpp", 123));
      EXPECT_FALSE(must_fail) << op.name << " accepts wrong operands";
      return false;
    } catch (const Error& e) {
      EXPECT_TRUE(e.message().starts_with("[" + op.name + "]")) << e.what();
      EXPECT_NE(std::string(e.what()).find("model.cpp:123"), std::string::npos) << e.what();
      for (const TensorType& type : types)
        EXPECT_NE(std::string(e.what()).find(type.to_string()), std::string::npos) << e.what();
      return true;
    }
  };
  ASSERT_FALSE(cases.empty());
  const OpCase& c = cases[0];
  if (op.max_inputs >= 0) {
    std::vector<TensorType> many(static_cast<std::size_t>(op.max_inputs) + 1, TensorType{DType::f32, Shape{2}});
    expect_named(many, c.attrs, true);
  }
  if (op.min_inputs > 0) expect_named({}, c.attrs, true);
  // Some dtype must be wrong, except for ops that move or keep anything.
  const std::set<std::string> any_dtype = {"stop_gradient", "cast", "equal", "not_equal"};
  if (op.kind == OpKind::Movement || c.inputs.empty() || any_dtype.contains(op.name)) return;
  int rejected = 0;
  for (const DType dtype : {DType::boolean, DType::i8, DType::f32}) {
    std::vector<TensorType> types = c.inputs;
    for (TensorType& type : types) type.dtype = dtype;
    rejected += expect_named(types, c.attrs, false);
  }
  EXPECT_GT(rejected, 0);
}

TEST_P(OpRecord, Device) {
  AESHNA_NEED_DEVICE();
  check_device(op, cases);
}

INSTANTIATE_TEST_SUITE_P(All, OpRecord, testing::ValuesIn(tested_ops()), [](const auto& info) { return info.param; });

TEST(OpTable, IsSortedAndFound) {
  EXPECT_TRUE(std::ranges::is_sorted(op_table(), {}, &OpDef::name));
  for (const OpDef& op : op_table()) EXPECT_EQ(&find_op(op.name), &op);
  EXPECT_THROW(find_op("no_such_op"), Error);
}

}  // namespace
}  // namespace aeshna::test
