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

/// A folder of Hugging Face, or a GGUF file.
LanguageModel open_language_model(const std::filesystem::path& path);

}  // namespace aeshna::cli
