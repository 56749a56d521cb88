// SmolLM2-135M (https://huggingface.co/HuggingFaceTB/SmolLM2-135M): a Llama with grouped-query attention and the embedding's table as
// output layer.
#include "aeshna/models.h"
#include "nn/models/llama.h"

namespace aeshna::models {

namespace {

LlamaConfig as_llama(const SmolLm2Config& c) {
  return {.vocab = c.vocab,
          .hidden = c.hidden,
          .layers = c.layers,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .ffn = c.ffn,
          .eps = c.eps,
          .rope_base = c.rope_base,
          .trainable = true};
}

}  // namespace

SmolLm2Config SmolLm2Config::small() {
  return {.vocab = 67, .hidden = 48, .layers = 2, .heads = 6, .kv_heads = 2, .head_dim = 16, .ffn = 80};
}

Value smollm2(Value ids, const SmolLm2Config& config, Loc loc) {
  return llama_as("smollm2", ids, as_llama(config), nullptr, loc);
}

Value smollm2_decode(Value ids, Value position, std::int64_t capacity, const SmolLm2Config& config, Loc loc) {
  const LlamaDecode decode{.position = position, .capacity = capacity};
  return llama_as("smollm2_decode", ids, as_llama(config), &decode, loc);
}

}  // namespace aeshna::models
