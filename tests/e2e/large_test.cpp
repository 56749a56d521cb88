// Shapes that only a real GPU holds: counts beyond 2^24, tensors beyond what one descriptor covers, long vocabularies and sequences.
// Labelled long; each is skipped, with the reason, where the device is software or too small.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/aeshna.h"
#include "base/philox.h"
#include "gpu/device.h"
#include "ir/interpreter.h"
#include "support/large_graph.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

#define AESHNA_NEED_GPU(bytes)                                                                                        \
  AESHNA_NEED_DEVICE();                                                                                               \
  const Device device = *test::test_device().device;                                                                  \
  if (device.info().kind == DeviceInfo::Kind::Software) GTEST_SKIP() << "a software driver would take minutes";       \
  if (device.info().memory_bytes < (bytes)) GTEST_SKIP() << "needs " << (bytes) << " bytes of device memory";         \
  static_assert(true, "")

TEST(LongLargeSession, CountsBeyond24Bits) {
  AESHNA_NEED_GPU(std::uint64_t{1} << 30);
  constexpr std::int64_t kCount = 16'776'961;  // not a multiple of anything; one past 4095.96^2
  Graph g;
  const Value x = g.state("x", {kCount}, DType::f32, Init::constant(0.5));
  const Value i = iota(g, {kCount}, 0);
  g.assign(x, cast(mod(i, 1000), DType::f32) * 0.25 + x);
  g.output("sum", sum(cast(mod(i, 3), DType::i32)));
  g.output("count", sum(cast(greater_equal(x, 0.5), DType::i32)));
  g.output("last", slice(x * 2.0, {0}, {kCount - 3}, {kCount}));
  g.output("argmax", argmax(cast(i, DType::i32), 0));
  Session session = compile(g, Weights(g, {.device = device}));
  session.step();
  session.step();
  std::int64_t want = 0;
  for (std::int64_t n = 0; n < kCount; ++n) want += n % 3;
  EXPECT_EQ(session.read_literal("sum").at(0), static_cast<double>(want));
  EXPECT_EQ(session.read_literal("count").at(0), static_cast<double>(kCount));
  EXPECT_EQ(session.read_literal("argmax").at(0), static_cast<double>(kCount - 1));
  const std::vector<float> last = session.read("last");
  for (std::int64_t n = 0; n < 3; ++n)
    EXPECT_EQ(last[static_cast<std::size_t>(n)], 2 * (0.5f + 0.25f * static_cast<float>((kCount - 3 + n) % 1000)));
}

TEST(LongLargeSession, PointwiseReductionAndGatherBeyondOneDescriptor) {
  constexpr std::int64_t kRows = test::kLargeRows, kColumns = test::kLargeColumns;
  AESHNA_NEED_GPU(std::uint64_t{12} << 30);
  const Caps& caps = device.impl().caps();
  ASSERT_GT(std::uint64_t{kRows} * kColumns * 4, caps.max_storage_range) << "no test of what it is for on this device";
  Graph g;
  test::build_large_graph(g);
  Session session = compile(g, Weights(g, {.device = device}));
  session.set("rows", std::vector<std::int32_t>{0, 1200, 600});
  session.step();
  session.step();
  const auto value = [](std::int64_t r, std::int64_t c) { return static_cast<double>((r * 7 + c) % 13); };
  const std::vector<float> sums = session.read("row_sums");
  double total = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    double want = 0;
    for (std::int64_t c = 0; c < kColumns; ++c) want += value(r, c);
    total += want;
    ASSERT_EQ(sums[static_cast<std::size_t>(r)], static_cast<float>(want)) << "row " << r;
  }
  EXPECT_EQ(session.read_scalar("largest"), 12.0f);
  EXPECT_NEAR(session.read_scalar("total"), total / 4096, total / 4096 * 1e-6);
  const std::vector<float> picked = session.read("picked");
  const std::int64_t want_rows[] = {0, 1200, 600};
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 5; ++c)
      EXPECT_EQ(picked[r * 5 + c], value(want_rows[r], kColumns - 5 + static_cast<std::int64_t>(c))) << r << " " << c;
  }
}

/// One step on the device against the interpreter: every output, elementwise.
void compare_with_interpreter(const Device& device, const Graph& g, const TensorMap& leaves, double tolerance) {
  Session session = compile(g, Weights(g, {.device = device}));
  for (const auto& [name, tensor] : leaves) {
    if (tensor.type.dtype == DType::f32) {
      session.set(name, std::vector<float>(tensor.data.begin(), tensor.data.end()));
    } else {
      std::vector<std::int32_t> values;
      for (const double v : tensor.data) values.push_back(static_cast<std::int32_t>(v));
      session.set(name, values);
    }
  }
  session.step();
  const InterpreterResult want = interpret(g, leaves);
  for (const auto& output : g.outputs()) {
    const std::vector<float> got = session.read(output.name);
    const HostTensor& exact = want.outputs.at(output.name);
    ASSERT_EQ(got.size(), exact.data.size());
    double scale = 0;
    for (const double v : exact.data) scale = std::max(scale, std::fabs(v));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], exact.data[i], tolerance * (scale + std::fabs(exact.data[i]))) << output.name << " element " << i;
  }
}

HostTensor random_tensor(const TensorType& type, double low, double high, std::uint64_t stream) {
  HostTensor t(type);
  PhiloxStream random(3, stream);
  for (double& v : t.data) {
    const double u = low + (high - low) * random.next_uniform();
    v = is_float(type.dtype) ? round_to(DType::f32, u) : std::floor(u);
  }
  return t;
}

TEST(LongLargeSession, VocabularyOf151936) {
  AESHNA_NEED_GPU(std::uint64_t{1} << 30);
  constexpr std::int64_t kVocabulary = 151'936, kWidth = 12, kTokens = 37;
  Graph g;
  const Value table = g.input("table", {kVocabulary, kWidth});
  const Value ids = g.input("ids", {kTokens}, DType::i32), labels = g.input("labels", {kTokens}, DType::i32);
  const Value loss = cross_entropy(matmul(embedding(table, ids), table, false, true), labels);
  g.output("loss", loss);
  g.output("d", gradients(loss, {table})[0]);
  compare_with_interpreter(device, g,
                           {{"table", random_tensor(table.type(), -1, 1, 0)},
                            {"ids", random_tensor(ids.type(), 0, kVocabulary, 1)},
                            {"labels", random_tensor(labels.type(), 0, kVocabulary, 2)}},
                           1e-5);
}

TEST(LongLargeSession, AttentionOver8192InLinearMemory) {
  AESHNA_NEED_GPU(std::uint64_t{1} << 30);
  constexpr std::int64_t kLength = 8192, kDim = 64;
  for (const bool causal : {true, false}) {
    Graph g;
    const Value q = g.input("q", {1, 1, kLength, kDim}), k = g.input("k", {1, 1, kLength, kDim}), v = g.input("v", {1, 1, kLength, kDim}),
                u = g.input("u", {1, 1, kLength, kDim});
    const Value y = attention(q, k, v, {.causal = causal});
    g.output("y", y);
    const std::vector<Value> d = gradients(sum(y * u), {q, k, v});
    g.output("dq", d[0]);
    g.output("dk", d[1]);
    g.output("dv", d[2]);
    Session session = compile(g, Weights(g, {.device = device}));
    EXPECT_LT(session.memory().logical_bytes + session.memory().workspace_bytes, std::uint64_t{kLength} * kLength * 4 / 2) << "the scores alone would take twice that";
    compare_with_interpreter(device, g,
                             {{"q", random_tensor(q.type(), -1, 1, 0)},
                              {"k", random_tensor(k.type(), -1, 1, 1)},
                              {"v", random_tensor(v.type(), -1, 1, 2)},
                              {"u", random_tensor(u.type(), -1, 1, 3)}},
                             2e-5);
  }
}

}  // namespace
}  // namespace aeshna
