#include "bench/page.h"

#include <algorithm>

#include "base/format.h"
#include "io/xml.h"

namespace aeshna::bench {
namespace {

/// Calls f(cell, bold) for each cell of a row.
template <class F>
void for_each_cell(std::string_view row, F&& f) {
  for (std::size_t begin = 0, end = 0; end != row.npos; begin = end + 1) {
    end = row.find(kNext, begin);
    std::string_view cell = row.substr(begin, end == row.npos ? end : end - begin);
    const bool bold = cell.starts_with(kBold);
    if (bold) cell.remove_prefix(1);
    f(cell, bold);
  }
}

/// Characters that Markdown would take for its own; names from files may hold any.
std::string markdown_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\`*_|<>[]#~").find(c) != std::string_view::npos) result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

constexpr std::string_view kStyle = R"(
:root{color-scheme:light}
body{margin:0 auto;max-width:70rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.3rem;margin-top:2.5rem;border-bottom:1px solid #d0d7de}
h3{font-size:1.1rem;margin-top:2rem}h4{font-size:1rem;margin-bottom:.3rem}
.wide{overflow-x:auto}figure{margin:1rem 0}figure svg{min-width:40rem;width:100%;height:auto}
figcaption,li{font-size:.9rem}li{overflow-wrap:anywhere}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid #d0d7de;text-align:left;vertical-align:top}
th{background:#f3f5f7}td.n,th.n{text-align:right;white-space:nowrap}tr:hover td{background:#f8fafc}
)";

}  // namespace

std::string plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

std::string Page::markdown() const {
  std::string text;
  for (const Block& block : blocks_) {
    if (!text.empty()) text += '\n';
    switch (block.kind) {
      case Kind::Heading:
        text += std::string(static_cast<std::size_t>(block.number), '#') + ' ' + markdown_escaped(block.text) + '\n';
        break;
      case Kind::Paragraph:
        text += markdown_escaped(block.text) + '\n';
        break;
      case Kind::Figure:
        text += formatted("![{}]({})\n", markdown_escaped(block.text), block.lines[0]);
        break;
      case Kind::List:
        for (const std::string& item : block.lines) text += "- " + markdown_escaped(item) + '\n';
        break;
      case Kind::Table:
        for (const std::string& row : block.lines) {
          int columns = 0;
          for_each_cell(row, [&](std::string_view cell, bool bold) {
            const std::string_view mark = bold ? "**" : "";
            text += formatted("| {}{}{} ", mark, markdown_escaped(cell), mark);
            ++columns;
          });
          text += "|\n";
          if (&row != &block.lines[0]) continue;
          for (int i = 0; i < columns; ++i) text += i < block.number ? "|---" : "|--:";
          text += "|\n";
        }
    }
  }
  return text;
}

std::string Page::html() const {
  const auto title = std::ranges::find(blocks_, Kind::Heading, &Block::kind);
  std::string text = formatted(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>{}</title>\n<style>{}</style>\n"
      "</head>\n<body>\n",
      title == blocks_.end() ? "" : xml_escaped(title->text), kStyle);
  for (const Block& block : blocks_) {
    switch (block.kind) {
      case Kind::Heading:
        text += formatted("<h{0}>{1}</h{0}>\n", block.number, xml_escaped(block.text));
        break;
      case Kind::Paragraph:
        text += formatted("<p>{}</p>\n", xml_escaped(block.text));
        break;
      case Kind::Figure:
        text += formatted("<figure>\n<div class=\"wide\">\n{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
                          block.svg, xml_escaped(block.text));
        break;
      case Kind::List:
        text += "<ul>\n";
        for (const std::string& item : block.lines) text += formatted("<li>{}</li>\n", xml_escaped(item));
        text += "</ul>\n";
        break;
      case Kind::Table:
        text += "<div class=\"wide\">\n<table>\n";
        for (const std::string& row : block.lines) {
          const std::string_view tag = &row == &block.lines[0] ? "th" : "td";
          int column = 0;
          text += "<tr>";
          for_each_cell(row, [&](std::string_view cell, bool bold) {
            text += formatted("<{0}{1}>{2}{3}{4}</{0}>", tag, column++ < block.number ? "" : " class=\"n\"",
                              bold ? "<strong>" : "", xml_escaped(cell), bold ? "</strong>" : "");
          });
          text += "</tr>\n";
        }
        text += "</table>\n</div>\n";
    }
  }
  return text + "</body>\n</html>\n";
}

}  // namespace aeshna::bench
