// Files that are cut off or made to hurt: an Error that names the field, never anything else. (Changed at random: tests/fuzz.)
#include <gtest/gtest.h>

#include "base/format.h"
#include "io/onnx/importer.h"
#include "support/expect_error.h"
#include "support/onnx_writer.h"

namespace aeshna {
namespace {

using namespace test::proto;

/// Imports, or throws an Error: which one.
std::string outcome_of(const std::string& file) {
  try {
    const onnx::Outcome outcome = onnx::import_model(onnx::parse_model(as_bytes(file), "hostile.onnx", {}), {});
    return outcome.unsupported.empty() ? "imported" : "unsupported: " + outcome.unsupported[0].reason;
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::Internal) << error.what();
    return error.what();
  }
}

TEST(OnnxHostile, CutOffAtEveryByte) {
  const std::string whole = sample_model();
  int located = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string text = outcome_of(whole.substr(0, n));
    if (text == "imported") continue;  // between two fields that may be absent
    EXPECT_NE(text, "") << n;
    located += text.find(" at byte ") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(located, static_cast<int>(whole.size()) * 9 / 10);  // cut within a field: it is named, with its place
}

TEST(OnnxHostile, TheDamagedFieldIsNamed) {
  const std::string whole = sample_model();
  EXPECT_EQ(outcome_of(whole.substr(0, 40)).find("hostile.onnx: not a valid ONNX model: graph[0] at byte 2: "), 0u)
      << outcome_of(whole.substr(0, 40));
  std::string inner = graph({{node("Relu", {"x"}, {"y"})},
                             {value("x", 1, {2})},
                             {value("y", 1, {2})},
                             {bytes(8, "w") + varint(9 << 3 | 2) + varint(1'000'000)}});
  EXPECT_ERROR(onnx::parse_model(as_bytes(bytes(7, inner)), "h.onnx", {}), ErrorCode::CorruptFile,
               "graph[0].initializer[0].raw_data at byte");
}

TEST(OnnxHostile, SizesAreCheckedBeforeTheyAreUsed) {
  const auto with = [](const std::string& initializer) {
    return outcome_of(
        model({{node("Add", {"x", "w"}, {"y"})}, {value("x", 1, {2})}, {value("y", 1, {2})}, {initializer}}));
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  };
  has(with(tensor("w", 1, {INT64_MAX, INT64_MAX}, "")),
      "'w': the size of [9223372036854775807, 9223372036854775807] overflows");
  has(with(tensor("w", 1, {std::int64_t{1} << 40}, "")),
      "'w': raw_data has 0 bytes, [1099511627776] of float need 4398046511104");
  has(with(tensor("w", 1, {-1}, "")), "'w': dims holds -1");
  has(with(tensor("w", 1, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "1234")), "'w' has rank 9");
  has(with(tensor("w", 99, {1}, "1234")), "'w': data_type is 99");
  has(with(tensor("w", 9, {1}, "\x02")), "'w': boolean 0 is 2");
  has(with(number(1, 1) + number(2, 3) + bytes(8, "w") + bytes(5, varint(300))),
      "'w': int32_data[0] is 300, which does not fit");
  has(with(number(1, std::int64_t{1} << 50) + number(2, 1) + bytes(8, "w")), "'w': float_data has 0 elements");
  has(outcome_of(model({{node("Relu", {"x"}, {"y"})},
                        {value("x", 1, {std::int64_t{1} << 40, std::int64_t{1} << 40})},
                        {value("y", 1, {2})}})),
      "x");
  // Small files that ask for large things get no memory for them.
  const auto grown = [](std::int64_t n) {
    return outcome_of(model({{node("ConstantOfShape", {"n"}, {"c"}), node("Add", {"x", "c"}, {"y"})},
                             {value("x", 1, {1})},
                             {value("y", 1, {2})},
                             {ints("n", {n})}}));
  };
  EXPECT_EQ(grown(std::int64_t{1} << 40),
            "imported");  // a broadcast zero: what it would take is the device's to refuse
  has(grown(INT64_MAX), "unsupported: ");
}

TEST(OnnxHostile, NestingIsBounded) {
  std::string body = graph({{node("Neg", {"x"}, {"r"})}, {}, {value("r", 1, {2})}});
  const std::string flag = tensor("flag", 9, {}, std::string(1, '\1'));
  for (int depth = 0; depth < 200; ++depth) {
    body = graph(
        {{node("If", {"flag"}, {"r"},
               {graph_attribute("then_branch", body), graph_attribute("else_branch", body.size() < 4096 ? body : "")})},
         {},
         {value("r", 1, {2})}});
    if (depth != 20 && depth != 199) continue;
    const std::string text = outcome_of(model(
        {{node("If", {"flag"}, {"y"}, {graph_attribute("then_branch", body), graph_attribute("else_branch", "")})},
         {value("x", 1, {2})},
         {value("y", 1, {2})},
         {flag}}));
    if (depth == 20) {
      EXPECT_EQ(text, "imported");
    } else {
      EXPECT_NE(text.find("nested deeper than 100 messages"), std::string::npos) << text;
    }
  }
  // Ten thousand levels of the shortest kind: attributes of nodes of graphs.
  std::string inner;
  for (int i = 0; i < 10'000; ++i) inner = bytes(6, bytes(1, bytes(5, inner)));
  EXPECT_NE(outcome_of(bytes(7, bytes(1, bytes(5, inner)))).find("nested deeper than 100 messages"), std::string::npos);
  // Functions that each call the next twice: 2^30 nodes in a few hundred bytes.
  std::string functions = bytes(8, bytes(1, "f") + number(2, 1));
  for (int i = 0; i < 30; ++i) {
    const std::string next = formatted("F{}", i + 1);
    functions += bytes(25, bytes(1, formatted("F{}", i)) + bytes(4, "a") + bytes(5, "c") +
                               bytes(7, node(next, {"a"}, {"b"}, {}, "", "f")) +
                               bytes(7, node(next, {"b"}, {"c"}, {}, "", "f")) + bytes(10, "f"));
  }
  functions +=
      bytes(25, bytes(1, "F30") + bytes(4, "a") + bytes(5, "c") + bytes(7, node("Neg", {"a"}, {"c"})) + bytes(10, "f"));
  const std::string text = outcome_of(
      model({{node("F0", {"x"}, {"y"}, {}, "", "f")}, {value("x", 1, {2})}, {value("y", 1, {2})}}, 17, functions));
  EXPECT_NE(text.find("more than 262144 nodes"), std::string::npos) << text;
}

}  // namespace
}  // namespace aeshna
