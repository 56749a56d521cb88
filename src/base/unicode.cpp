#include "base/unicode.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/unicode_tables.h"

namespace aeshna {

// ---- UTF-8

namespace {

/// The second byte of a sequence has a range of its own after E0, ED, F0 and F4: no overlong forms, no surrogates, nothing above 10FFFF.
bool continues(unsigned char lead, unsigned char second) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

/// Bytes of the sequence that starts with `lead`; 0: none does.
std::size_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Valid bytes of the sequence at `at`, its first one included; 0 if none starts there.
std::size_t valid_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t length = sequence_bytes(byte(0));
  if (length == 0) return 0;
  std::size_t n = 1;
  while (n < length && at + n < text.size() && (n == 1 ? continues(byte(0), byte(1)) : (byte(n) & 0xC0) == 0x80)) ++n;
  return n;
}

}  // namespace

Utf8Code utf8_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = sequence_bytes(lead), valid = valid_bytes(text, at);
  if (length == 0 || valid < length) return {.bytes = static_cast<std::uint8_t>(std::max<std::size_t>(valid, 1))};
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  return {code, static_cast<std::uint8_t>(length), true};
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Code c = utf8_at(text, at);
    if (c.valid) {
      result.append(text.substr(at, c.bytes));
    } else {
      append_utf8(result, kReplacement);
    }
    at += c.bytes;
  }
  return result;
}

std::size_t incomplete_utf8(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const std::size_t at = text.size() - n;
    const auto lead = static_cast<unsigned char>(text[at]);
    if ((lead & 0xC0) == 0x80) continue;
    return sequence_bytes(lead) > n && valid_bytes(text, at) == n ? n : 0;
  }
  return 0;
}

// ---- classes

namespace {

/// The run of an ordered table that holds `code`; null: none.
template <class Run>
const Run* run_of(std::span<const Run> runs, char32_t code) {
  auto after = std::ranges::upper_bound(runs, code, {}, &Run::first);
  if (after == runs.begin()) return nullptr;
  --after;
  return code - after->first < after->count ? &*after : nullptr;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

CodeClass code_class(char32_t code) {
  if (is_space(code)) return CodeClass::Space;
  const ClassRun* run = run_of(class_runs(), code);
  return run == nullptr ? CodeClass::Other : run->kind;
}

// ---- normalization form C

namespace {

// Hangul syllables (Unicode 15, section 3.12).
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kLs = 19, kVs = 21, kTs = 28, kSs = kLs * kVs * kTs;

std::uint8_t combining_class(char32_t code) {
  const MarkRun* run = code < 0x300 ? nullptr : run_of(mark_runs(), code);
  return run == nullptr ? 0 : run->combining_class;
}

void decompose(std::u32string& out, char32_t code) {
  if (code >= kS && code < kS + kSs) {
    const char32_t s = code - kS;
    out += {kL + s / (kVs * kTs), kV + s / kTs % kVs};
    if (s % kTs != 0) out += kT + s % kTs;
    return;
  }
  const auto table = decompositions();
  const auto found = std::ranges::lower_bound(table, code, {}, &Decomposition::code);
  if (code < 0xC0 || found == table.end() || found->code != code) {
    out += code;
    return;
  }
  decompose(out, found->first);
  if (found->second != 0) decompose(out, found->second);
}

/// The code point that NFC makes of two; 0: none.
char32_t compose(char32_t a, char32_t b) {
  if (a >= kL && a < kL + kLs && b >= kV && b < kV + kVs) return kS + ((a - kL) * kVs + (b - kV)) * kTs;
  if (a >= kS && a < kS + kSs && (a - kS) % kTs == 0 && b > kT && b < kT + kTs) return a + (b - kT);
  static const auto pairs = [] {
    std::unordered_map<std::uint64_t, char32_t> map;
    for (const Decomposition& d : decompositions())
      if (d.composes) map.emplace(static_cast<std::uint64_t>(d.first) << 32 | d.second, d.code);
    return map;
  }();
  const auto found = pairs.find(static_cast<std::uint64_t>(a) << 32 | b);
  return found == pairs.end() ? 0 : found->second;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Below U+0300 nothing combines with what stands before it.
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xCC; })) return std::string(text);
  std::u32string codes;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Code c = utf8_at(text, at);
    decompose(codes, c.code);
    at += c.bytes;
  }
  for (std::size_t i = 0; i < codes.size();) {  // marks in canonical order
    std::size_t end = i;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i), codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = std::max(end, i + 1);
  }
  // Each code joins the last starter, unless one of its own class or a starter stands between.
  std::u32string joined;
  std::size_t starter = SIZE_MAX;
  int last_class = -1;
  for (const char32_t code : codes) {
    const int mark = combining_class(code);
    if (starter != SIZE_MAX && last_class < mark) {
      if (const char32_t both = compose(joined[starter], code)) {
        joined[starter] = both;
        continue;
      }
    }
    if (mark == 0) starter = joined.size();
    last_class = mark == 0 ? -1 : mark;
    joined += code;
  }
  std::string result;
  for (const char32_t code : joined) append_utf8(result, code);
  return result;
}

}  // namespace aeshna
