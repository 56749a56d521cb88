// SPIR-V to a compute pipeline.

#include "base/fail.h"
#include "base/format.h"
#include "gpu/limits.h"
#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {
namespace {

class VulkanKernel final : public CheckedKernel, public std::enable_shared_from_this<VulkanKernel> {
 public:
  VulkanKernel(std::shared_ptr<Core> core, const KernelDesc& desc, NativeKernel native)
      : CheckedKernel(desc), core_(std::move(core)), native_(native) {}
  ~VulkanKernel() override {
    core_->retire([&fn = core_->fn, device = core_->device(), pipeline = native_.pipeline] {
      fn.vkDestroyPipeline(device, pipeline, nullptr);
    });
  }
  const NativeKernel& native() const { return native_; }

 private:
  std::shared_ptr<Core> core_;
  NativeKernel native_;
};

constexpr std::uint32_t kSpirvMagic = 0x07230203;
constexpr std::size_t kSpirvHeaderWords = 5;

struct ShaderModule {
  Core& core;
  VkShaderModule handle = VK_NULL_HANDLE;
  ~ShaderModule() {
    if (handle) core.fn.vkDestroyShaderModule(core.device(), handle, nullptr);
  }
};

}  // namespace

std::shared_ptr<Kernel> create_kernel(const std::shared_ptr<Core>& core, const KernelDesc& desc) {
  core->require_alive();
  check_kernel(desc, core->caps);
  const DevicePlan& plan = core->native.plan;
  if (desc.spirv.size() < kSpirvHeaderWords || desc.spirv[0] != kSpirvMagic)
    fail(ErrorCode::InvalidArgument, "kernel {}: its {} words are no SPIR-V module", desc.name, desc.spirv.size());
  if (desc.full_subgroups && desc.local[0] % plan.native_subgroup_size != 0)
    fail(ErrorCode::InvalidArgument,
         "kernel {}: full subgroups need a workgroup width that is a multiple of {}, not {}", desc.name,
         plan.native_subgroup_size, desc.local[0]);

  ShaderModule module{*core};
  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = desc.spirv.size_bytes();
  module_info.pCode = desc.spirv.data();
  core->check(core->fn.vkCreateShaderModule(core->device(), &module_info, nullptr, &module.handle),
              formatted("kernel {}: vkCreateShaderModule", desc.name));

  NativeKernel native{};
  native.set_layout = core->set_layout(desc.bindings);
  native.layout = core->pipeline_layout(desc.bindings, desc.push_bytes);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  subgroup.requiredSubgroupSize = plan.native_subgroup_size;
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module.handle;
  info.stage.pName = "main";
  info.layout = native.layout;
  // Kernels that assume full subgroups of one size say so; without it some drivers run narrower ones.
  if (desc.full_subgroups && plan.full_subgroups) {
    info.stage.flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    if (plan.required_subgroup_size) info.stage.pNext = &subgroup;
  }
  const VkResult result =
      core->fn.vkCreateComputePipelines(core->device(), core->pipeline_cache, 1, &info, nullptr, &native.pipeline);
  if (result == VK_ERROR_DEVICE_LOST) core->check(result, formatted("kernel {}", desc.name));
  // Drivers answer with all kinds of results when their compiler gives up, and one is known to succeed with a null
  // pipeline.
  if (result != VK_SUCCESS || !native.pipeline)
    fail(ErrorCode::Unsupported, "kernel {}: the driver cannot build its pipeline ({})", desc.name,
         result_name(result));
  core->set_name(VK_OBJECT_TYPE_PIPELINE, reinterpret_cast<std::uint64_t>(native.pipeline), desc.name);
  auto kernel = std::make_shared<VulkanKernel>(core, desc, native);
  core->check_messages();
  return kernel;
}

NativeKernel native_kernel(const Kernel& kernel) { return static_cast<const VulkanKernel&>(kernel).native(); }

std::shared_ptr<void> keep_alive(const Kernel& kernel) {
  return std::const_pointer_cast<VulkanKernel>(static_cast<const VulkanKernel&>(kernel).shared_from_this());
}

}  // namespace aeshna::gpu::vk
