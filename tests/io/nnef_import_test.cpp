// NNEF models against the same graphs built by hand, by value, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aeshna/ops.h"
#include "ir/op.h"
#include "support/expect_error.h"
#include "support/nnef_model.h"

namespace aeshna {
namespace {

using namespace test;

/// Every output of the imported graph equals that of the graph that `build` makes; leaves of equal names have equal values.
template <class Build>
void expect_equal(const std::string& text, Build build, double tolerance = 1e-12) {
  const ImportedModel model = import_text(text);
  Graph wanted;
  build(wanted);
  const TensorMap got = run_exact(*model.graph), want = run_exact(wanted);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.find(name)->second.type, value.type) << name;
    EXPECT_LE(difference(got.find(name)->second, value), tolerance) << name;
  }
}

TEST(Nnef, AlexNetLikeChain) {
  const std::string text = R"(
version 1.0;
# A toy of the classic: one convolution with stride, overlapping pools, groups, and two fully connected layers.
graph alex( input ) -> ( output )
{
    input = external<scalar>(shape = [2, 3, 19, 19]);
    kernel1 = variable<scalar>(shape = [8, 3, 5, 5], label = 'conv1/kernel');
    bias1 = variable<scalar>(shape = [1, 8], label = 'conv1/bias');
    conv1 = conv(input, kernel1, bias1, padding = [(0, 0), (0, 0)], border = 'constant', stride = [2, 2], dilation = [1, 1]);
    relu1 = relu(conv1);
    norm1 = local_response_normalization(relu1, size = [1, 5, 1, 1], alpha = 0.1, beta = 0.75, bias = 2.0);
    pool1 = max_pool(norm1, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore', padding = [(0,0), (0,0), (0,0), (0,0)]);
    kernel2 = variable<scalar>(shape = [6, 4, 3, 3], label = 'conv2/kernel');
    conv2 = conv(pool1, kernel2, 0.5, groups = 2);
    pool2 = avg_pool(conv2, size = [1, 1, 3, 3], stride = [1, 1, 3, 3], padding = [(0,0), (0,0), (0,0), (0,0)]);
    flat = reshape(pool2, shape = [0, -1]);
    kernel3 = variable<scalar>(shape = [5, 6], label = 'fc/kernel');
    bias3 = variable<scalar>(shape = [1, 5], label = 'fc/bias');
    fc = linear(flat, kernel3, bias3);
    output = softmax(fc);
}
)";
  expect_equal(text, [](Graph& g) {
    const Value x = g.input("input", {2, 3, 19, 19});
    Value y = conv(x, g.parameter("conv1/kernel", {8, 3, 5, 5}), {.stride = {2, 2}},
                   reshape(g.parameter("conv1/bias", {1, 8}), {8}));
    y = relu(y);
    const Value squares = permute(mul(y, y), {0, 2, 3, 1});
    const Value sums = permute(sum(windows(squares, {.kernel = {5}, .before = {2}, .after = {2}}), {-1}), {0, 3, 1, 2});
    y = y / pow(add(mul(div(sums, 5.0), 0.1), 2.0), 0.75);
    y = max_pool(y, {.kernel = {3, 3}, .stride = {2, 2}});
    y = add(conv(y, g.parameter("conv2/kernel", {6, 4, 3, 3}), {.padding = {1, 1}, .groups = 2}), 0.5);
    y = avg_pool(y, {.kernel = {3, 3}, .stride = {3, 3}});
    y = linear(reshape(y, {2, 6}), g.parameter("fc/kernel", {5, 6}), reshape(g.parameter("fc/bias", {1, 5}), {5}));
    g.output("output", softmax(y, 1));
  });
}

TEST(Nnef, ResNetLikeBlock) {
  const std::string text = R"(
version 1.0;
extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;
fragment norm( x: tensor<scalar>, mean: tensor<scalar>, variance: tensor<scalar>, offset: tensor<scalar>, scale: tensor<scalar> )
-> ( y: tensor<scalar> )
{
    y = batch_normalization(x, mean, variance, offset, scale, epsilon = 1e-5);
}
graph block( x ) -> ( y )
{
    x = external(shape = [2, 4, 8, 8]);
    k1 = variable(shape = [8, 4, 3, 3], label = 'k1');
    k2 = variable(shape = [8, 8, 3, 3], label = 'k2');
    k3 = variable(shape = [8, 4, 1, 1], label = 'k3');
    mean = variable(shape = [1, 8], label = 'mean');
    variance = variable(shape = [1, 8], label = 'variance');
    offset = variable(shape = [1, 8], label = 'offset');
    scale = variable(shape = [1, 8], label = 'scale');
    a = relu(norm(conv(x, k1, stride = [2, 2], padding = [(0, 1), (0, 1)]), mean, abs(variance), offset, scale));
    b = norm(conv(a, k2), mean, abs(variance), offset, scale);
    short = conv(x, k3, stride = [2, 2], padding = [(0, 0), (0, 0)]);
    y = mean_reduce(relu(b + short), axes = [2, 3]);
}
)";
  expect_equal(
      text,
      [](Graph& g) {
        const Value x = g.input("x", {2, 4, 8, 8});
        const Value k1 = g.parameter("k1", {8, 4, 3, 3}), k2 = g.parameter("k2", {8, 8, 3, 3}),
                    k3 = g.parameter("k3", {8, 4, 1, 1});
        const auto of_channels = [&](const char* name) { return reshape(g.parameter(name, {1, 8}), {8, 1, 1}); };
        const Value mean_value = of_channels("mean"), variance = abs(of_channels("variance")),
                    offset = of_channels("offset"), scale = of_channels("scale");
        const auto norm = [&](Value v) { return (v - mean_value) / sqrt(add(variance, 1e-5)) * scale + offset; };
        const Value a = relu(norm(conv(x, k1, {.stride = {2, 2}, .padding = {0, 0}, .padding_after = {1, 1}})));
        const Value b = norm(conv(a, k2, {.padding = {1, 1}}));
        g.output("y", mean(relu(b + conv(x, k3, {.stride = {2, 2}})), {2, 3}, true));
      },
      1e-10);
}

TEST(Nnef, FragmentsWithComprehensions) {
  const std::string text = R"(
version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;

fragment branches( x: tensor<scalar>, weights: tensor<scalar>[], paddings: (integer, integer)[], names: string[] = ['a', 'b'] )
-> ( outputs: tensor<scalar>[] )
{
    outputs = [for w in weights, p in paddings yield conv(x, w, padding = [p, p])];
}
fragment powers( x: tensor<scalar>, count: integer ) -> ( y: tensor<scalar>[] )
{
    y = [x] + powers(x * x, count = count - 1) if count > 1 else [x];
}
fragment pick<? = scalar>( x: tensor<?>[], which: integer[] ) -> ( y: tensor<?>, rest: tensor<?>[] )
{
    y = x[which[0]];
    rest = [for i in range_of(x) if !(i in which) yield x[i]];
}
graph g( x ) -> ( y, sum, total )
{
    x = external<scalar>(shape = [1, 2, 6, 6]);
    w = [variable<scalar>(shape = [2, 2, 1, 1], label = 'w1'), variable<scalar>(shape = [2, 2, 3, 3], label = 'w3')];
    parts = branches(x, w, paddings = [for n in [0, 1] yield (n, n)]);
    y = concat(parts, axis = 1);
    all = powers(x, count = 3);
    second, others = pick(all, which = [1]);
    sum = second * 10.0 - others[0] + others[-1] * scalar(length_of(all));
    total = add_n(all[0:2]);
}
)";
  expect_equal(text, [](Graph& g) {
    const Value x = g.input("x", {1, 2, 6, 6});
    const Value w1 = g.parameter("w1", {2, 2, 1, 1}), w3 = g.parameter("w3", {2, 2, 3, 3});
    g.output("y", concat({conv(x, w1), conv(x, w3, {.padding = {1, 1}})}, 1));
    const Value x2 = x * x, x4 = x2 * x2;
    g.output("sum", mul(x2, 10.0) - x + mul(x4, 3.0));
    g.output("total", x + x2);
  });
}

/// The reference moves data element by element; shapes alone would agree for the wrong order too.
TEST(Nnef, TransposesOfRankFourMoveTheData) {
  std::vector<std::int64_t> axes = {0, 1, 2, 3};
  const Shape shape{2, 3, 4, 5};
  HostTensor x(TensorType{DType::f32, shape});
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<double>(i);
  const auto strides = dense_strides(shape);
  do {
    const std::string list = formatted("[{}, {}, {}, {}]", axes[0], axes[1], axes[2], axes[3]);
    const HostTensor y = run_one("[2, 3, 4, 5]", "y = transpose(x, axes = " + list + ");", x);
    std::int64_t at = 0;
    std::int64_t extents[4];
    for (int d = 0; d < 4; ++d) extents[d] = shape[static_cast<int>(axes[static_cast<std::size_t>(d)])];
    for (int d = 0; d < 4; ++d) EXPECT_EQ(y.type.shape[d], extents[d]);
    for (std::int64_t a = 0; a < extents[0]; ++a)
      for (std::int64_t b = 0; b < extents[1]; ++b)
        for (std::int64_t c = 0; c < extents[2]; ++c)
          for (std::int64_t d = 0; d < extents[3]; ++d) {
            const std::int64_t index[4] = {a, b, c, d};
            std::int64_t from = 0;
            for (std::size_t k = 0; k < 4; ++k) from += index[k] * strides[static_cast<std::size_t>(axes[k])];
            ASSERT_EQ(y.data[static_cast<std::size_t>(at++)], static_cast<double>(from)) << list;
          }
  } while (std::ranges::next_permutation(axes).found);
}

TEST(Nnef, TransposeOfLeadingAxesLeavesTheOthers) {
  expect_equal(one_input("[2, 3, 4, 5]", "y = transpose(x, axes = [1, 0]);"), [](Graph& g) {
    g.output("y", permute(g.input("x", {2, 3, 4, 5}), {1, 0, 2, 3}));
  });
}

TEST(Nnef, BroadcastsAlignAtTheFirstAxis) {
  const std::string text = R"(
version 1.0;
graph g( x, row, column ) -> ( a, b, c, d )
{
    x = external<scalar>(shape = [3, 3, 3]);
    row = external<scalar>(shape = [1, 3]);
    column = external<scalar>(shape = [3]);
    a = add(x, row);
    b = sub(column, x);
    c = select(lt(column, 0.0), x, row);
    d = prelu(x, row);
}
)";
  expect_equal(text, [](Graph& g) {
    const Value x = g.input("x", {3, 3, 3});
    const Value row = reshape(g.input("row", {1, 3}), {1, 3, 1}), column = reshape(g.input("column", {3}), {3, 1, 1});
    g.output("a", x + row);
    g.output("b", column - x);
    g.output("c", select(less(column, 0.0), x, row));
    g.output("d", select(less(x, 0.0), x * row, x));
  });
  EXPECT_ERROR(import_text(one_input("[2, 3]", "w = variable<scalar>(shape = [3], label = 'w'); y = add(x, w);")),
               ErrorCode::CorruptFile, "graph.nnef:6:53: add: shapes [2, 3] and [3, 1] do not broadcast");
}

TEST(Nnef, ShapesAndParts) {
  const std::string body = R"(
[a, b, c] = split(x, axis = 1, ratios = [1, 2, 1]);
joined = concat([c, a], axis = 1);
stacked = stack([a, c], axis = 1);
pieces = unstack(stacked, axis = 0);
y = pieces[1];
part = slice(x, axes = [2, 1], begin = [1, -3], end = [-1, 0]);
steps = slice(x, axes = [3], begin = [1], end = [5], stride = [2]);
back = slice(x, axes = [3], begin = [4], end = [0], stride = [-3]);
front = slice(x, axes = [3], begin = [-1], end = [-7], stride = [-1]);
middle = reshape(x, shape = [-1, 2], axis_start = 1, axis_count = 2);
same = unsqueeze(squeeze(slice(x, axes = [0], begin = [0], end = [1]), axes = [0]), axes = [1, 4]);
tiled = tile(a, repeats = [1, 2, 1, 3]);
bits = cast<integer>(x > 0.0);)";
  expect_equal(
      one_input("[2, 4, 4, 6]", body, "joined, stacked, y, part, steps, back, front, middle, same, tiled, bits"),
      [](Graph& g) {
        const Value x = g.input("x", {2, 4, 4, 6});
        const Value a = slice(x, {1}, {0}, {1}), c = slice(x, {1}, {3}, {4});
        g.output("joined", concat({c, a}, 1));
        const Value stacked = concat({a, c}, 1);
        g.output("stacked", reshape(stacked, {2, 2, 1, 4, 6}));
        g.output("y", reshape(slice(stacked, {0}, {1}, {2}), {2, 1, 4, 6}));
        g.output("part", slice(x, {2, 1}, {1, 1}, {3, 4}));
        g.output("steps", slice(x, {3}, {1}, {5}, {2}));
        g.output("back", concat({slice(x, {3}, {4}, {5}), slice(x, {3}, {1}, {2})}, 3));
        g.output("front", flip(x, {3}));
        g.output("middle", reshape(x, {2, 8, 2, 6}));
        g.output("same", reshape(slice(x, {0}, {0}, {1}), {4, 1, 4, 6, 1}));
        g.output("tiled", tile(a, {1, 2, 1, 3}));
        g.output("bits", cast(greater(x, 0.0), DType::i32));
      });
}

TEST(Nnef, Products) {
  const std::string body = R"(
w = variable<scalar>(shape = [1, 5, 4], label = 'w');
y = matmul(x, w, transposeB = true);
z = matmul(x, x, transposeA = true);)";
  expect_equal(one_input("[3, 2, 4]", body, "y, z"), [](Graph& g) {
    const Value x = g.input("x", {3, 2, 4}), w = g.parameter("w", {1, 5, 4});
    g.output("y", matmul(x, w, false, true));
    g.output("z", matmul(x, x, true));
  });
}

TEST(Nnef, Upsampling) {
  const std::string body = R"(
y = nearest_upsample(x, factor = [2, 3]);
down = nearest_downsample(x, factor = [2, 1]);
area = area_downsample(x, factor = [2, 5]);
symmetric = multilinear_upsample(x, factor = [2, 3]);
asymmetric = multilinear_upsample(x, factor = [2, 2], method = 'asymmetric');
aligned = multilinear_upsample(x, factor = [3, 2], method = 'aligned', border = 'constant');
boxes = debox(x, size = [1, 1, 2, 3], stride = [1, 1, 2, 3], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);)";
  expect_equal(one_input("[1, 2, 4, 5]", body, "y, down, area, symmetric, asymmetric, aligned, boxes"), [](Graph& g) {
    const Value x = g.input("x", {1, 2, 4, 5});
    const Value nearest = resize(x, {8, 15},
                                 {.mode = ResizeMode::Nearest,
                                  .coordinates = ResizeCoordinates::Asymmetric,
                                  .rounding = NearestRounding::Floor});
    g.output("y", nearest);
    g.output("boxes", nearest);
    g.output("down", slice(x, {2}, {0}, {4}, {2}));
    g.output("area", avg_pool(x, {.kernel = {2, 5}}));
    g.output("symmetric", resize(x, {8, 15}, {.mode = ResizeMode::Linear}));
    g.output("asymmetric",
             resize(x, {8, 10}, {.mode = ResizeMode::Linear, .coordinates = ResizeCoordinates::Asymmetric}));
    g.output("aligned",
             resize(x, {12, 10}, {.mode = ResizeMode::Linear, .coordinates = ResizeCoordinates::AlignCorners}));
  });
}

/// NNEF defines symmetric and asymmetric upsampling by 2 with a constant border as transposed convolutions.
TEST(Nnef, UpsamplingWithAConstantBorderIsADeconvolution) {
  const HostTensor x = tensor({1, 1, 5}, {1, -2, 3, 5, 4});
  const HostTensor got = run_one("[1, 1, 5]", "y = multilinear_upsample(x, factor = [2], border = 'constant');", x);
  const HostTensor want = run_one("[1, 1, 5]",
                                  "w = constant(shape = [1, 1, 4], value = [0.25, 0.75, 0.75, 0.25]);\n"
                                  "y = deconv(x, w, stride = [2], padding = [(1, 1)]);",
                                  x);
  EXPECT_EQ(got.type, want.type);
  EXPECT_LE(difference(got, want), 1e-12);
  const HostTensor got2 =
      run_one("[1, 1, 5]", "y = multilinear_upsample(x, factor = [2], method = 'asymmetric', border = 'constant');", x);
  const HostTensor want2 = run_one("[1, 1, 5]",
                                   "w = constant(shape = [1, 1, 3], value = [0.5, 1.0, 0.5]);\n"
                                   "y = deconv(x, w, stride = [2], padding = [(1, 1)], output_shape = [1, 1, 10]);",
                                   x);
  EXPECT_LE(difference(got2, want2), 1e-12);
}

TEST(Nnef, Reductions) {
  const std::string body = R"(
y = sum_reduce(x, axes = [1, 3]);
a = max_reduce(x, axes = [0]);
b = min_reduce(x, axes = [3, 2]);
c = sum_reduce(x, axes = [2], normalize = true);
d = argmax_reduce(x, axes = [1]);
e = argmin_reduce(x, axes = [2, 1]);
f = any_reduce(x > 1.5, axes = [1, 2]);
h = all_reduce(x > -1.5, axes = [3]);
m, v = moments(x, axes = [0, 2]);
s = softmax(x, axes = [1, 2]);
t = mean_reduce(x, axes = []);)";
  expect_equal(one_input("[2, 3, 4, 5]", body, "y, a, b, c, d, e, f, h, m, v, s, t"), [](Graph& g) {
    const Value x = g.input("x", {2, 3, 4, 5});
    g.output("y", sum(x, {1, 3}, true));
    g.output("a", reduce_max(x, {0}, true));
    g.output("b", reduce_min(x, {2, 3}, true));
    g.output("c", mean(x, {2}, true));
    g.output("d", argmax(x, 1, true));
    g.output("e", reshape(argmin(reshape(x, {2, 12, 5}), 1, true), {2, 1, 1, 5}));
    g.output("f", greater(reduce_max(x, {1, 2}, true), 1.5));
    g.output("h", greater(reduce_min(x, {3}, true), -1.5));
    const Value m = mean(x, {0, 2}, true);
    g.output("m", m);
    g.output("v", mean((x - m) * (x - m), {0, 2}, true));
    g.output("s", reshape(softmax(reshape(x, {2, 12, 5}), 1), {2, 3, 4, 5}));
    g.output("t", x);
  });
}

TEST(Nnef, Normalization) {
  const std::string body = R"(
y = l1_normalization(x, axes = [1], bias = 0.5);
a = l2_normalization(x, axes = [1, 2, 3], epsilon = 1000.0);
b = local_mean_normalization(x, size = [1, 1, 3, 3]);
c = local_variance_normalization(x, size = [1, 3, 1, 1], bias = 0.1, epsilon = 0.01);
d = local_contrast_normalization(x, size = [1, 1, 3, 3], epsilon = 0.5);
e = batch_normalization(x, 0.5, 2.0, 1.0, 3.0, epsilon = 0.0);)";
  expect_equal(one_input("[2, 4, 5, 5]", body, "y, a, b, c, d, e"), [](Graph& g) {
    const Value x = g.input("x", {2, 4, 5, 5});
    const auto average = [](Value v) { return avg_pool(v, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}); };
    g.output("y", x / add(sum(abs(x), {1}, true), 0.5));
    g.output("a", div(x, 1000.0));
    g.output("b", x - average(x));
    const Value squares = permute(x * x, {0, 2, 3, 1});
    const Value sums = permute(sum(windows(squares, {.kernel = {3}, .before = {1}, .after = {1}}), {-1}), {0, 3, 1, 2});
    g.output("c", x / maximum(add(sqrt(div(sums, 3.0)), 0.1), 0.01));
    const Value centered = x - average(x);
    g.output("d", centered / maximum(sqrt(average(centered * centered)), 0.5));
    g.output("e", add(sub(x, 0.5) * g.constant(3.0) / sqrt(g.constant(2.0)), 1.0));
  });
}

TEST(Nnef, ConstantsGatherAndLogic) {
  const std::string body = R"(
k = constant<integer>(shape = [3], value = [2, 0, 2]);
y = gather(x, k, axis = 1);
ones = constant(shape = [2, 3], value = [1.0]);
table = constant(shape = [2, 3], value = [1.0, -2, 3.5, 4.0, 5e-1, 6.25]);
a = x * table + ones;
flags = constant<logical>(shape = [3], value = [true, false, true]);
b = cast<scalar>(x[0] if false else (x > 0.0 || x <= -1.0) && x != 0.0);
copies = copy_n(x, times = 2);
c = copies[0] + copies[1];)";
  expect_equal(one_input("[2, 3]", body, "y, a, b, c"), [](Graph& g) {
    const Value x = g.input("x", {2, 3});
    const std::vector<double> index = {2, 0, 2}, table = {1, -2, 3.5, 4, 0.5, 6.25};
    g.output("y", gather(x, g.constant(Literal::from_doubles({DType::i32, {3}}, index)), 1));
    g.output("a", add(x * g.constant(Literal::from_doubles({DType::f32, {2, 3}}, table)), 1.0));
    g.output("b", cast(logical_or(greater(x, 0.0), less_equal(x, -1.0)), DType::f32));
    g.output("c", x + x);
  });
}

TEST(Nnef, UpdateAssignsTheVariable) {
  const std::string text = one_input(
      "[2]", "v = variable<scalar>(shape = [2], label = 'state/v');\ny = v + x;\nnext = update(v, y);", "y, next");
  const ImportedModel model = import_text(text, {.trainable = true});
  ASSERT_EQ(model.graph->assigns().size(), 1u);
  const InterpreterResult r = interpret(*model.graph, {{"x", tensor({2}, {1, 2})}, {"state/v", tensor({2}, {10, 20})}});
  EXPECT_EQ(r.outputs.find("y")->second.data, (std::vector<double>{11, 22}));
  EXPECT_EQ(r.assigned.find("state/v")->second.data, (std::vector<double>{11, 22}));
  EXPECT_FALSE(model.graph->node(*model.graph->leaf("state/v")).attrs.get<bool>("trainable"));
}

TEST(Nnef, StatisticsAreNotTrained) {
  const ImportedModel model = import_text(one_input("[1, 2, 3]", R"(
m = variable<scalar>(shape = [1, 2], label = 'm');
v = variable<scalar>(shape = [1, 2], label = 'v');
b = variable<scalar>(shape = [1, 2], label = 'b');
y = relu(batch_normalization(x, m, scale = 1.0, offset = b, variance = v, epsilon = 0.1));)"), {.trainable = true});
  const auto trained = [&](const char* name) { return model.graph->node(*model.graph->leaf(name)).attrs.get<bool>("trainable"); };
  EXPECT_FALSE(trained("m"));
  EXPECT_FALSE(trained("v"));
  EXPECT_TRUE(trained("b"));
}

TEST(Nnef, OptionsAndNames) {
  const std::string text = R"(
version 1.0;
graph g( x, n ) -> ( y )
{
    x = external<scalar>(shape = [0, 2]);
    n = external<integer>(shape = [1]);
    w = variable<scalar>(shape = [2, 2], label = 'w');
    y = gather(linear(x, w), n, axis = 0);
}
)";
  const std::vector<double> one = {1};
  const ImportedModel model = import_text(
      text,
      {.shapes = {{"x", {3, 2}}}, .binds = {{"n", Literal::from_doubles({DType::i64, {1}}, one)}}, .trainable = true});
  EXPECT_EQ(model.inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(model.outputs, std::vector<std::string>{"y"});
  EXPECT_EQ(model.graph->type({*model.graph->leaf("x"), 0}).to_string(), "f32[3, 2]");
  EXPECT_TRUE(model.graph->node(*model.graph->leaf("w")).attrs.get<bool>("trainable"));
  EXPECT_EQ(model.ops.at("gather"), 1);
  EXPECT_EQ(model.graph->nodes().back().line.to_string(), "graph.nnef:8");
  EXPECT_EQ(model.graph->find("y").node().op->name, "gather");
  EXPECT_ERROR(import_text(text), ErrorCode::InvalidArgument,
               "graph.nnef:5:9: input 'x' is [0, 2]: open dimensions need a shape");
  EXPECT_ERROR(import_text(text, {.shapes = {{"x", {3, 3}}}}), ErrorCode::InvalidArgument,
               "input 'x' is [0, 2], the shape given [3, 3]");
  const Literal rows = Literal::from_doubles({DType::f64, {2, 2}}, std::vector<double>{1, 2, 3, 4});
  EXPECT_EQ(import_text(text, {.binds = {{"x", rows}}}).inputs, std::vector<std::string>{"n"});
  EXPECT_ERROR(import_text(text, {.binds = {{"x", Literal::scalar(1)}}}), ErrorCode::InvalidArgument,
               "input 'x' is [0, 2], the value given []");
  EXPECT_ERROR(import_text(text, {.shapes = {{"z", {3}}}}), ErrorCode::InvalidArgument,
               "a shape is given for 'z', which is no input");
  EXPECT_ERROR(import_text(text, {.shapes = {{"x", {3, 2}}}, .binds = {{"n", Literal::scalar(0.5)}}}),
               ErrorCode::OutOfRange, "external");
}

}  // namespace
}  // namespace aeshna
