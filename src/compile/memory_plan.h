#pragma once
// Offsets of transient tensors in arenas, from their lifetimes.
#include <cstdint>
#include <span>
#include <vector>

namespace aeshna {

/// Memory that is needed in barrier groups first..last, both inclusive.
struct LiveRange {
  std::uint64_t bytes = 0;
  std::uint32_t first = 0, last = 0;
  bool overlaps(const LiveRange& other) const { return first <= other.last && other.first <= last; }
};

struct ArenaSlot {
  std::uint32_t arena = 0;
  std::uint64_t offset = 0;
};

struct ArenaLayout {
  std::vector<ArenaSlot> slots;       ///< one per range; ranges of 0 bytes lie at offset 0 of arena 0
  std::vector<std::uint64_t> arenas;  ///< bytes of each arena buffer
  std::uint64_t total() const;
};

/// Ranges live in a common group get disjoint memory; with `aliasing` off, all do. Offsets are multiples of `alignment`; a new
/// arena is begun where one would grow past `max_arena_bytes`. Greedy best fit, largest first and earliest first; the smaller result counts.
/// Every range must fit max_arena_bytes (the caller names the tensor otherwise). Deterministic; asserts that nothing overlaps.
ArenaLayout plan_arenas(std::span<const LiveRange> ranges, std::uint64_t alignment, std::uint64_t max_arena_bytes,
                        bool aliasing);

}  // namespace aeshna
