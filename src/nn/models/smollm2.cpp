// SmolLM2-135M (https://huggingface.co/HuggingFaceTB/SmolLM2-135M), a Llama (arXiv 2302.13971) with grouped-query attention and the
// embedding's table as output layer.
#include <cmath>
#include <optional>

#include "nn/heads.h"
#include "nn/models/model.h"

namespace aeshna::models {

namespace {

using Linear = nn::LinearOptions;

/// Where decoding stands; without it positions are 0 .. S - 1 and keys and values those of `ids` alone.
struct Decoding {
  Value position;   ///< i32 [B], of the first id
  Value positions;  ///< i32 [B, S]
  std::int64_t capacity;
};

void check(const Model& model, const SmolLm2Config& c) {
  model.require_extents({{"vocab", c.vocab},
                         {"hidden width", c.hidden},
                         {"number of layers", c.layers},
                         {"number of heads", c.heads},
                         {"number of key-value heads", c.kv_heads},
                         {"head_dim", c.head_dim},
                         {"feed-forward width", c.ffn}});
  model.require_heads(c.heads, c.kv_heads);
  model.require(c.head_dim % 2 == 0, "rotates pairs: head_dim {} is odd", c.head_dim);
  model.require_eps(c.eps);
}

Value self_attention(Value x, std::int64_t layer, const SmolLm2Config& c, const std::optional<Decoding>& decoding,
                     Loc loc) {
  const std::string name = formatted("model.layers.{}.self_attn.", layer);
  const auto project = [&](std::int64_t heads, std::string_view part) {
    const Value flat = nn::linear(x, heads * c.head_dim, name + std::string(part), Linear{.bias = false}, loc);
    return nn::split_heads(flat, heads, c.head_dim, loc);
  };
  RopeOptions rotation{.base = c.rope_base};
  if (decoding) {
    rotation.positions = decoding->positions;
    rotation.max_positions = decoding->capacity;
  }
  const Value q = rope({project(c.heads, "q_proj"), loc}, rotation);
  Value k = rope({project(c.kv_heads, "k_proj"), loc}, rotation), v = project(c.kv_heads, "v_proj");
  AttentionOptions options{.causal = true};
  if (decoding) {
    const Shape shape{x.shape()[0], c.kv_heads, decoding->capacity, c.head_dim};
    const KvCache cache = kv_cache(x.graph(), formatted("cache.{}", layer), shape, false, loc);
    const KvCache now = cache_append(cache, {k, loc}, {v, loc}, {decoding->position, loc});
    k = now.keys;
    v = now.values;
    options.position = decoding->position;
  }
  const Value attended = attention({q, loc}, {k, loc}, {v, loc}, options);
  return nn::linear(nn::join_heads(attended, loc), c.hidden, name + "o_proj", Linear{.bias = false}, loc);
}

Value logits(Value ids, const SmolLm2Config& c, const std::optional<Decoding>& decoding, Loc loc) {
  const double deviation = 1 / std::sqrt(static_cast<double>(c.hidden));  // the table is the last layer's weight too
  const Value table = ids.graph().parameter("model.embed_tokens.weight", {c.vocab, c.hidden},
                                            {.init = Init::normal(0, deviation)}, loc);
  Value x = embedding({table, loc}, {ids, loc});
  const auto normalized = [&](std::string_view name) { return nn::rms_norm(x, name, {.eps = c.eps}, loc); };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = formatted("model.layers.{}.", i);
    x = add({x, loc}, {self_attention(normalized(name + "input_layernorm"), i, c, decoding, loc), loc});
    x = add({x, loc}, {nn::swiglu(normalized(name + "post_attention_layernorm"), c.ffn, name + "mlp", {}, loc), loc});
  }
  return linear({normalized("model.norm"), loc}, {table, loc});
}

}  // namespace

SmolLm2Config SmolLm2Config::small() {
  return {.vocab = 67, .hidden = 48, .layers = 2, .heads = 6, .kv_heads = 2, .head_dim = 16, .ffn = 80};
}

Value smollm2(Value ids, const SmolLm2Config& config, Loc loc) {
  const Model model("smollm2", loc);
  check(model, config);
  model.require_input(ids, "ids", DType::i32, {-1, -1}, "[batch, sequence]");
  return logits(ids, config, {}, loc);
}

Value smollm2_decode(Value ids, Value position, std::int64_t capacity, const SmolLm2Config& config, Loc loc) {
  const Model model("smollm2_decode", loc);
  check(model, config);
  model.require_input(ids, "ids", DType::i32, {-1, -1}, "[batch, sequence]");
  const std::int64_t batch = ids.shape()[0], rows = ids.shape()[1];
  model.require_input(position, "position", DType::i32, {batch}, formatted("[{}], one for each sequence", batch));
  model.require_extents({{"capacity", capacity}});
  model.require(rows <= capacity, "cannot append {} positions to caches of {}", rows, capacity);
  const Value first = reshape({position, loc}, {batch, 1}, loc);
  const Value positions = add({first, loc}, {iota(ids.graph(), {batch, rows}, 1, loc), loc});
  return logits(ids, config, Decoding{.position = position, .positions = positions, .capacity = capacity}, loc);
}

}  // namespace aeshna::models
