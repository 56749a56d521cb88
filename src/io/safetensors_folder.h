#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/safetensors.h"

namespace aeshna {

inline constexpr std::string_view kModelSafetensors = "model.safetensors";
inline constexpr std::string_view kModelSafetensorsIndex = "model.safetensors.index.json";  ///< where there are several

/// The files that an index names, with the tensors that it has in each. Error(CorruptFile) naming `source` and the tensor: what is no index, a file
/// outside of the folder.
std::map<std::string, std::vector<std::string>> read_safetensors_index(const nlohmann::json& json,
                                                                       const std::string& source);

/// The tensors of a folder of Hugging Face: kModelSafetensors, or the files of kModelSafetensorsIndex if there is one.
class SafetensorsFolder {
 public:
  /// Error(NotFound, Io, CorruptFile or Unsupported): a file that is missing or damaged, a tensor that is not where the index has it or is in two files.
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  SafetensorsFolder(const SafetensorsFolder&) = delete;
  SafetensorsFolder& operator=(const SafetensorsFolder&) = delete;

  const std::string& name() const { return name_; }
  bool has_index() const { return has_index_; }
  std::vector<std::string> files() const;  ///< names in the folder, sorted
  /// nullptr: there is none.
  const TensorType* find(std::string_view tensor) const;
  bool contains(std::string_view tensor) const { return find(tensor) != nullptr; }
  Literal literal(const std::string& tensor) const;  ///< the tensor must be there
  /// By name.
  const std::map<std::string, TensorType, std::less<>>& tensors() const { return types_; }

 private:
  std::string name_;
  bool has_index_ = false;
  std::map<std::string, SafetensorsFile> files_;  ///< by name in the folder
  std::map<std::string, TensorType, std::less<>> types_;
  std::map<std::string, const SafetensorsFile*, std::less<>> holders_;  ///< of each tensor
};

}  // namespace aeshna
