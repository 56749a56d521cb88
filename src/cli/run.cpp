// aeshna run MODEL: one step of an imported model, with inputs and outputs as .npy files.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>

#include "aeshna/import.h"
#include "aeshna/pretrained.h"
#include "aeshna/session.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/make_folder.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/model_options.h"
#include "cli/text.h"
#include "io/npy.h"

namespace aeshna::cli {
namespace {

std::pair<std::string, std::string> name_and_value(const std::string& text, const char* option) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0) wrong_arguments("{} '{}': NAME=VALUE is expected", option, text);
  return {text.substr(0, at), text.substr(at + 1)};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

template <class T>
bool parse_number(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Shape parse_shape(const std::string& option) {
  const auto [name, text] = name_and_value(option, "--shape");
  std::vector<std::int64_t> dims;
  if (text.empty()) return {};
  for (const std::string& part : split(text)) {
    std::int64_t d = 0;
    if (!parse_number(part, d) || d < 0) wrong_arguments("--shape '{}': '{}' is no size", option, part);
    dims.push_back(d);
  }
  return Shape(std::span<const std::int64_t>(dims));
}

/// A number, true or false, several with commas between them, or @FILE.npy.
Literal parse_value(const std::string& option) {
  const auto [name, text] = name_and_value(option, "--bind");
  if (text.starts_with('@')) return read_npy(text.substr(1));
  const std::vector<std::string> parts = split(text);
  const Shape shape = parts.size() == 1 ? Shape{} : Shape{static_cast<std::int64_t>(parts.size())};
  std::vector<double> values;
  bool whole = true;
  for (const std::string& part : parts) {
    double v = 0;
    if (part == "true" || part == "false") {
      v = part == "true" ? 1 : 0;
    } else if (!parse_number(part, v)) {
      wrong_arguments("--bind '{}': '{}' is no number", option, part);
    }
    whole = whole && v == std::trunc(v) && std::abs(v) < 9e15;
    values.push_back(v);
  }
  return Literal::from_doubles({whole ? DType::i64 : DType::f64, shape}, values);
}

}  // namespace

void ModelOptions::add_to(CLI::App& command) {
  command
      .add_option("--shape", shapes, "Shape of an input, where the file leaves dimensions open: --shape x=1,3,48,320")
      ->type_name("NAME=D,D,...")
      ->allow_extra_args(false);
  command
      .add_option(
          "--bind", binds,
          "Value of an input, fixed when the model is loaded: --bind sr=16000, --bind axes=0,2, --bind w=@w.npy")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command.add_flag("--f64-as-f32", f64_as_f32, "Round the doubles of the model to f32 (no device computes in f64)");
}

ImportOptions ModelOptions::parsed() const {
  ImportOptions options;
  options.f64_as_f32 = f64_as_f32;
  for (const std::string& s : shapes) options.shapes[name_and_value(s, "--shape").first] = parse_shape(s);
  for (const std::string& b : binds) options.binds[name_and_value(b, "--bind").first] = parse_value(b);
  return options;
}

namespace {

/// "f32[1, 10]  min -1.2  max 3.4  mean 0.5  first -1.2, 0.3, ..."
std::string summary(const Literal& value) {
  const std::int64_t n = value.type().shape.elements();
  std::string text = value.type().to_string();
  if (n == 0) return text;
  double low = value.at(0), high = low, sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = value.at(i);
    low = std::fmin(low, v);
    high = std::fmax(high, v);
    sum += v;
  }
  text += formatted("  min {:.6g}  max {:.6g}  mean {:.6g}  first", low, high, sum / static_cast<double>(n));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(n, 6); ++i)
    text += formatted("{} {:.6g}", i == 0 ? "" : ",", value.at(i));
  return text + (n > 6 ? ", ..." : "");
}

/// One file for each output. Error(InvalidArgument) for names that no file can have, or two that become one.
std::vector<std::filesystem::path> output_files(const std::filesystem::path& folder,
                                                const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> files;
  std::set<std::string> used;
  for (const std::string& name : names) {
    std::string file = name;
    std::ranges::replace(file, '/', '_');
    const bool control = std::ranges::any_of(file, [](unsigned char c) { return c < 32; });
    if (control || file.size() > 200)
      fail(ErrorCode::InvalidArgument, "no file can be named after the output '{}'", name);
    if (!used.insert(file).second) fail(ErrorCode::InvalidArgument, "two outputs would be written to {}.npy", file);
    files.push_back(folder / (file + ".npy"));
  }
  return files;
}

struct RunOptions : ModelOptions {
  ModelArgument model;
  std::string output_dir;
  std::vector<std::string> inputs;
};

int run(const RunOptions& options, const Globals& globals) {
  std::map<std::string, Literal> values;
  for (const std::string& i : options.inputs) {
    const auto [name, file] = name_and_value(i, "--input");
    values[name] = read_npy(file);
  }
  ImportOptions import = options.parsed();
  for (const auto& [name, value] : values) import.shapes.try_emplace(name, value.type().shape);
  const std::filesystem::path path = options.model.path(globals);
  if (path.extension() == ".gguf" || path.extension() == ".safetensors")
    fail(ErrorCode::Unsupported,
         "{}: models of ONNX and NNEF, and vision and speech models in folders of Hugging Face can be run (language "
         "models are for aeshna generate)",
         path.string());
  const ImportedModel model = is_hugging_face(path) ? import_hugging_face(path, import)
                              : is_nnef(path)       ? import_nnef(path, import)
                                                    : import_onnx(path, import);
  std::string missing;
  for (const std::string& name : model.inputs) {
    const TensorType& type = model.graph->type({*model.graph->leaf(name), 0});
    const auto given = values.find(name);
    if (given == values.end()) {
      missing += formatted("\n  {} {}", name, type.to_string());
    } else if (given->second.type() != type) {
      fail(ErrorCode::ShapeMismatch, "input '{}' is {}, the file given for it has {}", name, type.to_string(),
           given->second.type().to_string());
    } else if (const auto range = model.ranges.find(name); range != model.ranges.end()) {
      for (const double v : given->second.to_doubles()) {
        if (v < range->second.first || v > range->second.second)
          fail(ErrorCode::OutOfRange, "input '{}' holds {}, which four bits do not", name, v);
      }
    }
  }
  if (!missing.empty())
    fail(ErrorCode::InvalidArgument, "{}: no values (--input NAME=FILE.npy) are given for these inputs:{}",
         path.string(), missing);
  const std::vector<std::filesystem::path> files = output_files(options.output_dir, model.outputs);

  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  if (!options.output_dir.empty()) make_folder(options.output_dir);  // before the work, if it fails
  const Clock::time_point start = Clock::now();
  Weights weights{Device(globals.request())};
  weights.add(*model.graph);
  for (const auto& [name, value] : model.weights) weights.set(name, value);
  Session session = compile(*model.graph, weights);
  const double compile_seconds = seconds(start);
  for (const std::string& name : model.inputs) session.set(name, values.at(name));
  const Clock::time_point step_start = Clock::now();
  session.step();
  session.wait();
  if (!globals.quiet)
    std::printf("compiled  in %s; the step took %s\n", format_seconds(compile_seconds).c_str(),
                format_seconds(seconds(step_start)).c_str());
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    const Literal value = session.read_literal(model.outputs[i]);
    if (!options.output_dir.empty()) write_npy(files[i], value);
    const std::string where = options.output_dir.empty() ? model.outputs[i] : files[i].string();
    std::printf("%s  %s\n", where.c_str(), summary(value).c_str());
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand(
      "run", "Run a model of ONNX, NNEF or Hugging Face (vision, speech) once, with inputs and outputs as .npy files");
  auto options = std::make_shared<RunOptions>();
  options->model.add_to(*command, "MODEL", "An ONNX file, a folder of NNEF or of Hugging Face");
  command->add_option("--input", options->inputs, "Values of an input")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  command->add_option("--output-dir", options->output_dir, "Writes each output there as NAME.npy ('/' becomes '_')")
      ->type_name("DIR");
  options->add_to(*command);
  command->callback([&action, &globals, options] { action = [&globals, options] { return run(*options, globals); }; });
}

}  // namespace aeshna::cli
