#include "nn/language/merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/make_folder.h"
#include "io/json_field.h"
#include "io/safetensors_folder.h"
#include "nn/language/adapter.h"

namespace aeshna {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<float> floats_of(const Literal& value) {
  std::vector<float> numbers(value.bytes().size() / sizeof(float));
  std::memcpy(numbers.data(), value.bytes().data(), value.bytes().size());
  return numbers;
}

/// W + scale B A, summed in double and rounded once.
Literal merged(const Literal& weight, const Literal& a_value, const Literal& b_value, double scale,
               std::string_view linear) {
  const std::vector<float> a = floats_of(a_value), b = floats_of(b_value);
  std::vector<float> w = floats_of(weight);
  const auto rank = static_cast<std::size_t>(a_value.type().shape[0]),
             in = static_cast<std::size_t>(a_value.type().shape[1]);
  std::vector<double> row(in);
  for (std::size_t o = 0; o < w.size() / in; ++o) {
    float* out = w.data() + o * in;
    std::ranges::fill(row, 0);
    for (std::size_t r = 0; r < rank; ++r) {
      const double factor = scale * static_cast<double>(b[o * rank + r]);
      const float* from = a.data() + r * in;
      for (std::size_t k = 0; k < in; ++k) row[k] += factor * static_cast<double>(from[k]);
    }
    for (std::size_t k = 0; k < in; ++k) {
      out[k] = static_cast<float>(static_cast<double>(out[k]) + row[k]);
      if (!std::isfinite(out[k])) fail(ErrorCode::NonFinite, "the adapter of '{}' makes a weight {}", linear, out[k]);
    }
  }
  std::vector<std::byte> bytes(weight.bytes().size());
  std::memcpy(bytes.data(), w.data(), bytes.size());
  return {weight.type(), std::move(bytes)};
}

/// By the names of the tensors in the model's files.
TensorEdits edits_of(const std::shared_ptr<const LanguageModel>& model) {
  TensorEdits edits;
  for (const auto& [linear, adapter] : model->config().adapters) {
    edits.emplace(model->tensor_name(linear + ".weight"),
                  [model, linear = linear, scale = adapter.scale](const Literal& weight) {
                    return merged(weight, model->weight(linear + std::string(kLoraA)),
                                  model->weight(linear + std::string(kLoraB)), scale, linear);
                  });
  }
  return edits;
}

/// What a folder of Hugging Face has beside its weights.
constexpr std::array<std::string_view, 10> kOtherFiles = {"config.json",
                                                          "generation_config.json",
                                                          "tokenizer.json",
                                                          "tokenizer_config.json",
                                                          "special_tokens_map.json",
                                                          "added_tokens.json",
                                                          "chat_template.jinja",
                                                          "tokenizer.model",
                                                          "vocab.json",
                                                          "merges.txt"};

std::string_view torch_name(DType dtype) {
  return dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
}

void write_json(const fs::path& path, const Json& json) { write_file_atomic(path, json.dump(2) + "\n"); }

std::vector<ConvertedTensor> merge_folder(const fs::path& from, const fs::path& to, std::optional<DType> dtype,
                                          const TensorEdits& edits) {
  if (dtype && *dtype != DType::f32 && *dtype != DType::f16 && *dtype != DType::bf16)
    fail(ErrorCode::Unsupported, "a folder of Hugging Face holds f32, f16 or bf16, not {}", dtype_name(*dtype));
  make_folder(to);
  std::error_code error;
  if (fs::equivalent(from, to, error)) fail(ErrorCode::InvalidArgument, "{} is the folder that is read", to.string());

  const SafetensorsFolder folder(from);
  std::vector<ConvertedTensor> report;
  std::uint64_t bytes = 0;
  for (const std::string& file : folder.files()) {
    TensorEdits here;
    {
      const SafetensorsFile tensors(from / file);
      for (const auto& [name, edit] : edits)
        if (tensors.find(name) != nullptr) here.emplace(name, edit);
    }
    std::ranges::move(convert_file(from / file, to / file, dtype, here), std::back_inserter(report));
    const SafetensorsFile written(to / file);
    for (const SafetensorsEntry& entry : written.tensors()) bytes += entry.end - entry.begin;
  }
  for (const std::string_view name : kOtherFiles) {
    if (!fs::exists(from / name)) continue;
    if (name == "config.json" && dtype) {
      Json config = read_json(from / name);
      for (const char* key : {"torch_dtype", "dtype"})
        if (config.contains(key)) config[key] = torch_name(*dtype);
      write_json(to / name, config);
      continue;
    }
    const std::vector<std::byte> content = read_file(from / name);
    const std::span<const std::byte> parts[] = {content};
    write_file_atomic(to / name, parts);
  }
  if (folder.has_index()) {
    Json index = read_json(from / kModelSafetensorsIndex);
    index["metadata"]["total_size"] = bytes;
    write_json(to / kModelSafetensorsIndex, index);
  }
  return report;
}

}  // namespace

std::vector<ConvertedTensor> merge_adapter(const fs::path& from, const fs::path& adapter, const fs::path& to,
                                           std::optional<DType> dtype) {
  const auto model = std::make_shared<const LanguageModel>(LanguageModel::load(from).with_adapter(adapter));
  std::error_code unseen;
  const bool folder = fs::is_directory(from, unseen);
  if (folder == (to.extension() == ".gguf")) {
    fail(ErrorCode::InvalidArgument, "{} is a {}, and so must be what is written: {} is not", from.string(),
         folder ? "folder of Hugging Face" : "GGUF file", to.string());
  }
  const TensorEdits edits = edits_of(model);
  return folder ? merge_folder(from, to, dtype, edits) : convert_file(from, to, dtype, edits);
}

}  // namespace aeshna
