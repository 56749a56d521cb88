#include "base/make_folder.h"

#include <system_error>

#include "base/fail.h"

namespace aeshna {

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(ErrorCode::Io, "{}: the folder cannot be made: {}", path.string(), error.message());
}

}  // namespace aeshna
