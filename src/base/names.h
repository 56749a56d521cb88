#pragma once
// Help for a mistyped name.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna {

/// Up to three of `candidates` that resemble `name` (edit distance), best first.
std::vector<std::string> near_names(std::string_view name, std::span<const std::string> candidates);
/// " (did you mean 'a' or 'b'?)", else " (there are: 'x', 'y', ...)" with at most eight names; "" when there are none.
std::string suggest_names(std::string_view name, std::span<const std::string> candidates);

}  // namespace aeshna
