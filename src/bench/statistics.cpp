#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace aeshna::bench {

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const double above = values[std::min(low + 1, values.size() - 1)];
  return values[low] == above ? above : std::lerp(values[low], above, at - std::floor(at));
}

double pennycook(const std::vector<double>& efficiencies) {
  double sum = 0;
  for (const double efficiency : efficiencies) {
    if (!(efficiency > 0)) return 0;
    sum += 1 / efficiency;
  }
  return efficiencies.empty() ? 0 : static_cast<double>(efficiencies.size()) / sum;
}

}  // namespace aeshna::bench
