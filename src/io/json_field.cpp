#include "io/json_field.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/fail.h"

namespace aeshna {

using nlohmann::json;

namespace {

constexpr int kMaxNesting = 64;

/// How deep the text's brackets lie in each other, if it is JSON.
int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else {
        quoted = c != '"';
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

json parse_json(std::string_view text, std::string_view source) {
  if (nesting(text) > kMaxNesting)
    fail(ErrorCode::CorruptFile, "{}: JSON nested deeper than {} levels", source, kMaxNesting);
  try {
    return json::parse(text);  // as string_view everywhere: the parser is built anew for every other kind of text
  } catch (const json::exception& e) {
    fail(ErrorCode::CorruptFile, "{}: not JSON: {}", source, e.what());
  }
}

json read_json(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path, 64 << 20);
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::optional<std::int64_t> json_integer(const json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(std::abs(number) <= 0x1p53) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

void JsonField::refuse(std::string_view found) const {
  fail(ErrorCode::CorruptFile, "{}: '{}' is {}", source_, path_, found);
}

void JsonField::refuse_type(std::string_view wanted) const {
  refuse(formatted("{}, not {}", value_->type_name(), wanted));
}

bool JsonField::is_object() const { return value_->is_object(); }

bool JsonField::has(std::string_view name) const {
  const auto found = value_->find(std::string(name));  // end() unless it is an object
  return found != value_->end() && !found->is_null();
}

JsonField JsonField::at(std::string_view name) const {
  std::string member = path_.empty() ? std::string(name) : path_ + '.' + std::string(name);
  const auto found = value_->find(std::string(name));
  if (found == value_->end()) JsonField(*this, std::move(member), *value_).refuse("missing");
  return JsonField(*this, std::move(member), *found);
}

std::map<std::string, JsonField> JsonField::members() const {
  if (!value_->is_object()) refuse_type("an object");
  std::map<std::string, JsonField> all;
  for (const auto& item : value_->items()) all.emplace(item.key(), at(item.key()));
  return all;
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) refuse_type("an array");
  std::vector<JsonField> all;
  for (std::size_t i = 0; i < value_->size(); ++i)
    all.push_back(JsonField(*this, formatted("{}[{}]", path_, i), (*value_)[i]));
  return all;
}

std::string JsonField::text() const {
  if (!value_->is_string()) refuse_type("a string");
  return value_->get_ref<const std::string&>();
}

double JsonField::number() const {
  if (!value_->is_number()) refuse_type("a number");
  const double value = value_->get<double>();
  if (!std::isfinite(value)) refuse("not finite");
  return value;
}

std::uint64_t JsonField::count() const {
  if (!value_->is_number_unsigned()) refuse_type("a whole number");
  return value_->get<std::uint64_t>();
}

bool JsonField::flag() const {
  if (!value_->is_boolean()) refuse_type("true or false");
  return value_->get<bool>();
}

std::optional<std::string> JsonField::text(std::string_view name) const {
  return has(name) ? std::optional(at(name).text()) : std::nullopt;
}
std::optional<double> JsonField::number(std::string_view name) const {
  return has(name) ? std::optional(at(name).number()) : std::nullopt;
}
std::optional<std::uint64_t> JsonField::count(std::string_view name) const {
  return has(name) ? std::optional(at(name).count()) : std::nullopt;
}
std::optional<bool> JsonField::flag(std::string_view name) const {
  return has(name) ? std::optional(at(name).flag()) : std::nullopt;
}

}  // namespace aeshna
