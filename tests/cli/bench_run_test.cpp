// Data, a measurement of a small workload, its gate and its report, as a user makes them; what they need of the rest.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/sha.h"
#include "bench/run.h"
#include "bench/workload_values.h"
#include "io/json_writer.h"
#include "io/safetensors.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

TEST(Sha256, KnownAnswers) {
  const auto hash = [](std::string_view text) { return Sha256().add(std::as_bytes(std::span(text))).hex(); };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  // In pieces, over the end of a block.
  const std::string text(1'000'000, 'a');
  Sha256 pieces;
  for (std::size_t at = 0, size = 1; at < text.size(); at += size, size = size % 130 + 1)
    pieces.add(std::as_bytes(std::span(text).subspan(at, std::min(size, text.size() - at))));
  EXPECT_EQ(pieces.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const test::TempDir dir;
  EXPECT_EQ(sha256_file(dir.write("a", text)), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_ERROR(sha256_file(dir / "none"), ErrorCode::NotFound, "none");
}

TEST(JsonWriter, WritesWhatIsReadAgain) {
  JsonWriter part(1);
  part.begin('{');
  part.end();
  JsonWriter json;
  json.begin('{');
  json.text("text", "a \"quoted\" \\ \n\x01 \xc3\xa9");
  json.text("empty", "");
  json.text("latin", "caf\xe9");
  json.number("pi", 3.141592653589793);
  json.number("tiny", 5e-324);
  json.number("infinite", INFINITY);
  json.count("count", 18446744073709551615u);
  json.count("none", std::nullopt);
  json.flag("yes", true);
  json.begin("list", '[');
  json.item(part.take());
  json.item(json_number(1.5));
  json.begin('[');
  json.end();
  json.end();
  json.end();
  const nlohmann::json read = nlohmann::json::parse(json.take());
  EXPECT_EQ(read.at("text"), "a \"quoted\" \\ \n\x01 \xc3\xa9");
  EXPECT_EQ(read.at("latin"), "caf?");
  EXPECT_EQ(read.at("pi"), 3.141592653589793);
  EXPECT_EQ(read.at("tiny"), 5e-324);
  for (const char* key : {"empty", "infinite", "none"}) EXPECT_TRUE(read.at(key).is_null()) << key;
  EXPECT_EQ(read.at("count"), 18446744073709551615u);
  EXPECT_EQ(read.at("yes"), true);
  EXPECT_EQ(read.at("list"), nlohmann::json::parse("[{}, 1.5, []]"));
}

TEST(BenchData, FilesAreOfOneWorkload) {
  const test::TempDir dir;
  const models::Workload &unet = models::find_workload("unet", true), &smollm2 = models::find_workload("smollm2", true);
  const fs::path file = dir / "unet.safetensors";
  const std::uint64_t bytes = write_data(unet, 7, file);
  EXPECT_EQ(bytes, fs::file_size(file));
  const WorkloadValues read(unet, file), drawn(unet, 7);
  EXPECT_EQ(read.seed(), 7u);
  EXPECT_EQ(read.sha256(), sha256_file(file));
  EXPECT_EQ(drawn.sha256(), "");
  const SafetensorsFile tensors(file);
  for (const SafetensorsEntry& entry : tensors.tensors())
    EXPECT_TRUE(read.get(entry.name) == drawn.get(entry.name)) << entry.name;
  EXPECT_ERROR(drawn.get("nothing"), ErrorCode::NotFound, "'nothing'");
  EXPECT_ERROR(WorkloadValues(smollm2, file), ErrorCode::InvalidArgument,
               "holds the data of unet (small), not of smollm2 (small)");
  EXPECT_ERROR(WorkloadValues(models::find_workload("unet"), file), ErrorCode::InvalidArgument, "not of unet (full)");
  const float zero = 0;
  write_safetensors(dir / "x",
                    std::vector<SafetensorsTensor>{{"a", {DType::f32, {1}}, std::as_bytes(std::span(&zero, 1))}});
  EXPECT_ERROR(WorkloadValues(unet, dir / "x"), ErrorCode::CorruptFile, "x: no data of a workload");
}

#ifndef _WIN32

class BenchSession : public testing::Test {
 protected:
  static constexpr const char* kData = "data.safetensors";
  test::ProgramResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "bench");
    return test::run_program(std::move(arguments), dir_.path());
  }
  json load(const char* file) const { return json::parse(test::read_text(dir_ / file)); }
  test::TempDir dir_;
};

TEST_F(BenchSession, DataRunGateReport) {
  AESHNA_NEED_DEVICE();
  const test::ProgramResult data = run({"data", "unet", "--small", "--out", kData});
  ASSERT_EQ(data.status, 0) << data.err;
  EXPECT_HAS(data.out, "data.safetensors: Diffusion U-Net, ");

  const test::ProgramResult result =
      run({"run", "unet", "--small", "--data", kData, "--json", "ours.json", "--tensors", "t", "--samples", "4",
           "--warmups", "1", "--process", "3", "--cache", "cold"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_HAS(result.out, "Diffusion U-Net (small), process 3");
  EXPECT_HAS(result.out, "\ntrain    accelerated  ");
  EXPECT_EQ(result.out.find('\r'), std::string::npos) << "no progress in a pipe";

  const json file = load("ours.json");
  EXPECT_EQ(file.at("engine"), "aeshna");
  EXPECT_EQ(file.at("config"), "small");
  EXPECT_EQ(file.at("process"), 3);
  EXPECT_EQ(file.at("data").at("sha256"), sha256_file(dir_ / kData));
  EXPECT_EQ(file.at("environment").at("gpu"), test::test_device().device->info().name);
  for (const char* key : {"driver", "api", "os", "cpu", "toolchain"})
    EXPECT_NE(file.at("environment").at(key).get<std::string>(), "") << key;
  EXPECT_TRUE(file.at("revision").is_null() || file.at("revision").get<std::string>().size() == 40);
  const json& compile = file.at("compile").at("strict");
  EXPECT_EQ(compile.at("cache"), "cold");
  EXPECT_GT(compile.at("seconds").get<double>(), compile.at("by_phase").at("train").get<double>());
  EXPECT_EQ(compile.at("by_phase").size(), 3u);
  EXPECT_GT(compile.at("stages").size(), 5u);

  ASSERT_EQ(file.at("cells").size(), 6u);
  for (const json& cell : file.at("cells")) {
    const bool train = cell.at("phase") == "train";
    EXPECT_TRUE(cell.at("error").is_null());
    EXPECT_EQ(cell.at("samples_ms").size(), 4u);
    EXPECT_LE(cell.at("min_ms"), cell.at("p25_ms"));
    EXPECT_LE(cell.at("p25_ms"), cell.at("median_ms"));
    EXPECT_LE(cell.at("median_ms"), cell.at("max_ms"));
    const json& memory = cell.at("memory");
    const auto bytes = [&](const char* key) { return memory.at(key).get<std::uint64_t>(); };
    EXPECT_EQ(bytes("plan_physical_bytes"), bytes("arena_bytes") + bytes("pinned_bytes") + bytes("workspace_bytes"));
    EXPECT_GE(bytes("plan_logical_bytes"), bytes("plan_physical_bytes"));
    EXPECT_GT(cell.at("dispatches").get<int>(), 10);
    EXPECT_LE(cell.at("barriers"), cell.at("dispatches"));
    EXPECT_EQ(cell.at("loss").is_null(), !train);
    EXPECT_EQ(cell.at("gradients").empty(), !train);
    EXPECT_GT(cell.at("output").at("l2").get<double>(), 0);
    EXPECT_EQ(cell.at("output").at("first").size(), 8u);

    const SafetensorsFile tensors(dir_ / ("t/" + cell.at("tensors").get<std::string>()));
    EXPECT_EQ(tensors.metadata().at("phase"), cell.at("phase").get<std::string>());
    EXPECT_EQ(tensors.tensors().size(), cell.at("gradients").size() + (train ? 2 : 1));
    for (const auto& [name, norm] : cell.at("gradients").items())
      EXPECT_NE(tensors.find("grad/" + name), nullptr) << name;
    if (train) {
      EXPECT_EQ(tensors.find("loss")->type.shape, Shape({1}));
    }
  }

  const std::vector<std::string> gate = {"gate",
                                         "--reference",
                                         "t/aeshna-train-strict.safetensors",
                                         "--candidate",
                                         "t/aeshna-train-accelerated.safetensors",
                                         "--json",
                                         "gate.json"};
  const test::ProgramResult judged = run(gate);
  EXPECT_EQ(judged.status, 0) << judged.out << judged.err;
  EXPECT_EQ(load("gate.json").at("contract"), "accelerated");
  EXPECT_EQ(load("gate.json").at("elementwise").at("limit"), 2e-2);

  const test::ProgramResult report = run({"report", ".", "--out", "report"});
  ASSERT_EQ(report.status, 0) << report.err;
  const json summary = load("report/summary.json");
  ASSERT_EQ(summary.size(), 6u);
  EXPECT_EQ(summary[5].at("phase"), "train");
  EXPECT_EQ(summary[5].at("elementwise_gate"), true);
  EXPECT_FALSE(summary[5].at("compile_cold_s").is_null());
}

TEST_F(BenchSession, AFailedPhaseIsACellWithAnError) {
  AESHNA_NEED_DEVICE();
  // Data without the target of the loss.
  const models::Workload& workload = models::find_workload("unet", true);
  std::map<std::string, Literal> values = models::workload_data(workload, 1);
  values.erase("input/noise_target");
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, value] : values) tensors.push_back({name, value.type(), value.bytes()});
  write_safetensors(dir_ / kData, tensors, {{"workload", "unet"}, {"config", "small"}, {"seed", "1"}});
  const test::ProgramResult result =
      run({"run", "unet", "--small", "--data", kData, "--json", "x.json", "--samples", "1", "--warmups", "0",
           "--contract", "strict", "--phase", "train", "--phase", "minimal"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_HAS(result.out, "train    strict    error: ");
  const json file = load("x.json");
  ASSERT_EQ(file.at("cells").size(), 2u);
  EXPECT_HAS(file.at("cells")[0].at("error").get<std::string>(), "has no tensor 'input/noise_target'");
  EXPECT_FALSE(file.at("cells")[0].contains("samples_ms"));
  EXPECT_TRUE(file.at("cells")[1].at("error").is_null());
  EXPECT_TRUE(file.at("compile").at("strict").at("seconds").is_null()) << "not all phases";
  EXPECT_EQ(file.at("compile").at("strict").at("cache"), "warm");
  EXPECT_EQ(run({"report", "x.json", "--out", "report"}).status, 0);
}

TEST_F(BenchSession, WrongArguments) {
  EXPECT_EQ(run({"run", "unet", "--json", "x", "--contract", "loose"}).status, 2);
  EXPECT_EQ(run({"run", "unet", "--json", "x", "--samples", "0"}).status, 2);
  EXPECT_EQ(run({"run", "unet"}).status, 2);
  EXPECT_EQ(run({"data", "unet", "--out", "x", "--seed", "-1"}).status, 2);
  const test::ProgramResult unknown = run({"run", "gpt", "--json", "x"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "gpt");
  EXPECT_HAS(unknown.err, "smollm2");
  const test::ProgramResult nowhere = run({"run", "unet", "--small", "--json", "none/x.json"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_HAS(nowhere.err, "none/x.json: there is no folder none");
}

#endif

}  // namespace
}  // namespace aeshna::bench
