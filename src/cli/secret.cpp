#include "cli/secret.h"

#include "base/byte_reader.h"
#include "base/fail.h"

namespace aeshna::cli {

std::string read_secret(std::string_view option, const std::string& file) {
  const std::vector<std::byte> bytes = read_file(file, 4096);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view spaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos) fail(ErrorCode::InvalidArgument, "{} {}: the file is empty", option, file);
  return std::string(text.substr(begin, text.find_last_not_of(spaces) + 1 - begin));
}

}  // namespace aeshna::cli
