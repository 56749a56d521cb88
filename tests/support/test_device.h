#pragma once
// The one device of a test process: opened once, with the Khronos validation layer unless AESHNA_TEST_VALIDATION=0, so that
// suites share its pipelines. AESHNA_DEVICE chooses it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "aeshna/device.h"

namespace aeshna::test {

struct TestDevice {
  std::optional<Device> device;
  std::string why;  ///< why there is none
  bool validation = true;
};
const TestDevice& test_device();
/// The same device as if its memory were discrete: inputs get there through staging. Only where there is a test device.
const Device& staged_device();

}  // namespace aeshna::test

/// Skips the test, with the reason, where no driver is present; fails it where AESHNA_TEST_REQUIRE_DEVICE is set.
#define AESHNA_NEED_DEVICE()                                                   \
  if (!::aeshna::test::test_device().device) {                                 \
    ASSERT_EQ(std::getenv("AESHNA_TEST_REQUIRE_DEVICE"), nullptr) << ::aeshna::test::test_device().why; \
    GTEST_SKIP() << "no Vulkan device: " << ::aeshna::test::test_device().why; \
  }                                                                            \
  static_assert(true, "")
