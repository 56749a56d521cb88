#include "nn/pretrained/config.h"

#include <algorithm>

#include "base/fail.h"

namespace aeshna::pretrained {

Config::Config(const std::filesystem::path& file) : json_(read_json(file)), top_(file.string(), json_) {
  if (!top_.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", file.string());
}

bool Config::take(std::string_view key) {
  known_.emplace_back(key);
  return has(key);
}

JsonField Config::field(std::string_view key) {
  take(key);
  return top_.at(key);
}

std::string Config::text(std::string_view key, std::string_view fallback) {
  return take(key) ? top_.at(key).text() : std::string(fallback);
}
bool Config::flag(std::string_view key, bool fallback) { return take(key) ? top_.at(key).flag() : fallback; }
double Config::number(std::string_view key, double fallback) { return take(key) ? top_.at(key).number() : fallback; }

namespace {
std::int64_t size_of(const JsonField& field) {
  const std::uint64_t value = field.count();
  if (value < 1 || value > 1 << 20) field.refuse(formatted("{}, no size", value));
  return static_cast<std::int64_t>(value);
}
}  // namespace

std::int64_t Config::size(std::string_view key, std::int64_t fallback) {
  return take(key) || fallback == 0 ? size_of(top_.at(key)) : fallback;
}

std::vector<std::int64_t> Config::sizes(std::string_view key, std::vector<std::int64_t> fallback) {
  if (!take(key)) return fallback;
  std::vector<std::int64_t> result;
  for (const JsonField& item : top_.at(key).items()) result.push_back(size_of(item));
  return result;
}

std::pair<std::int64_t, std::int64_t> Config::height_and_width(std::string_view key, std::int64_t fallback) {
  const auto found = json_.find(std::string(key));
  if (found == json_.end() || !found->is_array()) {
    const std::int64_t extent = size(key, fallback);
    return {extent, extent};
  }
  const std::vector<std::int64_t> two = sizes(key, {});
  if (two.size() != 2) top_.at(key).refuse(formatted("{} sizes, not 2", two.size()));
  return {two[0], two[1]};
}

nn::Activation Config::activation(std::string_view key, std::string_view fallback) {
  const std::string name = text(key, fallback);
  if (name == "gelu") return nn::Activation::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return nn::Activation::GeluTanh;
  if (name == "silu" || name == "swish") return nn::Activation::Silu;
  if (name == "relu") return nn::Activation::Relu;
  refuse(formatted("the activation '{}'", name));
  return nn::Activation::Gelu;
}

std::size_t Config::count(std::string_view key) {
  take(key);
  const auto found = json_.find(std::string(key));
  return found == json_.end() || !found->is_structured() ? 0 : found->size();
}

void Config::require(std::string_view key, bool wanted) {
  if (flag(key, wanted) != wanted) refuse(formatted("{} = {}", key, !wanted));
}

void Config::ignore(std::initializer_list<std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

bool Config::is_known(std::string_view key) const {
  return std::ranges::any_of(known_, [&](std::string_view known) {
    return known.ends_with('*') ? key.starts_with(known.substr(0, known.size() - 1)) : key == known;
  });
}

void Config::finish() const {
  std::string all;
  for (const std::string& what : refused_) all += (all.empty() ? "" : ", ") + what;
  for (const auto& item : json_.items()) {
    if (is_known(item.key()) || item.value().is_null()) continue;
    all += formatted("{}the field '{}'", all.empty() ? "" : ", ", item.key());
  }
  if (!all.empty()) fail(ErrorCode::Unsupported, "{}: the model needs what Aeshna does not have: {}", source(), all);
}

void ignore_common_fields(Config& config) {
  config.ignore({"architectures",
                 "model_type",
                 "torch_dtype",
                 "dtype",
                 "transformers_version",
                 "_name_or_path",
                 "auto_map",
                 "_attn_implementation*",
                 "initializer_range",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "finetuning_task",
                 "output_hidden_states",
                 "output_attentions",
                 "return_dict",
                 "use_cache",
                 "torchscript",
                 "attention_dropout",
                 "hidden_dropout_prob",
                 "attention_probs_dropout_prob",
                 "drop_path_rate",
                 "transformers.js_config",
                 "tie_word_embeddings",
                 "chunk_size_feed_forward",
                 "out_features",
                 "out_indices",
                 "stage_names"});
}

}  // namespace aeshna::pretrained
