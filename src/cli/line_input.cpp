#include "cli/line_input.h"

#include <cstdio>
#include <iostream>

#ifdef _WIN32
#include <io.h>
#else
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fail.h"
#endif

namespace aeshna::cli {

#ifdef _WIN32

bool LineInput::is_terminal() { return _isatty(_fileno(stdin)) != 0 && _isatty(_fileno(stdout)) != 0; }

LineInput::Event LineInput::next(std::string& line, const std::function<bool()>&) {
  if (!std::getline(std::cin, line)) return Event::End;
  if (line.ends_with('\r')) line.pop_back();
  return Event::Line;
}

#else

bool LineInput::is_terminal() { return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0; }

LineInput::Event LineInput::next(std::string& line, const std::function<bool()>& interrupted) {
  while (true) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos || (ended_ && !pending_.empty())) {
      line = pending_.substr(0, end);
      pending_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return Event::Line;
    }
    if (ended_) return Event::End;
    // A signal that comes just before the wait is seen after it.
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, 200);
    if (interrupted()) return Event::Interrupted;
    if (ready <= 0) continue;
    std::array<char, 4096> block;
    const ssize_t count = ::read(STDIN_FILENO, block.data(), block.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail(ErrorCode::Io, "standard input: {}", std::strerror(errno));
    if (count == 0) ended_ = true;
    if (count > 0) pending_.append(block.data(), static_cast<std::size_t>(count));
  }
}

#endif

}  // namespace aeshna::cli
