#include "runtime/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "aeshna/error.h"
#include "base/format.h"

namespace aeshna {
namespace {

std::string cache_key(const PlanKernel& kernel, std::uint32_t push_bytes) {
  return formatted("{} {}x{}x{} {}", kernel.source.key, kernel.local[0], kernel.local[1], kernel.local[2], push_bytes);
}

/// Of each kernel: the steps that share it have the same push block.
std::vector<std::uint32_t> push_sizes(const Plan& plan) {
  std::vector<std::uint32_t> bytes(plan.kernels.size());
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::Dispatch && step.spec.workgroups > 0)
      bytes.at(step.kernel) = static_cast<std::uint32_t>(step.push.size() * 4);
  }
  return bytes;
}

}  // namespace

KernelCache::KernelCache(std::filesystem::path directory) : spirv_(std::move(directory)) {
  if (spirv_.empty()) warm_up_glslang();  // kernels will be compiled: its set-up goes on beside the rest
}

std::shared_ptr<gpu::Kernel> KernelCache::build(gpu::Device& device, const PlanKernel& kernel,
                                                std::uint32_t push_bytes) {
  try {
    const std::vector<std::uint32_t> spirv = spirv_.get(kernel.source, kernel.name);
    return device.create_kernel({.name = kernel.name,
                                 .spirv = spirv,
                                 .bindings = kernel.source.bindings,
                                 .push_bytes = push_bytes,
                                 .local = kernel.local,
                                 .shared_bytes = kernel.shared_bytes});
  } catch (Error& e) {
    throw e.context(formatted("kernel '{}'", kernel.name));
  }
}

std::vector<std::shared_ptr<gpu::Kernel>> KernelCache::get(gpu::Device& device, const Plan& plan, int threads) {
  const std::vector<PlanKernel>& kernels = plan.kernels;
  const std::vector<std::uint32_t> push_bytes = push_sizes(plan);
  std::vector<std::shared_ptr<gpu::Kernel>> result(kernels.size());
  std::vector<std::size_t> missing;
  {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const auto found = kernels_.find(cache_key(kernels[i], push_bytes[i]));
      if (found == kernels_.end()) {
        missing.push_back(i);
      } else {
        result[i] = found->second.kernel;
      }
    }
  }

  // Long texts take drivers longest: they go first, so that no core ends with one of them alone.
  std::ranges::stable_sort(missing, std::greater{}, [&](std::size_t i) { return kernels[i].source.glsl.size(); });

  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < missing.size() && !failed; i = next++) {
      try {
        result[missing[i]] = build(device, kernels[missing[i]], push_bytes[missing[i]]);
      } catch (...) {
        const std::scoped_lock lock(error_mutex);
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const auto count = std::min(missing.size(), static_cast<std::size_t>(std::max(threads, 1)));
    for (std::size_t i = 1; i < count; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);

  if (!missing.empty()) unsaved_ = true;
  const std::scoped_lock lock(mutex_);
  for (const std::size_t i : missing) {
    // Another session may have built the same kernel meanwhile: the first one stays.
    result[i] = kernels_.try_emplace(cache_key(kernels[i], push_bytes[i]), result[i]).first->second.kernel;
  }
  drop_idle();
  return result;
}

/// With the lock held: a kernel that only the cache holds cannot come into use meanwhile.
void KernelCache::drop_idle() {
  ++gets_;
  std::vector<decltype(kernels_)::iterator> idle;
  for (auto entry = kernels_.begin(); entry != kernels_.end(); ++entry) {
    if (entry->second.kernel.use_count() > 1) {
      entry->second.last_use = gets_;
    } else {
      idle.push_back(entry);
    }
  }
  if (idle.size() <= kIdleKernels) return;
  const auto kept = idle.end() - kIdleKernels;
  std::ranges::nth_element(idle, kept, {}, [](const auto& entry) { return entry->second.last_use; });
  for (auto entry = idle.begin(); entry != kept; ++entry) kernels_.erase(*entry);
}

std::size_t KernelCache::size() const {
  const std::scoped_lock lock(mutex_);
  return kernels_.size();
}

}  // namespace aeshna
