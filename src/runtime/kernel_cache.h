#pragma once
// Kernels of one device, shared by every session over it.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "compile/plan.h"
#include "gpu/device.h"

namespace aeshna {

class KernelCache {
 public:
  /// SPIR-V is kept in `directory`; an empty path keeps it in memory.
  explicit KernelCache(std::filesystem::path directory);
  /// One device kernel per kernel of the plan, in order; those that are missing are compiled on up to `threads`
  /// threads.
  std::vector<std::shared_ptr<gpu::Kernel>> get(gpu::Device& device, const Plan& plan, int threads);
  /// True once after kernels were built: the driver's pipeline cache is worth saving.
  bool take_unsaved() { return unsaved_.exchange(false); }

 private:
  std::shared_ptr<gpu::Kernel> build(gpu::Device& device, const PlanKernel& kernel, std::uint32_t push_bytes);
  SpirvCache spirv_;
  std::atomic<bool> unsaved_ = false;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<gpu::Kernel>> kernels_;
};

}  // namespace aeshna
