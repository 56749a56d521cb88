#pragma once
#include <string>
#include <string_view>

namespace aeshna {

/// A stranger's text for a line of a message: its first `most` bytes, with '?' for all that is not printable ASCII.
std::string shown(std::string_view text, std::size_t most);

}  // namespace aeshna
