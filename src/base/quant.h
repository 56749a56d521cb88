#pragma once
// Quantized blocks as GGUF lays them out (ggml, ggml-common.h and ggml-quants.c): q4_0, q4_1, q5_0, q8_0 of 32 elements, q4_K and
// q6_K of 256; and how they lie on a device.
//
// On a device a tensor is made of units that begin and end at 32-bit words: one block, or two where a block's bytes are an odd number
// of halves (18, 22, 34, 210). Such a pair is {d of the first | d of the second << 16} and then the rest of the first and of the second
// block, unchanged. An odd last block has a pair to itself, filled up with zeros. So every group of quants is aligned, no word
// of memory is read for nothing, and the original bytes come back exactly.
#include <cstddef>
#include <cstdint>
#include <span>

#include "aeshna/dtype.h"

namespace aeshna {

inline bool is_quantized(DType dtype) { return dtype_info(dtype).kind == DTypeInfo::Kind::Quantized; }

/// Blocks of a unit of device memory: 1 or 2.
std::uint32_t quant_unit_blocks(DType dtype);

/// Two quads (four elements each, the first at a multiple of 4) that share a word of device memory or a scale.
struct QuantPair {
  std::uint32_t distance;  ///< elements from one to the other: 4, 16 or 32
  bool one_scale;          ///< both have the same scale, and offset if there are any
  bool offset;             ///< an element is scale * q + offset
};
QuantPair quant_pair(DType dtype);

/// Whole blocks of finite values, by the reference algorithms of the format. Throws Error(OutOfRange) naming the element for a value
/// that is not finite, and for a block whose scale f16 cannot hold.
void quantize_blocks(DType dtype, std::span<const float> values, std::span<std::byte> blocks);

/// The inverse, in f32 as ggml computes it. Any bytes are a valid block.
void dequantize_blocks(DType dtype, std::span<const std::byte> blocks, std::span<float> values);

/// Blocks as device words, and back; `words` are whole units.
void pack_blocks(DType dtype, std::span<const std::byte> blocks, std::span<std::uint32_t> words);
void unpack_blocks(DType dtype, std::span<const std::uint32_t> words, std::span<std::byte> blocks);

}  // namespace aeshna
