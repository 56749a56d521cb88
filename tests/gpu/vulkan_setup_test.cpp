// What happens before there is a device: loader, plan, duplicates, pipeline-cache files, validation.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "aeshna/device.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "gpu/vulkan/enumerate.h"
#include "gpu/vulkan/pipeline_cache.h"
#include "gpu_support.h"

namespace aeshna::gpu {
namespace {

// ---- no loader, no driver ----

TEST(NoVulkan, WithoutALoader) {
  EXPECT_TRUE(vk::list_with(nullptr).empty());
  EXPECT_NE(error_text(ErrorCode::NoDevice, [] { vk::choose_device(nullptr, {}); }).find("no Vulkan loader"),
            std::string::npos);
}

#ifndef _WIN32
/// In a process of its own, since loaders read the environment when they please.
template <class F>
void in_child(const char* variable, F&& check) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv(variable, "/nonexistent", 1);
        std::_Exit(check() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NoVulkanDeathTest, WithoutADriver) {
  in_child("VK_DRIVER_FILES", [] {
    if (!list_devices().empty()) return false;
    try {
      aeshna::Device device;
    } catch (const Error& e) {
      return e.code() == ErrorCode::NoDevice;
    }
    return false;
  });
}
#endif

// ---- the plan: a pure function ----

vk::DeviceFacts gpu() {
  vk::DeviceFacts facts;
  facts.api_version = VK_API_VERSION_1_3;
  facts.properties.apiVersion = VK_API_VERSION_1_3;
  facts.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  std::strcpy(facts.properties.deviceName, "Test GPU");
  VkPhysicalDeviceLimits& limits = facts.properties.limits;
  limits.maxStorageBufferRange = 1u << 30;
  limits.minStorageBufferOffsetAlignment = 16;
  limits.maxComputeSharedMemorySize = 49152;
  limits.maxPushConstantsSize = 256;
  limits.maxPerStageDescriptorStorageBuffers = 1000;
  limits.maxPerStageResources = 200;
  limits.maxDescriptorSetStorageBuffers = 500;
  limits.maxComputeWorkGroupInvocations = 1024;
  for (int i = 0; i < 3; ++i) {
    limits.maxComputeWorkGroupCount[i] = 65535;
    limits.maxComputeWorkGroupSize[i] = 1024;
  }
  facts.v11.subgroupSize = 32;
  facts.v11.subgroupSupportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
  facts.v11.subgroupSupportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  facts.v11.maxMemoryAllocationSize = 1ull << 32;
  facts.max_buffer_size = 1ull << 40;
  facts.v11.deviceUUID[0] = 0xab;
  facts.memory.memoryHeapCount = 2;
  facts.memory.memoryHeaps[0] = {16ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  facts.memory.memoryHeaps[1] = {64ull << 30, 0};
  facts.memory.memoryTypeCount = 1;
  facts.memory.memoryTypes[0] = {
      VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
      0};
  facts.features.v12.timelineSemaphore = VK_TRUE;
  facts.queues = {{VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT, 1, 64, {}}};
  return facts;
}

TEST(DevicePlan, LimitsBecomeCaps) {
  const vk::DevicePlan plan = vk::plan_device(gpu());
  ASSERT_TRUE(plan.info.usable) << plan.info.why_not;
  EXPECT_EQ(plan.info.uuid, "ab" + std::string(30, '0'));
  EXPECT_EQ(plan.caps.max_storage_buffers, 200u);  // the smallest of the three limits
  EXPECT_EQ(plan.caps.max_buffer_size, 1ull << 32);
  EXPECT_EQ(plan.caps.device_memory, 16ull << 30);
  EXPECT_EQ(plan.caps.shared_bytes, 49152u);
  EXPECT_EQ(plan.caps.subgroup_size, 32u);
  EXPECT_TRUE(plan.caps.subgroup_arithmetic);
}

TEST(DevicePlan, ReBarIsNotUnifiedMemory) {
  auto facts = gpu();
  EXPECT_FALSE(vk::plan_device(facts).caps.unified_memory);
  facts.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  EXPECT_TRUE(vk::plan_device(facts).caps.unified_memory);
  facts.memory.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  EXPECT_FALSE(vk::plan_device(facts).caps.unified_memory);
}

TEST(DevicePlan, Floor) {
  auto facts = gpu();
  facts.api_version = VK_API_VERSION_1_1;
  EXPECT_NE(vk::plan_device(facts).info.why_not.find("1.2"), std::string::npos);
  facts = gpu();
  facts.queues[0].queueFlags = VK_QUEUE_GRAPHICS_BIT;
  EXPECT_NE(vk::plan_device(facts).info.why_not.find("compute queue"), std::string::npos);
  facts = gpu();
  facts.features.v12.timelineSemaphore = VK_FALSE;
  EXPECT_FALSE(vk::plan_device(facts).info.usable);
}

TEST(DevicePlan, AsyncComputeQueueIsPreferred) {
  auto facts = gpu();
  facts.queues.push_back({VK_QUEUE_TRANSFER_BIT, 1, 64, {}});
  facts.queues.push_back({VK_QUEUE_COMPUTE_BIT, 8, 36, {}});
  const auto plan = vk::plan_device(facts);
  EXPECT_EQ(plan.queue_family, 2u);
  EXPECT_EQ(plan.timestamp_bits, 36u);
}

TEST(DevicePlan, OptionalFeaturesOnlyWhereOffered) {
  auto facts = gpu();
  const auto bare = vk::plan_device(facts);
  EXPECT_FALSE(bare.caps.storage_16bit || bare.caps.storage_8bit || bare.caps.f16_arithmetic ||
               bare.caps.int64_arithmetic);
  EXPECT_TRUE(bare.extensions.empty());
  EXPECT_TRUE(bare.caps.coop_shapes.empty());

  facts.features.v11.storageBuffer16BitAccess = VK_TRUE;
  facts.features.v12.shaderFloat16 = VK_TRUE;
  facts.features.v12.vulkanMemoryModel = VK_TRUE;
  facts.features.has_coop = true;
  facts.features.coop.cooperativeMatrix = VK_TRUE;
  facts.extensions = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME};
  VkCooperativeMatrixPropertiesKHR shape{};
  shape.MSize = shape.NSize = shape.KSize = 16;
  shape.AType = shape.BType = VK_COMPONENT_TYPE_FLOAT16_KHR;
  shape.CType = shape.ResultType = VK_COMPONENT_TYPE_FLOAT32_KHR;
  shape.scope = VK_SCOPE_SUBGROUP_KHR;
  facts.coop = {shape, shape};
  facts.coop.push_back(shape);
  facts.coop.back().scope = VK_SCOPE_WORKGROUP_KHR;
  const auto full = vk::plan_device(facts);
  EXPECT_TRUE(full.caps.storage_16bit && full.caps.f16_arithmetic && full.memory_budget);
  ASSERT_EQ(full.caps.coop_shapes.size(), 1u);
  EXPECT_EQ(full.caps.coop_shapes[0], (CoopMatrixShape{16, 16, 16, DType::f16, DType::f32}));
  EXPECT_EQ(full.extensions.size(), 2u);

  facts.features.v12.vulkanMemoryModel = VK_FALSE;  // without it cooperative kernels cannot be built
  EXPECT_TRUE(vk::plan_device(facts).caps.coop_shapes.empty());
}

TEST(DevicePlan, FullSubgroupsOfOneSize) {
  auto facts = gpu();
  facts.features.has_subgroup_size = true;
  facts.features.subgroup_size.computeFullSubgroups = VK_TRUE;
  facts.features.subgroup_size.subgroupSizeControl = VK_TRUE;
  facts.subgroup_size.requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT;
  facts.subgroup_size.minSubgroupSize = 8;
  facts.subgroup_size.maxSubgroupSize = 32;
  EXPECT_TRUE(vk::plan_device(facts).required_subgroup_size);
  facts.subgroup_size.maxSubgroupSize = 16;
  EXPECT_FALSE(vk::plan_device(facts).required_subgroup_size);
  EXPECT_TRUE(vk::plan_device(facts).full_subgroups);
}

TEST(DevicePlan, CacheKeyFollowsTheDriver) {
  auto facts = gpu();
  const std::string key = vk::plan_device(facts).cache_key;
  EXPECT_EQ(vk::plan_device(facts).cache_key, key);
  facts.properties.driverVersion = 7;
  EXPECT_NE(vk::plan_device(facts).cache_key, key);
}

vk::FoundDevice found(std::string name, std::string uuid, VkDriverId driver, bool usable = true) {
  vk::FoundDevice device;
  device.plan.info.name = std::move(name);
  device.plan.info.uuid = std::move(uuid);
  device.plan.info.usable = usable;
  device.driver = driver;
  return device;
}

TEST(Deduplicate, OneEntryPerGpu) {
  const std::string a(32, 'a'), zero(32, '0');
  const auto distinct =
      vk::deduplicate({found("amdvlk", a, VK_DRIVER_ID_AMD_OPEN_SOURCE), found("x", zero, VK_DRIVER_ID_MAX_ENUM),
                       found("radv", a, VK_DRIVER_ID_MESA_RADV), found("y", zero, VK_DRIVER_ID_MAX_ENUM)});
  ASSERT_EQ(distinct.size(), 3u);
  EXPECT_EQ(distinct[0].plan.info.name, "radv");
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(distinct[i].plan.info.index, i);
  const auto usable = vk::deduplicate(
      {found("radv", a, VK_DRIVER_ID_MESA_RADV, false), found("amdvlk", a, VK_DRIVER_ID_AMD_OPEN_SOURCE)});
  ASSERT_EQ(usable.size(), 1u);
  EXPECT_EQ(usable[0].plan.info.name, "amdvlk");
}

// ---- pipeline cache ----

std::vector<std::byte> some_bytes(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 37);
  return bytes;
}

TEST(PipelineCacheFile, RoundTrip) {
  for (const std::size_t n : {0u, 1u, 1000u})
    EXPECT_EQ(vk::decode_pipeline_cache(vk::encode_pipeline_cache(some_bytes(n), "key"), "key", "file"), some_bytes(n));
}

TEST(PipelineCacheFile, EveryDamageIsNoticed) {
  const auto file = vk::encode_pipeline_cache(some_bytes(100), "key");
  const auto corrupt = [](std::span<const std::byte> bytes, std::string_view key = "key") {
    error_text(ErrorCode::CorruptFile, [&] { vk::decode_pipeline_cache(bytes, key, "file"); });
  };
  for (std::size_t n = 0; n < file.size(); ++n) corrupt(std::span(file).first(n));
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    auto flipped = file;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    corrupt(flipped);
  }
  auto longer = file;
  longer.push_back({});
  corrupt(longer);
  corrupt(file, "another driver");
}

#ifndef _WIN32
class PipelineCacheOnDiskVulkan : public testing::Test {
 protected:
  PipelineCacheOnDiskVulkan() {
    if (const char* old = std::getenv("AESHNA_CACHE_DIR")) old_ = old;
    directory = std::filesystem::temp_directory_path() / formatted("aeshna-pipeline-cache-{}", getpid());
    std::filesystem::remove_all(directory);
    setenv("AESHNA_CACHE_DIR", directory.c_str(), 1);
  }
  ~PipelineCacheOnDiskVulkan() override {
    std::filesystem::remove_all(directory);
    if (old_.empty()) {
      unsetenv("AESHNA_CACHE_DIR");
    } else {
      setenv("AESHNA_CACHE_DIR", old_.c_str(), 1);
    }
  }
  std::filesystem::path build_and_save() {
    const auto device = open_vulkan({});
    const auto kernel = create(*device, test_kernel("cached", "b[i] = a[i] + k;"));
    device->save_pipeline_cache();
    for (const auto& entry : std::filesystem::directory_iterator(directory)) return entry.path();
    return {};
  }
  std::filesystem::path directory;

 private:
  std::string old_;
};

TEST_F(PipelineCacheOnDiskVulkan, SavedAndAnUnreadableOneReplaced) {
  const auto path = build_and_save();
  ASSERT_FALSE(path.empty());
  EXPECT_TRUE(path.filename().string().starts_with("vk-"));
  const auto key = path.stem().string().substr(3);
  const auto valid = [&] { EXPECT_NO_THROW(vk::decode_pipeline_cache(read_file(path), key, path.string())); };
  valid();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(build_and_save(), path);
  valid();
  std::ofstream(path) << "not a cache";
  EXPECT_EQ(build_and_save(), path);
  valid();
}

TEST_F(PipelineCacheOnDiskVulkan, ADirectoryThatCannotBeMadeIsNoError) {
  std::ofstream{directory} << "a file is in the way";
  const auto device = open_vulkan({});
  EXPECT_NO_THROW(device->save_pipeline_cache());
}

TEST_F(PipelineCacheOnDiskVulkan, Off) {
  setenv("AESHNA_CACHE_DIR", "off", 1);
  const auto device = open_vulkan({});
  device->save_pipeline_cache();
  EXPECT_FALSE(std::filesystem::exists(directory));
}
#endif

// ---- validation ----

class ValidationVulkan : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device = open_vulkan({.validation = true});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::Unsupported) throw;
      GTEST_SKIP() << e.what();
    }
    kernel = create(*device, test_kernel("add", "b[i] = b[i] + a[i] + k;"));
    a = device->create_buffer(4096, MemoryKind::Device, "a");
    b = device->create_buffer(4096, MemoryKind::Device, "b");
  }
  std::shared_ptr<Device> device;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Buffer> a, b;
};

TEST_F(ValidationVulkan, ReportsAMissingBarrierBetweenDispatches) {
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 1024, 1, "first"),
                                      dispatch(kernel, all(b), all(a), 1024, 1, "second")};
  const std::string text = error_text(ErrorCode::Internal, [&] { run(*device, commands); });
  EXPECT_NE(text.find("READ_AFTER_WRITE hazard"), std::string::npos) << text;
  EXPECT_NO_THROW(run(*device, {})) << "a message is thrown once";
}

TEST_F(ValidationVulkan, ReportsAMissingBarrierBetweenRangesThatOverlap) {
  const std::uint64_t half = 2048;
  const std::vector<Command> commands{dispatch(kernel, all(b), {a.get(), 0, half + 256}, 8, 1),
                                      dispatch(kernel, {a.get(), half, half}, all(b), 8, 1)};
  error_text(ErrorCode::Internal, [&] { run(*device, commands); });
}

TEST_F(ValidationVulkan, SilentWithTheBarrier) {
  EXPECT_NO_THROW(run(*device, {dispatch(kernel, all(a), all(b), 1024, 1), BarrierCommand{},
                                dispatch(kernel, all(b), all(a), 1024, 1)}));
}

TEST_F(ValidationVulkan, SilentForRangesThatDoNotOverlap) {
  const std::uint64_t half = 2048;
  const auto c = device->create_buffer(4096, MemoryKind::Device, "c");
  EXPECT_NO_THROW(run(*device, {dispatch(kernel, {c.get(), 0, half}, {a.get(), 0, half}, 512, 1),
                                dispatch(kernel, {c.get(), half, half}, {a.get(), half, half}, 512, 1)}));
}

TEST_F(ValidationVulkan, SilentAcrossListsAndSubmissions) {
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 1024, 1)};
  const auto one = device->record(commands, {}, "one"), two = device->record(commands, {}, "two");
  CommandList* const lists[] = {one.get(), two.get()};
  device->submit(lists);
  EXPECT_NO_THROW(device->wait(device->submit(lists)));
  const auto r = device->create_buffer(4096, MemoryKind::Readback, "r");
  const std::vector<Command> mixed{TimestampCommand{0}, FillCommand{all(a), 1},      CopyCommand{all(b), all(r)},
                                   BarrierCommand{},    CopyCommand{all(a), all(b)}, TimestampCommand{1}};
  EXPECT_NO_THROW(run(*device, mixed));
  EXPECT_NO_THROW(device->timestamps(2));
}

TEST_F(ValidationVulkan, SilentWhenEverythingIsDroppedInFlight) {
  const std::vector<Command> commands{dispatch(kernel, all(a), all(b), 1024, 1)};
  auto list = device->record(commands, {}, "dropped");
  CommandList* const lists[] = {list.get()};
  const Ticket ticket = device->submit(lists);
  list.reset();
  kernel.reset();
  a.reset();
  b.reset();
  EXPECT_NO_THROW(device->wait(ticket));
  EXPECT_NO_THROW(run(*device, {}));
}

TEST_F(ValidationVulkan, ReportsAnOrdinaryMistake) {
  // A kernel with more bindings than its description says.
  TestKernel wrong = test_kernel("wrong", "b[i] = a[i];");
  wrong.desc.bindings = 1;
  error_text(ErrorCode::Internal, [&] { create(*device, wrong); });
}

#ifndef _WIN32
TEST(ValidationDeathTest, WithoutTheLayer) {
  in_child("VK_LAYER_PATH", [] {
    try {
      open_vulkan({.validation = true});
    } catch (const Error& e) {
      return e.code() == ErrorCode::Unsupported && std::string(e.what()).contains("VK_LAYER_KHRONOS_validation");
    }
    return false;
  });
}
#endif

}  // namespace
}  // namespace aeshna::gpu
