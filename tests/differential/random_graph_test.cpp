// Random graphs: the interpreter before and after every graph stage, with gradients; the device against the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "aeshna/session.h"
#include "base/format.h"
#include "base/philox.h"
#include "compile/reserved.h"
#include "compile/stages.h"
#include "compile/training.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ir/rebuild.h"
#include "ir/verify.h"
#include "runtime/session_impl.h"
#include "support/graph_values.h"
#include "support/random_graph.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using test::Expectation;
using test::RandomGraph;

struct Tally {
  int compared = 0, undecided = 0;
};

/// Outputs of `got` against an expectation; undecided ones are counted, not compared.
void compare(const TensorMap& got, const Expectation& want, Tally& tally) {
  for (const auto& [name, exact] : want.exact) {
    if (name.starts_with(reserved::prefix)) continue;
    if (want.undecided.contains(name)) {
      ++tally.undecided;
      continue;
    }
    ++tally.compared;
    const HostTensor& value = got.at(name);
    ASSERT_EQ(value.type, exact.type) << name;
    const double tolerance = want.tolerance.at(name);
    for (std::size_t i = 0; i < exact.data.size(); ++i) {
      const double a = value.data[i], b = exact.data[i];
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance;
      ASSERT_TRUE(same) << name << " element " << i << ": " << a << ", expected " << b << " +- " << tolerance;
    }
  }
}

/// Which op of the graph is too large for the device is not a fault, if the refusal says which limit it is.
template <class F>
bool unless_refused(F&& f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::LimitExceeded || !std::string_view(e.what()).contains("max_")) throw;
    return false;
  }
}

/// An exception is a failure that keeps the traces (seed, variant, stage) of its scope.
template <class F>
void no_throw(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    FAIL() << e.what();
  }
}

/// Leaves that stages have added start at zero.
TensorMap completed(const Graph& graph, TensorMap leaves) {
  for (const Node& node : graph.nodes()) {
    if (node.op->kind == OpKind::Leaf && !node.name.empty() && !leaves.contains(node.name))
      leaves.emplace(node.name, HostTensor(node.results[0]));
  }
  return leaves;
}

/// Each stage alone and all of them in order, on one graph with its gradients.
void check_stages(std::uint64_t seed, Tally& tally) {
  const RandomGraph random = test::random_graph(seed);
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  const auto trained = append_training(*random.graph, options);
  verify(*trained, "train");
  std::vector<std::string> checks;
  // The placeholder `ok` has no value before the status stage: what comes before is compared without it.
  const auto lowered = lower_checks(*trained, checks);
  verify(*lowered, "status");
  const TensorMap leaves = completed(*lowered, random.leaves);
  const Expectation want = test::expectation(*lowered, leaves);

  const std::pair<const char*, std::shared_ptr<Graph>> stages[] = {
      {"clone", clone(*lowered)},
      {"dce", eliminate_dead(*lowered)},
      {"cse", merge_common(*lowered)},
      {"fold", fold_constants(*lowered)},
      {"expand", expand_composites(*lowered)},
      {"rewrite", rewrite(*lowered, false)},
      {"rewrite before autodiff", rewrite(*lowered, true)},
  };
  for (const auto& [name, graph] : stages) {
    SCOPED_TRACE(name);
    verify(*graph, name);
    compare(interpret(*graph, leaves).outputs, want, tally);
    if (testing::Test::HasFatalFailure()) return;
  }

  SCOPED_TRACE("all stages");
  std::vector<std::string> all_checks;
  const auto compiled =
      rewrite(*lower_checks(*merge_common(*expand_composites(*append_training(*rewrite(*random.graph, true), options))),
                            all_checks),
              false);
  verify(*compiled, "simplify");
  compare(interpret(*lowered, leaves).outputs, test::expectation(*compiled, leaves), tally);
}

void check_many(std::uint64_t seeds) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    no_throw([&] { check_stages(seed, tally); });
  }
  testing::Test::RecordProperty("compared", tally.compared);
  testing::Test::RecordProperty("undecided", tally.undecided);
  EXPECT_LT(tally.undecided, tally.compared / 4) << "too many outputs sit behind a jump";
}

TEST(RandomGraph, EveryOpOccurs) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomGraph random = test::random_graph(seed);
    for (const Node& node : random.graph->nodes()) seen.insert(node.op->name);
    const auto expanded = expand_composites(*random.graph);
    for (const Node& node : expanded->nodes()) seen.insert(node.op->name);
  }
  for (const OpDef& op : op_table()) {
    if (op.kind == OpKind::Sink || op.name == "state" || op.kind == OpKind::Random) continue;
    if (op.name == "block_sums") continue;  // of long scans
    if (op.name.starts_with("attention_d")) continue;  // its gradients come with a loss, in the tests below
    if (op.kind == OpKind::Kernel && op.gradient == GradientKind::NotDifferentiable) continue;  // only expansions make them
    if (op.name == "place" || op.name == "block_sums") continue;  // of gradients of orders; of long rows
    EXPECT_TRUE(seen.contains(op.name)) << op.name;
  }
}

TEST(RandomGraph, EqualSeedsGiveEqualGraphs) {
  EXPECT_EQ(test::random_graph(3).graph->print(), test::random_graph(3).graph->print());
  EXPECT_NE(test::random_graph(3).graph->print(), test::random_graph(4).graph->print());
}

TEST(RandomGraph, ValuesStayFinite) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomGraph random = test::random_graph(seed);
    const auto result = interpret(*random.graph, random.leaves, Rounding::Storage, true);
    for (std::size_t i = 0; i < result.values.size(); ++i) {
      if (random.graph->nodes()[i].op->name == "philox") continue;              // 32 random bits
      const bool attention = random.graph->nodes()[i].op->name == "attention";  // a query that sees no key has a sum of -inf
      for (const HostTensor& value : std::span(result.values[i]).first(attention ? 1 : result.values[i].size())) {
        for (const double v : value.data)
          ASSERT_TRUE(std::isfinite(v) && std::fabs(v) < 1e6)
              << "seed " << seed << " " << random.graph->nodes()[i].op->name;
      }
    }
  }
}

/// Gradients of all parameters along a random direction against central differences, in exact arithmetic.
void check_gradients(std::uint64_t seeds) {
  int compared = 0, undecided = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    test::RandomGraphOptions shape;
    shape.stop_gradient = false;
    const RandomGraph random = test::random_graph(seed, shape);
    PipelineOptions options;
    options.loss = "loss";
    std::vector<std::string> checks;
    const auto graph = lower_checks(*append_training(*random.graph, options), checks);
    const TensorMap leaves = completed(*graph, random.leaves);
    const TensorMap outputs = interpret(*graph, leaves).outputs;

    TensorMap direction;
    double slope = 0;
    for (const auto& [name, gradient] : outputs) {
      if (!name.starts_with(reserved::gradient)) continue;
      HostTensor d(gradient.type);
      PhiloxStream stream(seed, direction.size());
      for (std::size_t i = 0; i < d.data.size(); ++i) {
        d.data[i] = stream.next_normal();
        slope += d.data[i] * gradient.data[i];
      }
      direction.emplace(name.substr(reserved::gradient.size()), std::move(d));
    }
    ASSERT_FALSE(direction.empty());
    const auto loss_at = [&](double h) {
      TensorMap moved = random.leaves;
      for (const auto& [name, d] : direction) {
        for (std::size_t i = 0; i < d.data.size(); ++i) moved.at(name).data[i] += h * d.data[i];
      }
      return interpret(*random.graph, moved).outputs.at("loss").data[0];
    };
    // Two widths that disagree have a kink or a jump between them.
    const auto difference = [&](double h) { return (loss_at(h) - loss_at(-h)) / (2 * h); };
    const double wide = difference(1e-5), narrow = difference(1e-6), scale = std::max(1.0, std::fabs(narrow));
    if (std::fabs(wide - narrow) > 1e-5 * scale) {
      ++undecided;
      continue;
    }
    ++compared;
    EXPECT_NEAR(slope, narrow, 2e-5 * scale) << "seed " << seed;
  }
  testing::Test::RecordProperty("compared", compared);
  testing::Test::RecordProperty("undecided", undecided);
  EXPECT_LT(undecided, compared / 2);
}

TEST(RandomGraph, GradientsMatchDifferences) { check_gradients(50); }

TEST(LongRandomGraph, GradientsMatchDifferences) { check_gradients(1000); }

TEST(RandomGraph, StagesKeepTheMeaning) { check_many(50); }

TEST(LongRandomGraph, StagesKeepTheMeaning) { check_many(1000); }

// ---- plans: every schedule of every graph is sound, whatever the limits

Caps tiny_caps() {
  Caps caps;
  caps.max_storage_buffers = 4;
  caps.shared_bytes = 16384;
  caps.max_groups[0] = caps.max_groups[1] = caps.max_groups[2] = 7;
  return caps;
}

void check_plans(std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    for (const int variant : {0, 1, 2, 3}) {
      SCOPED_TRACE(formatted("variant {}", variant));
      test::RandomGraphOptions shape;
      shape.attention = variant != 2;
      const RandomGraph random = test::random_graph(seed, shape);
      PipelineOptions options;
      options.training = variant != 3;
      options.loss = "loss";
      if (variant != 1) options.optimizer = Adam{};
      options.fusion = variant != 1;
      options.aliasing = variant != 2;
      options.tiny_tiles = variant == 2;
      Caps caps = variant == 2 ? tiny_caps() : Caps();
      if (variant != 2) caps.max_storage_buffers = 16;
      no_throw([&] {
        const Plan plan = compile_plan(*random.graph, options, caps);
        for (const std::string& problem : check_plan(plan, caps)) ADD_FAILURE() << problem;
      });
    }
  }
}

TEST(RandomGraph, PlansAreSound) { check_plans(50); }

/// Many a tensor needs several buffers, and a few kernels cannot do with that.
TEST(RandomGraph, PlansWithSmallBuffersAreSound) {
  int planned = 0, parted = 0;
  for (std::uint64_t seed = 200; seed < 300; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    const RandomGraph random = test::random_graph(seed, {.attention = false});
    PipelineOptions options;
    options.training = true;
    options.loss = "loss";
    options.optimizer = Adam{};
    Caps caps;
    caps.max_storage_buffers = 16;
    caps.storage_alignment = 16;
    caps.max_buffer_size = seed % 2 == 0 ? 256 : 512;
    if (seed % 3 == 0) caps.max_storage_range = 192;
    no_throw([&] {
      planned += unless_refused([&] {
        const Plan plan = compile_plan(*random.graph, options, caps);
        for (const std::string& problem : check_plan(plan, caps)) {
          if (!problem.contains("'counters'")) ADD_FAILURE() << problem;  // of hundreds of kernels; no device is that small
        }
        parted += std::ranges::any_of(plan.placements, [](const Placement& p) { return p.part > 0; }) ? 1 : 0;
      });
    });
  }
  EXPECT_GT(planned, 20);
  EXPECT_GT(parted, 10);
  RecordProperty("planned", planned);
  RecordProperty("parted", parted);
}

TEST(LongRandomGraph, PlansAreSound) { check_plans(1000); }

// ---- the device

struct Variant {
  const char* name;
  bool fusion, aliasing, tiny_tiles;
};

/// One compilation of a graph with its gradients, run twice on the device and compared with the interpreter.
void check_on_device(const Device& device, const RandomGraph& random, const Variant& variant, Tally& tally) {
  SCOPED_TRACE(variant.name);
  Weights weights(device);
  CompileOptions options;
  options.mode = Mode::Training;
  options.loss = "loss";
  options.update = false;
  options.fusion = variant.fusion;
  options.aliasing = variant.aliasing;
  options.tiny_tiles = variant.tiny_tiles;
  Session session = compile(*random.graph, weights, options);
  const Graph& compiled = *session.impl().plan.graph;
  const TensorMap leaves = completed(compiled, random.leaves);
  for (const Node& node : random.graph->nodes()) {
    if (node.op->kind != OpKind::Leaf || node.name.empty()) continue;
    const HostTensor& value = leaves.at(node.name);
    const Literal literal = Literal::from_doubles(value.type, value.data);
    if (is_input(node)) {
      session.set(node.name, literal);
    } else {
      weights.set(node.name, literal);
    }
  }
  const Expectation want = test::expectation(compiled, leaves);
  for (int run = 0; run < 2; ++run) {  // the second finds the arenas as the first left them
    session.step();
    session.wait();
    TensorMap got;
    for (const auto& [name, exact] : want.exact) {
      if (!name.starts_with(reserved::prefix))
        got.emplace(name, test::tensor(exact.type, session.read_literal(name).to_doubles()));
    }
    compare(got, want, tally);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// How many compilations the device's limits allowed.
int check_device(const Device& device, std::uint64_t first, std::uint64_t seeds) {
  constexpr Variant kVariants[] = {
      {"fused", true, true, true}, {"one kernel per node", false, true, true}, {"no aliasing", true, false, false}};
  Tally tally;
  int ran = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    test::RandomGraphOptions shape;
    shape.attention = device.impl().caps().max_storage_buffers >= 9;
    const RandomGraph random = test::random_graph(seed, shape);
    for (const Variant& variant : kVariants) {
      no_throw([&] {
        ran += unless_refused([&] { check_on_device(device, random, variant, tally); });
      });
    }
  }
  testing::Test::RecordProperty("compared", tally.compared);
  testing::Test::RecordProperty("undecided", tally.undecided);
  EXPECT_LT(tally.undecided, tally.compared / 4) << "too many outputs sit behind a jump";
  return ran;
}

TEST(RandomGraph, DeviceMatchesTheInterpreter) {
  AESHNA_NEED_DEVICE();
  EXPECT_EQ(check_device(*test::test_device().device, 0, 50), 150);
}

/// The same on a device that is made smaller: few operands, folded launches, little shared memory, a short push block.
TEST(RandomGraph, DeviceWithSmallLimitsMatchesTheInterpreter) {
  AESHNA_NEED_DEVICE();
  const Device small(DeviceRequest{.selector = test::test_device().device->info().uuid,
                                   .caps = "max_groups=7,shared_bytes=4096,max_storage_buffers=4,push_bytes=32,no_unified_memory",
                                   .validation = test::test_device().validation});
  EXPECT_EQ(check_device(small, 100, 12), 36);
}

/// Tensors of more than 256 elements lie in several buffers; graphs that have some.
TEST(RandomGraph, DeviceWithSmallBuffersMatchesTheInterpreter) {
  AESHNA_NEED_DEVICE();
  const Device small(DeviceRequest{.selector = test::test_device().device->info().uuid,
                                   .caps = "max_buffer_size=1024",
                                   .validation = test::test_device().validation});
  int ran = 0;
  for (std::uint64_t seed = 200; ran < 16 && seed < 600; ++seed) {
    const RandomGraph random = test::random_graph(seed, {});
    PipelineOptions options;
    options.training = true;
    options.loss = "loss";
    bool parted = false;
    no_throw([&] {
      unless_refused([&] {
        const Plan plan = compile_plan(*random.graph, options, small.impl().caps());
        parted = std::ranges::any_of(plan.placements, [](const Placement& p) { return p.part > 0; });
      });
    });
    if (parted) ran += check_device(small, seed, 1);
  }
  EXPECT_GE(ran, 16);
}

/// 1,000 seeds, in ranges that CTest runs side by side, each in a process of its own; the parameter is the first seed. Every second
/// range sees discrete memory.
class LongRandomGraphDevice : public testing::TestWithParam<std::uint64_t> {};
constexpr std::uint64_t kRange = 50;
INSTANTIATE_TEST_SUITE_P(LongFromSeed, LongRandomGraphDevice, testing::Range<std::uint64_t>(0, 1000, kRange),
                         testing::PrintToStringParamName());

TEST_P(LongRandomGraphDevice, MatchesTheInterpreter) {
  AESHNA_NEED_DEVICE();
  const Device& device = GetParam() / kRange % 2 == 0 ? *test::test_device().device : test::staged_device();
  EXPECT_EQ(check_device(device, GetParam(), kRange), 3 * kRange);
}

}  // namespace
}  // namespace aeshna
