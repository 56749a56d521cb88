// The Vulkan back end on whatever device AESHNA_DEVICE or the default gives: the software driver in CI.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "aeshna/device.h"
#include "base/env.h"
#include "gpu_support.h"

namespace aeshna::gpu {
namespace {

class VulkanDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() { shared() = open_vulkan({}); }
  static void TearDownTestSuite() { shared().reset(); }
  static std::shared_ptr<Device>& shared() {
    static std::shared_ptr<Device> device;
    return device;
  }
  Device& device() { return *shared(); }
  std::shared_ptr<Buffer> buffer(std::uint64_t words, MemoryKind kind = MemoryKind::Device) {
    return device().create_buffer(words * 4, kind, "test buffer");
  }
};

const TestKernel& add_kernel() {
  static const TestKernel kernel = test_kernel("add", "b[i] = b[i] + a[i] + k;");
  return kernel;
}

std::vector<std::uint32_t> iota(std::uint32_t n) {
  std::vector<std::uint32_t> words(n);
  for (std::uint32_t i = 0; i < n; ++i) words[i] = i * 2654435761u;
  return words;
}

TEST_F(VulkanDevice, CapsAreSane) {
  const Caps& caps = device().caps();
  EXPECT_EQ(caps.device_name, device().info().name);
  EXPECT_GE(caps.max_storage_range, 1ull << 27);
  EXPECT_GE(caps.max_groups[0], 65535u);
  EXPECT_GE(caps.max_invocations, 128u);
  EXPECT_GE(caps.shared_bytes, 16384u);
  EXPECT_GE(caps.push_bytes, 128u);
  EXPECT_GE(caps.max_storage_buffers, 4u);
  EXPECT_GT(caps.device_memory, 0u);
  EXPECT_GT(caps.compute_units, 0u);
  EXPECT_LE(caps.storage_alignment, 256u);
  EXPECT_EQ(caps, parse_caps(print_caps(caps)));
}

TEST_F(VulkanDevice, ListedByThePublicApi) {
  const auto devices = list_devices();
  ASSERT_FALSE(devices.empty());
  for (std::size_t i = 0; i < devices.size(); ++i) EXPECT_EQ(devices[i].index, i);
  const auto mine = std::ranges::find(devices, device().info().uuid, &DeviceInfo::uuid);
  ASSERT_NE(mine, devices.end());
  EXPECT_EQ(aeshna::Device({.selector = mine->uuid}).info().name, mine->name);
  EXPECT_EQ(aeshna::Device({.selector = std::to_string(mine->index)}).info().uuid, mine->uuid);
}

TEST_F(VulkanDevice, UnknownDeviceListsWhatExists) {
  const std::string text = error_text(ErrorCode::NoDevice, [] { open_vulkan({.selector = "no such device"}); });
  EXPECT_NE(text.find(device().info().name), std::string::npos) << text;
}

TEST_F(VulkanDevice, CapsOverridesRestrict) {
  const auto small = open_vulkan({.selector = device().info().uuid, .caps = "max_groups=7,shared_bytes=1024"});
  EXPECT_EQ(small->caps().max_groups[2], 7u);
  EXPECT_EQ(small->caps().shared_bytes, 1024u);
  KernelDesc desc = add_kernel().desc;
  desc.spirv = add_kernel().spirv;
  desc.shared_bytes = 2048;
  error_text(ErrorCode::LimitExceeded, [&] { small->create_kernel(desc); });
  error_text(ErrorCode::InvalidArgument, [&] { open_vulkan({.caps = "shared_bytes=99999999"}); });
}

TEST_F(VulkanDevice, UploadAndDownload) {
  for (const std::uint32_t n : {1u, 3u, 64u, 1000003u}) {
    const auto b = buffer(n);
    upload(device(), b, iota(n));
    EXPECT_EQ(download(device(), b), iota(n)) << n;
  }
}

TEST_F(VulkanDevice, FillExactRange) {
  const auto b = buffer(16);
  run(device(), {FillCommand{all(b), 1}, BarrierCommand{}, FillCommand{{b.get(), 8, 12}, 0xdeadbeef}});
  std::vector<std::uint32_t> expected(16, 1);
  expected[2] = expected[3] = expected[4] = 0xdeadbeef;
  EXPECT_EQ(download(device(), b), expected);
}

TEST_F(VulkanDevice, DispatchesAreOrderedByBarriers) {
  constexpr std::uint32_t n = 1000;
  const auto kernel = create(device(), add_kernel());
  const auto a = buffer(n), b = buffer(n);
  upload(device(), a, iota(n));
  std::vector<Command> commands{FillCommand{all(b), 5}};
  for (std::uint32_t i = 0; i < 50; ++i) {
    commands.emplace_back(BarrierCommand{});
    commands.emplace_back(dispatch(kernel, all(a), all(b), n, i));
  }
  run(device(), commands);
  const auto result = download(device(), b);
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(result[i], 5 + 50 * iota(n)[i] + 49 * 50 / 2) << i;
}

TEST_F(VulkanDevice, OperandsAreExactRangesOfABuffer) {
  const std::uint32_t step = std::max(device().caps().storage_alignment, 256u) / 4;
  const auto kernel = create(device(), add_kernel());
  const auto arena = buffer(3 * step);
  upload(device(), arena, std::vector<std::uint32_t>(3 * step, 1));
  run(device(), {dispatch(kernel, {arena.get(), step * 4, 40}, {arena.get(), step * 8, 40}, 10, 100)});
  const auto result = download(device(), arena);
  for (std::uint32_t i = 0; i < 3 * step; ++i)
    ASSERT_EQ(result[i], i >= 2 * step && i < 2 * step + 10 ? 102u : 1u) << i;
}

TEST_F(VulkanDevice, EmptyOperandsAndEmptyGrids) {
  const auto kernel = create(device(), test_kernel("store", "b[i] = k;"));
  const auto empty = buffer(0), b = buffer(4);
  EXPECT_EQ(empty->size(), 0u);
  run(device(), {FillCommand{all(b), 1}, BarrierCommand{}, dispatch(kernel, all(empty), all(b), 2, 9), BarrierCommand{},
                 dispatch(kernel, all(empty), all(b), 0, 7), CopyCommand{{b.get(), 0, 0}, {b.get(), 0, 0}},
                 FillCommand{all(empty), 3}});
  EXPECT_EQ(download(device(), b), (std::vector<std::uint32_t>{9, 9, 1, 1}));
}

TEST_F(VulkanDevice, OneListMayBeInFlightManyTimes) {
  const auto kernel = create(device(), add_kernel());
  const auto a = buffer(64), b = buffer(64);
  run(device(), {FillCommand{all(a), 1}, FillCommand{all(b), 0}});
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 64, 1)};
  const auto list = device().record(commands, {}, "step");
  CommandList* const twice[] = {list.get(), list.get()};
  Ticket last = 0;
  for (int i = 0; i < 100; ++i) {
    const Ticket ticket = device().submit(twice);
    EXPECT_GT(ticket, last);
    last = ticket;
  }
  device().wait(last);
  EXPECT_TRUE(device().done(last));
  EXPECT_EQ(download(device(), b), std::vector<std::uint32_t>(64, 400));
}

TEST_F(VulkanDevice, ThousandSubmissionsInConstantMemory) {
  const auto kernel = create(device(), add_kernel());
  const auto a = buffer(1024), b = buffer(1024);
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 1024, 1)};
  const auto list = device().record(commands, {}, "step");
  CommandList* const lists[] = {list.get()};
  const auto resident = [] {
    std::uint64_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * 4096;
  };
  for (int i = 0; i < 200; ++i) device().wait(device().submit(lists));
  const auto memory = device().memory_in_use();
  const auto counters = device().counters();
  const std::uint64_t before = resident();
  for (int i = 0; i < 1000; ++i) device().wait(device().submit(lists));
  EXPECT_EQ(device().counters().buffers_created, counters.buffers_created);
  EXPECT_EQ(device().counters().lists_recorded, counters.lists_recorded);
  EXPECT_EQ(device().counters().submissions, counters.submissions + 1000);
  // The software driver counts the whole process as device memory.
  if (memory && !device().caps().unified_memory) {
    EXPECT_EQ(device().memory_in_use(), memory);
  }
  EXPECT_LT(resident(), before + (2u << 20));
}

TEST_F(VulkanDevice, EverythingMayBeDroppedInFlight) {
  std::shared_ptr<Buffer> result = buffer(64);
  Ticket ticket = 0;
  {
    const auto kernel = create(device(), add_kernel());
    const auto a = buffer(64);
    const std::vector<Command> commands{FillCommand{all(a), 3}, FillCommand{all(result), 1}, BarrierCommand{},
                                        dispatch(kernel, all(a), all(result), 64, 10)};
    const auto list = device().record(commands, {}, "dropped");
    CommandList* const lists[] = {list.get()};
    ticket = device().submit(lists);
  }
  device().wait(ticket);
  EXPECT_EQ(download(device(), result), std::vector<std::uint32_t>(64, 14));
}

TEST_F(VulkanDevice, AListKeepsItsOwnersAlive) {
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owner;
  auto list = device().record({}, {std::move(owner)}, "owner");
  EXPECT_FALSE(watch.expired());
  list.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(VulkanDevice, ObjectsMayOutliveTheDevice) {
  auto own = open_vulkan({.selector = device().info().uuid});
  const auto b = own->create_buffer(64, MemoryKind::Upload, "survivor");
  const auto kernel = create(*own, add_kernel());
  own.reset();
  std::memset(b->mapped(), 1, 64);
}

TEST_F(VulkanDevice, TwoThreadsOnOneDevice) {
  std::vector<std::uint32_t> failures(2, 0);
  const auto work = [&](std::uint32_t id) {
    for (std::uint32_t round = 0; round < 10; ++round) {
      const auto kernel = create(device(), add_kernel());
      const auto a = buffer(256), b = buffer(256);
      run(device(), {FillCommand{all(a), id}, FillCommand{all(b), round}});
      const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 256, 1)};
      const auto list = device().record(commands, {}, "thread");
      CommandList* const lists[] = {list.get()};
      Ticket last = 0;
      for (int i = 0; i < 20; ++i) last = device().submit(lists);
      device().wait(last);
      if (download(device(), b) != std::vector<std::uint32_t>(256, round + 20 * (id + 1))) ++failures[id];
    }
  };
  std::thread one(work, 0), two(work, 1);
  one.join();
  two.join();
  EXPECT_EQ(failures, std::vector<std::uint32_t>(2, 0));
}

TEST_F(VulkanDevice, TimestampsIncrease) {
  const auto b = buffer(1 << 20);
  run(device(), {TimestampCommand{0}, FillCommand{all(b), 1}, BarrierCommand{}, TimestampCommand{1},
                 FillCommand{all(b), 2}, BarrierCommand{}, TimestampCommand{2}});
  const auto times = device().timestamps(3);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_GE(device().timestamp_slots(), 3u);
  EXPECT_EQ(times[0], 0) << "slot 0 is where they count from";
  EXPECT_GT(times[1], times[0]);
  EXPECT_GT(times[2], times[1]);
  EXPECT_LT(times[2] - times[0], 60e9);
  const std::vector<Command> twice{TimestampCommand{4}, TimestampCommand{4}};
  error_text(ErrorCode::InvalidArgument, [&] { device().record(twice, {}, "twice"); });
}

TEST_F(VulkanDevice, AbsurdSizesAreOutOfMemory) {
  const std::string text =
      error_text(ErrorCode::OutOfMemory, [&] { device().create_buffer(1ull << 60, MemoryKind::Device, "embedding"); });
  for (const char* part : {"embedding", "1152921504606846976", "device"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NO_THROW(buffer(16)) << "and the device goes on";
}

TEST_F(VulkanDevice, MemoryKinds) {
  EXPECT_NE(buffer(16, MemoryKind::Upload)->mapped(), nullptr);
  EXPECT_NE(buffer(16, MemoryKind::Readback)->mapped(), nullptr);
  EXPECT_EQ(buffer(16)->mapped() != nullptr, device().caps().unified_memory);
}

TEST_F(VulkanDevice, WhatIsNoSpirvIsRefused) {
  const std::uint32_t words[] = {1, 2, 3, 4, 5, 6};
  KernelDesc desc{.name = "garbage", .spirv = words};
  EXPECT_NE(error_text(ErrorCode::InvalidArgument, [&] { device().create_kernel(desc); }).find("garbage"),
            std::string::npos);
  desc.spirv = {};
  error_text(ErrorCode::InvalidArgument, [&] { device().create_kernel(desc); });
}

TEST_F(VulkanDevice, FullSubgroups) {
  TestKernel kernel = add_kernel();
  kernel.desc.full_subgroups = true;
  const auto built = create(device(), kernel);
  const auto a = buffer(64), b = buffer(64);
  run(device(),
      {FillCommand{all(a), 1}, FillCommand{all(b), 1}, BarrierCommand{}, dispatch(built, all(a), all(b), 64)});
  EXPECT_EQ(download(device(), b), std::vector<std::uint32_t>(64, 2));
}

TEST_F(VulkanDevice, AWaitThatTimesOutLosesTheDevice) {
  const auto own = open_vulkan({.selector = device().info().uuid});
  const auto kernel = create(
      *own, test_kernel("spin", "uint x = a[i]; for (uint j = 0; j < k; ++j) x = x * 1664525u + (x >> 7); b[i] = x;"));
  const auto a = own->create_buffer(256, MemoryKind::Device, "a"), b = own->create_buffer(256, MemoryKind::Device, "b");
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 64, 4'000'000)};
  const auto list = own->record(commands, {}, "slow");
  CommandList* const lists[] = {list.get()};
  const Ticket ticket = own->submit(lists);
  const std::string text = error_text(ErrorCode::DeviceLost, [&] { own->wait(ticket, 0.001); });
  EXPECT_NE(text.find("0.001"), std::string::npos) << text;
  error_text(ErrorCode::DeviceLost, [&] { own->submit(lists); });
  error_text(ErrorCode::DeviceLost, [&] { own->wait(ticket); });
  error_text(ErrorCode::DeviceLost, [&] { own->done(ticket); });
  error_text(ErrorCode::DeviceLost, [&] { own->create_buffer(4, MemoryKind::Device, "x"); });
  error_text(ErrorCode::DeviceLost, [&] { own->record({}, {}, "x"); });
  error_text(ErrorCode::DeviceLost, [&] { own->timestamps(1); });
}

}  // namespace
}  // namespace aeshna::gpu
