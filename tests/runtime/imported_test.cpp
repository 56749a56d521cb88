// Imported models on a device: trained further, and with inputs of 64-bit integers.
#include <gtest/gtest.h>

#include "aeshna/import.h"
#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "support/expect_error.h"
#include "support/onnx_writer.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using namespace test::proto;

TEST(ImportedSession, AnImportedModelIsTrainedFurther) {
  AESHNA_NEED_DEVICE();
  // A perceptron 2-8-1 with small weights learns exclusive or.
  std::vector<float> w1, w2;
  for (int i = 0; i < 16; ++i) w1.push_back(0.9f * static_cast<float>((i * 7) % 5 - 2) / 2);
  for (int i = 0; i < 8; ++i) w2.push_back(0.5f * static_cast<float>(i % 3 - 1));
  const test::TempDir dir;
  const auto file = dir.write(
      "xor.onnx",
      model({{node("Gemm", {"x", "w1", "b1"}, {"h"}), node("Tanh", {"h"}, {"t"}), node("MatMul", {"t", "w2"}, {"y"})},
             {value("x", 1, {-1, 2})},
             {value("y", 1, {-1, 1})},
             {floats("w1", {2, 8}, w1), floats("b1", {8}, {0, 0.1f, -0.1f, 0.2f, -0.2f, 0.3f, -0.3f, 0}),
              floats("w2", {8, 1}, w2)}}));
  ImportedModel imported = import_onnx(file, {.shapes = {{"x", {4, 2}}}, .trainable = true});
  Graph& g = *imported.graph;
  const Value y = g.value(g.outputs()[0].value);
  g.output("loss", bce_with_logits(y, g.input("target", {4, 1})));
  Weights weights(*test::test_device().device);
  weights.add(g);
  for (const auto& [name, literal] : imported.weights) weights.set(name, literal);
  Session session = compile(g, weights, {.mode = Mode::Training, .optimizer = Adam{.lr = 0.05f}});
  session.set("x", std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1});
  session.set("target", std::vector<float>{0, 1, 1, 0});
  session.step();
  const float before = session.read_scalar("loss");
  for (int i = 0; i < 200; ++i) session.step();
  const float after = session.read_scalar("loss");
  EXPECT_GT(before, 0.5f);
  EXPECT_LT(after, 0.05f);
}

TEST(ImportedSession, IntegersOf64BitsAreCheckedWhenTheyAreSet) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const ImportedModel imported = import_onnx(
      dir.write("m.onnx", model({{node("Add", {"x", "x"}, {"y"})}, {value("x", 7, {2})}, {value("y", 7, {2})}})));
  Weights weights(*test::test_device().device);
  Session session = compile(*imported.graph, weights);
  session.set("x", Literal::from_doubles({DType::i64, {2}}, std::vector<double>{-5, 1e9}));
  session.step();
  EXPECT_EQ(session.read_literal("y").to_doubles(), (std::vector<double>{-10, 2e9}));
  EXPECT_ERROR(session.set("x", Literal::from_doubles({DType::i64, {2}}, std::vector<double>{0, 3e9})),
               ErrorCode::OutOfRange, "3000000000");
}

}  // namespace
}  // namespace aeshna
