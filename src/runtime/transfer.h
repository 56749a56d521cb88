#pragma once
// Tensors between host and device outside of steps: many tensors share one staging buffer and one submission.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aeshna/shape.h"
#include "gpu/device.h"
#include "ir/device_types.h"

namespace aeshna {

/// The buffers of a tensor's parts (see tensor_parts): one, usually.
using Buffers = std::vector<std::shared_ptr<gpu::Buffer>>;

/// A tensor, or one part of it; `host` is all of the tensor.
struct UploadItem {
  std::string name;  ///< for messages
  TensorType type;
  std::span<const std::byte> host;
  std::shared_ptr<gpu::Buffer> buffer;
  std::uint64_t offset = 0;                      ///< bytes into the buffer
  std::optional<TensorPart> part = std::nullopt;  ///< whose buffer this is; nullopt: the whole tensor's
};

struct DownloadItem {
  TensorType type;
  std::span<std::byte> host;
  std::shared_ptr<gpu::Buffer> buffer;
  std::uint64_t offset = 0;
  std::optional<TensorPart> part = std::nullopt;
};

/// An item for every part of a tensor.
void append_items(std::vector<UploadItem>& items, const std::string& name, const TensorType& type, std::span<const std::byte> host,
                  const Buffers& buffers, const Caps& caps);
void append_items(std::vector<DownloadItem>& items, const TensorType& type, std::span<std::byte> host, const Buffers& buffers,
                  const Caps& caps);

/// Writes tensors into device buffers and waits until they are there; host-visible buffers are written directly after
/// waiting for `pending`, the last submission that may use them (0: none). Everything is checked before the first
/// byte is written (see check_device_form).
void upload(gpu::Device& device, std::span<const UploadItem> items, gpu::Ticket pending);

/// Fills whole buffers with zero words and waits until it is done.
void clear(gpu::Device& device, std::span<const std::shared_ptr<gpu::Buffer>> buffers);

/// Reads tensors from device buffers, after everything submitted before.
void download(gpu::Device& device, std::span<const DownloadItem> items, gpu::Ticket pending);

}  // namespace aeshna
