#pragma once
#include <string>
#include <string_view>

namespace aeshna {

/// Text for XML and HTML, also within double quotes. Characters that XML does not have become spaces.
std::string xml_escaped(std::string_view text);

}  // namespace aeshna
