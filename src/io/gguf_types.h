#pragma once
// What the reader and the writer of GGUF share.
#include "io/gguf.h"

namespace aeshna {

inline constexpr std::uint32_t kGgufMagic = 0x46554747;  // "GGUF", little-endian
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::uint64_t kGgufLargestAlignment = 1 << 20;
inline constexpr std::size_t kGgufMaxRank = 4;  // GGML_MAX_DIMS
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

/// Bytes of an element of this type in a file; not of strings and arrays.
std::size_t gguf_type_bytes(GgufType type);

}  // namespace aeshna
