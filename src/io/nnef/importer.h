#pragma once
// From a document to a graph.
#include "aeshna/import.h"
#include "io/nnef/syntax.h"

namespace aeshna::nnef {

/// Where the values of variables come from.
class Variables {
 public:
  virtual ~Variables() = default;
  /// The tensor with this label, which has this shape. Errors name the file.
  virtual Literal read(const std::string& label, const Shape& shape) const = 0;
};

struct Outcome {
  ImportedModel model;
  std::vector<UnsupportedNode> unsupported;  ///< not empty: the graph is not complete
};
/// Errors as import_nnef, but operations that are not supported are listed in the outcome.
Outcome import_document(const Document& document, const Variables& variables, const ImportOptions& options);

/// Folder and graph file that a path means. Error(Unsupported) for archives and for quantization files beside the graph.
struct ModelFiles {
  std::filesystem::path folder, graph;
};
ModelFiles find_model(const std::filesystem::path& path);
Document read_document(const ModelFiles& files);

/// Variables in LABEL.dat below a folder. A label that is absolute or leads out of the folder is Error(CorruptFile).
class FolderVariables final : public Variables {
 public:
  explicit FolderVariables(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Literal read(const std::string& label, const Shape& shape) const override;
  std::filesystem::path file(const std::string& label) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace aeshna::nnef
