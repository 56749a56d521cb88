#pragma once
// How much memory the program takes: AddressSanitizer's hooks count, or the test program's own operator new (memory.cpp) in builds with
// AESHNA_DEBUG_COUNTERS; elsewhere nothing does.
#include <cstddef>

namespace aeshna::test {

/// Bytes that this thread has allocated and not freed since the construction, at their peak; 0 where nothing counts. One at a time.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;
  std::size_t peak() const;
};

/// Calls of operator new by this thread so far; 0 where they are not counted.
std::size_t allocation_count();

}  // namespace aeshna::test
