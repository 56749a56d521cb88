#pragma once
// Times kernels apart from the compiler and the runtime: one launch among dependent ones, by timestamps.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "codegen/codegen.h"
#include "gpu/device.h"
#include "gpu/launch.h"

namespace aeshna::bench {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Runs a list that takes timestamps 0 and 1 around `repetitions` of something: GPU microseconds of one.
inline double replay_us(gpu::Device& device, gpu::CommandList& list, int repetitions) {
  gpu::CommandList* const lists[] = {&list};
  device.wait(device.submit(lists));
  const std::vector<double> stamps = device.timestamps(2);
  return (stamps[1] - stamps[0]) / 1000 / repetitions;
}

struct Timing {
  double gpu_us = 0, wall_us = 0;
};

/// The buffers of one kernel's operands, and the means to time specs on them.
class KernelBench {
 public:
  explicit KernelBench(gpu::Device& device) : device_(device) {}

  const Caps& caps() const { return device_.caps(); }

  /// Buffers for all operands; `values(i)` fills operand i, for those that are read.
  void set_operands(const FusedKernel& kernel, const std::function<std::vector<float>(std::size_t)>& values) {
    idle_ = true;
    step_ = 0;
    operands_.clear();
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      const auto bytes = static_cast<std::uint64_t>(kernel.operands[i].elements) * 4;
      operands_.push_back(device_.create_buffer(bytes, gpu::MemoryKind::Device, "operand"));
      if (kernel.operands[i].written) continue;
      const auto upload = device_.create_buffer(bytes, gpu::MemoryKind::Upload, "upload");
      std::memcpy(upload->mapped(), values(i).data(), bytes);
      run({gpu::CopyCommand{{upload.get(), 0, bytes}, {operands_.back().get(), 0, bytes}}}, {upload, operands_.back()});
    }
  }

  /// From now on launches find operand `i`, of so many bytes, in another place each time, until all of `total` bytes were used: it comes from memory
  /// and not from a cache that holds less. Its values are then words of 0x2c002c00.
  void rotate(std::size_t i, std::uint64_t bytes, std::uint64_t total) {
    rotated_ = i;
    place_ = bytes;
    step_ = (bytes + 255) / 256 * 256;
    if (places_ == nullptr || places_->size() < std::max(total, step_)) {
      places_ = device_.create_buffer(std::max(total, step_), gpu::MemoryKind::Device, "operand in many places");
      run({gpu::FillCommand{{places_.get(), 0, places_->size()}, 0x2c002c00u}}, {places_});
    }
  }

  /// Median over samples of `repetitions` dependent launches each, by timestamps and by the host's clock.
  Timing time(const KernelSpec& spec, int samples, double sample_us) {
    const Launch launch = prepare(spec);
    const auto measure = [&](int repetitions) {
      std::vector<gpu::Command> commands;
      commands.push_back(gpu::TimestampCommand{0});
      for (int i = 0; i < repetitions; ++i) {
        commands.push_back(gpu::BarrierCommand{});
        gpu::DispatchCommand dispatch = launch.dispatch;
        if (step_ > 0) {
          const std::uint64_t count = places_->size() / step_;
          dispatch.operands[rotated_] = {places_.get(), (static_cast<std::uint64_t>(i) % count) * step_, place_};
        }
        commands.push_back(dispatch);
      }
      commands.push_back(gpu::BarrierCommand{});
      commands.push_back(gpu::TimestampCommand{1});
      std::vector<std::shared_ptr<void>> owners = launch.owners;
      if (step_ > 0) owners.push_back(places_);
      return device_.record(commands, std::move(owners), "bench");
    };
    const auto once = measure(3);
    replay(*once, 3);
    const int repetitions = std::clamp(static_cast<int>(sample_us / std::max(replay(*once, 3).gpu_us, 0.5)), 3, 1000);
    const auto list = measure(repetitions);
    replay(*list, repetitions);
    if (idle_) {  // devices lower their clocks while the host draws operands or checks results
      const auto start = Clock::now();
      while (Clock::now() - start < std::chrono::milliseconds(250)) replay(*list, repetitions);
      idle_ = false;
    }
    std::vector<double> gpu_us, wall_us;
    for (int s = 0; s < samples; ++s) {
      const Timing t = replay(*list, repetitions);
      gpu_us.push_back(t.gpu_us);
      wall_us.push_back(t.wall_us);
    }
    return {median(gpu_us), median(wall_us)};
  }

  /// What one launch writes, operand after operand; what it leaves out is NaN.
  std::vector<float> results(const KernelSpec& spec) {
    idle_ = true;
    const Launch launch = prepare(spec);
    std::vector<float> all;
    std::vector<gpu::Command> fills;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (spec.fused->operands[i].written)
        fills.push_back(gpu::FillCommand{{operands_[i].get(), 0, operands_[i]->size()}, 0x7fc00000u});
    }
    fills.insert(fills.end(), {gpu::BarrierCommand{}, launch.dispatch});
    run(fills, launch.owners);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!spec.fused->operands[i].written) continue;
      const std::uint64_t bytes = operands_[i]->size();
      const auto readback = device_.create_buffer(bytes, gpu::MemoryKind::Readback, "readback");
      run({gpu::BarrierCommand{}, gpu::CopyCommand{{operands_[i].get(), 0, bytes}, {readback.get(), 0, bytes}}}, {operands_[i], readback});
      const std::size_t first = all.size();
      all.resize(first + bytes / 4);
      std::memcpy(all.data() + first, readback->mapped(), bytes);
    }
    return all;
  }

  /// Builds the kernels of many specs on all cores before anything is timed.
  void build(std::span<const Candidate> candidates) {
    std::vector<std::pair<KernelSource, const KernelSpec*>> work;
    for (const Candidate& candidate : candidates) {
      if (!candidate.rejected.empty()) continue;
      KernelSource source = generate(candidate.spec, caps());
      if (kernels_.try_emplace(source.key, nullptr).second) work.emplace_back(std::move(source), &candidate.spec);
    }
    std::vector<std::shared_ptr<gpu::Kernel>> built(work.size());
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    const std::size_t count = std::min<std::size_t>(work.size(), std::max(1u, std::thread::hardware_concurrency()));
    for (std::size_t t = 0; t < count; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < work.size(); i = next++) built[i] = make_kernel(*work[i].second, work[i].first);
      });
    }
    threads.clear();
    for (std::size_t i = 0; i < work.size(); ++i) kernels_[work[i].first.key] = built[i];
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Launch {
    gpu::DispatchCommand dispatch;
    std::vector<std::shared_ptr<void>> owners;
  };

  std::shared_ptr<gpu::Kernel> make_kernel(const KernelSpec& spec, const KernelSource& source) {
    const std::vector<std::uint32_t> spirv = compile_glsl(source.glsl, spec.variant);
    return device_.create_kernel({.name = spec.variant,
                                  .spirv = spirv,
                                  .bindings = source.bindings,
                                  .push_bytes = static_cast<std::uint32_t>(source.push.size() * 4),
                                  .local = spec.local,
                                  .shared_bytes = spec.shared_bytes});
  }

  Launch prepare(const KernelSpec& spec) {
    const KernelSource source = generate(spec, caps());
    gpu::check_launch(spec, static_cast<std::uint32_t>(source.push.size() * 4), source.bindings, caps());
    std::shared_ptr<gpu::Kernel>& kernel = kernels_[source.key];
    if (kernel == nullptr) kernel = make_kernel(spec, source);
    Launch launch;
    launch.dispatch.kernel = kernel.get();
    launch.dispatch.push = source.push;
    launch.dispatch.groups = gpu::fold_groups(spec.workgroups, caps());
    launch.owners = {kernel};
    const auto bind = [&](const std::shared_ptr<gpu::Buffer>& buffer, std::uint64_t bytes) {
      launch.dispatch.operands.push_back({buffer.get(), 0, bytes});
      launch.owners.push_back(buffer);
    };
    for (const auto& buffer : operands_) bind(buffer, buffer->size());
    if (spec.workspace_bytes > 0) {
      if (workspace_ == nullptr || workspace_->size() < spec.workspace_bytes)
        workspace_ = device_.create_buffer(spec.workspace_bytes, gpu::MemoryKind::Device, "workspace");
      bind(workspace_, spec.workspace_bytes);
    }
    if (spec.counters > 0) {
      const std::uint64_t bytes = spec.counters * 4ull;
      if (counters_ == nullptr || counters_->size() < bytes) {
        counters_ = device_.create_buffer(bytes, gpu::MemoryKind::Device, "counters");
        run({gpu::FillCommand{{counters_.get(), 0, bytes}, 0}}, {counters_});
      }
      bind(counters_, bytes);
    }
    return launch;
  }

  void run(const std::vector<gpu::Command>& commands, std::vector<std::shared_ptr<void>> owners) {
    const auto list = device_.record(commands, std::move(owners), "bench");
    gpu::CommandList* const lists[] = {list.get()};
    device_.wait(device_.submit(lists));
  }

  Timing replay(gpu::CommandList& list, int repetitions) {
    const auto start = Clock::now();
    const double gpu_us = replay_us(device_, list, repetitions);
    return {gpu_us, std::chrono::duration<double, std::micro>(Clock::now() - start).count() / repetitions};
  }

  gpu::Device& device_;
  std::shared_ptr<gpu::Buffer> places_;
  std::size_t rotated_ = 0;
  std::uint64_t place_ = 0, step_ = 0;  ///< bytes of the operand that rotates, and of a place; 0: none does
  bool idle_ = true;  ///< the device has had nothing to do for a while
  std::vector<std::shared_ptr<gpu::Buffer>> operands_;
  std::shared_ptr<gpu::Buffer> workspace_, counters_;
  std::map<std::string, std::shared_ptr<gpu::Kernel>> kernels_;
};

}  // namespace aeshna::bench
