// Sessions on the test device: steps, slots, bad steps, sharing.
#include "aeshna/session.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "gpu/device.h"
#include "runtime/session_impl.h"
#include "runtime/tiny_model.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using test::build_tiny;
using test::message_of;
using test::set_rows;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Weights weights_for(const Graph& g, std::uint64_t seed = 1) {
  return Weights(g, {.seed = seed, .device = test::test_device().device});
}

CompileOptions training(Optimizer optimizer = Sgd{.lr = 0.1f}) {
  return {.mode = Mode::Training, .optimizer = optimizer};
}

/// Counts the waits that reach a device.
class CountWaits final : public gpu::Device {
 public:
  CountWaits(std::shared_ptr<gpu::Device> inner, std::uint64_t& waits) : inner_(std::move(inner)), waits_(waits) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  const Caps& caps() const override { return inner_->caps(); }
  std::shared_ptr<gpu::Buffer> create_buffer(std::uint64_t bytes, gpu::MemoryKind kind, std::string_view name) override {
    return inner_->create_buffer(bytes, kind, name);
  }
  std::shared_ptr<gpu::Kernel> create_kernel(const gpu::KernelDesc& desc) override { return inner_->create_kernel(desc); }
  std::shared_ptr<gpu::CommandList> record(std::span<const gpu::Command> commands,
                                           std::vector<std::shared_ptr<void>> owners, std::string_view name) override {
    return inner_->record(commands, std::move(owners), name);
  }
  gpu::Ticket submit(std::span<gpu::CommandList* const> lists) override { return inner_->submit(lists); }
  void wait(gpu::Ticket ticket, std::optional<double> timeout_s) override {
    ++waits_;
    inner_->wait(ticket, timeout_s);
  }
  bool done(gpu::Ticket ticket) override { return inner_->done(ticket); }
  std::vector<double> timestamps(std::uint32_t count) override { return inner_->timestamps(count); }
  gpu::DeviceCounters counters() const override { return inner_->counters(); }

 private:
  std::shared_ptr<gpu::Device> inner_;
  std::uint64_t& waits_;
};

gpu::Device& device() { return test::test_device().device->impl(); }

/// Two ways for inputs to get to a device.
std::vector<Device> both_memories() { return {*test::test_device().device, test::staged_device()}; }

/// Of this process; 0 where the system does not tell, and with sanitizers, which keep freed memory.
std::uint64_t resident_bytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#endif
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(SessionRun, TheStepBeforeIsReadWhileTheNextOneRuns) {
  AESHNA_NEED_DEVICE();
  for (const Device& memory : both_memories()) {
    Graph g;
    const Value count = g.state("count", {2}, DType::i32);
    const Value next = count + g.input("by", {2}, DType::i32);
    g.assign(count, next);
    g.output("count", next);
    g.output("large", expand(reshape(next, {2, 1}), {2, 10000}));
    Session s = compile(g, Weights(g, {.device = memory}));
    const std::vector<std::int32_t> by = {1, 10};
    s.set("by", by);
    s.step();
    EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { s.read_previous("count"); }), "before the second step");
    for (int i = 1; i < 6; ++i) {
      s.step();
      EXPECT_EQ(s.read_previous("count").to_doubles(), (std::vector<double>{1.0 * i, 10.0 * i}));
    }
    EXPECT_EQ(s.read("count"), (std::vector<float>{6, 60}));
    EXPECT_EQ(s.read_previous("count").to_doubles(), (std::vector<double>{5, 50}));
    EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { s.read_previous("large"); }), "'large' i32[2, 10000] is larger than the 65536 bytes");
    EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { s.read_previous("cuont"); }), "count");
  }
}

TEST(SessionRun, ABadStepSaysSoToWhoReadsItLater) {
  AESHNA_NEED_DEVICE();
  Graph g;
  g.output("y", gather(g.input("x", {3}), g.input("i", {1}, DType::i32)));
  Session s = compile(g, Weights(*test::test_device().device));
  s.set("x", std::vector<float>{1, 2, 3});
  for (const std::int32_t i : {1, 3, 2}) {
    s.set("i", std::span(&i, 1));
    s.step();
  }
  EXPECT_HAS(message_of(ErrorCode::OutOfRange, [&] { s.read_previous("y"); }), "is out of range");
  EXPECT_EQ(s.read("y"), std::vector<float>{3});
}

TEST(SessionRun, TrainsAndInferenceSeesTheSameWeights) {
  AESHNA_NEED_DEVICE();
  Graph g, inference_graph;
  build_tiny(g);
  build_tiny(inference_graph, false);
  const Weights weights = weights_for(g);
  Session train = compile(g, weights, training(Adam{.lr = 0.05f}));
  Session infer = compile(inference_graph, weights);
  const Dataset data = test::tiny_data(12);
  const std::uint64_t version = weights.version("w1");

  set_rows(train, data, 0);
  train.step();
  const float first = train.read_scalar("loss");
  EXPECT_NEAR(first, std::log(3.0), 0.7);
  EXPECT_EQ(weights.version("w1"), version + 1);
  for (int i = 1; i < 40; ++i) {
    set_rows(train, data, i * 4);
    train.step();
  }
  EXPECT_LT(train.read_scalar("loss"), 0.5 * first);
  EXPECT_EQ(train.steps(), 40);

  set_rows(train, data, 0);
  set_rows(infer, data, 0, false);
  train.forward();
  infer.step();
  const std::vector<float> a = train.read("logits"), b = infer.read("logits");
  ASSERT_EQ(a.size(), 12u);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
  EXPECT_EQ(train.steps(), 40) << "forward() makes no update";
  EXPECT_EQ(weights.version("w1"), version + 40);
}

TEST(SessionRun, AStepAllocatesAndRecordsNothing) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  for (const Device& on : both_memories()) {
    Session s = compile(g, Weights(g, {.seed = 1, .device = on}), training());
    for (int i = 0; i < 3; ++i) {
      set_rows(s, data, i);
      s.step();
    }
    s.wait();
    const gpu::DeviceCounters before = on.impl().counters();
    for (int i = 0; i < 100; ++i) {
      set_rows(s, data, i);
      s.step();
      if (i % 10 == 0) s.read_scalar("loss");
    }
    s.wait();
    const gpu::DeviceCounters after = on.impl().counters();
    EXPECT_EQ(after.buffers_created, before.buffers_created);
    EXPECT_EQ(after.kernels_created, before.kernels_created);
    EXPECT_EQ(after.lists_recorded, before.lists_recorded);
    EXPECT_EQ(after.submissions, before.submissions + 100) << "one submission per step";
  }
}

TEST(SessionRun, AThousandStepsTakeConstantMemory) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  Session s = compile(g, weights_for(g), training());
  const Dataset data = test::tiny_data(12);
  set_rows(s, data, 0);
  s.step();
  s.wait();
  for (int i = 1; i < 200; ++i) s.step();  // what grows once, such as a layer's tables
  s.wait();
  const std::uint64_t buffers = device().counters().buffers_created, resident = resident_bytes();
  const std::optional<std::uint64_t> in_use = device().memory_in_use();
  for (int i = 200; i < 1000; ++i) {
    set_rows(s, data, i);
    s.step();
  }
  s.wait();
  EXPECT_EQ(device().counters().buffers_created, buffers);
  EXPECT_LT(resident_bytes(), resident + (4u << 20));
  EXPECT_EQ(s.steps(), 1000);
  EXPECT_TRUE(std::isfinite(s.read_scalar("loss")));
  if (in_use &&
      device().info().kind != DeviceInfo::Kind::Software) {  // a software driver reports the whole machine's memory
    EXPECT_EQ(device().memory_in_use(), in_use);
  }
}

TEST(SessionRun, RerunsAreBitIdentical) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  const auto run = [&](const Weights& weights, bool waits) {
    Session s = compile(g, weights, training(Adam{.lr = 0.01f}));
    for (int i = 0; i < 12; ++i) {
      set_rows(s, data, i * 4);
      s.step();
      if (waits) s.wait();  // overlap of steps changes nothing
    }
    s.wait();
  };
  const Weights a = weights_for(g), b = weights_for(g);
  run(a, true);
  run(b, false);
  test::expect_equal(a, b);
}

/// A state that adds up what the inputs were: each step must have seen its own, however far the host runs ahead. The
/// wide product takes long enough for a write that does not wait to be seen.
TEST(SessionRun, EachStepSeesItsOwnInputs) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {2}), scale = g.input("scale", {}), unused = g.input("unused", {3});
  const Value wide = g.input("wide", {300, 300});
  const Value total = g.state("total", {2}), wide_total = g.state("wide_total", {});
  g.assign(total, total * 3.0 + x * scale);
  g.assign(wide_total, wide_total + sum(matmul(wide, wide)));
  g.output("seen", x * 1.0);
  for (const Device& on : both_memories()) {
    const Weights weights(g, {.seed = 1, .device = on});
    Session s = compile(g, weights);
    const float one[] = {1.0f};
    s.set("scale", std::span<const float>(one));
    double expected = 0, wide_expected = 0;
    for (int i = 0; i < 12; ++i) {
      s.set("wide", std::span<const float>(std::vector<float>(90000, i % 2 == 0 ? 0.5f : 0.0f)));
      if (i % 2 == 0) wide_expected += 300.0 * 300 * 300 / 4;
      if (i == 7) {
        const float two[] = {2.0f};
        s.set("scale", std::span<const float>(two));
      }
      if (i % 3 != 2) {  // every third step takes x of the step before
        const float values[] = {static_cast<float>(i % 5), -static_cast<float>(i % 5)};
        s.set("x", std::span<const float>(values));
      }
      s.step();
      const int seen = (i % 3 == 2 ? i - 1 : i) % 5;
      expected = expected * 3 + seen * (i >= 7 ? 2 : 1);
    }
    EXPECT_EQ(weights.get("total").at(0), expected);
    EXPECT_EQ(weights.get("total").at(1), -expected);
    EXPECT_EQ(weights.get("wide_total").at(0), wide_expected);
    EXPECT_EQ(s.read("seen")[0], 0);
  }
  (void)unused;
}

TEST(SessionRun, AnInputWithoutElementsIsNotStaged) {
  AESHNA_NEED_DEVICE();
  for (const Device& d : both_memories()) {
    Graph g;
    g.output("y", sum(g.input("none", {0, 3})) + 1);
    Session s = compile(g, Weights(d), {.mode = Mode::Inference});
    s.set("none", std::span<const float>());
    s.step();
    EXPECT_EQ(s.read("y")[0], 1);
  }
}

/// What the two kinds of memory cost: a staging buffer and copies at each step, or a wait in set().
TEST(SessionRun, InputsAreStagedOnDiscreteMemoryOnly) {
  Graph g;
  build_tiny(g, false);
  const std::vector<float> x(12, 0.5f);
  for (const bool unified : {false, true}) {
    Caps caps;
    caps.unified_memory = unified;
    std::shared_ptr<gpu::Device> inner = gpu::open_null(caps);
    std::uint64_t waits = 0;
    const Device counted(std::make_shared<CountWaits>(inner, waits));
    Session s = compile(g, Weights(g, {.seed = 1, .device = counted}));
    for (const SessionInput& input : s.impl().inputs) EXPECT_EQ(input.direct, unified);
    for (const Slot& slot : s.impl().slots) {
      EXPECT_EQ(slot.staging == nullptr, unified);
      EXPECT_EQ(slot.upload_all == nullptr, unified);
    }
    s.set("x", std::span<const float>(x));
    s.step();
    const std::uint64_t before = waits;
    s.set("x", std::span<const float>(x));
    EXPECT_EQ(waits, before + (unified ? 1 : 0));
    s.set("x", std::span<const float>(x));
    EXPECT_EQ(waits, before + (unified ? 1 : 0)) << "there is nothing left to wait for";
  }
}

TEST(SessionRun, OutputsOfAllSizesAndTypes) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {40, 500});  // 80,000 bytes: too large to come back with every step
  g.output("large", x + 1.0);
  g.output("flags", greater(x, 2.0));
  g.output("best", argmax(x, 1));
  g.output("one", sum(x));
  Session s = compile(g, weights_for(g));
  std::vector<float> values(20000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 500 == i / 500 ? 7 : 0);
  for (int round = 0; round < 2; ++round) {
    s.set("x", std::span<const float>(values));
    s.step();
    const std::vector<float> large = s.read("large");
    ASSERT_EQ(large.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(large[i], values[i] + 1) << i;
    EXPECT_EQ(s.read_literal("flags").type(), (TensorType{DType::boolean, {40, 500}}));
    EXPECT_EQ(s.read_literal("flags").at(501), 1);
    EXPECT_EQ(s.read_literal("flags").at(502), 0);
    EXPECT_EQ(s.read("best")[3], 3);
    EXPECT_EQ(s.read_scalar("one"), 280);
    values[0] = 7;  // unchanged sum
  }
  EXPECT_HAS(message_of(ErrorCode::ShapeMismatch, [&] { s.read_scalar("best"); }), "i32[40]");
}

/// Memory that the host cannot see, on any machine: everything goes through staging, and gives the same bits.
TEST(SessionRun, StagingGivesWhatDirectAccessGives) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Value wide = g.input("wide", {100, 300});
  g.output("wider", wide * 2.0);  // 120,000 bytes: a download of its own
  const Dataset data = test::tiny_data(12);
  std::vector<float> values(30000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Weights direct = weights_for(g), staged(g, {.seed = 1, .device = test::staged_device()});
  CompileOptions options = training(Adam{});
  options.loss = "loss";
  for (const Weights* weights : {&direct, &staged}) {
    Session s = compile(g, *weights, options);
    s.set("wide", std::span<const float>(values));
    for (int i = 0; i < 5; ++i) {
      set_rows(s, data, i * 4);
      s.step();
    }
    const std::vector<float> wider = s.read("wider");
    ASSERT_EQ(wider.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(wider[i], 2 * values[i]) << i;
    s.step();
    EXPECT_EQ(s.read("wider"), wider) << "by the list of the first read";
    EXPECT_EQ(s.diagnose(), "");
  }
  test::expect_equal(direct, staged);
}

/// Operands of 120 kB where a descriptor covers 32 kB: every kernel is cut by rows, and gives the same.
TEST(SessionRun, RowSplitsGiveWhatWholeKernelsGive) {
  AESHNA_NEED_DEVICE();
  const Device small(DeviceRequest{.selector = device().info().uuid,
                                   .caps = "max_storage_range=32768",
                                   .validation = test::test_device().validation});
  Graph g;
  const Value x = g.input("x", {301, 100}), w = g.input("w", {20, 100});
  g.output("pointwise", tanh(x) * 2.0 + x);
  g.output("rows", softmax(x, 1));
  g.output("product", linear(x, w));
  g.output("joined", concat({slice(x, {0}, {7}, {200}), neg(x)}, 0));
  g.output("padded", pad(x, {3, 1}, {2, 4}, 0.5));
  g.output("transposed", permute(x, {1, 0}) * 3.0);
  std::vector<float> values(30100), weights(2000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 211) / 100.0f - 1.0f;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i * 17 % 101) / 100.0f - 0.5f;
  const auto run = [&](const Device& on) {
    Session s = compile(g, Weights(on));
    s.set("x", std::span<const float>(values));
    s.set("w", std::span<const float>(weights));
    s.step();
    std::vector<std::vector<float>> outputs;
    for (const auto& output : g.outputs()) outputs.push_back(s.read(output.name));
    return outputs;
  };
  const auto whole = run(*test::test_device().device), split = run(small);
  for (std::size_t o = 0; o < whole.size(); ++o) {
    ASSERT_EQ(whole[o].size(), split[o].size());
    for (std::size_t i = 0; i < whole[o].size(); ++i)
      ASSERT_NEAR(whole[o][i], split[o][i], 1e-4) << g.outputs()[o].name << " element " << i;
  }
}

TEST(SessionRun, CompileReusesTheDevicesKernels) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Session first = compile(g, weights_for(g), training());
  const std::uint64_t kernels = device().counters().kernels_created;
  const Session second = compile(g, weights_for(g), training());
  EXPECT_EQ(device().counters().kernels_created, kernels);
  EXPECT_FALSE(second.compile_times().empty());
  EXPECT_GT(second.memory().pinned_bytes, 0u);
}

TEST(SessionRun, ChunksBoundSubmissionsAndChangeNothing) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  const Weights whole_weights = weights_for(g), cut_weights = weights_for(g);
  Session whole = compile(g, whole_weights, training(Adam{}));
  CompileOptions options = training(Adam{});
  options.chunk_ms = 1e-6;  // every dispatch on its own
  Session cut = compile(g, cut_weights, options);
  for (Session* s : {&whole, &cut}) {
    const std::uint64_t before = device().counters().submissions;
    for (int i = 0; i < 4; ++i) {
      set_rows(*s, data, i);
      s->step();
    }
    s->wait();
    const std::uint64_t submissions = device().counters().submissions - before;
    if (s == &whole) {
      EXPECT_EQ(submissions, 4u);
    } else {
      EXPECT_GT(submissions, 4u * 3);
    }
  }
  test::expect_equal(whole_weights, cut_weights);
  message_of(ErrorCode::InvalidArgument, [&] {
    options.chunk_ms = 0;
    compile(g, cut_weights, options);
  });
}

TEST(SessionRun, GradientsWithoutUpdates) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {3}), w = g.parameter("w", {3}, {.init = Init::constant(2)});
  g.output("loss", sum(w * w * x));
  const Weights weights = weights_for(g);
  Session s = compile(
      g, weights,
      {.mode = Mode::Training, .optimizer = {}, .train = {}, .loss = {}, .gradients = {"w", "x"}, .update = false});
  const float values[] = {1, 2, 3};
  s.set("x", std::span<const float>(values));
  s.step();
  EXPECT_EQ(s.read("grad/w"), (std::vector<float>{4, 8, 12}));
  EXPECT_EQ(s.read("grad/x"), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(s.read_scalar("loss"), 24);
  EXPECT_EQ(weights.get("w").at(0), 2);
  EXPECT_EQ(s.steps(), 0);
  message_of(ErrorCode::InvalidArgument, [&] { s.set_learning_rate(1); });
}

/// loss = sum(w): the gradient is 1, so that w shows the sum of the learning rates.
TEST(SessionRun, LearningRateFollowsTheSchedule) {
  AESHNA_NEED_DEVICE();
  Graph g;
  g.output("loss", sum(g.parameter("w", {2}, {.init = Init::zeros()})));
  const Weights weights = weights_for(g);
  CompileOptions options = training(Sgd{.lr = 1});
  options.train.schedule = Schedule::step(2, 0.5, 2);  // 1/2, 1, 1, 1, 1/2, 1/2, ...
  Session s = compile(g, weights, options);
  const double sums[] = {0.5, 1.5, 2.5, 3.5, 4.0, 4.5};
  for (const double sum : sums) {
    s.step();
    EXPECT_EQ(weights.get("w").at(0), -sum);
  }
  s.set_learning_rate(0.125);
  s.step();
  EXPECT_EQ(weights.get("w").at(0), -4.625);
  s.set_learning_rate(std::nullopt);
  s.step();  // step 7: 1/4
  EXPECT_EQ(weights.get("w").at(0), -4.875);
  EXPECT_EQ(s.steps(), 8);
}

TEST(SessionRun, MicroStepsAverage) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {});
  g.output("loss", sum(g.parameter("w", {2}, {.init = Init::zeros()}) * x));
  const Weights weights = weights_for(g);
  CompileOptions options = training(Sgd{.lr = 1});
  options.train.accumulate = 2;
  Session s = compile(g, weights, options);
  const float inputs[] = {1, 3, 10, 20};  // averages 2 and 15
  const double expected[] = {0, -2, -2, -17};
  for (int i = 0; i < 4; ++i) {
    s.set("x", std::span<const float>(&inputs[i], 1));
    s.step();
    EXPECT_EQ(weights.get("w").at(0), expected[i]) << i;
    EXPECT_EQ(s.steps(), (i + 1) / 2);
  }
}

TEST(SessionErrors, SetAndReadNameTheThing) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  Session s = compile(g, weights_for(g), training());
  const std::vector<float> three(3), twelve(12);
  const std::vector<std::int32_t> ids(4), twelve_ids(12);
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { s.set("z", std::span<const float>(three)); }), "'x'");
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { s.set("aeshna.lr", std::span<const float>(three)); }),
             "'aeshna.lr'");
  const std::string count = message_of(ErrorCode::ShapeMismatch, [&] { s.set("x", std::span<const float>(three)); });
  EXPECT_HAS(count, "'x'");
  EXPECT_HAS(count, "f32[4, 3]");
  EXPECT_HAS(count, "found 3");
  const std::string dtype =
      message_of(ErrorCode::DTypeMismatch, [&] { s.set("x", std::span<const std::int32_t>(twelve_ids)); });
  EXPECT_HAS(dtype, "f32[4, 3]");
  EXPECT_HAS(dtype, "i32");
  message_of(ErrorCode::DTypeMismatch, [&] { s.set("y", std::span<const float>(twelve)); });
  message_of(ErrorCode::ShapeMismatch, [&] {
    s.set("x", Literal::from_doubles({DType::f32, {3, 4}}, std::vector<double>(12)));
  });

  const std::string missing = message_of(ErrorCode::InvalidArgument, [&] { s.step(); });
  EXPECT_HAS(missing, "'x' f32[4, 3]");
  EXPECT_HAS(missing, "'y' i32[4]");
  s.set("x", std::span<const float>(twelve));
  EXPECT_EQ(message_of(ErrorCode::InvalidArgument, [&] { s.step(); }).find("'x'"), std::string::npos);
  EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { s.read("loss"); }), "before the first step");
  s.set("y", std::span<const std::int32_t>(ids));
  s.step();
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { s.read("lost"); }), "'loss'");
  EXPECT_TRUE(std::isfinite(s.read_scalar("loss")));
}

TEST(SessionErrors, ABadStepChangesNothingAndIsNamed) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Weights weights = weights_for(g);
  Session s = compile(g, weights, training(Adam{.lr = 0.01f}));
  const Dataset data = test::tiny_data(12);
  set_rows(s, data, 0);
  s.step();
  s.wait();
  const auto before = test::snapshot(weights);

  std::vector<float> x(12, 0.5f);
  x[5] = kNaN;
  s.set("x", std::span<const float>(x));
  s.step();
  const std::string text = message_of(ErrorCode::NonFinite, [&] { s.wait(); });
  EXPECT_HAS(text, "step 2");
  EXPECT_HAS(text, "loss");
  EXPECT_EQ(test::snapshot(weights), before);
  EXPECT_EQ(s.steps(), 1);
  EXPECT_HAS(s.diagnose(), "[input] 'x'");
  EXPECT_NO_THROW(s.wait()) << "an error is reported once";

  // An infinite value made inside: the product overflows.
  weights.impl().write(std::vector<std::pair<std::string, Literal>>{
      {"w2", Literal::from_doubles({DType::f32, {3, 8}}, std::vector<double>(24, 3e38))}});
  std::ranges::fill(x, 100.0f);
  s.set("x", std::span<const float>(x));
  s.step();
  message_of(ErrorCode::NonFinite, [&] { s.read_scalar("loss"); });
  const std::string node = s.diagnose();
  EXPECT_HAS(node, "tiny_model.h:");
  EXPECT_EQ(node.find("[input]"), std::string::npos) << node;

  weights.impl().write(std::vector<std::pair<std::string, Literal>>{{"w2", before.back().second}});
  ASSERT_EQ(before.back().first, "w2");
  set_rows(s, data, 0);
  s.step();
  EXPECT_TRUE(std::isfinite(s.read_scalar("loss"))) << "usable afterwards";
  EXPECT_EQ(s.steps(), 2);
  EXPECT_EQ(s.diagnose(), "");
}

/// The host has written the next step's inputs before it knows that the last one was bad.
TEST(SessionErrors, DiagnoseSeesWhatTheBadStepSaw) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  std::vector<float> x(12, 0.5f);
  for (const Device& on : both_memories()) {
    Session s = compile(g, Weights(g, {.seed = 1, .device = on}), training());
    set_rows(s, data, 0);
    x[5] = kNaN;
    s.set("x", std::span<const float>(x));
    s.step();
    x[5] = 0;
    for (int twice = 0; twice < 2; ++twice) s.set("x", std::span<const float>(x));
    message_of(ErrorCode::NonFinite, [&] { s.wait(); });
    EXPECT_HAS(s.diagnose(), "[input] 'x'");
    s.step();
    EXPECT_EQ(s.diagnose(), "") << "of the good step now";
    s.set("x", std::span<const float>(x));
    if (on.impl().caps().unified_memory) {
      EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { s.diagnose(); }), "input 'x'");
    } else {
      EXPECT_EQ(s.diagnose(), "");
    }
  }
}

TEST(SessionErrors, NoBadStepIsLostInThePipeline) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Weights weights = weights_for(g), clean_weights = weights_for(g);
  const Dataset data = test::tiny_data(12);
  Session s = compile(g, weights, training());
  for (int i = 1; i <= 7; ++i) {
    set_rows(s, data, i);
    if (i == 3) s.set("x", std::span<const float>(std::vector<float>(12, kNaN)));
    s.step();
  }
  EXPECT_HAS(message_of(ErrorCode::NonFinite, [&] { s.wait(); }), "step 3");
  EXPECT_EQ(s.steps(), 6) << "the steps after it went on";
  EXPECT_NO_THROW(s.wait());

  Session clean = compile(g, clean_weights, training());
  for (const int i : {1, 2, 4, 5, 6, 7}) {
    set_rows(clean, data, i);
    clean.step();
  }
  clean.wait();
  test::expect_equal(weights, clean_weights);
}

TEST(SessionErrors, LabelsOutOfRange) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Weights weights = weights_for(g);
  Session s = compile(g, weights, training());
  set_rows(s, test::tiny_data(12), 0);
  const auto before = test::snapshot(weights);
  const std::int32_t bad[] = {0, 1, 3, 2};
  s.set("y", std::span<const std::int32_t>(bad));
  s.step();
  EXPECT_HAS(message_of(ErrorCode::OutOfRange, [&] { s.wait(); }), "step 1");
  EXPECT_EQ(test::snapshot(weights), before);
  s.forward();  // evaluation inside a training session is checked too
  message_of(ErrorCode::OutOfRange, [&] { s.wait(); });
  const std::int32_t good[] = {0, 1, -100, 2};  // -100 is ignored
  s.set("y", std::span<const std::int32_t>(good));
  s.step();
  EXPECT_NO_THROW(s.wait());
}

TEST(SessionErrors, StatusIsASessionsOwn) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Weights weights = weights_for(g);
  Session bad = compile(g, weights, training()), good = compile(g, weights, training());
  EXPECT_FALSE(weights.contains("aeshna.status"));
  set_rows(good, test::tiny_data(12), 0);
  set_rows(bad, test::tiny_data(12), 0);
  bad.set("x", std::span<const float>(std::vector<float>(12, kNaN)));
  bad.step();
  good.step();
  EXPECT_NO_THROW(good.wait());
  message_of(ErrorCode::NonFinite, [&] { bad.wait(); });
}

TEST(SessionThreads, TwoSessionsInTwoThreads) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  const auto run = [&](const Weights& weights, int steps) {
    Session s = compile(g, weights, training(Adam{}));
    for (int i = 0; i < steps; ++i) {
      set_rows(s, data, i);
      s.step();
      if (i % 16 == 0) (void)weights.get("w1");
    }
    s.wait();
  };
  const Weights a = weights_for(g, 1), b = weights_for(g, 1), alone = weights_for(g, 1);
  std::thread one([&] { run(a, 50); }), two([&] { run(b, 50); });
  one.join();
  two.join();
  run(alone, 50);
  test::expect_equal(a, alone);
  test::expect_equal(b, alone);
}

/// One trains, one infers, over one store.
TEST(SessionThreads, SharedStore) {
  AESHNA_NEED_DEVICE();
  Graph g, inference_graph;
  build_tiny(g);
  build_tiny(inference_graph, false);
  const Weights weights = weights_for(g);
  const Dataset data = test::tiny_data(12);
  Session train = compile(g, weights, training());
  Session infer = compile(inference_graph, weights);
  set_rows(infer, data, 0, false);
  std::thread trainer([&] {
    for (int i = 0; i < 50; ++i) {
      set_rows(train, data, i);
      train.step();
    }
    train.wait();
  });
  for (int i = 0; i < 50; ++i) {
    infer.step();
    for (const float logit : infer.read("logits")) EXPECT_TRUE(std::isfinite(logit));
  }
  trainer.join();
  EXPECT_EQ(train.steps(), 50);
}

}  // namespace
}  // namespace aeshna
