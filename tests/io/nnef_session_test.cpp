// Imported NNEF models on a device, against the interpreter.
#include <gtest/gtest.h>

#include "aeshna/session.h"
#include "support/nnef_model.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using namespace test;

Literal literal(const HostTensor& t) { return Literal::from_doubles(t.type, t.data); }

void expect_on_device(const std::string& text, double tolerance = 2e-5) {
  MemoryVariables variables;
  variables.values = {{"mask", Literal({DType::boolean, {1, 4}}, std::vector<std::byte>(4))},
                      {"order", Literal({DType::i32, {10}}, std::vector<std::byte>(40))}};
  const ImportedModel model = import_text(text, {}, variables);
  const TensorMap leaves = random_leaves(*model.graph, 7), want = interpret(*model.graph, leaves).outputs;
  Weights weights(*model.graph, {.device = *test_device().device});
  for (const auto& [name, value] : model.weights) weights.set(name, literal(leaves.find(name)->second));
  Session session = compile(*model.graph, weights);
  for (const std::string& name : model.inputs) session.set(name, literal(leaves.find(name)->second));
  session.step();
  for (const std::string& name : model.outputs) {
    const HostTensor& exact = want.find(name)->second;
    HostTensor got(exact.type);
    got.data = session.read_literal(name).to_doubles();
    EXPECT_LE(difference(got, exact), tolerance) << name;
  }
}

TEST(NnefSession, ConvolutionalChain) {
  AESHNA_NEED_DEVICE();
  expect_on_device(one_input("[2, 3, 12, 12]", R"(
k = variable<scalar>(shape = [8, 3, 3, 3], label = 'k');
b = variable<scalar>(shape = [1, 8], label = 'b');
c = relu(conv(x, k, b, stride = [2, 2]));
n = local_response_normalization(c, size = [1, 5, 1, 1], alpha = 0.1, beta = 0.75);
p = max_pool(n, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore');
s = variable<scalar>(shape = [1, 8], label = 's');
q = batch_normalization(p, s, abs(b), b, s, epsilon = 0.001);
w = variable<scalar>(shape = [5, 72], label = 'w');
y = softmax(linear(reshape(q, shape = [0, -1]), w));)"));
}

TEST(NnefSession, BordersAndSampling) {
  AESHNA_NEED_DEVICE();
  expect_on_device(one_input("[1, 4, 6, 6]", R"(
k = variable<scalar>(shape = [4, 1, 3, 3], label = 'k');
a = conv(x, k, border = 'reflect', groups = 0);
w = variable<scalar>(shape = [4, 2, 3, 3], label = 'w');
b = deconv(a, w, stride = [2, 2], output_shape = [1, 4, 12, 12], groups = 2);
m, i = max_pool_with_index(b, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore');
y = desample(m, i, size = [1, 1, 2, 2], stride = [1, 1, 2, 2]);
u = multilinear_upsample(x, factor = [2, 2], border = 'constant');
v = avg_pool(transpose(x, axes = [0, 2, 3, 1]), size = [1, 3, 3, 1], stride = [1, 2, 2, 1], border = 'ignore');
r = atan(x) * 4.0 + asinh(x);
mask = variable<logical>(shape = [1, 4], label = 'mask');
order = variable<integer>(shape = [10], label = 'order');
s = gather(reshape(select(mask, x, 0.0), shape = [-1]), order, axis = 0);)",
                             "y, u, v, r, s"));
}

}  // namespace
}  // namespace aeshna
