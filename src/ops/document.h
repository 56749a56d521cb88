#pragma once
#include <string>

namespace aeshna {

/// docs/ops.md, up to what was measured: one row for each record of the table.
std::string ops_markdown();

}  // namespace aeshna
