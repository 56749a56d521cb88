#pragma once
#include "io/gguf.h"
#include "nn/tokenizer/spec.h"

namespace aeshna {

/// From the keys "tokenizer.ggml.*", as Tokenizer::from_gguf says.
TokenizerSpec tokenizer_of_gguf(const GgufFile& file);
/// From a tokenizer.json, as Tokenizer::from_json says. Such a file does not say which tokens begin and end a text.
TokenizerSpec tokenizer_of_json(const std::filesystem::path& file);
TokenizerSpec tokenizer_of_json(std::string_view text, std::string name);

}  // namespace aeshna
