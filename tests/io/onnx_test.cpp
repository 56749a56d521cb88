// The ONNX importer on models of a few nodes: attributes, folding, control flow, refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/import.h"
#include "aeshna/ops.h"
#include "base/format.h"
#include "io/onnx/importer.h"
#include "ir/interpreter.h"
#include "support/expect_error.h"
#include "support/onnx_writer.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

using namespace test::proto;
using testing::Test;

onnx::Outcome imported(const std::string& bytes, const ImportOptions& options = {}) {
  return onnx::import_model(onnx::parse_model(as_bytes(bytes), "test.onnx", {}), options);
}

/// The output "y" of a model with the float inputs given; nothing may be unsupported.
HostTensor run(const std::string& bytes, const std::map<std::string, std::vector<double>>& inputs,
               const ImportOptions& options = {}) {
  const onnx::Outcome outcome = imported(bytes, options);
  for (const UnsupportedNode& n : outcome.unsupported) ADD_FAILURE() << n.op << ' ' << n.name << ": " << n.reason;
  if (!outcome.unsupported.empty()) return {};
  TensorMap leaves;
  const Graph& graph = *outcome.model.graph;
  for (const auto& [name, values] : inputs) {
    HostTensor t(graph.type({graph.leaf(name).value(), 0}));
    for (std::size_t i = 0; i < t.data.size(); ++i) t.data[i] = values[i % values.size()];
    leaves[name] = t;
  }
  for (const auto& [name, value] : outcome.model.weights) {
    HostTensor t(value.type());
    t.data = value.to_doubles();
    leaves[name] = t;
  }
  return interpret(graph, leaves, Rounding::Storage).outputs.at("y");
}

/// One node from x (and what `initializers` hold) to y.
std::string single(const std::string& op, const std::vector<std::int64_t>& x,
                   const std::vector<std::string>& attributes, const std::vector<std::string>& inputs = {"x"},
                   const std::vector<std::string>& initializers = {}, std::int64_t opset = 17) {
  return model(
      {{node(op, inputs, {"y"}, attributes, "the_node")}, {value("x", 1, x)}, {value("y", 1, {})}, initializers},
      opset);
}

std::string bytes_of_domain() { return bytes(8, bytes(1, "com.microsoft") + number(2, 1)); }

std::string reason(const std::string& bytes, const ImportOptions& options = {}) {
  const onnx::Outcome outcome = imported(bytes, options);
  return outcome.unsupported.size() == 1 ? outcome.unsupported[0].reason
                                         : formatted("{} nodes", outcome.unsupported.size());
}

std::vector<double> counting(std::size_t n) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>(i);
  return v;
}

// ---- attributes, with values worked out by hand

TEST(Onnx, ConvTakesPadsAtBothEnds) {
  // 6x3 with pads 1,0,1,0, stride 2 and a 2x2 kernel: 4 rows and 1 column of windows.
  const std::string w = floats("w", {1, 1, 2, 2}, {1, 1, 1, 1});
  const HostTensor y =
      run(single("Conv", {1, 1, 6, 5}, {integers("pads", {1, 0, 1, 0}), integers("strides", {2, 2})}, {"x", "w"}, {w}),
          {{"x", counting(30)}});
  EXPECT_EQ(y.type.shape, (Shape{1, 1, 4, 2}));
  EXPECT_EQ(y.data, (std::vector<double>{0 + 1, 2 + 3, 5 + 6 + 10 + 11, 7 + 8 + 12 + 13, 15 + 16 + 20 + 21,
                                         17 + 18 + 22 + 23, 25 + 26, 27 + 28}));
}

TEST(Onnx, AutoPadPutsTheOddElementWhereItSays) {
  const std::string w = floats("w", {1, 1, 2}, {1, 10});
  const auto with = [&](const char* how) {
    return run(single("Conv", {1, 1, 3}, {attribute("auto_pad", how)}, {"x", "w"}, {w}), {{"x", {1, 2, 3}}}).data;
  };
  EXPECT_EQ(with("SAME_UPPER"), (std::vector<double>{21, 32, 3}));
  EXPECT_EQ(with("SAME_LOWER"), (std::vector<double>{10, 21, 32}));
  EXPECT_EQ(with("VALID"), (std::vector<double>{21, 32}));
}

TEST(Onnx, ConvTakesEveryStrideDilationAndGroups) {
  const std::string w = floats("w", {2, 1, 1, 2}, {1, 1, 1, -1});
  const HostTensor y =
      run(single("Conv", {1, 2, 2, 5},
                 {integers("strides", {1, 2}), integers("dilations", {1, 2}), attribute("group", std::int64_t{2})},
                 {"x", "w"}, {w}),
          {{"x", counting(20)}});
  EXPECT_EQ(y.type.shape, (Shape{1, 2, 2, 2}));
  EXPECT_EQ(y.data, (std::vector<double>{2, 6, 12, 16, -2, -2, -2, -2}));
}

TEST(Onnx, AveragePoolCountsAsPyTorchDoes) {
  // [0 1 2 3 4] padded by 1, kernel 3, stride 2, ceil_mode: windows at -1, 1, 3.
  const auto with = [&](std::int64_t include, std::int64_t ceil, std::int64_t extent) {
    return run(single("AveragePool", {1, 1, extent},
                      {integers("kernel_shape", {3}), integers("pads", {1, 1}), integers("strides", {2}),
                       attribute("count_include_pad", include), attribute("ceil_mode", ceil)}),
               {{"x", counting(static_cast<std::size_t>(extent))}})
        .data;
  };
  EXPECT_EQ(with(0, 0, 5), (std::vector<double>{0.5, 2, 3.5}));
  EXPECT_EQ(with(1, 0, 5), (std::vector<double>{1.0f / 3, 2, 7.0f / 3}));
  // Of 6 elements the window at 5 is added: it holds 5, the padding, and one place beyond it that never counts.
  EXPECT_EQ(with(1, 1, 6), (std::vector<double>{1.0f / 3, 2, 4, 2.5}));
  EXPECT_EQ(with(0, 1, 6), (std::vector<double>{0.5, 2, 4, 5}));
}

TEST(Onnx, GemmScalesAndTransposes) {
  const std::string b = floats("b", {2, 3}, {1, 2, 3, 4, 5, 6}), c = floats("c", {2}, {1, 2});
  const HostTensor y = run(single("Gemm", {3, 1},
                                  {attribute("alpha", 0.5f), attribute("beta", 10.0f),
                                   attribute("transA", std::int64_t{1}), attribute("transB", std::int64_t{1})},
                                  {"x", "b", "c"}, {b, c}),
                           {{"x", {1, 2, 3}}});
  EXPECT_EQ(y.data, (std::vector<double>{17, 36}));
}

TEST(Onnx, BatchedMatMulKeepsItsBatches) {
  const std::string b = floats("b", {2, 1, 1}, {10, 100});
  const HostTensor y = run(single("MatMul", {2, 2, 1}, {}, {"x", "b"}, {b}), {{"x", {1, 2, 3, 4}}});
  EXPECT_EQ(y.data, (std::vector<double>{10, 20, 300, 400}));
}

TEST(Onnx, SliceTakesNegativeStepsAndTheLargestInteger) {
  const auto with = [&](std::int64_t start, std::int64_t end, std::int64_t step) {
    return run(single("Slice", {5}, {}, {"x", "s", "e", "a", "t"},
                      {ints("s", {start}), ints("e", {end}), ints("a", {0}), ints("t", {step})}),
               {{"x", counting(5)}})
        .data;
  };
  EXPECT_EQ(with(1, INT64_MAX, 2), (std::vector<double>{1, 3}));
  EXPECT_EQ(with(-1, INT64_MIN, -2), (std::vector<double>{4, 2, 0}));
  EXPECT_EQ(with(3, 0, -1), (std::vector<double>{3, 2, 1}));
  EXPECT_EQ(with(3, 3, 1), (std::vector<double>{}));
}

TEST(Onnx, OldOpsetsMeanWhatTheyMeantThen) {
  // Before opset 13 softmax is over everything from the axis on; before 7 operands were broadcast at an axis.
  const HostTensor y =
      run(single("Softmax", {1, 2, 2}, {attribute("axis", std::int64_t{1})}, {"x"}, {}, 11), {{"x", {0, 0, 0, 0}}});
  EXPECT_EQ(y.data, (std::vector<double>(4, 0.25)));
  const HostTensor z =
      run(single("Add", {2, 3}, {attribute("broadcast", std::int64_t{1}), attribute("axis", std::int64_t{0})},
                 {"x", "b"}, {floats("b", {2}, {10, 20})}, 6),
          {{"x", {0, 1, 2, 3, 4, 5}}});
  EXPECT_EQ(z.data, (std::vector<double>{10, 11, 12, 23, 24, 25}));
}

// ---- graphs

TEST(Onnx, NodesMayStandInAnyOrder) {
  const std::string bytes = model({{node("Neg", {"b"}, {"y"}), node("Exp", {"a"}, {"b"}), node("Relu", {"x"}, {"a"})},
                                   {value("x", 1, {2})},
                                   {value("y", 1, {2})}});
  EXPECT_EQ(run(bytes, {{"x", {0, -3}}}).data, (std::vector<double>{-1, -1}));
}

TEST(Onnx, ACycleIsRefusedByName) {
  const std::string bytes = model({{node("Add", {"x", "b"}, {"a"}, {}, "first"),
                                    node("Exp", {"a"}, {"b"}, {}, "second"), node("Exp", {"b"}, {"y"})},
                                   {value("x", 1, {2})},
                                   {value("y", 1, {2})}});
  EXPECT_ERROR(imported(bytes), ErrorCode::CorruptFile, "cycle through Exp 'second' and Add 'first'");
}

TEST(Onnx, ANameHasOneMaker) {
  const std::string twice = model({{node("Exp", {"x"}, {"y"}, {}, "one"), node("Neg", {"x"}, {"y"}, {}, "two")},
                                   {value("x", 1, {2})},
                                   {value("y", 1, {2})}});
  EXPECT_ERROR(imported(twice), ErrorCode::CorruptFile, "'y' is made by Exp 'one' and again by Neg 'two'");
  const std::string none = model({{node("Exp", {"z"}, {"y"}, {}, "one")}, {value("x", 1, {2})}, {value("y", 1, {2})}});
  EXPECT_ERROR(imported(none), ErrorCode::CorruptFile, "Exp 'one' reads 'z', which nothing makes");
}

TEST(Onnx, EverythingUnsupportedIsListedAtOnce) {
  const std::string bytes =
      model({{node("NonMaxSuppression", {"x"}, {"a"}, {}, "nms"), node("Exp", {"a"}, {"b"}),
              node("Frobnicate", {"b"}, {"c"}, {}, "frob", "my.domain"),
              node("Relu", {"x"}, {"d"}, {attribute("slope", 1.0f)}, "odd"), node("Add", {"c", "d"}, {"y"})},
             {value("x", 1, {2})},
             {value("y", 1, {2})}});
  const test::TempDir dir;
  const std::string text = [&] {
    try {
      import_onnx(dir.write("m.onnx", bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Unsupported);
      return std::string(error.what());
    }
    return std::string();
  }();
  for (const char* part : {"3 of its nodes", "NonMaxSuppression 'nms': this op is not supported",
                           "my.domain.Frobnicate 'frob'", "Relu 'odd': attribute 'slope' is not supported"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Onnx, ChainsOfShapesVanish) {
  // Reshape to [batch, -1] as exporters write it.
  const std::string bytes = model(
      {{node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"b"}), node("Unsqueeze", {"b", "axes"}, {"u"}),
        node("Concat", {"u", "rest"}, {"shape"}, {attribute("axis", std::int64_t{0})}),
        node("Reshape", {"x", "shape"}, {"y"})},
       {value("x", 1, {-1, 2, 3})},
       {value("y", 1, {-1, 6})},
       {tensor("zero", 7, {}, raw(std::vector<std::int64_t>{0})), ints("axes", {0}), ints("rest", {-1})}});
  EXPECT_ERROR(imported(bytes), ErrorCode::InvalidArgument, "'x' is float[n, 2, 3]");
  EXPECT_ERROR(imported(bytes, {.shapes = {{"x", {4, 3, 3}}}}), ErrorCode::ShapeMismatch, "the shape given [4, 3, 3]");
  EXPECT_ERROR(imported(bytes, {.shapes = {{"w", {4}}, {"x", {4, 2, 3}}}}), ErrorCode::InvalidArgument,
               "a shape is given for 'w', which is no input");
  const onnx::Outcome outcome = imported(bytes, {.shapes = {{"x", {4, 2, 3}}}});
  EXPECT_EQ(outcome.model.graph->nodes().size(), 2u);  // the input and one reshape
  EXPECT_EQ(outcome.model.graph->type(outcome.model.graph->outputs()[0].value).shape, (Shape{4, 6}));
}

TEST(Onnx, ABoundInputResolvesAnIf) {
  // As Silero's voice detector chooses by its sample rate.
  const auto branch = [](const char* op) { return graph({{node(op, {"x"}, {"r"})}, {}, {value("r", 1, {2})}}); };
  const std::string bytes = model(
      {{node("Equal", {"sr", "rate"}, {"c"}),
        node("If", {"c"}, {"y"},
             {graph_attribute("then_branch", branch("Neg")), graph_attribute("else_branch", branch("Abs"))}, "choose")},
       {value("x", 1, {2}), value("sr", 7, {})},
       {value("y", 1, {2})},
       {tensor("rate", 7, {}, raw(std::vector<std::int64_t>{16000}))}});
  const onnx::Outcome unbound = imported(bytes);
  ASSERT_EQ(unbound.unsupported.size(), 1u);
  EXPECT_EQ(unbound.unsupported[0].name, "choose");
  EXPECT_EQ(unbound.unsupported[0].bind, (std::vector<std::string>{"sr"}));
  const auto bound = [](double v) { return ImportOptions{.binds = {{"sr", Literal::scalar(v, DType::i64)}}}; };
  EXPECT_EQ(run(bytes, {{"x", {1, -2}}}, bound(16000)).data, (std::vector<double>{-1, 2}));
  EXPECT_EQ(run(bytes, {{"x", {1, -2}}}, bound(8000)).data, (std::vector<double>{1, 2}));
  EXPECT_ERROR(imported(bytes, {.binds = {{"sr", Literal::scalar(0.5, DType::f64)}}}), ErrorCode::OutOfRange, "0.5");
}

TEST(Onnx, ALoopIsUnrolled) {
  // y = x doubled three times; the loop's condition stays true.
  const std::string body = graph({{node("Add", {"s", "s"}, {"t"}), node("Identity", {"c"}, {"d"})},
                                  {value("i", 7, {}), value("c", 9, {}), value("s", 1, {2})},
                                  {value("d", 9, {}), value("t", 1, {2})}});
  const auto with = [&](std::int64_t count) {
    return model({{node("Loop", {"n", "", "x"}, {"y"}, {graph_attribute("body", body)})},
                  {value("x", 1, {2})},
                  {value("y", 1, {2})},
                  {tensor("n", 7, {}, raw(std::vector<std::int64_t>{count}))}});
  };
  EXPECT_EQ(run(with(3), {{"x", {1, -2}}}).data, (std::vector<double>{8, -16}));
  EXPECT_EQ(reason(with(1'000'000)), "more than 1024 iterations would be unrolled");
}

TEST(Onnx, FunctionsOfTheModelAreExpanded) {
  // Scaled(x; factor) = x * factor, with the attribute handed on.
  const std::string constant =
      node("Constant", {}, {"f"}, {bytes(1, "value_float") + bytes(21, "factor") + number(20, 1)});
  const std::string function = bytes(1, "Scaled") + bytes(4, "a") + bytes(5, "b") + bytes(6, "factor") +
                               bytes(7, constant) + bytes(7, node("Mul", {"a", "f"}, {"b"})) +
                               bytes(9, bytes(1, "") + number(2, 17)) + bytes(10, "mine");
  const std::string bytes_of_model = model({{node("Scaled", {"x"}, {"y"}, {attribute("factor", 2.5f)}, "", "mine")},
                                            {value("x", 1, {2})},
                                            {value("y", 1, {2})}},
                                           17, bytes(25, function) + bytes(8, bytes(1, "mine") + number(2, 1)));
  EXPECT_EQ(run(bytes_of_model, {{"x", {2, 4}}}).data, (std::vector<double>{5, 10}));
}

TEST(Onnx, AFunctionThatCallsItselfIsRefused) {
  const std::string function = bytes(1, "F") + bytes(4, "a") + bytes(5, "b") +
                               bytes(7, node("F", {"a"}, {"b"}, {}, "", "mine")) + bytes(10, "mine");
  const std::string bytes_of_model =
      model({{node("F", {"x"}, {"y"}, {}, "", "mine")}, {value("x", 1, {2})}, {value("y", 1, {2})}}, 17,
            bytes(25, function) + bytes(8, bytes(1, "mine") + number(2, 1)));
  EXPECT_EQ(reason(bytes_of_model), "functions call each other deeper than 32");
}

// ---- weights and dtypes

TEST(Onnx, FloatWeightsBecomeParameters) {
  const std::string bytes =
      single("MatMul", {1, 2}, {}, {"x", "layer.weight"}, {floats("layer.weight", {2, 2}, {1, 2, 3, 4})});
  const onnx::Outcome frozen = imported(bytes);
  ASSERT_TRUE(frozen.model.weights.contains("layer.weight"));
  EXPECT_EQ(frozen.model.weights.at("layer.weight").to_doubles(), (std::vector<double>{1, 2, 3, 4}));
  const auto trainable = [](const onnx::Outcome& o) {
    return o.model.graph->node(*o.model.graph->leaf("layer.weight")).attrs.get<bool>("trainable");
  };
  EXPECT_FALSE(trainable(frozen));
  EXPECT_TRUE(trainable(imported(bytes, {.trainable = true})));
}

TEST(Onnx, RunningStatisticsAreNotTrained) {
  std::vector<std::string> weights;
  for (const char* name : {"scale", "bias", "mean", "var"}) weights.push_back(floats(name, {2}, {1, 2}));
  const onnx::Outcome o = imported(
      single("BatchNormalization", {1, 2, 3}, {}, {"x", "scale", "bias", "mean", "var"}, weights), {.trainable = true});
  const auto trainable = [&](const char* name) {
    return o.model.graph->node(*o.model.graph->leaf(name)).attrs.get<bool>("trainable");
  };
  EXPECT_TRUE(trainable("scale") && trainable("bias"));
  EXPECT_FALSE(trainable("mean") || trainable("var"));
}

// ---- functions that are made of others

TEST(Onnx, ComposedFunctionsAreExactToAFewUnits) {
  const auto largest_error = [](const char* op, double (*f)(double), double low, double high) {
    std::vector<double> x;
    for (int i = 0; i <= 400; ++i) x.push_back(static_cast<double>(static_cast<float>(low + (high - low) * i / 400)));
    for (const double v : {1e-6, -1e-6, 1e-3, 0.999, 0.4142, 2.4142}) {
      if (v >= low && v <= high) x.push_back(static_cast<double>(static_cast<float>(v)));
    }
    const HostTensor y = run(single(op, {static_cast<std::int64_t>(x.size())}, {}, {"x"}, {}, 22), {{"x", x}});
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = f(x[i]);
      if (std::isfinite(want))
        largest = std::max(largest, std::abs(y.data[i] - want) / std::max(std::abs(want), 1e-30));
    }
    return largest;
  };
  EXPECT_LT(largest_error("Atan", std::atan, -20, 20), 3e-7);
  EXPECT_LT(largest_error("Asin", std::asin, -1, 1), 4e-7);
  EXPECT_LT(largest_error("Acos", std::acos, -1, 1), 4e-7);
  EXPECT_LT(largest_error("Sinh", std::sinh, -10, 10), 4e-7);
  EXPECT_LT(largest_error("Cosh", std::cosh, -10, 10), 3e-7);
  EXPECT_LT(largest_error("Asinh", std::asinh, -100, 100), 4e-7);
  EXPECT_LT(largest_error("Acosh", std::acosh, 1, 100), 4e-7);
  EXPECT_LT(largest_error("Atanh", std::atanh, -0.99, 0.99), 6e-7);
}

// ---- recurrent ops: ONNX's cases have neither direction but forward

TEST(Onnx, ABidirectionalLstmIsAForwardAndAReverseOne) {
  const auto some = [](std::size_t n, float seed) {
    std::vector<float> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = std::sin(seed + 1.7f * static_cast<float>(i));
    return v;
  };
  // 4 steps, batch 2, 3 inputs, 2 hidden units; the second sequence is one step shorter.
  const auto with = [&](const char* direction, std::int64_t first, std::int64_t count) {
    const auto cut = [&](const std::string& name, std::vector<std::int64_t> dims, std::size_t each, float seed) {
      const std::vector<float> all = some(2 * each, seed);
      dims.insert(dims.begin(), count);
      return floats(name, dims,
                    {all.begin() + static_cast<std::ptrdiff_t>(each) * first,
                     all.begin() + static_cast<std::ptrdiff_t>(each) * (first + count)});
    };
    const std::string lengths = tensor("l", 6, {2}, raw(std::vector<std::int32_t>{4, 3}));
    return run(model({{node("LSTM", {"x", "w", "r", "b", "l", "", "", "p"}, {"y"},
                            {attribute("direction", direction), attribute("hidden_size", std::int64_t{2})})},
                      {value("x", 1, {4, 2, 3})},
                      {value("y", 1, {4, count, 2, 2})},
                      {cut("w", {8, 3}, 24, 1), cut("r", {8, 2}, 16, 2), cut("b", {16}, 16, 3), cut("p", {6}, 6, 4),
                       lengths}}),
               {{"x", {0.3, -0.2, 0.9, -1, 0.5, 0.1, 0.7}}});
  };
  const HostTensor both = with("bidirectional", 0, 2), forward = with("forward", 0, 1), reverse = with("reverse", 1, 1);
  ASSERT_EQ(both.type.shape, (Shape{4, 2, 2, 2}));
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(both.data[t * 8 + i], forward.data[t * 4 + i]);
      EXPECT_EQ(both.data[t * 8 + 4 + i], reverse.data[t * 4 + i]);
    }
  }
  // What lies behind the end of a sequence is 0; the reverse direction starts at the sequence's own end.
  EXPECT_EQ(forward.data[3 * 4 + 2], 0);
  EXPECT_EQ(reverse.data[3 * 4 + 2], 0);
  EXPECT_NE(reverse.data[2 * 4 + 2], 0);
}

TEST(Onnx, DoublesAreRefusedUnlessRoundingIsAskedFor) {
  const std::string bytes = model({{node("Exp", {"x"}, {"y"}, {}, "e")}, {value("x", 11, {2})}, {value("y", 11, {2})}});
  EXPECT_NE(reason(bytes).find("f64"), std::string::npos) << reason(bytes);
  const onnx::Outcome rounded = imported(bytes, {.f64_as_f32 = true});
  ASSERT_TRUE(rounded.unsupported.empty());
  EXPECT_EQ(rounded.model.graph->type(rounded.model.graph->outputs()[0].value).dtype, DType::f32);
}

TEST(Onnx, FourBitIntegersLieInEight) {
  // -8 and 7 in one byte, -1 in the next.
  const std::string q = tensor("q", 22, {3}, std::string("\x78\x0f", 2)),
                    s = tensor("s", 1, {}, raw(std::vector<float>{0.5f}));
  const std::string bytes = model({{node("DequantizeLinear", {"q", "s"}, {"d"}), node("Add", {"x", "d"}, {"y"})},
                                   {value("x", 1, {3})},
                                   {value("y", 1, {3})},
                                   {q, s}},
                                  21);
  EXPECT_EQ(run(bytes, {{"x", {0}}}).data, (std::vector<double>{-4, 3.5, -0.5}));
}

// ---- MatMulNBits: not among ONNX's own cases

TEST(Onnx, MatMulNBitsUnpacksBlocksOfFourBits) {
  // N = 1, K = 16, one block; q = 0, 1, ..., 15 minus 8, times 0.5; x picks elements 0, 1 and 15.
  std::string packed;
  for (int i = 0; i < 16; i += 2) packed += static_cast<char>(i | (i + 1) << 4);
  const std::string bytes =
      model({{node("MatMulNBits", {"x", "b", "s"}, {"y"},
                   {attribute("K", std::int64_t{16}), attribute("N", std::int64_t{1}),
                    attribute("bits", std::int64_t{4}), attribute("block_size", std::int64_t{16})},
                   "", "com.microsoft")},
             {value("x", 1, {1, 16})},
             {value("y", 1, {1, 1})},
             {tensor("b", 2, {1, 1, 8}, packed), floats("s", {1}, {0.5f})}},
            17, bytes_of_domain());
  EXPECT_EQ(run(bytes, {{"x", {1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100}}}).data,
            (std::vector<double>{-4 - 35 + 350}));
}

// ---- external data

std::string external_model(const std::string& location, const std::string& offset, const std::string& length) {
  const auto entry = [](const std::string& key, const std::string& v) {
    return bytes(13, bytes(1, key) + bytes(2, v));
  };
  const std::string w = number(1, 2) + number(2, 1) + bytes(8, "w") + entry("location", location) +
                        entry("offset", offset) + entry("length", length) + number(14, 1);
  return single("Add", {2}, {}, {"x", "w"}, {w});
}

TEST(Onnx, ExternalDataStaysInTheModelsFolder) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "model");
  dir.write("secret.bin", std::string(8, '\0'));
  dir.write("model/w.bin", raw(std::vector<float>{9, 1, 2}));
  const auto load = [&](const std::string& location, const std::string& offset, const std::string& length) {
    return import_onnx(dir.write("model/m.onnx", external_model(location, offset, length)));
  };
  EXPECT_EQ(load("w.bin", "4", "8").weights.at("w").to_doubles(), (std::vector<double>{1, 2}));
  EXPECT_ERROR(load("../secret.bin", "0", "8"), ErrorCode::CorruptFile,
               "'../secret.bin' is no path below the model's folder");
  EXPECT_ERROR(load((dir / "secret.bin").string(), "0", "8"), ErrorCode::CorruptFile, "no path below");
  EXPECT_ERROR(load("a/../../secret.bin", "0", "8"), ErrorCode::CorruptFile, "no path below");
  EXPECT_ERROR(load("", "0", "8"), ErrorCode::CorruptFile, "no path below");
  EXPECT_ERROR(load("w.bin", "8", "8"), ErrorCode::CorruptFile, "has 12");
  EXPECT_ERROR(load("w.bin", "18446744073709551615", "8"), ErrorCode::CorruptFile, "has 12");
  EXPECT_ERROR(load("w.bin", "-4", "8"), ErrorCode::CorruptFile, "offset is '-4'");
  EXPECT_ERROR(load("w.bin", "0", "4"), ErrorCode::CorruptFile, "length 4, 8 are needed");
  EXPECT_ERROR(load("absent.bin", "0", "8"), ErrorCode::NotFound, "absent.bin");
  std::error_code error;
  std::filesystem::create_symlink(dir / "secret.bin", dir / "model/link.bin", error);
  if (!error) {
    EXPECT_ERROR(load("link.bin", "0", "8"), ErrorCode::CorruptFile, "leads out of the model's folder");
  }
}

}  // namespace
}  // namespace aeshna
