#pragma once
// Text to the token ids of a language model, and back. See docs/models.md.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna {

struct TokenizerSpec;

struct EncodeOptions {
  bool special =
      false;  ///< the text of a control token ("<|im_end|>") stands for the token; else it is text like any other
  bool add_special = true;  ///< the ids that the model wants before and after (often the beginning of the sequence)
};

/// A piece of a text; `special`: the text of a control token in it stands for the token.
struct TextPart {
  std::string text;
  bool special = false;
};

/// A vocabulary with the rules that cut text into it: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2), SentencePiece's BPE with byte
/// fallback (Llama 2, Mistral, Gemma, Phi 3) and unigram. Immutable; copies share it. Threads may share it.
class Tokenizer {
 public:
  /// From the metadata "tokenizer.ggml.*" of a GGUF file. Error(Unsupported) names a model or a pre-tokenizer that Aeshna lacks,
  /// Error(CorruptFile) what is missing or inconsistent.
  static Tokenizer from_gguf(const std::filesystem::path& file);
  /// From Hugging Face's tokenizer.json; what it holds and Aeshna lacks is refused by name.
  static Tokenizer from_json(const std::filesystem::path& file);
  explicit Tokenizer(TokenizerSpec spec);

  /// Any bytes: what is not UTF-8 counts as U+FFFD. Tokens that were added by a user (not control tokens) are always found in the text.
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The parts as one text, in which control tokens are found only inside special parts.
  std::vector<std::int32_t> encode(std::span<const TextPart> parts, bool add_special = true) const;
  /// UTF-8; what is not becomes U+FFFD. Control tokens are left out unless `special`. Error(OutOfRange) for an id outside.
  std::string decode(std::span<const std::int32_t> ids, bool special = false) const;

  std::int64_t size() const;
  /// The id of a token by its text: of added tokens as written, of others as they lie in the vocabulary, byte-level ones as bytes.
  std::optional<std::int32_t> find(std::string_view token) const;
  /// The bytes that a token stands for in a text, a control token's name included.
  std::string bytes(std::int32_t id) const;
  bool is_control(std::int32_t id) const;
  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  /// Tokens that end a turn or a text: eos, and the end of a turn under its known names.
  std::span<const std::int32_t> ends() const;
  /// The same with other such tokens, as a model's generation settings give them.
  Tokenizer with_ends(std::vector<std::int32_t> ends) const;

 private:
  friend class TextStream;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Decodes one id at a time: text comes out as soon as its last byte has come, and together it is what decode() gives.
class TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer, bool special = false)
      : tokenizer_(std::move(tokenizer)), special_(special) {}
  std::string push(std::int32_t id);
  /// What is left: the start of a sequence that was never completed, as U+FFFD.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool special_, started_ = false;
  std::string pending_;
};

}  // namespace aeshna
