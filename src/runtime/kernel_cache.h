#pragma once
// Kernels of one device, shared by every session over it.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "compile/plan.h"
#include "gpu/device.h"

namespace aeshna {

class KernelCache {
 public:
  /// SPIR-V is kept in `directory`; an empty path keeps it in memory.
  explicit KernelCache(std::filesystem::path directory) : spirv_(std::move(directory)) {}
  /// One device kernel per plan kernel, in order; those that are missing are compiled on up to `threads` threads.
  std::vector<std::shared_ptr<gpu::Kernel>> get(gpu::Device& device, std::span<const PlanKernel> kernels, int threads);

 private:
  std::shared_ptr<gpu::Kernel> build(gpu::Device& device, const PlanKernel& kernel);
  SpirvCache spirv_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<gpu::Kernel>> kernels_;
};

}  // namespace aeshna
