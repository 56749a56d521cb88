#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/device.h"
#include "aeshna/graph.h"

namespace aeshna {

struct WeightsOptions {
  std::uint64_t seed = 0;
  std::optional<Device> device = {};  ///< default: Device{}
};

/// Device tensors by name with a version each; outlive and are shared by sessions. Also the store of states (moments,
/// running statistics, counters). Copies share the store.
class Weights {
 public:
  /// Allocates and initialises every parameter and state of `graph`.
  explicit Weights(const Graph& graph, WeightsOptions options = {});
  /// Empty store on a device; sessions and loads add tensors.
  explicit Weights(Device device, std::uint64_t seed = 0);

  /// Adds the parameters and states of another graph; those present must have equal types.
  void add(const Graph& graph);
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  const TensorType& type(std::string_view name) const;
  std::uint64_t version(std::string_view name) const;
  /// Copies from the device (waits for pending work). Throws Error(NotFound) naming near names.
  Literal get(std::string_view name) const;
  /// Of the tensor's own type: nothing is converted (Literal::from_doubles rounds to f16 and bf16, quantize() makes blocks).
  void set(std::string_view name, const Literal& value);
  std::uint64_t seed() const;
  Device device() const;

  /// Parameters (and states, with `states`) as safetensors; atomic.
  void save(const std::filesystem::path& file, bool states = false) const;
  /// Every parameter of this store must be in the file with its type; checked completely before the first tensor changes.
  void load(const std::filesystem::path& file);

  struct Impl;
  Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace aeshna
