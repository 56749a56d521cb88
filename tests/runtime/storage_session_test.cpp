// f16, bf16 and quantized tensors through sessions: every op that reads them, training, row splits, weights and files.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "aeshna/aeshna.h"
#include "base/format.h"
#include "base/half.h"
#include "base/quant.h"
#include "gpu/device.h"
#include "ir/device_types.h"
#include "ir/interpreter.h"
#include "ir/op.h"
#include "runtime/tiny_model.h"
#include "support/op_harness.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using test::message_of;

constexpr DType kHalves[] = {DType::f16, DType::bf16};
constexpr DType kQuantized[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_K, DType::q6_K};

double ulp(DType dtype) { return dtype == DType::f16 ? 0x1p-10 : dtype == DType::bf16 ? 0x1p-7 : 0x1p-23; }

Device device_with(const std::string& caps) {
  const auto& device = test::test_device();
  return Device(
      DeviceRequest{.selector = device.device->impl().info().uuid, .caps = caps, .validation = device.validation});
}

HostTensor drawn(const TensorType& type, std::uint64_t seed, double low = -2, double high = 2) {
  std::mt19937_64 engine(seed);
  HostTensor t(type);
  for (double& v : t.data) v = round_to(type.dtype, low + (high - low) * static_cast<double>(engine() >> 11) * 0x1p-53);
  return t;
}

/// A literal of a quantized type, of normal values.
Literal blocks_of(const TensorType& type, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  for (double& v : values) v = normal(engine);
  return quantize(Literal::from_doubles({DType::f32, type.shape}, values), type.dtype);
}

/// Values of a graph's inputs, and of its parameters in `weights`.
TensorMap leaves_of(const TensorMap& inputs, const Weights& weights) {
  TensorMap leaves = inputs;
  for (const std::string& name : weights.names()) {
    const Literal value = weights.get(name);
    HostTensor t(value.type());
    t.data = value.to_doubles();
    leaves.emplace(name, std::move(t));
  }
  return leaves;
}

/// One step of an inference session, every output against the interpreter that rounds to storage: within `units` last
/// places of its dtype, of the element or of a fiftieth of the largest one.
void expect_as_interpreted(const Graph& g, const Weights& weights, const TensorMap& inputs, double units = 2,
                           double rtol = 4e-6) {
  Session session = compile(g, weights);
  for (const auto& [name, value] : inputs) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  const InterpreterResult want = interpret(g, leaves_of(inputs, weights), Rounding::Storage);
  for (const auto& [name, expected] : want.outputs) {
    const Literal got = session.read_literal(name);
    ASSERT_EQ(got.type(), expected.type) << name;
    const std::vector<double> values = got.to_doubles();
    double largest = 0;
    for (const double v : expected.data) largest = std::isfinite(v) ? std::max(largest, std::fabs(v)) : largest;
    const double relative = std::max(rtol, is_half(expected.type.dtype) ? units * ulp(expected.type.dtype) : 0.0);
    int reported = 0;
    for (std::size_t i = 0; i < values.size() && reported < 3; ++i) {
      const double w = round_to(expected.type.dtype, expected.data[i]);
      if (values[i] == w || (std::isnan(values[i]) && std::isnan(w))) continue;
      if (std::fabs(values[i] - w) <= relative * (std::fabs(w) + largest / 50) + 1e-6) continue;
      ADD_FAILURE() << formatted("{}: element {} of {} is {:.9g}, should be {:.9g}", name, i, got.type().to_string(),
                                 values[i], w);
      ++reported;
    }
  }
}

// ---- f16 and bf16

TEST(SessionHalf, EveryBitPatternIsReadAndWritten) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : kHalves) {
    SCOPED_TRACE(dtype_name(dtype));
    Graph g;
    const Value x = g.input("x", {65536}, dtype);
    g.output("wide", cast(x, DType::f32));
    g.output("same", reshape(pad(x, {0}, {1}, 1.0), {65537}));
    std::vector<std::byte> bytes(2 * 65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(bytes.data() + std::size_t{i} * 2, &bits, 2);
    }
    Session s = compile(g, Weights(*test::test_device().device));
    s.set("x", Literal({dtype, {65536}}, bytes));
    s.step();
    const std::vector<float> wide = s.read("wide");
    const Literal same = s.read_literal("same");
    int wrong = 0;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const float want = dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      std::uint16_t back;
      std::memcpy(&back, same.bytes().data() + std::size_t{i} * 2, 2);
      const bool nan = std::isnan(want);
      // NaN stays NaN; its payload is free.
      const bool good =
          nan ? std::isnan(wide[i]) && std::isnan(same.at(i))
              : std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(want) && back == bits;
      if (!good && ++wrong <= 3) ADD_FAILURE() << formatted("{:04x}: {} and {:04x}", i, wide[i], back);
    }
    EXPECT_EQ(same.at(65536), 1);
  }
}

/// Every record's float cases with 16-bit operands, forward and gradient.
TEST(SessionHalf, EveryOpReadsAndWritesIt) {
  AESHNA_NEED_DEVICE();
  int tested = 0;
  for (const OpDef& op : op_table()) {
    if (op.kind == OpKind::Leaf || op.kind == OpKind::Sink || !op.cases) continue;
    SCOPED_TRACE(op.name);
    Graph g;
    TensorMap inputs;
    int parts = 0;
    for (const OpCase& c : op.cases()) {
      const DType dtype = kHalves[parts % 2];
      OpCase half = c;
      bool floats = false;
      for (TensorType& type : half.inputs) {
        if (type.dtype != DType::f32) continue;
        type.dtype = dtype;
        floats = true;
      }
      std::int64_t elements = 0;
      for (const TensorType& type : half.inputs) elements = std::max(elements, type.shape.elements());
      if (!floats || elements < 6 || elements > 5000) continue;
      try {
        op.infer(InferContext{op, half.inputs, half.attrs, SourceLine()});
      } catch (const Error&) {
        continue;  // not for 16-bit floats, and refused by name (RejectsWrongOperands)
      }
      const std::vector<HostTensor> data = test::case_operands(half, 1);
      std::vector<Value> operands, wrt;
      for (std::size_t i = 0; i < data.size(); ++i) {
        const std::string name = formatted("c{}.x{}", parts, i);
        operands.push_back(g.input(name, data[i].type.shape, data[i].type.dtype));
        if (is_half(data[i].type.dtype)) wrt.push_back(operands.back());
        inputs.emplace(name, data[i]);
      }
      const Value first = g.add(op.name, operands, half.attrs, SourceLine());
      Value loss;
      for (std::uint32_t r = 0; r < first.node().results.size(); ++r) {
        const Value y = g.value({first.id().node, r});
        g.output(formatted("c{}.y{}", parts, r), y);
        if (!is_float(y.dtype())) continue;
        const std::string name = formatted("c{}.u{}", parts, r);
        const Value u = g.input(name, y.shape());
        inputs.emplace(name, drawn(u.type(), 40 + r, -1, 1));
        const Value term = sum(cast(y, DType::f32) * u);
        loss = loss ? loss + term : term;
      }
      if (loss && half.gradient && op.gradient != GradientKind::NotDifferentiable) {
        const std::vector<Value> found = gradients(loss, wrt);
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(found[i].type(), wrt[i].type());
          g.output(formatted("c{}.g{}", parts, i), found[i]);
        }
      }
      if (++parts == 2) break;
    }
    if (parts == 0) continue;
    ++tested;
    expect_as_interpreted(g, Weights(*test::test_device().device), inputs, 4);
  }
  EXPECT_GT(tested, 60);
}

TEST(SessionHalf, ChainsRoundAtEveryOpWhateverIsFused) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {13, 37}, DType::bf16), y = g.input("y", {37}, DType::bf16);
  const Value a = x * y + 0.1, m = reduce_max(a, {1}, true);
  g.output("shifted", exp(a - m));
  g.output("hits", cast(equal(a, m), DType::i32));  // a maximum is one of its elements, also after rounding
  g.output("mean", mean(a, {0}));
  const TensorMap inputs = {{"x", drawn({DType::bf16, {13, 37}}, 1)}, {"y", drawn({DType::bf16, {37}}, 2)}};
  std::vector<std::vector<double>> results[2];
  for (const bool fusion : {true, false}) {
    Session s = compile(g, Weights(*test::test_device().device), {.fusion = fusion});
    for (const auto& [name, value] : inputs) s.set(name, Literal::from_doubles(value.type, value.data));
    s.step();
    for (const auto& output : g.outputs()) results[fusion].push_back(s.read_literal(output.name).to_doubles());
  }
  EXPECT_EQ(results[0], results[1]);
  for (int row = 0; row < 13; ++row) {
    const auto begin = results[1][1].begin() + row * 37;
    EXPECT_GE(std::count(begin, begin + 37, 1.0), 1) << row;
  }
}

TEST(SessionHalf, SumsAccumulateInF32) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {1, 4096}, DType::f16), w = g.input("w", {3, 4096}, DType::f16);
  g.output("mean", mean(x));
  g.output("product", linear(x, w));
  g.output("sum", sum(x));
  Session s = compile(g, Weights(*test::test_device().device));
  s.set("x", Literal::from_doubles({DType::f16, {1, 4096}}, std::vector<double>(4096, 30)));
  s.set("w", Literal::from_doubles({DType::f16, {3, 4096}}, std::vector<double>(3 * 4096, 0.25)));
  s.step();
  EXPECT_EQ(s.read_scalar("mean"), 30) << "its sum would overflow f16";
  EXPECT_EQ(s.read("product"), std::vector<float>(3, 30720)) << "f16 sums would stop at 16384 + 7.5 and lose bits";
  EXPECT_EQ(s.read_scalar("sum"), INFINITY) << "the result itself is beyond f16";
}

/// Kernels cut by rows at odd elements; with 16-bit stores and with atomics.
TEST(SessionHalf, RowSplits) {
  AESHNA_NEED_DEVICE();
  for (const char* caps : {"max_storage_range=8192", "max_storage_range=8192,no_storage_16bit"}) {
    SCOPED_TRACE(caps);
    const Device small = device_with(caps);
    Graph g;
    const Value x = g.input("x", {151, 99}, DType::f16);  // 29,898 bytes
    g.output("pointwise", x * x + x);
    g.output("rows", sum(x, {1}));
    g.output("wide", cast(x, DType::f32) * 2.0);
    g.output("brain", cast(x, DType::bf16));
    g.output("joined", concat({slice(x, {0}, {7}, {100}), neg(x)}, 0));
    g.output("transposed", permute(x, {1, 0}) * 3.0);
    g.output("product", linear(x, g.input("w", {5, 99}, DType::f16)));
    expect_as_interpreted(g, Weights(small),
                          {{"x", drawn({DType::f16, {151, 99}}, 1)}, {"w", drawn({DType::f16, {5, 99}}, 2)}});
  }
}

TEST(SessionHalf, TrainingRoundsParametersOnceAndKeepsMomentsInF32) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : kHalves) {
    SCOPED_TRACE(dtype_name(dtype));
    Graph g;
    const Value x = g.input("x", {6, 5}, dtype), t = g.input("t", {6, 3}, dtype);
    const Value w = g.parameter("w", {3, 5}, {.dtype = dtype}), b = g.parameter("b", {3}, {.dtype = dtype});
    g.output("loss", cast(mse(tanh(linear(x, w, b)), t), DType::f32));
    Weights weights(g, {.seed = 3, .device = test::test_device().device});
    const Literal xs = Literal::from_doubles({dtype, {6, 5}}, drawn({dtype, {6, 5}}, 1).data);
    const Literal ts = Literal::from_doubles({dtype, {6, 3}}, drawn({dtype, {6, 3}}, 2, -0.8, 0.8).data);
    const auto set = [&](Session& s) {
      s.set("x", xs);
      s.set("t", ts);
    };
    Session gradient = compile(g, weights, {.mode = Mode::Training, .gradients = {"w"}, .update = false});
    set(gradient);
    gradient.step();
    const Literal before = weights.get("w"), dw = gradient.read_literal("grad/w");
    EXPECT_EQ(dw.type(), before.type());
    {
      Session sgd = compile(g, weights, {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.5f}});
      set(sgd);
      sgd.step();
      sgd.wait();
    }
    const Literal after = weights.get("w");
    EXPECT_EQ(after.type().dtype, dtype);
    bool moved = false;
    for (std::int64_t i = 0; i < 15; ++i) {
      EXPECT_EQ(after.at(i),
                round_to_float(dtype, static_cast<float>(before.at(i) - static_cast<double>(0.5f * dw.at(i)))))
          << i;
      moved = moved || after.at(i) != before.at(i);
    }
    EXPECT_TRUE(moved);

    Session adam = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
    EXPECT_EQ(weights.type("aeshna.opt.m/w"), (TensorType{DType::f32, {3, 5}}));
    set(adam);
    adam.step();
    const float first = adam.read_scalar("loss");
    for (int i = 0; i < 60; ++i) adam.step();
    EXPECT_LT(adam.read_scalar("loss"), 0.5f * first);

    // A checkpoint keeps every bit.
    const test::TempDir dir;
    adam.save(dir / "half.safetensors");
    const Literal saved = weights.get("w"), moment = weights.get("aeshna.opt.m/w");
    adam.step();
    adam.wait();
    adam.load(dir / "half.safetensors");
    EXPECT_EQ(weights.get("w"), saved);
    EXPECT_EQ(weights.get("aeshna.opt.m/w"), moment);
    Weights fresh(*test::test_device().device);
    fresh.load(dir / "half.safetensors");
    EXPECT_EQ(fresh.get("w"), saved);
  }
}

TEST(SessionHalf, NothingIsConvertedSilently) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value x = g.input("x", {3}, DType::f16);
  g.output("y", x * 2.0);
  Session s = compile(g, Weights(*test::test_device().device));
  const std::vector<float> values(3, 1.5f);
  const std::string text = message_of(ErrorCode::DTypeMismatch, [&] { s.set("x", std::span<const float>(values)); });
  EXPECT_NE(text.find("'x' expects f16[3]"), std::string::npos) << text;
  s.set("x", Literal::from_doubles({DType::f16, {3}}, std::vector<double>{1.5, 2, -4}));
  s.step();
  EXPECT_EQ(s.read("y"), (std::vector<float>{3, 4, -8}));  // widening to float loses nothing
}

// ---- quantized

/// An odd number of blocks, so that the last pair has one.
TensorType odd_blocks(DType dtype) { return {dtype, {5, 3 * std::int64_t{dtype_info(dtype).block_elements}}}; }

TEST(SessionQuant, DecodesEveryElementExactly) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : kQuantized) {
    SCOPED_TRACE(dtype_name(dtype));
    const TensorType type = odd_blocks(dtype);
    // Any bytes are blocks; scales are made finite.
    std::mt19937_64 engine(21);
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    for (std::byte& b : bytes) b = static_cast<std::byte>(engine() >> 56);
    const std::size_t size = dtype_info(dtype).block_bytes;
    for (std::size_t block = 0; block < bytes.size(); block += size) {
      for (const std::size_t at : {std::size_t{1}, std::size_t{3}, size - 1}) bytes[block + at] &= std::byte{0xbf};
    }
    const Literal value(type, bytes);
    Graph g;
    const Value w = g.parameter("w", type.shape, {.dtype = dtype, .trainable = false});
    g.output("quads", cast(w, DType::f32));
    g.output("singles", pad(cast(w, DType::f32), {0, 1}, {0, 0}, 0.0));
    g.output("half", cast(w, DType::bf16));
    g.output("constant", cast(g.constant(value), DType::f32));
    Weights weights(g, {.device = test::test_device().device});
    for (const double v : weights.get("w").to_doubles()) ASSERT_EQ(v, 0);
    weights.set("w", value);
    EXPECT_EQ(weights.get("w"), value) << "every byte comes back";
    Session s = compile(g, weights);
    s.step();
    const std::vector<double> want = value.to_doubles();
    const std::vector<float> quads = s.read("quads"), singles = s.read("singles"), half = s.read("half"),
                             constant = s.read("constant");
    const std::size_t columns = static_cast<std::size_t>(type.shape[1]);
    int wrong = 0;
    for (std::size_t i = 0; i < want.size() && wrong < 4; ++i) {
      const float single = singles[i / columns * (columns + 1) + i % columns + 1];
      if (quads[i] == want[i] && single == want[i] && constant[i] == want[i] &&
          half[i] == round_to_float(DType::bf16, want[i]))
        continue;
      ADD_FAILURE() << formatted("element {}: {} {} {} {}, should be {}", i, quads[i], single, constant[i], half[i],
                                 want[i]);
      ++wrong;
    }
  }
}

TEST(SessionQuant, ProductsAndTheirGradients) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : kQuantized) {
    SCOPED_TRACE(dtype_name(dtype));
    const TensorType type = odd_blocks(dtype);
    const std::int64_t k = type.shape[1];
    Graph g;
    const Value w = g.parameter("w", type.shape, {.dtype = dtype, .trainable = false});
    TensorMap inputs;
    for (const std::int64_t rows : {1, 3, 17}) {
      const std::string name = formatted("x{}", rows);
      const Value x = g.input(name, {rows, k});
      inputs.emplace(name, drawn(x.type(), 7));
      const Value y = linear(x, w);
      EXPECT_EQ(y.type(), (TensorType{DType::f32, {rows, 5}}));
      g.output(formatted("y{}", rows), relu(y + 0.5));
      g.output(formatted("dx{}", rows), gradients(sum(y * y), {x})[0]);
    }
    const Value h = g.input("h", {2, k}, DType::f16);
    inputs.emplace("h", drawn(h.type(), 8, -0.5, 0.5));
    const Value narrow = linear(h, w);
    EXPECT_EQ(narrow.dtype(), DType::f16);
    g.output("narrow", narrow);
    const Value u = g.input("u", {4, 5});
    inputs.emplace("u", drawn(u.type(), 9));
    g.output("plain", matmul(u, w));                    // blocks along the columns of the result
    g.output("left", matmul(w, g.input("v", {k, 2})));  // the quantized operand first
    inputs.emplace("v", drawn({DType::f32, {k, 2}}, 10));
    Weights weights(g, {.device = test::test_device().device});
    weights.set("w", blocks_of(type, 5));
    expect_as_interpreted(g, weights, inputs, 2, 2e-5);
  }
}

TEST(SessionQuant, RowsAreGathered) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : {DType::q8_0, DType::q4_1, DType::q4_K, DType::q6_K}) {
    SCOPED_TRACE(dtype_name(dtype));
    const TensorType type = odd_blocks(dtype);
    Graph g;
    const Value table = g.parameter("table", type.shape, {.dtype = dtype, .trainable = false});
    const Value ids = g.input("ids", {2, 3}, DType::i32);
    const Value rows = embedding(table, ids);
    EXPECT_EQ(rows.type(), (TensorType{DType::f32, {2, 3, type.shape[1]}}));
    g.output("rows", rows * 2.0);
    g.output("columns", gather(table, ids, 1));
    Weights weights(g, {.device = test::test_device().device});
    weights.set("table", blocks_of(type, 5));
    HostTensor index(ids.type());
    index.data = {4, 0, 3, 1, 1, 2};
    expect_as_interpreted(g, weights, {{"ids", index}});
  }
}

TEST(SessionHalf, GathersReadTheTableAsItIs) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const Value table = g.parameter("table", {50, 6}, {.dtype = DType::bf16});
  g.output("rows", embedding(table, g.input("ids", {7}, DType::i32)));
  Session s = compile(g, Weights(g, {.seed = 1, .device = test::test_device().device}));
  HostTensor ids({DType::i32, {7}});
  ids.data = {49, 0, 7, 7, 13, 48, 1};
  expect_as_interpreted(g, s.weights(), {{"ids", ids}});
  EXPECT_LT(s.memory().arena_bytes, 50u * 6 * 4) << "no f32 copy of the table";
}

/// Tiny tiles reach the split and narrow variants; a descriptor that covers part of the weights cuts the rows.
TEST(SessionQuant, RowSplits) {
  AESHNA_NEED_DEVICE();
  for (const DType dtype : {DType::q8_0, DType::q4_K, DType::q6_K}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Device small = device_with("max_storage_range=16384");
    const TensorType type{dtype, {67, 512}};
    Graph g;
    const Value w = g.parameter("w", type.shape, {.dtype = dtype, .trainable = false});
    g.output("y", linear(g.input("x", {1, 512}), w));
    const Value xs = g.input("xs", {9, 512}), z = linear(xs, w);
    g.output("z", z);
    g.output("dxs", gradients(sum(z * z), {xs})[0]);  // the cut is then along the sum
    g.output("w", cast(w, DType::f32));
    Weights weights(g, {.device = small});
    weights.set("w", blocks_of(type, 6));
    expect_as_interpreted(g, weights,
                          {{"x", drawn({DType::f32, {1, 512}}, 1)}, {"xs", drawn({DType::f32, {9, 512}}, 2)}}, 2, 3e-5);
  }
}

TEST(SessionQuant, TrainsAroundFrozenWeightsAndCheckpointsThem) {
  AESHNA_NEED_DEVICE();
  Graph g;
  const TensorType type{DType::q4_0, {8, 32}};
  const Value x = g.input("x", {4, 32});
  const Value w = g.parameter("base", type.shape, {.dtype = type.dtype, .trainable = false});
  const Value a = g.parameter("a", {2, 32}), b = g.parameter("b", {8, 2});  // an adapter
  const Value y = linear(x * g.parameter("gain", {32}, {.init = Init::constant(1)}), w) + linear(linear(x, a), b);
  g.output("loss", mse(y, g.input("t", {4, 8})));
  Weights weights(g, {.seed = 2, .device = test::test_device().device});
  const Literal frozen = blocks_of(type, 3);
  weights.set("base", frozen);
  Session s = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
  s.set("x", Literal::from_doubles({DType::f32, {4, 32}}, drawn({DType::f32, {4, 32}}, 1).data));
  s.set("t", Literal::from_doubles({DType::f32, {4, 8}}, drawn({DType::f32, {4, 8}}, 2).data));
  s.step();
  const float first = s.read_scalar("loss");
  for (int i = 0; i < 40; ++i) s.step();
  EXPECT_LT(s.read_scalar("loss"), 0.2f * first);
  EXPECT_EQ(weights.get("base"), frozen);
  EXPECT_NE(weights.get("gain").at(0), 1) << "the gradient flows through the product";
  EXPECT_EQ(s.diagnose(), "");

  const test::TempDir dir;
  s.save(dir / "q.safetensors");
  weights.set("base", blocks_of(type, 99));
  s.load(dir / "q.safetensors");
  EXPECT_EQ(weights.get("base"), frozen);
  weights.save(dir / "w.safetensors");
  Weights fresh(*test::test_device().device);
  fresh.load(dir / "w.safetensors");
  EXPECT_EQ(fresh.type("base"), type);
  EXPECT_EQ(fresh.get("base"), frozen);

  Graph other;
  other.parameter("base", {8, 32}, {.dtype = DType::q8_0, .trainable = false});
  Weights wrong(other, {.device = test::test_device().device});
  const std::string text = message_of(ErrorCode::ShapeMismatch, [&] { wrong.load(dir / "w.safetensors"); });
  EXPECT_NE(text.find("'base': expected q8_0[8, 32], found q4_0[8, 32]"), std::string::npos) << text;
}

TEST(Quantized, IsRefusedByNameWhereItCannotBe) {
  Graph g;
  const Value w = g.parameter("w", {4, 64}, {.dtype = DType::q8_0, .trainable = false});
  const Value x = g.input("x", {2, 64});
  const auto expect = [](ErrorCode code, std::string_view part, auto&& f) {
    const std::string text = message_of(code, f);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(ErrorCode::DTypeMismatch, "[relu] operand 0 is quantized (q8_0[4, 64])", [&] { relu(w); });
  expect(ErrorCode::DTypeMismatch, "[reshape] operand 0 is quantized", [&] { reshape(w, {256}); });
  expect(ErrorCode::DTypeMismatch, "is quantized", [&] { add(w, w); });
  expect(ErrorCode::DTypeMismatch, "[sum] operand 0 is quantized", [&] { sum(w); });
  expect(ErrorCode::DTypeMismatch, "both operands are quantized", [&] { linear(w, w); });
  expect(ErrorCode::DTypeMismatch, "[matmul] is defined for floats, not for i32", [&] {
    linear(g.input("i", {2, 64}, DType::i32), w);
  });
  expect(ErrorCode::Unsupported, "cannot cast to q8_0", [&] { cast(x, DType::q8_0); });
  expect(ErrorCode::DTypeMismatch, "[cast]", [&] { cast(w, DType::i32); });
  expect(ErrorCode::Unsupported, "[input] q4_0 cannot be written by steps", [&] { g.input("qi", {32}, DType::q4_0); });
  expect(ErrorCode::Unsupported, "[state] q4_0 cannot be written by steps", [&] { g.state("qs", {32}, DType::q4_0); });
  expect(ErrorCode::InvalidArgument, "say trainable = false", [&] { g.parameter("t", {32}, {.dtype = DType::q4_0}); });
  expect(ErrorCode::InvalidArgument, "cannot be initialised",
         [&] { g.parameter("t", {32}, {.init = Init::constant(1), .dtype = DType::q4_0, .trainable = false}); });
  expect(ErrorCode::InvalidArgument, "whole blocks of 32 elements", [&] {
    g.parameter("t", {2, 48}, {.dtype = DType::q4_0, .trainable = false});
  });
  expect(ErrorCode::InvalidArgument, "whole blocks of 256 elements", [&] {
    g.parameter("t", {2, 128}, {.dtype = DType::q4_K, .trainable = false});
  });
  const Value loss = sum(linear(x, w));
  expect(ErrorCode::DTypeMismatch, "only float values have gradients, found q8_0[4, 64]",
         [&] { gradients(loss, {w}); });
}

}  // namespace
}  // namespace aeshna
