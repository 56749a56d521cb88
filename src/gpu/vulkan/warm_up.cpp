// A driver loads its shader compiler at the first pipeline, which can take tens of milliseconds even if that pipeline comes from
// a cache: an empty kernel pays for it when the device is opened.
#include <cstdint>

#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {
namespace {

/// void main() {} of one invocation.
constexpr std::uint32_t kEmptyKernel[] = {
    0x07230203, 0x00010500, 0, 5, 0,         // SPIR-V 1.5, ids below 5
    0x00020011, 1,                           // OpCapability Shader
    0x0003000e, 0, 1,                        // OpMemoryModel Logical GLSL450
    0x0005000f, 5, 1, 0x6e69616d, 0,         // OpEntryPoint GLCompute %1 "main"
    0x00060010, 1, 17, 1, 1, 1,              // OpExecutionMode %1 LocalSize 1 1 1
    0x00020013, 2,                           // %2 = OpTypeVoid
    0x00030021, 3, 2,                        // %3 = OpTypeFunction %2
    0x00050036, 2, 1, 0, 3,                  // %1 = OpFunction %2 None %3
    0x000200f8, 4, 0x000100fd, 0x00010038};  // OpLabel, OpReturn, OpFunctionEnd

}  // namespace

void Core::warm_up_driver() {
  // Whatever fails here fails again, with a message, when the first real kernel is built.
  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = sizeof kEmptyKernel;
  module_info.pCode = kEmptyKernel;
  VkShaderModule module = VK_NULL_HANDLE;
  if (fn.vkCreateShaderModule(device(), &module_info, nullptr, &module) != VK_SUCCESS) return;
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.layout = pipeline_layout(0, 0);
  VkPipeline pipeline = VK_NULL_HANDLE;
  if (fn.vkCreateComputePipelines(device(), VK_NULL_HANDLE, 1, &info, nullptr, &pipeline) == VK_SUCCESS)
    fn.vkDestroyPipeline(device(), pipeline, nullptr);
  fn.vkDestroyShaderModule(device(), module, nullptr);
}

}  // namespace aeshna::gpu::vk
