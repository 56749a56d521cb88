// The public handle: which back end a request means.
#include <string_view>

#include "aeshna/device.h"
#include "base/byte_reader.h"
#include "base/env.h"
#include "base/fail.h"
#include "gpu/device.h"

namespace aeshna {
namespace {

constexpr std::string_view kNull = "null", kNullFile = "null:";
constexpr std::uint64_t kMaxCapsFile = 1 << 20;

/// "null" or "null:FILE", a file as print_caps writes it.
std::shared_ptr<gpu::Device> open_null_by_name(std::string_view selector, std::string_view overrides) {
  Caps caps;
  if (selector.starts_with(kNullFile)) {
    const auto bytes = read_file(std::filesystem::path(selector.substr(kNullFile.size())), kMaxCapsFile);
    caps = parse_caps({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return gpu::open_null(restrict_caps(restrict_caps(std::move(caps), overrides), env_caps()));
}

std::shared_ptr<gpu::Device> open(DeviceRequest request) {
  if (request.selector.empty()) request.selector = env_device();
  if (request.selector == kNull || request.selector.starts_with(kNullFile))
    return open_null_by_name(request.selector, request.caps);
  return gpu::open_vulkan(request);
}

}  // namespace

std::vector<DeviceInfo> list_devices() { return gpu::list_vulkan(); }

Device::Device(const DeviceRequest& request) : impl_(open(request)) {}

const DeviceInfo& Device::info() const { return impl_->info(); }

}  // namespace aeshna
