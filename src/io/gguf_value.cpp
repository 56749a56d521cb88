// Values of GGUF's metadata.
#include <array>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "io/gguf_types.h"

namespace aeshna {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are kept as the file has them");

template <class T>
T load(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.subspan(i * sizeof(T), sizeof(T)).data(), sizeof(T));
  return value;
}

template <class T>
GgufValue numbers_of(GgufType type, bool array, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {.type = type, .array = array, .numbers = {bytes.begin(), bytes.end()}};
}

/// What a type of numbers is stored as, passed to `visit` as a zero of it.
template <class Visitor>
auto with_storage(GgufType type, Visitor visit) {
  switch (type) {
    case GgufType::i8:
      return visit(std::int8_t{});
    case GgufType::u16:
      return visit(std::uint16_t{});
    case GgufType::i16:
      return visit(std::int16_t{});
    case GgufType::u32:
      return visit(std::uint32_t{});
    case GgufType::i32:
      return visit(std::int32_t{});
    case GgufType::f32:
      return visit(float{});
    case GgufType::u64:
      return visit(std::uint64_t{});
    case GgufType::i64:
      return visit(std::int64_t{});
    case GgufType::f64:
      return visit(double{});
    default:
      return visit(std::uint8_t{});
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  static constexpr std::array<std::string_view, 13> names = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                             "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(type);
  return i < names.size() ? names[i] : "?";
}

std::size_t gguf_type_bytes(GgufType type) {
  return with_storage(type, [](auto zero) { return sizeof zero; });
}

GgufValue GgufValue::text(std::string value) {
  GgufValue v{.type = GgufType::string};
  v.strings.push_back(std::move(value));
  return v;
}
GgufValue GgufValue::texts(std::vector<std::string> values) {
  return {.type = GgufType::string, .array = true, .strings = std::move(values)};
}
GgufValue GgufValue::flag(bool value) {
  const std::uint8_t byte = value ? 1 : 0;
  return numbers_of(GgufType::boolean, false, std::span(&byte, 1));
}
GgufValue GgufValue::integer(std::uint32_t value) {
  return numbers_of(GgufType::u32, false, std::span<const std::uint32_t>(&value, 1));
}
GgufValue GgufValue::number(float value) { return numbers_of(GgufType::f32, false, std::span<const float>(&value, 1)); }
GgufValue GgufValue::floats(std::span<const float> values) { return numbers_of(GgufType::f32, true, values); }
GgufValue GgufValue::ints(std::span<const std::int32_t> values) { return numbers_of(GgufType::i32, true, values); }

std::size_t GgufValue::size() const {
  return type == GgufType::string ? strings.size() : numbers.size() / gguf_type_bytes(type);
}

bool GgufValue::is_integer() const {
  return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::string && type != GgufType::boolean;
}

double GgufValue::at(std::size_t i) const {
  return with_storage(type, [&](auto zero) { return static_cast<double>(load<decltype(zero)>(numbers, i)); });
}

std::optional<std::int64_t> GgufValue::integer_at(std::size_t i) const {
  return with_storage(type, [&](auto zero) -> std::optional<std::int64_t> {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) {
      return std::nullopt;
    } else {
      const T value = load<T>(numbers, i);
      if (!std::in_range<std::int64_t>(value)) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
  });
}

std::string GgufValue::to_string() const {
  constexpr std::size_t most = 6, longest = 60;
  const auto shown = [&](std::size_t i) -> std::string {
    if (type == GgufType::boolean) return at(i) != 0 ? "true" : "false";
    if (type == GgufType::f32) return formatted("{}", load<float>(numbers, i));
    if (type == GgufType::u64) return std::to_string(load<std::uint64_t>(numbers, i));
    if (type != GgufType::string) {
      const auto whole = integer_at(i);
      return whole ? std::to_string(*whole) : formatted("{}", at(i));
    }
    std::string text = "\"";
    const std::string& s = strings[i];
    for (std::size_t n = 0; n < s.size(); ++n) {
      const auto c = static_cast<unsigned char>(s[n]);
      if (n >= longest && (c & 0xC0) != 0x80) return text + formatted("\"... ({} bytes)", s.size());
      text += c == '\n' ? "\\n" : c < 32 || c == 127 ? formatted("\\x{:02x}", c) : std::string(1, s[n]);
    }
    return text + '"';
  };
  if (!array) return shown(0);
  std::string text = formatted("{}[{}]", gguf_type_name(type), size());
  for (std::size_t i = 0; i < size() && i < most; ++i) text += (i == 0 ? ": " : ", ") + shown(i);
  return size() > most ? text + ", ..." : text;
}

}  // namespace aeshna
