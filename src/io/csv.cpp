#include "io/csv.h"

#include <charconv>
#include <cmath>
#include <string>

#include "base/fail.h"

namespace aeshna {
namespace {

/// A field as it may stand in a message: short and printable.
std::string quoted(std::string_view field) {
  std::string text = "'";
  for (const char c : field.substr(0, 24)) text += c >= ' ' && c < 0x7f ? c : '?';
  return text + (field.size() > 24 ? "...'" : "'");
}

}  // namespace

NumberTable parse_number_csv(std::string_view text, std::int64_t columns, std::string_view name) {
  if (columns < 1) fail(ErrorCode::InvalidArgument, "{}: a table needs at least one column, not {}", name, columns);
  NumberTable table;
  table.columns = columns;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::int64_t line_number = table.rows + 1;
    if (line.empty()) fail(ErrorCode::CorruptFile, "{}: line {}: empty line", name, line_number);

    std::int64_t column = 0;
    for (bool more = true; more;) {
      const std::size_t comma = line.find(',');
      std::string_view field = line.substr(0, comma);
      more = comma != std::string_view::npos;
      line.remove_prefix(more ? comma + 1 : line.size());
      if (++column > columns) {
        fail(ErrorCode::CorruptFile, "{}: line {}: more than {} columns", name, line_number, columns);
      }
      double value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
        fail(ErrorCode::CorruptFile, "{}: line {}, column {}: expected a number, found {}", name, line_number, column,
             quoted(field));
      }
      table.values.push_back(value);
    }
    if (column != columns) {
      fail(ErrorCode::CorruptFile, "{}: line {}: expected {} columns, found {}", name, line_number, columns, column);
    }
    ++table.rows;
  }
  return table;
}

}  // namespace aeshna
