#pragma once
// safetensors files (https://github.com/huggingface/safetensors, README "Format"): 8 bytes of header length, a JSON
// header, then the tensors' bytes without holes. No GPU here.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/attrs.h"
#include "base/byte_source.h"

namespace aeshna {

/// What the header says of one tensor; offsets are in bytes from the start of the data.
struct SafetensorsEntry {
  std::string name;
  TensorType type;
  std::uint64_t begin = 0, end = 0;
};

/// A file whose header has been read and checked completely: length, JSON depth and duplicate keys, dtypes, shape
/// against offsets, offsets against the file's size, no overlap and no hole. Tensors are read when asked for.
/// Errors: NotFound or Io (the system's reason), CorruptFile, Unsupported (a dtype or a rank that Aeshna does not
/// have); each names the file and, where there is one, the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// The same checks on bytes in memory; `name` stands for the path in messages.
  SafetensorsFile(std::vector<std::byte> bytes, std::string name);

  /// By offset.
  std::span<const SafetensorsEntry> tensors() const { return entries_; }
  /// Null when absent.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  const std::string& name() const { return source_.name(); }

  /// A tensor's bytes as they are in the file.
  std::vector<std::byte> read(const SafetensorsEntry& entry) const;
  Literal literal(std::string_view tensor) const;

 private:
  void parse(std::span<const std::byte> prefix);
  ByteSource source_;
  std::uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

struct SafetensorsTensor {
  std::string name;
  TensorType type;
  std::span<const std::byte> bytes;
};

/// Writes atomically (write_file_atomic): the old file survives any failure. Tensors lie widest element first, then
/// by name, and the data starts at a multiple of 8, so that each tensor is aligned to its element.
/// Errors: InvalidArgument (duplicate, reserved or not UTF-8 name, wrong byte count), Unsupported (dtype), Io.
void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});

struct SafetensorsSource {
  std::string name;
  TensorType type;
  std::function<std::vector<std::byte>()> read;  ///< called once, when the tensor is written
};
/// The same with one tensor in memory at a time.
void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsSource> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});

}  // namespace aeshna
