#pragma once
// Hostile inputs out of sound ones, the same for the same seed.
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::fuzz {

/// Words that a format knows. From a libFuzzer dictionary: lines "..." with \" \\ \xHH, and comments.
std::vector<std::string> read_dictionary(const std::filesystem::path& file);

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words, std::uint64_t seed)
      : seeds_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

  /// One of the seeds with one to four changes: bits, bytes, numbers of every width (of a text: digits), pieces that are taken out,
  /// repeated or come from another seed, words, ends cut off. Half of the inputs keep every length, so that the rest of a file still fits.
  std::string next();

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }
  std::uint64_t odd_number();
  void change_in_place(std::string& text);
  void change_length(std::string& text);
  void change_digits(std::string& text, std::size_t at);

  std::vector<std::string> seeds_, words_;
  std::mt19937_64 random_;
  std::size_t round_ = 0;
};

}  // namespace aeshna::fuzz
