#include "aeshna/attrs.h"

#include <algorithm>
#include <bit>

#include "base/fail.h"

namespace aeshna {

namespace {
constexpr auto kName = &std::pair<std::string, AttrValue>::first;

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// Numbers are compared by bits: 0 and -0 differ (a pass must not merge them), a NaN equals itself.
bool same(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return same_bits(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) return std::ranges::equal(*x, std::get<std::vector<double>>(b), same_bits);
  return a == b;
}
}  // namespace

Attrs::Attrs(std::initializer_list<std::pair<std::string, AttrValue>> values) {
  for (const auto& [name, value] : values) set(name, value);
}

void Attrs::set(std::string name, AttrValue value) {
  const auto at = std::ranges::lower_bound(items_, name, {}, kName);
  if (at != items_.end() && at->first == name) at->second = std::move(value);
  else items_.emplace(at, std::move(name), std::move(value));
}

const AttrValue* Attrs::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(items_, name, {}, kName);
  return at != items_.end() && at->first == name ? &at->second : nullptr;
}

void Attrs::missing(std::string_view name, bool wrong_type) {
  fail(ErrorCode::InvalidArgument, "attribute '{}' {}", name, wrong_type ? "has another type than expected" : "is missing");
}

bool operator==(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a.items_, b.items_, [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

}  // namespace aeshna
