#include "runtime/transfer.h"

#include <algorithm>
#include <functional>

#include "base/checked.h"
#include "ir/device_types.h"
#include "runtime/convert.h"

namespace aeshna {
namespace {

constexpr std::uint64_t kStagingBytes = 64ull << 20;
constexpr std::uint64_t kAlign = 16;

/// Part of an item: elements [first, first + count), which are `bytes` bytes in the staging buffer at `offset` and, in the
/// tensor on the device, at `at`.
struct Piece {
  std::size_t item;
  std::uint64_t first, count, offset, at, bytes;
};

std::span<std::uint32_t> words_at(gpu::Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  return {reinterpret_cast<std::uint32_t*>(buffer.mapped() + offset), bytes / 4};
}

/// Cuts the items that need staging into rounds of pieces that fit the staging buffer together.
template <class Item>
std::vector<std::vector<Piece>> plan_rounds(std::span<const Item> items, std::uint64_t& staging_bytes) {
  std::vector<std::vector<Piece>> rounds;
  std::uint64_t used = kStagingBytes;
  staging_bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].buffer->mapped() != nullptr) continue;
    const auto elements = static_cast<std::uint64_t>(items[i].type.shape.elements());
    const DeviceUnit unit = device_unit(items[i].type.dtype);
    std::uint64_t at = 0;
    for (std::uint64_t first = 0; first < elements;) {
      if (used + align_up(std::uint64_t{unit.bytes}, kAlign) > kStagingBytes) {
        rounds.emplace_back();
        used = 0;
      }
      const std::uint64_t count = std::min(elements - first, (kStagingBytes - used) / unit.bytes * unit.elements);
      const std::uint64_t bytes = device_bytes(items[i].type.dtype, static_cast<std::int64_t>(count));
      rounds.back().push_back({i, first, count, used, at, bytes});
      used = align_up(used + bytes, kAlign);
      staging_bytes = std::max(staging_bytes, used);
      first += count;
      at += bytes;
    }
  }
  return rounds;
}

void copy_and_wait(gpu::Device& device, std::span<const gpu::Command> copies, std::vector<std::shared_ptr<void>> owners,
                   std::string_view name) {
  const std::shared_ptr<gpu::CommandList> list = device.record(copies, std::move(owners), name);
  gpu::CommandList* lists[] = {list.get()};
  device.wait(device.submit(lists));
}

}  // namespace

void clear(gpu::Device& device, std::span<const std::shared_ptr<gpu::Buffer>> buffers) {
  std::vector<gpu::Command> fills;
  for (const auto& buffer : buffers) fills.emplace_back(gpu::FillCommand{{buffer.get(), 0, buffer->size() / 4 * 4}, 0});
  if (!fills.empty()) copy_and_wait(device, fills, {buffers.begin(), buffers.end()}, "zeros");
}

void upload(gpu::Device& device, std::span<const UploadItem> items, gpu::Ticket pending) {
  bool direct = false;
  for (const UploadItem& item : items) {
    check_device_form(item.type, item.host, item.name);
    direct |= item.buffer->mapped() != nullptr;
  }
  std::uint64_t staging_bytes = 0;
  const std::vector<std::vector<Piece>> rounds = plan_rounds(items, staging_bytes);
  std::shared_ptr<gpu::Buffer> staging;
  if (!rounds.empty()) staging = device.create_buffer(staging_bytes, gpu::MemoryKind::Upload, "upload staging");

  if (direct) {
    if (pending != 0) device.wait(pending);
    for (const UploadItem& item : items) {
      if (item.buffer->mapped() == nullptr) continue;
      const auto elements = static_cast<std::uint64_t>(item.type.shape.elements());
      to_device(item.type.dtype, item.host, 0, elements, words_at(*item.buffer, item.offset, device_bytes(item.type)));
    }
  }
  for (const std::vector<Piece>& round : rounds) {
    std::vector<gpu::Command> copies;
    std::vector<std::shared_ptr<void>> owners{staging};
    for (const Piece& piece : round) {
      const UploadItem& item = items[piece.item];
      to_device(item.type.dtype, item.host, piece.first, piece.count, words_at(*staging, piece.offset, piece.bytes));
      copies.emplace_back(gpu::CopyCommand{{staging.get(), piece.offset, piece.bytes},
                                           {item.buffer.get(), item.offset + piece.at, piece.bytes}});
      owners.push_back(item.buffer);
    }
    copy_and_wait(device, copies, std::move(owners), "upload");
  }
}

void download(gpu::Device& device, std::span<const DownloadItem> items, gpu::Ticket pending) {
  std::uint64_t staging_bytes = 0;
  const std::vector<std::vector<Piece>> rounds = plan_rounds(items, staging_bytes);
  if (pending != 0) device.wait(pending);
  for (const DownloadItem& item : items) {
    if (item.buffer->mapped() == nullptr) continue;
    const auto elements = static_cast<std::uint64_t>(item.type.shape.elements());
    to_host(item.type.dtype, words_at(*item.buffer, item.offset, device_bytes(item.type)), 0, elements, item.host);
  }
  if (rounds.empty()) return;
  const std::shared_ptr<gpu::Buffer> staging =
      device.create_buffer(staging_bytes, gpu::MemoryKind::Readback, "download staging");
  for (const std::vector<Piece>& round : rounds) {
    std::vector<gpu::Command> copies;
    std::vector<std::shared_ptr<void>> owners{staging};
    for (const Piece& piece : round) {
      const DownloadItem& item = items[piece.item];
      copies.emplace_back(gpu::CopyCommand{{item.buffer.get(), item.offset + piece.at, piece.bytes},
                                           {staging.get(), piece.offset, piece.bytes}});
      owners.push_back(item.buffer);
    }
    copy_and_wait(device, copies, std::move(owners), "download");
    for (const Piece& piece : round) {
      const DownloadItem& item = items[piece.item];
      to_host(item.type.dtype, words_at(*staging, piece.offset, piece.bytes), piece.first, piece.count, item.host);
    }
  }
}

}  // namespace aeshna
