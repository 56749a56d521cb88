#include "runtime/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/format.h"
#include "base/quant.h"
#include "io/json_field.h"
#include "io/safetensors.h"
#include "runtime/convert.h"

namespace aeshna {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "aeshna";
constexpr std::string_view kQuantizedKey = "aeshna.quantized";  ///< metadata: JSON object, tensor -> dtype
constexpr std::string_view kStatePrefix = "aeshna.state/";
constexpr std::size_t kListed = 20;  // problems spelled out in a message

std::string print_info(const CheckpointInfo& info) {
  nlohmann::ordered_json json;
  json["version"] = info.version;
  json["step"] = info.step;
  json["micro_step"] = info.micro_step;
  json["seed"] = info.seed;
  json["optimizer"] = info.optimizer;
  json["extra"] = info.extra;
  try {
    return json.dump();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::InvalidArgument, "[save] the caller's text `extra` is not UTF-8: {}", e.what());
  }
}

/// A file without our metadata (another program's) holds parameters and nothing else.
CheckpointInfo parse_info(const SafetensorsFile& file) {
  CheckpointInfo info;
  const auto found = file.metadata().find(kMetadataKey);
  if (found == file.metadata().end()) return info;
  try {
    const Json json = parse_json(found->second, "\"aeshna\"");
    info.version = json_integer(json.at("version")).value();
    if (info.version != 1) {
      fail(ErrorCode::Unsupported, "{}: checkpoint version {}; this build reads version 1", file.name(), info.version);
    }
    const auto count = [&json](const char* key) {
      const Json& value = json.at(key);
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX) throw std::out_of_range(key);
      return value.get<std::int64_t>();
    };
    info.step = count("step");
    info.micro_step = count("micro_step");
    if (!json.at("seed").is_number_unsigned()) throw std::out_of_range("seed");
    info.seed = json.at("seed").get<std::uint64_t>();
    info.optimizer = json.at("optimizer").get<std::string>();
    info.extra = json.at("extra").get<std::string>();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::CorruptFile) throw;
    fail(ErrorCode::CorruptFile, "{}: the metadata {}", file.name(), e.message());
  } catch (const std::exception& e) {
    fail(ErrorCode::CorruptFile, "{}: the metadata \"aeshna\" is not what Aeshna writes: {}", file.name(), e.what());
  }
  return info;
}

/// safetensors has no quantized dtypes: the blocks of each row are bytes, u8[..., bytes of a row], and the metadata
/// says of what.
TensorType stored_type(const TensorType& type) {
  if (!is_quantized(type.dtype)) return type;
  const DTypeInfo& info = dtype_info(type.dtype);
  const int last = type.shape.rank() - 1;
  return {DType::u8, type.shape.with(last, type.shape[last] / info.block_elements * info.block_bytes)};
}

/// The dtypes of the quantized tensors of a file, by tensor; checked against the tensors' shapes.
std::map<std::string, TensorType, std::less<>> quantized_types(const SafetensorsFile& file) {
  std::map<std::string, TensorType, std::less<>> types;
  const auto found = file.metadata().find(kQuantizedKey);
  if (found == file.metadata().end()) return types;
  const auto corrupt = [&](std::string_view what) {
    fail(ErrorCode::CorruptFile, "{}: the metadata \"{}\" {}", file.name(), kQuantizedKey, what);
  };
  Json json;
  try {
    json = parse_json(found->second, kQuantizedKey);
  } catch (const Error& e) {
    corrupt(e.message());
  }
  if (!json.is_object()) corrupt("is no JSON object");
  for (const auto& [name, value] : json.items()) {
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr || !value.is_string()) corrupt(formatted("speaks of '{}', which is no tensor of it", name));
    DType dtype = DType::u8;
    try {
      dtype = parse_dtype(value.get<std::string>());
    } catch (const Error& e) {
      corrupt(formatted("calls '{}' something else: {}", name, e.message()));
    }
    const DTypeInfo& info = dtype_info(dtype);
    const Shape& shape = entry->type.shape;
    const int last = shape.rank() - 1;
    constexpr std::int64_t most = INT64_MAX / 1024;  // rows of no elements may claim any length
    if (!is_quantized(dtype) || entry->type.dtype != DType::u8 || last < 0 || shape[last] > most ||
        shape[last] % info.block_bytes != 0) {
      corrupt(formatted("calls '{}' {}, but the tensor is {}", name, info.name, entry->type.to_string()));
    }
    types.emplace(name, TensorType{dtype, shape.with(last, shape[last] / info.block_bytes * info.block_elements)});
  }
  return types;
}

/// Collects what is wrong with a file, so that one message tells it all.
class Problems {
 public:
  template <class... Args>
  void add(ErrorCode code, std::format_string<Args...> format, Args&&... args) {
    if (count_++ == 0) code_ = code;
    if (count_ <= kListed) text_ += "\n  " + formatted(format, std::forward<Args>(args)...);
  }
  void raise(const std::string& file) const {
    if (count_ == 0) return;
    const std::string more = count_ > kListed ? formatted("\n  and {} more", count_ - kListed) : "";
    fail(code_, "{} cannot be loaded; nothing has changed:{}{}", file, text_, more);
  }

 private:
  ErrorCode code_ = ErrorCode::CorruptFile;
  std::size_t count_ = 0;
  std::string text_;
};

}  // namespace

std::string checkpoint_name(std::string_view name, bool parameter) {
  if (parameter || name.starts_with("aeshna.opt.") || name.starts_with("aeshna.acc/")) return std::string(name);
  return std::string(kStatePrefix) + std::string(name);
}

void write_checkpoint(Weights::Impl& store, const std::filesystem::path& file, std::span<const std::string> names,
                      const CheckpointInfo& info) {
  const std::vector<Literal> values = store.read(names);
  std::vector<SafetensorsTensor> tensors;
  Json quantized = Json::object();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const TensorType& type = values[i].type();
    tensors.push_back({checkpoint_name(names[i], store.find(names[i]).parameter), stored_type(type), values[i].bytes()});
    if (is_quantized(type.dtype)) quantized[tensors.back().name] = std::string(dtype_name(type.dtype));
  }
  std::map<std::string, std::string, std::less<>> metadata{{std::string(kMetadataKey), print_info(info)}, {"format", "pt"}};
  if (!quantized.empty()) metadata.emplace(kQuantizedKey, quantized.dump());
  write_safetensors(file, tensors, metadata);
}

CheckpointInfo read_checkpoint(Weights::Impl& store, const std::filesystem::path& path,
                               const CheckpointDemand& demand) {
  const SafetensorsFile file(path);
  const CheckpointInfo info = parse_info(file);
  Problems problems;
  if (demand.optimizer && *demand.optimizer != info.optimizer) {
    problems.add(ErrorCode::InvalidArgument, "optimizer state: expected '{}', found {}", *demand.optimizer,
                 info.optimizer.empty() ? "none" : "'" + info.optimizer + "'");
  }

  struct Wanted {
    std::string name;
    const SafetensorsEntry* entry;
    TensorType type;
  };
  const auto quantized = quantized_types(file);
  std::vector<Wanted> wanted;
  std::set<std::string_view> known;
  const auto want = [&](const std::string& name, bool required) {
    const Weights::Impl::Tensor& tensor = store.find(name);
    const SafetensorsEntry* entry = file.find(checkpoint_name(name, tensor.parameter));
    if (entry == nullptr) {
      if (required)
        problems.add(ErrorCode::NotFound, "missing: '{}' {}", checkpoint_name(name, tensor.parameter),
                     tensor.type.to_string());
      return;
    }
    known.insert(entry->name);
    const auto blocks = quantized.find(entry->name);
    const TensorType& type = blocks == quantized.end() ? entry->type : blocks->second;
    if (type != tensor.type) {
      problems.add(ErrorCode::ShapeMismatch, "'{}': expected {}, found {}", entry->name, tensor.type.to_string(),
                   type.to_string());
      return;
    }
    wanted.push_back({name, entry, type});
  };
  for (const std::string& name : demand.required) want(name, true);
  for (const std::string& name : demand.optional) want(name, false);
  if (!demand.allow_training_state && info.micro_step >= static_cast<std::int64_t>(demand.accumulate)) {
    problems.add(ErrorCode::InvalidArgument, "saved after {} micro-steps of an update; this session accumulates {}",
                 info.micro_step, demand.accumulate);
  }
  if (info.micro_step > 0) {
    for (const std::string& name : demand.accumulating) want(name, true);
  }
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (known.contains(entry.name) || (demand.allow_training_state && entry.name.starts_with("aeshna."))) continue;
    problems.add(ErrorCode::NotFound, "unknown: '{}' {}", entry.name, entry.type.to_string());
  }
  problems.raise(file.name());

  // All bytes are read and converted before the first tensor changes.
  std::vector<std::pair<std::string, Literal>> values;
  for (const auto& [name, entry, type] : wanted) values.emplace_back(name, Literal(type, file.read(*entry)));
  try {
    store.write(values);
  } catch (Error& e) {
    throw e.context(formatted("loading {}", file.name()));
  }
  return info;
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& file) { return parse_info(SafetensorsFile(file)); }

void save_weights(Weights::Impl& store, const std::filesystem::path& file, bool states) {
  const std::vector<std::string> names =
      store.names([states](const Weights::Impl::Tensor& t) { return states || t.parameter; });
  CheckpointInfo info;
  info.seed = store.seed;
  write_checkpoint(store, file, names, info);
}

void load_weights(Weights::Impl& store, const std::filesystem::path& path) {
  const std::vector<std::string> parameters = store.names([](const Weights::Impl::Tensor& t) { return t.parameter; });
  if (!parameters.empty()) {
    const std::vector<std::string> states = store.names([](const Weights::Impl::Tensor& t) { return !t.parameter; });
    CheckpointDemand demand;
    demand.required = parameters;
    demand.allow_training_state = true;
    std::ranges::copy_if(states, std::back_inserter(demand.optional),
                         [](const std::string& n) { return !n.starts_with("aeshna."); });
    read_checkpoint(store, path, demand);
    return;
  }
  // An empty store takes whatever parameters the file has.
  const SafetensorsFile file(path);
  parse_info(file);
  const auto quantized = quantized_types(file);
  std::vector<Weights::Impl::NewTensor> added;
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (entry.name.starts_with("aeshna.")) continue;
    const auto blocks = quantized.find(entry.name);
    const TensorType& type = blocks == quantized.end() ? entry.type : blocks->second;
    added.push_back({entry.name, true, type, Literal(type, file.read(entry))});
  }
  try {
    store.create(added);
  } catch (Error& e) {
    throw e.context(formatted("loading {}", file.name()));
  }
}

}  // namespace aeshna
