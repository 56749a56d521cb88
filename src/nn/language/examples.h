#pragma once
// Texts as the token sequences that a language model is trained on.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "aeshna/language_model.h"

namespace aeshna {

inline constexpr std::int32_t kIgnored = -100;  ///< a label that no loss counts (cross_entropy's ignore_index)

/// Sequences of at most `window` + 1 ids: a model that sees all but the last learns to predict those of the others that are marked.
class Examples {
 public:
  /// Error(InvalidArgument) for a window below 1.
  explicit Examples(std::int64_t window);

  /// One sequence after the other, each beginning with the last id of the one before, so that every id but the first is predicted once.
  void add_text(std::span<const std::int32_t> ids);
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  /// One sequence of which the ids in these ranges are to be predicted. What is beyond the window is cut off and counted; nothing is added if
  /// that leaves nothing to predict.
  void add(std::span<const std::int32_t> ids, std::span<const Range> answers);

  std::size_t size() const { return sequences_.size(); }
  std::size_t tokens() const { return predicted_; }  ///< to be predicted, in all
  std::size_t cut() const { return cut_; }           ///< sequences that were longer than the window
  std::size_t empty() const { return empty_; }  ///< sequences that were left out, since they have nothing to predict
  std::int64_t longest() const { return longest_; }  ///< ids that a model sees at once, at most
  /// Ids to be predicted in one.
  std::size_t tokens(std::size_t sequence) const;
  /// What the model sees of one, and the id that follows each or kIgnored: both have the same length, and what the sequence does not fill is
  /// id 0, ignored. `ids` is at least as long as longest().
  void fill(std::size_t sequence, std::span<std::int32_t> ids, std::span<std::int32_t> labels) const;
  /// Of everything in it, as hexadecimal digits.
  std::string fingerprint() const;

 private:
  std::size_t window_;
  std::vector<std::int32_t> ids_;
  std::vector<bool> marked_;      ///< of each id
  std::vector<Range> sequences_;  ///< in ids_
  std::size_t predicted_ = 0, cut_ = 0, empty_ = 0;
  std::int64_t longest_ = 0;
};

/// A file as examples. Text (.txt, .md) is cut into windows. In JSON Lines (.jsonl) each line is an object with
///   "text": a text of its own, which ends with the end of the sequence;
///   "prompt" and "completion": only the completion and the end behind it are to be predicted;
///   "messages", objects with "role" and "content": in the model's chat format; only what the assistant says is to be predicted.
/// Other members are left alone. Errors name the line and the field: CorruptFile, or what the chat format refuses; Unsupported for other
/// kinds of files; InvalidArgument for a file without anything to predict.
Examples read_examples(const std::filesystem::path& file, const LanguageModel& model, std::int64_t window);

}  // namespace aeshna
