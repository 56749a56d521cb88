#pragma once
// What the writers of the benchmark's JSON files share.
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace aeshna::bench {

using Json = nlohmann::ordered_json;

inline constexpr std::uint64_t kSchema = 1;

/// What does not exist is null.
Json text_or_null(const std::string& text);
Json number_or_null(std::optional<double> value);
Json count_or_null(std::optional<std::uint64_t> value);

/// Indented, with a newline at the end; bytes that are not UTF-8 become replacement characters.
std::string text_of(const Json& json);

}  // namespace aeshna::bench
