#include "base/names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace aeshna {

namespace {
/// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, substitute}));
    }
  }
  return row.back();
}
}  // namespace

std::vector<std::string> near_names(std::string_view name, std::span<const std::string> candidates) {
  std::vector<std::pair<std::size_t, const std::string*>> scored;
  for (const std::string& candidate : candidates) {
    const bool part = !name.empty() && (candidate.contains(name) || (!candidate.empty() && name.contains(candidate)));
    const std::size_t distance = edit_distance(name, candidate);
    if (part || distance <= 1 + name.size() / 3) scored.emplace_back(distance, &candidate);
  }
  std::ranges::stable_sort(scored, {}, &std::pair<std::size_t, const std::string*>::first);
  if (scored.size() > 3) scored.resize(3);
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : scored) names.push_back(*candidate);
  return names;
}

std::string suggest_names(std::string_view name, std::span<const std::string> candidates) {
  std::string text;
  if (const auto near = near_names(name, candidates); !near.empty()) {
    for (std::size_t i = 0; i < near.size(); ++i) text += (i == 0 ? " (did you mean '" : " or '") + near[i] + "'";
    return text + "?)";
  }
  for (std::size_t i = 0; i < candidates.size() && i < 8; ++i) text += (i == 0 ? " (there are: '" : ", '") + candidates[i] + "'";
  if (candidates.size() > 8) text += ", ...";
  return text.empty() ? text : text + ")";
}

}  // namespace aeshna
