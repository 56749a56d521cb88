// The Null and Fault back ends, and the checks that every back end makes.
#include <filesystem>
#include <fstream>

#include "aeshna/device.h"
#include "gpu_support.h"

namespace aeshna::gpu {
namespace {

const std::uint32_t kSpirv[] = {0x07230203, 0, 0, 0, 0};

KernelDesc desc(std::string name = "k") {
  return {.name = std::move(name), .spirv = kSpirv, .bindings = 2, .push_bytes = 8, .local = {64, 1, 1}};
}

TEST(NullDevice, CopiesAndFillsHappenDispatchesDoNot) {
  const auto device = open_null({});
  const auto a = device->create_buffer(64, MemoryKind::Upload, "a");
  const auto b = device->create_buffer(64, MemoryKind::Device, "b");
  const auto c = device->create_buffer(64, MemoryKind::Readback, "c");
  EXPECT_EQ(b->mapped(), nullptr);
  const auto kernel = device->create_kernel(desc());
  run(*device, {FillCommand{all(a), 7}, BarrierCommand{}, CopyCommand{all(a), all(b)}, BarrierCommand{},
                dispatch(kernel, all(a), all(b), 16), BarrierCommand{}, CopyCommand{all(b), all(c)}});
  std::uint32_t word = 0;
  std::memcpy(&word, c->mapped() + 60, 4);
  EXPECT_EQ(word, 7u);
  EXPECT_EQ(device->counters().buffers_created, 3u);
  EXPECT_EQ(device->counters().lists_recorded, 1u);
  EXPECT_EQ(device->counters().submissions, 1u);
}

TEST(NullDevice, UnifiedMemoryIsMapped) {
  Caps caps;
  caps.unified_memory = true;
  EXPECT_NE(open_null(caps)->create_buffer(4, MemoryKind::Device, "a")->mapped(), nullptr);
}

TEST(NullDevice, ByName) {
  EXPECT_EQ(aeshna::Device({.selector = "null"}).info().driver, "null");
  EXPECT_EQ(aeshna::Device({.selector = "null", .caps = "max_groups=7"}).impl().caps().max_groups[0], 7u);
  error_text(ErrorCode::InvalidArgument, [] { aeshna::Device({.selector = "null", .caps = "max_groups=70000000"}); });
}

TEST(NullDevice, CapsFromAFile) {
  Caps caps;
  caps.device_name = "some phone";
  caps.shared_bytes = 8192;
  const auto path = std::filesystem::temp_directory_path() / "aeshna-null-caps-test.txt";
  std::ofstream(path) << print_caps(caps);
  const aeshna::Device device({.selector = "null:" + path.string()});
  std::filesystem::remove(path);
  EXPECT_EQ(device.info().name, "some phone");
  EXPECT_EQ(device.impl().caps(), caps);
  error_text(ErrorCode::NotFound, [&] { aeshna::Device({.selector = "null:" + path.string()}); });
}

TEST(Checks, Kernels) {
  Caps caps;
  caps.shared_bytes = 1024;
  const auto device = open_null(caps);
  KernelDesc large = desc("big");
  large.shared_bytes = 1028;
  const std::string text = error_text(ErrorCode::LimitExceeded, [&] { device->create_kernel(large); });
  EXPECT_NE(text.find("big"), std::string::npos);
  EXPECT_NE(text.find("shared_bytes"), std::string::npos);
}

TEST(Checks, Buffers) {
  Caps caps;
  caps.device_memory = 1000;
  caps.max_buffer_size = 500;
  const auto device = open_null(caps);
  EXPECT_NE(error_text(ErrorCode::LimitExceeded, [&] { device->create_buffer(501, MemoryKind::Device, "w"); })
                .find("max_buffer_size"),
            std::string::npos);
  const std::string text =
      error_text(ErrorCode::OutOfMemory, [&] { device->create_buffer(1001, MemoryKind::Device, "weights"); });
  for (const char* part : {"weights", "1001", "device"}) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NO_THROW(device->create_buffer(0, MemoryKind::Device, "empty"));
}

class CommandChecks : public testing::Test {
 protected:
  CommandChecks() {
    Caps caps;
    caps.storage_alignment = 64;
    caps.max_storage_range = 512;
    caps.max_groups[1] = 3;
    device = open_null(caps);
    a = device->create_buffer(1024, MemoryKind::Device, "a");
    b = device->create_buffer(1024, MemoryKind::Device, "b");
    kernel = device->create_kernel(desc("stencil"));
  }
  void refused(ErrorCode code, Command command, const std::string& part) {
    const std::vector<Command> commands{BarrierCommand{}, std::move(command)};
    const std::string text = error_text(code, [&] { device->record(commands, {}, "forward"); });
    for (const std::string& p : {part, std::string("forward"), std::string("command 1")})
      EXPECT_NE(text.find(p), std::string::npos) << text;
  }
  DispatchCommand good() { return dispatch(kernel, {a.get(), 64, 512}, {b.get(), 0, 512}, 16); }
  std::shared_ptr<Device> device;
  std::shared_ptr<Buffer> a, b;
  std::shared_ptr<Kernel> kernel;
};

TEST_F(CommandChecks, Dispatches) {
  EXPECT_NO_THROW(run(*device, {good()}));
  auto c = good();
  c.operands.pop_back();
  refused(ErrorCode::InvalidArgument, c, "2 bindings");
  c = good();
  c.push.push_back(0);
  refused(ErrorCode::InvalidArgument, c, "push bytes");
  c = good();
  c.operands[0].offset = 32;
  refused(ErrorCode::InvalidArgument, c, "storage_alignment");
  c = good();
  c.operands[1].bytes = 516;
  refused(ErrorCode::LimitExceeded, c, "max_storage_range");
  c = good();
  c.operands[1] = {b.get(), 960, 128};
  refused(ErrorCode::InvalidArgument, c, "operand 1");
  c = good();
  c.operands[1] = {b.get(), UINT64_MAX - 63, 128};
  refused(ErrorCode::InvalidArgument, c, "operand 1");
  c = good();
  c.operands[0].buffer = nullptr;
  refused(ErrorCode::InvalidArgument, c, "no buffer");
  c = good();
  c.kernel = nullptr;
  refused(ErrorCode::InvalidArgument, c, "no kernel");
  c = good();
  c.groups[1] = 4;
  refused(ErrorCode::LimitExceeded, c, "max_groups");
}

TEST_F(CommandChecks, CopiesAndFills) {
  refused(ErrorCode::InvalidArgument, CopyCommand{{a.get(), 0, 8}, {b.get(), 0, 4}}, "8 bytes into 4");
  refused(ErrorCode::InvalidArgument, CopyCommand{{a.get(), 0, 64}, {a.get(), 32, 64}}, "overlap");
  refused(ErrorCode::InvalidArgument, CopyCommand{{a.get(), 1020, 8}, {b.get(), 0, 8}}, "source");
  refused(ErrorCode::InvalidArgument, FillCommand{{a.get(), 2, 4}, 0}, "aligned");
  refused(ErrorCode::InvalidArgument, FillCommand{{a.get(), 0, 6}, 0}, "aligned");
  refused(ErrorCode::LimitExceeded, TimestampCommand{1u << 30}, "timestamp slot");
  EXPECT_NO_THROW(run(*device, {CopyCommand{{a.get(), 0, 64}, {a.get(), 64, 64}}}));
}

TEST_F(CommandChecks, Tickets) {
  error_text(ErrorCode::InvalidArgument, [&] { device->wait(1); });
  EXPECT_FALSE(device->done(1));
  run(*device, {});
  EXPECT_TRUE(device->done(1));
}

TEST(FaultDevice, OutOfMemoryAtTheNthBuffer) {
  const auto device = with_faults(open_null({}), {.out_of_memory_at_buffer = 2});
  EXPECT_NO_THROW(device->create_buffer(4, MemoryKind::Device, "one"));
  EXPECT_NE(
      error_text(ErrorCode::OutOfMemory, [&] { device->create_buffer(4, MemoryKind::Device, "two"); }).find("two"),
      std::string::npos);
  EXPECT_NO_THROW(device->create_buffer(4, MemoryKind::Device, "three"));
}

TEST(FaultDevice, TimestampSlots) {
  const auto null = open_null({});
  EXPECT_EQ(null->timestamp_slots(), 0u) << "it computes nothing";
  EXPECT_EQ(with_faults(null, {.timestamp_slots = 5})->timestamp_slots(), 0u);
}

TEST(FaultDevice, KernelAndRecording) {
  const auto device = with_faults(open_null({}), {.fail_at_kernel = 1, .fail_at_record = 1});
  EXPECT_NE(error_text(ErrorCode::Unsupported, [&] { device->create_kernel(desc("first")); }).find("first"),
            std::string::npos);
  EXPECT_NO_THROW(device->create_kernel(desc()));
  error_text(ErrorCode::OutOfMemory, [&] { run(*device, {}); });
  EXPECT_NO_THROW(run(*device, {}));
}

void expect_lost(Device& device) {
  error_text(ErrorCode::DeviceLost, [&] { device.create_buffer(4, MemoryKind::Device, "x"); });
  error_text(ErrorCode::DeviceLost, [&] { device.create_kernel(desc()); });
  error_text(ErrorCode::DeviceLost, [&] { device.record({}, {}, "x"); });
  error_text(ErrorCode::DeviceLost, [&] { device.submit({}); });
  error_text(ErrorCode::DeviceLost, [&] { device.wait(1); });
  error_text(ErrorCode::DeviceLost, [&] { device.done(1); });
  error_text(ErrorCode::DeviceLost, [&] { device.timestamps(1); });
  EXPECT_NO_THROW(device.save_pipeline_cache());
}

TEST(FaultDevice, LostAtSubmitStaysLost) {
  const auto device = with_faults(open_null({}), {.lose_at_submit = 2});
  EXPECT_NO_THROW(run(*device, {}));
  error_text(ErrorCode::DeviceLost, [&] { run(*device, {}); });
  expect_lost(*device);
}

TEST(FaultDevice, LostAtWaitStaysLost) {
  const auto device = with_faults(open_null({}), {.lose_at_wait = 1});
  error_text(ErrorCode::DeviceLost, [&] { run(*device, {}); });
  expect_lost(*device);
}

}  // namespace
}  // namespace aeshna::gpu
