#pragma once
// Adapters with random values.
#include <random>

#include "aeshna/lora.h"
#include "base/hash.h"
#include "nn/language_model_support.h"

namespace aeshna::test {

/// The type of an adapter's parameter.
inline TensorType adapter_type(const LanguageModel& model, const models::LlamaConfig& config, std::string_view name) {
  const bool a = name.ends_with(".lora_A.weight");
  const std::string linear(name.substr(0, name.size() - std::string_view(".lora_A.weight").size()));
  const std::int64_t rank = config.adapters.at(linear).rank;
  const Shape& base = model.parameters().at(linear + ".weight").shape;
  return {DType::f32, a ? Shape{rank, base[1]} : Shape{base[0], rank}};
}

/// Values that depend on the name alone, about 1 / sqrt(columns) in size.
inline Literal adapter_value(const TensorType& type, std::string_view name) {
  std::mt19937_64 random(Hasher().add(name).low());
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  const double scale = 1 / std::sqrt(static_cast<double>(type.shape[1]));
  for (double& v : values) v = scale * (2 * static_cast<double>(random() >> 11) * 0x1p-53 - 1);
  return Literal::from_doubles(type, values);
}

/// Saves an adapter of such values for a model.
inline void save_random_adapter(const std::filesystem::path& folder, const LanguageModel& model,
                                const LoraOptions& options) {
  const models::LlamaConfig config = with_lora(model, options);
  save_lora(folder, model, options,
            [&](std::string_view name) { return adapter_value(adapter_type(model, config, name), name); });
}

}  // namespace aeshna::test
