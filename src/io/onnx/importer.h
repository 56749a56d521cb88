#pragma once
// From a parsed model to a graph.
#include "aeshna/import.h"
#include "io/onnx/model.h"

namespace aeshna::onnx {

struct Outcome {
  ImportedModel model;
  std::vector<UnsupportedNode> unsupported;  ///< not empty: the graph is not complete
};
/// Errors as import_onnx, but nodes that are not supported are listed in the outcome.
Outcome import_model(const Model& model, const ImportOptions& options);

/// How often each op is used, subgraphs and functions included.
std::map<std::string, std::int64_t> count_ops(const Model& model);

}  // namespace aeshna::onnx
