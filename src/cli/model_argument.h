#pragma once
// MODEL, as every command takes it: a path, or with --hub a name on the hub.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "aeshna/language_model.h"
#include "cli/command.h"

namespace aeshna::cli {

struct ModelArgument {
  std::string name;

  /// The positional argument `metavar`, described by `help`, and the options --hub, --hub-url, --token-file and --offline.
  void add_to(CLI::App& command, const std::string& metavar, const std::string& help);
  /// Where the model lies. With --hub it is downloaded unless it is in the cache, with progress on a terminal and a line on stderr for
  /// what people should know. Error(InvalidArgument) for options without --hub; those of fetch_model().
  std::filesystem::path path(const Globals& globals) const;

 private:
  bool hub_ = false, offline_ = false;
  std::string url_, token_file_;
};

/// MODEL of a command that writes text, and --adapter.
struct LanguageModelArgument : ModelArgument {
  std::string adapter;

  void add_to(CLI::App& command);
  /// What lies at path(), with the adapter.
  LanguageModel open(const std::filesystem::path& path) const;
};

}  // namespace aeshna::cli
