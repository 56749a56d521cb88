// Losses and the optimizers of ai.onnx.preview.training.
#include <array>
#include <cmath>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

/// Of log-probabilities [N, C, ...] and labels [N, ...].
Value negative_log_likelihood(Context& c, Value logp) {
  const std::string reduction = c.text("reduction", "mean");
  const Value labels = cast(c.in(1), DType::i32);
  Ints dims = dims_of(labels.shape());
  if (dims.empty() || logp.shape().rank() != labels.shape().rank() + 1) c.refuse("the labels do not fit the scores");
  std::optional<Value> counts;
  Value safe = labels;
  if (c.has_attribute("ignore_index")) {
    counts = not_equal(labels, c.integer("ignore_index"));
    safe = select(*counts, labels, 0);
  }
  const Ints result = dims;
  dims.insert(dims.begin() + 1, 1);
  Value loss = neg(reshape(gather_elements(logp, reshape(safe, dims), 1), result));
  std::optional<Value> weight;
  if (c.has(2)) weight = gather(c.in(2), safe, 0);
  if (counts) weight = select(*counts, weight ? *weight : c.constant(1, loss.dtype()), c.constant(0, loss.dtype()));
  if (weight) loss = mul(loss, *weight);
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  if (reduction != "mean") c.refuse("reduction is '" + reduction + "'");
  return weight ? sum(loss) / sum(expand(*weight, result)) : mean(loss);
}

Values nll_loss(Context& c) { return {negative_log_likelihood(c, c.in(0))}; }

Values softmax_cross_entropy(Context& c) {
  const Value logp = log_softmax(c.in(0), 1);
  return {negative_log_likelihood(c, logp), logp};
}

// ---- optimizers: operands rate, step, then the tensors by kind

/// f(i) gives the new tensors of the i-th parameter; results come by kind.
template <class F>
Values each(Context& c, std::size_t kinds, std::size_t results, F f) {
  if (c.inputs() < 2 || (c.inputs() - 2) % kinds != 0) c.refuse(formatted("{} operands", c.inputs()));
  const std::size_t n = (c.inputs() - 2) / kinds;
  Values all(n * results);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Value> operands;
    for (std::size_t k = 0; k < kinds; ++k) operands.push_back(c.in(2 + k * n + i));
    const Values now = f(operands);
    for (std::size_t k = 0; k < results; ++k) all[k * n + i] = now[k];
  }
  return all;
}

Values momentum(Context& c) {
  const double alpha = c.number("alpha"), beta = c.number("beta"), norm = c.number("norm_coefficient");
  const std::string mode = c.text("mode", "standard");
  if (mode != "standard" && mode != "nesterov") c.refuse("mode is '" + mode + "'");
  const Value rate = c.in(0), first = equal(c.in(1), 0);
  return each(c, 3, 2, [&](const std::vector<Value>& o) -> Values {
    const Value g = o[1] + mul(o[0], norm);
    const Value factor = cast(select(first, 1, c.constant(beta)), DType::f32);
    const Value v = mul(o[2], alpha) + g * factor;
    return {o[0] - rate * (mode == "nesterov" ? g + mul(v, alpha) : v), v};
  });
}

Values adagrad(Context& c) {
  const double decay = c.number("decay_factor", 0), epsilon = c.number("epsilon", 1e-6),
               norm = c.number("norm_coefficient", 0);
  const Value rate = c.in(0) / add(mul(cast(c.in(1), DType::f32), decay), 1);
  return each(c, 3, 2, [&](const std::vector<Value>& o) -> Values {
    const Value g = o[1] + mul(o[0], norm);
    const Value h = o[2] + mul(g, g);
    return {o[0] - rate * g / add(sqrt(h), epsilon), h};
  });
}

Values adam(Context& c) {
  const double alpha = c.number("alpha", 0.9), beta = c.number("beta", 0.999), epsilon = c.number("epsilon", 1e-6);
  const double norm = c.number("norm_coefficient", 0), after = c.number("norm_coefficient_post", 0);
  const Value step = cast(c.in(1), DType::f32);
  const Value corrected = c.in(0) * sqrt(sub(1, pow(c.constant(beta), step))) / sub(1, pow(c.constant(alpha), step));
  const Value rate = select(greater(step, 0), corrected, c.in(0));
  return each(c, 4, 3, [&](const std::vector<Value>& o) -> Values {
    const Value g = o[1] + mul(o[0], norm);
    const Value v = mul(o[2], alpha) + mul(g, 1 - alpha), h = mul(o[3], beta) + mul(mul(g, g), 1 - beta);
    return {mul(o[0] - rate * v / add(sqrt(h), epsilon), 1 - after), v, h};
  });
}

}  // namespace

std::span<const Op> loss_ops() {
  static constexpr const char* kTraining = "ai.onnx.preview.training";
  static constexpr std::array table = {
      Op{"Adagrad", adagrad, 1, true, kTraining},
      Op{"Adam", adam, 1, true, kTraining},
      Op{"Momentum", momentum, 1, true, kTraining},
      Op{"NegativeLogLikelihoodLoss", nll_loss, 12},
      Op{"SoftmaxCrossEntropyLoss", softmax_cross_entropy, 12},
  };
  return table;
}

}  // namespace aeshna::onnx
