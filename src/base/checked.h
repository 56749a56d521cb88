#pragma once
// Overflow-checked int64/uint64 arithmetic; Error(LimitExceeded) that names `what`.
#include <cstdint>
#include <string_view>

namespace aeshna {

std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view what);
std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view what);
std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, std::string_view what);
std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b, std::string_view what);
std::uint32_t checked_u32(std::uint64_t value, std::string_view what);
/// Smallest multiple of `alignment` (a power of two or not; > 0) that is >= value.
std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment);
template <class T>
constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace aeshna
