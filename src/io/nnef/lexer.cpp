#include "io/nnef/lexer.h"

#include <algorithm>
#include <array>

#include "base/fail.h"

namespace aeshna::nnef {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::size_t kShown = 40;  // characters of a long token in a message

}  // namespace

void wrong_at(std::string_view file, Place place, std::string_view message) {
  fail(ErrorCode::CorruptFile, "{}:{}:{}: {}", file, place.line, place.column, message);
}

std::string Token::found() const {
  if (kind == Kind::End) return "the end of the file";
  std::string shown;
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte >= 0x7f ? formatted("\\x{:02x}", byte) : std::string(1, c);
  }
  if (text.size() > kShown) shown += "...";
  return (kind == Kind::String ? "the string '" : "'") + shown + "'";
}

std::string_view Lexer::take(std::size_t count) {
  const std::string_view taken = text_.substr(at_, count);
  at_ += taken.size();
  place_.column += static_cast<std::uint32_t>(taken.size());
  return taken;
}

void Lexer::skip_blank() {
  for (;;) {
    const char c = peek();
    if (c == '\n' && at_ < text_.size()) {
      ++at_;
      ++place_.line;
      place_.column = 1;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      take(1);
    } else if (c == '#') {
      const std::size_t end = text_.find('\n', at_);
      take((end == std::string_view::npos ? text_.size() : end) - at_);
    } else {
      return;
    }
  }
}

/// Digits, perhaps with a fraction and an exponent.
std::size_t Lexer::number_length(bool& scalar) const {
  std::size_t n = 0;
  while (is_digit(peek(n))) ++n;
  if (peek(n) == '.') {
    scalar = true;
    ++n;
    while (is_digit(peek(n))) ++n;
  }
  if (peek(n) == 'e' || peek(n) == 'E') {
    const std::size_t digits = n + (peek(n + 1) == '+' || peek(n + 1) == '-' ? 2 : 1);
    if (is_digit(peek(digits))) {
      scalar = true;
      n = digits;
      while (is_digit(peek(n))) ++n;
    }
  }
  return n;
}

void Lexer::next() {
  skip_blank();
  token_ = {Token::Kind::End, {}, place_};
  if (at_ >= text_.size()) return;
  const char c = peek();
  if (starts_name(c)) {
    std::size_t n = 1;
    while (starts_name(peek(n)) || is_digit(peek(n))) ++n;
    token_.kind = Token::Kind::Name;
    token_.text = take(n);
  } else if (is_digit(c)) {
    bool scalar = false;
    const std::size_t n = number_length(scalar);
    token_.kind = scalar ? Token::Kind::Scalar : Token::Kind::Integer;
    token_.text = take(n);
  } else if (c == '\'' || c == '"') {
    const std::size_t end = text_.find_first_of(c == '\'' ? "'\n" : "\"\n", at_ + 1);
    if (end == std::string_view::npos || text_[end] == '\n') wrong_at(file_, place_, "the string is not closed");
    token_.kind = Token::Kind::String;
    token_.text = text_.substr(at_ + 1, end - at_ - 1);
    take(end - at_ + 1);
  } else {
    static constexpr std::array<std::string_view, 7> pairs = {"->", "<=", ">=", "==", "!=", "&&", "||"};
    static constexpr std::string_view singles = "()[]{}<>,;:=?+-*/^!";
    const bool pair = std::ranges::find(pairs, text_.substr(at_, 2)) != pairs.end();
    token_.kind = Token::Kind::Sign;
    token_.text = text_.substr(at_, pair ? 2 : 1);
    if (!pair && !singles.contains(c)) wrong_at(file_, place_, formatted("{} has no meaning here", token_.found()));
    take(token_.text.size());
  }
}

}  // namespace aeshna::nnef
