#pragma once
#include <string>

namespace aeshna {

/// docs/ops.md: one row for each record of the table.
std::string ops_markdown();

}  // namespace aeshna
