#pragma once
// What the loader needs to know of an architecture: how its graph is built, and where in the files the graph's parameters are.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"
#include "io/safetensors_folder.h"
#include "nn/pretrained/config.h"

namespace aeshna::pretrained {

/// Where the value of a parameter is.
struct Source {
  std::string tensor;
  std::int64_t part = 0, parts = 1;  ///< of a tensor that holds several parameters, one above the other
  std::string norm =
      {};  ///< the parameter is the bias that this batch norm leaves when the weight before it in the graph takes its scale
};

struct Architecture {
  std::string title;  ///< "vit, 12 layers of width 384"
  std::string input;
  Shape input_shape;  ///< by default
  /// Adds the outputs for an input of another shape, perhaps; the builder's refusals say what is wrong with it.
  std::function<void(Graph& graph, Value input)> build;
  std::function<Source(const std::string& parameter)> source;
  double norm_eps = 1e-5;
  std::vector<std::string> unused;  ///< tensors that this model does not need; "decoder.*", "*.num_batches_tracked"
  std::int64_t layers = 0;          ///< each has tensors: there cannot be more of them
};

// Each reads a configuration; `checkpoint` tells variants of naming apart.
Architecture read_resnet(Config& config, const SafetensorsFolder& checkpoint);
Architecture read_vit(Config& config, const SafetensorsFolder& checkpoint);
Architecture read_dinov3(Config& config, const SafetensorsFolder& checkpoint);
Architecture read_whisper(Config& config, const SafetensorsFolder& checkpoint);
Architecture read_openai_whisper(Config& config, const SafetensorsFolder& checkpoint);
/// timm's "resnet50", "vit_small_patch16_224" and their kin.
Architecture read_timm(Config& config, const SafetensorsFolder& checkpoint);

/// The rows of a linear `head`; 0: there is none. Refuses an id2label of another length.
std::int64_t classes_of(Config& config, const SafetensorsFolder& checkpoint, std::string_view head);

/// The text with its beginning replaced, if it begins so.
bool replace_prefix(std::string& text, std::string_view from, std::string_view to);

}  // namespace aeshna::pretrained
