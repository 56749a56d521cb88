#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "aeshna/llama.h"
#include "nn/tokenizer/spec.h"

namespace aeshna {

/// Writes a model of models::llama as a GGUF file that LanguageModel::load_gguf and other programs read; the architecture is "llama".
/// `weight` gives the value of a parameter, of the type that the graph has; it is called once for each. Errors: Unsupported
/// for what this architecture of GGUF cannot say (parts of other families, halves rotated instead of neighbours, sliding windows, scaled
/// positions) and for tokenizers that are not GPT-2's byte-level BPE; InvalidArgument for a tokenizer of another size; those of write_gguf.
void save_gguf(const std::filesystem::path& path, std::string_view name, const models::LlamaConfig& config,
               const TokenizerSpec& tokenizer, const std::function<Literal(const std::string& parameter)>& weight);

}  // namespace aeshna
