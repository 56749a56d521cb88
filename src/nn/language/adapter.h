#pragma once
// What reading, writing and merging adapters share: PEFT's names and its order of rows.
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/language_model.h"

namespace aeshna {

inline constexpr std::string_view kAdapterConfig = "adapter_config.json";
inline constexpr std::string_view kAdapterTensors = "adapter_model.safetensors";
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";  ///< before the name of a parameter
inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";
inline constexpr std::int64_t kMaxAdapterRank = 1 << 16;

/// The linears of a model's layers that an adapter can stand beside, sorted: "model.layers.0.mlp.down_proj".
std::vector<std::string> adaptable_linears(const LanguageModel& model);

/// Whether a target of PEFT means a linear: its name, or the end of it from a dot on.
bool is_target(std::string_view target, std::string_view linear);

/// The factor of what an adapter adds.
double adapter_scale(double alpha, std::int64_t rank, bool rank_stabilized);

enum class RowOrder : bool { HuggingFace, Model };
/// Of a linear whose rows are the halves of heads in Hugging Face's order and interleaved in the model's: the length of a head. Else 0.
std::int64_t interleaved_dim(const LanguageModel& model, std::string_view linear);
/// The rows of an adapter's B, f32 [out, rank], from the other order into this one; `dim` as above.
Literal in_row_order(RowOrder order, Literal b, std::int64_t dim);

}  // namespace aeshna
