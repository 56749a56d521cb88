#pragma once
// JSON files from elsewhere, read field by field: what is wrong with one is said with the file and the field.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace aeshna {

/// Error(CorruptFile) naming `source` if the text is no JSON or nested deeper than 64 levels: what copies, compares or prints a value calls
/// itself once for each. Of a key that is there twice the last counts.
nlohmann::json parse_json(std::string_view text, std::string_view source);
/// The same of a file, of 64 MiB at most.
nlohmann::json read_json(const std::filesystem::path& path);

/// A whole number that int64 holds, whether it is written with a point or not; nullopt for all else. (get<int64_t>() rounds and wraps in silence.)
std::optional<std::int64_t> json_integer(const nlohmann::json& value);

/// A value in a JSON file, which must outlive it. It knows where it is. Every failure is Error(CorruptFile).
class JsonField {
 public:
  /// The top of a file; `source` begins every message: "results/a.json".
  JsonField(std::string source, const nlohmann::json& value) : source_(std::move(source)), value_(&value) {}

  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }  ///< "cells[3].phase"
  bool is_object() const;
  bool has(std::string_view name) const;  ///< there, and not null
  JsonField at(std::string_view name) const;
  std::map<std::string, JsonField> members() const;
  std::vector<JsonField> items() const;

  std::string text() const;
  double number() const;  ///< finite
  std::uint64_t count() const;
  bool flag() const;
  // The same of a member; nullopt if it is absent or null.
  std::optional<std::string> text(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::uint64_t> count(std::string_view name) const;
  std::optional<bool> flag(std::string_view name) const;

  /// "SOURCE: 'cells[3].phase' is FOUND"
  [[noreturn]] void refuse(std::string_view found) const;

 private:
  JsonField(const JsonField& parent, std::string path, const nlohmann::json& value)
      : source_(parent.source_), path_(std::move(path)), value_(&value) {}
  [[noreturn]] void refuse_type(std::string_view wanted) const;
  std::string source_, path_;
  const nlohmann::json* value_;
};

}  // namespace aeshna
