// Indexing: shapes and errors of the public functions, bad indices on the device, what is fused, and which scatter is chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/format.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "ir/interpreter.h"
#include "support/expect_error.h"
#include "support/op_harness.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const auto here = HasSubstr("index_test.cpp:");

TEST(Indexing, ShapesAndValues) {
  Graph g;
  const Value x = g.input("x", {2, 3}), i = g.input("i", {2, 1}, DType::i32);
  const TensorMap data = {{"x", tensor({2, 3}, {0, 1, 2, 3, 4, 5})}, {"i", tensor({2, 1}, {2, 0}, DType::i32)}};
  EXPECT_EQ(gather(x, i, 1).shape(), (Shape{2, 2, 1}));
  EXPECT_EQ(gather(x, i, -2).shape(), (Shape{2, 1, 3}));
  EXPECT_THAT(value_of(gather(x, i, -1), data).data, ElementsAre(2, 0, 5, 3));
  EXPECT_THAT(value_of(gather_elements(x, i, 1), data).data, ElementsAre(2, 3));
  EXPECT_EQ(embedding(x, i).shape(), (Shape{2, 1, 3}));
  EXPECT_THAT(value_of(one_hot(i, 3), data).data, ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(
      value_of(scatter(x, i, g.constant(Literal::from_doubles({DType::f32, {2, 1}}, std::vector<double>{7, 8})), 1),
               data)
          .data,
      ElementsAre(0, 1, 7, 8, 4, 5));
}

TEST(Indexing, TheLastOfEqualIndicesWins) {
  Graph g;
  const Value x = g.input("x", {3}), u = g.input("u", {4}), i = g.input("i", {4}, DType::i32);
  const TensorMap data = {
      {"x", tensor({3}, {0, 0, 0})}, {"u", tensor({4}, {1, 2, 3, 4})}, {"i", tensor({4}, {1, 2, 1, 1}, DType::i32)}};
  const Value y = scatter(x, i, u, 0);
  EXPECT_THAT(value_of(y, data).data, ElementsAre(0, 4, 2));
  EXPECT_THAT(value_of(scatter_add(x, i, u, 0), data).data, ElementsAre(0, 8, 2));
  const auto gradient = gradients(sum(y * 3), {x, u});
  EXPECT_THAT(value_of(gradient[0], data).data, ElementsAre(3, 0, 0));
  EXPECT_THAT(value_of(gradient[1], data).data, ElementsAre(0, 3, 0, 3));
}

TEST(Indexing, Errors) {
  Graph g;
  const Value x = g.input("x", {3, 4}), i = g.input("i", {2}, DType::i32), f = g.input("f", {2}),
              i2 = g.input("i2", {2, 4}, DType::i32);
  EXPECT_THAT(message([&] { gather(x, f); }), AllOf(StartsWith("[gather] indices must be i32 or i64, not f32"), here));
  EXPECT_THAT(message([&] { gather(x, i, 2); }), AllOf(StartsWith("[gather] axis 2 is out of range"), here));
  EXPECT_THAT(message([&] { gather(x, i, -3); }), AllOf(StartsWith("[gather] axis -3 is out of range"), here));
  EXPECT_THAT(message([&] { gather_elements(x, i, 0); }),
              AllOf(StartsWith("[gather_elements]"), HasSubstr("equal ranks"), here));
  EXPECT_THAT(message([&] { gather_elements(x, i2, 1); }),
              AllOf(StartsWith("[gather_elements]"), HasSubstr("[3, 1]"), here));
  EXPECT_THAT(message([&] { embedding(f, i); }), AllOf(StartsWith("[embedding] the table must be [V, D]"), here));
  EXPECT_THAT(message([&] { one_hot(i, 0); }), AllOf(StartsWith("[one_hot] depth must be at least 1"), here));
  EXPECT_THAT(message([&] { one_hot(f, 3); }), AllOf(StartsWith("[one_hot] indices must be"), here));
  EXPECT_THAT(message([&] { scatter_add(x, i2, x, 0); }),
              AllOf(StartsWith("[scatter_add] 2 indices and 3 updates along axis 0"), here));
  EXPECT_THAT(message([&] {
                scatter(x, i2, g.input("u", {2, 5}), 0);
              }),
              AllOf(StartsWith("[scatter] axis 1 of the updates is 5"), here));
  const Value constant = g.constant(Literal::from_doubles({DType::i32, {2}}, std::vector<double>{1, 3}));
  EXPECT_THAT(message([&] { gather(x, constant); }),
              AllOf(StartsWith("[gather] index 3 is outside [0, 3) of axis 0"), here));
  EXPECT_THAT(message([&] { gather(x, constant, 1); }), "no error");
}

TEST(IndexingDevice, BadIndicesAreErrorsThatNameOpAndLine) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value table = g.input("table", {5, 3}), ids = g.input("ids", {3}, DType::i32);
  g.output("rows", embedding(table, ids));
  Session session = compile(g, Weights(*test_device().device), {});
  const auto run = [&](std::vector<std::int32_t> values) {
    session.set("table", std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
    session.set("ids", values);
    session.step();
    session.wait();
  };
  run({4, 0, 4});
  EXPECT_THAT(session.read("rows"), ElementsAre(12, 13, 14, 0, 1, 2, 12, 13, 14));
  for (const std::int32_t bad : {5, -1, 2147483647, -2147483647 - 1}) {
    try {
      run({1, bad, 1});
      ADD_FAILURE() << "id " << bad << " passed unseen";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::OutOfRange);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("an index of embedding outside [0, 5) of axis 0"), here));
    }
  }
  run({1, 1, 1});
}

// ---- plans

std::vector<FusedKernel> kernels_of(const Graph& g, bool fusion = true) {
  const auto expanded = rewrite(*merge_common(*expand_composites(*rewrite(g, false))), false);
  return fuse(*expanded, Caps{}, fusion);
}

TEST(Indexing, EmbeddingScaleAndNormAreOneKernel) {
  Graph g;
  const Value table = g.parameter("table", {100, 64}), ids = g.input("ids", {2, 16}, DType::i32);
  const Value x = g.value(g.add("embedding", std::vector{table, ids}, {}, SourceLine()).id()) * 8.0;
  g.output("y", x / (mean(x * x, {-1}, true) + 1e-6));
  EXPECT_EQ(kernels_of(g).size(), 1u);
}

TEST(Indexing, EmbeddingIsALoaderOfAProduct) {
  Graph g;
  const Value table = g.parameter("table", {100, 64}), ids = g.input("ids", {16}, DType::i32),
              w = g.parameter("w", {64, 32});
  g.output("y", matmul(g.add("embedding", std::vector{table, ids}, {}, SourceLine()), w));
  EXPECT_EQ(kernels_of(g).size(), 1u);
}

TEST(Indexing, ViewsOfATableNeedNoCopyAndComputedTablesDo) {
  Graph g;
  const Value table = g.parameter("table", {10, 8}), ids = g.input("ids", {4}, DType::i32);
  const auto take = [&](Value t) {
    return g.add("gather", std::vector{t, ids}, {{"axis", std::int64_t{0}}}, SourceLine());
  };
  g.output("view", take(slice(transpose(table), {0}, {1}, {7}, {2})));
  EXPECT_EQ(kernels_of(g).size(), 1u);
  g.output("computed", take(exp(table)));
  EXPECT_EQ(kernels_of(g).size(), 3u);
  g.output("padded", take(pad(table, {1, 0}, {0, 0})));
  EXPECT_EQ(kernels_of(g).size(), 5u);
}

std::vector<std::string> ops_after_expansion(std::int64_t rows, std::int64_t ids, std::int64_t columns) {
  Graph g;
  const Value table = g.input("table", {rows, columns});
  const Value i = g.input("ids", {ids, 1}, DType::i32), u = g.input("u", {ids, columns});
  g.output("y", g.add("scatter_add", std::vector{table, i, u}, {{"axis", std::int64_t{0}}}, SourceLine()));
  std::vector<std::string> names;
  const auto expanded = expand_composites(g);
  for (const Node& node : expanded->nodes()) {
    if (node.op->kind == OpKind::Kernel || node.op->kind == OpKind::Reduce) names.push_back(node.op->name);
  }
  return names;
}

TEST(Scatter, TheMethodIsChosenBySize) {
  EXPECT_THAT(ops_after_expansion(64, 1000, 4), ElementsAre("sum"));
  EXPECT_THAT(ops_after_expansion(49152, 1, 576), ElementsAre());
  EXPECT_THAT(ops_after_expansion(49152, 8192, 576), ElementsAre("index_order", "scatter_runs", "scatter_joins"));
  const auto radix = ops_after_expansion(151936, 100000, 8);
  EXPECT_EQ(std::ranges::count(radix, "radix_move"), 5);  // 18 bits
  EXPECT_EQ(radix.back(), "scatter_joins");
}

/// Copies of tensors in the plan of a graph with one scatter of 8192 rows into 49152, which the function builds.
std::ptrdiff_t copies(const std::function<void(Graph&, Value i, Value u)>& build, bool aliasing = true) {
  Graph g;
  build(g, g.input("ids", {8192}, DType::i32), g.input("u", {8192, 64}));
  Caps caps;
  caps.max_storage_buffers = 16;
  PipelineOptions options;
  options.aliasing = aliasing;
  const Plan plan = compile_plan(g, options, caps);
  EXPECT_EQ(check_plan(plan, caps), std::vector<std::string>{});
  return std::ranges::count_if(plan.steps, [](const PlanStep& step) {
    return step.kind == PlanStep::Kind::Copy && step.operands[0].bytes > 1024;  // not the status word
  });
}

TEST(Scatter, IsDoneInPlaceWhereNobodyNeedsTheOldContents) {
  const auto gradient = [](Graph& g, Value i, Value u) {
    const Value table = g.input("table", {49152, 64});
    g.output("gradient", gradients(sum(embedding(table, i) * u), {table})[0]);
  };
  EXPECT_EQ(copies(gradient), 0);
  EXPECT_EQ(copies(gradient, false), 0);  // of one segment: memory of its own, but in place
  const auto transient = [](Graph& g, Value i, Value u) {
    const Value x = exp(g.input("x", {49152, 64}));
    g.output("y", sum(scatter_add(x, reshape(i, {8192, 1}), u, 0)));
  };
  EXPECT_EQ(copies(transient), 0);
  const auto read_before = [](Graph& g, Value i, Value u) {
    const Value x = exp(g.input("x", {49152, 64}));
    g.output("y", sum(scatter_add(x, reshape(i, {8192, 1}), u, 0)));
    g.output("z", reduce_max(x));
  };
  EXPECT_EQ(copies(read_before), 0);
  const auto read_after = [](Graph& g, Value i, Value u) {
    const Value x = exp(g.input("x", {49152, 64}));
    const Value y = scatter_add(x, reshape(i, {8192, 1}), u, 0);
    g.output("y", y * x);
  };
  EXPECT_EQ(copies(read_after), 1);
  const auto leaf = [](Graph& g, Value i, Value u) {  // an input keeps its contents
    g.output("y", scatter_add(g.input("x", {49152, 64}), reshape(i, {8192, 1}), u, 0));
  };
  EXPECT_EQ(copies(leaf), 1);
  const auto itself = [](Graph& g, Value i, Value u) {
    const Value x = exp(u);
    g.output("y", scatter_add(x, reshape(i, {8192, 1}), x, 0));
  };
  EXPECT_EQ(copies(itself), 1);
}

/// Sizes at which the methods are chosen by themselves, with ids that are spread, skewed or all equal.
TEST(ScatterDevice, ManyIdsGiveWhatTheInterpreterGives) {
  AESHNA_NEED_DEVICE();
  struct Case {
    std::int64_t rows, ids, columns;
    int every;  // every so many ids are 7
  };
  for (const Case& c :
       {Case{2000, 3000, 8, 1000000}, Case{2000, 3000, 3, 2}, Case{3000, 20001, 4, 3}, Case{900, 17000, 1, 1}}) {
    SCOPED_TRACE(formatted("{} ids, every {} equal", c.ids, c.every));
    Graph g;
    const Value table = g.input("table", {c.rows, c.columns}), ids = g.input("ids", {c.ids}, DType::i32);
    const Value u = g.input("u", {c.ids, c.columns});
    g.output("gradient", gradients(sum(embedding(table, ids) * u), {table})[0]);
    HostTensor i(TensorType{DType::i32, {c.ids}}), w(u.type()), t(table.type());
    for (std::size_t k = 0; k < i.data.size(); ++k) {
      i.data[k] = k % static_cast<std::size_t>(c.every) == 0
                      ? 7
                      : static_cast<double>(k * 7919 % static_cast<std::size_t>(c.rows));
    }
    for (std::size_t k = 0; k < w.data.size(); ++k)
      w.data[k] = static_cast<double>(k * 37 % 64) / 64 - 0.25;  // sums are exact
    const TensorMap data = {{"table", t}, {"ids", i}, {"u", w}};
    Session session = compile(g, Weights(*test_device().device), {.mode = Mode::Inference});
    for (const auto& [name, value] : data) session.set(name, Literal::from_doubles(value.type, value.data));
    session.step();
    session.wait();
    EXPECT_EQ(session.read_literal("gradient").to_doubles(), interpret(g, data).outputs.at("gradient").data);
  }
}

TEST(ScatterDevice, HalfPrecisionIsSummedInF32) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {5, 4}, DType::f16), i = g.input("i", {300, 1}, DType::i32),
              u = g.input("u", {300, 4}, DType::f16);
  for (const char* method : {"dense", "rank"}) {
    const Attrs attrs = {{"axis", std::int64_t{0}}, {"method", std::string(method)}};
    g.output(std::string("add ") + method, g.add("scatter_add", std::vector{x, i, u}, attrs, SourceLine()));
    g.output(std::string("last ") + method, g.add("scatter", std::vector{x, i, u}, attrs, SourceLine()));
  }
  g.output("resized", resize(x, {7, 6}, {.mode = ResizeMode::Linear}));
  TensorMap data;
  for (const Value& leaf : {x, i, u}) {
    HostTensor t(leaf.type());
    for (std::size_t k = 0; k < t.data.size(); ++k)
      t.data[k] = leaf.dtype() == DType::i32 ? static_cast<double>(k * 3 % 5) : static_cast<double>(k * 37 % 64) / 64;
    data.emplace(leaf.node().name, t);
  }
  Session session = compile(g, Weights(*test_device().device), {.mode = Mode::Inference});
  for (const auto& [name, value] : data) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  session.wait();
  const InterpreterResult want = interpret(g, data, Rounding::Storage);
  for (const auto& [name, value] : want.outputs) {
    const auto got = session.read_literal(name).to_doubles();
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_NEAR(got[k], value.data[k], 1e-3 * std::fabs(value.data[k]) + 1e-3) << name << " " << k;
  }
}

}  // namespace
}  // namespace aeshna::test
