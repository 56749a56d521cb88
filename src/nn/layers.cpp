#include <format>

#include "aeshna/nn.h"
#include "base/fail.h"

namespace aeshna::nn {

Value linear(Value x, std::int64_t out, std::string_view name, LinearOptions options, Loc loc) {
  const auto reject = [&](std::string message) {
    throw Error(ErrorCode::InvalidArgument, "[nn::linear] " + message)
        .context("the call at " + SourceLine(loc).to_string());
  };
  if (name.empty()) reject("needs a name");
  if (x.shape().rank() < 1) reject(std::format("'{}' needs an input of rank >= 1, not {}", name, x.type().to_string()));
  if (out < 1) reject(std::format("'{}' needs at least one output, not {}", name, out));
  Graph& graph = x.graph();
  const std::int64_t in = x.shape()[x.shape().rank() - 1];
  const Value weight =
      graph.parameter(std::format("{}.weight", name), {out, in}, {.init = options.init, .dtype = x.dtype()}, loc);
  std::optional<Value> bias;
  if (options.bias)
    bias = graph.parameter(std::format("{}.bias", name), {out}, {.init = Init::zeros(), .dtype = x.dtype()}, loc);
  return aeshna::linear(Operand(x, loc), Operand(weight, loc), bias);
}

Value mlp(Value x, const std::vector<std::int64_t>& hidden, std::int64_t out, std::string_view name, Loc loc) {
  std::size_t layer = 0;
  for (const std::int64_t width : hidden) {
    x = relu(Operand(linear(x, width, std::format("{}.{}", name, layer++), {}, loc), loc));
  }
  return linear(x, out, std::format("{}.{}", name, layer), {}, loc);
}

}  // namespace aeshna::nn
