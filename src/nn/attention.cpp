// Attention with its projections, and the block of a transformer.
#include <algorithm>
#include <cstdint>

#include "nn/heads.h"
#include "nn/layer.h"

namespace aeshna::nn {

Value multi_head_attention(Value x, std::string_view name, MultiHeadAttentionOptions options, Loc loc) {
  const Layer layer("multi_head_attention", name, x, loc);
  layer.require_shape(x.shape().rank() == 3, "needs an input [batch, sequence, width], not {}", x.type().to_string());
  const Value context = options.context.value_or(x);
  layer.require_shape(context && context.shape().rank() == 3 && context.shape()[0] == x.shape()[0],
                      "needs a context [{}, sequence, width]{}", x.shape()[0],
                      context ? ", not " + context.type().to_string() : std::string());
  const std::int64_t width = x.shape()[2], heads = options.heads, kv = options.kv_heads == 0 ? heads : options.kv_heads;
  layer.require(heads >= 1 && kv >= 1 && heads % kv == 0, "cannot share {} key-value heads among {} heads", kv, heads);
  layer.require(options.head_dim >= 0, "cannot have a head_dim of {}", options.head_dim);
  layer.require(options.head_dim > 0 || width % heads == 0, "cannot split a width of {} into {} heads", width, heads);
  const std::int64_t head_dim = options.head_dim == 0 ? width / heads : options.head_dim;
  layer.require(heads <= INT32_MAX / std::max<std::int64_t>(head_dim, 1), "cannot have {} heads of {}", heads, head_dim);
  const LinearOptions each{.bias = options.bias, .lora = options.lora, .trainable = options.trainable};
  const auto project = [&](Value v, std::int64_t count, std::string_view part) {
    return split_heads(linear(v, count * head_dim, layer.part(part), each, loc), count, head_dim, loc);
  };
  Value q = project(x, heads, "q_proj"), k = project(context, kv, "k_proj");
  const Value v = project(context, kv, "v_proj");
  if (options.rope) {
    q = rope(layer.at(q), *options.rope);
    k = rope(layer.at(k), *options.rope);
  }
  const Value attended = attention(layer.at(q), layer.at(k), layer.at(v),
                                   {.causal = options.causal, .window = options.window, .mask = options.mask});
  return dropout(linear(join_heads(attended, loc), width, layer.part("o_proj"), each, loc), options.dropout,
                 options.training, loc);
}

Value transformer_block(Value x, std::string_view name, TransformerBlockOptions options, Loc loc) {
  const Layer layer("transformer_block", name, x, loc);
  layer.require_shape(x.shape().rank() == 3, "needs an input [batch, sequence, width], not {}", x.type().to_string());
  layer.require(options.hidden >= 0, "cannot have a hidden width of {}", options.hidden);
  const std::int64_t width = x.shape()[2], hidden = options.hidden == 0 ? 4 * width : options.hidden;
  const bool trainable = options.trainable && !options.lora;
  const auto normalized = [&](Value v, std::string_view part) {
    if (options.rms) return rms_norm(v, layer.part(part), {.eps = options.eps, .trainable = trainable}, loc);
    return layer_norm(v, layer.part(part), {.eps = options.eps, .trainable = trainable}, loc);
  };
  const auto residual = [&](Value v, Value update) { return add(layer.at(v), layer.at(update)); };
  MultiHeadAttentionOptions attention = options.attention;
  attention.dropout = std::max(attention.dropout, options.dropout);
  attention.training = attention.training || options.training;
  if (options.lora) attention.lora = options.lora;
  attention.trainable = attention.trainable && options.trainable;
  x = residual(x, multi_head_attention(normalized(x, "norm1"), layer.part("attn"), attention, loc));
  const Value inner = normalized(x, "norm2");
  const Value update =
      options.gated
          ? swiglu(inner, hidden, layer.part("mlp"), {.lora = options.lora, .trainable = options.trainable}, loc)
          : mlp(inner, {hidden}, width, layer.part("mlp"),
                {.activation = options.activation, .lora = options.lora, .trainable = options.trainable}, loc);
  return residual(x, dropout(update, options.dropout, options.training, loc));
}

}  // namespace aeshna::nn
