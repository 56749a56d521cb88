#pragma once
// GGUF files, versions 2 and 3 (https://github.com/ggml-org/ggml, docs/gguf.md): metadata, the tensors' names, types and offsets, then
// their bytes, each at a multiple of the alignment. Quantized blocks are those of base/quant.h, unchanged. No GPU here.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aeshna/attrs.h"
#include "base/byte_source.h"

namespace aeshna {

/// Types of metadata, by their numbers in the file.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view gguf_type_name(GgufType type);

/// A value of the metadata: one element, or an array of them. Numbers are kept as the file has them.
struct GgufValue {
  GgufType type = GgufType::u32;  ///< of the elements; never `array` (arrays of arrays are refused)
  bool array = false;
  std::vector<std::byte> numbers = {};  ///< little-endian, of every type but string
  std::vector<std::string> strings = {};

  static GgufValue text(std::string value);
  static GgufValue texts(std::vector<std::string> values);
  static GgufValue flag(bool value);
  static GgufValue integer(std::uint32_t value);
  static GgufValue number(float value);
  static GgufValue floats(std::span<const float> values);
  static GgufValue ints(std::span<const std::int32_t> values);

  std::size_t size() const;
  bool is_integer() const;
  /// Element `i`, not of a string; exact up to 2^53.
  double at(std::size_t i) const;
  /// Element `i` of an integer or boolean type; nullopt where int64 cannot hold it.
  std::optional<std::int64_t> integer_at(std::size_t i) const;
  /// For people; of an array no more than its first elements.
  std::string to_string() const;
  friend bool operator==(const GgufValue&, const GgufValue&) = default;
};

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufEntry {
  std::string name;
  TensorType type;           ///< the extents in our order: the slowest first
  std::uint64_t offset = 0;  ///< in bytes from the start of the data
  std::uint64_t bytes = 0;
};

/// A file whose metadata and tensor table have been read and checked completely: every count and length against the file's size before
/// anything is allocated, types, alignment, extents that overflow, rows of whole blocks, duplicate names, overlap. Tensors are read when
/// asked for. Errors: NotFound or Io (the system's reason), CorruptFile, Unsupported (version 1, big-endian files, nested arrays, tensor
/// types that Aeshna lacks: all of them in one message), LimitExceeded (more than 512 MiB before the data).
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  /// The same checks on bytes in memory; `name` stands for the path in messages.
  GgufFile(std::vector<std::byte> bytes, std::string name);

  const std::string& name() const { return source_.name(); }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  /// In the order of the file, and so are tensors().
  const GgufMetadata& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;  ///< null when absent
  std::span<const GgufEntry> tensors() const { return entries_; }
  const GgufEntry* find_tensor(std::string_view name) const;

  // One value by key; nullopt when absent, Error(CorruptFile) naming the key when it is of another type.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  /// Null when absent; Error(CorruptFile) unless it is an array of strings.
  const std::vector<std::string>* texts(std::string_view key) const;

  std::vector<std::byte> read(const GgufEntry& entry) const;
  Literal literal(std::string_view tensor) const;

 private:
  void parse(class GgufHeader& header);
  void check_layout();
  ByteSource source_;
  std::uint32_t version_ = 3;
  std::uint64_t alignment_ = 32, data_begin_ = 0, file_bytes_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> keys_, names_;
};

struct GgufTensor {
  std::string name;
  TensorType type;
  std::function<std::vector<std::byte>()> read;  ///< called once, when the tensor is written
};

/// Writes atomically, one tensor in memory at a time, in the order given; the alignment is that of "general.alignment" or 32. A file that was
/// read and is written again with its metadata, tensors and version has the same bytes, if it was padded as ggml does. Errors:
/// InvalidArgument (duplicate or empty name, rank above 4, wrong byte count, bad alignment), Unsupported (dtype), Io.
void write_gguf(const std::filesystem::path& path, std::span<const GgufTensor> tensors, const GgufMetadata& metadata,
                std::uint32_t version = 3);

/// The number of a dtype among GGUF's tensor types; nullopt: it has none.
std::optional<std::uint32_t> gguf_tensor_type(DType dtype);

}  // namespace aeshna
