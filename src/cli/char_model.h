#pragma once
// The character-level Llama of `aeshna train chars`, and the text that it learns.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/llama.h"
#include "nn/tokenizer/spec.h"

namespace aeshna::cli {

/// A small Llama over `vocabulary` tokens, such that a GGUF file can hold it.
models::LlamaConfig char_config(std::int64_t vocabulary, std::int64_t window, std::int64_t width, std::int64_t layers,
                                std::int64_t heads);

/// Inputs "ids" and "next" i32[batch, window]; output "loss".
void build_char_training(Graph& graph, const models::LlamaConfig& config, std::int64_t batch);

/// The bytes that occur in a text, numbered in order, and behind them a token for all others, which no text has.
class Vocabulary {
 public:
  explicit Vocabulary(std::span<const std::byte> text);
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// Tokens: one more than bytes().
  std::int64_t size() const { return bytes() + 1; }
  /// Error(InvalidArgument) naming the byte and `what` it is in if the vocabulary lacks it.
  std::vector<std::int32_t> encode(std::span<const std::byte> text, std::string_view what) const;
  std::string to_hex() const;
  /// Byte-level BPE without merges; the last token, "<|endoftext|>", is GPT-2's for the ends of a text and for what is unknown.
  TokenizerSpec tokenizer() const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> ids_;  ///< per byte; -1: not in the text
};

/// -log softmax(logits)[id]
double surprise(std::span<const float> logits, std::int32_t id);

}  // namespace aeshna::cli
