#pragma once
// A tokenizer as plain data: what the loaders fill in and Tokenizer works from.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/tokenizer/split.h"

namespace aeshna {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  ///< U+2581, what SentencePiece writes for a space

struct Token {
  enum class Kind : std::uint8_t {
    Normal,
    Control,  ///< special: left out of decoded text, found in text only on request
    Added,    ///< found in any text, before everything else
    Byte,     ///< "<0x0A>": one byte
    Unknown,
  };
  std::string text = {};  ///< byte-level: the bytes; else as in the vocabulary, with kSpaceMark
  Kind kind = Kind::Normal;
  float score = 0;
  bool strip_left = false, strip_right = false;  ///< Control and Added: takes the white space beside it
};

struct TokenizerSpec {
  enum class Model : std::uint8_t {
    ByteBpe,    ///< merges of byte strings, by rank
    CharBpe,    ///< merges of characters, by rank
    ScoredBpe,  ///< two neighbours merge if the vocabulary has them joined; the highest score first (SentencePiece)
    Unigram,    ///< the cut with the highest sum of scores
  };
  /// Whether a space goes before the text (First) or before each part between added tokens (Always).
  enum class Prefix : std::uint8_t { Never, First, Always };

  std::string name;  ///< of the file, for messages
  Model model = Model::ByteBpe;
  std::vector<Token> tokens;                       ///< by id
  std::vector<std::array<std::string, 2>> merges;  ///< in order of rank; texts as in `tokens`
  std::vector<SplitRule> splits;                   ///< one after the other
  bool nfc = false;
  bool space_mark = false;  ///< spaces are written as kSpaceMark
  Prefix prefix = Prefix::Never;
  bool prefix_if_missing = false;  ///< no prefix where the text starts with a space
  bool strip_space = false;        ///< decode() drops a space at the start
  bool whole_words = false;        ///< a piece that is a token is not cut (Llama 3's ignore_merges)
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<std::int32_t> unknown, bos, eos;
  std::vector<std::int32_t> before, after;  ///< with EncodeOptions::add_special
  std::vector<std::int32_t> ends;
};

/// The byte of a token "<0x0A>"; nullopt: it is none.
std::optional<std::uint8_t> byte_of_token(std::string_view text);

/// A token of a byte-level vocabulary as bytes: GPT-2 writes each byte as a printable character. nullopt if it has others.
std::optional<std::string> bytes_of_byte_level(std::string_view text);
/// The other way round.
std::string byte_level_of_bytes(std::string_view bytes);

/// Adds the control tokens that end a turn in the known chat formats to `ends`.
void add_known_ends(TokenizerSpec& spec);

}  // namespace aeshna
