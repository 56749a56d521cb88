#include "nn/tokenizer/split.h"

#include <algorithm>

namespace aeshna {

ScannedText::ScannedText(std::string_view valid) : text(valid) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Code c = utf8_at(text, i);
    codes.push_back(c.code);
    classes.push_back(code_class(c.code));
    at.push_back(i);
    i += c.bytes;
  }
  at.push_back(text.size());
}

namespace {

/// One piece of a text, [begin, end) in code points, that is cut further. Each rule gives the end of the match at `i`, or `i` for none.
class Scanner {
 public:
  Scanner(const ScannedText& text, std::size_t end) : text_(text), end_(end) {}

  std::size_t next(SplitRule split, std::size_t i) const {
    switch (split) {
      case SplitRule::Gpt2:
        return gpt2(i);
      case SplitRule::Llama3:
        return llama3(i, 3);
      case SplitRule::Qwen2:
        return llama3(i, 1);
      case SplitRule::Digits:
        return run(i, CodeClass::Number, 1);
      case SplitRule::DigitRuns:
        return run(i, CodeClass::Number);
      case SplitRule::DigitTriples:
        return digit(i) && digit(i + 1) && digit(i + 2) ? i + 3 : i;
      case SplitRule::Punctuation:
        while (punctuation(i)) ++i;
        return i;
      case SplitRule::SpaceMark: {
        const std::size_t start = i;
        while (i < end_ && (i == start || text_.codes[i] != 0x2581)) ++i;
        return i;
      }
    }
    return i;
  }

 private:
  bool is(std::size_t i, CodeClass kind) const { return i < end_ && text_.classes[i] == kind; }
  bool code(std::size_t i, char32_t c) const { return i < end_ && text_.codes[i] == c; }
  bool newline(std::size_t i) const { return code(i, '\n') || code(i, '\r'); }
  bool digit(std::size_t i) const { return i < end_ && text_.codes[i] >= '0' && text_.codes[i] <= '9'; }
  /// [^\s\p{L}\p{N}]
  bool symbol(std::size_t i) const { return is(i, CodeClass::Other) || is(i, CodeClass::Punctuation); }
  bool punctuation(std::size_t i) const {
    return is(i, CodeClass::Punctuation) || (i < end_ && std::u32string_view(U"$+<=>^~|").contains(text_.codes[i]));
  }

  std::size_t run(std::size_t i, CodeClass kind, std::size_t most = SIZE_MAX) const {
    std::size_t n = 0;
    while (n < most && is(i + n, kind)) ++n;
    return i + n;
  }
  std::size_t symbols(std::size_t i) const {
    while (symbol(i)) ++i;
    return i;
  }

  /// 's 't 're 've 'm 'll 'd
  std::size_t contraction(std::size_t i, bool any_case) const {
    if (!code(i, '\'')) return i;
    const auto letter = [&](std::size_t at) -> char32_t {
      if (at >= end_) return 0;
      const char32_t c = text_.codes[at];
      if (!any_case) return c;
      return c == 0x17F ? U's' : c >= 'A' && c <= 'Z' ? c + 32 : c;  // U+017F is another lower case of S
    };
    const char32_t a = letter(i + 1), b = letter(i + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? i + 3 : i;
  }

  /// \s+(?!\S)|\s+: white space, but for the last of several before something else.
  std::size_t spaces(std::size_t i) const {
    const std::size_t after = run(i, CodeClass::Space);
    return after < end_ && after - i > 1 ? after - 1 : after;
  }

  std::size_t gpt2(std::size_t i) const {
    if (const std::size_t after = contraction(i, false); after > i) return after;
    const std::size_t word = code(i, ' ') ? i + 1 : i;
    for (const CodeClass kind : {CodeClass::Letter, CodeClass::Number})
      if (const std::size_t after = run(word, kind); after > word) return after;
    if (const std::size_t after = symbols(word); after > word) return after;
    return spaces(i);
  }

  std::size_t llama3(std::size_t i, std::size_t digits) const {
    if (const std::size_t after = contraction(i, true); after > i) return after;
    const bool opens = !newline(i) && !is(i, CodeClass::Letter) && !is(i, CodeClass::Number);
    const std::size_t word = opens ? i + 1 : i;
    if (const std::size_t after = run(word, CodeClass::Letter); after > word) return after;
    if (const std::size_t after = run(i, CodeClass::Number, digits); after > i) return after;
    const std::size_t start = code(i, ' ') ? i + 1 : i;
    if (std::size_t after = symbols(start); after > start) {
      while (newline(after)) ++after;
      return after;
    }
    std::size_t last = run(i, CodeClass::Space);  // \s*[\r\n]+ ends behind the last line break of the run
    while (last > i && !newline(last - 1)) --last;
    return last > i ? last : spaces(i);
  }

  const ScannedText& text_;
  std::size_t end_;
};

}  // namespace

std::vector<std::string_view> split_text(std::string_view text, const std::vector<SplitRule>& splits) {
  const ScannedText scanned(text);
  std::vector<std::size_t> ends = {scanned.codes.size()};
  for (const SplitRule split : splits) {
    std::vector<std::size_t> finer;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      const Scanner scanner(scanned, end);
      bool open = false;  // between matches
      for (std::size_t i = begin; i < end;) {
        const std::size_t after = scanner.next(split, i);
        if (after > i) {
          if (open) finer.push_back(i);
          finer.push_back(after);
        }
        open = after == i;
        i = std::max(after, i + 1);
      }
      if (open) finer.push_back(end);
      begin = end;
    }
    ends = std::move(finer);
  }
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    if (end > begin) pieces.push_back(scanned.piece(begin, end));
    begin = end;
  }
  return pieces;
}

}  // namespace aeshna
