#include "io/idx.h"

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"

namespace aeshna {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

bool is_idx_type(std::uint8_t type) {
  return type == kUnsignedByte || type == 0x09 || (type >= 0x0B && type <= 0x0E);  // i8; i16 i32 f32 f64
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, int rank, std::string name) {
  ByteReader reader(bytes, std::move(name));
  const std::uint32_t magic = reader.u32_big("IDX magic number");
  const auto type = static_cast<std::uint8_t>(magic >> 8);
  if (magic >> 16 != 0 || !is_idx_type(type))
    reader.corrupt(formatted("not an IDX file (magic number {:#010x})", magic));
  if (type != kUnsignedByte) {
    fail(ErrorCode::Unsupported, "{}: IDX element type {:#04x}; only unsigned bytes (0x08) are read", reader.name(),
         type);
  }
  const int found_rank = static_cast<int>(magic & 0xff);
  if (found_rank != rank) reader.corrupt(formatted("expected an array of rank {}, found rank {}", rank, found_rank));

  std::vector<std::int64_t> dims;
  std::uint64_t elements = 1;
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    const std::uint32_t extent = reader.u32_big("IDX dimension");
    dims.push_back(extent);
    overflow |= extent != 0 && elements > UINT64_MAX / extent;
    elements *= extent;
  }
  if (overflow || elements != reader.remaining()) {
    reader.corrupt(
        formatted("the header announces {} bytes, {} follow it", Shape(dims).to_string(), reader.remaining()));
  }
  const auto data = reader.take(elements, "IDX elements");
  IdxArray array{Shape(dims), {}};
  array.values.reserve(data.size());
  for (const std::byte b : data) array.values.push_back(std::to_integer<std::uint8_t>(b));
  return array;
}

}  // namespace aeshna
