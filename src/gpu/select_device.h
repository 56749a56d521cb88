#pragma once
// Which of the listed devices a selector means. Pure.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "aeshna/device.h"

namespace aeshna::gpu {

/// Position in `devices`. Selector, tried in this order: an index in the list, a UUID (32 hex digits, dashes ignored),
/// or a part of the name in any case; a name must match exactly one device. Empty: the first of the best kind
/// (discrete, integrated, virtual, other, software) among the usable ones. Throws Error(NoDevice) or
/// Error(InvalidArgument) listing what there is.
std::size_t select_device(std::span<const DeviceInfo> devices, std::string_view selector);

/// One line for a message: `0: NAME (discrete, 80 GiB, driver, uuid ...)`.
std::string describe(const DeviceInfo& info);
const char* kind_name(DeviceInfo::Kind kind);

}  // namespace aeshna::gpu
