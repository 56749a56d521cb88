#pragma once
#include <array>
#include <string_view>

namespace aeshna {

/// What llama.cpp's converter calls a parameter of models::llama.
struct GgufName {
  std::string_view gguf, parameter;
  bool layer = true;  ///< "blk.<layer>.<gguf>" is "model.layers.<layer>.<parameter>"
};
inline constexpr std::array<GgufName, 19> kGgufNames = {{
    {"token_embd.weight", "model.embed_tokens.weight", false},
    {"output_norm.weight", "model.norm.weight", false},
    {"output.weight", "lm_head.weight", false},
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
}};

}  // namespace aeshna
