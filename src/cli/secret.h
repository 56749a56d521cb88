#pragma once
#include <string>
#include <string_view>

namespace aeshna::cli {

/// A token or key, as the file that an option names holds it: its text without the spaces and lines around it. What is in it gets into no message.
/// Error(InvalidArgument) naming option and file if there is none; those of read_file, for 4096 bytes at most.
std::string read_secret(std::string_view option, const std::string& file);

}  // namespace aeshna::cli
