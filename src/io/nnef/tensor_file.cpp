#include "io/nnef/tensor_file.h"

#include <array>
#include <fstream>
#include <span>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"

namespace aeshna::nnef {
namespace {

constexpr std::uint64_t kHeaderBytes = 128;
constexpr std::uint32_t kMaxRank = 8;
constexpr int kReservedWords = 19;

/// Item types of the header.
enum class Item : std::uint32_t {
  Float = 0,
  Unsigned = 1,
  QuantizedUnsigned = 2,
  QuantizedSigned = 3,
  Signed = 4,
  Bool = 5
};

struct Header {
  Item item = Item::Float;
  std::uint32_t bits = 0;
  Shape shape;
  std::uint64_t data_bytes = 0;
};

std::optional<DType> stored_dtype(Item item, std::uint32_t bits) {
  struct Known {
    Item item;
    std::uint32_t bits;
    DType dtype;
  };
  static constexpr std::array<Known, 13> table = {{{Item::Float, 16, DType::f16},
                                                   {Item::Float, 32, DType::f32},
                                                   {Item::Float, 64, DType::f64},
                                                   {Item::Unsigned, 8, DType::u8},
                                                   {Item::Unsigned, 16, DType::u16},
                                                   {Item::Unsigned, 32, DType::u32},
                                                   {Item::Unsigned, 64, DType::u64},
                                                   {Item::Signed, 8, DType::i8},
                                                   {Item::Signed, 16, DType::i16},
                                                   {Item::Signed, 32, DType::i32},
                                                   {Item::Signed, 64, DType::i64},
                                                   {Item::Bool, 8, DType::boolean},
                                                   {Item::Bool, 1, DType::boolean}}};
  for (const Known& k : table) {
    if (k.item == item && k.bits == bits) return k.dtype;
  }
  return std::nullopt;
}

Header parse_header(ByteReader& in, std::uint64_t file_bytes, const std::optional<Shape>& expected) {
  const std::string& name = in.name();
  Header h;
  if (in.u8("magic number") != 'N' || in.u8("magic number") != 0xEF)
    fail(ErrorCode::CorruptFile, "{}: no NNEF tensor file (magic number)", name);
  const std::uint8_t major = in.u8("version"), minor = in.u8("version");
  if (major != 1 || minor != 0)
    fail(ErrorCode::Unsupported, "{}: version {}.{} of the tensor format; 1.0 is supported", name, major, minor);
  h.data_bytes = in.u32("data length");
  const std::uint32_t rank = in.u32("rank");
  if (rank > kMaxRank) in.corrupt(formatted("rank {} is above {}", rank, kMaxRank));
  std::vector<std::int64_t> dims;
  std::uint64_t count = 1;
  for (std::uint32_t i = 0; i < kMaxRank; ++i) {
    const std::uint32_t extent = in.u32("extents");
    if (i >= rank) continue;
    dims.push_back(extent);
    try {
      count = checked_mul(count, std::uint64_t{extent}, "elements");
    } catch (const Error&) {
      in.corrupt("the product of the extents overflows");
    }
  }
  h.shape = Shape(std::span<const std::int64_t>(dims));
  h.bits = in.u32("bits per item");
  const std::uint32_t item = in.u32("item type");
  if (item > static_cast<std::uint32_t>(Item::Bool))
    fail(ErrorCode::Unsupported, "{}: item type {:#x} is not known", name, item);
  h.item = static_cast<Item>(item);
  for (int i = 0; i < kReservedWords; ++i) {
    if (const std::uint32_t word = in.u32("reserved"); word != 0)
      fail(ErrorCode::Unsupported, "{}: reserved word {} of the header is {}, not 0", name, i, word);
  }
  if (h.item == Item::QuantizedUnsigned || h.item == Item::QuantizedSigned)
    fail(ErrorCode::Unsupported, "{}: quantized items (item type {}) are not supported", name, item);
  if (!stored_dtype(h.item, h.bits))
    fail(ErrorCode::Unsupported, "{}: {} bits per item of item type {} are not supported", name, h.bits, item);
  if (expected && *expected != h.shape)
    fail(ErrorCode::CorruptFile, "{}: its extents are {}, the graph declares {}", name, h.shape.to_string(),
         expected->to_string());
  // 64 bits an item at most, and the data length has 32 bits: a count that is too large for this is too large for the file.
  if (count > file_bytes * 8 || h.data_bytes != (count * h.bits + 7) / 8)
    in.corrupt(formatted("data length {} for extents {} of {} bits", h.data_bytes, h.shape.to_string(), h.bits));
  if (file_bytes != kHeaderBytes + h.data_bytes)
    in.corrupt(
        formatted("{} bytes of data in a file of {} bytes, {} of them header", h.data_bytes, file_bytes, kHeaderBytes));
  return h;
}

/// Booleans of one bit lie from the highest bit of each byte down.
std::vector<std::byte> unpack_bits(std::span<const std::byte> bytes, std::int64_t count) {
  std::vector<std::byte> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = (bytes[i / 8] >> (7 - i % 8)) & std::byte{1};
  return result;
}

Literal as_i32_if_it_fits(const Literal& literal) {
  try {
    return Literal::from_doubles({DType::i32, literal.type().shape}, literal.to_doubles());
  } catch (const Error&) {
    return literal;
  }
}

std::pair<std::ifstream, std::uint64_t> open(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) {
    const bool absent = error == std::errc::no_such_file_or_directory;
    fail(absent ? ErrorCode::NotFound : ErrorCode::Io, "cannot read {}: {}", path.string(), error.message());
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::Io, "cannot open {}", path.string());
  return {std::move(in), size};
}

std::vector<std::byte> read(std::ifstream& in, std::uint64_t count, const std::filesystem::path& path) {
  std::vector<std::byte> bytes(count);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
  if (!in) fail(ErrorCode::Io, "cannot read {} bytes of {}", count, path.string());
  return bytes;
}

Literal parse_data(const Header& h, std::span<const std::byte> data) {
  const DType dtype = *stored_dtype(h.item, h.bits);
  if (dtype == DType::boolean) {
    std::vector<std::byte> items =
        h.bits == 1 ? unpack_bits(data, h.shape.elements()) : std::vector(data.begin(), data.end());
    for (std::byte& item : items) item = item == std::byte{0} ? item : std::byte{1};
    return Literal({DType::boolean, h.shape}, std::move(items));
  }
  const Literal stored({dtype, h.shape}, {data.begin(), data.end()});
  if (dtype == DType::f16) return Literal::from_doubles({DType::f32, h.shape}, stored.to_doubles());
  return is_integer(dtype) ? as_i32_if_it_fits(stored) : stored;
}

TensorType type_of(const Header& h) {
  const DType dtype = *stored_dtype(h.item, h.bits);
  return {dtype == DType::f16 ? DType::f32 : is_integer(dtype) ? DType::i32 : dtype, h.shape};
}

}  // namespace

TensorType parse_tensor_header(std::span<const std::byte> header, std::uint64_t file_bytes, const std::string& name,
                               const std::optional<Shape>& shape) {
  ByteReader in(header, name);
  return type_of(parse_header(in, file_bytes, shape));
}

Literal parse_tensor_file(std::span<const std::byte> bytes, const std::string& name,
                          const std::optional<Shape>& shape) {
  ByteReader in(bytes, name);
  const Header h = parse_header(in, bytes.size(), shape);
  return parse_data(h, in.take(h.data_bytes, "data"));
}

TensorType read_tensor_header(const std::filesystem::path& path, const std::optional<Shape>& shape) {
  auto [in, size] = open(path);
  return parse_tensor_header(read(in, std::min(size, kHeaderBytes), path), size, path.string(), shape);
}

Literal read_tensor_file(const std::filesystem::path& path, const std::optional<Shape>& shape) {
  auto [in, size] = open(path);
  const std::vector<std::byte> start = read(in, std::min(size, kHeaderBytes), path);
  ByteReader reader(start, path.string());
  const Header h = parse_header(reader, size, shape);  // before anything large is allocated
  return parse_data(h, read(in, h.data_bytes, path));
}

}  // namespace aeshna::nnef
