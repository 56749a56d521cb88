#pragma once
// std::format, compiled once: GCC and clang build the whole formatter anew in every file that calls it, which costs
// more than a second of each (half of the time of most files here).
#include <format>
#include <string>
#include <string_view>

namespace aeshna {

/// std::vformat, out of line. std::format_error if `format` does not fit `arguments`.
std::string vformatted(std::string_view format, std::format_args arguments);

/// What std::format gives; the format string is checked when compiling, as there.
template <class... Args>
std::string formatted(std::format_string<Args...> format, Args&&... args) {
  return vformatted(format.get(), std::make_format_args(args...));
}

}  // namespace aeshna
