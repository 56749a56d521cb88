// A step allocates nothing on the host either. Only in builds that count (AESHNA_DEBUG_COUNTERS), since the counter
// replaces the program's operator new; not with sanitizers, which replace it themselves. The Null device is used
// because drivers allocate as they please.
#if defined(AESHNA_DEBUG_COUNTERS) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <cstdlib>
#include <new>

#include "gpu/device.h"
#include "runtime/tiny_model.h"

namespace {
thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace aeshna {
namespace {

TEST(SessionAllocations, AStepMakesNone) {
  Graph g;
  test::build_tiny(g);
  const Weights weights(g, {.seed = 1, .device = Device(gpu::open_null({}))});
  CompileOptions options{.mode = Mode::Training, .optimizer = Adam{}};
  options.train.accumulate = 2;
  options.train.schedule = Schedule::cosine(1000, 10);
  Session s = compile(g, weights, options);
  const std::vector<float> x(test::kBatch * test::kFeatures, 0.5f);
  const std::vector<std::int32_t> y(test::kBatch, 1);
  const auto step = [&] {
    s.set("x", std::span<const float>(x));
    s.set("y", std::span<const std::int32_t>(y));
    s.step();
  };
  step();
  step();

  const std::size_t before = allocations;
  const auto probe = std::make_unique<int>(1);
  ASSERT_EQ(allocations, before + 1) << "the counter counts";
  for (int i = 0; i < 100; ++i) step();
  s.forward();
  s.wait();
  EXPECT_EQ(allocations, before + 1);
}

}  // namespace
}  // namespace aeshna
#endif
