#pragma once
#include <format>
#include <string_view>

namespace aeshna {

enum class LogLevel { Error, Warning, Info, Debug };
/// One line on stderr when AESHNA_LOG allows the level. Thread-safe.
void log_line(LogLevel level, std::string_view text);
template <class... Args>
void log(LogLevel level, std::format_string<Args...> format, Args&&... args) {
  log_line(level, std::format(format, std::forward<Args>(args)...));
}

}  // namespace aeshna
