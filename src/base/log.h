#pragma once
#include <string_view>

#include "base/format.h"

namespace aeshna {

enum class LogLevel { Error, Warning, Info, Debug };
/// One line on stderr when AESHNA_LOG allows the level. Thread-safe.
void log_line(LogLevel level, std::string_view text);
template <class... Args>
void log(LogLevel level, std::format_string<Args...> format, Args&&... args) {
  log_line(level, formatted(format, std::forward<Args>(args)...));
}

}  // namespace aeshna
