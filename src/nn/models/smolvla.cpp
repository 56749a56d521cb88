// The action expert of SmolVLA (arXiv 2506.01844): a decoder over action tokens whose layers take turns in attending to each other's
// tokens and to those of a vision-language model.
#include "nn/models/model.h"

namespace aeshna::models {

SmolVlaConfig SmolVlaConfig::small() {
  return {.action_dim = 6,
          .hidden = 40,
          .layers = 3,
          .heads = 6,
          .kv_heads = 2,
          .head_dim = 16,
          .ffn = 72,
          .context_width = 24,
          .timestep_width = 50};
}

Value smolvla_expert(Value noisy_actions, Value timestep, Value vlm_kv, const SmolVlaConfig& config, Loc loc) {
  const Model model("smolvla_expert", loc);
  const auto& c = config;
  model.require_extents({{"action width", c.action_dim},
                         {"hidden width", c.hidden},
                         {"number of layers", c.layers},
                         {"number of heads", c.heads},
                         {"number of key-value heads", c.kv_heads},
                         {"head_dim", c.head_dim},
                         {"feed-forward width", c.ffn},
                         {"context width", c.context_width},
                         {"timestep width", c.timestep_width}});
  model.require_heads(c.heads, c.kv_heads);
  model.require_eps(c.eps);
  model.require_input(noisy_actions, "noisy_actions", DType::f32, {-1, -1, c.action_dim},
                      formatted("[batch, actions, {}]", c.action_dim));
  const std::int64_t batch = noisy_actions.shape()[0];
  model.require_input(timestep, "timestep", DType::f32, {batch, 1, c.timestep_width},
                      formatted("[{}, 1, {}]", batch, c.timestep_width));
  model.require_input(vlm_kv, "vlm_kv", DType::f32, {batch, -1, c.context_width},
                      formatted("[{}, tokens, {}]", batch, c.context_width));

  const auto linear = [&](Value v, std::int64_t out, std::string_view name) {
    return nn::linear(v, out, name, {}, loc);
  };
  const Value time = silu(model.at(linear(timestep, c.hidden, "model.action_time_mlp_in")));
  Value x = add(model.at(linear(noisy_actions, c.hidden, "model.action_in_proj")),
                model.at(linear(time, c.hidden, "model.action_time_mlp_out")));
  const auto normalized = [&](std::string_view name) { return nn::rms_norm(x, name, {.eps = c.eps}, loc); };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = formatted("model.vlm_with_expert.lm_expert.layers.{}.", i);
    nn::MultiHeadAttentionOptions attention{
        .heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .bias = false};
    if (i % 2 == 0) {
      attention.causal = true;
    } else {
      attention.context = vlm_kv;
    }
    x = add(model.at(x), model.at(nn::multi_head_attention(normalized(name + "input_layernorm"), name + "self_attn",
                                                           attention, loc)));
    x = add(model.at(x),
            model.at(nn::swiglu(normalized(name + "post_attention_layernorm"), c.ffn, name + "mlp", {}, loc)));
  }
  return linear(x, c.action_dim, "model.action_out_proj");
}

}  // namespace aeshna::models
