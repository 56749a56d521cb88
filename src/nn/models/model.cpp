#include "nn/models/model.h"

#include <algorithm>
#include <cmath>

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
  require_shape(x.dtype() == dtype && std::ranges::equal(extents, x.shape().dims(), fits), "needs {} {}{}, not {}",
                name, dtype_name(dtype), form, x.type().to_string());
}

}  // namespace aeshna::models
