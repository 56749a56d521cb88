#include "io/convert_file.h"

#include <algorithm>
#include <functional>

#include "aeshna/quantize.h"
#include "base/fail.h"
#include "base/quant.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace aeshna {

namespace {

using TextMetadata = std::map<std::string, std::string, std::less<>>;

struct Source {
  std::string name;
  TensorType type;
  std::function<Literal()> read;
};

struct Input {
  std::vector<Source> tensors;
  GgufMetadata gguf;
  TextMetadata text;
  std::uint32_t version = 3;
};

bool is_gguf(const std::filesystem::path& path) {
  if (path.extension() == ".gguf") return true;
  if (path.extension() != ".safetensors")
    fail(ErrorCode::Unsupported, "{}: neither .gguf nor .safetensors", path.string());
  return false;
}

Input open_input(const std::filesystem::path& path) {
  Input input;
  if (is_gguf(path)) {
    const auto file = std::make_shared<const GgufFile>(path);
    input.version = file->version();
    input.gguf = file->metadata();
    for (const GgufEntry& e : file->tensors())
      input.tensors.push_back({e.name, e.type, [file, &e] { return Literal(e.type, file->read(e)); }});
    for (const auto& [key, value] : input.gguf) {
      if (!value.array) input.text[key] = value.type == GgufType::string ? value.strings[0] : value.to_string();
    }
    return input;
  }
  const auto file = std::make_shared<const SafetensorsFile>(path);
  input.text = file->metadata();
  for (const auto& [key, value] : input.text) input.gguf.emplace_back(key, GgufValue::text(value));
  for (const SafetensorsEntry& e : file->tensors())
    input.tensors.push_back({e.name, e.type, [file, &e] { return Literal(e.type, file->read(e)); }});
  return input;
}

bool has_whole_blocks(const Shape& shape, DType dtype) {
  return shape[shape.rank() - 1] % dtype_info(dtype).block_elements == 0;
}

/// What a tensor becomes.
ConvertedTensor plan(const Source& source, std::optional<DType> wanted, bool blocks) {
  const DType from = source.type.dtype;
  ConvertedTensor plan{.name = source.name, .from = from, .to = from};
  const bool number = is_float(from) || is_quantized(from);
  if (wanted && number && source.type.shape.rank() >= 2) {
    plan.to = *wanted;
    if (!has_whole_blocks(source.type.shape, plan.to)) {
      const std::string_view asked = dtype_name(*wanted);
      plan.to = *wanted == DType::q4_K ? DType::q5_0 : *wanted == DType::q6_K ? DType::q8_0 : from;
      if (!has_whole_blocks(source.type.shape, plan.to)) plan.to = from;
      plan.note = formatted("rows of {} elements cannot be {}", source.type.shape[source.type.shape.rank() - 1], asked);
    }
  }
  if (!blocks && is_quantized(plan.to)) {
    plan.to = DType::f32;
    plan.note = "safetensors has no blocks";
  }
  return plan;
}

std::vector<std::byte> converted(const Source& source, DType to, const TensorEdits& edits) {
  Literal value = source.read();
  const auto edit = edits.find(source.name);
  if (edit != edits.end()) {
    const TensorType wide{DType::f32, value.type().shape};
    if (is_quantized(value.type().dtype)) value = dequantize(value);
    if (value.type() != wide) value = Literal::from_doubles(wide, value.to_doubles());
    value = edit->second(std::move(value));
    AESHNA_CHECK(value.type() == wide);
  }
  const DType from = value.type().dtype;
  if (from != to) {
    if (is_quantized(from)) value = dequantize(value);
    if (value.type().dtype != to) {
      const DType between = is_quantized(to) ? DType::f32 : to;
      if (value.type().dtype != between)
        value = Literal::from_doubles({between, value.type().shape}, value.to_doubles());
      try {
        if (is_quantized(to)) value = quantize(value, to);
      } catch (Error& e) {
        throw e.context(formatted("tensor '{}'", source.name));
      }
    }
  }
  const auto bytes = value.bytes();
  return {bytes.begin(), bytes.end()};
}

/// general.file_type: what most of a file is. The numbers are llama.cpp's.
std::optional<std::uint32_t> file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q8_0:
      return 7;
    case DType::q5_0:
      return 8;
    case DType::q4_K:
      return 14;
    case DType::q6_K:
      return 18;
    case DType::bf16:
      return 32;
    default:
      return std::nullopt;
  }
}

void set_integer(GgufMetadata& metadata, std::string key, std::uint32_t value) {
  const auto found = std::ranges::find(metadata, key, &GgufMetadata::value_type::first);
  if (found == metadata.end()) {
    metadata.emplace_back(std::move(key), GgufValue::integer(value));
  } else {
    found->second = GgufValue::integer(value);
  }
}

}  // namespace

std::vector<ConvertedTensor> convert_file(const std::filesystem::path& from, const std::filesystem::path& to,
                                          std::optional<DType> dtype, const TensorEdits& edits) {
  const bool blocks = is_gguf(to);
  const auto type = dtype ? file_type(*dtype) : std::nullopt;
  if (dtype && !type) fail(ErrorCode::Unsupported, "tensors cannot be converted to {}", dtype_name(*dtype));
  Input input = open_input(from);
  std::error_code ignored;
  if (std::filesystem::equivalent(from, to, ignored))
    fail(ErrorCode::InvalidArgument, "{} is the file that is read", to.string());

  for (const auto& [name, edit] : edits) {
    const auto found = std::ranges::find(input.tensors, name, &Source::name);
    if (found == input.tensors.end()) fail(ErrorCode::NotFound, "{} has no tensor '{}'", from.string(), name);
    const DType d = found->type.dtype;
    AESHNA_CHECK(is_float(d) || is_quantized(d));
  }

  std::vector<ConvertedTensor> report;
  std::vector<GgufTensor> gguf;
  std::vector<SafetensorsSource> safetensors;
  for (const Source& source : input.tensors) {
    ConvertedTensor& planned = report.emplace_back(plan(source, dtype, blocks));
    planned.edited = edits.contains(source.name);
    const TensorType stored{planned.to, source.type.shape};
    const auto read = [&source, &edits, target = planned.to] { return converted(source, target, edits); };
    if (blocks) {
      gguf.push_back({source.name, stored, read});
    } else {
      safetensors.push_back({source.name, stored, read});
    }
  }
  if (!blocks) {
    write_safetensors(to, safetensors, input.text);
    return report;
  }
  if (type) {
    set_integer(input.gguf, "general.file_type", *type);
    if (is_quantized(*dtype)) set_integer(input.gguf, "general.quantization_version", 2);
  }
  write_gguf(to, gguf, input.gguf, input.version);
  return report;
}

}  // namespace aeshna
