// schedule: updates in place and their exceptions, outputs, barrier groups, memory; one small graph per rule.
#include <gtest/gtest.h>

#include <array>

#include "plan/plan_builder.h"

namespace aeshna {
namespace {

using test::copies;
using test::joined;
using test::PlanBuilder;
using test::with_segment;

void expect_sound(const Plan& plan, const Caps& caps = {}) {
  EXPECT_EQ(joined(check_plan(plan, caps)), "") << print_plan(plan);
}

bool has_note(const Plan& plan, std::string_view part) {
  return std::ranges::any_of(plan.notes, [&](const std::string& note) { return note.contains(part); });
}

/// Group of the step that writes placement `placement` first.
std::uint32_t writer_group(const Plan& plan, std::uint32_t placement) {
  for (const PlanStep& step : plan.steps) {
    for (const PlanOperand& operand : step.operands) {
      if (operand.placement == placement && operand.written) return step.group;
    }
  }
  ADD_FAILURE() << "nothing writes placement " << placement;
  return 0;
}

TEST(Schedule, ElementwiseUpdateIsInPlace) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value x = b.graph().input("x", {100});
  const Value next = add(x, s);
  b.graph().assign(s, next);
  PlanBuilder::tie_to(b.kernel(next), s);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
  EXPECT_TRUE(plan.notes.empty());
  ASSERT_EQ(plan.steps.size(), 1u);
  const std::uint32_t state = plan.states.at("s");
  EXPECT_EQ(plan.steps[0].operands[1].placement, state);
  EXPECT_EQ(plan.steps[0].operands[2].placement, state);
  EXPECT_EQ(plan.memory.arena_bytes, 0u);
}

TEST(Schedule, WrittenWithoutReadingTheOldValueIsInPlaceToo) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(b.graph().input("x", {100}));
  b.graph().assign(s, next);
  b.kernel(next);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
}

TEST(Schedule, OtherReadersOfTheOldValueComeFirst) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value reader = relu(s);
  b.graph().assign(s, next);
  b.graph().output("r", reader);
  b.tied_kernel(next);  // listed before the reader
  b.kernel(reader);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
  EXPECT_LT(writer_group(plan, plan.outputs.at("r")), writer_group(plan, plan.states.at("s")));
}

TEST(Schedule, AReaderOfOldAndNewForcesACopy) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value difference = sub(next, s);
  b.graph().assign(s, next);
  b.graph().output("d", difference);
  b.tied_kernel(next);
  b.kernel(difference);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 1u);
  EXPECT_TRUE(has_note(
      plan, "'s' is updated by a copy, not in place: the kernel that writes 'sub' needs the new value and the old one"))
      << joined(plan.notes);
}

TEST(Schedule, AnotherIndexMapForcesACopy) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  b.graph().assign(s, next);
  b.kernel(next);  // not tied
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 1u);
  EXPECT_TRUE(has_note(plan, "other places")) << joined(plan.notes);
}

TEST(Schedule, AReductionThatReadsTheOldValueForcesACopy) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  b.graph().assign(s, next);
  PlanBuilder::KernelOptions options;
  options.kind = FusedKernel::Kind::Reduction;
  options.tie = true;
  b.kernel({next}, options);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_TRUE(has_note(plan, "several invocations may read")) << joined(plan.notes);
}

TEST(Schedule, AnElementStoredByManyInvocationsIsNotUpdatedInPlace) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value user = relu(next);  // its memory could be taken over, too
  b.graph().assign(s, next);
  b.graph().output("y", abs(user));
  for (const Value& value : {next, user}) {
    FusedKernel& kernel = b.tied_kernel(value);
    kernel.space = {100, 7};
    kernel.body.stores = {{.operand = 1, .value = 0, .access = {.strides = {1, 0}, .guards = {}}, .outer = false}};
  }
  b.kernel(b.graph().find("y"));
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 1u);
  EXPECT_EQ(plan.memory.arena_bytes, 512u + 400u);
  for (auto& [fused, spec] : b.c.selected) {
    if (!fused.body.stores.empty()) fused.body.stores[0].access.strides = {7, 1};
  }
  EXPECT_EQ(copies(b.plan()), 0u);
  EXPECT_EQ(b.plan().memory.arena_bytes, 400u);
}

TEST(Schedule, WhoTakesTheNewValueReadsTheStateAfterwards) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value user = relu(next);
  b.graph().assign(s, next);
  b.graph().output("u", user);
  b.tied_kernel(next);
  b.kernel(user);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
  EXPECT_EQ(plan.memory.arena_bytes, 0u);
}

TEST(Schedule, StatesThatSwap) {
  PlanBuilder b;
  const Value p = b.graph().state("p", {100});
  const Value q = b.graph().state("q", {100});
  b.graph().assign(p, q);
  b.graph().assign(q, p);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 4u);
}

TEST(Schedule, AStateShiftsIntoAnotherThatIsUpdatedInPlace) {
  PlanBuilder b;
  const Value p = b.graph().state("p", {100});
  const Value q = b.graph().state("q", {100});
  const Value next = neg(p);
  b.graph().assign(p, next);  // in place, so q's copy of p must come first
  b.graph().assign(q, p);
  b.tied_kernel(next);
  expect_sound(b.plan());
}

TEST(Schedule, AssignedInputsAndConstantsAreCopied) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {2});
  const Value t = b.graph().state("t", {2});
  b.graph().assign(s, b.graph().input("x", {2}));
  b.graph().assign(t, b.graph().constant(Literal::from_doubles({DType::f32, {2}}, std::array{1.0, 2.0})));
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 2u);
  ASSERT_EQ(plan.constants.size(), 1u);
}

TEST(Schedule, ALeafAssignedToItselfNeedsNothing) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {2});
  b.graph().assign(s, s);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_TRUE(plan.steps.empty());
}

TEST(Schedule, OneValueForTwoStates) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value t = b.graph().state("t", {100});
  const Value next = neg(s);
  b.graph().assign(s, next);
  b.graph().assign(t, next);
  b.tied_kernel(next);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 1u);
  EXPECT_TRUE(has_note(plan, "'t' is updated by a copy, not in place: the new value is already written over 's'"))
      << joined(plan.notes);
}

TEST(Schedule, AValueOfAnEarlierSegmentIsAssignedByACopyInItsOwnSegment) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(b.graph().input("x", {100}));
  b.graph().assign(s, next);
  b.graph().mutable_node(b.graph().assigns()[0]).segment = Segment::Update;
  b.kernel(next);
  const Plan plan = b.plan();
  expect_sound(plan);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[1].kind, PlanStep::Kind::Copy);
  EXPECT_EQ(plan.steps[1].segment, Segment::Update);
}

TEST(Schedule, AnOldValueReadInALaterSegmentIsSaved) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value late = with_segment(relu(s), Segment::Backward);
  b.graph().assign(s, next);  // in the forward segment
  b.graph().output("late", late);
  b.tied_kernel(next);
  b.kernel(late);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 1u);
  EXPECT_TRUE(has_note(plan, "its old value is kept in a copy")) << joined(plan.notes);
}

TEST(Schedule, AccumulationAcrossMicroSteps) {
  PlanBuilder b;
  Graph& g = b.graph();
  const Value w = g.parameter("w", {100});
  const Value acc = g.state("acc", {100});
  const Value h = neg(mul(w, g.input("x", {100})));
  const Value gradient = with_segment(relu(h), Segment::Backward);
  const Value sum = add(acc, gradient);
  const Value next = with_segment(sub(w, sum), Segment::Update);
  g.assign(acc, sum);
  g.assign(w, next);
  const Value product = g.value(h.node().inputs[0]);
  b.kernel(product);
  b.tied_kernel(h);
  b.kernel(gradient);
  b.tied_kernel(sum);
  b.tied_kernel(next);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
  EXPECT_EQ(plan.steps.back().segment, Segment::Update);
}

TEST(Schedule, OutputsLiveOutsideTheArenas) {
  PlanBuilder b;
  Graph& g = b.graph();
  const Value x = g.input("x", {100});
  const Value w = g.parameter("w", {100});
  const Value h = neg(x);
  const Value y = relu(h);
  g.output("y", y);
  g.output("same", y);
  g.output("h", h);
  g.output("x again", x);
  g.output("w again", w);
  g.output("w once more", w);
  b.tied_kernel(h);
  b.tied_kernel(y);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(plan.outputs.at("y"), plan.outputs.at("same"));
  EXPECT_EQ(plan.outputs.at("w again"), plan.outputs.at("w once more"));
  EXPECT_NE(plan.outputs.at("y"), plan.outputs.at("h"));
  for (const auto& [name, placement] : plan.outputs) EXPECT_EQ(plan.placements[placement].home, Home::Output) << name;
  EXPECT_EQ(copies(plan), 2u);
  EXPECT_EQ(plan.memory.arena_bytes, 0u);
}

TEST(Schedule, AnOutputThatIsAssignedIsCopiedOut) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  b.graph().assign(s, next);
  b.graph().output("new", next);
  b.graph().output("old", s);
  b.tied_kernel(next);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 2u);
}

TEST(Schedule, IndependentKernelsShareAGroup) {
  PlanBuilder b;
  const Value x = b.graph().input("x", {100});
  for (int i = 0; i < 5; ++i) {
    const Value y = neg(x);
    b.graph().output("y" + std::to_string(i), y);
    b.kernel(y);
  }
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(plan.barrier_groups, 1u);
}

TEST(Schedule, EachSegmentBeginsAGroup) {
  PlanBuilder b;
  const Value x = b.graph().input("x", {100});
  for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update}) {
    const Value y = with_segment(neg(x), segment);
    b.graph().output("y" + std::to_string(static_cast<int>(segment)), y);
    b.kernel(y);
  }
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(plan.barrier_groups, 3u);
}

TEST(Schedule, LargeValuesAreMadeJustBeforeTheirFirstReader) {
  PlanBuilder b;
  Graph& g = b.graph();
  const Value x = g.input("x", {4});
  const Value mask = neg(g.input("m", {1000}));
  Value h = x;
  b.kernel(mask);
  for (int i = 0; i < 6; ++i) {
    h = relu(h);
    b.kernel(h);
  }
  const Value y = add(reshape(h, {4, 1}), mask);
  b.kernel(g.value(y.node().inputs[0]));
  b.kernel(y);
  g.output("y", y);
  const Plan plan = b.plan();
  expect_sound(plan);
  for (const Placement& p : plan.placements) {
    if (p.home != Home::Arena || p.bytes != 4000) continue;
    EXPECT_EQ(p.first_group + 1, p.last_group);
  }
}

TEST(Schedule, AChainOfTiedKernelsNeedsOneTensor) {
  PlanBuilder b;
  Value h = b.graph().input("x", {1024});
  for (int i = 0; i < 6; ++i) {
    h = relu(h);
    b.tied_kernel(h);
  }
  b.graph().output("y", h);
  const Plan shared = b.plan(true);
  const Plan apart = b.plan(false);
  expect_sound(shared);
  expect_sound(apart);
  EXPECT_EQ(shared.memory.arena_bytes, 4096u);
  EXPECT_EQ(apart.memory.arena_bytes, 5 * 4096u);
  EXPECT_EQ(shared.memory.logical_bytes, 5 * 4096u);
}

TEST(Schedule, AValueStillReadIsNotTakenOver) {
  PlanBuilder b;
  const Value a = neg(b.graph().input("x", {1024}));
  const Value c = relu(a);
  const Value d = abs(a);  // same group as c
  b.kernel(a);
  b.tied_kernel(c);
  b.tied_kernel(d);
  const Value e = add(c, d);
  b.tied_kernel(e);
  b.graph().output("e", e);
  expect_sound(b.plan());
}

TEST(Schedule, OnlyOneResultTakesOver) {
  PlanBuilder b;
  const Value a = neg(b.graph().input("x", {1024}));
  const Value c = relu(a);
  const Value d = abs(a);
  b.kernel(a);
  FusedKernel& both = b.kernel({c, d});
  for (KernelOperand& operand : both.operands) {
    if (operand.written) operand.in_place_of = 0;
  }
  const Value e = add(c, d);
  b.kernel(e);
  b.graph().output("e", e);
  expect_sound(b.plan());
}

TEST(Schedule, WorkspacesOfOneGroupAreApartOfDifferentGroupsShared) {
  PlanBuilder b;
  const Value x = b.graph().input("x", {16});
  PlanBuilder::KernelOptions options;
  options.workspace = 65536;
  options.counters = 3;
  const Value y = neg(x);
  const Value z = abs(x);
  const Value u = relu(y);
  b.kernel({y}, options);
  b.kernel({z}, options);
  b.kernel({u}, options);
  b.graph().output("z", z);
  b.graph().output("u", u);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_GE(plan.memory.arena_bytes, 2 * 65536u);
  EXPECT_LT(plan.memory.arena_bytes, 3 * 65536u);
  EXPECT_EQ(plan.memory.workspace_bytes, 2 * 65536u);
  EXPECT_EQ(plan.counters * 4, 3 * 256u);
  EXPECT_EQ(plan.steps[0].operands.size(), 4u);  // x, y, workspace, counters
  EXPECT_EQ(plan.placements[plan.steps[0].operands[2].placement].home, Home::Workspace);
  EXPECT_EQ(plan.placements[plan.steps[0].operands[3].placement].home, Home::Counters);
}

TEST(Schedule, RowWindowsOfOneValueRunTogether) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {256});
  const Value next = neg(s);
  const Value user = relu(next);
  b.graph().assign(s, next);
  b.graph().output("u", user);
  PlanBuilder::KernelOptions options;
  options.tie = true;
  options.count = 128;
  b.kernel({next}, options);
  options.first = 128;
  b.kernel({next}, options);
  b.kernel(user);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(copies(plan), 0u);
  EXPECT_EQ(plan.barrier_groups, 2u);
  EXPECT_EQ(plan.steps[1].operands[0].offset, 512u);
  EXPECT_EQ(plan.steps[1].operands[0].bytes, 512u);
}

TEST(Schedule, OverlappingRowWindowsAreOrdered) {
  PlanBuilder b;
  const Value y = neg(b.graph().input("x", {256}));
  b.graph().output("y", y);
  PlanBuilder::KernelOptions options;
  options.count = 192;
  b.kernel({y}, options);
  options.first = 64;
  b.kernel({y}, options);
  const Plan plan = b.plan();
  expect_sound(plan);
  EXPECT_EQ(plan.barrier_groups, 2u);
}

TEST(Schedule, EmptyTensors) {
  PlanBuilder b;
  const Value x = b.graph().input("x", {0, 3});
  const Value h = neg(x);
  const Value y = relu(h);
  b.graph().output("y", y);
  b.kernel(h);
  b.kernel(y);
  const Plan plan = b.plan();
  expect_sound(plan);
  for (const Placement& p : plan.placements) {
    if (p.home != Home::Arena) continue;
    EXPECT_LT(p.arena, plan.arenas.size());
  }
}

TEST(Schedule, ArenasStayWithinTheBufferLimit) {
  PlanBuilder b;
  b.c.caps.max_buffer_size = 8192;
  const Value x = b.graph().input("x", {1024});
  std::vector<Value> parts;
  for (int i = 0; i < 5; ++i) {
    parts.push_back(neg(x));
    b.kernel(parts.back());
  }
  Value y = parts[0];
  for (int i = 1; i < 5; ++i) {
    y = add(y, parts[static_cast<std::size_t>(i)]);
    b.kernel(y);
  }
  b.graph().output("y", y);
  const Plan plan = b.plan();
  expect_sound(plan, b.c.caps);
  EXPECT_GT(plan.arenas.size(), 1u);
}

std::string refused(PlanBuilder& b, ErrorCode code) {
  try {
    b.plan();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

TEST(Schedule, TooLargeTensorsAreNamed) {
  PlanBuilder b;
  b.c.caps.max_buffer_size = 2048;
  b.c.caps.device_name = "tiny";
  const Value h = neg(b.graph().input("x", {4})).named("small");
  const Value y = add(reshape(h, {4, 1}), b.graph().input("row", {256})).named("big");
  b.kernel(h);
  b.kernel(b.graph().value(y.node().inputs[0]));
  b.kernel(y);
  b.kernel(relu(y));
  const std::string message = refused(b, ErrorCode::LimitExceeded);
  for (const auto part : {"'big'", "4096", "tiny", "2048"}) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Schedule, BrokenKernelListsAreInternalErrors) {
  {
    PlanBuilder b;
    const Value h = neg(b.graph().input("x", {4})).named("h");
    b.graph().output("y", relu(h));
    b.kernel(b.graph().find("y"));
    EXPECT_NE(refused(b, ErrorCode::Internal).find("no kernel writes 'h'"), std::string::npos);
  }
  {
    PlanBuilder b;
    const Value h = neg(b.graph().input("x", {4}));
    b.kernel(h);
    b.c.selected[0].first.operands[1].elements = 5;
    EXPECT_NE(refused(b, ErrorCode::Internal).find("which has 16"), std::string::npos);
  }
}

TEST(Schedule, PrintedPlanIsDeterministicAndNamesThings) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value h = neg(s).named("hidden");
  const Value d = sub(h, s);
  b.graph().assign(s, h);
  b.graph().output("difference", d);
  b.graph().output("alias", d);
  b.tied_kernel(h);
  b.kernel(d);
  const std::string text = print_plan(b.plan());
  EXPECT_EQ(text, print_plan(b.plan()));
  for (const auto part :
       {"2 dispatches and 1 copies in", "made-up v0", "hidden", "f32[100]", "state", "arena 0: 400 B", "##",
        "output 'alias' is 'difference'", "note: 's' is updated by a copy", "transient, logical"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace aeshna
