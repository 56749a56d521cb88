#include "cli/char_model.h"

#include <algorithm>
#include <cmath>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "base/format.h"

namespace aeshna::cli {

models::LlamaConfig char_config(std::int64_t vocabulary, std::int64_t window, std::int64_t width, std::int64_t layers,
                                std::int64_t heads) {
  models::LlamaConfig c{.vocab = vocabulary, .hidden = width, .layers = layers, .heads = heads, .kv_heads = heads};
  c.head_dim = width / heads;
  c.ffn = (8 * width / 3 + 31) / 32 * 32;  // Llama's share, in whole blocks of quantized weights
  c.context = window;
  c.rope_interleaved = true;  // as GGUF files of this architecture have it
  c.trainable = true;
  return c;
}

void build_char_training(Graph& graph, const models::LlamaConfig& config, std::int64_t batch) {
  const Value ids = graph.input("ids", {batch, config.context}, DType::i32);
  const Value logits = models::llama(ids, config);
  graph.output("loss", cross_entropy(logits, graph.input("next", {batch, config.context}, DType::i32)));
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

TokenizerSpec Vocabulary::tokenizer() const {
  TokenizerSpec spec;
  for (const std::uint8_t byte : bytes_) spec.tokens.push_back({.text = std::string(1, static_cast<char>(byte))});
  spec.bos = spec.eos = spec.unknown = static_cast<std::int32_t>(spec.tokens.size());
  spec.tokens.push_back({.text = "<|endoftext|>", .kind = Token::Kind::Control});
  spec.splits = {SplitRule::Gpt2};
  return spec;
}

double surprise(std::span<const float> logits, std::int32_t id) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(id)];
}

}  // namespace aeshna::cli
