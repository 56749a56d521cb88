#pragma once
#include <filesystem>

namespace aeshna {

/// Makes a folder, and those that it is in, unless it is there. Error(Io) naming it and the system's reason.
void make_folder(const std::filesystem::path& path);

}  // namespace aeshna
