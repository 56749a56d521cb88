#pragma once
// The options of commands that generate text: generate, chat, serve.
#include <CLI/CLI.hpp>

#include "aeshna/generate.h"

namespace aeshna::cli {

/// What MODEL is.
inline constexpr const char* kLanguageModel =
    "A GGUF file, or a folder with config.json, safetensors and tokenizer.json";

/// What a command starts with is its default and is shown by --help.
void add_generator_options(CLI::App& command, GeneratorOptions& options);  ///< --context, --chunk
void add_sampling_options(CLI::App& command, SamplingOptions& options);    ///< --temperature, --top-k, ...; no seed
void add_answer_options(CLI::App& command, SamplingOptions& sampling,
                        GenerateOptions& options);  ///< --max-tokens, --stop, --seed

/// Wrong arguments if one of them is out of its range.
void check_options(const SamplingOptions& options);

}  // namespace aeshna::cli
