#pragma once
// A self-contained SVG line chart of a training run, readable on light and on dark pages.
#include <string>
#include <utility>
#include <vector>

namespace aeshna {

struct PlotSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  ///< finite, x ascending; others are left out
  bool right_axis = false;                        ///< measured on the second y axis
  bool smooth = false;                            ///< also drawn as a running mean, with the points faint behind it
};

struct Plot {
  std::string title;
  std::string x_label, left_label, right_label;
  std::vector<PlotSeries> series;
};

/// The chart as SVG text. Axes without any point are left out.
std::string render_svg(const Plot& plot);

/// About `count` round numbers (1, 2 or 5 times a power of ten apart) that enclose [low, high]; at least two.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace aeshna
