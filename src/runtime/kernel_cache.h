#pragma once
// Kernels of one device, shared by every session over it.
//
// A kernel that is in use (a session holds it, or a compile is about to hand it out) stays. Of those that are not,
// kIdleKernels stay, those that were in use last, so that a session that is closed and opened again is compiled at once,
// and yet a process that compiles ever new graphs does not grow.
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

/// A session has 25 to 60 kernels (of a transformer too: its layers share them), so these are the last few sessions. A
/// kernel takes about 0.5 MB on the software driver: 130 MB at most.
inline constexpr std::size_t kIdleKernels = 256;

class KernelCache {
 public:
  /// SPIR-V is kept in `directory`; an empty path keeps none.
  explicit KernelCache(std::filesystem::path directory);
  /// One device kernel per kernel of the plan, in order; those that are missing are compiled on up to `threads`
  /// threads. Idle kernels beyond the bound go now, not when a session closes: one of any size finds all of its kernels
  /// if it is opened again at once.
  std::vector<std::shared_ptr<gpu::Kernel>> get(gpu::Device& device, const Plan& plan, int threads);
  /// True once after kernels were built: the driver's pipeline cache is worth saving.
  bool take_unsaved() { return unsaved_.exchange(false); }
  std::size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<gpu::Kernel> kernel;
    std::uint64_t last_use = 0;  ///< number of the last get() that found it in use
  };
  std::shared_ptr<gpu::Kernel> build(gpu::Device& device, const PlanKernel& kernel, std::uint32_t push_bytes);
  void drop_idle();
  SpirvCache spirv_;
  std::atomic<bool> unsaved_ = false;
  mutable std::mutex mutex_;  ///< guards what follows; nothing is copied out of `kernels_` without it
  std::map<std::string, Entry> kernels_;
  std::uint64_t gets_ = 0;
};

}  // namespace aeshna
