#include "runtime/convert.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "aeshna/attrs.h"
#include "aeshna/error.h"
#include "gpu/device.h"
#include "ir/device_types.h"
#include "runtime/transfer.h"

namespace aeshna {
namespace {

/// Host -> device words -> host.
Literal round_trip(const Literal& value, std::vector<std::uint32_t>& words) {
  check_device_form(value.type(), value.bytes(), "value");
  const auto elements = static_cast<std::uint64_t>(value.type().shape.elements());
  words.assign(device_bytes(value.type()) / 4, 0xDEADBEEF);
  to_device(value.type().dtype, value.bytes(), 0, elements, words);
  std::vector<std::byte> bytes(value.bytes().size());
  to_host(value.type().dtype, words, 0, elements, bytes);
  return Literal(value.type(), std::move(bytes));
}

TEST(Convert, EveryDtypeRoundTrips) {
  struct Case {
    DType dtype;
    std::vector<double> values;
    std::uint32_t first_word;
  };
  const Case cases[] = {{DType::f32, {1.5, -0.0, 1e-42}, 0x3FC00000},
                        {DType::i8, {-128, 127, 0}, 0xFFFFFF80},
                        {DType::i16, {-32768, 32767, 1}, 0xFFFF8000},
                        {DType::i32, {-2147483648.0, 2147483647, 1}, 0x80000000},
                        {DType::i64, {-2147483648.0, 2147483647, 1}, 0x80000000},
                        {DType::u8, {255, 0, 1}, 255},
                        {DType::u16, {65535, 0, 1}, 65535},
                        {DType::u32, {4294967295.0, 0, 1}, 0xFFFFFFFF},
                        {DType::u64, {4294967295.0, 0, 1}, 0xFFFFFFFF},
                        {DType::boolean, {1, 0, 1}, 1}};
  for (const Case& c : cases) {
    const Literal value = Literal::from_doubles({c.dtype, {3}}, c.values);
    std::vector<std::uint32_t> words;
    EXPECT_EQ(round_trip(value, words), value) << dtype_name(c.dtype);
    EXPECT_EQ(words[0], c.first_word) << dtype_name(c.dtype);
  }
}

TEST(Convert, RefusesWhatDoesNotFit) {
  for (const DType dtype : {DType::i64, DType::u64}) {
    const double too_big = dtype == DType::i64 ? 2147483648.0 : 4294967296.0;
    const double values[] = {1, 2, too_big};
    const Literal value = Literal::from_doubles({dtype, {3}}, values);
    try {
      check_device_form(value.type(), value.bytes(), "ids");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::OutOfRange);
      EXPECT_NE(e.message().find("ids"), std::string::npos) << e.what();
      EXPECT_NE(e.message().find("element 2"), std::string::npos) << e.what();
    }
  }
  for (const DType dtype : {DType::f64}) {
    const Literal value = Literal::scalar(1, dtype);
    try {
      check_device_form(value.type(), value.bytes(), "w");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::Unsupported);
      EXPECT_NE(e.message().find(dtype_name(dtype)), std::string::npos) << e.what();
    }
  }
}

/// Both memory kinds; sizes that need several staging rounds and cut a tensor in two.
TEST(Transfer, ManyTensorsShareStaging) {
  for (const bool unified : {false, true}) {
    Caps caps;
    caps.unified_memory = unified;
    const std::shared_ptr<gpu::Device> device = gpu::open_null(caps);
    const std::int64_t sizes[] = {1, 0, 7, 9'000'000, 3, 9'000'000, 5};
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<UploadItem> up;
    for (const std::int64_t size : sizes) {
      std::vector<std::int32_t>& values = sent.emplace_back(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 7 + sent.size());
      const auto bytes = static_cast<std::uint64_t>(size) * 4 + 16;
      up.push_back({"t", {DType::i32, {size}}, {}, device->create_buffer(bytes, gpu::MemoryKind::Device, "t"), 16});
    }
    for (std::size_t i = 0; i < up.size(); ++i) up[i].host = std::as_bytes(std::span(sent[i]));
    const gpu::DeviceCounters before = device->counters();
    upload(*device, up, 0);
    const std::uint64_t submissions = device->counters().submissions - before.submissions;
    EXPECT_EQ(submissions, unified ? 0u : 2u) << "72 MB through 64 MiB of staging";

    std::vector<std::vector<std::int32_t>> back;
    std::vector<DownloadItem> down;
    for (const std::int64_t size : sizes) back.emplace_back(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < up.size(); ++i) {
      down.push_back({up[i].type, std::as_writable_bytes(std::span(back[i])), up[i].buffer, 16});
    }
    download(*device, down, 0);
    EXPECT_EQ(back, sent);
  }
}

TEST(Transfer, ChecksEverythingBeforeTheFirstWrite) {
  const std::shared_ptr<gpu::Device> device = gpu::open_null({});
  const Literal good = Literal::scalar(1, DType::i64), bad = Literal::scalar(1e15, DType::i64);
  const auto buffer = device->create_buffer(4, gpu::MemoryKind::Device, "a");
  const UploadItem items[] = {{"a", good.type(), good.bytes(), buffer, 0}, {"b", bad.type(), bad.bytes(), buffer, 0}};
  EXPECT_THROW(upload(*device, items, 0), Error);
  EXPECT_EQ(device->counters().submissions, 0u);
}

}  // namespace
}  // namespace aeshna
