// docs/ops.md is what the records say.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ops/document.h"

namespace aeshna {
namespace {

TEST(OpsDocument, IsUpToDate) {
  std::ifstream file(AESHNA_SOURCE_DIR "/docs/ops.md");
  if (!file) file.open("docs/ops.md");  // a test program that was carried to another machine
  ASSERT_TRUE(file) << "docs/ops.md is missing";
  std::stringstream text;
  text << file.rdbuf();
  // What was measured depends on the machine.
  const std::string page = text.str(), vocabulary = page.substr(0, page.find(std::string("\n") + kMeasuredErrorsHeading));
  EXPECT_EQ(vocabulary, ops_markdown()) << "run: aeshna ops --errors docs/op-errors/*.json > docs/ops.md";
}

}  // namespace
}  // namespace aeshna
