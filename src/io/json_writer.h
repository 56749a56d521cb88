#pragma once
// JSON as text, from beginning to end: a small part of the code that values in memory and their printing would be.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aeshna {

/// In quotes and escaped; what is not UTF-8 as a whole becomes ASCII, with '?' for all other bytes.
std::string json_quoted(std::string_view text);
/// The shortest text that gives the same number; "null" unless it is finite.
std::string json_number(double value);

/// Indented. What does not exist, an empty text among it, is null.
class JsonWriter {
 public:
  /// `depth`: of the text within another that it will become part of.
  explicit JsonWriter(std::size_t depth = 0) : depth_(depth) {}

  void begin(char bracket);  ///< '{' or '[': the top, or an item
  void begin(std::string_view key, char bracket);
  void end();
  void text(std::string_view key, std::string_view value) { raw(key, value.empty() ? "null" : json_quoted(value)); }
  void number(std::string_view key, std::optional<double> value) { raw(key, value ? json_number(*value) : "null"); }
  void count(std::string_view key, std::optional<std::uint64_t> value);
  void flag(std::string_view key, std::optional<bool> value) { raw(key, value ? *value ? "true" : "false" : "null"); }
  void raw(std::string_view key, std::string_view json);  ///< a member
  void item(std::string_view json);                       ///< of an array
  std::string take();                                     ///< with a newline at the end, if this is no part of another

 private:
  void next_line();
  std::size_t depth_;
  std::string text_, open_;  ///< open_: the closing brackets that are due, innermost last
  bool first_ = true;        ///< nothing stands in the innermost bracket
};

}  // namespace aeshna
