#pragma once
// Text for people: sizes, durations, tables, pictures, the progress line.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::cli {

std::string format_bytes(std::uint64_t bytes);   ///< "512 B", "1.5 KiB", "80.0 GiB"
std::string format_count(std::int64_t count);    ///< "17,226"
std::string format_seconds(double seconds);      ///< "0.21 s", "12 s", "3 min 05 s"

/// The text with '?' for control characters, which would be commands to a terminal; line breaks and tabs stay.
std::string printable(std::string text);

/// Columns padded to their widest cell; the first row is the heading. Ends in a newline. Widths count code points.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// Counts [classes x classes], rows the truth, with the share of right answers per row.
std::string format_confusion(std::span<const std::int64_t> counts, std::int64_t classes);

/// Whether the terminal takes UTF-8, by the locale.
bool utf8_locale();

struct Picture {
  std::span<const float> pixels;  ///< height x width, 0 (empty) to 1 (ink)
  std::string caption;
};
/// Pictures beside each other with their captions below, in five or ten shades.
std::string format_pictures(std::span<const Picture> pictures, std::int64_t height, std::int64_t width, bool utf8);

/// One line on stdout that is rewritten in place on a terminal, at most ten times a second; elsewhere nothing is shown.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  bool live() const { return live_; }
  bool due() const;  ///< whether show() would be seen
  void show(std::string_view line);
  void clear();

 private:
  bool live_;
  bool shown_ = false;
  double last_ = 0;
};

}  // namespace aeshna::cli
