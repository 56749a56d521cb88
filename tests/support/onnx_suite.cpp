#include "support/onnx_suite.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "aeshna/session.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "io/onnx/importer.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"

namespace aeshna::test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

std::vector<std::optional<Literal>> tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<std::optional<Literal>> result;
  for (std::size_t i = 0;; ++i) {
    const fs::path file = folder / formatted("{}_{}.pb", prefix, i);
    if (!fs::exists(file)) return result;
    try {
      const onnx::Tensor t = onnx::parse_tensor(read_file(file), file.filename().string());
      result.push_back(t.unsupported.empty() ? std::optional(t.value) : std::nullopt);
    } catch (const Error&) {
      result.push_back(std::nullopt);  // a sequence, say; the model's type says so, too
    }
  }
}

/// Small enough to be an axis, a shape, a count or a condition.
bool bindable(const Literal& value) {
  return value.type().shape.elements() == 1 || (value.type().shape.rank() <= 1 && !is_float(value.type().dtype)) ||
         (value.type().shape.rank() == 1 && value.type().shape.elements() <= 10);
}

/// ONNX's test data has bfloat16 as the integers of its bits.
Literal typed(const Literal& value, const onnx::ValueInfo& info) {
  if (info.element.dtype != DType::bf16 || value.type().dtype != DType::u16) return value;
  return Literal({DType::bf16, value.type().shape}, {value.bytes().begin(), value.bytes().end()});
}

HostTensor host(const Literal& literal) {
  HostTensor tensor(literal.type());
  tensor.data = literal.to_doubles();
  return tensor;
}

using Tensors = std::map<std::string, HostTensor, std::less<>>;

Tensors run(const ImportedModel& model, const Tensors& inputs, const std::optional<Device>& device) {
  if (!device) {
    TensorMap leaves = inputs;
    for (const auto& [name, value] : model.weights) leaves.insert_or_assign(name, host(value));
    for (const Node& node : model.graph->nodes()) {  // the generator's
      if (is_state(node)) leaves.insert_or_assign(node.name, HostTensor(node.results[0]));
    }
    return interpret(*model.graph, leaves, Rounding::Storage).outputs;
  }
  Weights weights(*device);
  weights.add(*model.graph);
  for (const auto& [name, value] : model.weights) weights.set(name, value);
  Session session = compile(*model.graph, weights);
  for (const auto& [name, value] : inputs) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  session.wait();
  Tensors outputs;
  for (const std::string& name : model.outputs) outputs.insert_or_assign(name, host(session.read_literal(name)));
  return outputs;
}

struct Exception {
  std::string_view test, reason;
};
/// Cases whose data cannot be met.
constexpr std::array kDisputed = {
    Exception{"test_adam_multiple", "made with epsilon 0.01, which the model does not say; the default is 1e-6"},
    Exception{"test_qlinearmatmul_2D_int8_float16", "wraps around where the specification says saturate"},
    Exception{"test_qlinearmatmul_2D_int8_float32", "wraps around where the specification says saturate"},
    Exception{"test_qlinearmatmul_3D_int8_float16", "wraps around where the specification says saturate"},
    Exception{"test_qlinearmatmul_3D_int8_float32", "wraps around where the specification says saturate"},
    Exception{"test_training_dropout", "random"},
    Exception{"test_training_dropout_default", "random"},
    Exception{"test_training_dropout_default_mask", "random"},
    Exception{"test_training_dropout_mask", "random"},
    Exception{"test_bernoulli", "random"},
    Exception{"test_bernoulli_expanded", "random"},
    Exception{"test_bernoulli_seed", "random"},
    Exception{"test_bernoulli_seed_expanded", "random"},
};
/// Cases with a wider tolerance.
struct Tolerance {
  std::string_view prefix;
  double absolute;
};
constexpr std::array kTolerances = {
    Tolerance{"test_dft", 1e-6},  // where the result is 0, the data has its own rounding error, 2e-7 beside values of 1
};

/// Empty: equal, as ONNX's own runner has it (relative 1e-3, absolute 1e-7).
std::string difference(const HostTensor& got, const Literal& wanted, const std::string& name, double absolute) {
  if (got.type != wanted.type())
    return formatted("output '{}' is {}, not {}", name, got.type.to_string(), wanted.type().to_string());
  const bool exact = !is_float(got.type.dtype);
  // A unit in the last place of bfloat16: ONNX's data truncates where its specification, and we, round to nearest.
  const double relative = got.type.dtype == DType::bf16 ? 1.0 / 128 : 1e-3;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const double a = got.data[i], b = wanted.at(static_cast<std::int64_t>(i));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (exact || !(std::abs(a - b) <= absolute + relative * std::abs(b)))
      return formatted("output '{}'[{}] is {}, not {}", name, i, a, b);
  }
  return "";
}

}  // namespace

fs::path onnx_suite_root() {
  const fs::path root = "/usr/share/libonnx-testdata/data";
  return fs::exists(root / "node") ? root : fs::path();
}

std::vector<OnnxCase> onnx_suite(const std::string& folder) {
  std::vector<OnnxCase> cases;
  for (const fs::path& entry : sorted_entries(onnx_suite_root() / folder)) {
    OnnxCase c{folder, entry.filename().string(), entry / "model.onnx", {}};
    if (folder == "light") {
      if (entry.extension() != ".onnx") continue;
      c = {folder, entry.stem().string(), entry, {}};
    }
    if (!fs::exists(c.model)) continue;
    for (const fs::path& set : sorted_entries(entry)) {
      if (set.filename().string().starts_with("test_data_set_")) c.data_sets.push_back(set);
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

namespace {

void run_set(const OnnxCase& test, const onnx::Model& model, const fs::path& set, const std::optional<Device>& device,
             bool f64_as_f32, OnnxOutcome& outcome) {
  std::vector<std::optional<Literal>> given, wanted;
  if (test.folder ==
      "light") {  // no inputs are given; with constant weights every class is as likely whatever they are
    wanted = {
        onnx::parse_tensor(read_file(fs::path(test.model).replace_filename(test.name + "_output_0.pb")), test.name)
            .value};
  } else {
    given = tensors(set, "input");
    wanted = tensors(set, "output");
  }
  std::vector<std::string> weights;
  for (const onnx::Tensor& t : model.graph.initializers) weights.push_back(t.name);
  std::vector<const onnx::ValueInfo*> infos;
  for (const onnx::ValueInfo& info : model.graph.inputs) {
    if (std::ranges::find(weights, info.name) == weights.end()) infos.push_back(&info);
  }
  ImportOptions options;
  options.f64_as_f32 = f64_as_f32;
  const auto narrowed = [&](const Literal& value) {
    if (!f64_as_f32 || value.type().dtype != DType::f64) return value;
    return Literal::from_doubles({DType::f32, value.type().shape}, value.to_doubles());
  };
  std::map<std::string, Literal> values;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (i >= given.size()) {
      if (test.folder == "light") {
        std::vector<std::int64_t> dims;
        for (const auto& d : *infos[i]->dims) dims.push_back(d.value);
        const TensorType type{DType::f32, Shape(std::span<const std::int64_t>(dims))};
        std::vector<double> zeros(static_cast<std::size_t>(type.shape.elements()), 0);
        values[infos[i]->name] = Literal::from_doubles(type, zeros);
      }
      continue;
    }
    if (!given[i]) continue;
    values[infos[i]->name] = narrowed(typed(*given[i], *infos[i]));
    options.shapes[infos[i]->name] = given[i]->type().shape;
  }
  onnx::Outcome imported = onnx::import_model(model, options);
  for (int round = 0; round < 8 && !imported.unsupported.empty(); ++round) {
    bool more = false;
    for (const UnsupportedNode& node : imported.unsupported) {
      for (const std::string& name : node.bind) {
        const auto value = values.find(name);
        if (value == values.end() || options.binds.contains(name) || !bindable(value->second)) continue;
        options.binds[name] = value->second;
        more = true;
      }
    }
    if (!more) break;
    imported = onnx::import_model(model, options);
  }
  outcome.bound.clear();
  for (const auto& [name, value] : options.binds) outcome.bound.push_back(name);
  if (!imported.unsupported.empty()) {
    outcome.verdict = Verdict::Refused;
    outcome.refused_op = imported.unsupported[0].op;
    outcome.reason = imported.unsupported[0].reason;
    return;
  }
  Tensors inputs;
  for (const std::string& name : imported.model.inputs) inputs.insert_or_assign(name, host(values.at(name)));
  const Tensors outputs = run(imported.model, inputs, device);
  double absolute = 1e-7;
  for (const Tolerance& t : kTolerances) {
    if (test.name.starts_with(t.prefix)) absolute = t.absolute;
  }
  for (std::size_t i = 0; i < wanted.size() && i < model.graph.outputs.size(); ++i) {
    const std::string& name = model.graph.outputs[i].name;
    if (!wanted[i]) {
      outcome.reason = "the wanted output is no tensor";
    } else {
      outcome.reason =
          difference(outputs.at(name), narrowed(typed(*wanted[i], model.graph.outputs[i])), name, absolute);
    }
    if (outcome.reason.empty()) continue;
    outcome.verdict = Verdict::Fail;
    return;
  }
}

}  // namespace

OnnxOutcome run_onnx_case(const OnnxCase& test, const std::optional<Device>& device, bool f64_as_f32) {
  OnnxOutcome outcome;
  try {
    const onnx::Model model = onnx::read_model(test.model);
    outcome.ops = onnx::count_ops(model);
    if (const auto opset = model.opsets.find(""); opset != model.opsets.end()) outcome.opset = opset->second;
    std::vector<fs::path> sets = test.data_sets;
    if (test.folder == "light") sets = {{}};
    if (sets.empty()) throw Error(ErrorCode::NotFound, "no test data");
    for (const fs::path& set : sets) {
      run_set(test, model, set, device, f64_as_f32, outcome);
      if (outcome.verdict != Verdict::Pass) break;
    }
  } catch (const Error& error) {
    outcome.verdict = error.code() == ErrorCode::Unsupported ? Verdict::Refused : Verdict::Fail;
    outcome.refused_op = outcome.ops.empty() ? "" : outcome.ops.begin()->first;
    outcome.reason = error.message();
    if (const std::string file = test.model.string() + ": "; outcome.reason.starts_with(file))
      outcome.reason.erase(0, file.size());
  } catch (const std::exception& error) {
    outcome.verdict = Verdict::Fail;
    outcome.reason = error.what();
  }
  if (outcome.verdict == Verdict::Fail) {
    const auto disputed = std::ranges::find(kDisputed, std::string_view(test.name), &Exception::test);
    if (disputed != kDisputed.end()) {
      outcome.verdict = Verdict::Disputed;
      outcome.reason = disputed->reason;
    }
  }
  return outcome;
}

}  // namespace aeshna::test
