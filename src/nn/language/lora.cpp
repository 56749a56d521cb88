// New adapters, and their files.
#include "aeshna/lora.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/make_folder.h"
#include "io/json_writer.h"
#include "io/safetensors.h"
#include "nn/language/adapter.h"

namespace aeshna {

std::vector<std::string> adaptable_linears(const LanguageModel& model) {
  constexpr std::string_view end = ".weight";
  std::vector<std::string> linears;
  for (const auto& [name, type] : model.parameters()) {
    if (name.starts_with("model.layers.") && name.ends_with("_proj.weight"))
      linears.push_back(name.substr(0, name.size() - end.size()));
  }
  return linears;
}

bool is_target(std::string_view target, std::string_view linear) {
  if (!linear.ends_with(target) || target.empty()) return false;
  return linear.size() == target.size() || linear[linear.size() - target.size() - 1] == '.';
}

double adapter_scale(double alpha, std::int64_t rank, bool rank_stabilized) {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

std::int64_t interleaved_dim(const LanguageModel& model, std::string_view linear) {
  const bool rotated = linear.ends_with(".q_proj") || linear.ends_with(".k_proj");
  return rotated && model.interleaved_heads() ? model.config().head_dim : 0;
}

Literal in_row_order(RowOrder order, Literal b, std::int64_t head_dim) {
  if (head_dim == 0) return b;
  const TensorType type = b.type();
  const auto rows = static_cast<std::size_t>(type.shape[0]), dim = static_cast<std::size_t>(head_dim);
  const std::size_t row_bytes = static_cast<std::size_t>(type.shape[1]) * sizeof(float);
  AESHNA_CHECK(type.dtype == DType::f32 && rows % dim == 0 && dim % 2 == 0);
  std::vector<std::byte> bytes(b.bytes().size());
  for (std::size_t row = 0; row < rows; ++row) {
    // Element j of half h of a head is row h * dim / 2 + j of it in Hugging Face's order, and 2 j + h when interleaved.
    const std::size_t in_head = row % dim, half = in_head / (dim / 2), j = in_head % (dim / 2);
    const std::size_t interleaved = row - in_head + 2 * j + half;
    const auto [to, from] = order == RowOrder::Model ? std::pair(interleaved, row) : std::pair(row, interleaved);
    std::memcpy(bytes.data() + to * row_bytes, b.bytes().data() + from * row_bytes, row_bytes);
  }
  return {type, std::move(bytes)};
}

models::LlamaConfig with_lora(const LanguageModel& model, const LoraOptions& options) {
  if (options.rank < 1 || options.rank > kMaxAdapterRank)
    fail(ErrorCode::InvalidArgument, "LoRA of rank {}; ranks are from 1 to {}", options.rank, kMaxAdapterRank);
  if (!std::isfinite(options.alpha) || options.alpha == 0)
    fail(ErrorCode::InvalidArgument, "LoRA with an alpha of {}", options.alpha);
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail(ErrorCode::InvalidArgument, "LoRA with a dropout of {}, which is in [0, 1)", options.dropout);
  models::LlamaConfig config = model.config();
  if (!config.adapters.empty())
    fail(ErrorCode::InvalidArgument, "{} has an adapter already: merge it first", model.name());

  const std::vector<std::string> linears = adaptable_linears(model);
  std::string unknown;
  for (const std::string& target : options.targets) {
    if (std::ranges::none_of(linears, [&](const std::string& linear) { return is_target(target, linear); }))
      unknown += formatted("{}'{}'", unknown.empty() ? "" : ", ", target);
  }
  if (!unknown.empty()) {
    std::set<std::string> last;
    for (const std::string& linear : linears) last.insert(linear.substr(linear.rfind('.') + 1));
    std::string known;
    for (const std::string& name : last) known += (known.empty() ? "" : ", ") + name;
    fail(ErrorCode::InvalidArgument, "{} has no linears for the LoRA targets {}; its layers have {}", model.name(),
         unknown, known);
  }
  const models::Adapter adapter{.rank = options.rank,
                                .scale = adapter_scale(options.alpha, options.rank, options.rank_stabilized)};
  for (const std::string& linear : linears) {
    const bool wanted = options.targets.empty() || std::ranges::any_of(options.targets, [&](const std::string& target) {
                          return is_target(target, linear);
                        });
    if (wanted) config.adapters.emplace(linear, adapter);
  }
  config.adapter_dropout = options.dropout;
  return config;
}

namespace {

std::string adapter_config(const LanguageModel& model, const LoraOptions& options, const models::LlamaConfig& config) {
  std::set<std::string> targets(options.targets.begin(), options.targets.end());
  if (targets.empty())
    for (const auto& [linear, adapter] : config.adapters) targets.insert(linear.substr(linear.rfind('.') + 1));
  JsonWriter json;
  json.begin('{');
  json.text("base_model_name_or_path", model.name());
  json.text("bias", "none");
  json.flag("fan_in_fan_out", false);
  json.flag("inference_mode", true);
  json.flag("init_lora_weights", true);
  json.number("lora_alpha", options.alpha);
  json.number("lora_dropout", options.dropout);
  json.raw("modules_to_save", "null");
  json.text("peft_type", "LORA");
  json.count("r", static_cast<std::uint64_t>(options.rank));
  json.begin("target_modules", '[');
  for (const std::string& target : targets) json.item(json_quoted(target));
  json.end();
  json.text("task_type", "CAUSAL_LM");
  json.flag("use_dora", false);
  json.flag("use_rslora", options.rank_stabilized);
  json.end();
  return json.take();
}

void check_finite(std::string_view name, const Literal& value) {
  for (std::size_t at = 0; at < value.bytes().size(); at += sizeof(float)) {
    float x;
    std::memcpy(&x, value.bytes().data() + at, sizeof x);
    if (!std::isfinite(x)) fail(ErrorCode::NonFinite, "'{}' holds {} and is not saved", name, x);
  }
}

}  // namespace

void save_lora(const std::filesystem::path& folder, const LanguageModel& model, const LoraOptions& options,
               const std::function<Literal(std::string_view)>& value) {
  const models::LlamaConfig config = with_lora(model, options);
  std::vector<std::pair<std::string, Literal>> values;
  for (const auto& [linear, adapter] : config.adapters) {
    const auto add = [&](std::string_view part, auto&& ordered) {
      const std::string name = linear + std::string(part);
      Literal v = value(name);
      check_finite(name, v);
      values.emplace_back(std::string(kAdapterPrefix) + name, ordered(std::move(v)));
    };
    add(kLoraA, [](Literal v) { return v; });
    add(kLoraB,
        [&](Literal v) { return in_row_order(RowOrder::HuggingFace, std::move(v), interleaved_dim(model, linear)); });
  }
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, v] : values) tensors.push_back({name, v.type(), v.bytes()});
  make_folder(folder);
  write_safetensors(folder / kAdapterTensors, tensors, {{"format", "pt"}});
  write_file_atomic(folder / kAdapterConfig, adapter_config(model, options, config));
}

}  // namespace aeshna
