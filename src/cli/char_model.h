#pragma once
// The character-level transformer of `aeshna train chars`, and the text that it learns.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna::cli {

struct CharModel {
  std::int64_t vocabulary = 256;
  std::int64_t window = 64, width = 64, layers = 2, heads = 4;
  double dropout = 0;
};

/// Input "ids" i32[batch, window]; output "logits" f32[batch, window, vocabulary], of the character that follows each. With `loss`
/// also input "next" i32[batch, window] and the scalar output "loss", and dropout.
void build_char_model(Graph& graph, const CharModel& model, std::int64_t batch, bool loss);

/// The bytes that occur in a text, numbered in order. Text is bytes: nothing here asks for an encoding.
class Vocabulary {
 public:
  explicit Vocabulary(std::span<const std::byte> text);
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// Error(InvalidArgument) naming the byte and `what` it is in if the vocabulary lacks it.
  std::vector<std::int32_t> encode(std::span<const std::byte> text, std::string_view what) const;
  char decode(std::int32_t id) const { return static_cast<char>(bytes_[static_cast<std::size_t>(id)]); }
  std::string to_hex() const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> ids_;  ///< per byte; -1: not in the text
};

/// Draws from softmax(logits / temperature) with `uniform` in [0, 1); temperature 0: the largest.
std::int32_t sample(std::span<const float> logits, double temperature, double uniform);

/// -log softmax(logits)[id]
double surprise(std::span<const float> logits, std::int32_t id);

}  // namespace aeshna::cli
