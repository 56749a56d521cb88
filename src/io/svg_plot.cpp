#include "io/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/format.h"
#include "io/xml.h"

namespace aeshna {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 64, kRight = kWidth - 64, kTop = 56, kBottom = kHeight - 56;
constexpr std::size_t kMostPoints = 2000;  // of one line: more cannot be seen
constexpr std::array<std::string_view, 4> kColours = {"#3b82c4", "#d9822b", "#3f9b5a",
                                                      "#a05fb4"};  // clear on white and on black

struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  std::vector<double> ticks;
  bool used() const { return low <= high; }
  void include(double value) { low = std::min(low, value), high = std::max(high, value); }
  void finish(int count) {
    if (!used()) return;
    ticks = axis_ticks(low, high, count);
    low = ticks.front(), high = ticks.back();
  }
  double position(double value, double from, double to) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

bool finite(const std::pair<double, double>& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

/// A tick as a short number, without the noise of the additions that made it.
std::string tick_text(double value, double step) {
  const double clean = std::abs(value) < step * 1e-9 ? 0 : value;
  return formatted("{:.6g}", clean);
}

std::string text(double x, double y, std::string_view anchor, std::string_view content, std::string_view extra = "") {
  return formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, extra,
                   xml_escaped(content));
}

/// Running mean over about a fiftieth of the run.
std::vector<std::pair<double, double>> running_mean(const std::vector<std::pair<double, double>>& points) {
  const std::size_t window = std::max<std::size_t>(1, points.size() / 50);
  std::vector<std::pair<double, double>> result;
  double sum = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    sum += points[i].second;
    if (i >= window) sum -= points[i - window].second;
    result.emplace_back(points[i].first, sum / static_cast<double>(std::min(i + 1, window)));
  }
  return result;
}

std::string polyline(const std::vector<std::pair<double, double>>& points, const Axis& x, const Axis& y,
                     std::string_view colour, std::string_view extra) {
  std::string line = formatted("<polyline fill=\"none\" stroke=\"{}\" {} points=\"", colour, extra);
  const std::size_t stride = std::max<std::size_t>(1, points.size() / kMostPoints);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % stride != 0 && i + 1 != points.size()) continue;
    line += formatted("{:.1f},{:.1f} ", x.position(points[i].first, kLeft, kRight),
                      y.position(points[i].second, kBottom, kTop));
  }
  if (line.back() == ' ') line.pop_back();
  return line + "\"/>\n";
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  if (!(high > low)) {
    const double margin = std::max(std::abs(low) * 0.1, 1e-9);
    low -= margin, high += margin;
  }
  const double raw = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string render_svg(const Plot& plot) {
  Axis x, left, right;
  std::vector<PlotSeries> series = plot.series;
  for (PlotSeries& s : series) {
    std::erase_if(s.points, [](const auto& p) { return !finite(p); });
    for (const auto& [px, py] : s.points) {
      x.include(px);
      (s.right_axis ? right : left).include(py);
    }
  }
  x.finish(8), left.finish(6), right.finish(6);

  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{2}</title>\n"
      "<style>text{{fill:#333}}.axis{{stroke:#777}}.grid{{stroke:#888;stroke-opacity:.25}}"
      "@media (prefers-color-scheme:dark){{text{{fill:#ccc}}}}</style>\n",
      kWidth, kHeight, xml_escaped(plot.title));
  svg += text(kWidth / 2, 20, "middle", plot.title, " font-size=\"15\"");

  if (!x.used()) return svg + text(kWidth / 2, kHeight / 2, "middle", "no data") + "</svg>\n";

  const double x_step = x.ticks[1] - x.ticks[0];
  for (const double tick : x.ticks) {
    const double at = x.position(tick, kLeft, kRight);
    svg += formatted("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", at,
                     kBottom, kBottom + 4);
    svg += text(at, kBottom + 18, "middle", tick_text(tick, x_step));
  }
  svg += text((kLeft + kRight) / 2, kHeight - 14, "middle", plot.x_label);
  for (const bool on_right : {false, true}) {
    const Axis& axis = on_right ? right : left;
    if (!axis.used()) continue;
    const double edge = on_right ? kRight : kLeft, out = on_right ? 4 : -4;
    const double step = axis.ticks[1] - axis.ticks[0];
    for (const double tick : axis.ticks) {
      const double at = axis.position(tick, kBottom, kTop);
      if (!on_right)
        svg += formatted("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft, at,
                         kRight, at);
      svg += formatted("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", edge, at,
                       edge + out, at);
      svg += text(edge + 2 * out, at + 4, on_right ? "start" : "end", tick_text(tick, step));
    }
    svg += formatted("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", edge, kTop,
                     kBottom);
    const double label_x = on_right ? kWidth - 12 : 16, middle = (kTop + kBottom) / 2;
    svg += text(label_x, middle, "middle", on_right ? plot.right_label : plot.left_label,
                formatted(" transform=\"rotate({} {:.1f} {:.1f})\"", on_right ? 90 : -90, label_x, middle));
  }
  svg += formatted("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft, kBottom,
                   kRight, kBottom);

  double legend = kLeft;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const PlotSeries& s = series[i];
    const std::string_view colour = kColours[i % kColours.size()];
    const Axis& y = s.right_axis ? right : left;
    if (!s.points.empty()) {
      svg += polyline(s.points, x, y, colour,
                      s.smooth ? "stroke-width=\"1\" stroke-opacity=\"0.35\"" : "stroke-width=\"2\"");
      if (s.smooth) svg += polyline(running_mean(s.points), x, y, colour, "stroke-width=\"2\"");
      if (!s.smooth && s.points.size() <= 60) {
        for (const auto& [px, py] : s.points) {
          svg += formatted("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
                           x.position(px, kLeft, kRight), y.position(py, kBottom, kTop), colour);
        }
      }
    }
    svg += formatted("<line x1=\"{:.1f}\" y1=\"38\" x2=\"{:.1f}\" y2=\"38\" stroke=\"{}\" stroke-width=\"3\"/>\n",
                     legend, legend + 22, colour);
    svg += text(legend + 28, 42, "start", s.label);
    legend += 52 + 7.0 * static_cast<double>(s.label.size());
  }
  return svg + "</svg>\n";
}

}  // namespace aeshna
