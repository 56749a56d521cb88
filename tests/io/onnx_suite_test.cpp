// ONNX's own cases, in the interpreter and on the device.
#include "support/onnx_suite.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "support/test_device.h"

namespace aeshna::test {
namespace {

TEST(OnnxSuite, Cases) {
  if (onnx_suite_root().empty()) GTEST_SKIP() << "ONNX's test data (libonnx-testdata) is not installed";
  int counts[4] = {};
  for (const char* folder : {"node", "simple", "pytorch-operator", "pytorch-converted"}) {
    for (const OnnxCase& c : onnx_suite(folder)) {
      if (std::getenv("AESHNA_TEST_ONNX_DEVICE") != nullptr) { std::fprintf(stderr, "%s\n", c.name.c_str()); }
      const OnnxOutcome o = run_onnx_case(c, std::getenv("AESHNA_TEST_ONNX_DEVICE") != nullptr ? test_device().device : std::nullopt);
      ++counts[static_cast<int>(o.verdict)];
      if (std::getenv("AESHNA_TEST_ONNX_LIST") != nullptr) {
        std::printf("%s\t%s/%s\t%s\t%s\n", o.verdict == Verdict::Pass ? "PASS" : o.verdict == Verdict::Refused ? "REFUSED" : o.verdict == Verdict::Disputed ? "DISPUTED" : "FAIL", folder,
                    c.name.c_str(), o.refused_op.c_str(), o.reason.c_str());
        std::fflush(stdout);
      }
    }
  }
  std::printf("pass %d refused %d disputed %d fail %d\n", counts[0], counts[1], counts[2], counts[3]);
}

}  // namespace
}  // namespace aeshna::test
