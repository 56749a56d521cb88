// What is wrong with a model, or not supported, is said with its place.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/nnef/tensor_file.h"
#include "support/expect_error.h"
#include "support/nnef_model.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

using namespace test;

void corrupt(const std::string& text, const std::string& message) {
  EXPECT_ERROR(import_text(text), ErrorCode::CorruptFile, message);
}
/// The body's first line is line 6 of the file.
void body(const std::string& text, const std::string& message) { corrupt(one_input("[1, 2, 4, 4]", text), message); }
void unsupported(const std::string& text, const std::string& message) {
  EXPECT_ERROR(import_text(one_input("[1, 2, 4, 4]", text)), ErrorCode::Unsupported, message);
}
std::string with_fragment(const std::string& fragment, const std::string& text) {
  return "version 1.0;\nextension KHR_enable_fragment_definitions KHR_enable_operator_expressions;\n" + fragment +
         "\ngraph g(x) -> (y)\n{\nx = external<scalar>(shape = [2]);\n" + text + "\n}\n";
}

TEST(NnefErrors, Grammar) {
  corrupt("", "graph.nnef:1:1: expected 'version', found the end of the file");
  corrupt("version x;", "graph.nnef:1:9: expected a version number, found 'x'");
  EXPECT_ERROR(import_text("version 2.0;"), ErrorCode::Unsupported,
               "graph.nnef:1:9: version 2.0 of NNEF; 1.0 is supported");
  corrupt("version 1.0\ngraph", "graph.nnef:2:1: expected ';', found 'graph'");
  EXPECT_ERROR(import_text("version 1.0;\nextension tract_core;"), ErrorCode::Unsupported,
               "graph.nnef:2:11: extension tract_core is not supported");
  corrupt("version 1.0; extension ;", "graph.nnef:1:24: expected the name of an extension, found ';'");
  corrupt("version 1.0; fragment f",
          "graph.nnef:1:14: a fragment definition needs 'extension KHR_enable_fragment_definitions;'");
  corrupt("version 1.0; graph 7", "graph.nnef:1:20: expected the name of the graph, found '7'");
  corrupt("version 1.0; graph for(", "expected the name of the graph, found 'for'");
  corrupt("version 1.0; graph g(x, x)", "graph.nnef:1:25: 'x' is declared twice");
  corrupt("version 1.0; graph g(x) -> (x)", "graph.nnef:1:29: 'x' is a parameter and a result");
  corrupt("version 1.0; graph g(x) -> ()", "graph.nnef:1:20: 'g' has no result");
  corrupt("version 1.0; graph g(x) -> (y) { x", "expected '=' or ',', found the end of the file");
  corrupt("version 1.0; graph g(x) -> (y) { 7 = x; }",
          "graph.nnef:1:34: expected a name to assign to, '(' or '[', found '7'");
  corrupt("version 1.0; graph g(x) -> (y) { x = external(shape = [1,]); }",
          "graph.nnef:1:58: expected an expression, found ']'");
  corrupt("version 1.0; graph g(x) -> (y) { x = external(shape = [1; }", "expected ',' or ']', found ';'");
  corrupt("version 1.0; graph g(x) -> (y) { x = external(shape = [1] }", "expected ',' or ')', found '}'");
  corrupt("version 1.0; graph g(x) -> (y) { x = external(shape = (1, 2] }", "expected ',' or ')', found ']'");
  corrupt("version 1.0; graph g(x) -> (y) { x = external(label = 'a\n'); }",
          "graph.nnef:1:55: the string is not closed");
  corrupt("version 1.0; graph g(x) -> (y) { x = @; }", "graph.nnef:1:38: '@' has no meaning here");
  corrupt("version 1.0; graph g(x) -> (y) { x = \x01; }", "'\\x01' has no meaning here");
  corrupt("version 1.0; graph g(x) -> (y) { x = 99999999999999999999; }",
          "'99999999999999999999' is too large or too small a number");
  corrupt("version 1.0; graph g(x) -> (y) { x = 1e999; }", "'1e999' is too large or too small a number");
  corrupt("version 1.0; graph g(x) -> (y) { x = 1 + 2; }",
          "graph.nnef:1:40: an operator needs 'extension KHR_enable_operator_expressions;'");
  corrupt("version 1.0; graph g(x) -> (y) { x = [for i in a yield i]; }", "a comprehension needs 'extension");
  corrupt("version 1.0; graph g(x) -> (y) { x = a[0]; }", "a subscript needs 'extension");
  corrupt("version 1.0; graph g(x) -> (y) { x = 1 if true else 2; }", "if ... else needs 'extension");
  corrupt("version 1.0; graph g(x) -> (y) { x = shape_of(x); }", "'shape_of' needs 'extension");
  corrupt("version 1.0; graph g(x) -> (y) { x = -y; }", "an operator needs 'extension");
  body("y = [for i of x yield i];", "graph.nnef:6:12: expected 'in', found 'of'");
  body("y = [for i in [1] i];", "expected 'yield', found 'i'");
  body("y = 1 if true;", "expected 'else', found ';'");
  body("y = x x;", "graph.nnef:6:7: expected ';' or an operator, found 'x'");
  body("y = cast<scalar>[x];", "expected '(', found '['");
  corrupt(one_input("[1]", "y = x;") + "graph", "expected the end of the file, found 'graph'");
  corrupt(with_fragment("fragment f(x: tensor<scalar>, n: number) -> (y: tensor<scalar>);", "y = x;"),
          "graph.nnef:3:34: expected a type, found 'number'");
  corrupt(with_fragment("fragment f(x) -> (y);", "y = x;"), "graph.nnef:3:13: expected ':', found ')'");
}

TEST(NnefErrors, Names) {
  body("y = z;", "graph.nnef:6:5: 'z' is not defined (did you mean 'x'?)");
  body("y = reluu(x);", "graph.nnef:6:5: there is no operation 'reluu' (did you mean 'relu'");
  body("x = relu(x); y = x;", "graph.nnef:6:1: 'x' is assigned twice");
  body("z = x;", "result 'y' is not assigned");
  body("y = relu(x, x);", "graph.nnef:6:13: relu has 1 parameters");
  body("y = relu(z = x);", "relu has no parameter 'z' (did you mean 'x'?)");
  body("y = relu(x, x = x);", "'x' of relu is given twice");
  body("y = relu();", "relu needs 'x'");
  body("y = box(size = [1], x);", "expected a named argument after a named argument");
  body("y = relu<scalar>(x);", "relu is not generic");
  body("y = conv(x);", "conv needs 'filter'");
  corrupt("version 1.0; graph g(x, z) -> (y) { x = external(shape = [1]); y = relu(x); }",
          "graph.nnef:1:25: parameter 'z' of the graph is assigned by no 'external'");
  corrupt("version 1.0; graph g(x) -> (y) { x = constant(shape = [1], value = [1.0]); y = relu(x); }",
          "graph.nnef:1:22: parameter 'x' of the graph is assigned by no 'external'");
  body("z = external<scalar>(shape = [1]); y = x;", "graph.nnef:6:5: external: 'z' is no parameter of the graph");
  body("y = relu(external<scalar>(shape = [1]));", "external: its result must be assigned to a name");
  body("y = 1.0;", "result 'y' of the graph is scalar, no tensor");
}

TEST(NnefErrors, Types) {
  body("y = relu([x]);", "graph.nnef:6:5: 'x' of relu must be tensor<scalar>, not tensor<scalar>[]");
  body("y = not(x);", "'x' of not must be tensor<logical>, not tensor<scalar>");
  body("y = transpose(x, axes = [0.5]);", "'axes' of transpose must be integer[], not scalar[]");
  body("y = transpose(x, axes = 1);", "'axes' of transpose must be integer[], not integer");
  body("y = elu(x, alpha = 'a');", "'alpha' of elu must be scalar, not string");
  body("y = elu(x, alpha = (1, 2));", "'alpha' of elu must be scalar, not (integer, integer)");
  body("y = select(x > 0.0, x, true);", "'false_value' of select must be tensor<?>, not logical");
  body("y = x + true;", "'y' of add must be tensor<scalar>, not logical");
  body("y = x + 'a';", "'y' of add must be tensor<scalar>, not string");
  body("y = 'a' - 1;", "graph.nnef:6:5: '-' has no meaning for string and integer");
  body("y = !1;", "'!' has no meaning for integer");
  body("y = 1 == 'a';", "'==' has no meaning for integer and string");
  body("y = x in [1];", "'in' has no meaning for tensor<scalar> and integer[]");
  body("y = 1 in 2;", "'in' needs an array, not integer");
  body("y = x[0];", "graph.nnef:6:6: a subscript of tensor<scalar>");
  body("y = [x][1];", "subscript 1 is out of range for 1 items");
  body("y = [x][0.5];", "a subscript must be an integer, not scalar");
  body("y = [x, x][1:0];", "the range [1:0] runs backward");
  body("y = x if 1 else x;", "the condition must be logical, not integer");
  body("y = [for i in 1 yield x];", "expected an array, found integer");
  body("y = [for i in [1], j in [1, 2] yield x];", "arrays of 1 and 2 items side by side");
  body("[y, z] = x;", "expected an array to assign to these names, found tensor<scalar>");
  body("y, z = [x, x];", "expected a tuple to assign to these names, found tensor<scalar>[]");
  body("[y, z] = [x];", "2 names for 1 values");
  body("y = length_of(x);", "length_of needs an array or a string, not tensor<scalar>");
  body("y = shape_of([1]);", "shape_of needs a tensor, not integer[]");
  body("y = integer(x);", "integer cannot be made of tensor<scalar>");
  body("y = x * (1 / 0);", "division by zero");
  EXPECT_ERROR(import_text(one_input("[1]", "y = x * (9223372036854775807 + 1);")), ErrorCode::LimitExceeded,
               "graph.nnef:6:10: the sum");
  body("y = x * scalar([1] * -1);", "repeated -1 times");
  corrupt(with_fragment("fragment f(x: tensor<scalar>) -> (y: tensor<logical>) { y = x; }", "y = f(x);"),
          "graph.nnef:3:35: result 'y' of f is declared tensor<logical>, but is tensor<scalar>");
  corrupt(with_fragment("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { z = x; }", "y = f(x);"),
          "result 'y' is not assigned\n  in fragment 'f', called at graph.nnef:7:5");
  corrupt(with_fragment("fragment relu(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x; }", "y = x;"),
          "graph.nnef:3:10: 'relu' is a standard operation");
  corrupt(
      with_fragment(
          "fragment f(x: tensor<scalar>) -> (y: tensor<scalar>); fragment f(x: tensor<scalar>) -> (y: tensor<scalar>);",
          "y = x;"),
      "fragment 'f' is defined twice");
  corrupt(
      with_fragment("fragment f(n: integer) -> (y: tensor<scalar>) { y = variable<scalar>(shape = [n], label = 'a'); }",
                    "y = f(2);"),
      "graph.nnef:3:53: variable: only the graph itself may have one, not a fragment");
}

TEST(NnefErrors, Arguments) {
  body("y = reshape(x, shape = [5]);", "graph.nnef:6:5: reshape: [1, 2, 4, 4] cannot get the shape asked for");
  body("y = reshape(x, shape = [-1, -1]);", "reshape: 'shape' holds -1 twice");
  body("y = reshape(x, shape = [-2]);", "reshape: 'shape' holds -2");
  body("y = reshape(x, shape = [1, 0], axis_count = 1);", "reshape: 'shape' has 0 at 1, where the input has no axis");
  body("y = reshape(x, shape = [1], axis_start = 5);", "reshape: 'axis_start' is 5 for rank 4");
  body("y = reshape(x, shape = [1], axis_start = 2, axis_count = 3);",
       "reshape: 'axis_count' is 3 from axis 2 of rank 4");
  body("y = transpose(x, axes = [0, 0]);", "transpose: 'axes' is no permutation");
  body("y = transpose(x, axes = [0, 1, 2, 3, 4]);", "transpose: 5 axes for rank 4");
  body("y = concat([], axis = 0);", "concat: nothing to join");
  body("y = concat([x], axis = 4);", "concat: 'axis' is 4, which is no axis of rank 4");
  body("y = concat([x, unsqueeze(x, axes = [0])], axis = 0);", "graph.nnef:6:5: concat: ");
  body("y = split(x, axis = 1, ratios = [1, 2])[0];", "split: the sum 3 of the ratios does not divide the extent 2");
  body("y = split(x, axis = 1, ratios = [1, -1])[0];", "split: 'ratios' must be positive");
  body("y = stack([x, reshape(x, shape = [1, 4, 2, 4])], axis = 0);",
       "stack: shapes [1, 2, 4, 4] and [1, 4, 2, 4] differ");
  body("y = slice(x, axes = [2], begin = [3], end = [2]);",
       "slice: nothing is left of axis 2 of extent 4 between 3 and 2");
  body("y = slice(x, axes = [2], begin = [0, 1], end = [2]);",
       "slice: 'axes', 'begin', 'end' and 'stride' differ in length");
  body("y = slice(x, axes = [2], begin = [0], end = [2], stride = [0]);", "slice: 'stride' holds 0");
  body("y = squeeze(x, axes = [1]);", "squeeze: axis 1 has the extent 2, not 1");
  body("y = squeeze(x, axes = [0, 0]);", "squeeze: 'axes' holds an axis twice");
  body("y = tile(x, repeats = [1]);", "tile: 1 repeats for rank 4");
  body("y = tile(x, repeats = [1, 0, 1, 1]);", "tile: 'repeats' must be positive");
  body("y = pad(x, padding = [(1, 1)]);", "pad: 1 paddings for rank 4");
  body("y = pad(x, padding = [(1, 1), (0, 0), (0, 0), (0, 0)], border = 'ignore');",
       "pad: border 'ignore' leaves nothing to pad with");
  body("y = sum_reduce(x, axes = [-1]);", "sum_reduce: 'axes' holds -1, which is no axis of rank 4");
  body("y = softmax(x, axes = []);", "softmax: softmax along no axis");
  body("y = argmax_reduce(x, axes = []);", "argmax_reduce: no axes to look along");
  body("y = matmul(x, reshape(x, shape = [8, 4]));", "matmul: a product of [1, 2, 4, 4] and [8, 4]");
  body("y = linear(x, x);", "linear: [1, 2, 4, 4] and [1, 2, 4, 4] are no matrices");
  body("y = conv(x, x, stride = [1]);", "conv: 'stride' has 1 entries for 2 axes");
  body("y = conv(x, x, stride = [0, 1]);", "conv: 'stride' must be positive");
  body("y = conv(x, x, padding = [(0, 0)]);", "conv: 'padding' has 1 entries for 2 axes");
  body("y = conv(x, x, 0.0, border = 'wrap');", "conv: border 'wrap'; there are 'constant'");
  body("y = conv(x, x, groups = 3);", "conv: a filter of [1, 2, 4, 4] with 3 groups for an input of [1, 2, 4, 4]");
  body("y = conv(x, x, x);", "conv: a bias of [1, 2, 4, 4] for 1 channels");
  body("y = conv(x, reshape(x, shape = [1, 32]));", "conv: a filter of [1, 32] for an input of [1, 2, 4, 4]");
  body("y = conv(x, x, dilation = [2, 2], padding = [(0, 0), (0, 0)]);",
       "conv: a window that spans 7 does not fit an extent of 4 with padding (0, 0)");
  body("y = box(x, size = [1, 1, 3]);", "box: windows over 3 axes of 4");
  body("y = box(x, size = [1, 1, 3, 0]);", "box: a window of size 0");
  body("y = deconv(x, reshape(x, shape = [2, 1, 4, 4]), output_shape = [1, 1, 9, 9]);",
       "deconv: an extent of 9 along axis 0 has 9 windows, the operand 4");
  body("y = deconv(x, reshape(x, shape = [2, 1, 4, 4]), output_shape = [1, 2, 4, 4]);",
       "deconv: 'output_shape' is not that of 1 samples with 1 channels");
  body("y = nearest_upsample(x, factor = [2]);", "nearest_upsample: 1 factors for 2 axes behind the channels");
  body("y = nearest_upsample(x, factor = [2, 0]);", "nearest_upsample: 'factor' must be positive");
  body("y = area_downsample(x, factor = [2, 3]);", "area_downsample: the factor 3 does not divide the extent 4");
  body("y = multilinear_upsample(x, factor = [2, 2], method = 'cubic');",
       "multilinear_upsample: method 'cubic'; there are");
  body("y = batch_normalization(x, unsqueeze(x, axes = [0]), 1.0, 0.0, 1.0, epsilon = 0.1);",
       "batch_normalization: statistics of [1, 1, 2, 4, 4]");
  body("y = constant(shape = [3], value = [1.0, 2.0]);", "constant: 2 values for 3 elements");
  body("y = constant(shape = [-3], value = [1.0]);", "constant: 'shape' holds -3");
  body("y = constant<string>(shape = [1], value = ['a']);", "constant: a tensor of string");
  body("y = constant(shape = [1], value = ['a']);", "'value' of constant must be ?[], not string[]");
  body("y = add_n([x, reshape(x, shape = [32])]);", "add_n: shapes [1, 2, 4, 4] and [32] differ");
  body("y = copy_n(x, times = 0)[0];", "copy_n: 0 copies");
  body("y = gather(x, x, axis = 0);", "'indices' of gather must be tensor<integer>, not tensor<scalar>");
  body("y = update(x, x);", "update: its first argument is no variable");
  body("v = variable<scalar>(shape = [2], label = 'v'); y = update(v, x);",
       "update: a variable of [2] cannot become [1, 2, 4, 4]");
  body("y = cast(x);", "cast: the type to cast to is not known");
  body("y = box(x, size = [1, 1, 4294967296, 1]);", "box: 'size' is 4294967296, which is no size of anything");
  body("v = variable<scalar>(shape = [2], label = 'v'); w = variable<scalar>(shape = [3], label = 'v'); y = x;",
       "variable 'v' is f32[3] here and f32[2] elsewhere");
  body("v = variable<scalar>(shape = [2], label = 'x'); y = x;", "variable: the label 'x' is the name of an input");
}

TEST(NnefErrors, OneMessageListsAllThatIsNotSupported) {
  const std::string text = with_fragment(
      "fragment custom(x: tensor<scalar>, size: integer) -> (y: tensor<scalar>);\n"
      "fragment wrap(x: tensor<scalar>) -> (y: tensor<scalar>) { y = custom(x, size = 3); }",
      R"(image = reshape(x, shape = [1, 1, 1, 1, 2]);
k = constant(shape = [1, 1, 1, 1, 1], value = [1.0]);
a = conv(image, k);
b = relu(a);
c = max_roi_pool(b, x, 0, output_size = [1]);
[d, e] = split(c, axis = 0, ratios = [1, 1]);
f = wrap(d) + wrap(e);
h = argmax_reduce(image, axes = [1, 3]);
y = select(f > 0.0, f, cast<scalar>(h));)");
  nnef::Outcome outcome = outcome_of(text);
  std::vector<std::string> lines;
  for (const UnsupportedNode& node : outcome.unsupported)
    lines.push_back(node.name + " " + node.op + ": " + node.reason);
  EXPECT_EQ(lines, (std::vector<std::string>{"10:5 conv: a convolution over 3 axes; one or two are supported",
                                             "12:5 max_roi_pool: no op for regions of interest",
                                             "4:63 custom: a fragment without a body, which nothing here defines",
                                             "15:5 argmax_reduce: axes that do not follow each other"}));
  TempDir dir;
  dir.write("graph.nnef", text);
  const std::string message = message_of(ErrorCode::Unsupported, [&] { import_nnef(dir.path()); });
  EXPECT_HAS(message, "graph.nnef: 4 of its operations are not supported:");
  for (const char* line : {"graph.nnef:10:5: conv: ", "graph.nnef:12:5: max_roi_pool: ", "graph.nnef:4:63: custom: ",
                           "graph.nnef:15:5: argmax_reduce: "})
    EXPECT_HAS(message, line);
}

TEST(NnefErrors, UnsupportedUses) {
  const std::string pool = "i = argmax_pool(x, size = [1, 1, 2, 2], stride = [1, 1, 2, 2]); ";
  unsupported(pool + "y = cast<scalar>(i);",
              "positions in windows (of argmax_pool) are read by sample and desample alone");
  unsupported(pool + "y = i;", "result y: the index of argmax_pool is for sample and desample alone");
  unsupported(pool + "y = sample(x, i, size = [1, 1, 2, 2]);",
              "sample: an index that argmax_pool made with other windows");
  unsupported("i = cast<integer>(x); y = sample(x, i, size = [1, 1, 2, 2]);",
              "sample: an index that no argmax_pool of this graph made");
  unsupported("i = argmax_pool(x, size = [1, 1, 3, 3]); y = desample(x, i, size = [1, 1, 3, 3]);",
              "desample: windows that overlap");
  unsupported("y = deconv(x, reshape(x, shape = [2, 1, 4, 4]), border = 'replicate');", "deconv: border 'replicate'");
  unsupported("y = debox(x, size = [1, 1, 2, 2], border = 'ignore', normalize = true);",
              "debox: border 'ignore' with normalize");
  unsupported("y = multilinear_upsample(x, factor = [2, 2], border = 'reflect');",
              "multilinear_upsample: border 'reflect'");
  unsupported("y = linear_quantize(x, 0.0, 1.0, bits = 32);",
              "linear_quantize: 32 bits; 1 to 24 can be computed in f32");
  unsupported("y = unsqueeze(x, axes = [0, 1, 2, 3, 4]);", "unsqueeze: a tensor of rank 9; the largest is 8");
  unsupported("y = pad(x, padding = [(0, 0), (0, 0), (0, 0), (0, 2000000)], border = 'replicate');",
              "pad: a border that makes 2000004 elements of 4");
}

// ---- files

Literal numbers(Shape shape, std::vector<double> values) {
  return Literal::from_doubles({DType::f32, std::move(shape)}, values);
}

TEST(NnefFiles, AModelIsAFolderOrItsGraph) {
  TempDir dir;
  const std::string text = one_input("[2]", "w = variable<scalar>(shape = [2], label = 'layer/w');\ny = x * w;");
  dir.write("graph.nnef", text);
  std::filesystem::create_directories(dir / "layer");
  dir.write("layer/w.dat", tensor_file(numbers({2}, {3, 4})));
  for (const std::filesystem::path& path : {dir.path(), dir / "graph.nnef"}) {
    const ImportedModel model = import_nnef(path);
    EXPECT_EQ(model.weights.at("layer/w").to_doubles(), (std::vector<double>{3, 4}));
    EXPECT_EQ(
        run_exact(*model.graph, {{"x", tensor({2}, {1, 2})}, {"layer/w", tensor({2}, {3, 4})}}).find("y")->second.data,
        (std::vector<double>{3, 8}));
  }
  const NnefInfo info = inspect_nnef(dir.path());
  EXPECT_EQ(info.graph, "g");
  EXPECT_EQ(info.weights, 1);
  EXPECT_EQ(info.weight_elements, 2);
  EXPECT_EQ(info.inputs.at(0).type, "f32[2]");
  EXPECT_EQ(info.outputs.at(0).type, "f32[2]");
  EXPECT_EQ(info.ops.at("mul"), 1);
  EXPECT_TRUE(info.unsupported.empty());
}

TEST(NnefFiles, Errors) {
  TempDir dir;
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::NotFound, "graph.nnef");
  EXPECT_ERROR(import_nnef(dir / "none.nnef"), ErrorCode::NotFound, "none.nnef");
  const auto graph = [&](const std::string& label, const std::string& type = "scalar") {
    dir.write("graph.nnef", one_input("[2]", "w = variable<" + type + ">(shape = [2], label = '" + label +
                                                 "');\ny = x * cast<scalar>(w);"));
  };
  graph("w");
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::NotFound, "w.dat");
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::NotFound, "in variable 'w' at");
  dir.write("w.dat", tensor_file(numbers({3}, {1, 2, 3})));
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::CorruptFile, "w.dat: its extents are [3], the graph declares [2]");
  EXPECT_ERROR(inspect_nnef(dir.path()), ErrorCode::CorruptFile, "w.dat: its extents are [3], the graph declares [2]");
  dir.write("w.dat", tensor_file({2}, 4, 32, std::string(8, '\1')));
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::CorruptFile,
               "variable: the file of variable 'w' holds i32, not scalar");
  dir.write("w.dat", tensor_file({2}, 0, 64, std::string(16, '\0')));
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::Unsupported,
               "variable 'w' holds f64, which no device computes with");
  EXPECT_NO_THROW(import_nnef(dir.path(), {.f64_as_f32 = true}));
  graph("w", "integer");
  dir.write("w.dat", tensor_file({2}, 1, 64, std::string(16, '\1')));
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::Unsupported, "variable 'w' holds integers that do not fit 32 bits");
  for (const char* label : {"../w", "/etc/passwd", "a/../../w", "", ".", "a//b", "a/./b", "c:w", "a\\b", "a/"}) {
    graph(label);
    EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::CorruptFile, "is no path below the model's folder");
  }
  dir.write("graph.quant", "");
  EXPECT_ERROR(import_nnef(dir.path()), ErrorCode::Unsupported, "graph.quant: quantized models are not supported");
  TempDir other;
  other.write("m.nnef.tgz", "\x1f\x8b\x08");
  EXPECT_TRUE(is_nnef(other / "m.nnef.tgz"));
  EXPECT_ERROR(import_nnef(other / "m.nnef.tgz"), ErrorCode::Unsupported,
               "is an archive; unpack it (tar -xf m.nnef.tgz) and give the folder");
}

Literal parsed(const std::string& bytes, const std::optional<Shape>& shape = std::nullopt) {
  return nnef::parse_tensor_file(std::as_bytes(std::span(bytes)), "w.dat", shape);
}
std::string changed(std::string bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, 4);
  return bytes;
}

TEST(NnefFiles, TensorItems) {
  const auto values = [](std::uint32_t item, std::uint32_t bits, std::string data, std::uint32_t n = 2) {
    const Literal l = parsed(tensor_file({n}, item, bits, data));
    return std::pair(l.type().dtype, l.to_doubles());
  };
  using Want = std::pair<DType, std::vector<double>>;
  EXPECT_EQ(values(0, 16, std::string("\x00\x3c\x00\xc0", 4)), (Want{DType::f32, {1, -2}}));
  EXPECT_EQ(values(0, 64, std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", 16)), (Want{DType::f64, {1, -2}}));
  EXPECT_EQ(values(1, 8, "\x01\xff"), (Want{DType::i32, {1, 255}}));
  EXPECT_EQ(values(4, 8, "\x01\xff"), (Want{DType::i32, {1, -1}}));
  EXPECT_EQ(values(1, 16, std::string("\x01\x00\xff\xff", 4)), (Want{DType::i32, {1, 65535}}));
  EXPECT_EQ(values(4, 64, std::string("\x01\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff", 16)),
            (Want{DType::i32, {1, -2}}));
  EXPECT_EQ(values(1, 32, "\xff\xff\xff\xff", 1), (Want{DType::u32, {4294967295.0}}));
  EXPECT_EQ(values(5, 8, std::string("\x00\x07", 2)), (Want{DType::boolean, {0, 1}}));
  EXPECT_EQ(values(5, 1, "\xa0\x80", 9), (Want{DType::boolean, {1, 0, 1, 0, 0, 0, 0, 0, 1}}));
  EXPECT_EQ(parsed(tensor_file({}, 0, 32, std::string(4, '\0'))).type().shape, Shape{});
  EXPECT_EQ(parsed(tensor_file({3, 0}, 0, 32, "")).type().shape, (Shape{3, 0}));
}

TEST(NnefFiles, TensorHeaders) {
  const std::string good = tensor_file(numbers({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(parsed(good, Shape{2, 3}).to_doubles(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_ERROR(parsed("X" + good.substr(1)), ErrorCode::CorruptFile, "w.dat: no NNEF tensor file (magic number)");
  EXPECT_ERROR(parsed(good.substr(0, 2) + "\2" + good.substr(3)), ErrorCode::Unsupported,
               "w.dat: version 2.0 of the tensor format");
  EXPECT_ERROR(parsed(changed(good, 4, 20)), ErrorCode::CorruptFile, "data length 20 for extents [2, 3] of 32 bits");
  EXPECT_ERROR(parsed(changed(good, 8, 9)), ErrorCode::CorruptFile, "rank 9 is above 8");
  EXPECT_ERROR(parsed(changed(good, 12, 3)), ErrorCode::CorruptFile, "data length 24 for extents [3, 3]");
  EXPECT_ERROR(parsed(changed(good, 44, 12)), ErrorCode::Unsupported,
               "12 bits per item of item type 0 are not supported");
  EXPECT_ERROR(parsed(changed(good, 48, 3)), ErrorCode::Unsupported, "quantized items (item type 3) are not supported");
  EXPECT_ERROR(parsed(changed(good, 48, 0x10000)), ErrorCode::Unsupported, "item type 0x10000 is not known");
  EXPECT_ERROR(parsed(changed(good, 56, 1)), ErrorCode::Unsupported, "reserved word 1 of the header is 1, not 0");
  EXPECT_ERROR(parsed(good + "x"), ErrorCode::CorruptFile, "24 bytes of data in a file of 153 bytes");
  EXPECT_ERROR(parsed(good, Shape{3, 2}), ErrorCode::CorruptFile, "its extents are [2, 3], the graph declares [3, 2]");
  // Extents whose product wraps to what the data length says.
  std::string wrap = tensor_file({0x80000000u, 0x80000000u, 4, 2}, 0, 32, "");
  EXPECT_ERROR(parsed(wrap), ErrorCode::CorruptFile, "the product of the extents overflows");
  wrap = tensor_file({0x10000u, 0x10000u}, 0, 32, "");
  EXPECT_ERROR(parsed(wrap), ErrorCode::CorruptFile, "data length 0 for extents [65536, 65536]");
}

}  // namespace
}  // namespace aeshna
