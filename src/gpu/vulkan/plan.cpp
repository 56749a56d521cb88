#include "gpu/vulkan/plan.h"

#include <algorithm>

#include "base/format.h"
#include "base/hash.h"

namespace aeshna::gpu::vk {
namespace {

template <std::size_t N>
std::string hex(const std::uint8_t (&bytes)[N]) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += formatted("{:02x}", byte);
  return text;
}

std::string version_text(std::uint32_t version) {
  return formatted("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                   VK_API_VERSION_PATCH(version));
}

DeviceInfo::Kind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return DeviceInfo::Kind::Discrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return DeviceInfo::Kind::Integrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return DeviceInfo::Kind::Virtual;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return DeviceInfo::Kind::Software;
    default:
      return DeviceInfo::Kind::Other;
  }
}

/// A family with compute and, if there is one, without graphics: it does not share its queue with a desktop.
std::optional<std::uint32_t> choose_queue_family(const std::vector<VkQueueFamilyProperties>& queues) {
  std::optional<std::uint32_t> best;
  for (std::uint32_t i = 0; i < queues.size(); ++i) {
    if (queues[i].queueCount == 0 || !(queues[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
    const bool graphics = queues[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
    if (!best || (!graphics && (queues[*best].queueFlags & VK_QUEUE_GRAPHICS_BIT))) best = i;
  }
  return best;
}

std::uint64_t device_local_bytes(const VkPhysicalDeviceMemoryProperties& memory) {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) total += memory.memoryHeaps[i].size;
  return total;
}

/// Host and device share their memory. Device-local memory that a discrete GPU shows to the host is a window over PCIe
/// (resizable BAR), slow to read: that is not unified.
bool is_unified(const DeviceFacts& facts) {
  const auto type = facts.properties.deviceType;
  if (type != VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU && type != VK_PHYSICAL_DEVICE_TYPE_CPU) return false;
  constexpr VkMemoryPropertyFlags wanted =
      VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  for (std::uint32_t i = 0; i < facts.memory.memoryTypeCount; ++i)
    if ((facts.memory.memoryTypes[i].propertyFlags & wanted) == wanted) return true;
  return false;
}

std::optional<DType> component_dtype(VkComponentTypeKHR type) {
  switch (type) {
    case VK_COMPONENT_TYPE_FLOAT16_KHR:
      return DType::f16;
    case VK_COMPONENT_TYPE_FLOAT32_KHR:
      return DType::f32;
    case VK_COMPONENT_TYPE_FLOAT64_KHR:
      return DType::f64;
    case VK_COMPONENT_TYPE_SINT8_KHR:
      return DType::i8;
    case VK_COMPONENT_TYPE_SINT32_KHR:
      return DType::i32;
    case VK_COMPONENT_TYPE_UINT8_KHR:
      return DType::u8;
    case VK_COMPONENT_TYPE_UINT32_KHR:
      return DType::u32;
    default:
      return std::nullopt;
  }
}

/// Shapes at subgroup scope with equal A and B types and equal C and result types: the ones kernels are written for.
std::vector<CoopMatrixShape> coop_shapes(const std::vector<VkCooperativeMatrixPropertiesKHR>& offered) {
  std::vector<CoopMatrixShape> shapes;
  for (const auto& p : offered) {
    const auto input = component_dtype(p.AType), accumulate = component_dtype(p.CType);
    if (p.scope != VK_SCOPE_SUBGROUP_KHR || p.saturatingAccumulation || !input || !accumulate) continue;
    if (p.BType != p.AType || p.ResultType != p.CType) continue;
    const CoopMatrixShape shape{p.MSize, p.NSize, p.KSize, *input, *accumulate};
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

/// Compute units where no extension tells them, and ceilings per kind of device. They only steer the choice among
/// variants that are all correct, and the size of chunks.
void estimate_speed(Caps& caps, const DeviceFacts& facts) {
  caps.compute_units = facts.compute_units;
  switch (kind_of(facts.properties.deviceType)) {
    case DeviceInfo::Kind::Software:  // a core runs one workgroup at a time
      caps.compute_units = std::max(1u, facts.host_threads);
      caps.gflops = 8.0 * caps.compute_units;
      caps.gbytes_per_s = 8;
      break;
    case DeviceInfo::Kind::Discrete:
    case DeviceInfo::Kind::Virtual:
      if (caps.compute_units == 0) caps.compute_units = 32;
      caps.gflops = 400.0 * caps.compute_units;  // 128 lanes x 2 operations x about 1.6 GHz
      caps.gbytes_per_s = caps.device_memory >= (64ull << 30) ? 3000 : caps.device_memory >= (16ull << 30) ? 700 : 300;
      break;
    case DeviceInfo::Kind::Integrated:
    case DeviceInfo::Kind::Other:
      if (caps.compute_units == 0) caps.compute_units = 12;
      caps.gflops = 150.0 * caps.compute_units;
      caps.gbytes_per_s = 60;
      break;
  }
}

Caps caps_of(const DeviceFacts& facts, const Features& enabled) {
  const VkPhysicalDeviceLimits& limits = facts.properties.limits;
  Caps caps;
  caps.device_name = facts.properties.deviceName;
  caps.device_memory = device_local_bytes(facts.memory);
  caps.max_storage_range = limits.maxStorageBufferRange;
  // Without maintenance4 the driver does not say; the largest single allocation bounds it.
  caps.max_buffer_size = facts.max_buffer_size ? facts.max_buffer_size : facts.v11.maxMemoryAllocationSize;
  if (facts.v11.maxMemoryAllocationSize)
    caps.max_buffer_size = std::min<std::uint64_t>(caps.max_buffer_size, facts.v11.maxMemoryAllocationSize);
  caps.storage_alignment =
      static_cast<std::uint32_t>(std::max<VkDeviceSize>(limits.minStorageBufferOffsetAlignment, 4));
  for (int i = 0; i < 3; ++i) {
    caps.max_groups[i] = limits.maxComputeWorkGroupCount[i];
    caps.max_local[i] = limits.maxComputeWorkGroupSize[i];
  }
  caps.max_invocations = limits.maxComputeWorkGroupInvocations;
  caps.shared_bytes = limits.maxComputeSharedMemorySize;
  caps.push_bytes = limits.maxPushConstantsSize;
  caps.max_storage_buffers = std::min(
      {limits.maxPerStageDescriptorStorageBuffers, limits.maxPerStageResources, limits.maxDescriptorSetStorageBuffers});
  const bool in_compute = facts.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
  const auto operations = facts.v11.subgroupSupportedOperations;
  caps.subgroup_size = in_compute ? facts.v11.subgroupSize : 1;
  caps.subgroup_arithmetic =
      in_compute && (operations & VK_SUBGROUP_FEATURE_BASIC_BIT) && (operations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
  caps.storage_8bit = enabled.v12.storageBuffer8BitAccess && enabled.v12.shaderInt8;
  caps.storage_16bit = enabled.v11.storageBuffer16BitAccess;
  caps.f16_arithmetic = enabled.v12.shaderFloat16;
  caps.f64_arithmetic = enabled.core.shaderFloat64;
  caps.int64_arithmetic = enabled.core.shaderInt64;
  caps.signed_zero_inf_nan_preserve = facts.v12.shaderSignedZeroInfNanPreserveFloat32;
  caps.unified_memory = is_unified(facts);
  if (enabled.coop.cooperativeMatrix) caps.coop_shapes = coop_shapes(facts.coop);
  estimate_speed(caps, facts);
  return caps;
}

/// What kernels may use, where it is offered; nothing else is switched on (robust access would cost speed).
Features choose_features(const DeviceFacts& facts) {
  const Features& offered = facts.features;
  Features enabled;
  enabled.core.shaderFloat64 = offered.core.shaderFloat64;
  enabled.core.shaderInt64 = offered.core.shaderInt64;
  enabled.core.shaderInt16 = offered.core.shaderInt16;
  enabled.v11.storageBuffer16BitAccess = offered.v11.storageBuffer16BitAccess;
  enabled.v12.storageBuffer8BitAccess = offered.v12.storageBuffer8BitAccess;
  enabled.v12.uniformAndStorageBuffer8BitAccess = offered.v12.uniformAndStorageBuffer8BitAccess;
  enabled.v12.shaderFloat16 = offered.v12.shaderFloat16;
  enabled.v12.shaderInt8 = offered.v12.shaderInt8;
  enabled.v12.shaderSubgroupExtendedTypes = offered.v12.shaderSubgroupExtendedTypes;
  enabled.v12.scalarBlockLayout = offered.v12.scalarBlockLayout;
  enabled.v12.timelineSemaphore = offered.v12.timelineSemaphore;
  enabled.v12.vulkanMemoryModel = offered.v12.vulkanMemoryModel;  // cooperative matrices need it
  enabled.v12.vulkanMemoryModelDeviceScope = offered.v12.vulkanMemoryModelDeviceScope;
  enabled.has_subgroup_size = offered.has_subgroup_size;
  enabled.subgroup_size.computeFullSubgroups = offered.subgroup_size.computeFullSubgroups;
  enabled.subgroup_size.subgroupSizeControl = offered.subgroup_size.subgroupSizeControl;
  enabled.has_maintenance4 = offered.has_maintenance4;
  enabled.maintenance4.maintenance4 = offered.maintenance4.maintenance4;
  enabled.has_coop = offered.has_coop;
  enabled.coop.cooperativeMatrix = offered.coop.cooperativeMatrix && offered.v12.vulkanMemoryModel;
  return enabled;
}

}  // namespace

VkPhysicalDeviceFeatures2 Features::chain() {
  VkPhysicalDeviceFeatures2 head{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  head.features = core;
  void* next = nullptr;
  const auto push = [&](auto& structure) {
    structure.pNext = next;
    next = &structure;
  };
  if (has_coop) push(coop);
  if (has_maintenance4) push(maintenance4);
  if (has_subgroup_size) push(subgroup_size);
  push(v12);
  push(v11);
  head.pNext = next;
  return head;
}

bool DeviceFacts::has_extension(std::string_view name) const {
  return std::ranges::find(extensions, name) != extensions.end();
}

DevicePlan plan_device(const DeviceFacts& facts) {
  DevicePlan plan;
  DeviceInfo& info = plan.info;
  info.name = facts.properties.deviceName;
  info.kind = kind_of(facts.properties.deviceType);
  info.api_version = version_text(facts.properties.apiVersion);
  info.memory_bytes = device_local_bytes(facts.memory);
  const auto refuse = [&](std::string why) {
    info.usable = false;
    info.why_not = std::move(why);
  };
  if (facts.api_version < VK_API_VERSION_1_2) {
    info.driver = formatted("driver version {}", facts.properties.driverVersion);
    refuse(formatted("it offers Vulkan {}, Aeshna needs 1.2", version_text(facts.api_version)));
    return plan;
  }
  info.uuid = hex(facts.v11.deviceUUID);
  info.driver = formatted("{} {}", facts.v12.driverName, facts.v12.driverInfo);
  const auto family = choose_queue_family(facts.queues);
  if (!family) {
    refuse("it has no compute queue");
    return plan;
  }
  if (!facts.features.v12.timelineSemaphore) {
    refuse("it has no timeline semaphores");
    return plan;
  }

  plan.queue_family = *family;
  plan.timestamp_bits = facts.queues[*family].timestampValidBits;
  plan.timestamp_period_ns = facts.properties.limits.timestampPeriod;
  plan.features = choose_features(facts);
  plan.caps = caps_of(facts, plan.features);
  plan.native_subgroup_size = std::max(1u, facts.v11.subgroupSize);
  plan.full_subgroups = plan.features.subgroup_size.computeFullSubgroups;
  plan.required_subgroup_size = plan.features.subgroup_size.subgroupSizeControl &&
                                (facts.subgroup_size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                                plan.native_subgroup_size >= facts.subgroup_size.minSubgroupSize &&
                                plan.native_subgroup_size <= facts.subgroup_size.maxSubgroupSize;

  const auto enable = [&](const char* name) {
    if (!facts.has_extension(name)) return false;
    plan.extensions.push_back(name);
    return true;
  };
  plan.memory_budget = enable(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (plan.features.coop.cooperativeMatrix) enable(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  if (facts.api_version < VK_API_VERSION_1_3) {  // core since 1.3
    if (plan.features.has_subgroup_size) enable(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    if (plan.features.has_maintenance4) enable(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  }
  enable("VK_KHR_portability_subset");  // must be enabled where it is offered (MoltenVK)

  Hasher driver;
  driver.add(facts.v12.driverInfo).add(facts.v12.driverName).add(std::uint64_t{facts.properties.driverVersion});
  driver.add(std::uint64_t{facts.properties.vendorID}).add(std::uint64_t{facts.properties.deviceID});
  driver.add(hex(facts.properties.pipelineCacheUUID));
  plan.cache_key = formatted("{}-{}", info.uuid, driver.hex().substr(0, 16));
  return plan;
}

}  // namespace aeshna::gpu::vk
