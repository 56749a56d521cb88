
#include "base/fail.h"
#include "base/format.h"
#include "gpu/vulkan/vk.h"

namespace aeshna::gpu::vk {

std::string result_name(VkResult result) {
  switch (result) {
#define AESHNA_RESULT(name) \
  case name:                \
    return #name;
    AESHNA_RESULT(VK_SUCCESS)
    AESHNA_RESULT(VK_NOT_READY)
    AESHNA_RESULT(VK_TIMEOUT)
    AESHNA_RESULT(VK_INCOMPLETE)
    AESHNA_RESULT(VK_ERROR_OUT_OF_HOST_MEMORY)
    AESHNA_RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    AESHNA_RESULT(VK_ERROR_INITIALIZATION_FAILED)
    AESHNA_RESULT(VK_ERROR_DEVICE_LOST)
    AESHNA_RESULT(VK_ERROR_MEMORY_MAP_FAILED)
    AESHNA_RESULT(VK_ERROR_LAYER_NOT_PRESENT)
    AESHNA_RESULT(VK_ERROR_EXTENSION_NOT_PRESENT)
    AESHNA_RESULT(VK_ERROR_FEATURE_NOT_PRESENT)
    AESHNA_RESULT(VK_ERROR_INCOMPATIBLE_DRIVER)
    AESHNA_RESULT(VK_ERROR_TOO_MANY_OBJECTS)
    AESHNA_RESULT(VK_ERROR_FRAGMENTED_POOL)
    AESHNA_RESULT(VK_ERROR_UNKNOWN)
    AESHNA_RESULT(VK_ERROR_OUT_OF_POOL_MEMORY)
    AESHNA_RESULT(VK_ERROR_INVALID_EXTERNAL_HANDLE)
    AESHNA_RESULT(VK_ERROR_FRAGMENTATION)
    AESHNA_RESULT(VK_ERROR_INVALID_SHADER_NV)
    AESHNA_RESULT(VK_ERROR_NOT_PERMITTED_KHR)
#undef AESHNA_RESULT
    default:
      return formatted("VkResult {}", static_cast<int>(result));
  }
}

void check(VkResult result, std::string_view what) {
  switch (result) {
    case VK_SUCCESS:
      return;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
      fail(ErrorCode::OutOfMemory, "{}: {}", what, result_name(result));
    case VK_ERROR_DEVICE_LOST:
      fail(ErrorCode::DeviceLost, "{}: {}", what, result_name(result));
    default:
      fail(ErrorCode::Unsupported, "{}: {}", what, result_name(result));
  }
}

}  // namespace aeshna::gpu::vk
