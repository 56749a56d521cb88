#pragma once
// Tensors between host and device outside of steps: many tensors share one staging buffer and one submission.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aeshna/shape.h"
#include "gpu/device.h"

namespace aeshna {

struct UploadItem {
  std::string name;  ///< for messages
  TensorType type;
  std::span<const std::byte> host;
  std::shared_ptr<gpu::Buffer> buffer;
  std::uint64_t offset = 0;  ///< bytes into the buffer
};

struct DownloadItem {
  TensorType type;
  std::span<std::byte> host;
  std::shared_ptr<gpu::Buffer> buffer;
  std::uint64_t offset = 0;
};

/// Writes tensors into device buffers and waits until they are there; host-visible buffers are written directly after
/// waiting for `pending`, the last submission that may use them (0: none). Everything is checked before the first
/// byte is written (see check_device_form).
void upload(gpu::Device& device, std::span<const UploadItem> items, gpu::Ticket pending);

/// Fills whole buffers with zero words and waits until it is done.
void clear(gpu::Device& device, std::span<const std::shared_ptr<gpu::Buffer>> buffers);

/// Reads tensors from device buffers, after everything submitted before.
void download(gpu::Device& device, std::span<const DownloadItem> items, gpu::Ticket pending);

}  // namespace aeshna
