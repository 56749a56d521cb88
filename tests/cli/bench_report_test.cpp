// Reports on the files in tests/data/bench: two devices; an invalid cell, an error, engines that are missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/comparison.h"
#include "bench/documents.h"
#include "bench/page.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace aeshna::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path data() { return fs::path(AESHNA_SOURCE_DIR) / "tests" / "data" / "bench"; }

std::vector<Section> sections_of(const std::vector<fs::path>& paths) { return compare(read_documents(paths)); }

const Report& report() {
  static const Report made = make_report(sections_of({data()}));
  return made;
}

json cell(const std::string& gpu, const std::string& workload, const std::string& phase, const std::string& contract) {
  for (const json& candidate : json::parse(report().summary)) {
    if (candidate.at("workload") == workload && candidate.at("phase") == phase &&
        candidate.at("contract") == contract && candidate.at("gpu") == gpu)
      return candidate;
  }
  ADD_FAILURE() << "no cell " << workload << ' ' << phase << ' ' << contract << " of " << gpu;
  return {};
}

const std::string kA = "Test GPU A", kB = "Test GPU B";

TEST(BenchReport, Quantiles) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({0, 10, 20, 40}, 0.25), 7.5);
  EXPECT_EQ(quantile({5}, 0.75), 5);
  EXPECT_EQ(quantile({1, 2, 3}, 0), 1);
  EXPECT_EQ(quantile({1, 2, 3}, 1), 3);
}

TEST(BenchReport, PennycookIsTheHarmonicMeanAndZeroIsContagious) {
  EXPECT_DOUBLE_EQ(pennycook({1, 0.5}), 2 / 3.0);
  EXPECT_EQ(pennycook({1, 1, 0}), 0);
  EXPECT_EQ(pennycook({}), 0);
}

TEST(BenchReport, SummaryOfAValidCell) {
  EXPECT_EQ(cell(kA, "smollm2", "full", "strict"), json::parse(R"({
      "workload": "smollm2", "phase": "full", "contract": "strict", "ours_ms": 12, "pytorch_ms": 10,
      "pytorch_mode": "graph", "ratio": 1.2, "forward_gate": true, "backward_gate": null, "elementwise_gate": null,
      "worst_gradient": null, "plan_physical_bytes": 734003200, "plan_logical_bytes": 838860800,
      "pytorch_peak_bytes": 534773760, "compile_cold_s": 1.5, "compile_warm_s": 0.25, "dispatches": 300,
      "barriers": 200, "revision": "1234567", "gpu": "Test GPU A", "config": "full"})"));
  const json train = cell(kA, "smollm2", "train", "strict");
  EXPECT_EQ(train.at("ours_ms"), 42) << "the median of 41 and 43";
  EXPECT_EQ(train.at("pytorch_mode"), "graph") << "compile failed, and a failed elementwise gate of eager is no matter";
  EXPECT_EQ(train.at("ratio"), 1.4);
  EXPECT_EQ(train.at("worst_gradient"), (json{{"name", "model.embed_tokens.weight"}, {"error", 3.5e-5}}));
  EXPECT_EQ(train.at("backward_gate"), true);
  EXPECT_EQ(cell(kA, "smollm2", "full", "accelerated").at("pytorch_mode"), "eager");
}

TEST(BenchReport, SummaryOfInvalidAndMissingCells) {
  const json invalid = cell(kA, "unet", "train", "strict");
  EXPECT_EQ(invalid.at("ours_ms"), 15);
  EXPECT_EQ(invalid.at("pytorch_ms"), 20);
  EXPECT_TRUE(invalid.at("ratio").is_null());
  EXPECT_EQ(invalid.at("backward_gate"), false);
  EXPECT_EQ(cell(kA, "unet", "full", "strict").at("forward_gate"), true) << "only the training cell is invalid";
  const json alone = cell(kB, "smollm2", "full", "strict");
  EXPECT_EQ(alone.at("ours_ms"), 30);
  for (const char* key :
       {"pytorch_ms", "pytorch_mode", "ratio", "forward_gate", "pytorch_peak_bytes", "compile_cold_s"})
    EXPECT_TRUE(alone.at(key).is_null()) << key;
  EXPECT_TRUE(cell(kB, "unet", "full", "strict").at("ours_ms").is_null());
}

TEST(BenchReport, OneDeviceHasTheKeysOfTheContractOnly) {
  const json summary = json::parse(make_report(sections_of({data() / "a"})).summary);
  ASSERT_EQ(summary.size(), 6u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : summary[0].items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre("workload", "phase", "contract", "ours_ms", "pytorch_ms",
                                                  "pytorch_mode", "ratio", "forward_gate", "backward_gate",
                                                  "elementwise_gate", "worst_gradient", "plan_physical_bytes",
                                                  "plan_logical_bytes", "pytorch_peak_bytes", "compile_cold_s",
                                                  "compile_warm_s", "dispatches", "barriers", "revision"));
}

TEST(BenchReport, Portability) {
  const std::vector<Section> sections = sections_of({data()});
  ASSERT_EQ(sections.size(), 2u);
  const auto of = [&](const std::string& workload, std::size_t rank, std::size_t phase) {
    return portability(sections, "full", {.contract = 0, .workload_rank = rank, .workload = workload, .phase = phase});
  };
  // On A PyTorch is best, on B it has no result.
  EXPECT_DOUBLE_EQ(of("smollm2", 0, 0)[0], 2 / (12.0 / 10 + 1));
  EXPECT_EQ(of("smollm2", 0, 0)[1], 0);
  EXPECT_EQ(of("unet", 2, 0)[0], 0);
  EXPECT_DOUBLE_EQ(of("unet", 2, 0)[1], 2 / (6.0 / 5 + 1));
  EXPECT_EQ(of("unet", 2, 2)[0], 0) << "an invalid cell scores 0";
  const std::vector<Section> one = sections_of({data() / "a", data() / "gates" / "a-unet-train-strict.json"});
  EXPECT_EQ(portability(one, "full", {.contract = 0, .workload_rank = 2, .workload = "unet", .phase = 2})[0], 0);
  EXPECT_EQ(portability(one, "full", {.contract = 0, .workload_rank = 2, .workload = "unet", .phase = 2})[1], 1);
}

TEST(BenchReport, Markdown) {
  const std::string& text = report().markdown;
  EXPECT_HAS(text, "| smollm2 | full | 12.00 | 11.25\u201312.75 | 20.00 | 15.00 | 10.00 | 1.20 |\n");
  EXPECT_HAS(text, "| smollm2 | minimal | **2.250** | 2.000\u20132.375 | 6.000 | \u2013 | 4.000 | **0.56** |\n");
  EXPECT_HAS(text, "| smollm2 | train | 42.00 | 41.25\u201343.75 | 51.00 | error \u2020 | 30.00 | 1.40 |\n");
  EXPECT_HAS(text, "| unet | train | 15.00 \u2020 | 15.00\u201315.50 | 20.00 | \u2013 | \u2013 | \u2013 |\n");
  EXPECT_HAS(text, "- \u2020 smollm2 train, PyTorch compile: error: out of memory\n");
  EXPECT_HAS(text, "- \u2020 unet train, Aeshna: backward: error of the total gradient norm 0.06, limit 0.05\n");
  EXPECT_HAS(text, "| smollm2 | full | 30.00 \u2021 |");
  EXPECT_HAS(text, "| smollm2 | 1.500 | 0.250 | 50.00 | \u2013 |\n");
  EXPECT_HAS(text, "| unet | train | 159.0 | 118.0 | 900.0 | 164.0 | 180.0 | \u2013 | 200 | 150 |\n");
  EXPECT_HAS(text,
             "1.25e-06 / 2.50e-06 | 1.00e-07 / 2.00e-07 | 1.00e-06 / 2.00e-06 | 2.00e-06 / 3.00e-06 | "
             "3.50e-05 / 2.50e-03 | 2.00e-06 / 4.00e-06 |\n");
  EXPECT_HAS(text, "| unet | 0.00 | 0.91 | \u2013 | \u2013 | 0.00 | 0.00 |\n");
  EXPECT_HAS(text, "| **mean** | **0.45** | **0.45** |");
  EXPECT_HAS(text, "\\<b\\>\\|driver\\*") << "names from files are no markup";
  // Never one table for both contracts.
  EXPECT_LT(text.find("### Strict"), text.find("### Accelerated"));
  EXPECT_GT(text.find("| smollm2 | full | **8.000** |"), text.find("### Accelerated"));
}

/// Checks that tags are closed in order and that text is escaped: what XML asks for, as far as these pages use it.
testing::AssertionResult well_formed(std::string_view text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '&' && !text.substr(at).starts_with("&amp;") && !text.substr(at).starts_with("&lt;") &&
        !text.substr(at).starts_with("&gt;") && !text.substr(at).starts_with("&quot;"))
      return testing::AssertionFailure() << "a bare & at " << text.substr(at, 40);
    if (text[at] != '<') continue;
    const std::size_t end = text.find('>', at);
    if (end == text.npos) return testing::AssertionFailure() << "no > after " << text.substr(at, 40);
    const std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with("!DOCTYPE")) continue;
    if (std::ranges::count(tag, '"') % 2 != 0) return testing::AssertionFailure() << "quotes in <" << tag << '>';
    if (tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return testing::AssertionFailure() << "<" << tag << "> closes " << (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return testing::AssertionFailure() << "<" << open.back() << "> is open";
  return testing::AssertionSuccess();
}

TEST(BenchReport, Figure) {
  const std::string& svg = report().svg;
  EXPECT_TRUE(well_formed(svg));
  EXPECT_EQ(svg.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_HAS(svg, "class=\"parity\"");
  EXPECT_HAS(svg, ">Test GPU B</text>");
  EXPECT_HAS(svg, " font-weight=\"700\">0.56</text>");
  // log2(1.2) of half the axis, which goes from 1/2 to 2, right of the line.
  EXPECT_HAS(svg, "<circle cx=\"504.7\"");
  const std::string nothing = ratio_plot({});
  EXPECT_TRUE(well_formed(nothing));
}

TEST(BenchReport, HtmlIsOnePageThatNeedsNothingElse) {
  const std::string& html = report().html;
  EXPECT_TRUE(well_formed(html));
  EXPECT_EQ(html.find("<!DOCTYPE html>\n"), 0u);
  EXPECT_HAS(html, "<meta name=\"viewport\"");
  EXPECT_HAS(html, "<title>Aeshna and PyTorch: five workloads</title>");
  EXPECT_HAS(html, "<svg xmlns=");
  EXPECT_HAS(html, "<td class=\"n\"><strong>0.56</strong></td>");
  EXPECT_HAS(html, "<td>&lt;b&gt;|driver*</td>");
  for (const char* foreign : {"<script", "src=", "href=", "@import", "url("})
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
}

TEST(BenchReport, TablesTakeAnyText) {
  Page page;
  page.heading(1, "a & b");
  page.table({"x\ty", plain("tab\tand\x01mark") + kNext + kBold + "<i>"}, 1);
  EXPECT_TRUE(well_formed(page.html()));
  EXPECT_HAS(page.html(), "<td>tab and mark</td><td class=\"n\"><strong>&lt;i&gt;</strong></td>");
  EXPECT_HAS(page.markdown(), "| tab and mark | **\\<i\\>** |\n");
}

// ---- files that are damaged, or contradict each other

class BenchDocuments : public testing::Test {
 protected:
  static json load(const std::string& file) { return json::parse(test::read_text(data() / file)); }
  json ours_ = load("a/smollm2-aeshna-1.json"), theirs_ = load("a/smollm2-pytorch-1.json"),
       gate_ = load("gates/a-smollm2-full-strict.json");
  void put(const std::string& name, const json& content) const { dir_.write(name, content.dump()); }
  void expect_refused(const json& content, const std::string& message) const {
    put("x.json", content);
    EXPECT_ERROR(sections_of({dir_ / "x.json"}), ErrorCode::CorruptFile, "x.json: " + message);
    EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "x.json: " + message);
  }
  test::TempDir dir_;
};

TEST_F(BenchDocuments, ErrorsNameFileAndField) {
  const auto changed = [&](const char* pointer, const json& value) {
    json content = ours_;
    content[json::json_pointer(pointer)] = value;
    return content;
  };
  const auto without = [&](const char* parent, const char* key) {
    json content = ours_;
    content[json::json_pointer(parent)].erase(key);
    return content;
  };
  expect_refused(changed("/schema", 2), "'schema' is 2; this program reads 1");
  expect_refused(changed("/schema", "1"), "'schema' is string, not a whole number");
  expect_refused(changed("/engine", "jax"), "'engine' is the unknown 'jax'");
  expect_refused(changed("/config", "huge"), "'config' is the unknown 'huge'");
  expect_refused(changed("/workload", ""), "'workload' is empty");
  expect_refused(changed("/process", -1), "'process' is number, not a whole number");
  expect_refused(changed("/environment/gpu", 3), "'environment.gpu' is number, not a string");
  expect_refused(changed("/environment/os", json::array()), "'environment.os' is array, not a string");
  expect_refused(changed("/cells", 7), "'cells' is number, not an array");
  expect_refused(changed("/cells/1/phase", "decode"), "'cells[1].phase' is the unknown 'decode'");
  expect_refused(changed("/cells/0/contract", nullptr), "'cells[0].contract' is null, not a string");
  expect_refused(changed("/cells/2/samples_ms/1", "fast"), "'cells[2].samples_ms[1]' is string, not a number");
  expect_refused(changed("/cells/2/samples_ms/1", 0), "'cells[2].samples_ms[1]' is not above 0");
  expect_refused(changed("/cells/2/samples_ms", json::array()), "'cells[2].samples_ms' is empty, without an error");
  expect_refused(changed("/cells/2/median_ms", 1), "'cells[2].median_ms' is 1, but the median of samples_ms is 41");
  expect_refused(changed("/cells/0/memory/plan_logical_bytes", 1.5),
                 "'cells[0].memory.plan_logical_bytes' is number, not a whole number");
  expect_refused(changed("/compile/strict/cache", "hot"), "'compile.strict.cache' is the unknown 'hot'");
  expect_refused(changed("/compile/exact", json::object()), "'compile.exact' is of an unknown contract");
  expect_refused(without("/cells/0", "phase"), "'cells[0].phase' is missing");
  expect_refused(without("", "environment"), "'environment' is missing");
  expect_refused(without("", "cells"), "'cells' is missing");
  gate_["phase"] = "decode";
  expect_refused(gate_, "'phase' is the unknown 'decode'");
  gate_["phase"] = nullptr;
  expect_refused(gate_, "'phase' is null, not a string");
  theirs_["cells"][0]["mode"] = "lazy";
  expect_refused(theirs_, "'cells[0].mode' is the unknown 'lazy'");
}

TEST_F(BenchDocuments, TextThatIsNoJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{\"schema\": 1e999}"), std::string("\xff\xfe\0", 3)}) {
    dir_.write("x.json", text);
    EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "x.json: not JSON");
  }
  dir_.write("x.json", std::string(200000, '['));
  EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "x.json: JSON nested deeper than 64 levels");
  EXPECT_ERROR(sections_of({dir_ / "none.json"}), ErrorCode::NotFound, "none.json");
}

TEST_F(BenchDocuments, FoldersMayHoldOtherJson) {
  fs::create_directories(dir_ / "deep");
  fs::create_directories(dir_ / "deep/er");
  dir_.write("deep/er/summary.json", "[1, 2]");
  dir_.write("other.json", R"({"name": "vcpkg"})");
  dir_.write("profile.json", R"({"schema": 1, "kind": "profile", "rows": []})");
  dir_.write("notes.txt", "{");
  put("deep/er/x.json", ours_);
  const fs::path folder = dir_.path();
  EXPECT_EQ(read_documents(std::span(&folder, 1)).results.size(), 1u);
  EXPECT_ERROR(sections_of({dir_ / "other.json"}), ErrorCode::CorruptFile, "it has no 'schema'");
  EXPECT_ERROR(sections_of({dir_ / "deep/er/summary.json"}), ErrorCode::CorruptFile, "it has no 'schema'");
  EXPECT_ERROR(sections_of({dir_ / "profile.json"}), ErrorCode::CorruptFile,
               "'kind' is 'profile', no result and no gate");
}

TEST_F(BenchDocuments, Contradictions) {
  put("1.json", ours_);
  put("2.json", ours_);
  EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile,
               "2.json: both measured full strict recorded of smollm2, process 1");
  theirs_["data"]["sha256"] = "cc";
  put("2.json", theirs_);
  EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "2.json: measured 'smollm2' with other data");
  put("2.json", load("b/smollm2-aeshna-1.json"));
  put("gate.json", gate_);
  EXPECT_EQ(sections_of({dir_.path()}).size(), 2u);
  gate_["gpu"] = nullptr;
  put("gate.json", gate_);
  EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "gate.json: 'gpu' or 'config' is missing");
  gate_["gpu"] = "Other";
  put("gate.json", gate_);
  EXPECT_ERROR(sections_of({dir_.path()}), ErrorCode::CorruptFile, "gate.json: there are no results of 'gpu' 'Other'");
}

TEST_F(BenchDocuments, AFailedVerdictStays) {
  put("1.json", ours_);
  put("gate-1.json", load("gates/a-smollm2-train-strict.json"));
  json failed = load("gates/a-unet-train-strict.json");
  failed["workload"] = "smollm2";
  put("gate-0.json", failed);
  const std::vector<Section> sections = sections_of({dir_.path()});
  EXPECT_FALSE(
      sections.at(0).cells.at({.contract = 0, .workload_rank = 0, .workload = "smollm2", .phase = 2}).ours_valid());
}

// Every text that a byte changes or that ends early is read or refused, and what is read can be reported.
TEST_F(BenchDocuments, DamagedFiles) {
  for (const json& content : {ours_, gate_}) {
    const std::string text = content.dump();
    put("a.json", ours_);
    int read = 0, refused = 0;
    const auto attempt = [&](const std::string& damaged) {
      dir_.write("b.json", damaged);
      try {
        make_report(sections_of({dir_ / "b.json"}));
        ++read;
      } catch (const Error& error) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find("b.json"), std::string::npos) << error.what();
      }
    };
    for (std::size_t at = 0; at < text.size(); at += 11) {
      attempt(text.substr(0, at));
      for (const char byte : {'0', '-', '"', '}', '\xff', '\x01'}) {
        std::string damaged = text;
        damaged[at] = byte;
        attempt(damaged);
      }
    }
    EXPECT_GT(refused, 100);
    EXPECT_GT(read, content.contains("cells") ? 100 : -1);
  }
}

#ifndef _WIN32
TEST_F(BenchDocuments, CommandLine) {
  const test::ProgramResult done =
      test::run_program({"bench", "report", data().string(), "--out", "new/report"}, dir_.path());
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_HAS(done.out, "7 result files and 6 gate files");
  EXPECT_EQ(test::read_text(dir_ / "new/report/report.md"), report().markdown);
  EXPECT_EQ(test::read_text(dir_ / "new/report/index.html"), report().html);
  EXPECT_EQ(test::read_text(dir_ / "new/report/ratios.svg"), report().svg);
  EXPECT_EQ(test::read_text(dir_ / "new/report/summary.json"), report().summary);
  // A report among the results does not disturb the next one.
  EXPECT_EQ(test::run_program({"bench", "report", data().string(), "new", "--out", "new"}, dir_.path()).status, 0);
  fs::create_directory(dir_ / "empty");
  const test::ProgramResult empty = test::run_program({"bench", "report", "empty", "--out", "x"}, dir_.path());
  EXPECT_EQ(empty.status, 1);
  EXPECT_HAS(empty.err, "aeshna: there is no result file in empty");
}
#endif

}  // namespace
}  // namespace aeshna::bench
