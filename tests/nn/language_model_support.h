#pragma once
// Small language models in the forms in which they are published, and what graphs of them compute in the interpreter.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "aeshna/language_model.h"
#include "base/quant.h"
#include "io/safetensors.h"
#include "ir/interpreter.h"
#include "nn/tiny_language_model.h"
#include "support/graph_values.h"
#include "support/temp_dir.h"

namespace aeshna::test {

using Ids = std::vector<std::int32_t>;
inline const Ids kIds = {7, 300, 12, 12, 99, 0, 411};

inline TensorMap weights_of(const LanguageModel& model) {
  TensorMap leaves;
  for (const auto& [name, type] : model.parameters()) {
    const Literal value = model.weight(name);
    EXPECT_EQ(value.type(), type) << name;
    const Literal numbers = is_quantized(type.dtype) ? dequantize(value) : value;
    leaves.emplace(name, tensor(type, numbers.to_doubles()));
  }
  return leaves;
}

inline HostTensor ints(Shape shape, const Ids& values) {
  return tensor({DType::i32, shape}, std::vector<double>(values.begin(), values.end()));
}

inline HostTensor full_logits(const LanguageModel& model, TensorMap leaves, const Ids& ids) {
  Graph graph;
  const Shape shape{1, static_cast<std::int64_t>(ids.size())};
  graph.output("logits", models::llama(graph.input("ids", shape, DType::i32), model.config()));
  leaves.insert_or_assign("ids", ints(shape, ids));
  return interpret(graph, leaves).outputs.at("logits");
}

inline double largest_difference(const HostTensor& got, const TinyReference::Rows& want) {
  double worst = 0;
  std::size_t i = 0;
  for (const auto& row : want)
    for (const double v : row) worst = std::max(worst, std::abs(got.data.at(i++) - v));
  EXPECT_EQ(i, got.data.size());
  return worst;
}

inline std::string hugging_face_name(std::string name, const TinyModel& m) {
  const std::pair<std::string, std::string> parts[] = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"ffn_norm", m.gemma() ? "pre_feedforward_layernorm" : "post_attention_layernorm"},
      {"ffn_up", m.is("phi3") ? "mlp.gate_up_proj" : "mlp.up_proj"}};
  if (name == "output.weight") return "lm_head.weight";
  std::string prefix;
  if (name.starts_with("blk.")) {
    const std::size_t dot = name.find('.', 4);
    prefix = "model.layers." + name.substr(4, dot - 4) + ".";
    name = name.substr(dot + 1);
  }
  const std::string stem = name.substr(0, name.find('.')), rest = name.substr(name.find('.'));
  for (const auto& [from, to] : parts)
    if (stem == from) return prefix + to + rest;
  ADD_FAILURE() << name;
  return name;
}

inline nlohmann::json hugging_face_config(const TinyModel& m, std::int64_t vocab) {
  nlohmann::json c = {{"model_type", m.is("gemma3") ? "gemma3_text" : m.architecture},
                      {"vocab_size", vocab},
                      {"hidden_size", m.hidden},
                      {"num_hidden_layers", m.layers},
                      {"num_attention_heads", m.heads},
                      {"num_key_value_heads", m.kv_heads},
                      {"intermediate_size", m.ffn},
                      {"head_dim", m.head_dim},
                      {"max_position_embeddings", m.context},
                      {"rms_norm_eps", m.eps},
                      {"rope_theta", m.base},
                      {"rope_scaling", nullptr},
                      {"torch_dtype", "float32"}};
  if (m.window > 0) c["sliding_window"] = m.window;
  if (m.llama3_scaling)
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  if (m.is("gemma2"))
    c["attn_logit_softcapping"] = 5.0, c["final_logit_softcapping"] = 3.0, c["query_pre_attn_scalar"] = m.head_dim;
  if (m.is("gemma3")) c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  if (m.is("qwen2")) c["use_sliding_window"] = false, c["sliding_window"] = 4;
  return c;
}

/// Two files and an index.
inline void write_hugging_face(const TempDir& dir, const TinyModel& m,
                               const std::function<void(nlohmann::json&, nlohmann::json&)>& change = {}) {
  std::vector<std::pair<std::string, Literal>> tensors;
  for (const auto& [name, value] : tiny_tensors(m)) {
    if (name == "rope_freqs.weight") continue;
    std::vector<double> v = value.to_doubles();
    const auto width = static_cast<std::size_t>(value.type().shape[value.type().shape.rank() - 1]);
    if (m.is("llama") && (name.contains("attn_q.") || name.contains("attn_k."))) {  // neighbours become halves
      const auto d = static_cast<std::size_t>(m.head_dim);
      const std::vector<double> old = v;
      for (std::size_t row = 0; row < v.size() / width; ++row) {
        const std::size_t i = row % d, from = row - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
        std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                    v.begin() + static_cast<std::ptrdiff_t>(row * width));
      }
    }
    if (m.gemma() && name.ends_with("norm.weight"))
      for (double& x : v) x -= 1;
    tensors.emplace_back(hugging_face_name(name, m), Literal::from_doubles(value.type(), v));
  }
  nlohmann::json index;
  for (const std::size_t part : {0u, 1u}) {
    std::vector<SafetensorsTensor> some;
    const std::string file = part == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    for (std::size_t i = part; i < tensors.size(); i += 2) {
      some.push_back({tensors[i].first, tensors[i].second.type(), tensors[i].second.bytes()});
      index["weight_map"][tensors[i].first] = file;
    }
    write_safetensors(dir / file, some);
  }
  nlohmann::json config = hugging_face_config(m, tensors[0].second.type().shape[0]);
  if (change) change(config, index);
  dir.write("config.json", config.dump());
  dir.write("model.safetensors.index.json", index.dump());
  dir.write("tokenizer.json", fixture("gpt2").dump());
  dir.write(
      "tokenizer_config.json",
      R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>", "chat_template": "<|im_start|>"})");
  dir.write("generation_config.json", R"({"eos_token_id": [2, 3]})");
}

inline TinyModel plain_model(std::string architecture) {
  TinyModel m = tiny_model(std::move(architecture));
  m.all_f32 = true;
  m.hidden = 64;
  m.ffn = 96;
  m.head_dim = 16;
  return m;
}

}  // namespace aeshna::test
