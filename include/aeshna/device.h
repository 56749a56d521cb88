#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aeshna {

namespace gpu {
class Device;
}

/// One device that a driver on this machine offers.
struct DeviceInfo {
  std::uint32_t index = 0;  ///< position in list_devices()
  std::string name;
  std::string uuid;  ///< 32 hex digits; stable across runs
  std::string driver;
  std::string api_version;
  enum class Kind : std::uint8_t { Discrete, Integrated, Virtual, Software, Other } kind = Kind::Other;
  std::uint64_t memory_bytes = 0;
  bool usable = true;
  std::string why_not;  ///< when not usable: what it lacks
};

/// Which device to open. An empty selector takes AESHNA_DEVICE, and if that is empty too the best real GPU; a software
/// driver is only taken when no real GPU exists, or when it is named, and a line on stderr says so.
struct DeviceRequest {
  /// Index ("0"), UUID, or a part of the name (must match exactly one device); "null": plans only, "null:FILE" with the caps
  /// that print_caps wrote to a file.
  std::string selector = {};
  std::string caps = {};    ///< overrides that restrict, as AESHNA_CAPS
  bool validation = false;  ///< Khronos validation with synchronization checks; any message makes the next wait throw Error(Internal)
};

/// Never throws for a machine without loader or driver: the list is empty.
std::vector<DeviceInfo> list_devices();

/// A handle on an opened device; copies share it. Thread-safe.
class Device {
 public:
  explicit Device(const DeviceRequest& request = {});  ///< throws Error(NoDevice), listing what exists
  explicit Device(std::shared_ptr<gpu::Device> impl) : impl_(std::move(impl)) {}
  const DeviceInfo& info() const;
  gpu::Device& impl() const { return *impl_; }
  const std::shared_ptr<gpu::Device>& shared() const { return impl_; }

 private:
  std::shared_ptr<gpu::Device> impl_;
};

}  // namespace aeshna
