// Plan -> buffers and kernels on the device.
#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/fail.h"
#include "compile/reserved.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "runtime/session_impl.h"
#include "runtime/transfer.h"

namespace aeshna {
namespace {

constexpr std::uint64_t kWord = 4;
constexpr std::uint64_t kStagingAlign = 64;  // a cache line: slots' inputs do not share one

std::shared_ptr<gpu::Buffer> device_buffer(gpu::Device& device, std::uint64_t bytes, std::string_view name) {
  return device.create_buffer(std::max(bytes, kWord), gpu::MemoryKind::Device, name);
}

/// All constants, packed into as few buffers as the device's limits allow; those in several parts into buffers of their own.
std::vector<std::vector<Session::Impl::Place>> upload_constants(const Plan& plan, gpu::Device& device) {
  std::vector<std::vector<Session::Impl::Place>> places(plan.constants.size());  // of each, of its parts
  const std::uint64_t limit = std::min(device.caps().max_buffer_size, device.caps().max_storage_range);
  std::vector<UploadItem> items;
  std::size_t first = 0;
  std::uint64_t used = 0;
  const auto close = [&](std::size_t end) {
    if (first == end) return;
    const std::shared_ptr<gpu::Buffer> buffer = device_buffer(device, used, "constants");
    for (std::size_t i = first; i < end; ++i) {
      places[i][0].buffer = buffer;
      items.push_back({"constant", plan.constants[i].type(), plan.constants[i].bytes(), buffer, places[i][0].offset});
    }
    first = end;
    used = 0;
  };
  for (std::size_t i = 0; i < plan.constants.size(); ++i) {
    const Literal& constant = plan.constants[i];
    if (part_elements(constant.type(), device.caps()) > 0) {
      close(i);
      first = i + 1;
      Buffers buffers;
      for (const TensorPart& part : tensor_parts(constant.type(), device.caps())) {
        buffers.push_back(device_buffer(device, part.bytes, "constant"));
        places[i].push_back({buffers.back(), 0});
      }
      append_items(items, "constant", constant.type(), constant.bytes(), buffers, device.caps());
      continue;
    }
    const std::uint64_t bytes = device_bytes(constant.type());
    std::uint64_t offset = align_up(used, device.caps().storage_alignment);
    if (offset + bytes > limit) {
      close(i);
      offset = 0;
    }
    places[i].push_back({nullptr, offset});
    used = offset + bytes;
  }
  close(plan.constants.size());
  upload(device, items, 0);
  return places;
}

}  // namespace

void Session::Impl::build() {
  gpu::Device& dev = device();
  Weights::Impl& store = weights.impl();

  std::vector<std::shared_ptr<gpu::Buffer>> arenas;
  for (const std::uint64_t bytes : plan.arenas) arenas.push_back(device_buffer(dev, bytes, "arena"));
  const std::vector<std::vector<Place>> constants = upload_constants(plan, dev);
  std::shared_ptr<gpu::Buffer> counters;
  if (plan.counters > 0) counters = device_buffer(dev, plan.counters * kWord, "counters");
  std::uint64_t empty_operands = 0;
  for (const PlanStep& step : plan.steps)
    empty_operands += static_cast<std::uint64_t>(std::ranges::count(step.operands, 0u, &PlanOperand::bytes));
  if (empty_operands > 0)
    empty = device_buffer(dev, empty_operands * align_up(kWord, dev.caps().storage_alignment), "empty");

  std::vector<gpu::Command> zero;  // counters are zero before every launch; outputs are defined before their first step
  std::vector<std::shared_ptr<void>> owners;
  const auto zero_fill = [&](const std::shared_ptr<gpu::Buffer>& buffer) {
    zero.emplace_back(gpu::FillCommand{{buffer.get(), 0, buffer->size() / kWord * kWord}, 0});
    owners.push_back(buffer);
  };
  if (counters) zero_fill(counters);
  for (const Placement& placement : plan.placements) {
    Place& place = places.emplace_back();
    switch (placement.home) {
      case Home::Arena:
      case Home::Workspace:
        place = {arenas.at(placement.arena), placement.offset};
        break;
      case Home::Constant:
        place = constants.at(placement.constant).at(placement.part);
        break;
      case Home::Counters:
        place = {counters, placement.offset};
        break;
      case Home::State:
        if (placement.name == reserved::status) {
          if (!status_state) zero_fill(status_state = device_buffer(dev, placement.bytes, placement.name));
          place = {status_state, 0};
          break;
        }
        [[fallthrough]];
      case Home::Parameter:
        place = {store.find(placement.name).buffers.at(placement.part), 0};
        break;
      case Home::Input:
        place = {device_buffer(dev, placement.bytes, placement.name), 0};
        break;
      case Home::Output:
        place = {device_buffer(dev, placement.bytes, placement.name), 0};
        zero_fill(place.buffer);
        break;
    }
    AESHNA_CHECK(place.buffer != nullptr);
  }
  if (!zero.empty()) {
    const std::shared_ptr<gpu::CommandList> list = dev.record(zero, std::move(owners), "zero");
    gpu::CommandList* lists[] = {list.get()};
    dev.wait(dev.submit(lists));
  }

  const auto buffers_of = [&](std::uint32_t index) {
    Buffers buffers{places[index].buffer};
    while (++index < places.size() && plan.placements[index].part > 0) buffers.push_back(places[index].buffer);
    return buffers;
  };
  std::uint64_t staging = 0;
  const auto add_input = [&](const std::string& name, const TensorType& type) {
    SessionInput added;
    added.name = name;
    added.type = type;
    added.hidden = name.starts_with(reserved::prefix);
    if (const auto placed = plan.inputs.find(name); placed != plan.inputs.end()) {
      added.buffers = buffers_of(placed->second);
      const std::uint64_t bytes = device_bytes(type);
      const bool staged = bytes > 0 && added.buffers.size() == 1 && staging + bytes <= dev.caps().max_buffer_size;
      added.direct = !added.hidden && (!staged || added.buffers[0]->mapped() != nullptr);
      if (!added.direct) {
        added.staging = staging;
        staging = align_up(staging + bytes, kStagingAlign);
      }
    }
    inputs.push_back(std::move(added));
  };
  std::set<std::string_view> added;
  for (const Graph* source : {static_cast<const Graph*>(graph.get()), plan.graph.get()}) {
    for (const Node& node : source->nodes()) {
      if (is_input(node) && added.insert(node.name).second) add_input(node.name, node.results.at(0));
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].hidden) continue;
    if (inputs[i].name == reserved::learning_rate) {
      lr = i;
    } else if (inputs[i].name == reserved::first_micro) {
      first_micro = i;
    } else {
      fail(ErrorCode::Internal, "the runtime does not know the input '{}'", inputs[i].name);
    }
  }

  std::uint64_t readback = 0;
  for (const auto& [name, index] : plan.outputs) {
    const Placement& placement = plan.placements[index];
    SessionOutput output;
    output.name = name;
    output.type = placement.type;
    output.buffers = buffers_of(index);
    output.offset = places[index].offset;
    output.bytes = device_bytes(placement.type);
    const bool fits = output.buffers.size() == 1 && readback + output.bytes <= dev.caps().max_buffer_size;
    if (output.bytes <= kSmallOutput && fits) {
      output.readback = readback;
      readback = align_up(readback + output.bytes, 16);
    }
    if (name == reserved::status) status = outputs.size();
    if (name == reserved::forward_status) forward_status = outputs.size();
    outputs.push_back(std::move(output));
  }
  for (Slot& slot : slots) {
    if (staging > 0) slot.staging = dev.create_buffer(staging, gpu::MemoryKind::Upload, "input staging");
    slot.readback = dev.create_buffer(std::max(readback, kWord), gpu::MemoryKind::Readback, "output readback");
  }

  for (const NodeId id : plan.graph->assigns()) {
    const Node& node = plan.graph->node(id);
    const Node& leaf = plan.graph->node(node.inputs.at(0).node);
    if (leaf.name != reserved::status)
      assigned[static_cast<std::size_t>(node.segment)].push_back(&store.find(leaf.name));
  }
}

}  // namespace aeshna
