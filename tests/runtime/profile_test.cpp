// Profiles of sessions: what each row says of its dispatch, and that profiling is nothing but steps.
#include "runtime/profile.h"

#include <cmath>
#include <set>

#include "aeshna/nn.h"
#include "gpu/device.h"
#include "runtime/session_impl.h"
#include "runtime/tiny_model.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using test::build_tiny;
using test::set_rows;

constexpr ProfileOptions kQuick{.repeats = 3, .wall_seconds = 0.01, .warm_seconds = 0, .ceilings = false};

CompileOptions training(bool update) {
  return {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.1f}, .update = update};
}

Session on_null(const Graph& g, CompileOptions options = {}) {
  return compile(g, Weights(g, {.seed = 1, .device = Device(gpu::open_null({}))}), options);
}

/// Rows of a plan for the null device, which needs no driver.
std::vector<ProfileRow> rows_of(const Graph& g, CompileOptions options = {}) {
  return profile_rows(on_null(g, options).impl());
}

const ProfileRow& row_of(const std::vector<ProfileRow>& rows, std::string_view family,
                         Segment segment = Segment::Forward) {
  for (const ProfileRow& row : rows) {
    if (row.family == family && row.segment == segment) return row;
  }
  ADD_FAILURE() << "no row of family " << family << " but " << rows.at(0).family;
  return rows.at(0);
}

TEST(SessionProfileRows, EveryDispatchOnceWithTheBytesOfItsOperands) {
  Graph g;
  build_tiny(g);
  const Session s = on_null(g, training(true));
  const std::vector<ProfileRow> rows = profile_rows(s.impl());
  const std::vector<PlanStep>& steps = s.impl().plan.steps;
  std::set<std::uint32_t> seen;
  for (const ProfileRow& row : rows) {
    EXPECT_TRUE(seen.insert(row.step).second) << row.step;
    const PlanStep& step = steps.at(row.step);
    EXPECT_EQ(row.segment, step.segment);
    EXPECT_EQ(row.group, step.group);
    EXPECT_EQ(row.workgroups, step.kind == PlanStep::Kind::Copy ? 0 : step.spec.workgroups);
    std::uint64_t read = 0, written = 0;
    for (const PlanOperand& operand : step.operands) {
      read += operand.read ? operand.bytes : 0;
      written += operand.written ? operand.bytes : 0;
    }
    EXPECT_EQ(row.bytes_read, read);
    EXPECT_EQ(row.bytes_written, written);
    EXPECT_GT(row.bytes, 0);
    EXPECT_LE(row.bytes, static_cast<double>(read + written));
    EXPECT_FALSE(row.ops.empty());
  }
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const bool works =
        steps[i].kind == PlanStep::Kind::Dispatch ? steps[i].spec.workgroups > 0 : steps[i].operands[0].bytes > 0;
    EXPECT_EQ(seen.contains(i), works) << i;
  }
  for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update})
    EXPECT_TRUE(std::ranges::contains(rows, segment, &ProfileRow::segment));
}

TEST(SessionProfileRows, FlopOfProductsAreExact) {
  Graph g;
  g.output("product", matmul(g.input("a", {3, 50, 70}), g.input("b", {3, 70, 110})));
  const std::vector<ProfileRow> rows = rows_of(g);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].family, "matmul");
  EXPECT_EQ(rows[0].shape, "3x50x110x70");
  EXPECT_EQ(rows[0].flop, 2.0 * 3 * 50 * 70 * 110);
  EXPECT_EQ(rows[0].bytes, 4.0 * 3 * (50 * 70 + 70 * 110 + 50 * 110));

  Graph vector;
  vector.output("y", matmul(vector.input("x", {1, 300}), vector.input("w", {300, 90})));
  const ProfileRow gemv = rows_of(vector).at(0);
  EXPECT_EQ(gemv.family, "matmul gemv");
  EXPECT_EQ(gemv.flop, 2.0 * 300 * 90);

  Graph window;
  window.output(
      "y", conv(window.input("x", {2, 8, 17, 16}), window.input("w", {32, 8, 3, 3}), {.stride = {2}, .padding = {1}}));
  const ProfileRow conv_row = row_of(rows_of(window), "conv");
  EXPECT_EQ(conv_row.flop, 2.0 * (2 * 32 * 9 * 8) * (8 * 3 * 3));
  EXPECT_LE(conv_row.bytes, 4.0 * (2 * 8 * 17 * 16 + 32 * 8 * 9 + 2 * 32 * 9 * 8)) << "a window is read once";
}

TEST(SessionProfileRows, FlopOfAttentionCountWhatIsSeen) {
  const auto build = [](Graph& g, bool causal) {
    const Value q = g.parameter("q", {2, 4, 6, 8}), k = g.parameter("k", {2, 2, 6, 8}),
                v = g.parameter("v", {2, 2, 6, 8});
    g.output("loss", mean(attention(q, k, v, {.causal = causal})));
  };
  Graph all, causal;
  build(all, false);
  build(causal, true);
  const std::vector<ProfileRow> rows = rows_of(all, training(false)), half = rows_of(causal, training(false));
  const double product = 2.0 * 2 * 4 * 6 * 6 * 8, causal_product = product * (6 * 7 / 2) / 36;
  EXPECT_EQ(row_of(rows, "attention").flop, 2 * product);
  EXPECT_EQ(row_of(rows, "attention dq", Segment::Backward).flop, 3 * product);
  EXPECT_EQ(row_of(rows, "attention dkv", Segment::Backward).flop, 4 * product);
  EXPECT_EQ(row_of(half, "attention").flop, 2 * causal_product);
  EXPECT_EQ(row_of(rows, "attention").shape, "2x4/2x6x6x8");
  EXPECT_EQ(row_of(half, "attention").shape, "2x4/2x6x6x8 causal");
}

TEST(SessionProfileRows, OpsAreCountedForEachElement) {
  Graph g;
  const Value x = g.input("x", {30, 40});
  g.output("y", exp(x) * 2.0 - x);
  g.output("z", sum(x * x, {1}));
  const std::vector<ProfileRow> rows = rows_of(g);
  EXPECT_EQ(row_of(rows, "pointwise").flop, 3.0 * 1200);
  EXPECT_EQ(row_of(rows, "reduction").flop, 2.0 * 1200);
  EXPECT_EQ(row_of(rows, "reduction").shape, "30 of 40");
}

TEST(SessionProfileRows, AGatherMovesTheRowsItReads) {
  Graph g;
  g.output("y", embedding(g.parameter("model.embed.weight", {1000, 16}), g.input("ids", {5}, DType::i32)));
  const std::vector<ProfileRow> rows = rows_of(g);
  const ProfileRow& row = row_of(rows, "gather");
  EXPECT_EQ(row.site, "model.embed");
  EXPECT_GE(row.bytes_read, 64000u) << "the range of its operand";
  EXPECT_LE(row.bytes, 2 * 5 * 16 * 4 + 5 * 16 * 4);
}

TEST(SessionProfileRows, NamesOfLayersAndEqualLayersTogether) {
  Graph g;
  Value x = g.input("x", {2, 8, 16});
  for (const char* name : {"layers.0", "layers.1", "layers.2"})
    x = nn::transformer_block(x, name, {.attention = {.heads = 2}});
  g.output("loss", mean(x * x));
  Profile profile;
  profile.rows = rows_of(g, training(false));
  std::set<std::string> forward, backward;
  for (const ProfileRow& row : profile.rows) {
    if (row.family == "matmul") (row.segment == Segment::Forward ? forward : backward).insert(row.site);
    EXPECT_FALSE(row.site.empty()) << row.ops;
    EXPECT_TRUE(row.site.contains("layers.") || row.family != "attention") << row.site;
  }
  EXPECT_EQ(forward, backward) << "a gradient is named as what it is the gradient of";
  bool found = false;
  for (const std::string& site : forward) found |= site.starts_with("layers.1.");
  EXPECT_TRUE(found);
  std::size_t thrice = 0, rows = 0;
  for (const ProfilePattern& pattern : group_rows(profile, pattern_key)) {
    thrice += pattern.rows.size() % 3 == 0 ? 1 : 0;
    rows += pattern.rows.size();
  }
  EXPECT_EQ(rows, profile.rows.size());
  EXPECT_GT(thrice, 5u);
}

void expect_times(const Profile& profile) {
  for (const ProfileRow& row : profile.rows) {
    EXPECT_TRUE(std::isfinite(row.us) && row.us > 0) << row.step << " " << row.us;
    EXPECT_LE(row.min_us, row.us);
  }
  EXPECT_GT(profile.wall_median_ms, 0);
  EXPECT_GT(profile.device_ms, 0);
  EXPECT_GE(profile.wall_ms.size(), 3u);
}

TEST(SessionProfile, TimesEveryDispatchAndChangesNoResult) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Weights weights(g, {.seed = 1, .device = test::test_device().device});
  Session s = compile(g, weights, training(false));
  set_rows(s, test::tiny_data(12), 0);
  s.step();
  const Literal logits = s.read_literal("logits"), gradient = s.read_literal("grad/w1");
  const auto before = test::snapshot(weights);

  const Profile profile = aeshna::profile(s, kQuick);
  EXPECT_EQ(profile.rows.size(), profile_rows(s.impl()).size());
  expect_times(profile);
  EXPECT_EQ(profile.ceilings.bytes_per_s, 0);
  EXPECT_EQ(profile.rows[0].bound_us(profile.ceilings), 0) << "without ceilings there is no bound";
  EXPECT_EQ(s.read_literal("logits"), logits);
  EXPECT_EQ(s.read_literal("grad/w1"), gradient);
  EXPECT_EQ(test::snapshot(weights), before);
  s.step();
  EXPECT_EQ(s.read_literal("grad/w1"), gradient);
}

TEST(SessionProfile, APassOfASessionThatUpdatesIsAStep) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  CompileOptions options = training(true);
  options.train.accumulate = 2;
  const Dataset data = test::tiny_data(12);
  const Weights profiled(g, {.seed = 1, .device = test::test_device().device}),
      stepped(g, {.seed = 1, .device = profiled.device()});
  Session a = compile(g, profiled, options), b = compile(g, stepped, options);
  set_rows(a, data, 0);
  set_rows(b, data, 0);
  const Profile profile = aeshna::profile(a, kQuick);
  expect_times(profile);
  EXPECT_TRUE(std::ranges::contains(profile.rows, Segment::Update, &ProfileRow::segment));
  a.wait();
  while (b.steps() < a.steps()) {
    b.step();
    b.wait();
  }
  if (a.impl().micro > 0) b.step();
  b.wait();
  EXPECT_GE(a.steps(), 3);
  test::expect_equal(profiled, stepped);
}

TEST(SessionProfile, FewTimestampSlotsTakeSeveralPasses) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Device few(gpu::with_faults(test::test_device().device->shared(), {.timestamp_slots = 7}));
  const Weights weights(g, {.seed = 1, .device = few});
  Session s = compile(g, weights, training(true));
  set_rows(s, test::tiny_data(12), 0);
  const Profile profile = aeshna::profile(s, kQuick);
  ASSERT_GT(profile.rows.size(), 6u);
  expect_times(profile);
}

TEST(SessionProfile, ADeviceWithoutTimestampsSaysSo) {
  Graph g;
  g.output("y", g.input("x", {4}) * 2.0);
  Session s = on_null(g);
  EXPECT_ERROR(profile(s), ErrorCode::Unsupported, "device null has no timestamps");
}

TEST(SessionProfile, InputsMustBeSet) {
  AESHNA_NEED_DEVICE();
  Graph g;
  g.output("y", g.input("x", {4}) * 2.0);
  Session s = compile(g, Weights(g, {.seed = 1, .device = test::test_device().device}));
  EXPECT_ERROR(profile(s, kQuick), ErrorCode::InvalidArgument, "never set: 'x'");
}

TEST(SessionProfile, Ceilings) {
  AESHNA_NEED_DEVICE();
  const Ceilings c = measure_ceilings(*test::test_device().device, Contract::Strict);
  for (const double value : {c.bytes_per_s, c.flop_per_s, c.dispatch_us, c.dependent_dispatch_us})
    EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
  EXPECT_EQ(c.flop_per_s, c.contract_flop_per_s);
  ProfileRow row;
  row.bytes = c.bytes_per_s * 3e-6;
  row.flop = c.flop_per_s * 2e-6;
  row.us = 10;
  EXPECT_NEAR(row.bound_us(c), 3, 1e-9);
  EXPECT_NEAR(row.excess_us(c), 7, 1e-9);
}

}  // namespace
}  // namespace aeshna
