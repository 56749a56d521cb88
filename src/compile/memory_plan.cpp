#include "compile/memory_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

namespace {

/// Places ranges one by one into the smallest gap between those that are live at the same time.
class Packer {
 public:
  Packer(std::span<const LiveRange> ranges, std::uint64_t alignment, std::uint64_t limit, bool aliasing)
      : ranges_(ranges), alignment_(alignment), limit_(limit), aliasing_(aliasing) {}

  ArenaLayout pack(std::span<const std::uint32_t> order) {
    ArenaLayout layout;
    layout.slots.resize(ranges_.size());
    std::vector<std::vector<std::uint32_t>> members;  // of each arena, by offset
    for (const std::uint32_t index : order) {
      const std::uint64_t bytes = ranges_[index].bytes;
      if (bytes == 0) continue;
      AESHNA_CHECK(bytes <= limit_);
      std::optional<std::uint64_t> offset;
      std::uint32_t arena = 0;
      for (; !offset && arena < members.size(); ++arena) {
        offset = find_gap(layout, members[arena], index);
        if (offset) break;
      }
      if (!offset) {
        members.emplace_back();
        layout.arenas.push_back(0);
        offset = 0;
      }
      layout.slots[index] = {arena, *offset};
      layout.arenas[arena] = std::max(layout.arenas[arena], *offset + bytes);
      const auto at = std::ranges::upper_bound(members[arena], *offset, {},
                                               [&](std::uint32_t i) { return layout.slots[i].offset; });
      members[arena].insert(at, index);
    }
    return layout;
  }

 private:
  /// Best-fitting offset for `index` in an arena; nullopt when it would grow past the limit.
  std::optional<std::uint64_t> find_gap(const ArenaLayout& layout, std::span<const std::uint32_t> members,
                                        std::uint32_t index) const {
    const LiveRange& range = ranges_[index];
    std::optional<std::uint64_t> best;
    std::uint64_t best_size = 0;
    std::uint64_t free_from = 0;  // first aligned byte after the live neighbours so far
    for (const std::uint32_t other : members) {
      if (aliasing_ && !range.overlaps(ranges_[other])) continue;
      const std::uint64_t begin = layout.slots[other].offset;
      if (begin >= free_from + range.bytes && (!best || begin - free_from < best_size)) {
        best = free_from;
        best_size = begin - free_from;
      }
      free_from = std::max(free_from, align_up(begin + ranges_[other].bytes, alignment_));
    }
    if (best) return best;
    if (free_from > limit_ || range.bytes > limit_ - free_from) return std::nullopt;
    return free_from;
  }

  std::span<const LiveRange> ranges_;
  std::uint64_t alignment_, limit_;
  bool aliasing_;
};

void assert_disjoint(std::span<const LiveRange> ranges, const ArenaLayout& layout, std::uint64_t alignment,
                     bool aliasing) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].bytes > 0) order.push_back(i);
  }
  const auto place = [&](std::uint32_t i) { return std::pair(layout.slots[i].arena, layout.slots[i].offset); };
  std::ranges::sort(order, {}, place);
  for (std::size_t a = 0; a < order.size(); ++a) {
    const ArenaSlot& slot = layout.slots[order[a]];
    const std::uint64_t end = slot.offset + ranges[order[a]].bytes;
    AESHNA_CHECK(slot.offset % alignment == 0 && end <= layout.arenas.at(slot.arena));
    for (std::size_t b = a + 1; b < order.size(); ++b) {
      const ArenaSlot& next = layout.slots[order[b]];
      if (next.arena != slot.arena || next.offset >= end) break;
      AESHNA_CHECK(aliasing && !ranges[order[a]].overlaps(ranges[order[b]]));
    }
  }
}

}  // namespace

std::uint64_t ArenaLayout::total() const { return std::accumulate(arenas.begin(), arenas.end(), std::uint64_t{0}); }

ArenaLayout plan_arenas(std::span<const LiveRange> ranges, std::uint64_t alignment, std::uint64_t max_arena_bytes,
                        bool aliasing) {
  std::vector<std::uint32_t> order(ranges.size());
  std::iota(order.begin(), order.end(), 0u);
  Packer packer(ranges, alignment, max_arena_bytes, aliasing);

  std::ranges::stable_sort(order, std::greater<>{}, [&](std::uint32_t i) { return ranges[i].bytes; });
  ArenaLayout by_size = packer.pack(order);
  std::ranges::stable_sort(order, {},
                           [&](std::uint32_t i) { return ranges[i].first; });  // of one group, the largest first
  ArenaLayout by_start = packer.pack(order);

  ArenaLayout& best = by_start.total() < by_size.total() ? by_start : by_size;
  assert_disjoint(ranges, best, alignment, aliasing);
  return std::move(best);
}

}  // namespace aeshna
