#include "io/safetensors_folder.h"

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "io/json_field.h"

namespace aeshna {

namespace fs = std::filesystem;

std::map<std::string, std::vector<std::string>> read_safetensors_index(const nlohmann::json& json,
                                                                       const std::string& source) {
  const JsonField top(source, json);
  if (!top.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", source);
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, field] : top.at("weight_map").members()) {
    const std::string file = field.text();
    if (file.empty() || file == "." || file == ".." || fs::path(file).filename() != file)
      field.refuse(formatted("'{}', no file of the folder", file));
    files[file].push_back(tensor);
  }
  return files;
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) : name_(folder.string()) {
  const fs::path index = folder / kModelSafetensorsIndex;
  has_index_ = fs::exists(index);
  std::map<std::string, std::vector<std::string>> files = {{std::string(kModelSafetensors), {}}};
  if (has_index_) files = read_safetensors_index(read_json(index), index.string());
  for (const auto& [name, listed] : files) {
    const SafetensorsFile& file = files_.try_emplace(name, folder / name).first->second;
    for (const std::string& tensor : listed)
      if (file.find(tensor) == nullptr)
        fail(ErrorCode::CorruptFile, "{}: '{}' is not in {}", index.string(), tensor, name);
    for (const SafetensorsEntry& entry : file.tensors()) {
      if (!types_.emplace(entry.name, entry.type).second)
        fail(ErrorCode::CorruptFile, "{}: tensor '{}' is in two files", name_, entry.name);
      holders_.emplace(entry.name, &file);
    }
  }
}

std::vector<std::string> SafetensorsFolder::files() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const TensorType* SafetensorsFolder::find(std::string_view tensor) const {
  const auto found = types_.find(tensor);
  return found == types_.end() ? nullptr : &found->second;
}

Literal SafetensorsFolder::literal(const std::string& tensor) const { return holders_.at(tensor)->literal(tensor); }

}  // namespace aeshna
