#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"

namespace aeshna {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's bound
constexpr int kMaxDepth = 3;                       // header, tensor, shape or offsets
constexpr std::string_view kMetadata = "__metadata__";

struct Name {
  std::string_view name;
  DType dtype;
};
constexpr std::array<Name, 15> kNames{{{"F64", DType::f64},
                                       {"F32", DType::f32},
                                       {"F16", DType::f16},
                                       {"BF16", DType::bf16},
                                       {"F8_E4M3", DType::f8e4m3},
                                       {"F8_E5M2", DType::f8e5m2},
                                       {"I64", DType::i64},
                                       {"I32", DType::i32},
                                       {"I16", DType::i16},
                                       {"I8", DType::i8},
                                       {"U64", DType::u64},
                                       {"U32", DType::u32},
                                       {"U16", DType::u16},
                                       {"U8", DType::u8},
                                       {"BOOL", DType::boolean}}};

std::optional<DType> dtype_of(std::string_view name) {
  for (const Name& n : kNames) {
    if (n.name == name) return n.dtype;
  }
  return std::nullopt;
}

std::string_view name_of(DType dtype, std::string_view tensor) {
  for (const Name& n : kNames) {
    if (n.dtype == dtype) return n.name;
  }
  fail(ErrorCode::Unsupported, "tensor '{}': safetensors has no dtype for {}", tensor, dtype_name(dtype));
}

[[noreturn]] void corrupt(const std::string& file, std::string_view message) {
  fail(ErrorCode::CorruptFile, "{}: not a valid safetensors file: {}", file, message);
}

/// JSON with bounded depth and without duplicate keys, which nlohmann would let through (the last one would win).
/// Looks only for what Json::parse accepts in silence: deep nesting and duplicate keys. (Its own callback could, in quadratic time.)
class HeaderCheck final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderCheck(const std::string& file) : file_(file) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) corrupt(file_, formatted("duplicate key '{}' in the header", name));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) override {
    corrupt(file_, formatted("header is no JSON: {}", e.what()));
  }

 private:
  bool open() {
    if (keys_.size() >= kMaxDepth) corrupt(file_, "header nested deeper than 3 levels");
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;  ///< of the objects and arrays that are open
};

Json parse_header(std::string_view text, const std::string& file) {
  HeaderCheck check(file);
  Json::sax_parse(text, &check);
  Json header;
  try {
    header = Json::parse(text);
  } catch (const Json::exception& e) {
    corrupt(file, formatted("header is no JSON: {}", e.what()));
  }
  if (!header.is_object()) corrupt(file, "header is no JSON object");
  return header;
}

/// "shape" or "data_offsets": an array of unsigned integers that fit int64.
std::vector<std::int64_t> integers(const Json& tensor, const char* key, const std::string& file,
                                   const std::string& name) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_array())
    corrupt(file, formatted("tensor '{}' has no array \"{}\"", name, key));
  std::vector<std::int64_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      corrupt(file, formatted("tensor '{}': \"{}\" holds {}, which is no size", name, key, value.dump()));
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

SafetensorsEntry parse_tensor(const std::string& name, const Json& tensor, const std::string& file) {
  if (!tensor.is_object()) corrupt(file, formatted("tensor '{}' is no JSON object", name));
  for (const auto& item : tensor.items()) {
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      corrupt(file, formatted("tensor '{}' has the unknown key '{}'", name, item.key()));
    }
  }
  const auto dtype_text = tensor.find("dtype");
  if (dtype_text == tensor.end() || !dtype_text->is_string())
    corrupt(file, formatted("tensor '{}' has no dtype", name));
  const std::string text = dtype_text->get<std::string>();
  const std::optional<DType> dtype = dtype_of(text);
  if (!dtype) fail(ErrorCode::Unsupported, "{}: tensor '{}' has the unknown dtype '{}'", file, name, text);

  SafetensorsEntry entry;
  entry.name = name;
  const std::vector<std::int64_t> dims = integers(tensor, "shape", file, name);
  const std::vector<std::int64_t> offsets = integers(tensor, "data_offsets", file, name);
  if (offsets.size() != 2) corrupt(file, formatted("tensor '{}' has {} data offsets, not 2", name, offsets.size()));
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    fail(ErrorCode::Unsupported, "{}: tensor '{}' has rank {}; the largest is {}", file, name, dims.size(),
         Shape::kMaxRank);
  }
  std::uint64_t bytes = dtype_info(*dtype).block_bytes;
  try {
    for (std::int64_t d : dims) bytes = checked_mul(bytes, static_cast<std::uint64_t>(d), "bytes");
    entry.type = {*dtype, Shape(std::span<const std::int64_t>(dims))};
    (void)entry.type.shape.elements();
  } catch (const Error&) {
    corrupt(file, formatted("tensor '{}': the size of its shape overflows", name));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    corrupt(file, formatted("tensor '{}' of type {} needs {} bytes, but its offsets are [{}, {})", name,
                            entry.type.to_string(), bytes, entry.begin, entry.end));
  }
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::vector<std::byte> bytes, std::string name)
    : source_(std::move(bytes), std::move(name)) {
  parse(source_.memory());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : source_(path) {
  // The length first, then no more than the header: the tensors stay on disk.
  const std::uint64_t size = source_.size();
  std::vector<std::byte> prefix = source_.read(0, std::min<std::uint64_t>(size, 8), "the header's length");
  if (prefix.size() == 8) {
    const std::uint64_t length = ByteReader(prefix, name()).u64("header length");
    if (length <= std::min(kMaxHeader, size - 8)) prefix = source_.read(0, 8 + length, "the header");
  }
  parse(prefix);
}

void SafetensorsFile::parse(std::span<const std::byte> prefix) {
  const std::uint64_t file_bytes = source_.size();
  ByteReader reader(prefix, name());
  const std::uint64_t length = reader.u64("header length");
  if (length > kMaxHeader)
    corrupt(name(), formatted("header length {} is above the bound of {} bytes", length, kMaxHeader));
  if (length > file_bytes - 8) corrupt(name(), formatted("header length {} in a file of {} bytes", length, file_bytes));
  const std::string_view text = reader.text(length, "header");
  if (text.empty() || text[0] != '{') corrupt(name(), "header does not start with '{'");
  const Json header = parse_header(text, name());
  data_begin_ = 8 + length;

  for (const auto& item : header.items()) {
    if (item.key() != kMetadata) {
      entries_.push_back(parse_tensor(item.key(), item.value(), name()));
      continue;
    }
    if (!item.value().is_object()) corrupt(name(), "__metadata__ is no JSON object");
    for (const auto& pair : item.value().items()) {
      if (!pair.value().is_string()) corrupt(name(), formatted("metadata '{}' is no string", pair.key()));
      metadata_[pair.key()] = pair.value().get<std::string>();
    }
  }

  std::ranges::sort(entries_, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries_) {
    if (entry.begin != position) {
      corrupt(name(), formatted("tensor '{}' starts at {} where {} was expected: {}", entry.name, entry.begin, position,
                                entry.begin < position ? "tensors overlap" : "a hole in the data"));
    }
    position = entry.end;
  }
  if (position != file_bytes - data_begin_) {
    corrupt(name(), formatted("tensors take {} bytes, the file holds {}", position, file_bytes - data_begin_));
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::vector<std::byte> SafetensorsFile::read(const SafetensorsEntry& entry) const {
  return source_.read(data_begin_ + entry.begin, entry.end - entry.begin, formatted("tensor '{}'", entry.name));
}

Literal SafetensorsFile::literal(std::string_view tensor) const {
  const SafetensorsEntry* entry = find(tensor);
  if (entry == nullptr) fail(ErrorCode::NotFound, "{} has no tensor '{}'", name(), tensor);
  return Literal(entry->type, read(*entry));
}

namespace {

using Metadata = std::map<std::string, std::string, std::less<>>;

/// A tensor of a file to be written; `index` is where the caller has it.
struct Placed {
  std::string_view name;
  const TensorType& type;
  std::size_t index;
};

std::vector<Placed> in_file_order(auto&& tensors) {
  std::vector<Placed> order;
  for (std::size_t i = 0; i < tensors.size(); ++i) order.push_back({tensors[i].name, tensors[i].type, i});
  std::vector<std::size_t> places(order.size());
  std::ranges::generate(places, [n = std::size_t{0}]() mutable { return n++; });
  std::ranges::sort(places, [&](std::size_t a, std::size_t b) {
    const auto wa = dtype_info(order[a].type.dtype).block_bytes, wb = dtype_info(order[b].type.dtype).block_bytes;
    return wa != wb ? wa > wb : order[a].name < order[b].name;
  });
  std::vector<Placed> sorted;
  for (const std::size_t i : places) sorted.push_back(order[i]);
  return sorted;
}

/// The length and the header.
std::string make_prefix(const std::string& path, std::span<const Placed> order, const Metadata& metadata) {
  static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata) header[std::string(kMetadata)][key] = value;
  std::set<std::string_view> names;
  std::uint64_t position = 0;
  for (const Placed& tensor : order) {
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      fail(ErrorCode::InvalidArgument, "cannot write {}: tensor name '{}' is {}", path, tensor.name,
           tensor.name == kMetadata ? "reserved" : "there twice");
    }
    const std::string_view dtype = name_of(tensor.type.dtype, tensor.name);
    const std::uint64_t end =
        checked_add(position, static_cast<std::uint64_t>(tensor.type.bytes()), "size of the file");
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    entry["dtype"] = dtype;
    entry["shape"] = tensor.type.shape.dims();
    entry["data_offsets"] = {position, end};
    header[std::string(tensor.name)] = std::move(entry);
    position = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& e) {
    fail(ErrorCode::InvalidArgument, "cannot write {}: a name or a metadata string is not UTF-8 ({})", path, e.what());
  }
  text.append(align_up(text.size(), 8) - text.size(), ' ');
  if (text.size() > kMaxHeader) {
    fail(ErrorCode::LimitExceeded, "cannot write {}: a header of {} bytes; readers accept {}", path, text.size(),
         kMaxHeader);
  }
  const std::uint64_t length = text.size();
  std::string prefix(sizeof length, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  return prefix + text;
}

void check_bytes(const std::string& path, const Placed& tensor, std::size_t bytes) {
  if (bytes != static_cast<std::uint64_t>(tensor.type.bytes())) {
    fail(ErrorCode::InvalidArgument, "cannot write {}: tensor '{}' of type {} has {} bytes, not {}", path, tensor.name,
         tensor.type.to_string(), bytes, tensor.type.bytes());
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                       const Metadata& metadata) {
  const std::vector<Placed> order = in_file_order(tensors);
  const std::string prefix = make_prefix(path.string(), order, metadata);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(prefix))};
  for (const Placed& tensor : order) {
    parts.push_back(tensors[tensor.index].bytes);
    check_bytes(path.string(), tensor, parts.back().size());
  }
  write_file_atomic(path, parts);
}

void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsSource> tensors,
                       const Metadata& metadata) {
  const std::vector<Placed> order = in_file_order(tensors);
  const std::string prefix = make_prefix(path.string(), order, metadata);
  write_file_atomic(path, [&](const WriteBytes& write) {
    write(std::as_bytes(std::span(prefix)));
    for (const Placed& tensor : order) {
      const std::vector<std::byte> bytes = tensors[tensor.index].read();
      check_bytes(path.string(), tensor, bytes.size());
      write(bytes);
    }
  });
}

}  // namespace aeshna
