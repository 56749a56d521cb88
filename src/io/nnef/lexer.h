#pragma once
#include "io/nnef/syntax.h"

namespace aeshna::nnef {

struct Token {
  enum class Kind : std::uint8_t { End, Name, Integer, Scalar, String, Sign };
  Kind kind = Kind::End;
  std::string_view text;  ///< strings: without their quotes
  Place place;
  bool is(std::string_view sign_or_keyword) const {
    return (kind == Kind::Sign || kind == Kind::Name) && text == sign_or_keyword;
  }
  std::string found() const;  ///< for messages: "';'", "the end of the file"
};

/// One token after the other; comments run from # to the end of the line.
class Lexer {
 public:
  Lexer(std::string_view text, std::string file) : text_(text), file_(std::move(file)) { next(); }
  const Token& token() const { return token_; }
  void next();
  const std::string& file() const { return file_; }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip_blank();
  std::size_t number_length(bool& scalar) const;
  std::string_view take(std::size_t count);

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  Place place_;
  Token token_;
};

}  // namespace aeshna::nnef
