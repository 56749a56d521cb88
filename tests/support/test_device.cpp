#include "support/test_device.h"

#include <cstdlib>
#include <string_view>

#include "aeshna/error.h"

namespace aeshna::test {

const TestDevice& test_device() {
  // Never destroyed: at exit the validation layer's own statics may already be gone.
  static const TestDevice* const opened = [] {
    auto* const test = new TestDevice;
    TestDevice& result = *test;
    const char* validation = std::getenv("AESHNA_TEST_VALIDATION");
    result.validation = validation == nullptr || std::string_view(validation) != "0";
    try {
      result.device.emplace(DeviceRequest{.selector = {}, .caps = {}, .validation = result.validation});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::NoDevice) throw;  // a driver that is present must open
      result.why = e.what();
    }
    return test;
  }();
  return *opened;
}

const Device& staged_device() {
  static const Device* const staged = new Device(  // never destroyed, as above
      DeviceRequest{.selector = test_device().device->info().uuid, .caps = "no_unified_memory", .validation = test_device().validation});
  return *staged;
}

}  // namespace aeshna::test
