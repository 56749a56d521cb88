#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "io/gguf_types.h"

namespace aeshna {

namespace {

class Bytes {
 public:
  void u32(std::uint32_t value) { number(value); }
  void u64(std::uint64_t value) { number(value); }
  void text(std::string_view text) {
    u64(text.size());
    bytes_.append(text);
  }
  void raw(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void pad(std::uint64_t alignment) { bytes_.append(align_up(bytes_.size(), alignment) - bytes_.size(), '\0'); }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(bytes_)); }

 private:
  template <class T>
  void number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  std::string bytes_;
};

void write_value(Bytes& out, const GgufValue& value) {
  if (value.array) {
    out.u32(static_cast<std::uint32_t>(GgufType::array));
    out.u32(static_cast<std::uint32_t>(value.type));
    out.u64(value.size());
  } else {
    out.u32(static_cast<std::uint32_t>(value.type));
  }
  out.raw(value.numbers);
  for (const std::string& text : value.strings) out.text(text);
}

std::uint64_t alignment_of(const GgufMetadata& metadata, const std::string& path) {
  const auto found = std::ranges::find(metadata, kGgufAlignmentKey, &GgufMetadata::value_type::first);
  if (found == metadata.end()) return kGgufDefaultAlignment;
  const GgufValue& value = found->second;
  const auto given = value.array || !value.is_integer() ? std::nullopt : value.integer_at(0);
  if (!given || *given < 1 || *given > static_cast<std::int64_t>(kGgufLargestAlignment) ||
      !std::has_single_bit(static_cast<std::uint64_t>(*given))) {
    fail(ErrorCode::InvalidArgument, "cannot write {}: {} is {}, no power of two up to {}", path, kGgufAlignmentKey,
         value.to_string(), kGgufLargestAlignment);
  }
  return static_cast<std::uint64_t>(*given);
}

}  // namespace

void write_gguf(const std::filesystem::path& path, std::span<const GgufTensor> tensors, const GgufMetadata& metadata,
                std::uint32_t version) {
  const std::string file = path.string();
  if (version != 2 && version != 3) fail(ErrorCode::InvalidArgument, "cannot write {}: GGUF version {}", file, version);
  const std::uint64_t alignment = alignment_of(metadata, file);
  std::set<std::string_view> names;
  const auto check_name = [&](const std::string& name, std::string_view what) {
    if (name.empty() || !names.insert(name).second)
      fail(ErrorCode::InvalidArgument, "cannot write {}: {} '{}' is {}", file, what, name,
           name.empty() ? "empty" : "there twice");
  };

  Bytes header;
  header.u32(kGgufMagic);
  header.u32(version);
  header.u64(tensors.size());
  header.u64(metadata.size());
  for (const auto& [key, value] : metadata) {
    check_name(key, "key");
    if (value.type == GgufType::array || (!value.array && value.size() != 1))
      fail(ErrorCode::InvalidArgument, "cannot write {}: metadata '{}' is no value", file, key);
    header.text(key);
    write_value(header, value);
  }
  names.clear();
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    check_name(tensor.name, "tensor");
    const auto type = gguf_tensor_type(tensor.type.dtype);
    if (!type)
      fail(ErrorCode::Unsupported, "cannot write {}: tensor '{}': GGUF has no {}", file, tensor.name,
           dtype_name(tensor.type.dtype));
    const auto dims = tensor.type.shape.dims();
    if (dims.size() > kGgufMaxRank)
      fail(ErrorCode::InvalidArgument, "cannot write {}: tensor '{}' has rank {}; GGUF has up to {}", file, tensor.name,
           dims.size(), kGgufMaxRank);
    header.text(tensor.name);
    header.u32(static_cast<std::uint32_t>(dims.size()));
    for (std::size_t i = dims.size(); i-- > 0;) header.u64(static_cast<std::uint64_t>(dims[i]));
    header.u32(*type);
    header.u64(offset);
    offset =
        align_up(checked_add(offset, static_cast<std::uint64_t>(tensor.type.bytes()), "size of the file"), alignment);
  }
  header.pad(alignment);

  const std::vector<std::byte> zeros(alignment);
  write_file_atomic(path, [&](const WriteBytes& write) {
    write(header.span());
    for (const GgufTensor& tensor : tensors) {
      const std::vector<std::byte> bytes = tensor.read();
      if (bytes.size() != static_cast<std::uint64_t>(tensor.type.bytes())) {
        fail(ErrorCode::InvalidArgument, "cannot write {}: tensor '{}' of type {} has {} bytes, not {}", file,
             tensor.name, tensor.type.to_string(), bytes.size(), tensor.type.bytes());
      }
      write(bytes);
      write(std::span(zeros).first(align_up(bytes.size(), alignment) - bytes.size()));
    }
  });
}

}  // namespace aeshna
