// The public functions.
#include <set>

#include "base/fail.h"
#include "io/onnx/importer.h"

namespace aeshna {
namespace {

std::string list_of(const std::vector<UnsupportedNode>& nodes) {
  std::string text;
  for (const UnsupportedNode& n : nodes) {
    text += formatted("\n  {} '{}': {}", n.op, n.name, n.reason);
    for (std::size_t i = 0; i < n.bind.size(); ++i)
      text += formatted("{}--bind {}=...", i == 0 ? " (give " : ", ", n.bind[i]);
    if (!n.bind.empty()) text += ')';
  }
  return text;
}

}  // namespace

ImportedModel import_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  onnx::Outcome outcome = onnx::import_model(onnx::read_model(path), options);
  if (!outcome.unsupported.empty()) {
    fail(ErrorCode::Unsupported, "{}: {} of its nodes are not supported:{}", path.string(), outcome.unsupported.size(),
         list_of(outcome.unsupported));
  }
  return std::move(outcome.model);
}

OnnxInfo inspect_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  const onnx::Model model = onnx::read_model(path);
  OnnxInfo info;
  info.producer = model.producer;
  info.ir_version = model.ir_version;
  if (const auto opset = model.opsets.find(""); opset != model.opsets.end()) info.opset = opset->second;
  info.ops = onnx::count_ops(model);
  std::set<std::string> weights;
  for (const onnx::Tensor& t : model.graph.initializers) {
    weights.insert(t.name);
    ++info.weights;
    info.weight_elements += t.value.type().shape.elements();
  }
  for (const onnx::ValueInfo& v : model.graph.inputs) {
    if (!weights.contains(v.name)) info.inputs.push_back({v.name, v.type_text()});
  }
  for (const onnx::ValueInfo& v : model.graph.outputs) info.outputs.push_back({v.name, v.type_text()});
  try {
    info.unsupported = onnx::import_model(model, options).unsupported;
  } catch (const Error& error) {
    info.problem = error.message();
  }
  return info;
}

}  // namespace aeshna
