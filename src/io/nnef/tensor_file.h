#pragma once
// NNEF's tensor files: a header of 128 bytes and the items, all little-endian.
#include <filesystem>
#include <optional>

#include "aeshna/attrs.h"

namespace aeshna::nnef {

/// Reads a file; its extents must be `shape`, if that is given. Floats come as f32 or f64 (f16 is widened), integers of any width as
/// i32 or, where they are not signed 32-bit numbers, as they are; booleans as boolean. Errors: NotFound, Io, CorruptFile, Unsupported
/// (quantized or odd items); each names the file and the field.
Literal read_tensor_file(const std::filesystem::path& path, const std::optional<Shape>& shape = std::nullopt);
/// The same of bytes in memory; `name` stands for the path in messages.
Literal parse_tensor_file(std::span<const std::byte> bytes, const std::string& name,
                          const std::optional<Shape>& shape = std::nullopt);
/// The type alone, from a file's first bytes; `file_bytes` is how long it is.
TensorType parse_tensor_header(std::span<const std::byte> header, std::uint64_t file_bytes, const std::string& name,
                               const std::optional<Shape>& shape = std::nullopt);
TensorType read_tensor_header(const std::filesystem::path& path, const std::optional<Shape>& shape = std::nullopt);

}  // namespace aeshna::nnef
