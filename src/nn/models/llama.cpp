// Llama (arXiv 2302.13971, 2407.21783), Mistral (2310.06825), Qwen 2 and 3 (2407.10671, 2505.09388), Gemma 2 and 3 (2408.00118,
// 2503.19786), Phi 3 (2404.14219).
#include "nn/models/llama.h"

#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base/quant.h"
#include "nn/heads.h"
#include "nn/models/model.h"

namespace aeshna::models {

namespace {

/// The graph of one call; its methods follow the model from the inside out.
class Llama : public Model {
 public:
  Llama(std::string_view name, Value ids, const LlamaConfig& config, const LlamaDecode* decode, const Loc& loc)
      : Model(name, loc), c_(config), ids_(ids), decode_(decode) {
    check();
    if (decode == nullptr) return;
    const std::int64_t batch = ids.shape()[0], rows = ids.shape()[1];
    const std::string form = formatted("[{}], one for each sequence", batch);
    require_input(decode->position, "position", DType::i32, {batch}, form);
    if (decode->row) require_input(*decode->row, "row", DType::i32, {batch}, form);
    require_extents({{"capacity", decode->capacity}});
    require(rows <= decode->capacity, "cannot append {} positions to caches of {}", rows, decode->capacity);
    if (decode->slot) {
      require(batch == 1, "reads ids of one sequence into a slot, not of {}", batch);
      require_input(decode->slot->index, "slot.index", DType::i32, {1}, "[1]");
      require_input(decode->slot->next, "slot.next", DType::i32, {-1}, "[sequences]");
      const Shape& sequences = decode->slot->next.shape();
      const Value own = equal(at(iota(graph(), sequences, 0, loc)), at(decode->slot->index));
      written_ = select(at(own), at(decode->position), at(decode->slot->next));
    }
    const Value first = reshape(at(decode->position), {batch, 1}, loc);
    positions_ = add(at(first), at(iota(graph(), {batch, rows}, 1, loc)));
  }

  Value logits() {
    const double deviation =
        1 / std::sqrt(static_cast<double>(c_.hidden));  // the table may be the last layer's weight too
    const Value table = weight("model.embed_tokens.weight", {c_.vocab, c_.hidden}, Init::normal(0, deviation));
    Value x = widened(embedding(at(table), at(ids_)));
    if (c_.scaled_embedding) x = mul(at(x), at(std::sqrt(static_cast<double>(c_.hidden))));
    for (std::int64_t i = 0; i < c_.layers; ++i) x = layer(x, i);
    if (decode_ != nullptr && decode_->row)
      x = gather_elements(at(x), at(reshape(at(*decode_->row), {ids_.shape()[0], 1, 1}, loc())), 1);
    x = norm(x, "model.norm");
    const Value y = linear(at(x), at(widened(c_.tied ? table : weight("lm_head.weight", {c_.vocab, c_.hidden}, {}))));
    for (const auto& [name, adapter] : c_.adapters)
      require(adapted_.contains(name), "has an adapter for '{}', which is no linear of its layers", name);
    return softcapped(y, c_.logits_softcap);
  }

 private:
  Graph& graph() const { return ids_.graph(); }

  void check() const {
    require_extents({{"vocab", c_.vocab},
                     {"hidden width", c_.hidden},
                     {"number of layers", c_.layers},
                     {"number of heads", c_.heads},
                     {"number of key-value heads", c_.kv_heads},
                     {"head_dim", c_.head_dim},
                     {"feed-forward width", c_.ffn}});
    require_heads(c_.heads, c_.kv_heads);
    require_eps(c_.eps);
    require(c_.rotary_dim >= 0 && c_.rotary_dim <= c_.head_dim, "cannot rotate {} of {} elements", c_.rotary_dim,
            c_.head_dim);
    require(c_.rotary_dim % 2 == 0, "rotates pairs: rotary_dim {} is odd", c_.rotary_dim);
    require(c_.rotary_dim > 0 || c_.head_dim % 2 == 0, "rotates pairs: head_dim {} is odd", c_.head_dim);
    require(c_.window >= 0 && c_.window_period >= 0, "cannot have a window of {} with a period of {}", c_.window,
            c_.window_period);
    for (const double cap : {c_.attention_softcap, c_.logits_softcap})
      require(std::isfinite(cap) && cap >= 0, "needs a finite softcap from 0 on, not {}", cap);
    require_input(ids_, "ids", DType::i32, {-1, -1}, "[batch, sequence]");
  }

  Value weight(const std::string& name, Shape shape, std::optional<Init> init) const {
    const auto found = c_.dtypes.find(name);
    const DType dtype = found == c_.dtypes.end() ? DType::f32 : found->second;
    require(dtype == DType::f32 || is_16_bit(dtype) || is_quantized(dtype), "needs '{}' as floats or quantized, not {}",
            name, dtype_name(dtype));
    const bool trainable = c_.trainable && dtype == DType::f32;
    return graph().parameter(name, shape,
                             {.init = trainable ? init : Init::zeros(), .dtype = dtype, .trainable = trainable}, loc());
  }

  static bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
  /// Of a weight in 16 bits the f32 values, which its reader computes as it loads them.
  Value widened(Value w) const { return is_16_bit(w.dtype()) ? cast(at(w), DType::f32) : w; }

  Value norm(Value x, const std::string& name) const {
    return nn::rms_norm(x, name, {.eps = c_.eps, .trainable = c_.trainable}, loc());
  }

  /// x [..., in] -> [..., out]
  Value project(Value x, std::int64_t out, const std::string& name, bool bias = false) {
    const Value w = weight(name + ".weight", {out, x.shape()[x.shape().rank() - 1]}, {});
    std::optional<Value> b;
    if (bias) b = graph().parameter(name + ".bias", {out}, {.init = Init::zeros(), .trainable = c_.trainable}, loc());
    const Value y = linear(at(x), at(widened(w)), b);
    const auto adapter = c_.adapters.find(name);
    if (adapter == c_.adapters.end()) return y;
    adapted_.insert(adapter->first);
    const nn::Layer layer("lora", name, nn::dropout(x, c_.adapter_dropout, true, loc()), loc());
    return add(at(y), at(nn::low_rank(layer, out, adapter->second.rank, adapter->second.scale, true)));
  }

  /// Elements [begin, end) of the last axis.
  Value part(Value x, std::int64_t begin, std::int64_t end) const { return slice(at(x), {-1}, {begin}, {end}); }

  Value softcapped(Value x, double cap) const {
    return cap == 0 ? x : mul(at(tanh(at(mul(at(x), at(1 / cap))))), at(cap));
  }

  bool windowed(std::int64_t layer) const {
    return c_.window > 0 && (c_.window_period == 0 || (layer + 1) % c_.window_period != 0);
  }

  Value layer(Value x, std::int64_t i) {
    const std::string name = formatted("model.layers.{}.", i);
    Value update = self_attention(norm(x, name + "input_layernorm"), i);
    if (c_.post_norms) update = norm(update, name + "post_attention_layernorm");
    x = add(at(x), at(update));
    update = feed_forward(norm(x, name + (c_.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm")),
                          name + "mlp.");
    if (c_.post_norms) update = norm(update, name + "post_feedforward_layernorm");
    return add(at(x), at(update));
  }

  Value feed_forward(Value x, const std::string& name) {
    Value gate, up;
    if (c_.fused_gate_up) {
      const Value both = project(x, 2 * c_.ffn, name + "gate_up_proj");
      gate = part(both, 0, c_.ffn);
      up = part(both, c_.ffn, 2 * c_.ffn);
    } else {
      gate = project(x, c_.ffn, name + "gate_proj");
      up = project(x, c_.ffn, name + "up_proj");
    }
    const Value active = c_.gelu ? gelu_tanh(at(gate)) : silu(at(gate));
    return project(mul(at(active), at(up)), c_.hidden, name + "down_proj");
  }

  Value self_attention(Value x, std::int64_t i) {
    const std::string name = formatted("model.layers.{}.self_attn.", i);
    const std::int64_t queries = c_.heads * c_.head_dim, keys = c_.kv_heads * c_.head_dim;
    Value q, k, v;
    if (c_.fused_qkv) {
      const Value all = project(x, queries + 2 * keys, name + "qkv_proj", c_.qkv_bias);
      q = part(all, 0, queries);
      k = part(all, queries, queries + keys);
      v = part(all, queries + keys, queries + 2 * keys);
    } else {
      q = project(x, queries, name + "q_proj", c_.qkv_bias);
      k = project(x, keys, name + "k_proj", c_.qkv_bias);
      v = project(x, keys, name + "v_proj", c_.qkv_bias);
    }
    q = nn::split_heads(q, c_.heads, c_.head_dim, loc());
    k = nn::split_heads(k, c_.kv_heads, c_.head_dim, loc());
    v = nn::split_heads(v, c_.kv_heads, c_.head_dim, loc());
    if (c_.qk_norm) {
      q = norm(q, name + "q_norm");
      k = norm(k, name + "k_norm");
    }
    q = rotated(q, windowed(i));
    k = rotated(k, windowed(i));
    if (decode_ != nullptr) std::tie(k, v) = append(k, v, i);
    return project(nn::join_heads(attend(q, k, v, windowed(i) ? c_.window : 0), loc()), c_.hidden, name + "o_proj");
  }

  /// The keys and values of layer i that attention sees: the caches with the new rows k and v [B, KV, S, D].
  std::pair<Value, Value> append(Value k, Value v, std::int64_t i) const {
    const auto& slot = decode_->slot;
    const std::int64_t sequences = slot ? slot->next.shape()[0] : k.shape()[0];
    const Shape shape{sequences, c_.kv_heads, decode_->capacity, c_.head_dim};
    const KvCache cache = kv_cache(graph(), formatted("cache.{}", i), shape, false, loc());
    if (!slot) {
      const KvCache now = cache_append(cache, at(k), at(v), at(decode_->position));
      return {now.keys, now.values};
    }
    const auto of_all = [&](Value rows) {
      const Shape& one = rows.shape();
      return at(expand(at(rows), {sequences, one[1], one[2], one[3]}, loc()));
    };
    const KvCache now = cache_append(cache, of_all(k), of_all(v), at(written_));
    return {gather(at(now.keys), at(slot->index)), gather(at(now.values), at(slot->index))};
  }

  Value rotated(Value x, bool windowed) const {
    RopeOptions options{.base = c_.rope_base,
                        .interleaved = c_.rope_interleaved,
                        .rotary_dim = c_.rotary_dim,
                        .scaling = c_.rope_scaling};
    if (windowed && c_.window_rope_base) {
      options.base = *c_.window_rope_base;
      options.scaling = {};
    }
    if (decode_ != nullptr) {
      options.positions = positions_;
      options.max_positions = decode_->capacity;
    }
    return rope(at(x), options);
  }

  /// q [B, H, S, D], k and v [B, KV, C, D] -> [B, H, S, D]
  Value attend(Value q, Value k, Value v, std::int64_t window) const {
    if (c_.attention_softcap != 0) return attend_softcapped(q, k, v, window);
    AttentionOptions options{.scale = c_.attention_scale, .causal = true, .window = window};
    if (decode_ != nullptr) options.position = decode_->position;
    return attention(at(q), at(k), at(v), options);
  }

  /// The same in plain ops, which hold all scores: nothing may stand between score and softmax in attention().
  Value attend_softcapped(Value q, Value k, Value v, std::int64_t window) const {
    const std::int64_t batch = q.shape()[0], rows = q.shape()[2], capacity = k.shape()[2],
                       group = c_.heads / c_.kv_heads;
    const double scale = c_.attention_scale.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)));
    const Value grouped = reshape(at(q), {batch, c_.kv_heads, group * rows, c_.head_dim}, loc());
    Value scores = softcapped(mul(at(matmul(at(grouped), at(k), false, true)), at(scale)), c_.attention_softcap);
    scores = reshape(at(scores), {batch, c_.kv_heads, group, rows, capacity}, loc());
    const Value query = decode_ == nullptr ? iota(graph(), {1, 1, 1, rows, 1}, 3, loc())
                                           : reshape(at(positions_), {batch, 1, 1, rows, 1}, loc());
    const Value key = iota(graph(), {1, 1, 1, 1, capacity}, 4, loc());
    Value visible = less_equal(at(key), at(query));
    if (window > 0)
      visible = logical_and(at(visible), at(greater(at(key), at(sub(at(query), at(static_cast<double>(window)))))));
    const Value weights = softmax(at(select(at(visible), at(scores), at(-1e30))));
    const Value flat = reshape(at(weights), {batch, c_.kv_heads, group * rows, capacity}, loc());
    return reshape(at(matmul(at(flat), at(v))), {batch, c_.heads, rows, c_.head_dim}, loc());
  }

  const LlamaConfig& c_;
  Value ids_, positions_;
  Value written_;  ///< with a slot: where the rows of each sequence go
  const LlamaDecode* decode_;
  std::set<std::string_view> adapted_;  ///< linears whose adapter was built
};

}  // namespace

Value llama_as(std::string_view name, Value ids, const LlamaConfig& config, const LlamaDecode* decode, const Loc& loc) {
  return Llama(name, ids, config, decode, loc).logits();
}

Value llama(Value ids, const LlamaConfig& config, Loc loc) { return llama_as("llama", ids, config, nullptr, loc); }

Value llama_decode(Value ids, const LlamaDecode& decode, const LlamaConfig& config, Loc loc) {
  return llama_as("llama_decode", ids, config, &decode, loc);
}

}  // namespace aeshna::models
