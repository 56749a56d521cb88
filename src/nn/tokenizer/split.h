#pragma once
// Pre-tokenizers: text is cut into pieces, and no token reaches over a cut. They are written as regular expressions where they are
// published; here each is a scanner that finds what its expression would find.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unicode.h"

namespace aeshna {

enum class SplitRule : std::uint8_t {
  Gpt2,  ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,  ///< (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  Qwen2,         ///< the same with \p{N} alone
  Digits,        ///< each \p{N} alone
  DigitRuns,     ///< \p{N}+
  DigitTriples,  ///< [0-9][0-9][0-9]
  Punctuation,   ///< [\p{P}$+<=>^~|]+
  SpaceMark,     ///< before each U+2581
};

/// Valid UTF-8 with the class of each code point.
struct ScannedText {
  explicit ScannedText(std::string_view text);
  std::string_view piece(std::size_t begin, std::size_t end) const {
    return text.substr(at[begin], at[end] - at[begin]);
  }
  std::string_view text;
  std::vector<char32_t> codes;
  std::vector<CodeClass> classes;
  std::vector<std::size_t> at;  ///< byte offset of each code point, and the end
};

/// The pieces of a text, in order; together they are the text.
std::vector<std::string_view> split_text(std::string_view text, const std::vector<SplitRule>& splits);

}  // namespace aeshna
