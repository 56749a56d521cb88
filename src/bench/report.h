#pragma once
// Tables, figure and page from the files of a benchmark.
#include <string>
#include <vector>

#include "bench/comparison.h"

namespace aeshna::bench {

struct Report {
  std::string markdown, html, svg;
  std::string summary;  ///< JSON
};
Report make_report(const std::vector<Section>& sections);

/// The ratio of every valid cell, ours / PyTorch's, on a logarithmic scale with a line where both are equal. (ratio_plot.cpp)
std::string ratio_plot(const std::vector<Section>& sections);

std::string section_title(const Section& section);

}  // namespace aeshna::bench
