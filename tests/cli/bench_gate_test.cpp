// Gates on files of a few numbers, of which each error can be worked out by hand.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/gate.h"
#include "io/json_field.h"
#include "io/safetensors.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace aeshna::bench {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, std::vector<double>>;
using Metadata = std::map<std::string, std::string, std::less<>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class BenchGate : public testing::Test {
 protected:
  fs::path write(const std::string& name, const Tensors& tensors, const Metadata& metadata = {},
                 DType dtype = DType::f32) const {
    std::vector<Literal> values;
    std::vector<SafetensorsTensor> list;
    for (const auto& [tensor, numbers] : tensors)
      values.push_back(
          Literal::from_doubles({dtype, Shape({static_cast<std::int64_t>(numbers.size())})}, std::span(numbers)));
    std::size_t i = 0;
    for (const auto& [tensor, numbers] : tensors) {
      list.push_back({tensor, values[i].type(), values[i].bytes()});
      ++i;
    }
    write_safetensors(dir_ / name, list, metadata);
    return dir_ / name;
  }
  Verdict judged(const Tensors& reference, const Tensors& candidate, const GateSubject& subject = kTrain) const {
    return judge(write("reference", reference), write("candidate", candidate), std::nullopt, subject).candidate;
  }

  static const GateSubject kTrain, kFull;
  test::TempDir dir_;
};
const GateSubject BenchGate::kTrain = {.workload = "smollm2", .phase = "train", .contract = "strict"};
const GateSubject BenchGate::kFull = {.workload = "smollm2", .phase = "full", .contract = "strict"};

const Tensors kRight = {{"output", {3, 4}}, {"loss", {2}}, {"grad/a", {3, 0}}, {"grad/b", {0, 4}}};

Tensors with(Tensors tensors, const std::string& name, std::vector<double> values) {
  tensors[name] = std::move(values);
  return tensors;
}

TEST_F(BenchGate, EqualTensorsPassWithoutError) {
  const Verdict verdict = judged(kRight, kRight);
  EXPECT_TRUE(verdict.pass());
  EXPECT_EQ(verdict.forward.output_rel_l2, 0);
  EXPECT_EQ(verdict.forward.loss_error, 0);
  EXPECT_EQ(verdict.backward.value().total_norm_error, 0);
  EXPECT_EQ(verdict.backward.value().norm_vector_error, 0);
  EXPECT_EQ(verdict.elementwise.value().worst_error, 0);
  EXPECT_EQ(verdict.elementwise.value().limit, 1e-3);
}

TEST_F(BenchGate, TheOutputAlone) {
  const Verdict within = judged(kRight, with(kRight, "output", {3, 4.04}));
  EXPECT_TRUE(within.pass());
  EXPECT_NEAR(within.forward.output_rel_l2.value(), 0.04 / 5, 1e-7);
  const Verdict verdict = judged(kRight, with(kRight, "output", {3, 4.06}));
  EXPECT_FALSE(verdict.forward.pass);
  EXPECT_TRUE(verdict.backward.value().pass);
  EXPECT_TRUE(verdict.elementwise.value().pass);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], "forward: relative L2 of the output 0.012, limit 0.01");
}

TEST_F(BenchGate, TheLossAlone) {
  const Verdict verdict = judged(kRight, with(kRight, "loss", {2.03}));
  EXPECT_FALSE(verdict.forward.pass);
  EXPECT_NEAR(verdict.forward.loss_error.value(), 2 * 0.03 / 4.03, 1e-7);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], "forward: error of the loss 0.0149, limit 0.01");
  EXPECT_TRUE(verdict.backward.value().pass && verdict.elementwise.value().pass);
}

TEST_F(BenchGate, TheMetadataHaveMoreDigitsOfTheLoss) {
  const fs::path reference = write("r", kRight, {{"loss", "2.0400000001"}});
  const Verdict verdict = judge(reference, write("c", kRight), std::nullopt, kTrain).candidate;
  EXPECT_NEAR(verdict.forward.loss_error.value(), 2 * 0.0400000001 / 4.0400000001, 1e-15);
  EXPECT_ERROR(judge(write("r", kRight, {{"loss", "2.0x"}}), write("c", kRight), std::nullopt, kTrain),
               ErrorCode::CorruptFile, "the metadata's loss '2.0x' is no number");
}

TEST_F(BenchGate, NormsAlone) {
  // Everything 5 % too large: the elementwise limit of resnet50 still allows it, the norm must be nearer.
  Tensors larger = kRight;
  for (const char* name : {"grad/a", "grad/b"}) {
    for (double& value : larger[name]) value *= 100;
  }
  Tensors right = larger;
  for (const char* name : {"grad/a", "grad/b"}) {
    for (double& value : larger[name]) value *= 1.05;
  }
  const Verdict verdict = judged(right, larger, {.workload = "resnet50", .phase = "train", .contract = "accelerated"});
  EXPECT_TRUE(verdict.forward.pass);
  EXPECT_TRUE(verdict.elementwise.value().pass);
  EXPECT_EQ(verdict.elementwise.value().limit, 5e-2);
  EXPECT_FALSE(verdict.backward.value().pass);
  EXPECT_NEAR(verdict.backward.value().total_norm_error.value(), 0.05, 1e-12);
  EXPECT_EQ(verdict.reasons.size(), 2u);  // of the total and of the vector
}

TEST_F(BenchGate, TheVectorOfNormsMayDifferWhereTheTotalDoesNot) {
  Tensors swapped = kRight;
  swapped["grad/a"] = {4, 0};
  swapped["grad/b"] = {0, 3};
  const Verdict verdict = judged(kRight, swapped);
  EXPECT_EQ(verdict.backward.value().total_norm_error, 0);
  EXPECT_NEAR(verdict.backward.value().norm_vector_error.value(), std::sqrt(2.0) / 5, 1e-12);
  EXPECT_FALSE(verdict.backward.value().pass);
}

TEST_F(BenchGate, ElementsAlone) {
  // The same norms, and the opposite gradient.
  const Verdict verdict = judged(kRight, with(kRight, "grad/b", {0, -4}));
  EXPECT_TRUE(verdict.forward.pass && verdict.backward.value().pass);
  const ElementwiseGate& gate = verdict.elementwise.value();
  EXPECT_FALSE(gate.pass);
  EXPECT_EQ(gate.worst_name, "b");
  EXPECT_EQ(gate.worst_error, 2);
  EXPECT_EQ(gate.median, 1);  // of 0 and 2
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], "elementwise: error of b 2, limit 0.001");
}

TEST_F(BenchGate, LimitsOfContractsAndWorkloads) {
  EXPECT_EQ(elementwise_limit("smollm2", "strict"), 1e-3);
  EXPECT_EQ(elementwise_limit("resnet50", "strict"), 1e-3);
  EXPECT_EQ(elementwise_limit("smollm2", "accelerated"), 2e-2);
  EXPECT_EQ(elementwise_limit("resnet50", "accelerated"), 5e-2);
}

TEST_F(BenchGate, TheFloorOfTheDenominator) {
  // The total norm is 1000, so that no parameter is measured by less than 0.001.
  const Tensors right = {{"output", {1}}, {"loss", {1}}, {"grad/big", {1000}}, {"grad/none", {0}}};
  EXPECT_TRUE(judged(right, with(right, "grad/none", {9.9e-7})).pass());
  const Verdict verdict = judged(right, with(right, "grad/none", {2e-6}));
  EXPECT_EQ(verdict.elementwise.value().worst_name, "none");
  EXPECT_NEAR(verdict.elementwise.value().worst_error.value(), 2e-3, 1e-9);
  EXPECT_FALSE(verdict.pass());
}

TEST_F(BenchGate, ZeroGradients) {
  const Tensors right = {{"output", {0}}, {"loss", {0}}, {"grad/a", {0, 0}}, {"grad/b", {0}}};
  EXPECT_TRUE(judged(right, right).pass()) << "nothing over nothing is no error";
  const Verdict verdict = judged(right, with(right, "grad/b", {1e-30}));
  EXPECT_FALSE(verdict.backward.value().pass);
  EXPECT_FALSE(verdict.elementwise.value().pass);
  EXPECT_EQ(verdict.elementwise.value().worst_error, std::nullopt);
  EXPECT_EQ(verdict.elementwise.value().worst_name, "b");
}

TEST_F(BenchGate, WhatIsNotFiniteFails) {
  for (const double value : {kNan, double{INFINITY}}) {
    const Verdict output = judged(kRight, with(kRight, "output", {3, value}));
    EXPECT_FALSE(output.forward.pass);
    EXPECT_EQ(output.forward.output_rel_l2, std::nullopt);
    EXPECT_EQ(output.reasons.at(0), "forward: relative L2 of the output is not finite");
    EXPECT_FALSE(judged(kRight, with(kRight, "loss", {value})).forward.pass);
    const Verdict gradient = judged(kRight, with(kRight, "grad/b", {value, 4}));
    EXPECT_FALSE(gradient.backward.value().pass);
    EXPECT_FALSE(gradient.elementwise.value().pass);
    EXPECT_EQ(gradient.elementwise.value().worst_name, "b");
    EXPECT_EQ(gradient.reasons.back(), "elementwise: error of b is not finite");
    for (const char* name : {"output", "loss", "grad/a"}) {
      std::vector<double> values = kRight.at(name);
      values[0] = value;
      EXPECT_FALSE(judged(with(kRight, name, values), kRight).pass()) << "in the reference's " << name;
      EXPECT_FALSE(judged(with(kRight, name, values), with(kRight, name, values)).pass()) << "in both";
    }
  }
}

TEST_F(BenchGate, NamesThatAreMissingOrTooMany) {
  Tensors more = kRight;
  for (const char* name : {"c", "d", "e", "f", "g"}) more[std::string("grad/") + name] = {1};
  const Verdict missing = judged(more, kRight);
  EXPECT_TRUE(missing.forward.pass);
  EXPECT_FALSE(missing.backward.value().pass);
  EXPECT_FALSE(missing.elementwise.value().pass);
  EXPECT_EQ(missing.reasons.at(0), "backward: 5 gradients missing: c, d, e and 2 more");
  EXPECT_EQ(missing.elementwise.value().worst_error, 0) << "of those that both have";
  const Verdict extra = judged(kRight, more);
  EXPECT_EQ(extra.reasons.at(0), "backward: 5 gradients that the reference lacks: c, d, e and 2 more");
  EXPECT_FALSE(extra.backward.value().pass);
  const Verdict none = judged({{"output", {1}}, {"loss", {1}}}, {{"output", {1}}, {"loss", {1}}});
  EXPECT_EQ(none.reasons.at(0), "backward: there are no gradients");
  Tensors silent = kRight;
  silent.erase("loss");
  EXPECT_HAS(judged(kRight, silent).reasons.at(0), "forward: no loss in ");
  silent.erase("output");
  EXPECT_EQ(judged(kRight, silent).reasons.at(0), "forward: no output");
  EXPECT_ERROR(judged(silent, kRight), ErrorCode::CorruptFile, "no tensor 'output'");
}

TEST_F(BenchGate, Shapes) {
  EXPECT_EQ(judged(kRight, with(kRight, "output", {3, 4, 5})).reasons.at(0),
            "forward: output has shape [3], the reference [2]");
  const Verdict verdict = judged(kRight, with(kRight, "grad/b", {0, 4, 0}));
  EXPECT_EQ(verdict.reasons.at(0), "backward: 1 gradients of another shape: b [3], not [2]");
  EXPECT_FALSE(verdict.elementwise.value().pass);
}

TEST_F(BenchGate, InferenceHasNoGradients) {
  const Verdict verdict = judged({{"output", {3, 4}}}, {{"output", {3, 4}}}, kFull);
  EXPECT_TRUE(verdict.pass());
  EXPECT_FALSE(verdict.backward || verdict.elementwise);
  EXPECT_EQ(verdict.forward.loss_error, std::nullopt);
}

TEST_F(BenchGate, OtherNumberTypesAndLongTensors) {
  Tensors right = kRight;
  right["output"] = std::vector<double>(5000, 2);
  Tensors other = right;
  other["output"].back() = 2.5;
  const fs::path reference = write("r", right, {}, DType::f64), candidate = write("c", other, {}, DType::f16);
  const Verdict verdict = judge(reference, candidate, std::nullopt, kTrain).candidate;
  EXPECT_TRUE(verdict.pass());
  EXPECT_NEAR(verdict.forward.output_rel_l2.value(), 0.5 / std::sqrt(5000 * 4.0), 1e-15);
}

TEST_F(BenchGate, TheMetadataSayWhatIsJudged) {
  const Metadata said = {{"workload", "unet"}, {"phase", "train"},   {"contract", "accelerated"}, {"config", "full"},
                         {"gpu", "G"},         {"engine", "aeshna"}, {"mode", "recorded"}};
  const fs::path candidate = write("c", kRight, said);
  const GateResult result = judge(write("r", kRight), candidate, std::nullopt, {});
  EXPECT_EQ(result.subject.workload, "unet");
  EXPECT_EQ(result.subject.phase, "train");
  EXPECT_EQ(result.subject.gpu, "G");
  EXPECT_EQ(result.subject.config, "full");
  EXPECT_EQ(result.candidate.engine, "aeshna");
  EXPECT_EQ(result.candidate.mode, "recorded");
  EXPECT_EQ(result.candidate.elementwise.value().limit, 2e-2);
  EXPECT_ERROR(judge(write("r", kRight), candidate, std::nullopt, kTrain), ErrorCode::InvalidArgument,
               "c is of contract 'accelerated', not 'strict'");
  EXPECT_ERROR(judge(write("r", kRight, {{"phase", "full"}}), candidate, std::nullopt, {}), ErrorCode::InvalidArgument,
               "r is of phase 'full', not 'train'");
  EXPECT_ERROR(judge(write("r", kRight), write("d", kRight), std::nullopt, {}), ErrorCode::InvalidArgument,
               "give --workload and --contract");
}

TEST_F(BenchGate, JsonSaysWhatWasJudged) {
  const fs::path reference = write("r", kRight),
                 baseline = write("b", with(kRight, "grad/a", {kNan, 0}), {{"engine", "pytorch"}, {"mode", "eager"}});
  const GateResult result = judge(reference, write("c", with(kRight, "grad/b", {0, 4.001})), baseline, kTrain);
  const nlohmann::json json = nlohmann::json::parse(json_text(result));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("workload"), "smollm2");
  EXPECT_TRUE(json.at("engine").is_null());
  EXPECT_TRUE(json.at("gpu").is_null());
  EXPECT_NEAR(json.at("elementwise").at("worst").at("error").get<double>(), 0.00025, 1e-7);
  EXPECT_EQ(json.at("elementwise").at("worst").at("name"), "b");
  EXPECT_EQ(json.at("baseline").at("mode"), "eager");
  EXPECT_TRUE(json.at("baseline").at("elementwise").at("worst").at("error").is_null());
  EXPECT_EQ(json.at("reasons").size(), 0u);

  const JsonField field("gate.json", json);
  EXPECT_EQ(json_text(read_gate(field)), json_text(result)) << "read back";
  nlohmann::json lie = json;
  lie["forward"]["pass"] = false;
  EXPECT_ERROR(read_gate(JsonField("gate.json", lie)), ErrorCode::CorruptFile, "gate.json: 'reasons' is empty");

  const std::string text = describe(result);
  EXPECT_HAS(text, "PASS elementwise worst 0.00025 of b, median 0.000125 (at most 0.001)");
  EXPECT_HAS(text, "baseline (pytorch eager)");
  EXPECT_HAS(text, "FAIL elementwise worst not finite of a");
}

#ifndef _WIN32
TEST_F(BenchGate, CommandLine) {
  write("right", kRight);
  write("wrong", with(kRight, "grad/b", {0, -4}));
  std::vector<std::string> arguments = {"bench",      "gate",       "--reference", "right",    "--candidate",
                                        "right",      "--workload", "smollm2",     "--phase",  "train",
                                        "--contract", "strict",     "--json",      "gate.json"};
  const test::ProgramResult pass = test::run_program(arguments, dir_.path());
  EXPECT_EQ(pass.status, 0) << pass.err;
  EXPECT_HAS(pass.out, "PASS forward");
  EXPECT_EQ(nlohmann::json::parse(test::read_text(dir_ / "gate.json")).at("elementwise").at("pass"), true);
  arguments[5] = "wrong";
  const test::ProgramResult failed = test::run_program(arguments, dir_.path());
  EXPECT_EQ(failed.status, 1);
  EXPECT_HAS(failed.out, "PASS backward");
  EXPECT_HAS(failed.out, "FAIL elementwise worst 2 of b");
  EXPECT_EQ(failed.err, "");
  arguments[5] = "none";
  const test::ProgramResult none = test::run_program(arguments, dir_.path());
  EXPECT_EQ(none.status, 1);
  EXPECT_HAS(none.err, "aeshna: cannot read none");
  EXPECT_EQ(test::run_program({"bench", "gate", "--candidate", "right"}).status, 2);
  EXPECT_EQ(test::run_program({"bench"}).status, 2);
}
#endif

}  // namespace
}  // namespace aeshna::bench
