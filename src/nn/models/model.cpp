#include "nn/models/model.h"

#include <algorithm>
#include <cmath>

#include "nn/heads.h"

namespace aeshna::models {

void Model::require_extents(std::initializer_list<std::pair<std::string_view, std::int64_t>> extents) const {
  constexpr std::int64_t most = 1 << 20;
  for (const auto& [name, extent] : extents)
    require(extent >= 1 && extent <= most, "needs a {} from 1 to {}, not {}", name, most, extent);
}

void Model::require_heads(std::int64_t heads, std::int64_t kv_heads) const {
  require(heads % kv_heads == 0, "cannot share {} key-value heads among {} heads", kv_heads, heads);
}

void Model::require_eps(double eps) const {
  require(std::isfinite(eps) && eps > 0, "needs a finite eps above 0, not {}", eps);
}

void Model::require_input(const Value& x, std::string_view name, DType dtype,
                          std::initializer_list<std::int64_t> extents, std::string_view form) const {
  require(static_cast<bool>(x), "needs {}: the Value is empty", name);
  const auto fits = [](std::int64_t want, std::int64_t found) { return want < 0 ? found >= 1 : found == want; };
  if (x.dtype() == dtype && std::ranges::equal(extents, x.shape().dims(), fits)) return;
  reject(x.dtype() == dtype ? ErrorCode::ShapeMismatch : ErrorCode::DTypeMismatch,
         formatted("needs {} {}{}, not {}", name, dtype_name(dtype), form, x.type().to_string()));
}

Value biased_conv(Value x, std::int64_t out, std::int64_t extent, std::int64_t stride, std::string_view weight_name,
                  std::string_view bias_name, const Loc& loc) {
  Graph& graph = x.graph();
  std::vector<std::int64_t> dims(static_cast<std::size_t>(x.shape().rank()), extent);
  dims[0] = out;
  dims[1] = x.shape()[1];
  const Value weight = graph.parameter(weight_name, Shape(dims), {.init = Init::kaiming_normal()}, loc);
  const Value bias = graph.parameter(bias_name, {out}, {}, loc);
  return conv({x, loc}, {weight, loc}, {.stride = {stride}, .padding = {extent / 2}}, bias);
}

Value attend(Value x, Value context, std::int64_t heads, std::string_view name, bool bias, const Loc& loc) {
  const std::int64_t width = x.shape()[2], head_dim = width / heads;
  const auto project = [&](Value v, std::string_view part, bool with_bias) {
    return nn::linear(v, width, formatted("{}.{}", name, part), {.bias = with_bias}, loc);
  };
  const auto split = [&](Value v) { return Operand(nn::split_heads(v, heads, head_dim, loc), loc); };
  const Operand q = split(project(x, "q_proj", bias)), k = split(project(context, "k_proj", false));
  const Operand v = split(project(context, "v_proj", bias));
  return project(nn::join_heads(attention(q, k, v), loc), "out_proj", bias);
}

}  // namespace aeshna::models
