// The figure of ratios: a panel for each section, a row for each cell, a mark for each contract.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"
#include "bench/report.h"
#include "io/xml.h"

namespace aeshna::bench {
namespace {

constexpr double kWidth = 900, kLeft = 170, kRight = 700, kRow = 22, kHead = 64, kFoot = 46, kLegend = 34;
constexpr std::array<std::string_view, 2> kColours = {"#0b5cad", "#b3541e"};  // of the contracts
constexpr std::array<double, 2> kColumns = {kWidth - 110, kWidth - 8};        // where their numbers end

struct Row {
  std::string workload;
  std::size_t phase = 0;
  std::array<std::optional<double>, 2> ratios;  ///< by contract
};

std::vector<Row> rows_of(const Section& section) {
  std::map<CellId, Row> rows;
  for (const auto& [id, cell] : section.cells) {
    CellId key = id;
    key.contract = 0;
    Row& row = rows[key];
    row.workload = id.workload;
    row.phase = id.phase;
    row.ratios[id.contract] = cell.ratio();
  }
  std::vector<Row> result;
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return result;
}

class Figure {
 public:
  explicit Figure(const std::vector<Section>& sections) {
    double most = 1;  // of |log2|
    for (const Section& section : sections) {
      for (const auto& [id, cell] : section.cells) {
        if (const auto ratio = cell.ratio()) most = std::max(most, std::abs(std::log2(*ratio)));
      }
    }
    half_ = std::ceil(most);
    double y = 4;
    for (const Section& section : sections) y = panel(section, y);
    height_ = y;
  }

  std::string svg() const {
    return formatted(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\" "
               "fill=\"#1b1f24\">\n"
               "<title>Time of Aeshna over time of PyTorch</title>\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
               kWidth, height_) +
           body_ + "</svg>\n";
  }

 private:
  double x(double ratio) const { return kLeft + (std::log2(ratio) / half_ + 1) / 2 * (kRight - kLeft); }

  void text(double at, double y, std::string_view anchor, std::string_view content, std::string_view extra = "") {
    body_ += formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", at, y, anchor, extra,
                       xml_escaped(content));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    body_ += formatted("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
  }
  void mark(double at, double y, std::size_t contract) {
    body_ += contract == 0
                 ? formatted("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", at, y, kColours[0])
                 : formatted("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"9\" height=\"9\" fill=\"{}\"/>\n", at - 4.5,
                             y - 4.5, kColours[1]);
  }

  /// Returns where it ends.
  double panel(const Section& section, double top) {
    const std::vector<Row> rows = rows_of(section);
    const double first = top + kHead, bottom = first + kRow * static_cast<double>(rows.size());
    text(kLeft, top + 20, "start", section_title(section), " font-size=\"16\" font-weight=\"600\"");
    text(x(1) - 10, top + 44, "end", "\u2190 Aeshna faster", " fill=\"#1a6b34\"");
    text(x(1) + 10, top + 44, "start", "PyTorch faster \u2192", " fill=\"#8a2d2d\"");
    for (std::size_t contract = 0; contract < 2; ++contract) {
      text(kColumns[contract], top + 44, "end", kContracts[contract], formatted(" fill=\"{}\"", kColours[contract]));
      mark(kColumns[contract] - 5, top + 22, contract);
    }
    for (double power = -half_; power <= half_; ++power) {
      const double ratio = std::exp2(power);
      if (power == 0) {
        line(x(1), first - 10, x(1), bottom + 4, "class=\"parity\" stroke=\"#1b1f24\" stroke-width=\"2\"");
      } else {
        line(x(ratio), first - 6, x(ratio), bottom + 4, "stroke=\"#d0d7de\"");
      }
      text(x(ratio), bottom + 20, "middle", formatted("{:g}", ratio));
    }
    text((kLeft + kRight) / 2, bottom + 38, "middle",
         "time of Aeshna / time of the fastest PyTorch mode (logarithmic)");
    double y = first + kRow / 2;
    for (std::size_t i = 0; i < rows.size(); ++i, y += kRow) {
      const Row& row = rows[i];
      if (i == 0 || rows[i - 1].workload != row.workload) {
        if (i > 0) line(8, y - kRow / 2, kWidth - 6, y - kRow / 2, "stroke=\"#e4e8ec\"");
        text(8, y + 4, "start", row.workload, " font-weight=\"600\"");
      }
      text(kLeft - 10, y + 4, "end", kPhases[row.phase]);
      for (std::size_t contract = 0; contract < 2; ++contract) {
        const std::optional<double> ratio = row.ratios[contract];
        text(kColumns[contract], y + 4, "end", ratio ? formatted("{:.2f}", *ratio) : "\u2013",
             ratio && *ratio < 1 ? " font-weight=\"700\"" : "");
        if (!ratio) continue;
        const double at = y + (contract == 0 ? -4 : 4);
        line(x(1), at, x(*ratio), at, formatted("stroke=\"{}\" stroke-width=\"2\"", kColours[contract]));
        mark(x(*ratio), at, contract);
      }
    }
    return bottom + kFoot + kLegend / 2;
  }

  double half_ = 1, height_ = 0;
  std::string body_;
};

}  // namespace

std::string ratio_plot(const std::vector<Section>& sections) { return Figure(sections).svg(); }

}  // namespace aeshna::bench
