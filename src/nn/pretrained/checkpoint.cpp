#include "nn/pretrained/checkpoint.h"

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "io/json_field.h"

namespace aeshna::pretrained {

namespace fs = std::filesystem;

Checkpoint::Checkpoint(const fs::path& folder) : name_(folder.string()) {
  std::map<std::string, std::vector<std::string>> files;  // with the tensors that the index has in them
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) {
    const nlohmann::json json = read_json(index);
    const JsonField top(index.string(), json);
    if (!top.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", index.string());
    for (const auto& [tensor, field] : top.at("weight_map").members()) {
      const std::string file = field.text();
      if (file.empty() || file == ".." || fs::path(file).filename() != file)
        field.refuse(formatted("'{}', no file of the folder", file));
      files[file].push_back(tensor);
    }
  } else {
    files["model.safetensors"];
  }
  for (const auto& [name, listed] : files) {
    const auto file = std::make_shared<const SafetensorsFile>(folder / name);
    for (const std::string& tensor : listed)
      if (file->find(tensor) == nullptr)
        fail(ErrorCode::CorruptFile, "{}: '{}' is not in {}", index.string(), tensor, name);
    for (const SafetensorsEntry& entry : file->tensors()) {
      if (!types_.emplace(entry.name, entry.type).second)
        fail(ErrorCode::CorruptFile, "{}: tensor '{}' is in two files", name_, entry.name);
      files_.emplace(entry.name, file);
    }
  }
}

const TensorType* Checkpoint::find(std::string_view tensor) const {
  const auto found = types_.find(tensor);
  return found == types_.end() ? nullptr : &found->second;
}

Literal Checkpoint::read(const std::string& tensor) const { return files_.at(tensor)->literal(tensor); }

}  // namespace aeshna::pretrained
