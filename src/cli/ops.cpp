// aeshna ops: the vocabulary, as docs/ops.md, with the errors that the tests have measured.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "cli/command.h"
#include "io/json_field.h"
#include "ops/document.h"

namespace aeshna::cli {
namespace {

struct Errors {
  std::uint64_t comparisons = 0;
  double worst = 0;
};

struct OpErrors {
  std::uint64_t cases = 0;
  double forward = 0, gradient = 0;
  bool has_gradient = false;
  std::vector<std::string> kernels;  ///< "family variant"
};

struct KernelErrors {
  Errors alone, in_plans;
};

using Kernel = std::pair<std::string, std::string>;  ///< family, variant

/// What the test program measured on a device.
struct DeviceErrors {
  std::string device;
  std::map<std::string, OpErrors> ops;
  std::map<Kernel, KernelErrors> kernels;
};

Errors read_errors(const JsonField& errors) {
  return {.comparisons = errors.at("comparisons").count(), .worst = errors.at("worst").number()};
}

OpErrors read_op(const JsonField& op) {
  OpErrors result{.cases = op.at("cases").count(),
                  .forward = op.at("forward").number(),
                  .gradient = op.at("gradient").number(),
                  .has_gradient = op.at("has_gradient").flag(),
                  .kernels = {}};
  for (const JsonField& kernel : op.at("kernels").items()) result.kernels.push_back(kernel.text());
  return result;
}

/// A file of the test program (tests/support/op_errors.h).
DeviceErrors read_device(const std::string& file) {
  const nlohmann::json content = read_json(file);
  const JsonField top(file + ": not what the tests write", content);
  DeviceErrors result{.device = top.at("device").text(), .ops = {}, .kernels = {}};
  for (const auto& [name, op] : top.at("ops").members()) result.ops.emplace(name, read_op(op));
  for (const auto& [family, variants] : top.at("kernels").members()) {
    for (const auto& [variant, kernel] : variants.members()) {
      result.kernels[{family, variant}] = {.alone = read_errors(kernel.at("alone")),
                                           .in_plans = read_errors(kernel.at("in_plans"))};
    }
  }
  return result;
}

/// For every key that a device has: what each has, or null.
template <class Key, class T>
std::map<Key, std::vector<const T*>> side_by_side(const std::vector<DeviceErrors>& devices,
                                                  std::map<Key, T> DeviceErrors::*member) {
  std::map<Key, std::vector<const T*>> rows;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (const auto& [key, value] : devices[d].*member) {
      rows[key].resize(devices.size());
      rows[key][d] = &value;
    }
  }
  return rows;
}

std::string number(double error) { return error == 0 ? "0" : formatted("{:.1e}", error); }

/// Heading and rule of a table: `first` columns, two for each device, `last` columns.
std::string table_head(std::string_view first, const std::vector<DeviceErrors>& devices, std::string_view left,
                       std::string_view right, std::string_view last) {
  std::string text(first);
  for (const DeviceErrors& d : devices) text += formatted(" {}: {} | {} |", d.device, left, right);
  text.append(last).append("\n|");
  for (auto columns = std::ranges::count(text, '|') - 2; columns > 0; --columns) text += "---|";
  return text + "\n";
}

std::string ops_with_errors(const std::vector<DeviceErrors>& devices) {
  std::string text =
      "\n## Measured errors\n\n"
      "On each device, over all cases that the tests ran: the largest |value - wanted| / max(1, |wanted|) of the\n"
      "results and of the gradients (the op mid-graph, with a random upstream gradient), against the double-precision\n"
      "interpreter. The kernels are those of the graph that holds the cases, their gradients and what surrounds them.\n"
      "\n";
  text += table_head("| op | cases |", devices, "result", "gradient", " kernels |");
  for (const auto& [name, on_devices] : side_by_side(devices, &DeviceErrors::ops)) {
    std::string cells, cases;
    std::set<std::string> families;
    std::size_t variants = 0;
    for (const OpErrors* op : on_devices) {
      if (op == nullptr) {
        cells += " not run | |";
        continue;
      }
      cells += formatted(" {} | {} |", number(op->forward), op->has_gradient ? number(op->gradient) : "");
      cases = std::to_string(op->cases);
      variants = std::max(variants, op->kernels.size());
      for (const std::string& kernel : op->kernels) families.insert(kernel.substr(0, kernel.find(' ')));
    }
    std::string kernels;
    for (const std::string& family : families) kernels += (kernels.empty() ? "" : ", ") + family;
    text += formatted("| `{}` | {} |{} {} ({} variant{}) |\n", name, cases, cells, kernels, variants,
                      variants == 1 ? "" : "s");
  }
  return text;
}

std::string kernels_with_errors(const std::vector<DeviceErrors>& devices) {
  std::string text =
      "\n### Kernel variants\n\n"
      "The same error for every kernel variant that the tests ran, and in brackets how many values were compared.\n"
      "*Alone*: what the kernel writes when it is launched by itself, against a double-precision evaluation of the\n"
      "same formula. *In plans*: the results and gradients of the table above; each counts for every kernel of its\n"
      "graph, whichever of them made the error. A variant that reads or writes 16-bit floats or quantized blocks is\n"
      "listed apart, with those formats. -: not run so.\n";
  const std::string head = table_head("| variant |", devices, "alone", "in plans", "");
  const auto cell = [](const Errors& e) {
    return e.comparisons == 0 ? " - |" : formatted(" {} ({}) |", number(e.worst), e.comparisons);
  };
  std::string section;
  for (const auto& [kernel, on_devices] : side_by_side(devices, &DeviceErrors::kernels)) {
    const auto& [family, variant] = kernel;
    if (family != section) text += formatted("\n#### {}\n\n{}", family, head);
    section = family;
    text += formatted("| `{}` |", variant);
    for (const KernelErrors* errors : on_devices) {
      const KernelErrors e = errors == nullptr ? KernelErrors() : *errors;
      text += cell(e.alone) + cell(e.in_plans);
    }
    text += "\n";
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
      std::vector<DeviceErrors> devices;
      for (const std::string& file : *files) devices.push_back(read_device(file));
      std::string text = ops_markdown();
      if (!devices.empty()) text += ops_with_errors(devices) + kernels_with_errors(devices);
      std::fputs(text.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace aeshna::cli
