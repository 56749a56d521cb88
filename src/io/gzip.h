#pragma once
// Files that may be compressed with gzip (RFC 1952).
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace aeshna {

/// Data sets that are read whole stay below this, compressed and not.
inline constexpr std::uint64_t kMaxDataFileBytes = 4ull << 30;

bool is_gzip(std::span<const std::byte> bytes);

/// All members of a gzip file, one after the other. Errors name `name`: CorruptFile (bad header, checksum, truncation, bytes
/// after the end), LimitExceeded when the result has more than `limit` bytes.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name,
                              std::uint64_t limit = kMaxDataFileBytes);

/// The whole file, decompressed if its first bytes say so; the name does not matter.
std::vector<std::byte> read_file_maybe_gzip(const std::filesystem::path& path, std::uint64_t limit = kMaxDataFileBytes);

}  // namespace aeshna
