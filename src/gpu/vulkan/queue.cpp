// The timeline: submission, waiting, and the end of life of what submissions use.
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/format.h"
#include "base/log.h"
#include "gpu/vulkan/core.h"

namespace aeshna::gpu::vk {

Ticket Core::submit(std::span<const VkCommandBuffer> lists, std::vector<std::shared_ptr<void>> keep_alive) {
  require_alive();
  collect();
  const std::lock_guard lock(queue_mutex_);
  const Ticket ticket = submitted_ + 1;
  VkTimelineSemaphoreSubmitInfo values{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &ticket;
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
  info.pNext = &values;
  info.commandBufferCount = static_cast<std::uint32_t>(lists.size());
  info.pCommandBuffers = lists.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline;
  // The entry is made first: once the queue has the work, nothing may fail before its objects are kept.
  pending_.push_back({ticket, std::move(keep_alive), {}});
  const VkResult result = fn.vkQueueSubmit(native.queue, 1, &info, VK_NULL_HANDLE);
  if (result != VK_SUCCESS) {
    // After a loss the driver may still hold the work; the objects stay until the device is drained.
    if (result != VK_ERROR_DEVICE_LOST) pending_.pop_back();
    check(result, "vkQueueSubmit");
  }
  submitted_ = ticket;
  return ticket;
}

void Core::wait(Ticket ticket, double timeout_s) {
  require_alive();
  {
    const std::lock_guard lock(queue_mutex_);
    if (ticket > submitted_)
      fail(ErrorCode::InvalidArgument, "ticket {} was never submitted; the last one is {}", ticket, submitted_);
  }
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline;
  info.pValues = &ticket;
  constexpr double max_seconds = 1e9;  // what fits 64 bits of nanoseconds with room to spare
  const double seconds = std::isnan(timeout_s) ? 0 : std::clamp(timeout_s, 0.0, max_seconds);
  const VkResult result = fn.vkWaitSemaphores(device(), &info, static_cast<std::uint64_t>(seconds * 1e9));
  if (result == VK_TIMEOUT)
    lose(formatted(
        "submission {} did not finish within the timeout of {} s (a hung kernel, or a chunk that takes too long)",
        ticket, timeout_s));
  check(result, "vkWaitSemaphores");
  collect();
}

Ticket Core::completed() {
  Ticket value = 0;
  check(fn.vkGetSemaphoreCounterValue(device(), timeline, &value), "vkGetSemaphoreCounterValue");
  return value;
}

void Core::retire(std::function<void()> destroy) {
  {
    const std::lock_guard lock(queue_mutex_);
    Ticket done = 0;
    const bool known = fn.vkGetSemaphoreCounterValue(device(), timeline, &done) == VK_SUCCESS;
    // Called by destructors, hence no throw. An empty queue (after a loss: a drained one) has nothing left to wait for.
    if (!pending_.empty() && (!known || done < submitted_)) {
      pending_.push_back({submitted_, {}, std::move(destroy)});
      return;
    }
  }
  destroy();
}

void Core::collect() {
  std::vector<Pending> finished;  // destroyed outside the lock: destructors of buffers come back to retire()
  {
    const std::lock_guard lock(queue_mutex_);
    if (pending_.empty()) return;
    Ticket done = 0;
    if (fn.vkGetSemaphoreCounterValue(device(), timeline, &done) != VK_SUCCESS) return;
    while (!pending_.empty() && pending_.front().ticket <= done) {
      finished.push_back(std::move(pending_.front()));
      pending_.pop_front();
    }
  }
  for (Pending& entry : finished)
    if (entry.destroy) entry.destroy();
}

bool Core::drain() {
  Ticket last = 0;
  {
    const std::lock_guard lock(queue_mutex_);
    last = submitted_;
  }
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline;
  info.pValues = &last;
  // A device lost to a timeout may only be slow: some seconds of grace. One that the driver lost answers at once.
  const VkResult result = fn.vkWaitSemaphores(device(), &info, lost_ ? 10'000'000'000ull : 60'000'000'000ull);
  if (result == VK_TIMEOUT) {
    log(LogLevel::Warning, "device {} still runs a submission; its memory is not released", caps.device_name);
    return false;
  }
  std::deque<Pending> finished;
  {
    const std::lock_guard lock(queue_mutex_);
    finished.swap(pending_);
  }
  for (Pending& entry : finished)
    if (entry.destroy) entry.destroy();
  return true;
}

}  // namespace aeshna::gpu::vk
