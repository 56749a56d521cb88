// aeshna info FILE: what is in a file that Aeshna reads.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "aeshna/language_model.h"
#include "aeshna/pretrained.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/model_options.h"
#include "cli/read_graph.h"
#include "cli/text.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna::cli {
namespace {

constexpr std::string_view kGraphHeader = "aeshna graph ";

/// The first bytes of a file (fewer if it is shorter).
std::string read_start(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    read_file(path, 0);  // says why
    fail(ErrorCode::Io, "{}: cannot be opened", path.string());
  }
  std::string start(16, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return start;
}

/// What a file that is not read seems to be.
std::string_view foreign_format(std::string_view start) {
  struct Magic {
    std::string_view bytes, name;
  };
  static constexpr std::array<Magic, 5> table = {{{"PK\x03\x04", "a zip archive, as PyTorch writes"},
                                                  {"\x80\x02", "a Python pickle"},
                                                  {"\x89HDF", "an HDF5 file"},
                                                  {"\x93NUMPY", "a NumPy array"},
                                                  {"\x1f\x8b", "a gzip file"}}};
  const auto found = std::ranges::find_if(table, [&](const Magic& magic) { return start.starts_with(magic.bytes); });
  return found == table.end() ? "of an unknown format" : found->name;
}

std::string describe_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const SafetensorsEntry& entry : file.tensors()) {
    rows.push_back({entry.name, std::string(dtype_name(entry.type.dtype)), entry.type.shape.to_string(),
                    std::to_string(entry.end - entry.begin)});
    elements += entry.type.shape.elements();
    bytes += entry.end - entry.begin;
  }
  std::string text = formatted("{}: safetensors{}, {} tensors, {} elements, {}\n", path.string(),
                               file.metadata().contains("aeshna") ? " (an Aeshna checkpoint)" : "",
                               file.tensors().size(), format_count(elements), format_bytes(bytes));
  if (!file.tensors().empty()) text += '\n' + format_table(rows);
  if (!file.metadata().empty()) text += "\nmetadata\n";
  for (const auto& [key, value] : file.metadata()) text += formatted("  {} = {}\n", key, value);
  return text;
}

std::string describe_gguf(const std::filesystem::path& path) {
  const GgufFile file(path);
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const GgufEntry& entry : file.tensors()) {
    rows.push_back({entry.name, std::string(dtype_name(entry.type.dtype)), entry.type.shape.to_string(),
                    std::to_string(entry.bytes)});
    elements += entry.type.shape.elements();
    bytes += entry.bytes;
  }
  std::string text = formatted("{}: GGUF version {}, {} tensors, {} elements, {}\n", path.string(), file.version(),
                               file.tensors().size(), format_count(elements), format_bytes(bytes));
  if (!file.tensors().empty()) text += '\n' + format_table(rows);
  if (!file.metadata().empty()) text += "\nmetadata\n";
  for (const auto& [key, value] : file.metadata()) text += formatted("  {} = {}\n", key, value.to_string());
  return text;
}

std::string describe_graph(const std::filesystem::path& path) {
  Graph graph;
  read_graph(path, graph);
  std::vector<std::vector<std::string>> leaves = {{"kind", "name", "type"}};
  std::map<std::string, std::int64_t> ops;
  for (const Node& node : graph.nodes()) {
    ++ops[node.op->name];
    if (is_input(node) || is_parameter(node) || is_state(node))
      leaves.push_back({node.op->name, node.name, node.results[0].to_string()});
  }
  for (const Graph::Output& output : graph.outputs())
    leaves.push_back({"output", output.name, graph.type(output.value).to_string()});
  std::string text =
      formatted("{}: text graph, {} nodes\n\n{}\nops\n", path.string(), graph.nodes().size(), format_table(leaves));
  for (const auto& [name, count] : ops) text += formatted("  {:>5} {}\n", count, name);
  return text;
}

std::string describe_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  const OnnxInfo info = inspect_onnx(path, options);
  std::vector<std::vector<std::string>> values = {{"kind", "name", "type"}};
  for (const OnnxInfo::Tensor& t : info.inputs) values.push_back({"input", t.name, t.type});
  for (const OnnxInfo::Tensor& t : info.outputs) values.push_back({"output", t.name, t.type});
  std::string text = formatted("{}: ONNX, IR version {}, opset {}{}{}, {} weights of {} elements\n\n{}\nops\n",
                               path.string(), info.ir_version, info.opset, info.producer.empty() ? "" : ", by ",
                               info.producer, info.weights, format_count(info.weight_elements), format_table(values));
  for (const auto& [name, count] : info.ops) text += formatted("  {:>5} {}\n", count, name);
  if (!info.problem.empty()) return text + "\nto import it\n  " + info.problem + '\n';
  if (info.unsupported.empty()) return text + "\neverything is supported\n";
  text += "\nnot supported\n";
  for (const UnsupportedNode& node : info.unsupported) {
    text += formatted("  {} '{}': {}", node.op, node.name, node.reason);
    for (const std::string& name : node.bind) text += formatted(" (--bind {}=...)", name);
    text += '\n';
  }
  return text;
}

std::string describe_nnef(const std::filesystem::path& path, const ImportOptions& options) {
  const NnefInfo info = inspect_nnef(path, options);
  std::vector<std::vector<std::string>> values = {{"kind", "name", "type"}};
  for (const NnefInfo::Tensor& t : info.inputs) values.push_back({"input", t.name, t.type});
  for (const NnefInfo::Tensor& t : info.outputs) values.push_back({"output", t.name, t.type});
  std::string text =
      formatted("{}: NNEF {}, graph {}, {} variables of {} elements\n\n{}\nops\n", path.string(), info.version,
                info.graph, info.weights, format_count(info.weight_elements), format_table(values));
  for (const auto& [name, count] : info.ops) text += formatted("  {:>5} {}\n", count, name);
  text += info.unsupported.empty() ? "\neverything is supported\n" : "\nnot supported\n";
  for (const UnsupportedNode& node : info.unsupported)
    text += formatted("  {} {}: {}\n", node.name, node.op, node.reason);
  return text;
}

std::string describe_hugging_face(const std::filesystem::path& path, const ImportOptions& options) {
  const HuggingFaceInfo info = inspect_hugging_face(path, options);
  std::vector<std::vector<std::string>> values = {{"kind", "name", "type"}};
  for (const HuggingFaceInfo::Tensor& t : info.inputs) values.push_back({"input", t.name, t.type});
  for (const HuggingFaceInfo::Tensor& t : info.outputs) values.push_back({"output", t.name, t.type});
  std::string text = formatted("{}: {}, {} parameters of {} elements\n\n{}", path.string(), info.architecture,
                               info.weights, format_count(info.weight_elements), format_table(values));
  if (!info.preprocessing.empty()) text += "\npreprocessing\n";
  for (const auto& [key, value] : info.preprocessing) text += formatted("  {} = {}\n", key, value);
  if (!info.unused.empty()) {
    text +=
        formatted("\nnot needed: {}{}\n", info.unused.front(),
                  info.unused.size() == 1 ? std::string() : formatted(" and {} more tensors", info.unused.size() - 1));
  }
  return text;
}

std::string describe_language_model(const std::filesystem::path& path) {
  const LanguageModel model = LanguageModel::load_hugging_face(path);
  std::vector<std::vector<std::string>> rows = {{"parameter", "type"}};
  std::int64_t elements = 0;
  for (const auto& [name, type] : model.parameters()) {
    rows.push_back({name, type.to_string()});
    elements += type.shape.elements();
  }
  const models::LlamaConfig& c = model.config();
  return formatted(
      "{}: language model, {} layers of width {}, {} tokens, {} chat format; {} parameters of {} elements\n\n{}",
      path.string(), c.layers, c.hidden, c.vocab, model.has_chat_template() ? "with a" : "without",
      model.parameters().size(), format_count(elements), format_table(rows));
}

std::string describe_file(const std::filesystem::path& path, const ImportOptions& options) {
  if (is_hugging_face(path))
    return imports_hugging_face(path) ? describe_hugging_face(path, options) : describe_language_model(path);
  if (is_nnef(path)) return describe_nnef(path, options);
  const std::string start = read_start(path);
  if (path.extension() == ".onnx") return describe_onnx(path, options);  // which has no magic number
  // safetensors: eight bytes of header length (always below 4 GiB), then the JSON header.
  if (start.size() > 8 && start.substr(4, 5) == std::string_view("\0\0\0\0{", 5)) return describe_safetensors(path);
  if (start.starts_with("GGUF")) return describe_gguf(path);
  if (start.starts_with(kGraphHeader)) return describe_graph(path);
  if (path.extension() == ".safetensors") return describe_safetensors(path);  // which says what is wrong with it
  fail(ErrorCode::Unsupported,
       "{} is {}; safetensors and GGUF files, text graphs, ONNX models (.onnx), NNEF models (folders, .nnef) and "
       "folders of Hugging Face are read",
       path.string(), foreign_format(start));
}

}  // namespace

void add_info(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand(
      "info",
      "Show what is in a checkpoint, a safetensors or GGUF file, a text graph, an ONNX or an NNEF model, "
      "a folder of Hugging Face");
  struct Options : ModelOptions {
    ModelArgument file;
  };
  auto options = std::make_shared<Options>();
  options->file.add_to(*command, "FILE", "A file or a folder");
  options->add_to(*command);
  command->callback([&action, &globals, options] {
    action = [&globals, options] {
      std::fputs(printable(describe_file(options->file.path(globals), options->parsed())).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace aeshna::cli
