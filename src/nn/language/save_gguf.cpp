#include "nn/language/save_gguf.h"

#include <algorithm>

#include "base/fail.h"
#include "io/gguf.h"
#include "ir/leaf.h"
#include "nn/language/gguf_names.h"

namespace aeshna {

namespace {

constexpr std::string_view kLayers = "model.layers.";

std::string gguf_name(std::string_view parameter) {
  std::string prefix;
  const bool layer = parameter.starts_with(kLayers);
  if (layer) {
    parameter.remove_prefix(kLayers.size());
    const std::size_t dot = parameter.find('.');
    prefix = formatted("blk.{}.", parameter.substr(0, dot));
    parameter.remove_prefix(dot + 1);
    if (parameter == "post_attention_layernorm.weight") return prefix + "ffn_norm.weight";  // without post_norms
  }
  const auto found =
      std::ranges::find_if(kGgufNames, [&](const GgufName& n) { return n.parameter == parameter && n.layer == layer; });
  if (found == kGgufNames.end()) fail(ErrorCode::Unsupported, "GGUF has no name for the parameter '{}'", parameter);
  return prefix + std::string(found->gguf);
}

void check_config(const models::LlamaConfig& c) {
  const auto refuse = [](bool refused, std::string_view what) {
    if (refused) fail(ErrorCode::Unsupported, "the GGUF architecture llama does not have {}", what);
  };
  refuse(!c.rope_interleaved, "positions that rotate halves (rope_interleaved = false)");
  refuse(c.rope_scaling.kind != RopeScaling::Kind::None || c.window_rope_base.has_value(), "scaled positions here");
  refuse(c.window > 0, "sliding windows");
  refuse(c.attention_scale.has_value(), "another attention_scale");
  refuse(c.attention_softcap != 0 || c.logits_softcap != 0, "softcaps");
  refuse(c.qk_norm || c.post_norms, "norms of q and k or behind a part");
  refuse(c.fused_qkv || c.fused_gate_up, "fused projections");
  refuse(c.gelu, "GELU");
  refuse(c.scaled_embedding, "a scaled embedding");
}

GgufMetadata metadata_of(std::string_view name, const models::LlamaConfig& c) {
  GgufMetadata metadata = {{"general.architecture", GgufValue::text("llama")},
                           {"general.name", GgufValue::text(std::string(name))},
                           {"general.file_type", GgufValue::integer(0)}};  // f32; `aeshna convert` changes it
  const auto integer = [&](std::string_view key, std::int64_t value) {
    metadata.emplace_back(formatted("llama.{}", key), GgufValue::integer(static_cast<std::uint32_t>(value)));
  };
  const auto number = [&](std::string_view key, double value) {
    metadata.emplace_back(formatted("llama.{}", key), GgufValue::number(static_cast<float>(value)));
  };
  integer("vocab_size", c.vocab);
  integer("context_length", c.context);
  integer("embedding_length", c.hidden);
  integer("block_count", c.layers);
  integer("feed_forward_length", c.ffn);
  integer("attention.head_count", c.heads);
  integer("attention.head_count_kv", c.kv_heads);
  integer("attention.key_length", c.head_dim);
  integer("attention.value_length", c.head_dim);
  integer("rope.dimension_count", c.rotary_dim == 0 ? c.head_dim : c.rotary_dim);
  number("rope.freq_base", c.rope_base);
  number("attention.layer_norm_rms_epsilon", c.eps);
  return metadata;
}

void add_tokenizer(GgufMetadata& metadata, const TokenizerSpec& spec) {
  if (spec.model != TokenizerSpec::Model::ByteBpe || spec.splits != std::vector{SplitRule::Gpt2} || spec.nfc ||
      spec.whole_words || spec.prefix != TokenizerSpec::Prefix::Never)
    fail(ErrorCode::Unsupported, "only tokenizers like GPT-2's can be written into a GGUF file");
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  for (const Token& token : spec.tokens) {
    const bool normal = token.kind == Token::Kind::Normal;
    tokens.push_back(normal ? byte_level_of_bytes(token.text) : token.text);
    types.push_back(normal ? 1 : token.kind == Token::Kind::Control ? 3 : 4);
  }
  for (const auto& [left, right] : spec.merges)
    merges.push_back(byte_level_of_bytes(left) + ' ' + byte_level_of_bytes(right));
  const auto add = [&](std::string_view key, GgufValue value) {
    metadata.emplace_back(formatted("tokenizer.ggml.{}", key), std::move(value));
  };
  add("model", GgufValue::text("gpt2"));
  add("pre", GgufValue::text("gpt-2"));
  add("tokens", GgufValue::texts(std::move(tokens)));
  add("token_type", GgufValue::ints(types));
  add("merges", GgufValue::texts(std::move(merges)));
  const auto id = [&](std::string_view key, std::optional<std::int32_t> value) {
    if (value) add(key, GgufValue::integer(static_cast<std::uint32_t>(*value)));
  };
  id("bos_token_id", spec.bos);
  id("eos_token_id", spec.eos);
  id("unknown_token_id", spec.unknown);
  add("add_bos_token", GgufValue::flag(!spec.before.empty()));
  add("add_eos_token", GgufValue::flag(!spec.after.empty()));
}

}  // namespace

void save_gguf(const std::filesystem::path& path, std::string_view name, const models::LlamaConfig& config,
               const TokenizerSpec& tokenizer, const std::function<Literal(const std::string&)>& weight) {
  try {
    check_config(config);
    if (static_cast<std::int64_t>(tokenizer.tokens.size()) != config.vocab)
      fail(ErrorCode::InvalidArgument, "the tokenizer has {} tokens, the model {}", tokenizer.tokens.size(),
           config.vocab);
    if (config.context < 1) fail(ErrorCode::InvalidArgument, "a GGUF file needs the length of the context");
    GgufMetadata metadata = metadata_of(name, config);
    add_tokenizer(metadata, tokenizer);
    Graph graph;
    models::llama(graph.input("ids", {1, 1}, DType::i32), config);
    std::vector<GgufTensor> tensors;
    for (const Node& node : graph.nodes()) {
      if (!is_parameter(node)) continue;
      const auto read = [&weight, parameter = node.name] {
        const Literal value = weight(parameter);
        return std::vector<std::byte>(value.bytes().begin(), value.bytes().end());
      };
      tensors.push_back({gguf_name(node.name), node.results[0], read});
    }
    write_gguf(path, tensors, metadata);
  } catch (Error& e) {
    throw e.context(formatted("writing {}", path.string()));
  }
}

}  // namespace aeshna
