// Adapters from PEFT's folders: adapter_config.json says what it is, adapter_model.safetensors holds it.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "io/json_field.h"
#include "io/safetensors.h"
#include "nn/language/adapter.h"
#include "nn/language/loader.h"

namespace aeshna {

namespace {

/// Keys that say nothing of what is computed once an adapter is trained. Of the methods of initialization that have a config of their own,
/// init_lora_weights says whether they were used.
constexpr std::string_view kDescriptive[] = {
    "auto_mapping",      "base_model_name_or_path", "revision",     "inference_mode", "lora_dropout", "megatron_core",
    "peft_version",      "qalora_group_size",       "loftq_config", "eva_config",     "corda_config", "lora_ga_config",
    "init_lora_weights", "layers_pattern"};

/// Names, as a value that may be one or a list of them.
std::vector<std::string> names_of(const JsonField& field, bool list) {
  std::vector<std::string> names;
  if (!list) return {field.text()};
  for (const JsonField& item : field.items()) names.push_back(item.text());
  return names;
}

std::optional<std::int64_t> layer_of(std::string_view linear) {
  constexpr std::string_view prefix = "model.layers.";
  if (!linear.starts_with(prefix)) return std::nullopt;
  std::int64_t layer = 0;
  for (const char c : linear.substr(prefix.size())) {
    if (c == '.') return layer;
    layer = 10 * layer + (c - '0');
  }
  return std::nullopt;
}

bool is_neutral(const nlohmann::json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
}

}  // namespace

class AdapterLoader {
 public:
  AdapterLoader(const LanguageModel& model, const std::filesystem::path& folder)
      : model_(model), folder_(folder), linears_(adaptable_linears(model)) {}

  LanguageModel load() {
    if (!model_.config_.adapters.empty())
      fail(ErrorCode::InvalidArgument, "{} has an adapter already: merge it first", model_.name_);
    read_config();
    file_ = std::make_shared<const SafetensorsFile>(folder_ / kAdapterTensors);
    tensors();
    raise();
    return std::move(model_);
  }

 private:
  /// Notes what is wrong; the first of what Aeshna lacks decides the code of the error.
  void problem(ErrorCode code, const std::string& text) {
    constexpr std::size_t listed = 20;
    if (count_ == 0 || code == ErrorCode::Unsupported) code_ = code;
    if (++count_ <= listed) problems_ += "\n  " + text;
  }
  void unsupported(const std::string& what) { problem(ErrorCode::Unsupported, what + " is not supported"); }
  void raise() const {
    if (count_ == 0) return;
    const std::string more = count_ > 20 ? formatted("\n  and {} more", count_ - 20) : "";
    fail(code_, "{}: the adapter cannot be used with {}:{}{}", folder_.string(), model_.name_, problems_, more);
  }

  void read_config() {
    const std::filesystem::path path = folder_ / kAdapterConfig;
    const nlohmann::json json = read_json(path);
    const JsonField config(path.string(), json);
    if (!config.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", path.string());
    if (const std::string type = config.at("peft_type").text(); type != "LORA") {
      unsupported(formatted("\"peft_type\" {} (LORA is)", type));
      raise();
    }
    if (const auto task = config.text("task_type"); task && *task != "CAUSAL_LM")
      unsupported(formatted("\"task_type\" {} (CAUSAL_LM is)", *task));
    if (config.text("bias").value_or("none") != "none") unsupported("\"bias\" " + *config.text("bias"));
    initialization(json);
    const std::uint64_t rank = config.at("r").count();
    if (rank < 1 || rank > static_cast<std::uint64_t>(kMaxAdapterRank)) config.at("r").refuse("no rank");
    rank_ = static_cast<std::int64_t>(rank);
    alpha_ = config.at("lora_alpha").number();
    rank_stabilized_ = config.flag("use_rslora").value_or(false);
    pattern(config, "rank_pattern", ranks_);
    pattern(config, "alpha_pattern", alphas_);
    expected(config, json);
    const std::set<std::string_view> read = {"peft_type",
                                             "task_type",
                                             "bias",
                                             "r",
                                             "lora_alpha",
                                             "use_rslora",
                                             "rank_pattern",
                                             "alpha_pattern",
                                             "target_modules",
                                             "exclude_modules",
                                             "layers_to_transform"};
    for (const auto& item : json.items()) {
      const bool known =
          read.contains(item.key()) || std::ranges::find(kDescriptive, item.key()) != std::end(kDescriptive);
      if (!known && !is_neutral(item.value())) unsupported(formatted("\"{}\"", item.key()));
    }
  }

  /// Some methods change the base weights, which are then no longer those of the model.
  void initialization(const nlohmann::json& json) {
    const auto found = json.find("init_lora_weights");
    if (found == json.end() || found->is_null() || found->is_boolean()) return;
    const std::string method = found->is_string() ? found->get<std::string>() : "?";
    if (method != "gaussian" && method != "eva" && method != "orthogonal")
      unsupported(formatted("\"init_lora_weights\" {}, which trains against changed base weights,", method));
  }

  /// {"q_proj": 4}: by the ends of names, which PEFT has as regular expressions.
  void pattern(const JsonField& config, std::string_view name, std::map<std::string, double>& into) {
    if (!config.has(name)) return;
    for (const auto& [key, value] : config.at(name).members()) {
      const bool plain = std::ranges::all_of(key, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
      });
      if (plain) {
        into.emplace(key, value.number());
      } else {
        unsupported(formatted("the regular expression '{}' in \"{}\"", key, name));
      }
    }
  }

  /// The linears that the config names. As expressions and presets they are left to what the file holds.
  void expected(const JsonField& config, const nlohmann::json& json) {
    const auto is_list = [&](const char* key) { return json.contains(key) && json.at(key).is_array(); };
    if (config.has("layers_pattern") && json.at("layers_pattern") != "layers" &&
        json.at("layers_pattern") != nlohmann::json::array({"layers"}) && !is_neutral(json.at("layers_pattern")))
      unsupported("\"layers_pattern\"");
    std::vector<std::string> excluded;
    if (config.has("exclude_modules")) excluded = names_of(config.at("exclude_modules"), is_list("exclude_modules"));
    if (!is_list("target_modules") || (config.has("exclude_modules") && !is_list("exclude_modules"))) return;
    std::optional<std::set<std::int64_t>> layers;
    if (config.has("layers_to_transform") && json.at("layers_to_transform") != nlohmann::json::array()) {  // []: all
      const JsonField given = config.at("layers_to_transform");
      layers.emplace();
      for (const JsonField& item : is_list("layers_to_transform") ? given.items() : std::vector{given})
        layers->insert(static_cast<std::int64_t>(std::min<std::uint64_t>(item.count(), INT64_MAX)));
    }
    const std::vector<std::string> targets = names_of(config.at("target_modules"), true);
    const auto any = [](const std::vector<std::string>& names, const std::string& linear) {
      return std::ranges::any_of(names, [&](const std::string& name) { return is_target(name, linear); });
    };
    expected_.emplace();
    for (const std::string& linear : linears_) {
      if (any(targets, linear) && !any(excluded, linear) && (!layers || layers->contains(*layer_of(linear))))
        expected_->insert(linear);
    }
    for (const std::string& target : targets) {
      if (std::ranges::none_of(linears_, [&](const std::string& linear) { return is_target(target, linear); }))
        unsupported(formatted("the target '{}', which is no linear of this model's layers,", target));
    }
  }

  /// What the patterns say of a linear. PEFT takes the first that fits, but a JSON object has no order.
  double of(const std::map<std::string, double>& patterns, const std::string& linear, double otherwise) {
    const std::pair<const std::string, double>* found = nullptr;
    for (const auto& pattern : patterns) {
      if (!is_target(pattern.first, linear)) continue;
      if (found != nullptr && found->second != pattern.second)
        unsupported(formatted("'{}', which the patterns '{}' and '{}' give different values,", linear, found->first,
                              pattern.first));
      found = &pattern;
    }
    return found == nullptr ? otherwise : found->second;
  }

  void tensors() {
    std::map<std::string, std::array<const SafetensorsEntry*, 2>> found;  // A and B, by linear
    for (const SafetensorsEntry& entry : file_->tensors()) {
      std::string_view name = entry.name;
      const bool a = name.ends_with(kLoraA);
      if (!name.starts_with(kAdapterPrefix) || !(a || name.ends_with(kLoraB))) {
        unsupported(formatted("the tensor '{}'", name));
        continue;
      }
      name.remove_prefix(kAdapterPrefix.size());
      name.remove_suffix(kLoraA.size());
      if (!std::ranges::binary_search(linears_, name)) {
        unsupported(formatted("the tensor '{}', of no linear of this model's layers,", entry.name));
        continue;
      }
      found[std::string(name)][a ? 0 : 1] = &entry;
    }
    if (file_->tensors().empty()) problem(ErrorCode::CorruptFile, formatted("{} is empty", kAdapterTensors));
    for (const auto& [linear, entries] : found) {
      if (expected_ && !expected_->contains(linear))
        problem(ErrorCode::CorruptFile, formatted("'{}' has tensors, but is no target of {}", linear, kAdapterConfig));
      add(linear, entries);
    }
    if (!expected_) return;
    for (const std::string& linear : *expected_)
      if (!found.contains(linear)) problem(ErrorCode::CorruptFile, formatted("there are no tensors for '{}'", linear));
  }

  void add(const std::string& linear, const std::array<const SafetensorsEntry*, 2>& entries) {
    const double wanted = of(ranks_, linear, static_cast<double>(rank_));
    const auto rank = static_cast<std::int64_t>(std::clamp(wanted, 0.0, static_cast<double>(kMaxAdapterRank)));
    if (rank < 1 || static_cast<double>(rank) != wanted) {
      problem(ErrorCode::CorruptFile, formatted("\"rank_pattern\" gives '{}' the rank {}", linear, wanted));
      return;
    }
    const Shape base = model_.parameters_.at(linear + ".weight").shape;
    const TensorType types[2] = {{DType::f32, {rank, base[1]}}, {DType::f32, {base[0], rank}}};
    bool good = true;
    for (const int part : {0, 1}) {
      const std::string name = linear + std::string(part == 0 ? kLoraA : kLoraB);
      const SafetensorsEntry* entry = entries[static_cast<std::size_t>(part)];
      if (entry == nullptr) {
        problem(ErrorCode::CorruptFile, formatted("there is no tensor '{}{}'", kAdapterPrefix, name));
      } else if (entry->type.shape != types[part].shape) {
        problem(ErrorCode::CorruptFile, formatted("'{}' is {}, where the model needs {}", entry->name,
                                                  entry->type.to_string(), types[part].shape.to_string()));
      } else if (const DType d = entry->type.dtype; d != DType::f32 && d != DType::f16 && d != DType::bf16) {
        unsupported(formatted("{} as the dtype of '{}'", dtype_name(d), entry->name));
      } else {
        const FoundTensor tensor{.file_name = entry->name, .type = entry->type, .read = [file = file_, entry] {
                                   return file->literal(entry->name);
                                 }};
        const std::int64_t dim = part == 0 ? 0 : interleaved_dim(model_, linear);
        model_.parameters_.emplace(name, types[part]);
        model_.sources_.emplace(name, LanguageModel::Source{entry->name, [tensor, type = types[part], dim] {
                                                              return in_row_order(RowOrder::Model,
                                                                                  as_parameter(tensor, type), dim);
                                                            }});
        continue;
      }
      good = false;
    }
    if (!good) return;
    const double alpha = of(alphas_, linear, alpha_);
    model_.config_.adapters.emplace(linear, models::Adapter{rank, adapter_scale(alpha, rank, rank_stabilized_)});
  }

  LanguageModel model_;
  std::filesystem::path folder_;
  std::vector<std::string> linears_;
  std::shared_ptr<const SafetensorsFile> file_;
  std::int64_t rank_ = 0;
  double alpha_ = 0;
  bool rank_stabilized_ = false;
  std::map<std::string, double> ranks_, alphas_;
  std::optional<std::set<std::string>> expected_;
  ErrorCode code_ = ErrorCode::CorruptFile;
  std::size_t count_ = 0;
  std::string problems_;
};

LanguageModel LanguageModel::with_adapter(const std::filesystem::path& folder) const {
  return AdapterLoader(*this, folder).load();
}

}  // namespace aeshna
