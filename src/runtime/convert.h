#pragma once
// Host form (Literal: storage bytes) <-> device form (see ir/device_types.h).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "aeshna/shape.h"

namespace aeshna {

/// Throws Error(Unsupported) naming `what` and the dtype when it has no device form yet, and Error(OutOfRange) naming
/// `what` and the element when a 64-bit integer does not fit 32 bits. Call it before anything is written.
void check_device_form(const TensorType& type, std::span<const std::byte> host, std::string_view what);

/// Elements [first, first + count) of a checked host tensor as device words, device_bytes(dtype, count) / 4 of them. `first`
/// is a multiple of the dtype's DeviceUnit; what a last unit holds beyond `count` becomes zero.
void to_device(DType dtype, std::span<const std::byte> host, std::uint64_t first, std::uint64_t count,
               std::span<std::uint32_t> words);

/// The inverse: device words become elements [first, first + count) of `host`.
void to_host(DType dtype, std::span<const std::uint32_t> words, std::uint64_t first, std::uint64_t count,
             std::span<std::byte> host);

}  // namespace aeshna
