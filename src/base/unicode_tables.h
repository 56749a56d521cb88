#pragma once
// The tables that tools/make_unicode_tables makes, ordered by code point.
#include <cstdint>
#include <span>

#include "base/unicode.h"

namespace aeshna {

struct ClassRun {
  char32_t first;
  std::uint16_t count;
  CodeClass kind;
};
std::span<const ClassRun> class_runs();

/// Canonical combining classes other than 0.
struct MarkRun {
  char32_t first;
  std::uint16_t count;
  std::uint8_t combining_class;
};
std::span<const MarkRun> mark_runs();

/// Canonical decompositions by one step; second is 0 for singletons. `composes`: NFC puts them together again.
struct Decomposition {
  char32_t code, first, second;
  bool composes;
};
std::span<const Decomposition> decompositions();

}  // namespace aeshna
