#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace aeshna::models {

/// A batch norm with fixed statistics; one element for each channel.
struct BatchNormValues {
  std::vector<double> scale, bias, mean, variance;
};

/// Into the convolution before it: weight [channels, ...] is multiplied, and `norm.bias` becomes the bias that is left. Returns the first channel whose
/// variance is negative or not a number, if there is one; then nothing has changed.
std::optional<std::size_t> fold_batch_norm(std::vector<double>& weight, BatchNormValues& norm, double eps);

}  // namespace aeshna::models
