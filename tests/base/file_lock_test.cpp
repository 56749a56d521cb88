// One at a time, among threads here; processes are kept apart by the same call of the system.
#include "base/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

TEST(FileLock, TheSecondWaits) {
  const TempDir dir;
  std::optional<FileLock> first(std::in_place, dir / "lock");
  std::atomic<bool> waits = false, has_it = false;
  std::jthread other([&] {
    const FileLock second(dir / "lock", [&] { waits = true; });
    has_it = true;
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_it);
  first.reset();
  other.join();
  EXPECT_TRUE(has_it);
  const FileLock again(dir / "lock", [] { ADD_FAILURE() << "nobody has it"; });
}

TEST(FileLock, Errors) {
  const TempDir dir;
  EXPECT_ERROR(FileLock(dir / "none/lock"), ErrorCode::Io, "cannot lock '");
  const FileLock held(dir / "lock");
  EXPECT_ERROR(FileLock(dir / "lock", [] { throw Error(ErrorCode::Io, "not that long"); }), ErrorCode::Io,
               "not that long");
}

}  // namespace
}  // namespace aeshna::test
