#include "base/format.h"

namespace aeshna {

std::string vformatted(std::string_view format, std::format_args arguments) { return std::vformat(format, arguments); }

}  // namespace aeshna
