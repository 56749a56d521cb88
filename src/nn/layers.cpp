// Linear layers and what is made of them.
#include <cmath>

#include "nn/layer.h"

namespace aeshna::nn {

Value low_rank(const Layer& layer, std::int64_t out, std::int64_t rank, double scale, bool trainable) {
  layer.require(rank >= 1, "needs a LoRA rank of at least 1, not {}", rank);
  layer.require(std::isfinite(scale), "cannot scale LoRA by {}", scale);
  const Shape& shape = layer.x().shape();
  const Value a = layer.parameter("lora_A.weight", {rank, shape[shape.rank() - 1]}, {}, trainable);
  const Value b = layer.parameter("lora_B.weight", {out, rank}, Init::zeros(), trainable);
  const Value low = aeshna::linear(layer.at(layer.x()), layer.at(a));
  const Value scaled = mul(layer.at(low), layer.at(scale));  // the smallest tensor on the way
  return aeshna::linear(layer.at(scaled), layer.at(b));
}

Value linear(Value x, std::int64_t out, std::string_view name, LinearOptions options, Loc loc) {
  const Layer layer("linear", name, x, loc);
  layer.require(x.shape().rank() >= 1, "needs an input of rank >= 1, not {}", x.type().to_string());
  layer.require(out >= 1, "needs at least one output, not {}", out);
  const std::int64_t in = x.shape()[x.shape().rank() - 1];
  const bool trainable = options.trainable && !options.lora;
  const Value weight = layer.parameter("weight", {out, in}, options.init, trainable);
  std::optional<Value> bias;
  if (options.bias) bias = layer.parameter("bias", {out}, Init::zeros(), trainable);
  const Value y = aeshna::linear(layer.at(x), layer.at(weight), bias);
  if (!options.lora) return y;

  const auto& [rank, alpha] = *options.lora;
  return add(layer.at(y), layer.at(low_rank(layer, out, rank, alpha / static_cast<double>(rank), options.trainable)));
}

Value embedding(Value ids, std::int64_t count, std::int64_t width, std::string_view name, EmbeddingOptions options, Loc loc) {
  const Layer layer("embedding", name, ids, loc);
  layer.require(count >= 1 && width >= 1, "needs at least one row and one column, not [{}, {}]", count, width);
  const Value table = layer.graph().parameter(
      layer.part("weight"), {count, width},
      {.init = options.init.value_or(Init::normal(0, 1)), .trainable = options.trainable}, loc);
  return aeshna::embedding(layer.at(table), layer.at(ids));
}

Value activate(Value x, Activation activation, Loc loc) {
  const Operand operand(x, loc);
  switch (activation) {
    case Activation::Relu:
      return relu(operand);
    case Activation::Gelu:
      return gelu_erf(operand);
    case Activation::GeluTanh:
      return gelu_tanh(operand);
    case Activation::Silu:
      return silu(operand);
    case Activation::Tanh:
      return tanh(operand);
  }
  return x;
}

Value dropout(Value x, double p, bool training, Loc loc) {
  const Layer layer("dropout", "dropout", x, loc);
  layer.require(p >= 0 && p < 1, "needs a probability in [0, 1), not {}", p);
  if (!training || p == 0) return x;
  const Value kept = greater_equal(layer.at(random_uniform(layer.graph(), x.shape(), loc)), layer.at(p));
  // A select, so that a dropped infinity is 0 too.
  return select(layer.at(kept), layer.at(mul(layer.at(x), layer.at(1 / (1 - p)))), layer.at(0.0));
}

Value mlp(Value x, const std::vector<std::int64_t>& hidden, std::int64_t out, std::string_view name, MlpOptions options,
          Loc loc) {
  const Layer layer("mlp", name, x, loc);
  const LinearOptions each{.bias = options.bias, .lora = options.lora, .trainable = options.trainable};
  std::size_t i = 0;
  for (const std::int64_t width : hidden) {
    x = activate(linear(x, width, layer.part(std::to_string(i++)), each, loc), options.activation, loc);
    x = dropout(x, options.dropout, options.training, loc);
  }
  return linear(x, out, layer.part(std::to_string(i)), each, loc);
}

Value swiglu(Value x, std::int64_t hidden, std::string_view name, SwigluOptions options, Loc loc) {
  const Layer layer("swiglu", name, x, loc);
  layer.require(x.shape().rank() >= 1, "needs an input of rank >= 1, not {}", x.type().to_string());
  layer.require(hidden >= 1, "needs a hidden width of at least 1, not {}", hidden);
  const LinearOptions each{.bias = options.bias, .lora = options.lora, .trainable = options.trainable};
  const Value gate = silu(layer.at(linear(x, hidden, layer.part("gate_proj"), each, loc)));
  const Value up = linear(x, hidden, layer.part("up_proj"), each, loc);
  const std::int64_t width = x.shape()[x.shape().rank() - 1];
  return linear(mul(layer.at(gate), layer.at(up)), width, layer.part("down_proj"), each, loc);
}

}  // namespace aeshna::nn
