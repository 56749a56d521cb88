// Which kernels stay compiled, over the Null device: a session is what holds the kernels that the cache hands out.
#include "runtime/kernel_cache.h"

#include <thread>

#include "base/format.h"
#include "base/philox.h"
#include "runtime/store.h"
#include "runtime/tiny_model.h"

namespace aeshna {
namespace {

using Kernels = std::vector<std::shared_ptr<gpu::Kernel>>;

/// A plan of the kernels numbered first, first + 1, ...
Plan plan_of(std::size_t first, std::size_t count) {
  Plan plan;
  for (std::size_t i = first; i < first + count; ++i) {
    PlanKernel kernel;
    kernel.name = formatted("kernel {}", i);
    kernel.source.key = formatted("{}", i);
    kernel.source.glsl = "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n";
    plan.kernels.push_back(kernel);
  }
  return plan;
}

class KernelCacheTest : public testing::Test {
 protected:
  Kernels get(std::size_t first, std::size_t count) { return cache.get(*device, plan_of(first, count), 1); }
  std::uint64_t compiled() const { return device->counters().kernels_created; }

  std::shared_ptr<gpu::Device> device = gpu::open_null({});
  KernelCache cache{{}};
};

TEST_F(KernelCacheTest, ASessionOpenedAgainCompilesNothing) {
  for (const std::size_t count : {std::size_t{10}, kIdleKernels + 10}) {
    get(0, count);
    const std::uint64_t before = compiled();
    get(0, count);
    EXPECT_EQ(compiled(), before);
  }
}

TEST_F(KernelCacheTest, IdleKernelsAreBounded) {
  const Kernels live = get(0, 10);
  for (std::size_t session = 1; session <= kIdleKernels / 4; ++session) {
    const Kernels other = get(session * 10, 10);
    EXPECT_LE(cache.size(), live.size() + other.size() + kIdleKernels);
  }
  EXPECT_EQ(cache.size(), 20 + kIdleKernels);
}

TEST_F(KernelCacheTest, KernelsInUseStayWhateverTheirNumber) {
  const Kernels live = get(0, kIdleKernels * 2);
  get(kIdleKernels * 2, kIdleKernels + 10);
  EXPECT_EQ(cache.size(), kIdleKernels * 3 + 10);
  const std::uint64_t before = compiled();
  EXPECT_EQ(get(0, kIdleKernels * 2), live);
  EXPECT_EQ(compiled(), before);
}

/// What counts is when a kernel was in use last, not when it was asked for.
TEST_F(KernelCacheTest, TheLeastRecentlyUsedGoFirst) {
  Kernels longest = get(0, 10);
  get(10, kIdleKernels);
  get(0, 1);
  longest.clear();
  get(10 + kIdleKernels, 10);  // 10 must go: not those of the session that closed last, though they are the oldest
  const std::uint64_t before = compiled();
  get(0, 10);
  EXPECT_EQ(compiled(), before);
  get(10, kIdleKernels);
  EXPECT_GT(compiled(), before);
}

TEST_F(KernelCacheTest, AFailedCompileDropsNothing) {
  get(0, 10);
  Plan broken = plan_of(10, 2);
  broken.kernels[1].source.glsl = "nonsense";
  EXPECT_THROW(cache.get(*device, broken, 1), Error);
  const std::uint64_t before = compiled();
  get(0, 10);
  EXPECT_EQ(compiled(), before);
}

/// Two sessions that are open at the same time and ask for one kernel hold the same one.
TEST_F(KernelCacheTest, ThreadsOpenAndCloseSessions) {
  constexpr std::size_t kThreads = 4, kSessions = 60, kSize = 40, kUniverse = kIdleKernels + 100;
  std::mutex mutex;
  std::map<std::size_t, std::pair<gpu::Kernel*, int>> open;  // of each kernel: which, and how many sessions hold it
  const auto work = [&](std::uint64_t thread) {
    PhiloxStream random(1, thread);
    for (std::size_t session = 0; session < kSessions; ++session) {
      const std::size_t first = random.next_below(kUniverse - kSize);
      const Kernels kernels = cache.get(*device, plan_of(first, kSize), 2);
      {
        const std::scoped_lock lock(mutex);
        for (std::size_t i = 0; i < kSize; ++i) {
          auto& [kernel, holders] = open[first + i];
          EXPECT_TRUE(holders == 0 || kernel == kernels[i].get()) << "kernel " << first + i << " was compiled twice";
          kernel = kernels[i].get();
          ++holders;
        }
      }
      std::this_thread::yield();
      const std::scoped_lock lock(mutex);
      for (std::size_t i = 0; i < kSize; ++i) --open[first + i].second;
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  threads.clear();
  get(0, 1);
  EXPECT_LE(cache.size(), kIdleKernels + 1);
  EXPECT_GT(compiled(), kUniverse) << "nothing was dropped meanwhile";
}

/// The same through sessions: they let go of their kernels when they close, and not before.
TEST(KernelCacheSession, HoldsItsKernelsWhileItIsOpen) {
  Graph g;
  test::build_tiny(g);
  const std::shared_ptr<gpu::Device> device = gpu::open_null({});
  device->attached([] { return std::make_shared<KernelCache>(std::filesystem::path()); });  // not the user's, on disk
  const Weights weights(g, {.device = Device(device)});
  KernelCache& cache = *weights.impl().kernels;
  const auto compiled = [&] { return device->counters().kernels_created; };
  /// Two other sessions come and go: the idle kernels that were there before are the least recently used ones.
  const auto churn = [&] {
    for (const std::size_t i : {0, 1}) cache.get(*device, plan_of(i * (kIdleKernels + 1), kIdleKernels + 1), 1);
  };

  std::optional<Session> session(compile(g, weights));
  const std::uint64_t own = compiled();
  ASSERT_GT(own, 1u);
  churn();
  std::uint64_t before = compiled();
  session.emplace(compile(g, weights));
  EXPECT_EQ(compiled(), before) << "of a session that is open";

  session.reset();
  session.emplace(compile(g, weights));
  EXPECT_EQ(compiled(), before) << "of one that has just closed";

  session.reset();
  churn();
  before = compiled();
  session.emplace(compile(g, weights));
  EXPECT_EQ(compiled(), before + own) << "of one that closed long ago";
}

}  // namespace
}  // namespace aeshna
