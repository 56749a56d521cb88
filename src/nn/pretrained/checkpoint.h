#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "io/safetensors.h"

namespace aeshna::pretrained {

/// The tensors of a folder: model.safetensors, or the files of model.safetensors.index.json.
class Checkpoint {
 public:
  /// Error(NotFound, Io or CorruptFile): a file that is missing or damaged, an index that does not fit its files or leads out of the folder.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::string& name() const { return name_; }
  /// nullptr: there is none.
  const TensorType* find(std::string_view tensor) const;
  bool contains(std::string_view tensor) const { return find(tensor) != nullptr; }
  Literal read(const std::string& tensor) const;
  /// By name.
  const std::map<std::string, TensorType, std::less<>>& tensors() const { return types_; }

 private:
  std::string name_;
  std::map<std::string, TensorType, std::less<>> types_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>, std::less<>> files_;  ///< of each tensor
};

}  // namespace aeshna::pretrained
