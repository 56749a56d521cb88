#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "aeshna/error.h"
#include "aeshna/optim.h"

namespace aeshna {
namespace {

TEST(Schedule, Constant) {
  for (const std::int64_t t : {0, 1, 1000000}) EXPECT_EQ(Schedule::constant().factor(t), 1);
}

TEST(Schedule, WarmupIsLinearFromOneOverNToOne) {
  Schedule s;
  s.warmup = 4;
  EXPECT_DOUBLE_EQ(s.factor(0), 0.25);
  EXPECT_DOUBLE_EQ(s.factor(1), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(3), 1);
  EXPECT_DOUBLE_EQ(s.factor(4), 1);
}

TEST(Schedule, StepsAfterTheWarmup) {
  const Schedule s = Schedule::step(10, 0.5, 2);
  EXPECT_DOUBLE_EQ(s.factor(0), 0.5);  // warm-up
  EXPECT_DOUBLE_EQ(s.factor(1), 1);
  EXPECT_DOUBLE_EQ(s.factor(2), 1);
  EXPECT_DOUBLE_EQ(s.factor(11), 1);
  EXPECT_DOUBLE_EQ(s.factor(12), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(21), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(22), 0.25);
}

TEST(Schedule, CosineEndsAtTheFloor) {
  const Schedule s = Schedule::cosine(110, 10, 0.1);
  EXPECT_DOUBLE_EQ(s.factor(9), 1);
  EXPECT_DOUBLE_EQ(s.factor(10), 1);
  EXPECT_DOUBLE_EQ(s.factor(35), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * 0.25)));
  EXPECT_DOUBLE_EQ(s.factor(60), 0.55);
  EXPECT_DOUBLE_EQ(s.factor(110), 0.1);
  EXPECT_DOUBLE_EQ(s.factor(100000), 0.1);
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  const auto refused = [](auto f) {
    try {
      f();
    } catch (const Error& e) {
      return e.code() == ErrorCode::InvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(refused([] { Schedule::step(0, 0.1); }));
  EXPECT_TRUE(refused([] { Schedule::step(10, 0.1, -1); }));
  EXPECT_TRUE(refused([] { Schedule::cosine(10, 10); }));
  EXPECT_TRUE(refused([] { Schedule::constant().factor(-1); }));
}

}  // namespace
}  // namespace aeshna
