#include "fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "base/fail.h"

namespace aeshna::fuzz {

namespace {

/// At the edges of what fields, shapes and sizes can hold, also as a text.
constexpr std::array<std::string_view, 24> kNumbers = {"0",          "-1",     "1",
                                                       "2147483647", "-0",     "2147483648",
                                                       "4294967295", "65536",  "4294967296",
                                                       "1e308",      "-1e999", "9223372036854775807",
                                                       "1e-320",     "0.5",    "9223372036854775808",
                                                       "NaN",        "255",    "18446744073709551615",
                                                       "1048577",    "7",      "99999999999999999999999999",
                                                       "3",          "32",     "-9223372036854775808"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::vector<std::string> read_dictionary(const std::filesystem::path& path) {
  std::vector<std::string> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.size() < 2 || line.front() != '"' || line.back() != '"')
      fail(ErrorCode::CorruptFile, "{}: no word in quotes: {}", path.string(), line);
    std::string& word = words.emplace_back();
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      if (line[i] != '\\') {
        word += line[i];
      } else if (line[i + 1] == 'x' && i + 4 < line.size()) {
        word += static_cast<char>(digit_of(line[i + 2]) * 16 + digit_of(line[i + 3]));
        i += 3;
      } else {
        word += line[++i];
      }
    }
  }
  return words;
}

/// A number as a field may have it to hurt: a power of two or one beside it, small, or all ones.
std::uint64_t Mutator::odd_number() {
  const std::uint64_t power = std::uint64_t{1} << below(64);
  switch (below(5)) {
    case 0:
      return power;
    case 1:
      return power - 1;
    case 2:
      return ~std::uint64_t{0} - below(64);
    case 3:
      return below(40);
    default:
      return power + below(8);
  }
}

void Mutator::change_in_place(std::string& text) {
  const std::size_t at = below(text.size());
  switch (below(8)) {
    case 0:
      text[at] = static_cast<char>(random_());
      break;
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 2:
      text[at] = static_cast<char>(below(8));
      break;
    case 3:
      text[at] = "\xff\x7f\x80 \n\"{}[](),:;=0-"[below(18)];
      break;
    case 4: {  // a field of 1, 2, 4 or 8 bytes, either way round
      const std::size_t width = std::min(std::size_t{1} << below(4), text.size() - at);
      const std::uint64_t number = odd_number();
      const bool big = below(4) == 0;
      for (std::size_t i = 0; i < width; ++i)
        text[at + i] = static_cast<char>(number >> (8 * (big ? width - 1 - i : i)));
      break;
    }
    case 5: {  // the same, a little more or less
      const std::size_t width = std::min(std::size_t{1} << below(4), text.size() - at);
      unsigned carry = static_cast<unsigned>(1 + below(16));
      for (std::size_t i = 0; i < width; ++i) {
        carry += static_cast<unsigned char>(text[at + i]);
        text[at + i] = static_cast<char>(carry);
        carry >>= 8;
      }
      break;
    }
    case 6: {  // a piece from elsewhere over it
      const std::size_t from = below(text.size()), count = 1 + below(16);
      for (std::size_t i = 0; i < count && at + i < text.size() && from + i < text.size(); ++i)
        text[at + i] = text[from + i];
      break;
    }
    default: {
      if (words_.empty()) break;
      const std::string& word = words_[below(words_.size())];
      if (at + word.size() <= text.size()) text.replace(at, word.size(), word);
    }
  }
}

/// The next number of a text becomes another.
void Mutator::change_digits(std::string& text, std::size_t at) {
  while (at < text.size() && !is_digit(text[at])) ++at;
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  text.replace(at, end - at, kNumbers[below(kNumbers.size())]);
}

void Mutator::change_length(std::string& text) {
  const std::size_t at = below(text.size());
  switch (below(9)) {
    case 0:
      text.erase(at, 1 + below(8));
      break;
    case 1:
      text.erase(at, below(text.size()));
      break;
    case 2:
      text.insert(at, text.substr(below(text.size()), 1 + below(64)));
      break;
    case 3: {  // again and again
      const std::string piece = text.substr(at, 1 + below(12));
      std::string more;
      for (std::size_t n = 2 + below(below(8) == 0 ? 1000 : 20); n > 0; --n) more += piece;
      text.insert(at, more);
      break;
    }
    case 4: {  // a varint, as protobuf's lengths and numbers are
      std::string varint;
      for (std::uint64_t v = odd_number();; v >>= 7) {
        varint += static_cast<char>(v < 128 ? v : v | 128);
        if (v < 128) break;
      }
      text.insert(at, varint);
      break;
    }
    case 5: {  // the start of one seed, the end of another
      const std::string& other = seeds_[below(seeds_.size())];
      text = text.substr(0, at) + other.substr(below(other.size()));
      break;
    }
    case 6: {
      const std::string& other = seeds_[below(seeds_.size())];
      text.insert(at, other.substr(below(other.size()), 1 + below(64)));
      break;
    }
    case 7:
      change_digits(text, at);
      break;
    default:
      if (!words_.empty()) text.insert(at, words_[below(words_.size())]);
  }
}

std::string Mutator::next() {
  std::string text = seeds_[round_++ % seeds_.size()];
  const std::size_t style = below(8);  // 0..3: lengths stay; 4, 5: digits; 6, 7: anything
  for (std::size_t changes = 1 + below(style < 6 ? 2 : 4); changes > 0 && !text.empty(); --changes) {
    if (style < 4) {
      change_in_place(text);
    } else if (style < 6) {
      change_digits(text, below(text.size()));
    } else if (below(3) == 0) {
      change_in_place(text);
    } else {
      change_length(text);
    }
  }
  return text;
}

}  // namespace aeshna::fuzz
