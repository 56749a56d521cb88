#include "support/memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define AESHNA_COUNTS_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AESHNA_COUNTS_HOOKS 1
#endif
#endif

#if defined(AESHNA_COUNTS_HOOKS)
// Of sanitizer/allocator_interface.h, which gcc does not come with.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}
#elif defined(AESHNA_DEBUG_COUNTERS) && !defined(__SANITIZE_THREAD__)
#define AESHNA_COUNTS_NEW 1
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#endif

namespace {

struct Count {
  bool watching = false;
  std::ptrdiff_t live = 0, peak = 0;
  std::size_t calls = 0;
};
thread_local Count count;

#if defined(AESHNA_COUNTS_HOOKS) || defined(AESHNA_COUNTS_NEW)
void taken(std::size_t bytes) {
  if (!count.watching) return;
  count.live += static_cast<std::ptrdiff_t>(bytes);
  count.peak = std::max(count.peak, count.live);
}
void given(std::size_t bytes) {
  if (count.watching) count.live -= static_cast<std::ptrdiff_t>(bytes);
}
#endif

}  // namespace

#if defined(AESHNA_COUNTS_HOOKS)

namespace {
void on_malloc(const volatile void*, std::size_t bytes) { taken(bytes); }
void on_free(const volatile void* memory) {
  if (memory != nullptr && count.watching) given(__sanitizer_get_allocated_size(memory));
}
}  // namespace

#elif defined(AESHNA_COUNTS_NEW)

namespace {
std::size_t usable(void* memory) {
#if defined(__GLIBC__)
  return malloc_usable_size(memory);
#else
  return memory == nullptr ? 0 : 1;
#endif
}
void* counted(std::size_t bytes) {
  ++count.calls;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  taken(usable(memory));
  return memory;
}
void released(void* memory) {
  given(usable(memory));
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { released(memory); }
void operator delete[](void* memory) noexcept { released(memory); }
void operator delete(void* memory, std::size_t) noexcept { released(memory); }
void operator delete[](void* memory, std::size_t) noexcept { released(memory); }

#endif

namespace aeshna::test {

MemoryWatch::MemoryWatch() {
#if defined(AESHNA_COUNTS_HOOKS)
  [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
#endif
  count.live = count.peak = 0;
  count.watching = true;
}
MemoryWatch::~MemoryWatch() { count.watching = false; }
std::size_t MemoryWatch::peak() const { return static_cast<std::size_t>(count.peak); }

std::size_t allocation_count() { return count.calls; }

}  // namespace aeshna::test
