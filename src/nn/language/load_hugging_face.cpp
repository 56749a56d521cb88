// Models from Hugging Face's folders: config.json says what the model is, safetensors files hold it.
#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "io/json_field.h"
#include "io/safetensors_folder.h"
#include "nn/language/loader.h"
#include "nn/tokenizer/load.h"

namespace aeshna {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxJson = 64ull << 20;

/// GGUF's names of what Hugging Face calls a model_type.
struct Architecture {
  std::string_view model_type, name;
};
constexpr std::array<Architecture, 8> kArchitectures = {{{"llama", "llama"},
                                                         {"mistral", "llama"},
                                                         {"smollm", "llama"},
                                                         {"qwen2", "qwen2"},
                                                         {"qwen3", "qwen3"},
                                                         {"gemma2", "gemma2"},
                                                         {"gemma3_text", "gemma3"},
                                                         {"phi3", "phi3"}}};
/// Keys that say nothing of what is computed when a model runs.
constexpr std::string_view kDescriptive[] = {"architectures",
                                             "model_type",
                                             "torch_dtype",
                                             "dtype",
                                             "transformers_version",
                                             "use_cache",
                                             "bos_token_id",
                                             "eos_token_id",
                                             "pad_token_id",
                                             "unk_token_id",
                                             "initializer_range",
                                             "attention_dropout",
                                             "embd_pdrop",
                                             "resid_pdrop",
                                             "pretraining_tp",
                                             "_name_or_path",
                                             "auto_map",
                                             "is_llama_config",
                                             "cache_implementation",
                                             "transformers.js_config",
                                             "_attn_implementation_autoset",
                                             "_attn_implementation",
                                             "original_max_position_embeddings"};

/// Keys of "rope_scaling" or "rope_parameters" that are understood.
constexpr std::string_view kRotation[] = {"rope_type",       "type",
                                          "rope_theta",      "partial_rotary_factor",
                                          "factor",          "original_max_position_embeddings",
                                          "low_freq_factor", "high_freq_factor",
                                          "beta_fast",       "beta_slow",
                                          "attention_factor"};

Json read_object(const fs::path& path) {
  Json json = read_json(path);
  if (!json.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", path.string());
  return json;
}

class FolderLoader {
 public:
  explicit FolderLoader(const fs::path& folder)
      : folder_(folder),
        out_(folder.string()),
        config_(read_object(folder / "config.json")),
        top_((folder / "config.json").string(), config_) {}

  LanguageModel load() {
    try {
      read_config();
      files();
      out_.set_tensors(tensors());
      return out_.finish(tokenizer());
    } catch (const Json::exception& e) {
      fail(ErrorCode::CorruptFile,
           "{}: tokenizer_config.json or generation_config.json has values of other types than it should: {}",
           folder_.string(), e.what());
    }
  }

 private:
  /// A value of the config, which counts as understood; null is absent.
  const Json* find(std::string_view key) {
    known_.emplace_back(key);
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class T>
  T value(std::string_view key, T fallback) {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if constexpr (std::is_same_v<T, std::int64_t>) {
      const auto number = json_integer(*found);
      if (!number) out_.corrupt("\"{}\" of config.json is {}, no whole number", key, found->dump());
      return *number;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return top_.at(key).text();
    } else if constexpr (std::is_same_v<T, bool>) {
      return top_.at(key).flag();
    } else {
      return top_.at(key).number();
    }
  }
  double positive(std::string_view key, double value) const {
    if (!(value > 0)) out_.corrupt("\"{}\" of config.json is {}, no positive number", key, value);
    return value;
  }
  std::int64_t size(std::string_view key) {
    const auto value = this->value<std::int64_t>(key, 0);
    if (value < 1 || value > 1 << 20) out_.corrupt("\"{}\" of config.json is {}, no size", key, value);
    return value;
  }

  void read_config() {
    models::LlamaConfig& c = out_.config();
    const auto type = value<std::string>("model_type", "?");
    const auto known = std::ranges::find(kArchitectures, type, &Architecture::model_type);
    if (known == kArchitectures.end()) {
      out_.refuse(formatted(
          "the model_type '{}' (llama, mistral, qwen2, qwen3, gemma2, gemma3_text and phi3 are supported)", type));
      out_.check_refused();
    }
    architecture_ = known->name;
    apply_architecture(architecture_, c);
    c.vocab = size("vocab_size");
    c.hidden = size("hidden_size");
    c.layers = size("num_hidden_layers");
    c.heads = size("num_attention_heads");
    c.kv_heads = find("num_key_value_heads") == nullptr ? c.heads : size("num_key_value_heads");
    c.ffn = size("intermediate_size");
    c.head_dim = find("head_dim") == nullptr ? (gemma() ? 256 : c.hidden / c.heads) : size("head_dim");
    c.context = value<std::int64_t>("max_position_embeddings", 0);
    c.eps = value("rms_norm_eps", 1e-6);
    activation();
    if (value("attention_bias", false)) out_.refuse("attention_bias");
    if (value("mlp_bias", false)) out_.refuse("mlp_bias");
    if (value("rope_interleaved", false)) c.rope_interleaved = true;
    if (value("use_bidirectional_attention", false)) out_.refuse("use_bidirectional_attention");
    if (find("quantization_config") != nullptr) out_.refuse("quantization_config");
    rotation(c);
    windows(c);
    if (find("query_pre_attn_scalar") != nullptr)
      c.attention_scale = 1 / std::sqrt(positive("query_pre_attn_scalar", value("query_pre_attn_scalar", 0.0)));
    c.attention_softcap = value("attn_logit_softcapping", 0.0);
    c.logits_softcap = value("final_logit_softcapping", 0.0);
    for (const auto& item : config_.items()) {
      if (std::ranges::find(known_, item.key()) == known_.end() &&
          std::ranges::find(kDescriptive, item.key()) == std::end(kDescriptive) &&
          item.key() != "tie_word_embeddings") {
        out_.refuse(formatted("\"{}\" of config.json", item.key()));
      }
    }
    out_.check_refused();
  }

  bool gemma() const { return architecture_.starts_with("gemma"); }

  void activation() {
    const auto name = value<std::string>("hidden_activation",
                                         value<std::string>("hidden_act", gemma() ? "gelu_pytorch_tanh" : "silu"));
    (void)find("hidden_act");
    if (name != (gemma() ? "gelu_pytorch_tanh" : "silu")) out_.refuse(formatted("the activation '{}'", name));
  }

  void rotation(models::LlamaConfig& c) {
    c.rope_base = positive("rope_theta", value("rope_theta", 10000.0));
    if (architecture_ == "gemma3")
      c.window_rope_base = positive("rope_local_base_freq", value("rope_local_base_freq", 10000.0));
    double share = value("partial_rotary_factor", 1.0);
    const bool scaling = find("rope_scaling") != nullptr, parameters = find("rope_parameters") != nullptr;
    if (scaling || parameters) scale(c, top_.at(parameters ? "rope_parameters" : "rope_scaling"), share);
    if (positive("partial_rotary_factor", share) > 1)
      out_.corrupt("\"partial_rotary_factor\" of config.json is {}", share);
    c.rotary_dim = static_cast<std::int64_t>(std::lround(share * static_cast<double>(c.head_dim)));
  }

  void scale(models::LlamaConfig& c, const JsonField& scaling, double& share) {
    for (const auto& [key, field] : scaling.members())
      if (scaling.has(key) && std::ranges::find(kRotation, key) == std::end(kRotation))
        out_.refuse(formatted("\"{}\" of config.json", field.path()));
    const auto number = [&](std::string_view key, double fallback) { return scaling.number(key).value_or(fallback); };
    share = number("partial_rotary_factor", share);
    c.rope_base = positive("rope_theta", number("rope_theta", c.rope_base));
    const std::string type = scaling.text(scaling.has("rope_type") ? "rope_type" : "type").value_or("default");
    const double factor = positive("factor", number("factor", 1)),
                 original = number("original_max_position_embeddings", static_cast<double>(c.context));
    if (type == "linear") {
      c.rope_scaling = {.kind = RopeScaling::Kind::Linear, .factor = factor};
    } else if (type == "llama3") {
      c.rope_scaling = {.kind = RopeScaling::Kind::Llama3,
                        .factor = factor,
                        .original_length = original,
                        .low_freq_factor = number("low_freq_factor", 1),
                        .high_freq_factor = number("high_freq_factor", 4)};
    } else if (type == "yarn") {
      c.rope_scaling = {.kind = RopeScaling::Kind::Yarn,
                        .factor = factor,
                        .original_length = original,
                        .beta_fast = number("beta_fast", 32),
                        .beta_slow = number("beta_slow", 1)};
      if (scaling.has("attention_factor")) c.rope_scaling.attention_factor = number("attention_factor", 1);
    } else if (type != "default") {
      out_.refuse(formatted("the rope scaling '{}'", type));
    }
  }

  void windows(models::LlamaConfig& c) {
    c.window = value<std::int64_t>("sliding_window", 0);
    if (!value("use_sliding_window", !architecture_.starts_with("qwen"))) c.window = 0;
    const auto full_below = value<std::int64_t>("max_window_layers", 0);
    const std::int64_t usual = architecture_ == "gemma2" ? 2 : architecture_ == "gemma3" ? 6 : 0;
    c.window_period = value("sliding_window_pattern", value("_sliding_window_pattern", usual));
    if (c.window < 0 || c.window_period < 0) out_.corrupt("a sliding window of {}", c.window);
    if (architecture_.starts_with("qwen") && c.window > 0 && full_below > 0) out_.refuse("max_window_layers");
    if (find("layer_types") == nullptr) return;
    std::vector<bool> types;
    for (const JsonField& type : top_.at("layer_types").items()) types.push_back(type.text() == "sliding_attention");
    if (std::ssize(types) != c.layers) out_.corrupt("\"layer_types\" does not have {} layers", c.layers);
    for (std::int64_t period = 0; period <= c.layers + 1; ++period) {  // 0: all; beyond the layers: all as well
      bool fits = true;
      for (std::int64_t i = 0; i < c.layers && fits; ++i)
        fits = types[static_cast<std::size_t>(i)] == (period == 0 || (i + 1) % period != 0);
      if (!fits) continue;
      if (period == 1) c.window = 0;
      c.window_period = period;
      return;
    }
    out_.refuse("windowed layers in no regular order (layer_types)");
  }

  // ---- tensors

  void files() {
    files_ = std::make_shared<const SafetensorsFolder>(folder_);
    models::LlamaConfig& c = out_.config();
    c.tied = value("tie_word_embeddings", gemma() || !files_->contains("lm_head.weight"));
    if (const std::size_t tensors = files_->tensors().size(); c.layers > static_cast<std::int64_t>(tensors))
      out_.corrupt("{} layers, but {} tensors", c.layers, tensors);
  }

  std::map<std::string, FoundTensor, std::less<>> tensors() {
    std::map<std::string, FoundTensor, std::less<>> found;
    for (const auto& [name, type] : files_->tensors()) {
      if (name.ends_with(".rotary_emb.inv_freq")) continue;  // of old checkpoints, which computed it anyway
      if (name == "lm_head.weight" && out_.config().tied) continue;
      found.emplace(name, FoundTensor{.file_name = name,
                                      .type = type,
                                      .read = [files = files_, name = name] { return files->literal(name); },
                                      .added = gemma() && name.ends_with("norm.weight") ? 1.0 : 0.0});
    }
    return found;
  }

  // ---- text

  TokenizerSpec tokenizer() {
    TokenizerSpec spec = tokenizer_of_json(folder_ / "tokenizer.json");
    const auto id_of = [&](const Json& token) -> std::optional<std::int32_t> {
      const auto text = token.is_object()   ? token.value("content", std::string())
                        : token.is_string() ? token.get<std::string>()
                                            : std::string();
      const auto found = std::ranges::find(spec.tokens, text, &Token::text);
      if (text.empty() || found == spec.tokens.end()) return std::nullopt;
      return static_cast<std::int32_t>(found - spec.tokens.begin());
    };
    if (fs::exists(folder_ / "tokenizer_config.json")) {
      const Json settings = read_object(folder_ / "tokenizer_config.json");
      if (settings.contains("bos_token")) spec.bos = id_of(settings["bos_token"]);
      if (settings.contains("eos_token")) spec.eos = id_of(settings["eos_token"]);
      if (const auto found = settings.find("chat_template"); found != settings.end()) {
        if (found->is_string()) out_.set_chat_template(found->get<std::string>());
        if (found->is_array())
          for (const Json& entry : *found)
            if (entry.value("name", "") == "default") out_.set_chat_template(entry.value("template", ""));
      }
    }
    if (fs::exists(folder_ / "chat_template.jinja")) {
      const auto bytes = read_file(folder_ / "chat_template.jinja", kMaxJson);
      out_.set_chat_template({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    const auto add_end = [&](std::int64_t id) {
      if (id < 0 || id >= static_cast<std::int64_t>(spec.tokens.size())) return;
      if (std::ranges::find(spec.ends, id) == spec.ends.end()) spec.ends.push_back(static_cast<std::int32_t>(id));
    };
    if (spec.eos) add_end(*spec.eos);
    Json ends = config_.value("eos_token_id", Json());
    if (fs::exists(folder_ / "generation_config.json"))
      ends = read_object(folder_ / "generation_config.json").value("eos_token_id", ends);
    if (const auto id = json_integer(ends)) add_end(*id);
    if (ends.is_array())
      for (const Json& end : ends)
        if (const auto id = json_integer(end)) add_end(*id);
    return spec;
  }

  fs::path folder_;
  ModelLoader out_;
  Json config_;
  JsonField top_;
  std::string architecture_;
  std::vector<std::string> known_;
  std::shared_ptr<const SafetensorsFolder> files_;
};

}  // namespace

LanguageModel LanguageModel::load_hugging_face(const std::filesystem::path& folder) {
  return FolderLoader(folder).load();
}

}  // namespace aeshna
