#pragma once
// A report as blocks, which become Markdown or one HTML page.
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::bench {

/// Rows of a table as lines of text, to be built like any text: cells are separated by kNext, and one that begins with kBold
/// is bold. What comes from a file must go through plain().
inline constexpr char kNext = '\t', kBold = '\1';
/// Without control characters.
std::string plain(std::string text);

class Page {
 public:
  void heading(int level, std::string text) { blocks_.push_back({Kind::Heading, level, std::move(text), {}, {}}); }
  void paragraph(std::string text) { blocks_.push_back({Kind::Paragraph, 0, std::move(text), {}, {}}); }
  /// The first row is the heading. The first `labels` columns are text, the others numbers.
  void table(std::vector<std::string> rows, int labels) {
    blocks_.push_back({Kind::Table, labels, {}, std::move(rows), {}});
  }
  void list(std::vector<std::string> items) {
    if (!items.empty()) blocks_.push_back({Kind::List, 0, {}, std::move(items), {}});
  }
  /// HTML holds the picture, Markdown its file.
  void figure(std::string svg, std::string file, std::string caption) {
    blocks_.push_back({Kind::Figure, 0, std::move(caption), {std::move(file)}, std::move(svg)});
  }

  std::string markdown() const;
  /// Complete and self-contained. The title is the first heading.
  std::string html() const;

 private:
  enum class Kind { Heading, Paragraph, Table, List, Figure };
  struct Block {
    Kind kind;
    int number;                      ///< level of a heading, columns of text of a table
    std::string text;                ///< of a figure: the caption
    std::vector<std::string> lines;  ///< of a table or list; of a figure: its file
    std::string svg;
  };
  std::vector<Block> blocks_;
};

}  // namespace aeshna::bench
