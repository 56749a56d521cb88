// Models from GGUF files. The keys and names are those that llama.cpp's converter writes; what they mean is stated beside them.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/fail.h"
#include "io/gguf.h"
#include "nn/language/gguf_names.h"
#include "nn/language/loader.h"
#include "nn/tokenizer/load.h"

namespace aeshna {

namespace {

class GgufModelLoader {
 public:
  explicit GgufModelLoader(const std::filesystem::path& path)
      : file_(std::make_shared<GgufFile>(path)), out_(path.string()) {}

  LanguageModel load() {
    architecture_ = file_->text("general.architecture").value_or("");
    models::LlamaConfig& c = out_.config();
    if (architecture_.empty()) out_.corrupt("there is no general.architecture");
    if (!apply_architecture(architecture_, c)) {
      out_.refuse(formatted("the architecture '{}' (llama, qwen2, qwen3, gemma2, gemma3 and phi3 are supported)",
                            architecture_));
      out_.check_refused();
    }
    // Only "llama" has rows of q and k permuted so that neighbours are rotated.
    c.rope_interleaved = architecture_ == "llama";
    if (c.rope_interleaved) out_.set_interleaved_heads();
    sizes(c);
    rotation(c);
    attention(c);
    refuse_unknown_keys();
    out_.set_tensors(tensors(c));
    if (const auto text = file_->text("tokenizer.chat_template")) out_.set_chat_template(*text);
    return out_.finish(tokenizer_of_gguf(*file_));
  }

 private:
  /// The key of the architecture, which counts as understood.
  std::string key(std::string_view name) {
    std::string full = formatted("{}.{}", architecture_, name);
    known_.insert(full);
    return full;
  }
  std::optional<std::int64_t> integer(std::string_view name) { return file_->integer(key(name)); }
  std::optional<double> number(std::string_view name) {
    const auto value = file_->number(key(name));
    if (value && !std::isfinite(*value)) out_.corrupt("{} is {}", key(name), *value);
    return value;
  }
  std::int64_t size(std::string_view name) {
    const auto value = integer(name);
    if (!value || *value < 1 || *value > 1 << 20)
      out_.corrupt("{} is {}, no size", key(name), value ? std::to_string(*value) : "absent");
    return *value;
  }
  /// A count that newer files may give for each layer: all must agree.
  std::int64_t same_size(std::string_view name) {
    const GgufValue* value = file_->find(key(name));
    if (value == nullptr || !value->array) return size(name);
    if (!value->is_integer() || value->size() == 0) out_.corrupt("{} is {}", key(name), value->to_string());
    for (std::size_t i = 1; i < value->size(); ++i)
      if (value->at(i) != value->at(0)) out_.refuse(formatted("layers that differ in {}", key(name)));
    return std::clamp<std::int64_t>(value->integer_at(0).value_or(0), 0, 1 << 20);
  }

  void sizes(models::LlamaConfig& c) {
    c.hidden = size("embedding_length");
    c.layers = size("block_count");
    if (c.layers > static_cast<std::int64_t>(file_->tensors().size()))
      out_.corrupt("{} layers, but {} tensors", c.layers, file_->tensors().size());
    c.heads = same_size("attention.head_count");
    c.kv_heads =
        file_->find(key("attention.head_count_kv")) == nullptr ? c.heads : same_size("attention.head_count_kv");
    c.ffn = same_size("feed_forward_length");
    c.context = size("context_length");
    c.head_dim = file_->find(key("attention.key_length")) != nullptr ? size("attention.key_length")
                                                                     : c.hidden / std::max<std::int64_t>(c.heads, 1);
    if (file_->find(key("attention.value_length")) != nullptr && size("attention.value_length") != c.head_dim)
      out_.refuse("values of another length than keys");
    if (integer("expert_count").value_or(0) > 0 || integer("expert_used_count").value_or(0) > 0) out_.refuse("experts");
    const auto eps = number("attention.layer_norm_rms_epsilon");
    if (!eps || !(*eps > 0)) out_.corrupt("{} is no positive number", key("attention.layer_norm_rms_epsilon"));
    c.eps = *eps;

    const GgufEntry* table = file_->find_tensor("token_embd.weight");
    if (table == nullptr || table->type.shape.rank() != 2) out_.corrupt("there is no matrix token_embd.weight");
    c.vocab = table->type.shape[0];
    if (const auto given = integer("vocab_size"); given && *given != c.vocab)
      out_.corrupt("{} is {}, but the embedding has {} rows", key("vocab_size"), *given, c.vocab);
    c.tied = file_->find_tensor("output.weight") == nullptr;
    // Some Qwen 2 files have no biases, some Llama files do.
    c.qkv_bias = file_->find_tensor("blk.0.attn_q.bias") != nullptr;
  }

  void rotation(models::LlamaConfig& c) {
    c.rope_base = number("rope.freq_base").value_or(10000);
    if (!(c.rope_base > 0)) out_.corrupt("{} is {}", key("rope.freq_base"), c.rope_base);
    c.rotary_dim = integer("rope.dimension_count").value_or(c.head_dim);
    if (architecture_ == "gemma3") c.window_rope_base = number("rope.freq_base_swa").value_or(10000);
    const std::string type = file_->text(key("rope.scaling.type")).value_or("none");
    const double factor = number("rope.scaling.factor").value_or(number("rope.scale_linear").value_or(1));
    const double original = number("rope.scaling.original_context_length").value_or(0);
    (void)file_->flag(key("rope.scaling.finetuned"));
    if (type == "linear" || (type == "none" && factor != 1)) {
      if (factor != 1) c.rope_scaling = {.kind = RopeScaling::Kind::Linear, .factor = factor};
    } else if (type == "yarn") {
      c.rope_scaling = {.kind = RopeScaling::Kind::Yarn,
                        .factor = factor,
                        .original_length = original > 0 ? original : static_cast<double>(c.context)};
      if (const auto attention = number("rope.scaling.attn_factor"))
        c.rope_scaling.attention_factor = *attention * (0.1 * std::log(factor) + 1);
      c.rope_scaling.beta_fast = number("rope.scaling.yarn_beta_fast").value_or(32);
      c.rope_scaling.beta_slow = number("rope.scaling.yarn_beta_slow").value_or(1);
    } else if (type != "none") {
      out_.refuse(formatted("the rope scaling '{}'", type));
    }
    if (!(factor > 0)) out_.corrupt("a rope scaling factor of {}", factor);
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"})
      if (file_->find_tensor(name) != nullptr) out_.refuse(formatted("LongRoPE ('{}')", name));
    if (file_->find_tensor("rope_freqs.weight") != nullptr) frequency_factors(c);
  }

  /// Llama 3.1's scaling comes as the divisor of each frequency. It follows from one factor, which the slowest pair has whole, and from
  /// constants that all published models share.
  void frequency_factors(models::LlamaConfig& c) {
    const std::vector<double> given = file_->literal("rope_freqs.weight").to_doubles();
    const std::int64_t pairs = c.rotary_dim / 2;
    constexpr double low = 1, high = 4, original = 8192;
    if (static_cast<std::int64_t>(given.size()) != pairs || pairs == 0)
      out_.corrupt("rope_freqs.weight has {} elements, not {}", given.size(), pairs);
    const double factor = given.back();
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double wave = 2 * 3.14159265358979323846 *
                          std::pow(c.rope_base, 2.0 * static_cast<double>(i) / static_cast<double>(c.rotary_dim));
      const double smooth = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
      const double want = 1 / ((1 - smooth) / factor + smooth);
      if (!(std::abs(given[static_cast<std::size_t>(i)] - want) <= 1e-3 * want)) {
        out_.refuse("rope_freqs.weight with other factors than Llama 3.1's");
        return;
      }
    }
    if (factor != 1)
      c.rope_scaling = {.kind = RopeScaling::Kind::Llama3,
                        .factor = factor,
                        .original_length = original,
                        .low_freq_factor = low,
                        .high_freq_factor = high};
  }

  void attention(models::LlamaConfig& c) {
    const bool gemma2 = architecture_ == "gemma2", gemma3 = architecture_ == "gemma3";
    c.attention_softcap = number("attn_logit_softcapping").value_or(gemma2 ? 50 : 0);
    c.logits_softcap = number("final_logit_softcapping").value_or(gemma2 ? 30 : 0);
    c.attention_scale = number("attention.scale");
    c.window = integer("attention.sliding_window").value_or(0);
    c.window_period = gemma2 ? 2 : gemma3 ? 6 : 0;
    if (const GgufValue* pattern = file_->find(key("attention.sliding_window_pattern"))) {
      if (pattern->array || !pattern->is_integer()) {
        out_.refuse(formatted("{} = {}", key("attention.sliding_window_pattern"), pattern->to_string()));
      } else {
        c.window_period = integer("attention.sliding_window_pattern").value_or(0);
      }
    }
    if (c.window < 0 || c.window_period < 0) out_.corrupt("a sliding window of {}", c.window);
    // The largest of both generations, 27B, scales by the width of a head's share instead of head_dim; its files do not say so.
    if (!c.attention_scale && ((gemma2 && c.layers == 46) || (gemma3 && c.layers == 62)))
      c.attention_scale = 1 / std::sqrt(static_cast<double>(c.hidden) / static_cast<double>(c.heads));
  }

  void refuse_unknown_keys() {
    if (const auto layout = file_->text(key("tensor_data_layout"));
        layout && *layout != "Meta AI original pth")  // of old files
      out_.refuse(formatted("the layout '{}'", *layout));
    for (const auto& [name, value] : file_->metadata()) {
      if (name == "split.count" && file_->integer(name).value_or(1) > 1)
        out_.refuse("a model in several files (split.count)");
      const bool descriptive = name.starts_with("general.") || name.starts_with("tokenizer.") ||
                               name.starts_with("split.") || name.starts_with("quantize.");
      if (!descriptive && !known_.contains(name)) out_.refuse(formatted("the key '{}'", name));
    }
    out_.check_refused();
  }

  std::map<std::string, FoundTensor, std::less<>> tensors(const models::LlamaConfig& c) {
    std::map<std::string, FoundTensor, std::less<>> found;
    for (const GgufEntry& entry : file_->tensors()) {
      if (entry.name == "rope_freqs.weight") continue;  // became part of the config
      std::string parameter = parameter_name(entry.name, c);
      if (parameter.empty()) {
        out_.refuse(formatted("the tensor '{}'", entry.name));
        continue;
      }
      const auto read = [file = file_, name = entry.name] { return file->literal(name); };
      found.emplace(std::move(parameter), FoundTensor{.file_name = entry.name, .type = entry.type, .read = read});
    }
    return found;
  }

  static std::string parameter_name(std::string_view name, const models::LlamaConfig& c) {
    std::string prefix;
    const bool layer = name.starts_with("blk.");
    if (layer) {
      name.remove_prefix(4);
      const std::size_t dot = name.find('.');
      if (dot == std::string_view::npos) return "";
      prefix = formatted("model.layers.{}.", name.substr(0, dot));
      name.remove_prefix(dot + 1);
      if (name == "ffn_norm.weight")
        return prefix + (c.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight");
      if (name == "ffn_up.weight" && c.fused_gate_up) return prefix + "mlp.gate_up_proj.weight";
      if (name.starts_with("post_") && !c.post_norms) return "";
    }
    const auto found =
        std::ranges::find_if(kGgufNames, [&](const GgufName& n) { return n.gguf == name && n.layer == layer; });
    return found == kGgufNames.end() ? "" : prefix + std::string(found->parameter);
  }

  std::shared_ptr<const GgufFile> file_;
  ModelLoader out_;
  std::string architecture_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace

LanguageModel LanguageModel::load_gguf(const std::filesystem::path& file) { return GgufModelLoader(file).load(); }

}  // namespace aeshna
