// Tensors that do not fit one buffer: where they are cut, plans over their parts, and what a device computes. The limit is made
// small, so that a few thousand elements need several buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "ir/device_types.h"
#include "ir/interpreter.h"
#include "runtime/session_impl.h"
#include "support/large_graph.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

constexpr std::uint64_t kBuffer = 16384;  // 4096 elements

Caps small_buffers(std::uint64_t range = 1ull << 27) {
  Caps caps;
  caps.max_buffer_size = kBuffer;
  caps.max_storage_range = range;
  caps.max_storage_buffers = 16;
  caps.device_name = "small";
  return caps;
}

// ---- where tensors are cut

TEST(PartElements, OneBufferHoldsWhatFits) {
  EXPECT_EQ(part_elements({DType::f32, {64, 64}}, small_buffers()), 0);
  EXPECT_EQ(part_elements({DType::f32, {0, 5}}, small_buffers()), 0);
  EXPECT_EQ(part_elements({DType::f16, {128, 64}}, small_buffers()), 0);
  EXPECT_GT(part_elements({DType::f32, {64, 65}}, small_buffers()), 0);
}

TEST(PartElements, WholeRowsOfTheOutermostAxesThatFit) {
  Caps caps = small_buffers();
  caps.storage_alignment = 16;
  EXPECT_EQ(part_elements({DType::f32, {100, 101}}, caps), 40 * 101);     // 4 rows are a multiple of 16 bytes
  EXPECT_EQ(part_elements({DType::f32, {3, 50, 101}}, caps), 40 * 101);   // 50 rows of 101 do not fit
  EXPECT_EQ(part_elements({DType::f32, {3, 7, 101, 2}}, caps), 2 * 7 * 101 * 2);
  EXPECT_EQ(part_elements({DType::f32, {10000}}, caps), 4096);
  EXPECT_EQ(part_elements({DType::f32, {3, 4999}}, caps), 4096);  // no row fits: anywhere aligned
  EXPECT_EQ(part_elements({DType::f16, {301, 101}}, caps), 80 * 101);
  caps.max_storage_range = 8192;  // a part is one window
  EXPECT_EQ(part_elements({DType::f32, {100, 101}}, caps), 20 * 101);
}

TEST(PartElements, PartsAreTheWholeTensor) {
  Caps caps = small_buffers();
  for (const DType dtype : {DType::f32, DType::f16, DType::boolean, DType::q4_0}) {
    for (const Shape& shape : {Shape{100, 96}, Shape{3, 9600}, Shape{70000, 32}, Shape{32}, Shape{0}}) {
      for (const std::uint32_t alignment : {4u, 16u, 256u}) {
        caps.storage_alignment = alignment;
        const TensorType type{dtype, shape};
        std::int64_t first = 0;
        std::uint64_t offset = 0;
        for (const TensorPart& part : tensor_parts(type, caps)) {
          EXPECT_EQ(part.first, first);
          EXPECT_EQ(part.offset, offset);
          EXPECT_LE(part.bytes, kBuffer);
          EXPECT_EQ(part.bytes, device_bytes(dtype, part.count));
          first += part.count;
          offset += part.bytes;
        }
        EXPECT_EQ(first, shape.elements());
        EXPECT_EQ(offset, device_bytes(type));
      }
    }
  }
}

// ---- plans and values

std::size_t parted(const Plan& plan) {
  std::size_t count = 0;
  for (const aeshna::Placement& p : plan.placements) count += p.part == 1 ? 1 : 0;
  return count;
}

void expect_sound(const Plan& plan, const Caps& caps) {
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  for (const aeshna::Placement& p : plan.placements) EXPECT_LE(p.bytes, caps.max_buffer_size) << p.name;
}

Device small_device(std::string_view more = "") {
  return Device(DeviceRequest{.selector = test_device().device->info().uuid,
                              .caps = "max_buffer_size=16384" + std::string(more),
                              .validation = test_device().validation});
}

void set_leaves(Session& session, Weights& weights, const TensorMap& data) {
  for (const auto& [name, value] : data) {
    const Literal literal = Literal::from_doubles(value.type, value.data);
    if (weights.contains(name)) {
      weights.set(name, literal);
    } else {
      session.set(name, literal);
    }
  }
}

void expect_near(std::span<const double> got, const HostTensor& want, std::string_view name, double rtol) {
  ASSERT_EQ(got.size(), want.data.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want.data[i], rtol * std::max(1.0, std::fabs(want.data[i]))) << name << " element " << i;
}

/// Sound plans with and without fusion, aliasing and a short descriptor; the device, with mapped and with staged memory, against the
/// interpreter: outputs, and the states that the step assigns.
void expect_values(const Graph& g, const TensorMap& data, double rtol = 1e-5) {
  for (const std::uint64_t range : {1ull << 27, 8192ull}) {
    for (const bool fusion : {true, false}) {
      PipelineOptions options;
      options.fusion = options.aliasing = fusion;
      const Plan plan = compile_plan(g, options, small_buffers(range));
      expect_sound(plan, small_buffers(range));
      EXPECT_GT(parted(plan), 0u);
    }
  }
  AESHNA_NEED_DEVICE();
  const InterpreterResult want = interpret(g, data);
  for (const std::string_view more : {"", ",no_unified_memory,max_storage_range=8192"}) {
    SCOPED_TRACE(more);
    Weights weights(g, {.device = small_device(more)});
    Session session = compile(g, weights, {.mode = Mode::Inference});
    set_leaves(session, weights, data);
    session.step();
    session.wait();
    for (const auto& [name, value] : want.outputs) expect_near(session.read_literal(name).to_doubles(), value, name, rtol);
    for (const auto& [name, value] : want.assigned) expect_near(weights.get(name).to_doubles(), value, name, rtol);
  }
}

HostTensor ramp(Shape shape, double step) {
  HostTensor t(TensorType{DType::f32, shape});
  for (std::size_t i = 0; i < t.data.size(); ++i) t.data[i] = round_to(DType::f32, std::fmod(static_cast<double>(i) * step, 2.0) - 1);
  return t;
}

HostTensor indices(Shape shape, std::size_t step, std::size_t extent) {
  HostTensor t(TensorType{DType::i32, shape});
  for (std::size_t i = 0; i < t.data.size(); ++i) t.data[i] = static_cast<double>(i * step % extent);
  return t;
}

TEST(PartsDevice, AStateAssignedAndReadInOneStep) {  // the acceptance test of issue 3, in small
  Graph g;
  const Value x = g.state("x", {101, 103});
  const Value fresh = cast(mod(iota(g, {101, 103}, 0) * 7 + iota(g, {101, 103}, 1), 13), DType::f32);
  g.assign(x, fresh + x * 0.5);
  const Value rows = g.input("rows", {5}, DType::i32);
  g.output("row_sums", sum(x, {1}));
  g.output("largest", reduce_max(x));
  g.output("total", sum(x * (1.0 / 4096)));
  g.output("picked", slice(gather(x, rows, 0), {1}, {98}, {103}));
  HostTensor picked(TensorType{DType::i32, {5}});
  picked.data = {0, 100, 50, 38, 39};
  expect_values(g, {{"x", ramp({101, 103}, 0.37)}, {"rows", picked}});
}

TEST(PartsDevice, Pointwise) {
  Graph g;
  const Value x = g.input("x", {130, 101}), row = g.input("row", {101}), flat = g.input("flat", {13130});
  g.output("y", tanh(x) * row + 1);
  g.output("reshaped", reshape(flat, {130, 101}) + x);  // their cuts differ
  g.output("transposed", permute(x, {1, 0}) * 2);
  g.output("joined", concat({slice(x, {0}, {7}, {100}), neg(x)}, 0));
  g.output("padded", pad(x, {3, 1}, {2, 4}, 0.5));
  g.output("mirrored", flip(x, {0}) - x);
  g.output("same", x);
  expect_values(g, {{"x", ramp({130, 101}, 0.377)}, {"row", ramp({101}, 0.3)}, {"flat", ramp({13130}, 0.7)}});
}

TEST(PartsDevice, ReductionsOverEachAxis) {
  Graph g;
  const Value x = g.input("x", {4, 60, 50}), row = g.input("row", {50});
  g.output("all", sum(x * row));
  g.output("first", sum(x, {0}));
  g.output("middle", reduce_max(exp(x), {1}));
  g.output("last", reduce_min(x, {2}));
  g.output("outer", sum(x, {0, 2}));
  g.output("columns", sum(x, {0, 1}));
  g.output("transposed", sum(permute(x, {2, 1, 0}), {1, 2}));
  g.output("part", sum(slice(x, {1}, {3}, {55}), {0, 1, 2}));
  g.output("softmax", softmax(x, 2));
  expect_values(g, {{"x", ramp({4, 60, 50}, 0.77)}, {"row", ramp({50}, 0.3)}});
}

TEST(PartsDevice, RowsThatDoNotFitABuffer) {
  Graph g;
  const Value x = g.input("x", {3, 5003});
  g.output("y", x * x);
  g.output("all", sum(x));
  g.output("first", sum(x, {0}));
  g.output("rows", reduce_max(x, {1}));
  g.output("flat", sum(reshape(x * 2, {15009})));
  expect_values(g, {{"x", ramp({3, 5003}, 0.377)}});
}

TEST(PartsDevice, Gathers) {
  Graph g;
  const Value table = g.input("table", {300, 24}), ids = g.input("ids", {37}, DType::i32);
  const Value x = g.input("x", {40, 300}), at = g.input("at", {40, 7}, DType::i32), all = g.input("all", {300}, DType::i32);
  g.output("rows", embedding(table, ids) * 2);
  g.output("norm", sum(embedding(table, ids) * embedding(table, ids), {-1}));
  g.output("elements", gather_elements(x, at, 1));
  g.output("mixed", table + gather(table, all, 0));  // an operand at its own row and at any
  HostTensor own = indices({37}, 97, 300);
  own.data[5] = 299;
  own.data[6] = 0;
  expect_values(g, {{"table", ramp({300, 24}, 0.37)},
                    {"ids", own},
                    {"x", ramp({40, 300}, 0.41)},
                    {"at", indices({40, 7}, 89, 300)},
                    {"all", indices({300}, 7, 300)}});
}

TEST(PartsDevice, ProductsWithManyRows) {
  Graph g;
  const Value x = g.input("x", {300, 20}), w = g.input("w", {20, 17});
  g.output("y", relu(matmul(x, w)));
  expect_values(g, {{"x", ramp({300, 20}, 0.37)}, {"w", ramp({20, 17}, 0.61)}});
}

TEST(PartsDevice,
     ProductsWithLongSums) {  // of rows that lie in several buffers: gradients by the input and by the weight
  Graph g;
  const Value w = g.input("w", {411, 20}), u = g.input("u", {5, 411}), x = g.input("x", {411, 17}),
              v = g.input("v", {1, 411});
  g.output("by_input", tanh(matmul(u, w)) + 1);
  g.output("by_weight", matmul(x, w, true));
  g.output("both", matmul(w, w, true));
  g.output("vector", matmul(v, w * 2));
  g.output("long_row", matmul(g.input("a", {2, 5001}), g.input("b", {5001, 2})));
  expect_values(g,
                {{"w", ramp({411, 20}, 0.37)},
                 {"u", ramp({5, 411}, 0.61)},
                 {"x", ramp({411, 17}, 0.29)},
                 {"v", ramp({1, 411}, 0.53)},
                 {"a", ramp({2, 5001}, 0.41)},
                 {"b", ramp({5001, 2}, 0.67)}},
                2e-5);
}

TEST(PartsDevice, StatesThatSwap) {  // copies, part by part
  Graph g;
  const Value a = g.state("a", {100, 70}), b = g.state("b", {100, 70});
  g.assign(a, b);
  g.assign(b, a);
  g.output("old", a);
  expect_values(g, {{"a", ramp({100, 70}, 0.3)}, {"b", ramp({100, 70}, 0.7)}});
}

TEST(PartsDevice, HalvesAndConstants) {
  Graph g;
  const Value x = g.input("x", {301, 55}, DType::f16);
  std::vector<double> values(10000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 17) / 4;
  const Value c = g.constant(Literal::from_doubles({DType::f32, {100, 100}}, values));
  g.output("y", cast(x, DType::f32) * 2);
  g.output("z", c + sum(c, {1}, true));
  HostTensor half(TensorType{DType::f16, {301, 55}});
  for (std::size_t i = 0; i < half.data.size(); ++i) half.data[i] = static_cast<double>(i % 31) / 8;
  expect_values(g, {{"x", half}});
}

// ---- training, checkpoints

/// A model whose table, with its gradient and its optimizer's states, lies in three buffers each.
void build(Graph& g) {
  const Value table = g.parameter("table", {100, 96}, {.init = Init::normal(0, 0.5)}), x = g.input("x", {100, 96});
  const Value e = tanh(table * x) - 0.25;
  g.output("loss", mean(e * e));
}

TEST(PartsDevice, TrainsAsOneBufferWould) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build(g);
  const auto train = [&](const Device& device, const std::filesystem::path& file) {
    Weights weights(g, {.seed = 3, .device = device});
    Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
    session.set("x", Literal::from_doubles({DType::f32, {100, 96}}, ramp({100, 96}, 0.37).data));
    for (int i = 0; i < 3; ++i) session.step();
    session.wait();
    session.save(file);
    for (int i = 0; i < 2; ++i) session.step();
    session.wait();
    return weights.get("table").to_doubles();
  };
  const TempDir dir;
  const std::vector<double> whole = train(*test_device().device, dir.path() / "whole");
  for (const std::string_view more : {"", ",no_unified_memory"}) {
    SCOPED_TRACE(more);
    const std::filesystem::path file = dir.path() / "parts";
    const std::vector<double> parts = train(small_device(more), file);
    ASSERT_EQ(parts.size(), whole.size());
    for (std::size_t i = 0; i < parts.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-5) << i;
    // What was saved from parts goes on in one buffer, and the other way round.
    for (const bool from_whole : {false, true}) {
      Weights weights(g, {.seed = 4, .device = from_whole ? small_device(more) : *test_device().device});
      Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
      session.load(from_whole ? dir.path() / "whole" : file);
      session.set("x", Literal::from_doubles({DType::f32, {100, 96}}, ramp({100, 96}, 0.37).data));
      for (int i = 0; i < 2; ++i) session.step();
      session.wait();
      const std::vector<double> resumed = weights.get("table").to_doubles();
      for (std::size_t i = 0; i < parts.size(); ++i) ASSERT_NEAR(resumed[i], whole[i], 1e-5) << i;
    }
  }
}

TEST(PartsDevice, ABadStepIsDiagnosedFromItsParts) {
  AESHNA_NEED_DEVICE();
  Graph g;
  build(g);
  for (const std::string_view more : {"", ",no_unified_memory"}) {
    SCOPED_TRACE(more);
    Weights weights(g, {.seed = 3, .device = small_device(more)});
    Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.05f}});
    HostTensor x = ramp({100, 96}, 0.37);
    const Literal good = Literal::from_doubles(x.type, x.data);
    x.data[9599] = std::nan("");
    session.set("x", Literal::from_doubles(x.type, x.data));
    session.step();
    EXPECT_THROW(session.wait(), Error);
    session.set("x", good);  // over what the bad step saw
    EXPECT_THAT(session.diagnose(), testing::HasSubstr("9599"));
  }
}

TEST(PartsPlan, ParametersAndMomentsAreUpdatedInPlace) {
  Graph g;
  build(g);
  PipelineOptions options;
  options.training = true;
  options.loss = "loss";
  options.optimizer = Adam{};
  const Plan plan = compile_plan(g, options, small_buffers());
  expect_sound(plan, small_buffers());
  for (const std::string& note : plan.notes) EXPECT_FALSE(note.contains("by a copy")) << note;
  EXPECT_GE(parted(plan), 4u) << "the input, the table and its two moments";
}

/// What the acceptance test runs on a GPU whose buffers end just below 4 GiB.
TEST(PartsPlan, FourGibibytesAndMore) {
  Graph g;
  build_large_graph(g);
  Caps caps;
  caps.max_buffer_size = 4'292'870'144;
  caps.max_storage_range = 4'294'967'295;
  caps.storage_alignment = 16;
  caps.max_storage_buffers = 32;
  caps.device_memory = 140ull << 30;
  const Plan plan = compile_plan(g, {}, caps);
  expect_sound(plan, caps);
  EXPECT_EQ(plan.placements[plan.states.at("x")].bytes, std::uint64_t{1072} * kLargeColumns * 4);
  EXPECT_LT(plan.steps.size(), 20u) << print_plan(plan);
  for (const std::string& note : plan.notes) EXPECT_FALSE(note.contains("by a copy")) << note;
  EXPECT_LT(plan.memory.arena_bytes, 64u << 20);
}

TEST(PartsPlan, KernelsAreCutAtTheBuffersOnly) {
  Graph g;
  const Value x = g.input("x", {1201, 100});
  g.output("y", exp(x) + 1);
  Caps caps = small_buffers();
  const Plan plan = compile_plan(g, {}, caps);
  EXPECT_EQ(plan.steps.size(), tensor_parts(x.type(), caps).size());
}

TEST(PartsPlan, WhatCannotBeSplitNamesTheLimit) {
  const auto message = [](const std::function<void(Graph&)>& make) {
    Graph g;
    make(g);
    try {
      const Plan plan = compile_plan(g, {}, small_buffers());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::LimitExceeded);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](Graph& g) { g.output("y", sort(g.input("x", {100, 100}), 1).values); }),
              AllOf(HasSubstr("sort"), HasSubstr("max_buffer_size of small is 16384")));
  EXPECT_THAT(message([](Graph& g) { g.output("y", argmax(reshape(g.input("x", {100, 100}), {10000}), 0)); }),
              AllOf(HasSubstr("argmax"), HasSubstr("max_buffer_size of small is 16384")));
  EXPECT_THAT(message([](Graph& g) {
                g.output("y", matmul(g.input("x", {4, 50000}), g.input("w", {50000, 4})));
              }),
              AllOf(HasSubstr("matmul"), HasSubstr("max_buffer_size of small is 16384")));
  EXPECT_THAT(message([](Graph& g) {
                const Value q = g.input("q", {1, 2, 300, 16});
                g.output("y", attention(q, q, q));
              }),
              AllOf(HasSubstr("attention"), HasSubstr("max_buffer_size of small is 16384")));
}

TEST(PartsPlan, TheCheckSeesAMissingOrMisplacedPart) {
  Graph g;
  g.output("y", exp(g.input("x", {100, 100})));
  const Caps caps = small_buffers();
  const Plan sound = compile_plan(g, {}, caps);
  Plan plan = sound;
  for (PlanStep& step : plan.steps) {
    for (PlanOperand& operand : step.operands) {
      if (plan.placements[operand.placement].part == 1) operand.placement -= 1;
    }
  }
  EXPECT_NE(check_plan(plan, caps), std::vector<std::string>{});
  plan = sound;
  plan.placements[1].first_byte += 4;
  EXPECT_THAT(check_plan(plan, caps), testing::Contains(testing::HasSubstr("not the whole tensor")));
  plan = sound;
  plan.steps.erase(plan.steps.begin() + 1);
  EXPECT_THAT(check_plan(plan, caps), testing::Contains(testing::HasSubstr("does not hold its new value")));
}

}  // namespace
}  // namespace aeshna::test
