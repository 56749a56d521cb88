// Hostile models: an Error that names the place, never a crash, in bounded time and memory. (Changed at random: tests/fuzz.)
#include <gtest/gtest.h>

#include "io/nnef/tensor_file.h"
#include "support/expect_error.h"
#include "support/nnef_model.h"

namespace aeshna {
namespace {

using namespace test;

/// Whether the text is a model; anything but an Error with a place fails the test.
bool survives(const std::string& text) {
  try {
    const nnef::Outcome outcome = outcome_of(text);
    EXPECT_LE(outcome.model.graph->nodes().size(), 1u << 17);
    return outcome.unsupported.empty();
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::Internal) << e.what() << "\n" << text;
    EXPECT_EQ(std::string_view(e.what()).substr(0, 11), "graph.nnef:") << e.what();
    return false;
  }
}

TEST(NnefHostile, TruncatedAnywhere) {
  for (std::size_t n = 0; n + 2 < kSampleModel.size(); ++n) EXPECT_FALSE(survives(kSampleModel.substr(0, n))) << n;
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

void limited(const std::string& text, const std::string& message) {
  EXPECT_ERROR(import_text(text), ErrorCode::LimitExceeded, message);
}

TEST(NnefHostile, DeepNesting) {
  constexpr std::size_t kDeep = 10'000;
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"(", ")"},
                                    {"[", "]"},
                                    {"relu(", ")"},
                                    {"-", ""},
                                    {"!", ""},
                                    {"scalar(", ")"},
                                    {"1.0 ^ -", ""},
                                    {"x[", "]"},
                                    {"[for i in ", "yield i]"},
                                    {"1 if true else ", ""}})
    limited(one_input("[1]", "y = " + repeated(open, kDeep) + "x" + repeated(close, kDeep) + ";"),
            "nested deeper than 100");
  limited(one_input("[1]", "y = x" + repeated(" + x", kDeep) + ";"), "an expression nested deeper than 100");
  limited(one_input("[1]", "y = x" + repeated("[0]", kDeep) + ";"), "an expression nested deeper than 100");
  limited(one_input("[1]", "y = x" + repeated(" ^ x", kDeep) + ";"), "an expression nested deeper than 100");
  limited(one_input("[1]", repeated("[", kDeep) + "y" + repeated("]", kDeep) + " = x;"), "nested deeper than 100");
  const std::string head = "version 1.0; extension KHR_enable_fragment_definitions KHR_enable_operator_expressions; ";
  limited(head + "fragment f(x: " + repeated("(", kDeep), "nested deeper than 100");
  EXPECT_ERROR(import_text(head + "fragment f(x: integer" + repeated("[]", kDeep)), ErrorCode::CorruptFile,
               "a type of fewer dimensions");
  std::string lists = "l0 = [1];\n";
  for (int i = 1; i < 100; ++i) lists += formatted("l{} = [l{}];\n", i, i - 1);
  limited(one_input("[1]", lists + "y = x;"), "lists nested deeper than 16");
}

TEST(NnefHostile, RecursionAndExplosion) {
  const auto model = [](const std::string& fragments, const std::string& body) {
    return "version 1.0; extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;\n" + fragments +
           "\ngraph g(x) -> (y) { x = external<scalar>(shape = [1]); " + body + " }";
  };
  limited(model("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = f(x); }", "y = f(x);"),
          "fragments call each other deeper than 64: 'f'");
  limited(model("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = h(x); } fragment h(x: tensor<scalar>) -> "
                "(y: tensor<scalar>) { y = f(x); }",
                "y = f(x);"),
          "fragments call each other deeper than 64");
  limited(model("fragment f(n: integer = f()) -> (m: integer) { m = n; }", "y = x * scalar(f());"),
          "nested too deeply");
  // Each fragment calls the one before twice.
  std::string doubling = "fragment f0(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x + x; }\n";
  for (int i = 1; i < 60; ++i)
    doubling +=
        formatted("fragment f{}(x: tensor<scalar>) -> (y: tensor<scalar>) {{ y = f{}(f{}(x)); }}\n", i, i - 1, i - 1);
  limited(model(doubling, "y = f59(x);"), "more than 131072 nodes");
  std::string silent = "fragment f0(n: integer) -> (m: integer) { m = n; }\n";
  for (int i = 1; i < 60; ++i)
    silent += formatted("fragment f{}(n: integer) -> (m: integer) {{ m = f{}(n) + f{}(n); }}\n", i, i - 1, i - 1);
  limited(model(silent, "y = x * scalar(f59(1));"), "more than 2097152 steps to expand the graph");
  std::string arrays = "a0 = [1, 2, 3, 4];\n", strings = "s0 = 'abcd';\n";
  for (int i = 1; i < 60; ++i) {
    arrays += formatted("a{} = a{} + a{};\n", i, i - 1, i - 1);
    strings += formatted("s{} = s{} + s{};\n", i, i - 1, i - 1);
  }
  limited(one_input("[1]", arrays + "y = x;"), "more than 2097152 steps");
  limited(one_input("[1]", strings + "y = x;"), "more than 2097152 steps");
  limited(one_input("[1]", "a = [1] * 9223372036854775807; y = x;"), "more than 2097152 steps");
  limited(one_input("[1]", "a = 'ab' * 9223372036854775807; y = x;"), "more than 2097152 steps");
  limited(one_input("[1]", "a = [] * 9223372036854775807; y = x;"), "more than 2097152 steps");
  limited(one_input("[1]", "a = [1] * 2000; b = [for i in a yield [for j in a yield i * j]]; y = x;"),
          "more than 2097152 steps");
}

TEST(NnefHostile, CyclesAreUsesOfWhatIsNotThere) {
  for (const char* body : {"y = relu(y);", "a = relu(b); b = relu(a); y = b;", "y = [y];"})
    EXPECT_ERROR(import_text(one_input("[1]", body)), ErrorCode::CorruptFile, "graph.nnef:6:");
}

TEST(NnefHostile, LongTexts) {
  limited("version 1.0; graph g(x) -> (y) { x = constant(shape = [1], value = [" + repeated("1,", 1 << 20),
          "more than 1048576 expressions and types");
  std::string names = "a0";
  for (int i = 1; i < 2000; ++i) names += formatted(", a{}", i);
  limited("version 1.0; graph g(" + names + ") -> (y)", "more than 1000 parameters");
  limited("version 1.0; extension KHR_enable_fragment_definitions; fragment f(x: (" + repeated("integer, ", 1 << 20),
          "more than 1048576 expressions and types");
}

TEST(NnefHostile, ManyTables) {
  std::string pads;
  for (int i = 0; i < 40; ++i) pads += formatted("y{} = pad(x, padding = [(0, 1)], border = 'reflect');\n", i);
  limited(one_input("[1000000]", pads + "y = x;"), "graph.nnef:22:7: pad: more than 67108864 bytes of constants");
}

TEST(NnefHostile, HugeExtents) {
  limited(one_input("[2147483647, 2147483647, 2147483647]", "y = x;"), "graph.nnef:5:5: external: ");
  limited(one_input("[65536, 65536, 65536]", "y = x;"), "external: a tensor of [65536, 65536, 65536]");
  EXPECT_ERROR(import_text(one_input("[4294967296, 4294967296]", "y = x;")), ErrorCode::CorruptFile,
               "'shape' is 4294967296, which is no size of anything");
  EXPECT_ERROR(import_text(one_input("[4294967297]", "y = x;")), ErrorCode::CorruptFile, "'shape' is 4294967297");
  limited(one_input("[1]", "w = variable<scalar>(shape = [2147483647, 2147483647, 4], label = 'w'); y = x;"),
          "variable: ");
  limited(one_input("[4]",
                    "y = tile(x, repeats = [2147483647]); z = concat([y] * 1000, axis = 0); w = tile(z, repeats = "
                    "[2147483647]);"),
          "concat: a tensor of f32[8589934588000]");
  limited(one_input("[4, 4]", "y = pad(x, padding = [(2147483647, 2147483647), (2147483647, 0)]);"),
          "graph.nnef:6:5: pad: the number of elements of shape [4294967298, 2147483651] does not fit 64 bits");
  // A constant of one value takes no memory for its elements.
  EXPECT_NO_THROW(import_text(
      one_input("[1]", "k = constant(shape = [1000000, 1000], value = [1.0]); y = x * sum_reduce(k, axes = [0, 1]);")));
  for (const char* call :
       {"box(x, size = [1, 1, 2147483647, 2147483647], dilation = [1, 1, 2147483647, 2147483647])",
        "max_pool(x, size = [1, 1, 2147483647, 1], dilation = [1, 1, 2147483647, 1])",
        "conv(x, x, stride = [2147483647, 2147483647], padding = [(2147483647, 2147483647), (2147483647, 2147483647)])",
        "conv(x, x, border = 'reflect', padding = [(2147483647, 2147483647), (2147483647, 2147483647)])",
        "avg_pool(x, size = [1, 1, 2, 2], border = 'ignore', padding = [(0, 0), (0, 0), (2147483647, 0), (0, 0)])",
        "nearest_upsample(x, factor = [2147483647, 2147483647])",
        "multilinear_upsample(x, factor = [2147483647, 2147483647])",
        "multilinear_upsample(x, factor = [100000000, 1])",
        "debox(tile(x, repeats = [2147483647, 1, 1, 1]), size = [1, 1, 1, 1], stride = [2147483647, 1, 1, 1])",
        "multilinear_upsample(tile(x, repeats = [1, 1, 2147483647, 1]), factor = [2147483647, 1])",
        "nearest_upsample(tile(x, repeats = [1, 1, 2147483647, 1]), factor = [2147483647, 1])",
        "reshape(x, shape = [2147483647 * -2147483647 * -4 / -2147483647 - -1])",
        "x * scalar(-(-9223372036854775807 - 1))",
        "debox(x, size = [1, 1, 2147483647, 2147483647], stride = [1, 1, 2147483647, 2147483647])",
        "deconv(x, reshape(x, shape = [2, 1, 4, 4]), stride = [2147483647, 2147483647])",
        "slice(x, axes = [2], begin = [-2147483647], end = [2147483647], stride = [2147483647])",
        "copy_n(x, times = 2147483647)[0]",
        "unstack(tile(x, repeats = [2147483647, 1, 1, 1]), axis = 0)[0]",
        "local_mean_normalization(x, size = [2147483647, 1, 1, 1])",
        "reshape(x, shape = [2147483647, 2147483647, 2147483647])"})
    (void)survives(one_input("[1, 2, 4, 4]", "y = " + std::string(call) + ";"));
}

TEST(NnefHostile, TensorFiles) {
  const std::string good =
      tensor_file(Literal::from_doubles({DType::f32, {2, 3}}, std::vector<double>{1, 2, 3, 4, 5, 6}));
  const auto refused = [](const std::string& bytes) {
    try {
      (void)nnef::parse_tensor_file(std::as_bytes(std::span(bytes)), "w.dat", Shape{2, 3});
      return false;
    } catch (const Error& e) {
      EXPECT_EQ(std::string_view(e.what()).substr(0, 6), "w.dat:") << e.what();
      return true;
    }
  };
  EXPECT_FALSE(refused(good));
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_TRUE(refused(good.substr(0, n))) << n;
}

}  // namespace
}  // namespace aeshna
