// ONNX's own test cases (Debian: libonnx-testdata 1.17), in the interpreter and on the device, and the table that docs/onnx.md has
// of them: AESHNA_TEST_UPDATE_DOCS=1 writes it.
#include "support/onnx_suite.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/format.h"
#include "io/onnx/translate.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

constexpr std::array kFolders = {"node", "simple", "pytorch-operator", "pytorch-converted"};
constexpr std::size_t kNodeCases = 1288;  // of ONNX 1.17
constexpr std::string_view kBegin = "<!-- begin: table of ONNX's test cases -->\n", kEnd = "<!-- end -->\n";

#define AESHNA_NEED_ONNX_SUITE() \
  if (onnx_suite_root().empty()) GTEST_SKIP() << "ONNX's test cases (Debian: libonnx-testdata) are not installed"

struct Row {
  std::set<std::int64_t> opsets;
  int pass = 0, refused = 0;
  std::map<std::string, int> reasons;
};

struct Table {
  std::map<std::string, Row> ops;
  std::array<int, 4> counts{};
  int bound = 0, with_f32 = 0;
  std::map<std::string, std::array<int, 4>> folders;
  std::vector<std::string> disputed;
};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return result;
}

std::string range_of(const std::set<std::int64_t>& opsets) {
  std::string text;
  for (const std::int64_t o : opsets) text += formatted("{}{}", text.empty() ? "" : " ", o);
  return text;
}

std::string print(const Table& table) {
  std::string text = formatted(
      "{} cases pass, {} of them with inputs bound at load time; {} are refused by name; {} are disputed; {} fail. "
      "With `f64_as_f32` {} of those refused pass, to within f32.\n\n",
      table.counts[0], table.bound, table.counts[1], table.counts[2], table.counts[3], table.with_f32);
  text += "| folder | pass | refused | disputed | fail |\n|---|---|---|---|---|\n";
  for (const auto& [name, n] : table.folders)
    text += formatted("| {} | {} | {} | {} | {} |\n", name, n[0], n[1], n[2], n[3]);
  text += "\nDisputed: the data cannot be met.\n\n";
  for (const std::string& line : table.disputed) text += line;
  text +=
      "\nFor each op, in how many models that pass it is, and how many are refused because of it (\"input\", "
      "\"output\": because of the type of "
      "one). *From*: the first opset that has it; a dash: not translated.\n\n"
      "| op | from | opsets of the cases | pass | refused | why |\n|---|---|---|---|---|---|\n";
  std::map<std::string, Row> rows = table.ops;
  for (const onnx::Op* op : onnx::all_ops())
    rows[*op->domain == '\0' ? op->name : std::string(op->domain) + "." + op->name];
  for (const auto& [name, row] : rows) {
    const std::size_t dot = name.rfind('.');
    const onnx::Op* op = onnx::find_op(dot == std::string::npos ? "" : name.substr(0, dot),
                                       dot == std::string::npos ? name : name.substr(dot + 1));
    std::string why;
    for (const auto& [reason, n] : row.reasons)
      why += formatted("{}{} ({})", why.empty() ? "" : "; ", escaped(reason), n);
    const std::int64_t since = op != nullptr ? op->since : onnx::control_since(name);
    text += formatted("| {} | {} | {} | {} | {} | {} |\n", name, since > 0 ? std::to_string(since) : "-",
                      range_of(row.opsets), row.pass, row.refused, why);
  }
  return text;
}

TEST(OnnxSuite, EveryCasePassesOrIsRefusedByNameInTheInterpreterAndTheTableIsUpToDate) {
  AESHNA_NEED_ONNX_SUITE();
  Table table;
  std::string failures;
  for (const char* folder : kFolders) {
    for (const OnnxCase& c : onnx_suite(folder)) {
      const OnnxOutcome o = run_onnx_case(c);
      const auto verdict = static_cast<std::size_t>(o.verdict);
      ++table.counts[verdict];
      ++table.folders[folder][verdict];
      if (o.verdict == Verdict::Fail) failures += formatted("{}/{}: {}\n", folder, c.name, o.reason);
      if (o.verdict == Verdict::Disputed) table.disputed.push_back(formatted("- `{}`: {}\n", c.name, o.reason));
      if (o.verdict == Verdict::Pass) {
        table.bound += o.bound.empty() ? 0 : 1;
        for (const auto& [op, n] : o.ops) {
          ++table.ops[op].pass;
          if (o.opset > 0) table.ops[op].opsets.insert(o.opset);
        }
      }
      if (o.verdict == Verdict::Refused) {
        Row& row = table.ops[o.refused_op];
        ++row.refused;
        ++row.reasons[o.reason];
        if (o.opset > 0) row.opsets.insert(o.opset);
        if (run_onnx_case(c, {}, true).verdict == Verdict::Pass) ++table.with_f32;
      }
    }
  }
  EXPECT_EQ(failures, "");
  EXPECT_GE(table.counts[0], 1000);

  if (onnx_suite("node").size() != kNodeCases)
    GTEST_SKIP() << "the table in docs/onnx.md is of ONNX 1.17's cases; another version is installed";
  const std::filesystem::path file = std::filesystem::path(AESHNA_SOURCE_DIR) / "docs/onnx.md";
  std::string text = read_text(file);
  const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  const std::size_t first = begin + kBegin.size();
  const std::string wanted = print(table);
  if (std::getenv("AESHNA_TEST_UPDATE_DOCS") != nullptr) {
    text.replace(first, end - first, wanted);
    std::ofstream(file, std::ios::binary) << text;
  } else {
    EXPECT_EQ(text.substr(first, end - first), wanted) << "AESHNA_TEST_UPDATE_DOCS=1 writes it anew";
  }
}

/// All of them on the device, too: 30 seconds with empty caches on the software driver.
class OnnxSuiteDevice : public testing::TestWithParam<std::size_t> {};

TEST_P(OnnxSuiteDevice, GivesWhatTheCasesWant) {
  AESHNA_NEED_ONNX_SUITE();
  AESHNA_NEED_DEVICE();
  std::string failures;
  std::size_t index = 0;
  for (const char* folder : kFolders) {
    for (const OnnxCase& c : onnx_suite(folder)) {
      if (index++ % 4 != GetParam()) continue;
      const OnnxOutcome o = run_onnx_case(c, test_device().device);
      if (o.verdict == Verdict::Fail) failures += formatted("{}/{}: {}\n", folder, c.name, o.reason);
    }
  }
  EXPECT_EQ(failures, "");
}

INSTANTIATE_TEST_SUITE_P(Part, OnnxSuiteDevice, testing::Range(std::size_t{0}, std::size_t{4}));

/// Whole networks (AlexNet to VGG-19) with constant weights.
class LongOnnxLightDevice : public testing::TestWithParam<OnnxCase> {};

TEST_P(LongOnnxLightDevice, GivesWhatTheModelShould) {
  AESHNA_NEED_ONNX_SUITE();
  AESHNA_NEED_DEVICE();
  const OnnxOutcome o = run_onnx_case(GetParam(), test_device().device);
  EXPECT_EQ(o.verdict, Verdict::Pass) << o.reason;
}

INSTANTIATE_TEST_SUITE_P(LongModel, LongOnnxLightDevice, testing::ValuesIn(onnx_suite("light")),
                         [](const auto& info) { return info.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongOnnxLightDevice);

}  // namespace
}  // namespace aeshna::test
