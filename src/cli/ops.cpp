// aeshna ops: the vocabulary, as docs/ops.md, with the errors that the tests have measured.
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "ops/document.h"

namespace aeshna::cli {
namespace {

using nlohmann::json;

/// A file of the test program (tests/support/op_errors.h): the device, and for each op its largest errors and its kernels.
json read_errors(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path, 64 << 20);
  try {
    json errors = json::parse(reinterpret_cast<const char*>(bytes.data()),
                              reinterpret_cast<const char*>(bytes.data()) + bytes.size());
    for (const auto& [name, op] : errors.at("ops").items()) {
      static_cast<void>(op.at("forward").get<double>());
      static_cast<void>(op.at("gradient").get<double>());
      static_cast<void>(op.at("kernels").get<std::vector<std::string>>());
      static_cast<void>(op.at("has_gradient").get<bool>());
      static_cast<void>(op.at("cases").get<int>());
    }
    static_cast<void>(errors.at("device").get<std::string>());
    return errors;
  } catch (const json::exception& e) {
    fail(ErrorCode::CorruptFile, "{}: not what the tests write: {}", path, e.what());
  }
}

std::string number(double error) { return error == 0 ? "0" : formatted("{:.1e}", error); }

std::string errors_markdown(const std::vector<json>& devices) {
  std::string text = formatted(
      "\n{}\n\nOn each device, over all cases of a record: the largest |value - wanted| / max(1, |wanted|) of the "
      "results and of the "
      "gradients (the op\nmid-graph, with a random upstream gradient), against the double-precision interpreter. The "
      "kernels are those of "
      "the graph that holds the\ncases, their gradients and what surrounds them.\n\n| op | cases |",
      kMeasuredErrorsHeading);
  std::string rule = "\n|---|---|";
  std::map<std::string, std::vector<const json*>> ops;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto device = devices[d]["device"].get<std::string>();
    text += formatted(" {}: result | gradient |", device);
    rule += "---|---|";
    for (const auto& [name, op] : devices[d]["ops"].items()) {
      auto& list = ops[name];
      list.resize(devices.size());
      list[d] = &op;
    }
  }
  text += " kernels |" + rule + "---|\n";
  for (const auto& [name, list] : ops) {
    std::string cells, cases;
    std::set<std::string> families;
    std::size_t variants = 0;
    for (const json* op : list) {
      if (op == nullptr) {
        cells += " not run | |";
        continue;
      }
      cells += formatted(" {} | {} |", number((*op)["forward"].get<double>()),
                         (*op)["has_gradient"].get<bool>() ? number((*op)["gradient"].get<double>()) : "");
      cases = std::to_string((*op)["cases"].get<int>());
      const auto kernels = (*op)["kernels"].get<std::vector<std::string>>();
      variants = std::max(variants, kernels.size());
      for (const std::string& kernel : kernels) families.insert(kernel.substr(0, kernel.find(' ')));
    }
    std::string kernels;
    for (const std::string& family : families) kernels += (kernels.empty() ? "" : ", ") + family;
    text += formatted("| `{}` | {} |{} {} ({} variant{}) |\n", name, cases, cells, kernels, variants,
                      variants == 1 ? "" : "s");
  }
  return text;
}

}  // namespace

void add_ops(CLI::App& app, const Globals&, Action& action) {
  CLI::App* command = app.add_subcommand("ops", "List the ops as a Markdown table");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("--errors", *files, "Files of errors that the test program wrote (AESHNA_TEST_ERRORS=FILE)")
      ->type_name("FILE...");
  command->callback([&action, files] {
    action = [files] {
      std::vector<json> devices;
      for (const std::string& file : *files) devices.push_back(read_errors(file));
      std::fputs(ops_markdown().c_str(), stdout);
      if (!devices.empty()) std::fputs(errors_markdown(devices).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace aeshna::cli
