#include "aeshna/weights.h"

#include <algorithm>

#include "base/env.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/log.h"
#include "base/names.h"
#include "compile/plan.h"
#include "compile/reserved.h"
#include "ir/leaf.h"
#include "runtime/checkpoint.h"
#include "runtime/initial.h"
#include "runtime/store.h"
#include "runtime/transfer.h"

namespace aeshna {

Weights::Impl::Impl(Device device_handle, std::uint64_t seed_value)
    : device(std::move(device_handle)), seed(seed_value) {
  kernels = std::static_pointer_cast<KernelCache>(
      device.impl().attached([] { return std::make_shared<KernelCache>(env_cache_dir()); }));
}

Weights::Impl::~Impl() {
  if (!kernels->take_unsaved()) return;
  try {
    device.impl().save_pipeline_cache();
  } catch (const Error& e) {  // the next run compiles again
    log(LogLevel::Warning, "the pipeline cache was not saved: {}", e.what());
  }
}

Weights::Impl::Tensor& Weights::Impl::find(std::string_view name) {
  const std::scoped_lock lock(mutex);
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> candidates;
  for (const auto& [key, tensor] : tensors) candidates.push_back(key);
  fail(ErrorCode::NotFound, "no tensor '{}' in these weights{}", name, suggest_names(name, candidates));
}

std::vector<std::string> Weights::Impl::names(std::function<bool(const Tensor&)> keep) {
  const std::scoped_lock lock(mutex);
  std::vector<std::string> result;
  for (const auto& [key, tensor] : tensors) {
    if (!keep || keep(tensor)) result.push_back(key);
  }
  return result;
}

void Weights::Impl::create(std::span<const NewTensor> added) {
  std::vector<UploadItem> items;
  std::vector<Buffers> buffers;
  Buffers zeros;
  const Caps& caps = device.impl().caps();
  for (const NewTensor& tensor : added) {
    const TensorType& type = tensor.type;
    try {
      Buffers& own = buffers.emplace_back();
      for (const TensorPart& part : tensor_parts(type, caps)) {
        // A buffer of 0 bytes does not exist; a tensor without elements owns one word that nobody reads.
        own.push_back(device.impl().create_buffer(std::max<std::uint64_t>(part.bytes, 4), gpu::MemoryKind::Device, tensor.name));
      }
    } catch (Error& e) {
      throw e.context(formatted("tensor '{}' of type {}", tensor.name, type.to_string()));
    }
    if (tensor.value) {
      append_items(items, tensor.name, type, tensor.value->bytes(), buffers.back(), caps);
    } else {
      zeros.insert(zeros.end(), buffers.back().begin(), buffers.back().end());
    }
  }
  const std::scoped_lock lock(mutex);
  upload(device.impl(), items, 0);
  clear(device.impl(), zeros);
  for (std::size_t i = 0; i < added.size(); ++i) {
    const auto [place, fresh] = tensors.try_emplace(added[i].name);
    if (!fresh) {  // another session added it meanwhile
      if (place->second.type == added[i].type) continue;
      fail(ErrorCode::ShapeMismatch, "'{}' has type {}, but another session has just added it with type {}", added[i].name,
           added[i].type.to_string(), place->second.type.to_string());
    }
    place->second.type = added[i].type;
    place->second.parameter = added[i].parameter;
    place->second.buffers = buffers[i];
  }
}

std::vector<Literal> Weights::Impl::read(std::span<const std::string> wanted) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorType> types;
  std::vector<DownloadItem> items;
  for (const std::string& name : wanted) {
    const Tensor& tensor = find(name);
    bytes.emplace_back(static_cast<std::size_t>(tensor.type.bytes()));
    types.push_back(tensor.type);
    append_items(items, tensor.type, bytes.back(), tensor.buffers, device.impl().caps());
  }
  {
    const std::scoped_lock lock(mutex);
    download(device.impl(), items, last);
  }
  std::vector<Literal> values;
  for (std::size_t i = 0; i < types.size(); ++i) values.emplace_back(types[i], std::move(bytes[i]));
  return values;
}

void Weights::Impl::write(std::span<const std::pair<std::string, Literal>> values) {
  std::vector<UploadItem> items;
  std::vector<Tensor*> written;
  for (const auto& [name, value] : values) {
    Tensor& tensor = find(name);
    if (tensor.type != value.type()) {
      fail(tensor.type.dtype != value.type().dtype ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
           "tensor '{}' has type {}; the new value has {}", name, tensor.type.to_string(), value.type().to_string());
    }
    append_items(items, name, tensor.type, value.bytes(), tensor.buffers, device.impl().caps());
    written.push_back(&tensor);
  }
  const std::scoped_lock lock(mutex);
  upload(device.impl(), items, last);
  for (Tensor* tensor : written) ++tensor->version;
}

gpu::Ticket Weights::Impl::submit(std::span<gpu::CommandList* const> lists, std::span<const std::size_t> cuts) {
  const std::scoped_lock lock(mutex);
  std::size_t begin = 0;
  for (const std::size_t end : cuts) {
    last = device.impl().submit(lists.subspan(begin, end - begin));
    begin = end;
  }
  return last = device.impl().submit(lists.subspan(begin));
}

Weights::Weights(const Graph& graph, WeightsOptions options)
    : impl_(std::make_shared<Impl>(options.device ? *options.device : Device{}, options.seed)) {
  add(graph);
}

Weights::Weights(Device device, std::uint64_t seed) : impl_(std::make_shared<Impl>(std::move(device), seed)) {}

void Weights::add(const Graph& graph) {
  std::vector<Impl::NewTensor> added;
  for (const Node& node : graph.nodes()) {
    const bool parameter = is_parameter(node);
    if (!parameter && !is_state(node)) continue;
    if (node.name == reserved::status) continue;  // each session has its own
    const TensorType& type = node.results.at(0);
    if (contains(node.name)) {
      const Impl::Tensor& present = impl_->find(node.name);
      if (present.type != type) {
        fail(ErrorCode::ShapeMismatch, "'{}' has type {} in the graph ({}), but {} in these weights", node.name,
             type.to_string(), node.line.to_string(), present.type.to_string());
      }
      if (present.parameter != parameter) {
        fail(ErrorCode::InvalidArgument, "'{}' is a {} in the graph ({}), but a {} in these weights", node.name,
             parameter ? "parameter" : "state", node.line.to_string(), present.parameter ? "parameter" : "state");
      }
      continue;
    }
    const Caps& caps = impl_->device.impl().caps();
    if (device_bytes(type) > caps.device_memory) {  // before the host draws its values
      fail(ErrorCode::LimitExceeded, "'{}' of type {} needs {} bytes; {} has device_memory of {}", node.name, type.to_string(),
           device_bytes(type), caps.device_name, caps.device_memory);
    }
    const bool zeros = leaf_init(node).kind == Init::Kind::Zeros && node.name != "aeshna.seed";
    added.push_back({node.name, parameter, type, zeros ? std::nullopt : std::optional(initial_value(node, impl_->seed))});
  }
  impl_->create(added);
}

std::vector<std::string> Weights::names() const { return impl_->names(); }

bool Weights::contains(std::string_view name) const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->tensors.contains(name);
}

const TensorType& Weights::type(std::string_view name) const { return impl_->find(name).type; }
std::uint64_t Weights::version(std::string_view name) const { return impl_->find(name).version; }

Literal Weights::get(std::string_view name) const {
  const std::string names[] = {std::string(name)};
  return std::move(impl_->read(names).front());
}

void Weights::set(std::string_view name, const Literal& value) {
  const std::pair<std::string, Literal> values[] = {{std::string(name), value}};
  impl_->write(values);
}

std::uint64_t Weights::seed() const { return impl_->seed; }
Device Weights::device() const { return impl_->device; }

void Weights::save(const std::filesystem::path& file, bool states) const { save_weights(*impl_, file, states); }
void Weights::load(const std::filesystem::path& file) { load_weights(*impl_, file); }

}  // namespace aeshna
