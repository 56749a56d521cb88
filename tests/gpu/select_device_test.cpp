#include "gpu/select_device.h"

#include "gpu_support.h"

namespace aeshna::gpu {
namespace {

using Kind = DeviceInfo::Kind;

DeviceInfo device(std::uint32_t index, std::string name, Kind kind, char uuid_digit) {
  DeviceInfo info;
  info.index = index;
  info.name = std::move(name);
  info.kind = kind;
  info.uuid = std::string(32, uuid_digit);
  return info;
}

std::vector<DeviceInfo> machine() {
  return {device(0, "llvmpipe (LLVM 19.1.7, 256 bits)", Kind::Software, 'a'),
          device(1, "Intel(R) Graphics", Kind::Integrated, 'b'), device(2, "NVIDIA H200", Kind::Discrete, 'c'),
          device(3, "NVIDIA H200", Kind::Discrete, 'd')};
}

TEST(SelectDevice, BestKindByDefault) {
  auto devices = machine();
  EXPECT_EQ(select_device(devices, ""), 2u);
  devices[2].usable = false;
  EXPECT_EQ(select_device(devices, ""), 3u);
  devices[3].usable = false;
  EXPECT_EQ(select_device(devices, ""), 1u);
  devices[1].kind = Kind::Virtual;
  EXPECT_EQ(select_device(devices, ""), 1u);
  devices[1].usable = false;
  EXPECT_EQ(select_device(devices, ""), 0u);  // software, since nothing else exists
}

TEST(SelectDevice, ByIndex) {
  EXPECT_EQ(select_device(machine(), "0"), 0u);
  EXPECT_EQ(select_device(machine(), "3"), 3u);
  for (const char* beyond : {"4", "19", "99999999999999999999999999"}) {  // 19 is in the name of a software driver
    const std::string text = error_text(ErrorCode::NoDevice, [&] { select_device(machine(), beyond); });
    EXPECT_NE(text.find("NVIDIA H200"), std::string::npos) << "the message lists what there is: " << text;
    EXPECT_NE(text.find(beyond), std::string::npos) << text;
  }
  // The number of the only GPU's name is not its index.
  const std::vector<DeviceInfo> one = {device(0, "NVIDIA H200", Kind::Discrete, 'e')};
  EXPECT_NE(error_text(ErrorCode::NoDevice, [&] { select_device(one, "2"); }).find("no device 2: 1 listed"),
            std::string::npos);
}

TEST(SelectDevice, ByUuid) {
  EXPECT_EQ(select_device(machine(), std::string(32, 'd')), 3u);
  EXPECT_EQ(select_device(machine(), std::string(32, 'D')), 3u);
  EXPECT_EQ(select_device(machine(), "cccccccc-cccc-cccc-cccc-cccccccccccc"), 2u);
  error_text(ErrorCode::NoDevice, [] { select_device(machine(), std::string(32, '1')); });
}

TEST(SelectDevice, ByPartOfTheName) {
  EXPECT_EQ(select_device(machine(), "LLVMpipe"), 0u);
  EXPECT_EQ(select_device(machine(), "intel"), 1u);
  const std::string text = error_text(ErrorCode::InvalidArgument, [] { select_device(machine(), "h200"); });
  EXPECT_NE(text.find(std::string(32, 'c')), std::string::npos) << text;
  EXPECT_NE(text.find(std::string(32, 'd')), std::string::npos) << text;
  EXPECT_EQ(text.find("llvmpipe"), std::string::npos) << "only candidates are listed: " << text;
  error_text(ErrorCode::NoDevice, [] { select_device(machine(), "radeon"); });
  EXPECT_EQ(select_device(std::vector{device(0, "NVIDIA GeForce RTX 4090", Kind::Discrete, 'e')}, "4090"), 0u);
}

TEST(SelectDevice, UnusableOnesSayWhy) {
  auto devices = machine();
  devices[1].usable = false;
  devices[1].why_not = "it offers Vulkan 1.1.0, Aeshna needs 1.2";
  EXPECT_NE(error_text(ErrorCode::NoDevice, [&] { select_device(devices, "intel"); }).find("needs 1.2"),
            std::string::npos);
}

TEST(SelectDevice, NothingThere) {
  EXPECT_NE(error_text(ErrorCode::NoDevice, [] { select_device({}, ""); }).find("no device"), std::string::npos);
  error_text(ErrorCode::NoDevice, [] { select_device({}, "0"); });
}

}  // namespace
}  // namespace aeshna::gpu
