// Models of other programs, and the text form of graphs.
#include <algorithm>

#include "aeshna/graph.h"
#include "base/format.h"
#include "fuzz/target.h"
#include "io/nnef/importer.h"
#include "io/nnef/tensor_file.h"
#include "io/onnx/importer.h"
#include "ir/verify.h"

namespace aeshna::fuzz {

namespace {

/// A weight that was read from outside of the model's folder would begin somewhere in the secret, which repeats.
void check_inside(const std::map<std::string, Literal>& weights) {
  const std::string twice = std::string(kSecret) + std::string(kSecret);
  for (const auto& [name, value] : weights) {
    const std::string_view bytes = text_of(value.bytes());
    require(bytes.size() < 16 || !twice.contains(bytes.substr(0, 16)), "a weight from outside of the folder");
  }
}

void check_graph(const ImportedModel& model, bool complete) {
  verify(*model.graph, "import");
  check_inside(model.weights);
  for (const auto& [name, value] : model.weights) {
    const auto leaf = model.graph->leaf(name);
    require(!complete || leaf.has_value(), "a weight of no parameter");
  }
}

/// What part of an op's refusal users see.
[[noreturn]] void refuse(const std::vector<UnsupportedNode>& unsupported) {
  throw Error(ErrorCode::Unsupported, unsupported[0].op + ": " + unsupported[0].reason);
}

}  // namespace

void read_onnx(Bytes input) {
  static const Folder folder("onnx");
  [[maybe_unused]] static const bool linked = [] {
    std::error_code error;
    std::filesystem::create_symlink("../outside.bin", folder / "link.bin", error);
    return !error;
  }();
  const std::vector<Bytes> parts = parts_of(input);
  folder.put("w.bin", parts.size() > 1 ? parts[1] : Bytes());
  const onnx::Model model = onnx::parse_model(parts[0], "fuzz.onnx", folder.path());
  (void)onnx::count_ops(model);
  for (const onnx::Tensor& tensor : model.graph.initializers) check_inside({{tensor.name, tensor.value}});
  const onnx::Outcome outcome = onnx::import_model(model, {});
  check_graph(outcome.model, outcome.unsupported.empty());
  if (!outcome.unsupported.empty()) refuse(outcome.unsupported);
}

void read_nnef(Bytes input) {
  static const Folder folder("nnef");
  const std::vector<Bytes> parts = parts_of(input);
  for (const std::size_t i : {1u, 2u}) {
    const std::string name = i == 1 ? "a.dat" : "b.dat";
    folder.put(name, parts.size() > i ? parts[i] : Bytes());
    if (parts.size() <= i) continue;
    try {
      const Literal value = nnef::parse_tensor_file(parts[i], name);
      require(value.type().bytes() == static_cast<std::int64_t>(value.bytes().size()), "a tensor of another length");
    } catch (const Error& e) {
      require(e.code() != ErrorCode::Internal && std::string_view(e.what()).starts_with(name), e.what());
    }
  }
  try {
    const nnef::Outcome outcome = nnef::import_document(nnef::parse_document(text_of(parts[0]), "fuzz.nnef"),
                                                        nnef::FolderVariables(folder.path()), {});
    check_graph(outcome.model, outcome.unsupported.empty());
    if (!outcome.unsupported.empty()) refuse(outcome.unsupported);
  } catch (const Error& e) {
    require(e.code() == ErrorCode::Unsupported || std::string_view(e.what()).contains("fuzz.nnef:"),
            formatted("an error without a place: {}", e.what()));
    throw;
  }
}

void read_graph_text(Bytes input) {
  Graph graph;
  try {
    parse_graph(text_of(input), graph);
  } catch (const Error& e) {
    require(e.code() == ErrorCode::CorruptFile, e.what());
    require(graph.nodes().empty(), "a graph that was refused has left nodes");
    throw;
  }
  verify(graph, "parse");
  const std::string printed = graph.print();
  Graph again;
  try {
    parse_graph(printed, again);
  } catch (const Error& e) {
    throw Violation(formatted("what was printed is not read: {}", e.what()));
  }
  require(again.print() == printed, "another text after printing and reading");
}

}  // namespace aeshna::fuzz
