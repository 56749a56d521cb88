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

/// A piece of an item: elements [first, first + count) of the tensor, which are `bytes` bytes in the staging buffer at `offset` and,
/// in the item's buffer, at `at`.
struct Piece {
  std::size_t item;
  std::uint64_t first, count, offset, at, bytes;
};

std::span<std::uint32_t> words_at(gpu::Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  return {reinterpret_cast<std::uint32_t*>(buffer.mapped() + offset), bytes / 4};
}

template <class Item>
TensorPart part_of(const Item& item) {
  return item.part ? *item.part : TensorPart{0, item.type.shape.elements(), 0, device_bytes(item.type)};
}

/// Cuts the items that need staging into rounds of pieces that fit the staging buffer together.
template <class Item>
std::vector<std::vector<Piece>> plan_rounds(std::span<const Item> items, const Caps& caps, std::uint64_t& staging_bytes) {
  std::vector<std::vector<Piece>> rounds;
  const std::uint64_t limit = std::max(std::min(kStagingBytes, caps.max_buffer_size / kAlign * kAlign), std::uint64_t{512});  // a unit fits
  std::uint64_t used = limit;
  staging_bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].buffer->mapped() != nullptr) continue;
    const TensorPart part = part_of(items[i]);
    const auto end = static_cast<std::uint64_t>(part.first + part.count);
    const DeviceUnit unit = device_unit(items[i].type.dtype);
    std::uint64_t at = 0;
    for (auto first = static_cast<std::uint64_t>(part.first); first < end;) {
      if (used + align_up(std::uint64_t{unit.bytes}, kAlign) > limit) {
        rounds.emplace_back();
        used = 0;
      }
      const std::uint64_t count = std::min(end - first, (limit - used) / unit.bytes * unit.elements);
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

void append_items(std::vector<UploadItem>& items, const std::string& name, const TensorType& type, std::span<const std::byte> host,
                  const Buffers& buffers, const Caps& caps) {
  const std::vector<TensorPart> parts = tensor_parts(type, caps);
  for (std::size_t p = 0; p < parts.size(); ++p) items.push_back({name, type, host, buffers.at(p), 0, parts[p]});
}

void append_items(std::vector<DownloadItem>& items, const TensorType& type, std::span<std::byte> host, const Buffers& buffers,
                  const Caps& caps) {
  const std::vector<TensorPart> parts = tensor_parts(type, caps);
  for (std::size_t p = 0; p < parts.size(); ++p) items.push_back({type, host, buffers.at(p), 0, parts[p]});
}

void clear(gpu::Device& device, std::span<const std::shared_ptr<gpu::Buffer>> buffers) {
  std::vector<gpu::Command> fills;
  for (const auto& buffer : buffers) fills.emplace_back(gpu::FillCommand{{buffer.get(), 0, buffer->size() / 4 * 4}, 0});
  if (!fills.empty()) copy_and_wait(device, fills, {buffers.begin(), buffers.end()}, "zeros");
}

void upload(gpu::Device& device, std::span<const UploadItem> items, gpu::Ticket pending) {
  bool direct = false;
  for (const UploadItem& item : items) {
    if (part_of(item).first == 0) check_device_form(item.type, item.host, item.name);
    direct |= item.buffer->mapped() != nullptr;
  }
  std::uint64_t staging_bytes = 0;
  const std::vector<std::vector<Piece>> rounds = plan_rounds(items, device.caps(), staging_bytes);
  std::shared_ptr<gpu::Buffer> staging;
  if (!rounds.empty()) staging = device.create_buffer(staging_bytes, gpu::MemoryKind::Upload, "upload staging");

  if (direct) {
    if (pending != 0) device.wait(pending);
    for (const UploadItem& item : items) {
      if (item.buffer->mapped() == nullptr) continue;
      const TensorPart part = part_of(item);
      to_device(item.type.dtype, item.host, static_cast<std::uint64_t>(part.first), static_cast<std::uint64_t>(part.count),
                words_at(*item.buffer, item.offset, part.bytes));
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
  const std::vector<std::vector<Piece>> rounds = plan_rounds(items, device.caps(), staging_bytes);
  if (pending != 0) device.wait(pending);
  for (const DownloadItem& item : items) {
    if (item.buffer->mapped() == nullptr) continue;
    const TensorPart part = part_of(item);
    to_host(item.type.dtype, words_at(*item.buffer, item.offset, part.bytes), static_cast<std::uint64_t>(part.first),
            static_cast<std::uint64_t>(part.count), item.host);
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
