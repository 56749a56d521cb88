#pragma once
// How the inside of Aeshna raises errors.
#include <source_location>
#include <utility>

#include "aeshna/error.h"
#include "base/format.h"

namespace aeshna {

/// throw Error(code, formatted message)
template <class... Args>
[[noreturn]] void fail(ErrorCode code, std::format_string<Args...> format, Args&&... args) {
  throw Error(code, formatted(format, std::forward<Args>(args)...));
}

/// A broken invariant of our own: Error(Internal) with file and line. Never for user input.
[[noreturn]] void internal_error(const char* condition, std::source_location where = std::source_location::current());

}  // namespace aeshna

#define AESHNA_CHECK(condition) ((condition) ? static_cast<void>(0) : ::aeshna::internal_error(#condition))
