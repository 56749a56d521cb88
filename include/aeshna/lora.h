#pragma once
// LoRA (arXiv 2106.09685): small matrices that are trained beside the frozen weights of a language model, in the files of PEFT. See
// docs/lora.md; LanguageModel::with_adapter (language_model.h) opens one.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/language_model.h"

namespace aeshna {

/// A new adapter.
struct LoraOptions {
  std::int64_t rank = 16;
  double alpha = 32;
  bool rank_stabilized =
      false;           ///< what is added is scaled by alpha / sqrt(rank) (arXiv 2312.03732) instead of alpha / rank
  double dropout = 0;  ///< share of an adapter's input that is dropped while training
  /// Ends of the names of linears: "q_proj" is that of every layer, "layers.0.mlp.up_proj" one. Empty: all linears of the layers.
  std::vector<std::string> targets = {};
};

/// The config of a model with a new adapter beside each target: graphs of llama() then have the adapter's parameters too, which alone are
/// trainable, and drop `dropout` of its input. A store draws their first values; load_weights(model, weights) sets all others.
/// Error(InvalidArgument) for a rank below 1 or beyond 65536, numbers out of range, and for targets that the model lacks, with those that it has.
models::LlamaConfig with_lora(const LanguageModel& model, const LoraOptions& options);

/// Writes adapter_model.safetensors and adapter_config.json as PEFT does, into `folder`, which is made if it is missing. `value` gives the
/// parameters of the adapter of with_lora(model, options), such as Weights::get; rows are put into the order of Hugging Face's checkpoint. Each
/// file is replaced as a whole. Errors: those of with_lora; NonFinite naming the parameter; Io.
void save_lora(const std::filesystem::path& folder, const LanguageModel& model, const LoraOptions& options,
               const std::function<Literal(std::string_view parameter)>& value);

}  // namespace aeshna
