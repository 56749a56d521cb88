#include "base/checked.h"

#include "base/fail.h"

namespace aeshna {

namespace {
template <class T>
T add(T a, T b, std::string_view what) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) fail(ErrorCode::LimitExceeded, "{}: {} + {} does not fit 64 bits", what, a, b);
  return sum;
}
template <class T>
T mul(T a, T b, std::string_view what) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) fail(ErrorCode::LimitExceeded, "{}: {} * {} does not fit 64 bits", what, a, b);
  return product;
}
}  // namespace

std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view what) { return add(a, b, what); }
std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view what) { return mul(a, b, what); }
std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, std::string_view what) { return add(a, b, what); }
std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b, std::string_view what) { return mul(a, b, what); }

std::uint32_t checked_u32(std::uint64_t value, std::string_view what) {
  if (value > UINT32_MAX) fail(ErrorCode::LimitExceeded, "{}: {} does not fit 32 bits", what, value);
  return static_cast<std::uint32_t>(value);
}

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  AESHNA_CHECK(alignment > 0);
  const std::uint64_t rest = value % alignment;
  return rest == 0 ? value : checked_add(value, alignment - rest, "aligned size");
}

}  // namespace aeshna
