// The program as a user meets it: exit status, output, messages. Devices: the suites CliDevice*.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "nn/tiny_language_model.h"
#include "support/nnef_model.h"
#include "support/onnx_writer.h"
#include "support/run_program.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

#ifndef _WIN32
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace aeshna {
namespace {

namespace fs = std::filesystem;

using Result = test::ProgramResult;

/// Runs `aeshna ARGUMENTS...`.
Result run(std::vector<std::string> arguments, const fs::path& folder = fs::temp_directory_path(),
           const std::string& stop_at = "", const fs::path& program = AESHNA_CLI) {
  return test::run_program(std::move(arguments), folder, stop_at, program);
}

// ---- imported models

/// y = (x + w) * 2, and its second output named as exporters do; sr is not used unless bound.
fs::path write_model(const test::TempDir& dir) {
  using namespace test::proto;
  return dir.write(
      "m.onnx",
      model({{node("Add", {"x", "w"}, {"s"}), node("Mul", {"s", "two"}, {"y"}), node("Neg", {"y"}, {"head/out:0"})},
             {value("x", 1, {-1, 2})},
             {value("y", 1, {-1, 2}), value("head/out:0", 1, {-1, 2})},
             {floats("w", {2}, {10, 20}), floats("two", {}, {2})}}));
}

TEST(Cli, InfoDescribesAnOnnxModel) {
  const test::TempDir dir;
  const std::string file = write_model(dir).string();
  const Result open = run({"info", file});
  EXPECT_EQ(open.status, 0) << open.err;
  for (const char* part : {"ONNX, IR version 8, opset 17, 2 weights of 3 elements", "float[n, 2]", "head/out:0",
                           "1 Mul", "inputs with open dimensions need a shape"})
    EXPECT_HAS(open.out, part);
  EXPECT_HAS(run({"info", file, "--shape", "x=3,2"}).out, "everything is supported");
  using namespace test::proto;
  const fs::path odd = dir.write(
      "odd.onnx",
      model({{node("NonMaxSuppression", {"x"}, {"y"}, {}, "nms")}, {value("x", 1, {2})}, {value("y", 1, {2})}}));
  EXPECT_HAS(run({"info", odd.string()}).out, "NonMaxSuppression 'nms': this op is not supported");
}

TEST(Cli, InfoDescribesAnNnefModel) {
  const test::TempDir dir;
  dir.write("graph.nnef",
            "version 1.0;\ngraph toy(x) -> (y, z) {\n x = external<scalar>(shape = [2, 3]);\n"
            " w = variable<scalar>(shape = [1, 3], label = 'w');\n y = mul(x, w);\n z = max_roi_pool(x, x, 0, "
            "output_size = [1]);\n}\n");
  dir.write("w.dat", test::tensor_file({1, 3}, 0, 32, std::string(12, '\0')));
  const Result r = run({"info", dir.path().string()});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* part :
       {"NNEF 1.0, graph toy, 1 variables of 3 elements", "f32[2, 3]", "1 mul", "not supported\n  6:6 max_roi_pool: "})
    EXPECT_HAS(r.out, part);
  const Result run_it = run({"run", (dir / "graph.nnef").string()});
  EXPECT_EQ(run_it.status, 1);
  EXPECT_HAS(run_it.err, "graph.nnef:6:6: max_roi_pool: no op for regions of interest");
  const test::TempDir empty;
  EXPECT_HAS(run({"info", empty.path().string()}).err, "is a folder without graph.nnef (NNEF); models of Hugging Face");
}

TEST(Cli, RunRefusesByName) {
  const test::TempDir dir;
  const std::string file = write_model(dir).string();
  const auto refused = [&](std::vector<std::string> more, const std::string& part, int status = 1) {
    std::vector<std::string> arguments = {"run", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result r = run(arguments);
    EXPECT_EQ(r.status, status);
    EXPECT_HAS(r.err, part);
  };
  refused({}, "'x' is float[n, 2]");
  refused({"--shape", "x=3,2"}, "no values (--input NAME=FILE.npy) are given for these inputs:\n  x f32[3, 2]");
  refused({"--shape", "x=3,5"}, "the shape given [3, 5]");
  refused({"--shape", "x"}, "--shape 'x': NAME=VALUE is expected\nsee aeshna run --help\n", 2);
  refused({"--shape", "x=3,b"}, "'b' is no size", 2);
  refused({"--bind", "q=b"}, "'b' is no number", 2);
  refused({"--bind", "q=1", "--shape", "x=1,2"}, "a value is given for 'q', which is no input");
  refused({"--input", "x=" + (dir / "absent.npy").string()}, "absent.npy");
  write_npy(dir / "ints.npy", Literal::from_doubles({DType::i32, {1, 2}}, std::vector<double>{1, 2}));
  refused({"--input", "x=" + (dir / "ints.npy").string()},
          "input 'x' is f32[1, 2], the file given for it has i32[1, 2]");
  using namespace test::proto;
  const fs::path odd = dir.write(
      "odd.onnx",
      model({{node("NonMaxSuppression", {"x"}, {"y"}, {}, "nms")}, {value("x", 1, {2})}, {value("y", 1, {2})}}));
  EXPECT_HAS(run({"run", "m.gguf"}).err, "language models are for aeshna generate");
  const Result r = run({"run", odd.string()});
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.err, "NonMaxSuppression 'nms': this op is not supported");
}

TEST(CliDevice, RunsAnOnnxModel) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const std::string file = write_model(dir).string();
  write_npy(dir / "x.npy", Literal::from_doubles({DType::f32, {2, 2}}, std::vector<double>{1, 2, 3, 4}));
  const Result r =
      run({"run", file, "--input", "x=" + (dir / "x.npy").string(), "--output-dir", (dir / "out").string()});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy(dir / "out/y.npy"),
            Literal::from_doubles({DType::f32, {2, 2}}, std::vector<double>{22, 44, 26, 48}));
  EXPECT_EQ(read_npy(dir / "out/head_out:0.npy"),
            Literal::from_doubles({DType::f32, {2, 2}}, std::vector<double>{-22, -44, -26, -48}));
  const Result no_folder =
      run({"run", file, "--input", "x=" + (dir / "x.npy").string(), "--output-dir", (dir / "x.npy/out").string()});
  EXPECT_EQ(no_folder.status, 1);
  EXPECT_HAS(no_folder.err, "x.npy/out: the folder cannot be made: ");
  EXPECT_EQ(no_folder.out.find("compiled"), std::string::npos);
  const Result summary = run({"--quiet", "run", file, "--input", "x=" + (dir / "x.npy").string()});
  EXPECT_EQ(summary.out,
            "y  f32[2, 2]  min 22  max 48  mean 35  first 22, 44, 26, 48\nhead/out:0  f32[2, 2]  min -48  max -22  "
            "mean -35  first -22, -44, -26, -48\n");
}

TEST(Cli, HelpAndVersion) {
  const Result help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command :
       {"devices", "info", "train", "run", "dump", "profile", "bench", "check", "--device", "--validation", "--quiet"})
    EXPECT_HAS(help.out, command);
  EXPECT_EQ(help.err, "");
  const Result version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out, "aeshna " AESHNA_VERSION "\n");
  EXPECT_HAS(run({"train", "digits", "--help"}).out, "--hidden");
}

TEST(Cli, UsageErrorsExitWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"fly"},
                                             {"train"},
                                             {"train", "mnist"},
                                             {"info"},
                                             {"dump", "--stages"},
                                             {"train", "digits", "--epochs", "0"},
                                             {"train", "digits", "--epochs", "many"},
                                             {"train", "digits", "--lr", "-1"},
                                             {"train", "digits", "--optimizer", "magic"},
                                             {"train", "digits", "--model", "tree"},
                                             {"train", "chars", "--steps", "0"},
                                             {"train", "digits", "--hidden", "12,x"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2) << (arguments.empty() ? "" : arguments.back());
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.find("aeshna: "), 0u) << result.err;
    EXPECT_HAS(result.err, "--help");
  }
  EXPECT_HAS(run({"train", "digits", "--epochs", "0"}).err, "see aeshna train digits --help");
}

TEST(CliDevice, RunsAnNnefModel) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  dir.write("graph.nnef",
            "version 1.0;\ngraph toy(x) -> (y) {\n x = external<scalar>(shape = [0, 2]);\n w = variable<scalar>(shape "
            "= [1, 2], "
            "label = 'w');\n y = mul(x, w);\n}\n");
  dir.write("w.dat", test::tensor_file(Literal::from_doubles({DType::f32, {1, 2}}, std::vector<double>{10, 20})));
  write_npy(dir / "x.npy", Literal::from_doubles({DType::f32, {2, 2}}, std::vector<double>{1, 2, 3, 4}));
  const Result r = run({"--quiet", "run", dir.path().string(), "--input", "x=" + (dir / "x.npy").string()});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "y  f32[2, 2]  min 10  max 80  mean 40  first 10, 40, 30, 80\n");
}

TEST(CliDevice, DevicesAsJson) {
  const Result result = run({"devices", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const auto devices = nlohmann::json::parse(result.out);
  ASSERT_TRUE(devices.is_array());
  for (const auto& device : devices) {
    EXPECT_TRUE(device.at("name").is_string());
    EXPECT_EQ(device.at("uuid").get<std::string>().size(), 32u);
    EXPECT_TRUE(device.at("usable").is_boolean());
  }
  EXPECT_EQ(run({"devices"}).status, 0);
}

TEST(Cli, InfoRefusesWhatItCannotRead) {
  const test::TempDir dir;
  dir.write("model.h5", "\x89HDF and more");
  dir.write("empty", "");
  dir.write("cut.safetensors", "abc");
  dir.write("bad.txt", "aeshna graph 1\n%0 = nonsense(\n");
  const auto error = [&](const char* file, const char* part) {
    const Result result = run({"info", file}, dir.path());
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err.find("aeshna: "), 0u) << result.err;
    EXPECT_HAS(result.err, part);
    EXPECT_HAS(result.err, file);
    EXPECT_EQ(result.out, "");
  };
  error("model.h5", "an HDF5 file");
  error("empty", "of an unknown format");
  error("cut.safetensors", "cut.safetensors");
  error("none.safetensors", "none.safetensors");
  error("bad.txt", "line 2");
}

// What a file holds must not become a command to the terminal.
TEST(Cli, InfoShowsNoControlCharacters) {
  const test::TempDir dir;
  const std::string header = R"({"__metadata__": {"title": "a\u001b[2Jb"}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  dir.write("m.safetensors", file + header);
  const Result result = run({"info", "m.safetensors"}, dir.path());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(result.out, "a?[2Jb");
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
}

TEST(Cli, DumpOfAGraphFile) {
  const test::TempDir dir;
  const Result stages = run({"dump", "--stage", "list"});
  EXPECT_EQ(stages.status, 0) << stages.err;
  EXPECT_HAS(stages.out, "verify");
  EXPECT_HAS(stages.out, "plan");

  // The null device plans without a driver; the text of the first stage is a graph file again.
  const Result graph = run({"dump", "--stage", "verify", "--device", "null"});
  ASSERT_EQ(graph.status, 0) << graph.err;
  EXPECT_EQ(graph.out.find("aeshna graph 1"), 0u);
  dir.write("mlp.txt", graph.out);
  const Result info = run({"info", "mlp.txt"}, dir.path());
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_HAS(info.out, "f32[50, 64]");
  EXPECT_HAS(info.out, "logits");
  const Result again = run({"dump", "--stage", "verify", "--graph", "mlp.txt", "--device", "null"}, dir.path());
  EXPECT_EQ(again.out, graph.out);

  const Result plan = run({"dump", "--train", "--device", "null"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_HAS(plan.out, "mlp.0.weight");
  const Result unfused = run({"dump", "--train", "--no-fusion", "--device", "null"});
  EXPECT_EQ(unfused.status, 0) << unfused.err;
  EXPECT_GT(unfused.out.size(), plan.out.size());

  const Result unknown = run({"dump", "--stage", "nonsense", "--device", "null"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "nonsense");
}

TEST(Cli, ProfileNeedsTimestampsAndSomethingToProfile) {
  const Result null = run({"profile", "smollm2", "--small", "--device", "null"});
  EXPECT_EQ(null.status, 1);
  EXPECT_HAS(null.err, "device null has no timestamps");
  const Result nothing = run({"profile", "--device", "null"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_HAS(nothing.err, "a workload or --graph FILE");
  const Result mixed = run({"profile", "--graph", "x.txt", "--data", "x.safetensors", "--device", "null"});
  EXPECT_EQ(mixed.status, 2);
  EXPECT_HAS(mixed.err, "--data are a workload's");
  const Result unknown = run({"profile", "smollm3", "--device", "null"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "smollm2");
  EXPECT_EQ(run({"profile", "smollm2", "--phase", "half"}).status, 2);
  EXPECT_EQ(run({"profile", "smollm2", "--contract", "loose"}).status, 2);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(CliDeviceProfile, TextJsonAndTrace) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const Result result = run({"-q", "profile", "smollm2", "--small", "--phase", "train", "--repeat", "2", "--json",
                             "p.json", "--trace", "t.json", "--top", "400"},
                            dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(first_line(result.out), "SmolLM2-135M (small), train, strict, on ");
  for (const char* part : {"step, wall clock", "ceilings", "backward", "matmul", "attention dkv", "self_attn.q_proj"})
    EXPECT_HAS(result.out, part);
  std::size_t width = 0;
  for (std::size_t begin = 0, end; (end = result.out.find('\n', begin)) != std::string::npos; begin = end + 1)
    width = std::max(width, end - begin);
  EXPECT_LE(width, 140u);

  const auto json = nlohmann::json::parse(test::read_text(dir / "p.json"));
  double sum = 0;
  for (const auto& row : json.at("rows")) {
    EXPECT_GT(row.at("us").get<double>(), 0);
    EXPECT_NEAR(row.at("excess_us").get<double>(), row.at("us").get<double>() - row.at("bound_us").get<double>(), 1e-6);
    sum += row.at("us").get<double>();
  }
  EXPECT_EQ(json.at("rows").size(), json.at("dispatches").get<std::size_t>());
  EXPECT_NEAR(json.at("sum_ms").get<double>(), sum / 1000, 1e-9 * sum);
  EXPECT_GT(json.at("ceilings").at("gb_per_s").get<double>(), 0);
  EXPECT_GT(json.at("segments").at("backward").at("share").get<double>(), 0);

  // Complete events, one after the other on the track of their segment, with what Perfetto wants to know of the tracks.
  const auto trace = nlohmann::json::parse(test::read_text(dir / "t.json"));
  std::map<int, double> end_of_track;
  std::map<int, std::string> track_names;
  std::size_t events = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const int track = event.at("tid").get<int>();
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") track_names[track] = event.at("args").at("name").get<std::string>();
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    EXPECT_EQ(track_names.at(track), event.at("args").at("segment").get<std::string>());
    EXPECT_GE(event.at("ts").get<double>(), end_of_track[track]);
    end_of_track[track] = event.at("ts").get<double>() + event.at("dur").get<double>();
    ++events;
  }
  EXPECT_EQ(events, json.at("rows").size());
}

TEST(CliDeviceProfile, AGraphFile) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  dir.write("mlp.txt", run({"dump", "--stage", "verify", "--device", "null"}).out);
  const Result result = run({"-q", "profile", "--graph", "mlp.txt", "--repeat", "1", "--top", "3"}, dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(first_line(result.out), "mlp.txt, full, strict, on ");
  EXPECT_HAS(result.out, "mlp.0");
  const Result missing = run({"profile", "--graph", "none.txt"}, dir.path());
  EXPECT_EQ(missing.status, 1);
  EXPECT_HAS(missing.err, "none.txt");
}

TEST(Cli, OpsWithMeasuredErrors) {
  const test::TempDir dir;
  dir.write("a.json", R"({"device": "A",
      "ops": {"abs": {"cases": 3, "forward": 0, "gradient": 2.5e-7, "has_gradient": true,
                      "kernels": ["pointwise x", "pointwise y"]}},
      "kernels": {"pointwise": {"x": {"alone": {"comparisons": 7, "worst": 1.25e-7},
                                      "in_plans": {"comparisons": 40, "worst": 0}},
                                "y": {"alone": {"comparisons": 0, "worst": 0},
                                      "in_plans": {"comparisons": 5, "worst": 2.5e-7}}}}})");
  dir.write("b.json", R"({"device": "B",
      "ops": {"iota": {"cases": 1, "forward": 1e-3, "gradient": 0, "has_gradient": false, "kernels": ["pointwise x"]}},
      "kernels": {"gemv": {"z": {"alone": {"comparisons": 2, "worst": 3e-6},
                                 "in_plans": {"comparisons": 0, "worst": 0}}},
                  "pointwise": {"x": {"alone": {"comparisons": 9, "worst": 0},
                                      "in_plans": {"comparisons": 1, "worst": 1e-3}}}}})");
  const Result plain = run({"ops"}), result = run({"ops", "--errors", "a.json", "b.json"}, dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.find(plain.out), 0u) << "the measured part comes after";
  EXPECT_HAS(result.out, "| A: result | gradient | B: result | gradient |");
  EXPECT_HAS(result.out, "| `abs` | 3 | 0 | 2.5e-07 | not run | | pointwise (2 variants) |");
  EXPECT_HAS(result.out, "| `iota` | 1 | not run | | 1.0e-03 |  | pointwise (1 variant) |");
  const std::string head = "| variant | A: alone | in plans | B: alone | in plans |\n|---|---|---|---|---|\n";
  EXPECT_HAS(result.out, "\n#### gemv\n\n" + head +
                             "| `z` | - | - | 3.0e-06 (2) | - |\n"
                             "\n#### pointwise\n\n" +
                             head +
                             "| `x` | 1.2e-07 (7) | 0 (40) | 0 (9) | 1.0e-03 (1) |\n"
                             "| `y` | - | 2.5e-07 (5) | - | - |\n");

  const auto expect_refused = [&](const char* content, const char* message) {
    dir.write("bad.json", content);
    const Result bad = run({"ops", "--errors", "a.json", "bad.json"}, dir.path());
    EXPECT_EQ(bad.status, 1);
    EXPECT_EQ(bad.out, "");
    EXPECT_EQ(bad.err.find(formatted("aeshna: bad.json: {}", message)), 0u) << bad.err;
  };
  expect_refused("{", "not JSON: ");
  expect_refused(R"([])", "not what the tests write: 'device' is missing");
  expect_refused(R"({"device": "B", "ops": 3})", "not what the tests write: 'ops' is number, not an object");
  expect_refused(R"({"device": "B", "ops": {}})", "not what the tests write: 'kernels' is missing");
  expect_refused(R"({"device": "B", "ops": {"abs": {"cases": "3"}}})",
                 "not what the tests write: 'ops.abs.cases' is string, not a whole number");
  expect_refused(
      R"({"device": "B", "ops": {}, "kernels": {"scan": {"x": {"alone": {"comparisons": 1, "worst": null}}}}})",
      "not what the tests write: 'kernels.scan.x.alone.worst' is null, not a number");
}

TEST(Cli, OpsDocumentIsUpToDate) {
  const fs::path docs = fs::path(AESHNA_SOURCE_DIR) / "docs";
  std::vector<std::string> arguments{"ops", "--errors"};
  for (const auto& entry : fs::directory_iterator(docs / "op-errors"))
    arguments.push_back("op-errors/" + entry.path().filename().string());
  ASSERT_GT(arguments.size(), 2u);
  std::sort(arguments.begin() + 2, arguments.end());
  const Result result = run(arguments, docs);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(test::read_text(docs / "ops.md") == result.out)
      << "run: aeshna ops --errors docs/op-errors/*.json > docs/ops.md";
}

TEST(CliDevice, OpsReadsWhatTheTestProgramMeasures) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  // Without the variables that would give this run a shard of the tests.
  const Result tests =
      run({"-u", "GTEST_TOTAL_SHARDS", "-u", "GTEST_SHARD_INDEX", "AESHNA_TEST_ERRORS=errors.json",
           fs::read_symlink("/proc/self/exe").string(), "--gtest_filter=PointwiseGpu.Sizes:All/OpRecord.Device/abs"},
          dir.path(), "", "/usr/bin/env");
  ASSERT_EQ(tests.status, 0) << tests.out << tests.err;
  const Result result = run({"ops", "--errors", "errors.json"}, dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string count = "[1-9][0-9]*", error = "[0-9][0-9.e-]* [(]" + count + "[)]";
  EXPECT_THAT(result.out, testing::ContainsRegex("\n[|] `abs` [|] " + count + " [|] 0 [|] 0 [|] pointwise [(]" + count +
                                                 " variants?[)] [|]\n"));
  // A variant that both tests ran: alone and in the plan of abs.
  EXPECT_THAT(result.out,
              testing::ContainsRegex("\n#### pointwise\n[^#]*\n[|] `[^`]*` [|] " + error + " [|] " + error + " [|]\n"));
}

TEST(CliDevice, AMachineWithoutADriverIsToldSo) {
  ::setenv("VK_DRIVER_FILES", "/nonexistent/driver.json",
           1);  // for the children only: this process has its loader already
  const Result devices = run({"devices"}), json = run({"devices", "--json"}), check = run({"check"});
  ::unsetenv("VK_DRIVER_FILES");
  EXPECT_EQ(devices.status, 0);
  EXPECT_HAS(devices.out, "no devices");
  EXPECT_EQ(json.out, "[]\n");
  EXPECT_EQ(check.status, 1);
  EXPECT_EQ(check.err.find("aeshna: "), 0u) << check.err;
  EXPECT_HAS(check.err, "no ");
}

TEST(CliDevice, UnknownDeviceIsNamed) {
  AESHNA_NEED_DEVICE();
  const Result result = run({"check", "--device", "no such device"});
  EXPECT_EQ(result.status, 1);
  EXPECT_HAS(result.err, "no such device");
}

TEST(CliDevice, Check) {
  AESHNA_NEED_DEVICE();
  const Result result = run({"check"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_HAS(result.out, "matmul");
  EXPECT_HAS(result.out, "OK");
  EXPECT_EQ(result.out.find("FAIL"), std::string::npos) << result.out;
  // The null device computes nothing, and the check must notice.
  const Result null = run({"check", "--device", "null"});
  EXPECT_EQ(null.status, 1);
  EXPECT_HAS(null.out, "FAIL");
}

TEST(CliDevice, TrainDigitsSavesShowsAndResumes) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const std::vector<std::string> arguments = {"train", "digits",   "--data", data,        "--epochs",
                                              "4",     "--hidden", "48",     "--out-dir", "run"};
  const Result result = run(arguments, dir.path());
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  for (const char* part : {"1500 pictures of 8x8", "297 held out", "epoch 4/4", "steps/s", "of 297 right",
                           "truth \\ predicted", "read as ", "digits.safetensors"}) {
    EXPECT_HAS(result.out, part);
  }
  EXPECT_EQ(result.out.find('\r'), std::string::npos) << "a pipe is no terminal";
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_HAS(test::read_text(dir / "run/loss.svg"), "held-out accuracy");

  const Result info = run({"info", "run/digits.safetensors"}, dir.path());
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_HAS(info.out, "mlp.0.weight");
  EXPECT_HAS(info.out, "f32");

  std::vector<std::string> more = arguments;
  more.push_back("--resume");
  EXPECT_HAS(run(more, dir.path()).out, "has all 4 epochs already");
  more[5] = "5";
  const Result resumed = run(more, dir.path());
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_HAS(resumed.out, "trained   30 steps");
  more[7] = "49";  // another model than the file's
  const Result other = run(more, dir.path());
  EXPECT_EQ(other.status, 1);
  EXPECT_HAS(other.err, "mlp.0.weight");
}

/// Processor seconds of all children so far: unlike the clock on the wall, not a matter of what else this machine does.
double children_seconds() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_CHILDREN, &usage), 0);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
}

TEST(CliDevice, TheDemoReaches96PercentInUnderAMinute) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const double before = children_seconds();
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const Result result = run({"train", "digits", "--quiet", "--data", data}, dir.path());
  EXPECT_LT(children_seconds() - before, 60);
  ASSERT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(result.out.find("held out  "), 0u) << result.out;  // the only line
  EXPECT_GE(std::stod(result.out.substr(10)), 96.0) << result.out;
}

TEST(CliDevice, TheConvolutionalDemoReaches98Percent) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const Result result = run({"train", "digits", "--model", "cnn", "--quiet", "--data", data}, dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(result.out.find("held out  "), 0u) << result.out;
  EXPECT_GE(std::stod(result.out.substr(10)), 98.0) << result.out;
}

TEST(CliDevice, TrainDigitsWithAnotherModel) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const Result result =
      run({"train", "digits", "--model", "cnn", "--channels", "3", "--epochs", "1", "--data", data}, dir.path());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(result.out, "cnn 8x8, conv 3, linear 48-10");
  EXPECT_HAS(run({"info", "digits.safetensors"}, dir.path()).out, "conv.0.weight");
  const Result wrong = run({"train", "digits", "--channels", "3", "--data", data}, dir.path());
  EXPECT_EQ(wrong.status, 2);
  EXPECT_HAS(wrong.err, "--model cnn");
}

TEST(CliDevice, TrainCharsLearnsSavesAndWrites) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abcdefgh\xff ";  // bytes, not characters of some encoding
  dir.write("text", text);
  const std::vector<std::string> arguments = {"train", "chars",   "--text", "text",    "--steps", "40",         "--window",
                                              "12",    "--width", "16",     "--layers", "1",       "--heads",    "2",
                                              "--batch", "4",     "--lr",   "0.02",    "--generate", "50",       "--temperature",
                                              "0",     "--prompt", "abc"};
  const Result result = run(arguments, dir.path());
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  for (const char* part : {"540 bytes to train on, 60 held out, 10 different", "Llama of 1 layers", "step 40/40",
                           "steps/s", "loss 3.", "session on chars.gguf", "abcdefgh"}) {
    EXPECT_HAS(result.out, part);
  }
  EXPECT_EQ(result.out.find('\r'), std::string::npos) << "a pipe is no terminal";
  const std::size_t at = result.out.find("held out  loss ");
  ASSERT_NE(at, std::string::npos) << result.out;
  EXPECT_LT(std::stod(result.out.substr(at + 15)), 1.0) << result.out;  // log(10) when nothing is learnt
  EXPECT_HAS(run({"info", "chars.safetensors"}, dir.path()).out, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_HAS(run({"info", "chars.gguf"}, dir.path()).out, "blk.0.attn_q.weight");

  // The file goes on as the command itself did, as long as its window reaches.
  const Result again = run({"generate", "chars.gguf", "abc", "--max-tokens", "9", "--quiet"}, dir.path());
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_HAS(again.out, "defgh");
  EXPECT_HAS(result.out, "abc" + again.out.substr(0, again.out.size() - 1));

  std::vector<std::string> more = arguments;
  more.push_back("--resume");
  EXPECT_HAS(run(more, dir.path()).out, "has all 40 steps already");
  more.push_back("--quiet");
  more[5] = "42";
  const Result quiet = run(more, dir.path());
  EXPECT_EQ(quiet.out.find("held out  "), 0u) << quiet.out;
  dir.write("text", text + text + "z");
  const Result other = run(more, dir.path());
  EXPECT_EQ(other.status, 1);
  EXPECT_HAS(other.err, "chars.safetensors is of another text or model");
  const std::string old =
      R"({"version":1,"step":5,"micro_step":0,"seed":1,"optimizer":"adamw","extra":"{\"heads\":2}"})";
  write_safetensors(dir / "chars.safetensors", std::span<const SafetensorsTensor>(), {{"aeshna", old}});
  const Result before = run(more, dir.path());
  EXPECT_EQ(before.status, 1);
  EXPECT_HAS(before.err, "no checkpoint of this character model");
}

TEST(CliDevice, TrainCharsErrorsNameTheThing) {
  const test::TempDir dir;
  dir.write("short", "abcdefgh");
  dir.write("empty", "");
  dir.write("long", std::string(600, 'a'));
  const auto error = [&](const std::vector<std::string>& arguments, const char* part, int status = 1) {
    const Result result = run(arguments, dir.path());
    EXPECT_EQ(result.status, status);
    EXPECT_EQ(result.err.find("aeshna: "), 0u) << result.err;
    EXPECT_HAS(result.err, part);
    EXPECT_EQ(result.out, "");
  };
  error({"train", "chars", "--text", "none.txt"}, "none.txt");
  error({"train", "chars", "--text", "short"}, "short: 8 bytes are too short: a window of 128");
  error({"train", "chars", "--text", "empty"}, "empty: 0 bytes are too short");
  error({"train", "chars", "--text", "long", "--heads", "5"}, "--heads 5", 2);
  error({"train", "chars", "--text", "long", "--width", "12", "--heads", "4"}, "--width 12 / --heads 4 is odd", 2);
  error({"train", "chars", "--text", "long", "--prompt", "b"}, "--prompt holds the byte 'b'");
  EXPECT_EQ(run({"train", "chars", "--temperature", "-1"}).status, 2);
  EXPECT_HAS(run({"nosuch"}).err, "there is no command 'nosuch'");
  for (const char* text : {"nan", "inf"}) EXPECT_EQ(run({"train", "chars", "--temperature", text}).status, 2) << text;
  for (const char* text : {"-1", "99999999999999999999999", "1.5"}) {
    const Result seed = run({"train", "digits", "--seed", text});
    EXPECT_EQ(seed.status, 2) << text;
    EXPECT_TRUE(seed.err.contains("no whole number from 0")) << seed.err;
  }
}

TEST(CliDevice, InterruptedTrainingKeepsItsCheckpoint) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const Result result = run({"train", "digits", "--data", data, "--epochs", "2000"}, dir.path(), "compiled");
  EXPECT_EQ(result.status, 130) << result.out << result.err;
  EXPECT_HAS(result.out, "--resume");
  EXPECT_EQ(run({"info", "digits.safetensors"}, dir.path()).status, 0);
}

/// On a file system of two megabytes, seen by this one shell only.
TEST(CliDevice, AFullDiskIsAnErrorAndKeepsTheCheckpoint) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  dir.write("try.sh", R"(
mkdir disk
mount -t tmpfs -o size=2m none disk || exit 125
cd disk
train() { "$1" train digits --data "$2" --hidden 48 --resume --epochs "$3"; }
train "$1" "$2" 1 >../first || exit 1
cp digits.safetensors ../before
cat /dev/zero >filler 2>../filled
status=0
train "$1" "$2" 2 || status=$?
echo "status $status"
cmp digits.safetensors ../before && echo unchanged
ls -A
)");
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  const Result result = run({::geteuid() == 0 ? "-m" : "-rm", "/bin/sh", "try.sh", AESHNA_CLI, data}, dir.path(), "",
                            "/usr/bin/unshare");
  if (result.status == 125 || result.status == 127 || result.err.starts_with("unshare:"))
    GTEST_SKIP() << "no file system can be mounted here: " << result.err;
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_HAS(result.err, "aeshna: cannot write 'digits.safetensors'");
  EXPECT_HAS(result.err, "No space left on device");
  EXPECT_HAS(result.err, "the previous file, if any, is unchanged");
  EXPECT_HAS(result.out, "status 1\nunchanged\ndigits.safetensors\nfiller\nloss.svg\n") << "nothing half-written stays";
}

test::TinyModel small_model() {
  test::TinyModel model = test::tiny_model("llama");
  model.all_f32 = true;
  model.hidden = 64, model.ffn = 96, model.head_dim = 16;
  return model;
}

TEST(Cli, GgufFilesAreShownAndConverted) {
  const test::TempDir dir;
  test::write_tiny_gguf(dir / "m.gguf", small_model());
  const Result info = run({"info", "m.gguf"}, dir.path());
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_HAS(info.out, "m.gguf: GGUF version 3, 21 tensors");
  EXPECT_HAS(info.out, "blk.1.ffn_down.weight");
  EXPECT_HAS(info.out, "general.architecture = \"llama\"");
  EXPECT_HAS(info.out, "tokenizer.ggml.merges = string[260]: ");

  const Result convert = run({"convert", "m.gguf", "q.gguf", "--type", "q4_K"}, dir.path());
  EXPECT_EQ(convert.status, 0) << convert.err;
  EXPECT_HAS(convert.out, "blk.1.ffn_down.weight: rows of 96 elements cannot be q4_K, so it is q5_0\n");
  EXPECT_HAS(convert.out, "wrote q.gguf: 21 tensors, 16 of them converted, ");
  EXPECT_EQ(run({"convert", "-q", "q.gguf", "s.safetensors"}, dir.path()).out.find("wrote s.safetensors"), 0u);
  const Result unknown = run({"convert", "m.gguf", "x.gguf", "--type", "q9"}, dir.path());
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "q9");
}

TEST(CliDevice, GeneratesText) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  test::write_tiny_gguf(dir / "m.gguf", small_model());
  const std::vector<std::string> command = {"generate", "m.gguf",  "Hello", "--max-tokens", "8", "--context",
                                            "32",       "--chunk", "8"};
  const Result result = run(command, dir.path());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(result.err, "answer: 8 tokens");
  EXPECT_GT(result.out.size(), 1u);
  auto more = command;
  more.insert(more.end(), {"-q", "--chat", "--temperature", "0.8", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.01",
                           "--seed", "3"});
  const Result chat = run(more, dir.path());
  EXPECT_EQ(chat.status, 0) << chat.err;
  EXPECT_EQ(run(more, dir.path()).out, chat.out);
  EXPECT_HAS(run({"generate", "none.gguf", "x"}, dir.path()).err, "none.gguf");

  std::ofstream(dir / "prompts.txt") << "Hello\r\n\nGood \"day\"\nHello\n";
  auto batch = command;
  batch[2] = "--prompts";
  batch.insert(batch.begin() + 3, "prompts.txt");
  const Result all = run(batch, dir.path());
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_HAS(all.err, "3 prompts, 3 at a time: 24 tokens");
  std::istringstream lines(all.out);
  std::vector<std::string> got;
  for (std::string line; std::getline(lines, line);) got.push_back(line);
  ASSERT_EQ(got.size(), 3u) << all.out;
  EXPECT_EQ(got[0].find(R"({"prompt": "Hello", "text": ")"), 0u) << got[0];
  EXPECT_EQ(got[1].find(R"({"prompt": "Good \"day\"", "text": ")"), 0u) << got[1];
  EXPECT_HAS(got[1], R"("tokens": 8, "end": "--max-tokens"})");
  EXPECT_EQ(got[0], got[2]) << "whatever runs beside it";
  EXPECT_HAS(run({"generate", "m.gguf", "--prompts", "none.txt"}, dir.path()).err, "none.txt cannot be opened");
}

TEST(Cli, ArgumentsOfGenerateThatDoNotGoTogether) {
  const auto wrong = [](std::vector<std::string> more, const std::string& message) {
    more.insert(more.begin(), {"generate", "m.gguf"});
    const Result result = run(more);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err, "aeshna: " + message + "\nsee aeshna generate --help\n");
  };
  wrong({}, "give either a text or --prompts FILE");
  wrong({"x", "--prompts", "y"}, "give either a text or --prompts FILE");
  wrong({"x", "--system", "y"}, "--system is part of a conversation: give --chat too");
  wrong({"x", "--sequences", "2"}, "--sequences is for several prompts: give --prompts too");
  wrong({"x", "--top-p", "0"}, "sampling: top_p is 0");
}

TEST(Cli, GeneratesOnTheDeviceThatIsNamedAlone) {
  const test::TempDir dir;
  test::write_tiny_gguf(dir / "m.gguf", small_model());
  const Result result = run({"-c", "AESHNA_DEVICE=nonesuch " AESHNA_CLI
                                   " generate m.gguf Hello --max-tokens 2 --context 32 --chunk 8 --device null"},
                            dir.path(), "", "/bin/sh");
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(CliDevice, TrainingErrorsNameTheThing) {
  const test::TempDir dir;
  const std::string data = std::string(AESHNA_SOURCE_DIR) + "/data/optdigits.csv.gz";
  dir.write("file", "");
  const auto error = [&](const std::vector<std::string>& arguments, const char* part) {
    const Result result = run(arguments, dir.path());
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err.find("aeshna: "), 0u) << result.err;
    EXPECT_HAS(result.err, part);
  };
  error({"train", "digits", "--data", "none.csv"}, "none.csv");
  error({"train", "digits", "--data", "file"}, "no digits in it");
  error({"train", "mnist", "--data", "nowhere"}, "train-images-idx3-ubyte");
  error({"train", "digits", "--data", data, "--batch", "1501"}, "--batch 1501");
  error({"train", "digits", "--data", data, "--out-dir", "file/sub"}, "file/sub");
  // Files that cannot be: before the first epoch.
  fs::create_directory(dir / "folder");
  for (const char* option : {"--checkpoint", "--loss-svg"}) {
    error({"train", "digits", "--data", data, option, "folder"}, "folder: is a folder");
    error({"train", "digits", "--data", data, option, "none/x"}, "no folder none");
    error({"train", "digits", "--data", data, option, "/dev/null"}, "/dev/null");
  }
}

}  // namespace
}  // namespace aeshna
#endif
