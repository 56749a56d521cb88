// A step allocates nothing on the host either. Only in builds that count (AESHNA_DEBUG_COUNTERS), since the counter
// (support/memory.cpp) replaces the program's operator new; not with sanitizers, which replace it themselves. The Null device is used
// because drivers allocate as they please.
#if defined(AESHNA_DEBUG_COUNTERS) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "gpu/device.h"
#include "runtime/tiny_model.h"
#include "support/memory.h"

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

  const std::size_t before = test::allocation_count();
  const auto probe = std::make_unique<int>(1);
  ASSERT_EQ(test::allocation_count(), before + 1) << "the counter counts";
  for (int i = 0; i < 100; ++i) step();
  s.forward();
  s.wait();
  EXPECT_EQ(test::allocation_count(), before + 1);
}

}  // namespace
}  // namespace aeshna
#endif
