#include "bench/json.h"

#include <cmath>

namespace aeshna::bench {

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json number_or_null(std::optional<double> value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }
Json count_or_null(std::optional<std::uint64_t> value) { return value ? Json(*value) : Json(); }

std::string text_of(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n'; }

}  // namespace aeshna::bench
