#include "cli/text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdio>

#ifdef _WIN32
#include <io.h>
#else
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/format.h"
#endif

namespace aeshna::cli {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool stdout_is_terminal() {
#ifdef _WIN32
  return _isatty(_fileno(stdout)) != 0;
#else
  return ::isatty(STDOUT_FILENO) != 0;
#endif
}

std::size_t terminal_width() {
#ifndef _WIN32
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
#endif
  return 80;
}

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t length = code_points(text);
  return length < width ? text + std::string(width - length, ' ') : text;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return formatted("{} B", bytes);
  constexpr std::array<std::string_view, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return formatted("{:.1f} {}", value, units[unit]);
}

std::string format_count(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::int64_t i = static_cast<std::int64_t>(text.size()) - 3; i > (count < 0 ? 1 : 0); i -= 3)
    text.insert(static_cast<std::size_t>(i), 1, ',');
  return text;
}

std::string format_seconds(double seconds) {
  if (seconds < 9.995 && seconds != std::floor(seconds)) return formatted("{:.2f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return formatted("{} s", whole);
  if (whole < 3600) return formatted("{} min {:02} s", whole / 60, whole % 60);
  return formatted("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 32 && c != '\n' && c != '\t') || byte == 127) c = '?';
  }
  return text;
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], code_points(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += padded(row[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string format_confusion(std::span<const std::int64_t> counts, std::int64_t classes) {
  const auto at = [&](std::int64_t truth, std::int64_t guess) {
    return counts[static_cast<std::size_t>(truth * classes + guess)];
  };
  std::size_t width = 3;
  for (const std::int64_t count : counts) width = std::max(width, std::to_string(count).size());
  std::string text = "truth \\ predicted\n     ";
  for (std::int64_t c = 0; c < classes; ++c) text += formatted(" {:>{}}", c, width);
  text += "    right\n";
  for (std::int64_t truth = 0; truth < classes; ++truth) {
    std::int64_t total = 0;
    text += formatted("  {:>3}", truth);
    for (std::int64_t guess = 0; guess < classes; ++guess) {
      total += at(truth, guess);
      text += formatted(" {:>{}}", at(truth, guess) == 0 ? "." : std::to_string(at(truth, guess)), width);
    }
    text += total == 0 ? std::string("        -\n")
                       : formatted("  {:5.1f} %\n",
                                   100.0 * static_cast<double>(at(truth, truth)) / static_cast<double>(total));
  }
  return text;
}

bool utf8_locale() {
#ifdef _WIN32
  return false;
#else
  std::setlocale(LC_CTYPE, "");
  return std::string_view(nl_langinfo(CODESET)) == "UTF-8";
#endif
}

std::string format_pictures(std::span<const Picture> pictures, std::int64_t height, std::int64_t width, bool utf8) {
  static constexpr std::array<std::string_view, 5> blocks = {" ", "░", "▒", "▓", "█"};
  static constexpr std::array<std::string_view, 10> letters = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"};
  const std::span<const std::string_view> shades = utf8 ? std::span<const std::string_view>(blocks) : letters;
  // A character is about twice as high as wide: small pictures take two characters per pixel, large ones a row for two lines.
  const std::int64_t repeat = width <= 14 ? 2 : 1, rows_per_line = 3 - repeat;
  std::string text;
  for (std::int64_t top = 0; top < height; top += rows_per_line) {
    std::string line;
    for (const Picture& picture : pictures) {
      line += "  ";
      for (std::int64_t x = 0; x < width; ++x) {
        float ink = 0;
        const std::int64_t bottom = std::min(top + rows_per_line, height);
        for (std::int64_t y = top; y < bottom; ++y) ink += picture.pixels[static_cast<std::size_t>(y * width + x)];
        ink = std::clamp(ink / static_cast<float>(bottom - top), 0.0f, 1.0f);
        const auto shade = static_cast<std::size_t>(std::lround(ink * static_cast<float>(shades.size() - 1)));
        for (std::int64_t i = 0; i < repeat; ++i) line += shades[shade];
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  std::string captions;
  for (const Picture& picture : pictures)
    captions += "  " + padded(picture.caption, static_cast<std::size_t>(width * repeat));
  captions.erase(captions.find_last_not_of(' ') + 1);
  return text + captions + '\n';
}

ProgressLine::ProgressLine(bool enabled) : live_(enabled && stdout_is_terminal()) {}

bool ProgressLine::due() const { return live_ && now() - last_ >= 0.1; }

void ProgressLine::show(std::string_view line) {
  if (!due()) return;
  last_ = now();
  shown_ = true;
  std::printf("\r%.*s\x1b[K", static_cast<int>(std::min(line.size(), terminal_width() - 1)), line.data());
  std::fflush(stdout);
}

void ProgressLine::clear() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\x1b[K", stdout);
  std::fflush(stdout);
}

}  // namespace aeshna::cli
