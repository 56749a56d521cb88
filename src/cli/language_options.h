#pragma once
// The options of commands that generate text: generate, chat, serve.
#include <CLI/CLI.hpp>
#include <string>

#include "aeshna/generate.h"

namespace aeshna::cli {

/// What a command starts with is its default and is shown by --help.
void add_model_argument(CLI::App& command, std::string& path);
void add_generator_options(CLI::App& command, GeneratorOptions& options);  ///< --context, --chunk
void add_sampling_options(CLI::App& command, SamplingOptions& options);    ///< --temperature, --top-k, ...; no seed
void add_answer_options(CLI::App& command, SamplingOptions& sampling,
                        GenerateOptions& options);  ///< --max-tokens, --stop, --seed

/// A GGUF file or a folder of Hugging Face.
LanguageModel open_language_model(const std::string& path);

}  // namespace aeshna::cli
