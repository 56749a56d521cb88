#pragma once
// Tables of numbers in comma-separated text.
#include <cstdint>
#include <string_view>
#include <vector>

namespace aeshna {

struct NumberTable {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;  ///< row-major
  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

/// Every line has `columns` finite decimal numbers separated by commas; no header, no quotes, no empty line; lines end in \n or
/// \r\n. Anything else is Error(CorruptFile) naming file, line and column (both from 1).
NumberTable parse_number_csv(std::string_view text, std::int64_t columns, std::string_view name);

}  // namespace aeshna
