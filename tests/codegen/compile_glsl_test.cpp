#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "aeshna/error.h"
#include "codegen/codegen.h"

namespace aeshna {
namespace {

constexpr std::string_view kEmpty = "#version 460\nlayout(local_size_x = 8) in;\nvoid main() {}\n";

TEST(CompileGlsl, GivesSpirv15) {
  warm_up_glslang();
  warm_up_glslang();
  const auto words = compile_glsl(kEmpty, "empty");
  ASSERT_GT(words.size(), 5u);
  EXPECT_EQ(words[0], 0x07230203u);
  EXPECT_EQ(words[1], 0x00010500u);
}

TEST(CompileGlsl, ErrorsNameKernelAndShowTheLine) {
  const std::string text =
      "#version 460\nlayout(local_size_x = 8) in;\nvoid main() {\n  float x = undeclared + 1.0;\n}\n";
  try {
    compile_glsl(text, "broken kernel");
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Internal);
    EXPECT_THAT(error.what(), testing::HasSubstr("broken kernel"));
    EXPECT_THAT(error.what(), testing::HasSubstr("undeclared"));
    EXPECT_THAT(error.what(), testing::HasSubstr("    4 |   float x = undeclared + 1.0;"));
  }
}

TEST(CompileGlsl, ManyThreadsAtOnce) {
  const auto expected = compile_glsl(kEmpty, "empty");
  std::vector<std::vector<std::uint32_t>> results(8);
  std::vector<std::jthread> threads;
  for (auto& result : results) threads.emplace_back([&result] { result = compile_glsl(kEmpty, "empty"); });
  threads.clear();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace aeshna
