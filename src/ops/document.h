#pragma once
#include <string>

namespace aeshna {

/// docs/ops.md: one row for each record of the table.
std::string ops_markdown();
/// What follows on the page is of the machines that it was measured on.
inline constexpr const char* kMeasuredErrorsHeading = "## Measured errors";

}  // namespace aeshna
