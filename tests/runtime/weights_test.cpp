// The store of device tensors, over the Null device: no kernel runs here.
#include "aeshna/weights.h"

#include <cmath>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "aeshna/ops.h"
#include "gpu/device.h"
#include "io/safetensors.h"
#include "runtime/initial.h"
#include "support/expect_error.h"

namespace aeshna {
namespace {

using test::message_of;

Device null_device(bool unified = false) {
  Caps caps;
  caps.unified_memory = unified;
  return Device(gpu::open_null(caps));
}

Weights null_weights(const Graph& g, std::uint64_t seed = 0) {
  return Weights(g, {.seed = seed, .device = null_device()});
}

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments moments(const Literal& value) {
  const std::vector<double> v = value.to_doubles();
  Moments m;
  m.mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  for (const double x : v) m.deviation += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  m.deviation = std::sqrt(m.deviation);
  m.low = *std::ranges::min_element(v);
  m.high = *std::ranges::max_element(v);
  return m;
}

TEST(Initial, DistributionsHaveTheirMoments) {
  struct Case {
    Init init;
    double mean, deviation, bound;
  };
  // fan_in = 40 * 2 = 80, fan_out = 100 * 2 = 200
  const double kaiming = std::sqrt(2.0) / std::sqrt(80.0), xavier = std::sqrt(2.0 / 280.0), inf = INFINITY;
  const Case cases[] = {{Init::zeros(), 0, 0, 0},
                        {Init::constant(2.5), 2.5, 0, 2.5},
                        {Init::uniform(-1, 3), 1, 4 / std::sqrt(12.0), 3},
                        {Init::normal(5, 0.5), 5, 0.5, inf},
                        {Init::kaiming_uniform(), 0, kaiming, kaiming * std::sqrt(3.0)},
                        {Init::kaiming_normal(), 0, kaiming, inf},
                        {Init::xavier_uniform(2), 0, 2 * xavier, 2 * xavier * std::sqrt(3.0)},
                        {Init::xavier_normal(), 0, xavier, inf}};
  for (const Case& c : cases) {
    Graph g;
    g.parameter("w", {100, 40, 2}, {.init = c.init});
    const Moments m = moments(null_weights(g, 7).get("w"));
    const double tolerance = 4 * c.deviation / std::sqrt(8000.0) + 1e-9;  // 4 standard errors
    EXPECT_NEAR(m.mean, c.mean, tolerance);
    EXPECT_NEAR(m.deviation, c.deviation, tolerance);
    EXPECT_LE(std::max(std::abs(m.low), std::abs(m.high)), c.bound * (1 + 1e-6));
    if (std::isfinite(c.bound) && c.deviation > 0) {
      EXPECT_GT(m.high, 0.99 * c.bound);
    }
  }
}

TEST(Initial, DefaultsAreTorchs) {
  Graph g;
  g.parameter("w", {64, 25});
  g.parameter("b", {64});
  const Weights weights = null_weights(g);
  EXPECT_LE(moments(weights.get("w")).high, 0.2);  // 1 / sqrt(25)
  EXPECT_GT(moments(weights.get("w")).high, 0.19);
  EXPECT_EQ(moments(weights.get("b")).high, 0);
}

TEST(Initial, DependsOnSeedAndNameAlone) {
  Graph one, two;
  one.parameter("a", {8, 8});
  one.parameter("b", {8, 8});
  two.parameter("b", {8, 8});
  two.parameter("other", {3, 3});
  two.parameter("a", {8, 8});
  const Weights w1 = null_weights(one, 5), w2 = null_weights(two, 5), w3 = null_weights(one, 6);
  EXPECT_EQ(w1.get("a"), w2.get("a"));
  EXPECT_EQ(w1.get("b"), w2.get("b"));
  EXPECT_FALSE(w1.get("a") == w1.get("b"));
  EXPECT_FALSE(w1.get("a") == w3.get("a"));
}

TEST(Initial, SeedStateIsTheSeed) {
  Graph g;
  g.output("r", random_uniform(g, {4}));
  const Weights weights = null_weights(g, 0x1234567890ull);
  const Literal seed = weights.get("aeshna.seed");
  EXPECT_EQ(seed.at(0), 0x34567890);
  EXPECT_EQ(seed.at(1), 0x12);
}

TEST(WeightsStore, SetGetAndVersions) {
  for (const bool unified : {false, true}) {
    Graph g;
    g.parameter("w", {2, 2});
    g.state("count", {}, DType::i64);
    Weights weights(g, {.seed = 0, .device = null_device(unified)});
    EXPECT_EQ(weights.names(), (std::vector<std::string>{"count", "w"}));
    EXPECT_EQ(weights.version("w"), 0u);
    const double values[] = {1, 2, 3, 4};
    const Literal w = Literal::from_doubles({DType::f32, {2, 2}}, values);
    weights.set("w", w);
    EXPECT_EQ(weights.get("w"), w);
    EXPECT_EQ(weights.version("w"), 1u);
    weights.set("count", Literal::scalar(-3, DType::i64));
    EXPECT_EQ(weights.get("count").at(0), -3);
    EXPECT_EQ(weights.version("w"), 1u);
    const Weights copy = weights;  // copies share the store
    EXPECT_EQ(copy.get("w"), w);
    weights.set("w", Literal::from_doubles({DType::f32, {2, 2}}, std::vector<double>{0, 0, 0, 9}));
    EXPECT_EQ(copy.get("w").at(3), 9);
  }
}

TEST(WeightsStore, RefusalsNameTheThing) {
  Graph g;
  g.parameter("encoder/w1", {2, 2});
  g.state("count", {}, DType::i64);
  Weights weights = null_weights(g);
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { weights.get("encoder/w2"); }), "encoder/w1");
  EXPECT_HAS(message_of(ErrorCode::ShapeMismatch, [&] { weights.set("encoder/w1", Literal::scalar(1)); }), "f32[2, 2]");
  EXPECT_HAS(message_of(ErrorCode::DTypeMismatch, [&] { weights.set("count", Literal::scalar(1)); }), "i64");
  EXPECT_HAS(message_of(ErrorCode::OutOfRange, [&] { weights.set("count", Literal::scalar(1e12, DType::i64)); }),
             "element 0");
  EXPECT_EQ(weights.version("count"), 0u);
  EXPECT_EQ(weights.get("count").at(0), 0);

  Graph other;
  other.parameter("fine", {1});
  other.parameter("encoder/w1", {3, 2});
  const std::string text = message_of(ErrorCode::ShapeMismatch, [&] { weights.add(other); });
  EXPECT_HAS(text, "f32[3, 2]");
  EXPECT_HAS(text, "weights_test.cpp");
  EXPECT_FALSE(weights.contains("fine")) << "nothing is added when something is wrong";
  Graph role;
  role.state("encoder/w1", {2, 2});
  message_of(ErrorCode::InvalidArgument, [&] { weights.add(role); });
  Graph wide;
  wide.parameter("d", {2}, {.dtype = DType::f64});
  EXPECT_HAS(message_of(ErrorCode::Unsupported, [&] { weights.add(wide); }), "f64");
}

TEST(WeightsStore, AddKeepsWhatIsThere) {
  Graph g;
  g.parameter("a", {4});
  Weights weights = null_weights(g);
  weights.set("a", Literal::from_doubles({DType::f32, {4}}, std::vector<double>{1, 2, 3, 4}));
  Graph more;
  more.parameter("a", {4});
  more.parameter("b", {2, 2});
  weights.add(more);
  EXPECT_EQ(weights.get("a").at(2), 3);
  EXPECT_TRUE(weights.contains("b"));
}

TEST(WeightsStore, SaveAndLoad) {
  const auto path = std::filesystem::temp_directory_path() / "aeshna_weights_test.safetensors";
  Graph g;
  g.parameter("w", {3, 5});
  g.parameter("b", {3});
  g.state("mean", {3}, DType::f32, Init::constant(4));
  const Weights weights = null_weights(g, 3);
  weights.save(path);
  {
    const SafetensorsFile file(path);
    EXPECT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.literal("w"), weights.get("w"));
  }
  Weights other = null_weights(g, 4);
  other.load(path);
  EXPECT_EQ(other.get("w"), weights.get("w"));

  weights.save(path, true);
  EXPECT_NE(SafetensorsFile(path).find("aeshna.state/mean"), nullptr);
  other.set("mean", Literal::from_doubles({DType::f32, {3}}, std::vector<double>{0, 0, 0}));
  other.load(path);
  EXPECT_EQ(other.get("mean").at(1), 4);

  Weights empty(null_device());
  empty.load(path);
  EXPECT_EQ(empty.names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_EQ(empty.get("w"), weights.get("w"));

  Graph wrong;
  wrong.parameter("w", {5, 3});
  wrong.parameter("c", {1});
  Weights refused = null_weights(wrong, 1);
  const Literal before = refused.get("w");
  try {
    refused.load(path);
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();  // every problem in one message
    EXPECT_HAS(text, "expected f32[5, 3], found f32[3, 5]");
    EXPECT_HAS(text, "missing: 'c'");
    EXPECT_HAS(text, "unknown: 'b'");
  }
  EXPECT_EQ(refused.get("w"), before);
  std::filesystem::remove(path);
}

TEST(WeightsStore, OutOfMemoryAddsNothing) {
  Graph g;
  g.parameter("a", {4});
  g.parameter("b", {4});
  Weights weights(Device(gpu::with_faults(gpu::open_null({}), {.out_of_memory_at_buffer = 2})));
  message_of(ErrorCode::OutOfMemory, [&] { weights.add(g); });
  EXPECT_TRUE(weights.names().empty());
  weights.add(g);  // usable afterwards
  EXPECT_EQ(weights.names().size(), 2u);
}

}  // namespace
}  // namespace aeshna
