#include "base/log.h"

#include <array>
#include <cstdio>
#include <string>

#include "aeshna/error.h"
#include "base/env.h"

namespace aeshna {

namespace {
/// A log line must never throw: a malformed AESHNA_LOG is reported once and counts as the default.
int allowed_level() {
  try {
    return env_log_level();
  } catch (const Error& error) {
    std::fprintf(stderr, "aeshna error: %s\n", error.what());
    return static_cast<int>(LogLevel::Warning);
  }
}
}  // namespace

void log_line(LogLevel level, std::string_view text) {
  static const int allowed = allowed_level();  // read once: a line must not change its meaning half-way through a run
  if (static_cast<int>(level) > allowed) return;
  constexpr std::array<std::string_view, 4> kNames = {"error", "warning", "info", "debug"};
  std::string line = "aeshna ";
  line.append(kNames.at(static_cast<std::size_t>(level))).append(": ").append(text).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call, so that lines of threads do not mix
}

}  // namespace aeshna
