#include "cli/char_model.h"

#include <algorithm>
#include <cmath>

#include "aeshna/nn.h"
#include "base/fail.h"
#include "base/format.h"

namespace aeshna::cli {

void build_char_model(Graph& graph, const CharModel& model, std::int64_t batch, bool loss) {
  const Value ids = graph.input("ids", {batch, model.window}, DType::i32);
  const nn::EmbeddingOptions small{.init = Init::normal(0, 0.02)};
  const Value positions = graph.parameter("positions.weight", {model.window, model.width}, {.init = small.init});
  Value x = nn::embedding(ids, model.vocabulary, model.width, "characters", small) + positions;
  x = nn::dropout(x, model.dropout, loss);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    x = nn::transformer_block(
        x, formatted("block.{}", i),
        {.attention = {.heads = model.heads, .causal = true}, .dropout = model.dropout, .training = loss});
  }
  const Value logits = nn::linear(nn::layer_norm(x, "norm"), model.vocabulary, "head", {.bias = false});
  graph.output("logits", logits);
  if (loss) graph.output("loss", cross_entropy(logits, graph.input("next", {batch, model.window}, DType::i32)));
}

Vocabulary::Vocabulary(std::span<const std::byte> text) : ids_(256, -1) {
  for (const std::byte b : text) ids_[static_cast<std::size_t>(b)] = 0;
  for (std::size_t byte = 0; byte < ids_.size(); ++byte) {
    if (ids_[byte] < 0) continue;
    ids_[byte] = static_cast<std::int32_t>(bytes_.size());
    bytes_.push_back(static_cast<std::uint8_t>(byte));
  }
}

std::vector<std::int32_t> Vocabulary::encode(std::span<const std::byte> text, std::string_view what) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const std::byte b : text) {
    const std::int32_t id = ids_[static_cast<std::size_t>(b)];
    if (id < 0) {
      const auto c = static_cast<char>(b);
      const std::string shown =
          c >= 33 && c < 127 ? formatted("'{}'", c) : formatted("0x{:02x}", static_cast<unsigned>(b));
      fail(ErrorCode::InvalidArgument, "{} holds the byte {}, which the text does not", what, shown);
    }
    ids.push_back(id);
  }
  return ids;
}

std::string Vocabulary::to_hex() const {
  std::string text;
  for (const std::uint8_t byte : bytes_) text += formatted("{:02x}", byte);
  return text;
}

std::int32_t sample(std::span<const float> logits, double temperature, double uniform) {
  const auto largest = std::ranges::max_element(logits);
  const auto best = static_cast<std::int32_t>(largest - logits.begin());
  if (temperature <= 0) return best;
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : logits) sum += weights.emplace_back(std::exp((logit - *largest) / temperature));
  double left = uniform * sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (left < weights[i]) return static_cast<std::int32_t>(i);
    left -= weights[i];
  }
  return best;  // what rounding leaves
}

double surprise(std::span<const float> logits, std::int32_t id) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(id)];
}

}  // namespace aeshna::cli
