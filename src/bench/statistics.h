#pragma once
// Of series of measurements.
#include <vector>

namespace aeshna::bench {

/// As numpy's default: linear between the two nearest of the sorted values. `values` must not be empty.
double quantile(std::vector<double> values, double share);

/// n / sum(1 / efficiency): the performance portability of Pennycook, Sewall and Lee (2016) over a set of devices; 0 if one of
/// them is 0, which stands for a device without a valid result.
double pennycook(const std::vector<double>& efficiencies);

}  // namespace aeshna::bench
