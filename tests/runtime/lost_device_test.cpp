// Injected failures over the Null device: every one is an Error, and training goes on from a checkpoint on a fresh
// device.
#include <filesystem>

#include "gpu/device.h"
#include "runtime/tiny_model.h"

namespace aeshna {
namespace {

using test::build_tiny;
using test::message_of;
using test::set_rows;

Device faulty(gpu::FaultPlan plan) { return Device(gpu::with_faults(gpu::open_null({}), plan)); }

CompileOptions training() { return {.mode = Mode::Training, .optimizer = Sgd{.lr = 0.1f, .momentum = 0.9f}}; }

TEST(LostDevice, AtSubmitOrWaitIsAnErrorFromWhichASessionIsRebuilt) {
  const auto path = std::filesystem::temp_directory_path() / "aeshna_lost_device.safetensors";
  Graph g;
  build_tiny(g);
  const Dataset data = test::tiny_data(12);
  std::uint64_t compile_submissions = 0;
  {
    const Device device(gpu::open_null({}));
    const Weights weights(g, {.seed = 1, .device = device});
    Session s = compile(g, weights, training());
    compile_submissions = device.impl().counters().submissions;
  }
  for (const bool at_submit : {true, false}) {
    gpu::FaultPlan plan;
    if (at_submit) {
      plan.lose_at_submit = compile_submissions + 6;
    } else {
      plan.lose_at_wait = compile_submissions + 6;  // at least as many waits as submissions so far
    }
    const Weights weights(g, {.seed = 1, .device = faulty(plan)});
    Session s = compile(g, weights, training());
    set_rows(s, data, 0);
    s.step();
    s.save(path, "position");
    const std::string text = message_of(ErrorCode::DeviceLost, [&] {
      for (int i = 0; i < 20; ++i) {
        set_rows(s, data, i);
        s.step();
        s.wait();
      }
    });
    EXPECT_HAS(text, "lost");
    // It stays lost, and says so.
    message_of(ErrorCode::DeviceLost, [&] { s.step(); });
    message_of(ErrorCode::DeviceLost, [&] { s.wait(); });
    message_of(ErrorCode::DeviceLost, [&] { (void)weights.get("w1"); });
    message_of(ErrorCode::DeviceLost, [&] { s.save(path); });

    const Weights fresh(g, {.seed = 2, .device = Device(gpu::open_null({}))});
    Session again = compile(g, fresh, training());
    EXPECT_EQ(again.load(path), "position") << "the failed save left the checkpoint alone";
    set_rows(again, data, 0);
    again.step();
    again.wait();
  }
  std::filesystem::remove(path);
}

TEST(LostDevice, CompileFailsCleanly) {
  Graph g;
  build_tiny(g);
  const Device probe(gpu::open_null({}));
  {
    const Weights weights(g, {.seed = 1, .device = probe});
    Session s = compile(g, weights, training());
  }
  const gpu::DeviceCounters uses = probe.impl().counters();
  ASSERT_GT(uses.kernels_created, 0u);
  for (std::uint64_t n = 1; n <= uses.buffers_created; ++n) {
    message_of(ErrorCode::OutOfMemory, [&] {
      const Weights weights(g, {.seed = 1, .device = faulty({.out_of_memory_at_buffer = n})});
      Session s = compile(g, weights, training());
    });
  }
  for (std::uint64_t n = 1; n <= uses.kernels_created; ++n) {
    EXPECT_HAS(message_of(ErrorCode::Unsupported,
                          [&] {
                            const Weights weights(g, {.seed = 1, .device = faulty({.fail_at_kernel = n})});
                            Session s = compile(g, weights, training());
                          }),
               "kernel");
  }
  for (std::uint64_t n = 1; n <= uses.lists_recorded; ++n) {
    message_of(ErrorCode::OutOfMemory, [&] {
      const Weights weights(g, {.seed = 1, .device = faulty({.fail_at_record = n})});
      Session s = compile(g, weights, training());
    });
  }
  for (std::uint64_t n = 1; n <= uses.submissions; ++n) {
    message_of(ErrorCode::DeviceLost, [&] {
      const Weights weights(g, {.seed = 1, .device = faulty({.lose_at_submit = n})});
      Session s = compile(g, weights, training());
    });
  }
}

/// After a failed compile the same weights serve a second one.
TEST(LostDevice, WeightsSurviveAFailedCompile) {
  Graph g;
  build_tiny(g);
  const Weights weights(g, {.seed = 1, .device = faulty({.fail_at_kernel = 1})});
  const Literal before = weights.get("w1");
  message_of(ErrorCode::Unsupported, [&] { compile(g, weights, training()); });
  EXPECT_EQ(weights.get("w1"), before);
  Session s = compile(g, weights, training());
  set_rows(s, test::tiny_data(12), 0);
  s.step();
  s.wait();
}

}  // namespace
}  // namespace aeshna
