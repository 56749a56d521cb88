#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "io/gguf_types.h"

namespace aeshna {

namespace {

constexpr std::uint64_t kMaxHeader = 512ull << 20;
constexpr std::uint64_t kMaxName = 65535;  // the format's bound for keys

/// ggml's types of tensors by number; `name` is empty for numbers that are not in use.
struct TensorKind {
  std::string_view name;
  std::optional<DType> dtype = {};
};
constexpr std::array<TensorKind, 40> kTensorKinds = {{
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"Q4_0", DType::q4_0},
    {"Q4_1", DType::q4_1},
    {},
    {},
    {"Q5_0", DType::q5_0},
    {"Q5_1"},
    {"Q8_0", DType::q8_0},
    {"Q8_1"},
    {"Q2_K"},
    {"Q3_K"},
    {"Q4_K", DType::q4_K},
    {"Q5_K"},
    {"Q6_K", DType::q6_K},
    {"Q8_K"},
    {"IQ2_XXS"},
    {"IQ2_XS"},
    {"IQ3_XXS"},
    {"IQ1_S"},
    {"IQ4_NL"},
    {"IQ3_S"},
    {"IQ2_S"},
    {"IQ4_XS"},
    {"I8", DType::i8},
    {"I16", DType::i16},
    {"I32", DType::i32},
    {"I64", DType::i64},
    {"F64", DType::f64},
    {"IQ1_M"},
    {"BF16", DType::bf16},
    {},
    {},
    {},
    {"TQ1_0"},
    {"TQ2_0"},
    {},
    {},
    {},
    {"MXFP4"},
}};

}  // namespace

std::optional<std::uint32_t> gguf_tensor_type(DType dtype) {
  const auto found = std::ranges::find(kTensorKinds, std::optional(dtype), &TensorKind::dtype);
  if (found == kTensorKinds.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - kTensorKinds.begin());
}

/// Everything before the data, read from the start; of a file no more than was asked for, by the megabyte.
class GgufHeader {
 public:
  GgufHeader(std::span<const std::byte> bytes, const std::string& name)
      : reader_(bytes, name), file_bytes_(bytes.size()) {}
  GgufHeader(std::istream& in, std::uint64_t file_bytes, const std::string& name)
      : in_(&in), reader_({}, name), file_bytes_(file_bytes) {}

  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t position() const { return reader_.position(); }
  std::uint64_t remaining() const { return file_bytes_ - position(); }
  std::uint32_t u32(std::string_view what) { return (load(4), reader_.u32(what)); }
  std::uint64_t u64(std::string_view what) { return (load(8), reader_.u64(what)); }
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    return (load(count), reader_.take(count, what));
  }
  /// A count of things that take at least `each` bytes of the file.
  std::uint64_t count(std::uint64_t each, std::string_view what) {
    const std::uint64_t n = u64(what);
    if (n > remaining() / each) corrupt(formatted("{} is {}, but only {} bytes remain", what, n, remaining()));
    return n;
  }
  std::string text(std::string_view what) {
    const std::uint64_t length = count(1, what);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string key(std::string_view what) {
    std::string name = text(what);
    if (name.empty() || name.size() > kMaxName) corrupt(formatted("{} of {} bytes", what, name.size()));
    return name;
  }
  [[noreturn]] void corrupt(const std::string& message) const { reader_.corrupt("not a valid GGUF file: " + message); }

 private:
  /// Makes the next `count` bytes available if the file has them; the reader refuses if not.
  void load(std::uint64_t count) {
    if (in_ == nullptr || count <= reader_.remaining() || count > remaining()) return;
    const std::uint64_t needed = position() + count;
    if (needed > kMaxHeader)
      fail(ErrorCode::LimitExceeded, "{}: metadata and tensor table take more than {} bytes", reader_.name(),
           kMaxHeader);
    const std::uint64_t at = position(), old = loaded_.size();
    loaded_.resize(std::min(file_bytes_, std::max(needed, old + old / 2 + (1 << 20))));
    in_->read(reinterpret_cast<char*>(loaded_.data() + old), static_cast<std::streamsize>(loaded_.size() - old));
    if (!*in_) fail(ErrorCode::Io, "{}: cannot read {} bytes at {}", reader_.name(), loaded_.size() - old, old);
    reader_ = ByteReader(loaded_, reader_.name());
    reader_.seek(at, "header");
  }

  std::istream* in_ = nullptr;
  std::vector<std::byte> loaded_;
  ByteReader reader_;
  std::uint64_t file_bytes_;
};

namespace {

GgufType read_type(GgufHeader& in, const std::string& key) {
  const std::uint32_t number = in.u32("type of a value");
  if (number > static_cast<std::uint32_t>(GgufType::f64))
    in.corrupt(formatted("metadata '{}' has the type {}", key, number));
  return static_cast<GgufType>(number);
}

GgufValue read_value(GgufHeader& in, const std::string& key, const std::string& file) {
  GgufValue value{.type = read_type(in, key)};
  std::uint64_t count = 1;
  if (value.type == GgufType::array) {
    value.array = true;
    value.type = read_type(in, key);
    if (value.type == GgufType::array)
      fail(ErrorCode::Unsupported, "{}: metadata '{}' is an array of arrays", file, key);
    count = in.count(value.type == GgufType::string ? 8 : gguf_type_bytes(value.type), "length of an array");
  }
  if (value.type == GgufType::string) {
    value.strings.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) value.strings.push_back(in.text("string"));
    return value;
  }
  const auto bytes = in.take(count * gguf_type_bytes(value.type), "value");
  value.numbers.assign(bytes.begin(), bytes.end());
  if (value.type == GgufType::boolean && std::ranges::any_of(bytes, [](std::byte b) { return b > std::byte{1}; }))
    in.corrupt(formatted("metadata '{}' has a boolean that is neither 0 nor 1", key));
  return value;
}

GgufEntry read_entry(GgufHeader& in, std::uint64_t alignment, std::vector<std::string>& unsupported) {
  GgufEntry entry;
  entry.name = in.key("name of a tensor");
  const std::uint32_t rank = in.u32("number of dimensions");
  if (rank > kGgufMaxRank)
    in.corrupt(formatted("tensor '{}' has {} dimensions; the format has up to {}", entry.name, rank, kGgufMaxRank));
  std::vector<std::int64_t> dims(rank);
  for (std::size_t i = rank; i-- > 0;) {  // the fastest comes first
    const std::uint64_t extent = in.u64("dimension");
    if (!std::in_range<std::int64_t>(extent))
      in.corrupt(formatted("tensor '{}' has the dimension {}", entry.name, extent));
    dims[i] = static_cast<std::int64_t>(extent);
  }
  const std::uint32_t number = in.u32("type of a tensor");
  entry.offset = in.u64("offset of a tensor");
  if (entry.offset % alignment != 0)
    in.corrupt(
        formatted("tensor '{}' lies at {}, no multiple of the alignment {}", entry.name, entry.offset, alignment));
  const TensorKind kind = number < kTensorKinds.size() ? kTensorKinds[number] : TensorKind{};
  if (kind.name.empty()) in.corrupt(formatted("tensor '{}' has the type {}", entry.name, number));
  if (!kind.dtype) {
    unsupported.push_back(formatted("{} ('{}')", kind.name, entry.name));
    return entry;
  }
  const DTypeInfo& info = dtype_info(*kind.dtype);
  if (info.block_elements > 1 && (rank == 0 || dims.back() % info.block_elements != 0)) {
    in.corrupt(formatted("tensor '{}' of type {} has rows of {} elements, no multiple of {}", entry.name, kind.name,
                         rank == 0 ? 1 : dims.back(), info.block_elements));
  }
  try {
    // Extents of zero do not hide an overflow of the others: ggml computes strides from them.
    std::uint64_t bytes = info.block_bytes;
    for (const std::int64_t d : dims)
      bytes = checked_mul(bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(d, 1)), "bytes");
    entry.type = {*kind.dtype, Shape(std::span<const std::int64_t>(dims))};
    entry.bytes = static_cast<std::uint64_t>(entry.type.bytes());
  } catch (const Error&) {
    in.corrupt(formatted("tensor '{}': the size of its shape overflows", entry.name));
  }
  return entry;
}

}  // namespace

GgufFile::GgufFile(std::vector<std::byte> bytes, std::string name) : source_(std::move(bytes), std::move(name)) {
  GgufHeader header(source_.memory(), source_.name());
  parse(header);
}

GgufFile::GgufFile(const std::filesystem::path& path) : source_(path) {
  std::ifstream in = source_.open();
  GgufHeader header(in, source_.size(), source_.name());
  parse(header);
}

void GgufFile::parse(GgufHeader& in) {
  file_bytes_ = in.file_bytes();
  if (in.u32("magic number") != kGgufMagic) in.corrupt("it does not start with GGUF");
  version_ = in.u32("version");
  if (version_ != 2 && version_ != 3) {
    const bool swapped = std::byteswap(version_) <= 3;
    fail(ErrorCode::Unsupported, "{}: GGUF version {}{}; 2 and 3 are read", name(),
         swapped ? std::byteswap(version_) : version_, swapped ? " in big-endian byte order" : "");
  }
  // The least that one takes: a tensor has name, rank, type and offset; a value has key, type and one byte.
  const std::uint64_t tensors = in.count(25, "number of tensors"), values = in.count(14, "number of metadata values");
  for (std::uint64_t i = 0; i < values; ++i) {
    std::string key = in.key("key of the metadata");
    GgufValue value = read_value(in, key, name());
    if (!keys_.emplace(key, metadata_.size()).second) in.corrupt(formatted("metadata '{}' is there twice", key));
    metadata_.emplace_back(std::move(key), std::move(value));
  }
  if (const auto given = integer(kGgufAlignmentKey)) {
    if (*given < 1 || *given > static_cast<std::int64_t>(kGgufLargestAlignment) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*given)))
      in.corrupt(formatted("an alignment of {}; it is a power of two up to {}", *given, kGgufLargestAlignment));
    alignment_ = static_cast<std::uint64_t>(*given);
  }
  std::vector<std::string> unsupported;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufEntry entry = read_entry(in, alignment_, unsupported);
    if (!names_.emplace(entry.name, entries_.size()).second)
      in.corrupt(formatted("tensor '{}' is there twice", entry.name));
    entries_.push_back(std::move(entry));
  }
  if (!unsupported.empty()) {
    std::string list;
    constexpr std::size_t most = 8;
    for (std::size_t i = 0; i < std::min(unsupported.size(), most); ++i) list += (i == 0 ? "" : ", ") + unsupported[i];
    if (unsupported.size() > most) list += formatted(" and {} more", unsupported.size() - most);
    fail(ErrorCode::Unsupported, "{}: tensors of types that Aeshna does not have: {}", name(), list);
  }
  // A file without tensors may end where its table does.
  data_begin_ = entries_.empty() ? std::min(align_up(in.position(), alignment_), file_bytes_)
                                 : align_up(in.position(), alignment_);
  check_layout();
}

void GgufFile::check_layout() {
  const auto corrupt = [&](std::string_view message) {
    fail(ErrorCode::CorruptFile, "{}: not a valid GGUF file: {}", name(), message);
  };
  if (data_begin_ > file_bytes_) corrupt(formatted("the data would start at {} of {} bytes", data_begin_, file_bytes_));
  const std::uint64_t available = file_bytes_ - data_begin_;
  std::vector<const GgufEntry*> order;
  for (const GgufEntry& entry : entries_) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const GgufEntry* e) { return std::pair(e->offset, e->bytes); });
  std::uint64_t end = 0;
  for (const GgufEntry* entry : order) {
    if (entry->bytes > available || entry->offset > available - entry->bytes) {
      corrupt(formatted("tensor '{}' of type {} needs {} bytes at {}, but there are {} of data", entry->name,
                        entry->type.to_string(), entry->bytes, entry->offset, available));
    }
    if (entry->offset < end)
      corrupt(formatted("tensor '{}' overlaps the one before it, which ends at {}", entry->name, end));
    end = entry->offset + entry->bytes;
  }
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufEntry* GgufFile::find_tensor(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &entries_[found->second];
}

namespace {

[[noreturn]] void wrong_type(const std::string& file, std::string_view key, const GgufValue& value,
                             std::string_view expected) {
  fail(ErrorCode::CorruptFile, "{}: metadata '{}' is {}{}, not {}", file, key, gguf_type_name(value.type),
       value.array ? "[]" : "", expected);
}

}  // namespace

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type != GgufType::string) wrong_type(name(), key, *value, "a string");
  return value->strings[0];
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || !value->is_integer() || !value->integer_at(0)) wrong_type(name(), key, *value, "an integer");
  return value->integer_at(0);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type == GgufType::string || value->type == GgufType::boolean)
    wrong_type(name(), key, *value, "a number");
  return value->at(0);
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type != GgufType::boolean) wrong_type(name(), key, *value, "a boolean");
  return value->at(0) != 0;
}

const std::vector<std::string>* GgufFile::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->array || value->type != GgufType::string) wrong_type(name(), key, *value, "an array of strings");
  return &value->strings;
}

std::vector<std::byte> GgufFile::read(const GgufEntry& entry) const {
  return source_.read(data_begin_ + entry.offset, entry.bytes, formatted("tensor '{}'", entry.name));
}

Literal GgufFile::literal(std::string_view tensor) const {
  const GgufEntry* entry = find_tensor(tensor);
  if (entry == nullptr) fail(ErrorCode::NotFound, "{} has no tensor '{}'", name(), tensor);
  return Literal(entry->type, read(*entry));
}

}  // namespace aeshna
