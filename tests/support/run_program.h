#pragma once
// Runs a program, the CLI unless another is named, as a shell would.
#ifndef _WIN32
#include <filesystem>
#include <string>
#include <vector>

#include "support/expect_error.h"  // EXPECT_HAS

namespace aeshna::test {

struct ProgramResult {
  int status = -1;  ///< exit status; negative: the signal that ended it
  std::string out, err;
};

/// In `folder`. When `stop_at` appears on stdout, SIGINT is sent.
ProgramResult run_program(std::vector<std::string> arguments,
                          const std::filesystem::path& folder = std::filesystem::temp_directory_path(),
                          const std::string& stop_at = "", const std::filesystem::path& program = AESHNA_CLI);

}  // namespace aeshna::test
#endif
