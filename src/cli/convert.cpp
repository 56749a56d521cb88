// aeshna convert: tensors to another format or dtype, and adapters into their model.
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/format.h"
#include "base/quant.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/text.h"
#include "nn/language/merge.h"

namespace aeshna::cli {
namespace {

struct ConvertArguments {
  ModelArgument from;
  std::string to, type, adapter;
};

std::uint64_t size_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return std::filesystem::file_size(path);
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

int convert(const ConvertArguments& a, const Globals& globals) {
  const bool quiet = globals.quiet;
  std::filesystem::path from = a.from.path(globals);
  if (a.adapter.empty() && std::filesystem::is_directory(from)) from /= "model.safetensors";
  const auto dtype = a.type.empty() ? std::nullopt : std::optional(parse_dtype(a.type));
  const auto report = a.adapter.empty() ? convert_file(from, a.to, dtype) : merge_adapter(from, a.adapter, a.to, dtype);
  std::size_t changed = 0, edited = 0;
  std::set<std::string> rounded;
  for (const ConvertedTensor& tensor : report) {
    changed += tensor.from != tensor.to;
    edited += tensor.edited;
    if (tensor.edited && tensor.to != DType::f32) rounded.emplace(dtype_name(tensor.to));
    if (!tensor.note.empty() && !quiet) {
      std::printf("%s: %s, so it is %s\n", tensor.name.c_str(), tensor.note.c_str(),
                  std::string(dtype_name(tensor.to)).c_str());
    }
  }
  std::string merged;
  if (!a.adapter.empty()) {
    std::string dtypes;
    for (const std::string& name : rounded) dtypes += (dtypes.empty() ? ", rounded to " : ", ") + name;
    merged = formatted(" {} merged with the adapter{},", edited, dtypes);
  }
  std::printf("wrote %s: %zu tensors,%s %zu of them converted, %s\n", a.to.c_str(), report.size(), merged.c_str(),
              changed, format_bytes(size_of(a.to)).c_str());
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("convert", "Convert between GGUF and safetensors, quantize, merge adapters");
  auto a = std::make_shared<ConvertArguments>();
  a->from.add_to(*command, "FROM", "The file to read, .gguf or .safetensors, or a folder with model.safetensors");
  command->add_option("to", a->to, "The file to write, .gguf or .safetensors")->required()->type_name("TO");
  command
      ->add_option("--type", a->type,
                   "What matrices become: f32, f16, bf16, q8_0, q6_K, q5_0, q4_K, q4_1 or q4_0 (default: as they are)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q6_K", "q5_0", "q4_K", "q4_1", "q4_0"}))
      ->type_name("DTYPE");
  command
      ->add_option("--adapter", a->adapter,
                   "Folder of a LoRA adapter to merge; FROM and TO are GGUF files, or folders of Hugging Face")
      ->type_name("DIR");
  command->callback([&action, &globals, a] { action = [&globals, a] { return convert(*a, globals); }; });
}

}  // namespace aeshna::cli
