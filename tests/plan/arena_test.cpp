// plan_arenas: no overlap, bounds, alignment, several arenas.
#include <gtest/gtest.h>

#include <algorithm>

#include "aeshna/error.h"
#include "base/checked.h"
#include "base/philox.h"
#include "compile/memory_plan.h"

namespace aeshna {
namespace {

std::vector<LiveRange> random_ranges(PhiloxStream& stream) {
  std::vector<LiveRange> ranges(1 + stream.next_below(60));
  for (LiveRange& range : ranges) {
    range.bytes = stream.next_below(4) == 0 ? stream.next_below(20) * 4 : stream.next_below(5000) * 4;
    range.first = static_cast<std::uint32_t>(stream.next_below(30));
    range.last = range.first + static_cast<std::uint32_t>(stream.next_below(8));
  }
  return ranges;
}

/// Compares every pair, which the planner's own assertion does not do.
void expect_sound(std::span<const LiveRange> ranges, const ArenaLayout& layout, std::uint64_t alignment,
                  bool aliasing) {
  ASSERT_EQ(layout.slots.size(), ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].bytes == 0) continue;
    const ArenaSlot& a = layout.slots[i];
    ASSERT_EQ(a.offset % alignment, 0u);
    ASSERT_LE(a.offset + ranges[i].bytes, layout.arenas.at(a.arena));
    for (std::size_t j = 0; j < i; ++j) {
      const ArenaSlot& b = layout.slots[j];
      const bool both_live = ranges[i].first <= ranges[j].last && ranges[j].first <= ranges[i].last;
      if (ranges[j].bytes == 0 || a.arena != b.arena || (aliasing && !both_live)) continue;
      ASSERT_TRUE(a.offset + ranges[i].bytes <= b.offset || b.offset + ranges[j].bytes <= a.offset)
          << i << " and " << j;
    }
  }
}

TEST(Arenas, RandomRangesNeverOverlap) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    PhiloxStream stream(seed, 1);
    const auto ranges = random_ranges(stream);
    const std::uint64_t alignment = std::uint64_t{16} << stream.next_below(5);
    std::uint64_t sum = 0;
    std::uint64_t most_live = 0;
    for (const LiveRange& range : ranges) {
      sum += align_up(range.bytes, alignment);
      std::uint64_t live = 0;
      for (const LiveRange& other : ranges)
        live += other.first <= range.first && range.first <= other.last ? other.bytes : 0;
      most_live = std::max(most_live, live);
    }
    const ArenaLayout shared = plan_arenas(ranges, alignment, 1u << 30, true);
    const ArenaLayout apart = plan_arenas(ranges, alignment, 1u << 30, false);
    expect_sound(ranges, shared, alignment, true);
    expect_sound(ranges, apart, alignment, false);
    EXPECT_LE(shared.total(), apart.total());
    EXPECT_LE(apart.total(), sum);
    EXPECT_GE(shared.total(), most_live);
    const ArenaLayout split = plan_arenas(ranges, alignment, 20480, true);
    expect_sound(ranges, split, alignment, true);
    for (const std::uint64_t bytes : split.arenas) EXPECT_LE(bytes, 20480u);
  }
}

TEST(Arenas, DisjointLivesShareMemory) {
  const LiveRange ranges[] = {{1024, 0, 1}, {1024, 2, 3}, {512, 4, 4}, {512, 4, 5}};
  const ArenaLayout layout = plan_arenas(ranges, 256, 1 << 20, true);
  EXPECT_EQ(layout.total(), 1024u);
  EXPECT_EQ(plan_arenas(ranges, 256, 1 << 20, false).total(), 3072u);
}

TEST(Arenas, LivesThatTouchInOneGroupDoNotShare) {
  const LiveRange ranges[] = {{1024, 0, 1}, {1024, 1, 2}};
  EXPECT_EQ(plan_arenas(ranges, 256, 1 << 20, true).total(), 2048u);
}

TEST(Arenas, NothingIsNothing) {
  EXPECT_EQ(plan_arenas({}, 256, 1 << 20, true).total(), 0u);
  const LiveRange empty[] = {{0, 0, 0}};
  EXPECT_TRUE(plan_arenas(empty, 256, 1 << 20, true).arenas.empty());
  const LiveRange large[] = {{2048, 0, 0}};
  EXPECT_THROW(plan_arenas(large, 256, 1024, true), Error);
}

}  // namespace
}  // namespace aeshna
