#include "io/json_writer.h"

#include <cmath>

#include "base/fail.h"

namespace aeshna {
namespace {

/// Whether continuation bytes stand where they must, and nowhere else.
bool is_utf8(std::string_view text) {
  std::size_t due = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x80 && byte < 0xC0) != (due > 0)) return false;
    if (due > 0) {
      --due;
    } else if (byte >= 0xC0) {
      due = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      if (byte > 0xF4 || byte < 0xC2) return false;
    }
  }
  return due == 0;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  const bool ascii = !is_utf8(text);
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (result += '\\') += c;
    } else if (byte < 0x20) {
      result += formatted("\\u{:04x}", byte);
    } else {
      result += ascii && byte >= 0x80 ? '?' : c;
    }
  }
  return result + '"';
}

std::string json_number(double value) { return std::isfinite(value) ? formatted("{}", value) : "null"; }

void JsonWriter::next_line() {
  if (!first_) text_ += ',';
  first_ = false;
  if (!text_.empty()) text_ += '\n';
  text_.append(text_.empty() ? 0 : depth_ + open_.size(), ' ');
}

void JsonWriter::begin(char bracket) {
  item(std::string_view(&bracket, 1));
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
}

void JsonWriter::begin(std::string_view key, char bracket) {
  raw(key, std::string_view(&bracket, 1));
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
}

void JsonWriter::end() {
  AESHNA_CHECK(!open_.empty());
  const char bracket = open_.back();
  open_.pop_back();
  if (!first_) text_.append("\n").append(depth_ + open_.size(), ' ');
  text_ += bracket;
  first_ = false;
}

void JsonWriter::count(std::string_view key, std::optional<std::uint64_t> value) {
  raw(key, value ? std::to_string(*value) : "null");
}

void JsonWriter::raw(std::string_view key, std::string_view json) {
  next_line();
  text_.append(json_quoted(key)).append(": ").append(json);
}

void JsonWriter::item(std::string_view json) {
  next_line();
  text_ += json;
}

std::string JsonWriter::take() {
  AESHNA_CHECK(open_.empty());
  if (depth_ == 0) text_ += '\n';
  return std::move(text_);
}

}  // namespace aeshna
