#pragma once
// As much of Unicode as tokenizers need: UTF-8, classes of code points, canonical composition.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aeshna {

inline constexpr char32_t kReplacement = 0xFFFD;

struct Utf8Code {
  char32_t code = kReplacement;
  std::uint8_t bytes = 1;  ///< that it takes in the text
  bool valid = false;
};
/// The code point at `at` < text.size(). Where the text is not UTF-8: a replacement for the longest start of a valid sequence, or for one byte
/// (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts"), so that everyone replaces alike.
Utf8Code utf8_at(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t code);
/// The text with what is not UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);
/// How many bytes at the end of the text are the start of a sequence that more bytes could complete: 0 to 3.
std::size_t incomplete_utf8(std::string_view text);

/// General categories L*, N*, P*; the property White_Space; the rest.
enum class CodeClass : std::uint8_t { Other, Letter, Number, Punctuation, Space };
CodeClass code_class(char32_t code);

/// Normalization form C of valid UTF-8 (UAX #15).
std::string to_nfc(std::string_view text);

}  // namespace aeshna
