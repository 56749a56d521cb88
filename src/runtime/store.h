#pragma once
// What stands behind Weights: device tensors by name, shared by sessions.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aeshna/weights.h"
#include "gpu/device.h"
#include "runtime/kernel_cache.h"
#include "runtime/transfer.h"

namespace aeshna {

struct Weights::Impl {
  struct Tensor {
    TensorType type;
    bool parameter = false;  ///< else a state
    Buffers buffers;  ///< of its parts
    std::atomic<std::uint64_t> version = 0;
  };

  Impl(Device device_handle, std::uint64_t seed_value);
  ~Impl();

  /// Throws Error(NotFound) with near names. The reference stays valid: tensors are never removed.
  Tensor& find(std::string_view name);
  /// Adds tensors with these values; none is added if anything fails.
  struct NewTensor {
    std::string name;
    bool parameter = false;
    TensorType type;
    std::optional<Literal> value;  ///< nullopt: zeros, which are made on the device
  };
  void create(std::span<const NewTensor> tensors);
  /// One submission for all of them; a consistent snapshot with respect to the steps of every session over this store.
  std::vector<Literal> read(std::span<const std::string> names);
  /// Types are checked, for all of them, before the first changes.
  void write(std::span<const std::pair<std::string, Literal>> values);
  std::vector<std::string> names(std::function<bool(const Tensor&)> keep = {});
  /// Submits on behalf of a session, ordered with read() and write(): a submission of its own begins at each index in
  /// `cuts`, but nothing of this store comes between. The ticket of the last one.
  gpu::Ticket submit(std::span<gpu::CommandList* const> lists, std::span<const std::size_t> cuts);

  Device device;
  std::uint64_t seed;
  std::shared_ptr<KernelCache> kernels;  ///< of the device
  std::mutex mutex;                      ///< guards `tensors` and `last`, and keeps submissions out of reads and writes
  std::map<std::string, Tensor, std::less<>> tensors;
  gpu::Ticket last = 0;  ///< newest submission that may use a tensor of this store
};

}  // namespace aeshna
