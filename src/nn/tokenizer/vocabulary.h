#pragma once
// The algorithms that cut a piece of text into tokens.
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nn/tokenizer/spec.h"

namespace aeshna {

/// Tables over a TokenizerSpec, which must outlive it.
class Vocabulary {
 public:
  /// Error(CorruptFile) for merges whose tokens are missing.
  explicit Vocabulary(const TokenizerSpec& spec);
  /// Appends the ids of a piece.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  void ranked(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void scored(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void unigram(std::string_view piece, std::vector<std::int32_t>& ids) const;
  std::int32_t find(std::string_view text) const;  ///< -1: none
  /// What is no token: its bytes, or the unknown token, or nothing if there is neither.
  void fall_back(std::string_view text, std::vector<std::int32_t>& ids) const;

  const TokenizerSpec& spec_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  ///< of tokens that text can become
  struct Merge {
    std::int32_t rank, id;
  };
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by both ids
  std::array<std::int32_t, 256> bytes_;              ///< of byte tokens; -1: none
  std::size_t longest_ = 0;
  double unknown_score_ = 0;
};

}  // namespace aeshna
