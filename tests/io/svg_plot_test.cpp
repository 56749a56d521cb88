#include "io/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace aeshna {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(SvgPlot, TicksAreRoundAndEnclose) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1, 1199, 8).front(), 0);
  EXPECT_EQ(axis_ticks(1, 1199, 8).back(), 1200);
  for (const auto& [low, high] : {std::pair(3.0, 3.0), {0.0, 0.0}, {-1e-7, 2e-7}, {1e9, 1e9 + 1}, {-5.0, 1e6}}) {
    const std::vector<double> ticks = axis_ticks(low, high, 6);
    ASSERT_GE(ticks.size(), 2u) << low;
    EXPECT_LE(ticks.size(), 14u) << low;
    EXPECT_LE(ticks.front(), low + 1e-9 * std::abs(low));
    EXPECT_GE(ticks.back(), high - 1e-9 * std::abs(high));
  }
}

TEST(SvgPlot, HasAxesLegendAndLines) {
  const std::string svg =
      render_svg({.title = "a <b> & c",
                  .x_label = "step",
                  .left_label = "loss",
                  .right_label = "accuracy",
                  .series = {{.label = "training", .points = {{1, 2.3}, {2, 1.1}, {3, NAN}, {4, 0.2}}, .smooth = true},
                             {.label = "held out", .points = {{2, 80}, {4, 97}}, .right_axis = true}}});
  EXPECT_EQ(svg.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(count(svg, "<polyline"), 3);  // the points, their mean, the accuracy
  for (const char* text : {">step<", ">loss<", ">accuracy<", ">training<", ">held out<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(count(svg, "http"), 1);  // self-contained: nothing but the namespace
  EXPECT_NE(svg.find("prefers-color-scheme"), std::string::npos);
  // Every point lies inside the picture.
  const std::regex point("([0-9.]+),([0-9.]+)[ \"]");
  int points = 0;
  for (std::sregex_iterator match(svg.begin(), svg.end(), point), end; match != end; ++match, ++points) {
    EXPECT_LE(std::stod((*match)[1]), 760);
    EXPECT_LE(std::stod((*match)[2]), 420);
  }
  EXPECT_EQ(points, 3 + 3 + 2);
}

TEST(SvgPlot, NothingToDraw) {
  const std::string svg = render_svg({.title = "t",
                                      .x_label = {},
                                      .left_label = {},
                                      .right_label = {},
                                      .series = {{.label = "l", .points = {{1, INFINITY}}}}});
  EXPECT_NE(svg.find("no data"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

TEST(SvgPlot, LongRunsAreThinned) {
  PlotSeries series{.label = "l", .points = {}};
  for (int i = 0; i < 1'000'000; ++i) series.points.emplace_back(i, std::sin(i));
  EXPECT_LT(render_svg({.title = {}, .x_label = {}, .left_label = {}, .right_label = {}, .series = {series}}).size(),
            100'000u);
}

}  // namespace
}  // namespace aeshna
