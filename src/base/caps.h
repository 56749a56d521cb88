#pragma once
// Device limits and features as one value. Everything the compiler knows about a device is here; nothing else is asked.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/dtype.h"

namespace aeshna {

struct CoopMatrixShape {
  std::uint32_t m = 0, n = 0, k = 0;
  DType input = DType::f16;
  DType accumulate = DType::f32;
  friend bool operator==(const CoopMatrixShape&, const CoopMatrixShape&) = default;
};

struct Caps {
  std::string device_name = "null";
  std::uint64_t max_storage_range = 1ull << 27;  ///< bytes one descriptor covers
  std::uint64_t max_buffer_size = 1ull << 30;
  std::uint64_t device_memory = 1ull << 30;
  std::uint32_t storage_alignment = 256;  ///< of descriptor offsets
  std::uint32_t max_groups[3] = {65535, 65535, 65535};
  std::uint32_t max_invocations = 256;
  std::uint32_t max_local[3] = {256, 256, 64};
  std::uint32_t shared_bytes = 16384;
  std::uint32_t push_bytes = 128;
  std::uint32_t max_storage_buffers = 8;  ///< per kernel
  std::uint32_t subgroup_size = 1;        ///< 1: no subgroup operations
  bool subgroup_arithmetic = false;
  bool storage_8bit = false, storage_16bit = false;
  bool f16_arithmetic = false, f64_arithmetic = false, int64_arithmetic = false;
  bool signed_zero_inf_nan_preserve = false;
  bool unified_memory = false;
  std::vector<CoopMatrixShape> coop_shapes;
  std::uint32_t compute_units = 16;  ///< parallel workgroup slots to fill; an estimate
  double gflops = 1000, gbytes_per_s = 100;  ///< coarse ceilings for chunk bounds and variant choice
  friend bool operator==(const Caps&, const Caps&) = default;
};

/// Smaller of the device's caps and the AESHNA_CAPS overrides ("max_groups=7,shared_bytes=16384,no_f16,no_subgroups,no_coop").
/// Overrides only restrict: a larger value is Error(InvalidArgument). Unknown names too.
Caps restrict_caps(Caps device, std::string_view overrides);
/// Workgroups that one launch can fold into x, y and z.
std::uint64_t max_workgroups(const Caps& caps);
std::string print_caps(const Caps& caps);         ///< one "name = value" per line
Caps parse_caps(std::string_view text);           ///< the inverse, for the Null back end

}  // namespace aeshna
