#pragma once
// Published vision and speech models as graphs of the built-in models, with their weights. docs/vision.md says what is read.
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "aeshna/import.h"

namespace aeshna {

/// A folder with a config.json (and no graph.nnef): what import_hugging_face or LanguageModel::load_hugging_face reads.
bool is_hugging_face(const std::filesystem::path& path);
/// Such a folder, with an architecture of vision or speech that import_hugging_face knows. Error(CorruptFile) for a config.json that is none.
bool imports_hugging_face(const std::filesystem::path& path);

/// A folder with config.json and model.safetensors (or its index): ResNets with bottleneck blocks (names of transformers, of timm and torchvision), vision
/// transformers (transformers, timm), DINOv3's (transformers), Whisper's encoder (transformers, OpenAI). Every field of the configuration is honoured or
/// refused, every tensor of the model must be there with its shape and no other that is not known to be of no use here; all that is wrong is
/// listed at once. Weights become f32 (16-bit floats are widened, which is exact; doubles only with f64_as_f32). Batch norms are folded into
/// the convolutions.
///
/// The input is "pixels" f32 [batch, channels, H, W] or "mel" f32 [batch, mels, frames], one sample of the configured size unless `options.shapes` says
/// otherwise; outputs are "logits", "last_hidden_state" and "pooler_output", as far as the model has them. Errors: NotFound, Io, CorruptFile,
/// Unsupported (an architecture, a field), InvalidArgument and ShapeMismatch (options), OutOfRange (a negative variance, a value f32 cannot hold).
ImportedModel import_hugging_face(const std::filesystem::path& folder, const ImportOptions& options = {});

/// What is in such a folder, from the configuration and the headers of its files.
struct HuggingFaceInfo {
  struct Tensor {
    std::string name, type;
  };
  std::string architecture;  ///< "vit, 12 layers of width 384"
  std::vector<Tensor> inputs, outputs;
  std::int64_t weights = 0, weight_elements = 0;
  std::vector<std::string> unused;  ///< tensors of the files that this model does not need
  /// What the input is made by, as preprocessor_config.json or timm's pretrained_cfg has it: mean, std, size and so on.
  std::vector<std::pair<std::string, std::string>> preprocessing;
};
HuggingFaceInfo inspect_hugging_face(const std::filesystem::path& folder, const ImportOptions& options = {});

}  // namespace aeshna
