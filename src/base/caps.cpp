#include "base/caps.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "base/fail.h"
#include "base/format.h"
#include "base/names.h"

namespace aeshna {

namespace {

/// One field of Caps: its name in text, and where it is.
struct Field {
  std::string_view name;
  std::variant<std::string Caps::*, std::uint64_t Caps::*, std::uint32_t Caps::*, double Caps::*, bool Caps::*> member;
  /// May an override change it, and which way restricts?
  enum class Override : std::uint8_t { None, Lower, Raise } override = Override::None;
};

using enum Field::Override;
constexpr Field kFields[] = {
    {"device_name", &Caps::device_name},
    {"max_storage_range", &Caps::max_storage_range, Lower},
    {"max_buffer_size", &Caps::max_buffer_size, Lower},
    {"device_memory", &Caps::device_memory, Lower},
    {"storage_alignment", &Caps::storage_alignment, Raise},
    {"max_invocations", &Caps::max_invocations, Lower},
    {"shared_bytes", &Caps::shared_bytes, Lower},
    {"push_bytes", &Caps::push_bytes, Lower},
    {"max_storage_buffers", &Caps::max_storage_buffers, Lower},
    {"subgroup_size", &Caps::subgroup_size},  // what the hardware does; an override could only lie about it
    {"compute_units", &Caps::compute_units, Lower},
    {"gflops", &Caps::gflops},
    {"gbytes_per_s", &Caps::gbytes_per_s},
    {"subgroup_arithmetic", &Caps::subgroup_arithmetic, Lower},
    {"storage_8bit", &Caps::storage_8bit, Lower},
    {"storage_16bit", &Caps::storage_16bit, Lower},
    {"f16_arithmetic", &Caps::f16_arithmetic, Lower},
    {"f64_arithmetic", &Caps::f64_arithmetic, Lower},
    {"int64_arithmetic", &Caps::int64_arithmetic, Lower},
    {"signed_zero_inf_nan_preserve", &Caps::signed_zero_inf_nan_preserve, Lower},
    {"unified_memory", &Caps::unified_memory, Lower},
};
using Triple = std::uint32_t (Caps::*)[3];
constexpr std::pair<std::string_view, Triple> kTriples[] = {{"max_groups", &Caps::max_groups}, {"max_local", &Caps::max_local}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

/// Calls `visit` with each trimmed, non-empty piece of `text`.
void split(std::string_view text, char separator, const std::function<void(std::string_view)>& visit) {
  while (!text.empty()) {
    const std::size_t at = text.find(separator);
    const std::string_view piece = trim(text.substr(0, at));
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    if (!piece.empty()) visit(piece);
  }
}

template <class T>
T number(std::string_view name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) {
    fail(ErrorCode::InvalidArgument, "caps: '{}' is no value for {}: expected a positive number", text, name);
  }
  return value;
}

const Field* find_field(std::string_view name) {
  for (const Field& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

/// Features by the names that a user types after "no_".
bool switch_off(Caps& caps, std::string_view feature) {
  if (feature == "f16") {
    caps.f16_arithmetic = false;
    std::erase_if(caps.coop_shapes, [](const CoopMatrixShape& shape) { return shape.input == DType::f16; });
  } else if (feature == "f64") {
    caps.f64_arithmetic = false;
  } else if (feature == "int64") {
    caps.int64_arithmetic = false;
  } else if (feature == "coop") {
    caps.coop_shapes.clear();
  } else if (feature == "subgroups") {  // cooperative matrices are subgroup operations too
    caps.subgroup_size = 1;
    caps.subgroup_arithmetic = false;
    caps.coop_shapes.clear();
  } else if (const Field* field = find_field(feature)) {
    const auto* flag = std::get_if<bool Caps::*>(&field->member);
    if (flag == nullptr) return false;
    caps.*(*flag) = false;
    if (feature == "f16_arithmetic") return switch_off(caps, "f16");
  } else {
    return false;
  }
  return true;
}

[[noreturn]] void unknown(std::string_view name) {
  std::vector<std::string> names = {"no_f16", "no_f64", "no_int64", "no_coop", "no_subgroups"};
  for (const auto& [triple, member] : kTriples) names.emplace_back(triple);
  for (const Field& field : kFields) {
    if (field.override == None) continue;
    names.push_back((std::holds_alternative<bool Caps::*>(field.member) ? "no_" : "") + std::string(field.name));
  }
  fail(ErrorCode::InvalidArgument, "caps: unknown override '{}'{}", name, suggest_names(name, names));
}

template <class T>
void restrict_value(T& value, T wanted, bool lower, std::string_view name) {
  if (lower ? wanted > value : wanted < value) {
    fail(ErrorCode::InvalidArgument, "caps: overrides only restrict: {}={} where the device has {}", name, wanted, value);
  }
  value = wanted;
}

void apply_override(Caps& caps, std::string_view item) {
  const std::size_t equals = item.find('=');
  const std::string_view name = trim(item.substr(0, equals));
  if (equals == std::string_view::npos) {
    if (!name.starts_with("no_") || !switch_off(caps, name.substr(3))) unknown(name);
    return;
  }
  const std::string_view text = trim(item.substr(equals + 1));
  for (const auto& [triple, member] : kTriples) {
    if (triple != name) continue;
    // One value for the three dimensions; where the device is tighter already, it stays.
    const auto wanted = number<std::uint32_t>(name, text);
    std::uint32_t largest = 0;
    for (const std::uint32_t limit : caps.*member) largest = std::max(largest, limit);
    restrict_value(largest, wanted, true, name);
    for (std::uint32_t& limit : caps.*member) limit = std::min(limit, wanted);
    return;
  }
  const Field* field = find_field(name);
  if (field == nullptr || field->override == None) unknown(name);
  const bool lower = field->override == Lower;
  if (const auto* wide = std::get_if<std::uint64_t Caps::*>(&field->member)) {
    restrict_value(caps.*(*wide), number<std::uint64_t>(name, text), lower, name);
  } else if (const auto* narrow = std::get_if<std::uint32_t Caps::*>(&field->member)) {
    restrict_value(caps.*(*narrow), number<std::uint32_t>(name, text), lower, name);
  } else {
    fail(ErrorCode::InvalidArgument, "caps: '{}' is a feature; switch it off with no_{}", name, name);
  }
}

}  // namespace

Caps restrict_caps(Caps device, std::string_view overrides) {
  split(overrides, ',', [&](std::string_view item) { apply_override(device, item); });
  if (device.push_bytes % 4 != 0) fail(ErrorCode::InvalidArgument, "caps: push_bytes={} is no multiple of 4", device.push_bytes);
  return device;
}

std::uint64_t max_workgroups(const Caps& caps) {
  std::uint64_t limit = 1;  // kernels number their workgroups in 32 bits
  for (const std::uint32_t groups : caps.max_groups) limit = std::min<std::uint64_t>(limit * groups, UINT32_MAX);
  return limit;
}

std::string print_caps(const Caps& caps) {
  std::string text;
  for (const Field& field : kFields) {
    std::visit([&](auto member) { text += formatted("{} = {}\n", field.name, caps.*member); }, field.member);
  }
  for (const auto& [name, member] : kTriples) {
    const auto& value = caps.*member;
    text += formatted("{} = {} {} {}\n", name, value[0], value[1], value[2]);
  }
  for (const CoopMatrixShape& shape : caps.coop_shapes) {
    text += formatted("coop_shape = {} {} {} {} {}\n", shape.m, shape.n, shape.k, dtype_name(shape.input),
                      dtype_name(shape.accumulate));
  }
  return text;
}

Caps parse_caps(std::string_view text) {
  Caps caps;
  split(text, '\n', [&](std::string_view line) {
    if (line.starts_with('#')) return;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) fail(ErrorCode::InvalidArgument, "caps: '{}': expected 'name = value'", line);
    const std::string_view name = trim(line.substr(0, equals));
    const std::string_view value = trim(line.substr(equals + 1));
    std::vector<std::string_view> words;
    split(value, ' ', [&](std::string_view word) { words.push_back(word); });
    if (name == "coop_shape") {
      if (words.size() != 5) fail(ErrorCode::InvalidArgument, "caps: '{}': expected m n k input accumulate", line);
      caps.coop_shapes.push_back({number<std::uint32_t>(name, words[0]), number<std::uint32_t>(name, words[1]),
                                  number<std::uint32_t>(name, words[2]), parse_dtype(words[3]), parse_dtype(words[4])});
      return;
    }
    for (const auto& [triple, member] : kTriples) {
      if (triple != name) continue;
      if (words.size() != 3) fail(ErrorCode::InvalidArgument, "caps: '{}': expected three numbers", line);
      for (std::size_t i = 0; i < 3; ++i) (caps.*member)[i] = number<std::uint32_t>(name, words[i]);
      return;
    }
    const Field* field = find_field(name);
    if (field == nullptr) fail(ErrorCode::InvalidArgument, "caps: unknown name '{}' in '{}'", name, line);
    std::visit(
        [&]<class T>(T Caps::* member) {
          if constexpr (std::is_same_v<T, std::string>) {
            caps.*member = value;
          } else if constexpr (std::is_same_v<T, bool>) {
            if (value != "true" && value != "false") fail(ErrorCode::InvalidArgument, "caps: '{}': expected true or false", line);
            caps.*member = value == "true";
          } else {
            caps.*member = number<T>(name, value);
          }
        },
        field->member);
  });
  return caps;
}

}  // namespace aeshna
