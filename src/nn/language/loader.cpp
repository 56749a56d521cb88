#include "nn/language/loader.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/half.h"
#include "base/names.h"
#include "base/quant.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna {

Literal as_parameter(const FoundTensor& tensor, const TensorType& type) {
  Literal value = tensor.read();
  const DType from = value.type().dtype;
  if (tensor.added == 0 && from == type.dtype) return value;
  const std::span<const std::byte> bytes = value.bytes();
  const std::size_t width = from == DType::f32 ? 4 : 2;
  std::vector<std::byte> result(static_cast<std::size_t>(type.bytes()));
  for (std::size_t i = 0; i < result.size() / 4; ++i) {
    float x = 0;
    std::uint16_t half = 0;
    std::memcpy(from == DType::f32 ? static_cast<void*>(&x) : &half, bytes.subspan(i * width, width).data(), width);
    if (from == DType::f16) x = f16_to_f32(half);
    if (from == DType::bf16) x = bf16_to_f32(half);
    x += static_cast<float>(tensor.added);
    std::memcpy(result.data() + 4 * i, &x, 4);
  }
  return {type, std::move(result)};
}

bool apply_architecture(std::string_view architecture, models::LlamaConfig& c) {
  if (architecture == "llama") return true;
  if (architecture == "qwen2") {
    c.qkv_bias = true;
  } else if (architecture == "qwen3") {
    c.qk_norm = true;
  } else if (architecture == "phi3") {
    c.fused_qkv = c.fused_gate_up = true;
  } else if (architecture == "gemma2" || architecture == "gemma3") {
    c.gelu = c.post_norms = c.scaled_embedding = true;
    c.qk_norm = architecture == "gemma3";
  } else {
    return false;
  }
  return true;
}

void ModelLoader::corrupt_text(const std::string& message) const {
  fail(ErrorCode::CorruptFile, "{}: {}", name(), message);
}

void ModelLoader::check_refused() const {
  if (!refused_.empty())
    fail(ErrorCode::Unsupported, "{}: the model needs what Aeshna does not have: {}", name(), refused_);
}

void ModelLoader::set_tensors(std::map<std::string, FoundTensor, std::less<>> tensors) {
  for (const auto& [parameter, tensor] : tensors) {
    const DType dtype = tensor.type.dtype;
    const bool narrow = dtype == DType::f16 || dtype == DType::bf16;
    if (is_quantized(dtype) || (narrow && tensor.type.shape.rank() > 1)) {
      config().dtypes[parameter] = dtype;
    } else if (dtype != DType::f32 && !narrow) {
      refuse(formatted("{} as the dtype of '{}'", dtype_name(dtype), tensor.file_name));
    }
  }
  check_refused();

  Graph graph;
  try {
    models::llama(graph.input("ids", {1, 1}, DType::i32), config());
  } catch (Error& e) {
    throw e.context(name());
  }
  std::string missing;
  for (const Node& node : graph.nodes()) {
    if (!is_parameter(node)) continue;
    const TensorType& type = node.results[0];
    const auto found = tensors.find(node.name);
    if (found == tensors.end()) {
      missing += (missing.empty() ? "" : ", ") + node.name;
      continue;
    }
    FoundTensor& tensor = found->second;
    if (tensor.type.shape != type.shape || (is_quantized(tensor.type.dtype) && tensor.type.dtype != type.dtype)) {
      corrupt("tensor '{}' is {}, where the model needs {}", tensor.file_name, tensor.type.to_string(),
              type.to_string());
    }
    model_.parameters_.emplace(node.name, type);
    std::string name = tensor.file_name;
    model_.sources_.emplace(node.name, LanguageModel::Source{std::move(name), [tensor = std::move(tensor), type] {
                                                               return as_parameter(tensor, type);
                                                             }});
    tensors.erase(found);
  }
  if (!missing.empty()) corrupt("there are no tensors for {}", missing);
  for (const auto& [parameter, tensor] : tensors) refuse(formatted("the tensor '{}'", tensor.file_name));
  check_refused();
}

LanguageModel ModelLoader::finish(TokenizerSpec tokenizer) {
  if (static_cast<std::int64_t>(tokenizer.tokens.size()) > config().vocab)
    corrupt("the tokenizer has {} tokens, the model {}", tokenizer.tokens.size(), config().vocab);
  model_.tokenizer_ = std::make_shared<Tokenizer>(std::move(tokenizer));
  return std::move(model_);
}

// ---- LanguageModel

ChatTemplate LanguageModel::chat_template() const {
  if (chat_template_.empty())
    fail(ErrorCode::NotFound, "{} has no chat template: it goes on from a text, but takes no messages", name_);
  try {
    return ChatTemplate::recognise(chat_template_);
  } catch (Error& e) {
    throw e.context(name_);
  }
}

const LanguageModel::Source& LanguageModel::source(std::string_view parameter) const {
  const auto found = sources_.find(parameter);
  if (found != sources_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) names.push_back(name);
  fail(ErrorCode::NotFound, "{} has no parameter '{}'{}", name_, parameter, suggest_names(parameter, names));
}

Literal LanguageModel::weight(std::string_view parameter) const { return source(parameter).read(); }

const std::string& LanguageModel::tensor_name(std::string_view parameter) const { return source(parameter).tensor; }

LanguageModel LanguageModel::load(const std::filesystem::path& path) {
  std::error_code unseen;  // what cannot be looked at is reported when it is read
  return std::filesystem::is_directory(path, unseen) ? load_hugging_face(path) : load_gguf(path);
}

}  // namespace aeshna
