#pragma once
// Runs one KernelSpec on a device, apart from the compiler and the runtime, and compares it with the oracle
// (fused_eval.h).
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "ir/kernel.h"
#include "support/fused_eval.h"

namespace aeshna::test {

/// test_device()'s implementation; null if the machine has no driver (AESHNA_NEED_DEVICE() first).
std::shared_ptr<gpu::Device> kernel_device();

class KernelRunner {
 public:
  /// `caps`: what kernels are generated and launched for; may restrict the device's own.
  KernelRunner(std::shared_ptr<gpu::Device> device, Caps caps) : device_(std::move(device)), caps_(std::move(caps)) {}
  explicit KernelRunner(std::shared_ptr<gpu::Device> device) : KernelRunner(device, device->caps()) {}
  const Caps& caps() const { return caps_; }

  struct Options {
    /// Binds a written operand over the memory of the one it may replace (KernelOperand.in_place_of).
    bool in_place = false;
  };
  /// All operands after one launch. Elements that the kernel does not write come back as they were given. The launch
  /// runs twice (unless in place) and must give the same bits; words beyond each operand must stay untouched, and
  /// counters return to 0: else Error(Internal).
  OperandData run(const KernelSpec& spec, const OperandData& data, Options options);
  OperandData run(const KernelSpec& spec, const OperandData& data) { return run(spec, data, Options{}); }
  std::uint64_t kernels() const { return kernels_.size(); }

 private:
  std::shared_ptr<gpu::Device> device_;
  Caps caps_;
  std::map<std::string, std::shared_ptr<gpu::Kernel>> kernels_;
};

/// Data for every operand: floats drawn from [low, high] and rounded to their dtype or quantized, i32 and u32 integers
/// in [low, high] ([0, high] for u32), booleans; written operands are filled with a value that no test expects.
OperandData random_data(const FusedKernel& kernel, std::uint64_t seed, double low = -2, double high = 2);

/// What differs between what a kernel gave and what its oracle wants by more than atol + rtol * |want| (integers and
/// booleans: at all; NaN equals NaN only): a message naming the first element and how many there are; empty if nothing
/// does. Every comparison is also noted for docs/ops.md (op_errors.h).
std::string difference(const KernelSpec& spec, const OperandData& got, const OperandData& want, double rtol,
                       double atol);

}  // namespace aeshna::test
