// Plan -> command lists, recorded once. A step only submits them.
#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "compile/reserved.h"
#include "gpu/launch.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

constexpr std::uint64_t kWord = 4;
constexpr double kLaunchMs = 0.005;  // a dispatch and its barrier, at least

double estimate_ms(const KernelSpec& spec, const Caps& caps) {
  const double compute = spec.flops / (caps.gflops * 1e6);
  const double traffic = spec.bytes / (caps.gbytes_per_s * 1e6);
  return std::max({compute, traffic, kLaunchMs});
}

/// Collects commands and cuts them into lists that are each estimated below a bound.
class ChunkRecorder {
 public:
  ChunkRecorder(gpu::Device& device, std::string name, double bound_ms)
      : device_(device), name_(std::move(name)), bound_ms_(bound_ms) {}

  void add(const SegmentCommand& added) {
    if (!commands_.empty() && ms_ + added.ms > bound_ms_) close();
    if (!commands_.empty() && added.group != group_)
      commands_.emplace_back(gpu::BarrierCommand{});  // a list begins with one anyway
    group_ = added.group;
    ms_ += added.ms;
    if (added.stamp) commands_.emplace_back(gpu::TimestampCommand{*added.stamp});
    commands_.push_back(added.command);
    if (added.stamp) commands_.emplace_back(gpu::TimestampCommand{*added.stamp + 1});
    owners_.insert(owners_.end(), added.owners.begin(), added.owners.end());
  }

  std::vector<Chunk> finish() {
    close();
    return std::move(chunks_);
  }

 private:
  void close() {
    if (commands_.empty()) return;
    std::ranges::sort(owners_);
    const auto duplicates = std::ranges::unique(owners_);
    owners_.erase(duplicates.begin(), duplicates.end());
    chunks_.push_back({device_.record(commands_, std::move(owners_), formatted("{} {}", name_, chunks_.size())), ms_});
    commands_.clear();
    owners_.clear();
    ms_ = 0;
  }

  gpu::Device& device_;
  std::string name_;
  double bound_ms_;
  double ms_ = 0;
  std::uint32_t group_ = 0;
  std::vector<gpu::Command> commands_;
  std::vector<std::shared_ptr<void>> owners_;
  std::vector<Chunk> chunks_;
};

}  // namespace

std::vector<Chunk> record_commands(const Session::Impl& session, std::span<const SegmentCommand> commands,
                                   std::string_view name) {
  ChunkRecorder recorder(session.device(), std::string(name), session.options.chunk_ms);
  for (const SegmentCommand& command : commands) recorder.add(command);
  return recorder.finish();
}

std::vector<SegmentCommand> segment_commands(const Session::Impl& session, Segment segment) {
  const Caps& caps = session.device().caps();
  std::vector<SegmentCommand> commands;
  std::uint64_t empty_used = 0;
  for (const PlanStep& step : session.plan.steps) {
    if (step.segment != segment) continue;
    std::vector<gpu::BufferRange> ranges;
    std::vector<std::shared_ptr<void>> owners;
    for (const PlanOperand& operand : step.operands) {
      const Session::Impl::Place& place = session.places.at(operand.placement);
      if (operand.bytes == 0) {
        // Each its own words: one shared by dispatches of a barrier group would be a hazard.
        ranges.push_back({session.empty.get(), align_up(kWord, caps.storage_alignment) * empty_used++, kWord});
        owners.push_back(session.empty);
      } else {
        ranges.push_back({place.buffer.get(), place.offset + operand.offset, operand.bytes});
        owners.push_back(place.buffer);
      }
    }
    if (step.kind == PlanStep::Kind::Copy) {
      if (step.operands.at(0).bytes == 0) continue;
      const double ms = 2 * static_cast<double>(step.operands[0].bytes) / (caps.gbytes_per_s * 1e6);
      commands.push_back({&step, gpu::CopyCommand{ranges.at(0), ranges.at(1)}, ms, step.group, std::move(owners)});
      continue;
    }
    if (step.spec.workgroups == 0) continue;
    const PlanKernel& kernel = session.plan.kernels.at(step.kernel);
    gpu::check_launch(step.spec, static_cast<std::uint32_t>(step.push.size() * 4),
                      static_cast<std::uint32_t>(ranges.size()), caps);
    gpu::DispatchCommand dispatch;
    dispatch.kernel = session.kernels.at(step.kernel).get();
    dispatch.operands = std::move(ranges);
    dispatch.push = step.push;
    dispatch.groups = gpu::fold_groups(step.spec.workgroups, caps);
    dispatch.label = formatted("{} {}", kernel.name, step.spec.variant);
    owners.push_back(session.kernels[step.kernel]);
    commands.push_back({&step, std::move(dispatch), estimate_ms(step.spec, caps), step.group, std::move(owners)});
  }
  return commands;
}

std::shared_ptr<gpu::CommandList> Session::Impl::record_copies(std::span<const gpu::CopyCommand> copies,
                                                               std::vector<std::shared_ptr<void>> owners,
                                                               std::string_view what) {
  const std::vector<gpu::Command> commands(copies.begin(), copies.end());
  return device().record(commands, std::move(owners), what);
}

void Session::Impl::record() {
  segments[0] = record_commands(*this, segment_commands(*this, Segment::Forward), "forward");
  segments[1] = record_commands(*this, segment_commands(*this, Segment::Backward), "backward");
  segments[2] = record_commands(*this, segment_commands(*this, Segment::Update), "update");

  for (Slot& slot : slots) {
    std::vector<gpu::CopyCommand> all;
    std::vector<std::shared_ptr<void>> all_owners{slot.staging};
    for (const SessionInput& input : inputs) {
      std::shared_ptr<gpu::CommandList>& list = slot.upload.emplace_back();
      const std::uint64_t bytes = device_bytes(input.type);
      if (input.buffers.empty() || input.direct) continue;
      const gpu::CopyCommand copy{{slot.staging.get(), input.staging, bytes}, {input.buffers[0].get(), 0, bytes}};
      list = record_copies(std::span(&copy, 1), {slot.staging, input.buffers[0]}, "upload " + input.name);
      if (input.hidden) continue;
      all.push_back(copy);
      all_owners.push_back(input.buffers[0]);
    }
    if (!all.empty()) slot.upload_all = record_copies(all, std::move(all_owners), "upload");

    std::vector<gpu::CopyCommand> small;
    std::vector<std::shared_ptr<void>> small_owners{slot.readback};
    for (const SessionOutput& output : outputs) {
      if (!output.readback || output.bytes == 0) continue;
      small.push_back(
          {{output.buffers[0].get(), output.offset, output.bytes}, {slot.readback.get(), *output.readback, output.bytes}});
      small_owners.push_back(output.buffers[0]);
    }
    if (!small.empty()) slot.download = record_copies(small, std::move(small_owners), "download");
  }

  if (status) {
    const std::uint32_t placement = plan.outputs.find(reserved::status)->second;
    for (const PlanStep& step : plan.steps) {
      for (const PlanOperand& operand : step.operands) {
        if (operand.placement == placement && operand.written) status_segment = step.segment;
      }
    }
    AESHNA_CHECK(status_segment && status_state);
    const gpu::Command clear[] = {gpu::FillCommand{{status_state.get(), 0, status_state->size()}, 0}};
    clear_status = device().record(clear, {status_state}, "clear status");
  }
  const std::size_t chunks = segments[0].size() + segments[1].size() + segments[2].size();
  batch.reserve(inputs.size() + 1 + chunks + 1);
  cuts.reserve(chunks);
}

}  // namespace aeshna
