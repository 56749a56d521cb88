#pragma once
// Host form (Literal: storage bytes) <-> device form (one 32-bit word per element, see compile/plan.h device_bytes).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "aeshna/shape.h"

namespace aeshna {

/// Throws Error(Unsupported) naming `what` and the dtype when it has no device form yet, and Error(OutOfRange) naming
/// `what` and the element when a 64-bit integer does not fit 32 bits. Call it before anything is written.
void check_device_form(const TensorType& type, std::span<const std::byte> host, std::string_view what);

/// Elements [first, first + words.size()) of a checked host tensor as device words.
void to_device(DType dtype, std::span<const std::byte> host, std::uint64_t first, std::span<std::uint32_t> words);

/// The inverse: device words become elements [first, first + words.size()) of `host`.
void to_host(DType dtype, std::span<const std::uint32_t> words, std::uint64_t first, std::span<std::byte> host);

}  // namespace aeshna
