#pragma once
// Language models from the files that they are published in. See docs/models.md.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/chat.h"
#include "aeshna/llama.h"
#include "aeshna/tokenizer.h"

namespace aeshna {

/// A model that was opened: what it is, how it reads and writes text, and where its weights lie. Weights are read one by one, when asked for
/// (load_weights of generate.h puts them into a store).
class LanguageModel {
 public:
  /// A GGUF file of the architectures llama, qwen2, qwen3, gemma2, gemma3 and phi3. All metadata of the architecture is honoured or refused;
  /// every tensor of the model must be there with its shape, and no others. Errors: those of reading the file and its tokenizer;
  /// Unsupported, listing all keys, values and tensors that Aeshna does not know; CorruptFile for what is missing or does not fit.
  static LanguageModel load_gguf(const std::filesystem::path& file);
  /// A folder of Hugging Face: config.json, model.safetensors or model.safetensors.index.json with its files, tokenizer.json, and if they are
  /// there tokenizer_config.json, chat_template.jinja and generation_config.json. The architectures are the same; weights are F32, F16 or BF16.
  static LanguageModel load_hugging_face(const std::filesystem::path& folder);
  /// The one or the other: a folder is Hugging Face's, all else GGUF.
  static LanguageModel load(const std::filesystem::path& path);

  /// The same model with the adapter in `folder`, which PEFT or save_lora() (lora.h) wrote: adapter_config.json and
  /// adapter_model.safetensors. It becomes a part of config(), parameters() and weight(). Everything in the config that changes what is
  /// computed is honoured or refused; every tensor must fit. All that is wrong is in one message: Error(Unsupported) if any of it is
  /// something that Aeshna lacks, else CorruptFile. InvalidArgument if the model has an adapter already.
  LanguageModel with_adapter(const std::filesystem::path& folder) const;

  const std::string& name() const { return name_; }
  const models::LlamaConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_chat_template() const { return !chat_template_.empty(); }
  /// Error(NotFound) if the model has no template, Error(Unsupported) if it is of no known family.
  ChatTemplate chat_template() const;

  /// The names and types of the parameters in the graphs that llama(ids, config()) builds.
  const std::map<std::string, TensorType, std::less<>>& parameters() const { return parameters_; }
  /// The value of one: matrices as the file has them, in quantized blocks, 16 bits or f32; vectors as f32 (widening is exact). Error(NotFound).
  Literal weight(std::string_view parameter) const;
  /// What the file calls the tensor of one. Error(NotFound).
  const std::string& tensor_name(std::string_view parameter) const;
  /// Whether the rows of q_proj and k_proj lie otherwise than in Hugging Face's checkpoint of the same model, with each head's halves
  /// interleaved: in GGUF files of the architecture llama.
  bool interleaved_heads() const { return interleaved_heads_; }

 private:
  friend class ModelLoader;
  friend class AdapterLoader;
  std::string name_, chat_template_;
  models::LlamaConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, TensorType, std::less<>> parameters_;
  struct Source {
    std::string tensor;  ///< as the file calls it
    std::function<Literal()> read;
  };
  const Source& source(std::string_view parameter) const;
  std::map<std::string, Source, std::less<>> sources_;
  bool interleaved_heads_ = false;
};

}  // namespace aeshna
