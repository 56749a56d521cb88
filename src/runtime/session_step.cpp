// One step: a submission of recorded lists. Nothing here allocates or records.
#include <bit>
#include <cstring>

#include "base/fail.h"
#include "base/format.h"
#include "compile/reserved.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

std::uint32_t* words(gpu::Buffer& buffer, std::uint64_t offset) {
  return reinterpret_cast<std::uint32_t*>(buffer.mapped() + offset);
}

/// A number as a device word of this dtype.
std::uint32_t word_of(DType dtype, double value) {
  if (is_float(dtype)) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
}

}  // namespace

double Session::Impl::learning_rate() const {
  if (fixed_lr) return *fixed_lr;
  if (!options.optimizer) return 0;
  const double base =
      std::visit([](const auto& optimizer) { return static_cast<double>(optimizer.lr); }, *options.optimizer);
  return base * options.train.schedule.factor(update);
}

void Session::Impl::retire(Slot& slot) {
  if (!slot.pending) return;
  device().wait(slot.ticket);
  slot.pending = last_bad = false;
  if (!slot.status) return;
  std::int32_t result[2];  // {ErrorCode, number of the check from 1}
  std::memcpy(result, words(*slot.readback, outputs[*slot.status].readback.value()), sizeof result);
  last_bad = result[0] != 0;
  // The status stays until it is cleared: only the first bad step is known.
  if (last_bad && !bad) bad = BadStep{slot.pass, slot.number, result[0], result[1] - 1};
}

void Session::Impl::retire_all() {
  for (std::size_t i = 0; i < kSlots; ++i) retire(slots[(next + i) % kSlots]);  // oldest first
}

Slot& Session::Impl::acquire() {
  retire(slots[next]);
  return slots[next];
}

void Session::Impl::write_hidden(Slot& slot) {
  const auto write = [&](std::size_t index, double value) {
    SessionInput& input = inputs[index];
    if (input.buffers.empty()) return;
    const std::uint32_t word = word_of(input.type.dtype, value);
    if (input.set && input.hidden_word == word) return;  // the device has it already
    *words(*slot.staging, input.staging) = word;
    input.hidden_word = word;
    input.set = input.dirty = true;
  };
  if (lr) write(*lr, learning_rate());
  if (first_micro) write(*first_micro, micro == 0 ? 1 : 0);
}

void Session::Impl::append_uploads(const Slot& slot) {
  bool every = true;
  for (const SessionInput& input : inputs) every &= input.hidden || input.dirty || input.buffers.empty();
  if (every && slot.upload_all) batch.push_back(slot.upload_all.get());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].dirty || !slot.upload[i] || (every && !inputs[i].hidden)) continue;
    batch.push_back(slot.upload[i].get());
  }
}

std::array<bool, 3> Session::Impl::segments_of(Pass pass) const {
  const bool step = pass == Pass::Step && training();
  return {true, step, step && options.update && micro + 1 >= options.train.accumulate};
}

void Session::Impl::run(Pass pass, const Segments& lists) {
  std::string missing;
  for (const SessionInput& input : inputs) {
    if (input.hidden || input.set || input.buffers.empty()) continue;
    missing += std::string(missing.empty() ? "" : ", ") + "'" + input.name + "' " + input.type.to_string();
  }
  if (!missing.empty()) fail(ErrorCode::InvalidArgument, "inputs that were never set: {}", missing);

  const std::array<bool, 3> runs_segment = segments_of(pass);
  const bool step = runs_segment[1], updates = runs_segment[2];
  Slot& slot = acquire();
  write_hidden(slot);
  batch.clear();
  cuts.clear();
  append_uploads(slot);
  double ms = 0;
  for (std::size_t s = 0; s < lists.size(); ++s) {
    if (!runs_segment[s]) continue;
    for (const Chunk& chunk : lists[s]) {
      if (ms > 0 && ms + chunk.ms > options.chunk_ms) {
        cuts.push_back(batch.size());
        ms = 0;
      }
      ms += chunk.ms;
      batch.push_back(chunk.list.get());
    }
  }
  if (slot.download) batch.push_back(slot.download.get());
  slot.ticket = weights.impl().submit(batch, cuts);

  slot.pending = true;
  const bool has_status = status_segment && runs_segment[static_cast<std::size_t>(*status_segment)];
  slot.status = has_status ? status : (step ? std::nullopt : forward_status);
  slot.pass = pass == Pass::Step ? "step" : "forward pass";
  slot.number = step ? update + 1 : runs + 1;
  ++runs;
  for (SessionInput& input : inputs) input.dirty = false;
  seen_by_bad.clear();
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (!runs_segment[s]) continue;
    for (Weights::Impl::Tensor* tensor : assigned[s]) ++tensor->version;
  }
  if (step && options.update) micro = updates ? 0 : micro + 1;
  if (updates) ++update;
  next = (next + 1) % kSlots;
}

void Session::Impl::wait() {
  retire_all();
  device().wait(
      slots[(next + kSlots - 1) % kSlots].ticket);  // a lost device says so at every wait, even with nothing in flight
  if (bad) throw_bad_step();
}

void Session::Impl::throw_bad_step() {
  const BadStep first = *bad;
  gpu::CommandList* clear[] = {clear_status.get()};
  device().submit(clear);  // the next step comes after it
  bad.reset();
  const std::int64_t submitted = update;
  resync();
  const std::string skipped = submitted - update > 1 ? formatted("; {} updates were skipped", submitted - update) : "";
  const auto check = static_cast<std::size_t>(first.check);
  const std::string_view effect = training() ? "was bad and has changed no state" : "was bad";
  fail(static_cast<ErrorCode>(first.code), "{} {} {}: {} {}{}", first.pass, first.number, effect,
       check < plan.checks.size() ? plan.checks[check] : "unknown check",
       first.code == static_cast<std::int32_t>(ErrorCode::OutOfRange) ? "is out of range" : "is not finite", skipped);
}

void Session::Impl::resync() {
  if (!training() || !plan.states.contains(reserved::step)) return;
  const std::string names[] = {std::string(reserved::step)};
  update = static_cast<std::int64_t>(weights.impl().read(names).front().at(0));
}

}  // namespace aeshna
