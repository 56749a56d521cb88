#pragma once
// What loading from GGUF and from Hugging Face's folders share: parameters that must be found, and a list of what is not understood.
#include "aeshna/language_model.h"
#include "base/format.h"
#include "nn/tokenizer/spec.h"

namespace aeshna {

/// A tensor of the files, under the name that its parameter has.
struct FoundTensor {
  std::string file_name;  ///< as the file calls it
  TensorType type;
  std::function<Literal()> read;
  double added = 0;  ///< to each element (Gemma's norms)
};

/// A tensor as its parameter wants it: as it is, or as f32 from 16-bit floats.
Literal as_parameter(const FoundTensor& tensor, const TensorType& type);

class ModelLoader {
 public:
  explicit ModelLoader(std::string name) { model_.name_ = std::move(name); }

  /// Notes something that the model needs and Aeshna lacks.
  void refuse(const std::string& what) { refused_ += (refused_.empty() ? "" : ", ") + what; }
  template <class... Args>
  [[noreturn]] void corrupt(std::format_string<Args...> format, Args&&... args) const {
    corrupt_text(formatted(format, std::forward<Args>(args)...));
  }
  models::LlamaConfig& config() { return model_.config_; }
  const std::string& name() const { return model_.name_; }
  void set_interleaved_heads() { model_.interleaved_heads_ = true; }
  void set_chat_template(std::string text) { model_.chat_template_ = std::move(text); }

  /// Error(Unsupported) with all that was refused so far.
  void check_refused() const;
  /// Sets the dtypes of the config by the tensors, then compares them with the parameters of the graph: all of them, their shapes, no others.
  void set_tensors(std::map<std::string, FoundTensor, std::less<>> tensors);
  LanguageModel finish(TokenizerSpec tokenizer);

 private:
  [[noreturn]] void corrupt_text(const std::string& message) const;
  LanguageModel model_;
  std::string refused_;
};

/// Sets what the members of the family differ in, by GGUF's name of the architecture; false: it is none of them.
bool apply_architecture(std::string_view architecture, models::LlamaConfig& config);

}  // namespace aeshna
