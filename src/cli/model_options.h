#pragma once
// The options of commands that import a model.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "aeshna/import.h"

namespace aeshna::cli {

struct ModelOptions {
  std::vector<std::string> shapes, binds;
  bool f64_as_f32 = false;
  void add_to(CLI::App& command);
  ImportOptions parsed() const;  ///< Error(InvalidArgument) that names the option
};

}  // namespace aeshna::cli
