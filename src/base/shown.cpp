#include "base/shown.h"

namespace aeshna {

std::string shown(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  return line;
}

}  // namespace aeshna
