// aeshna convert: tensors to another format or dtype.
#include <cstdio>
#include <filesystem>

#include "base/format.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/text.h"
#include "io/convert_file.h"

namespace aeshna::cli {

void add_convert(CLI::App& app, const Globals& globals, Action& action) {
  struct Arguments {
    ModelArgument from;
    std::string to, type;
  };
  CLI::App* command = app.add_subcommand("convert", "Convert between GGUF and safetensors, and quantize");
  auto a = std::make_shared<Arguments>();
  a->from.add_to(*command, "FROM", "The file to read, .gguf or .safetensors, or a folder with model.safetensors");
  command->add_option("to", a->to, "The file to write, .gguf or .safetensors")->required()->type_name("TO");
  command
      ->add_option("--type", a->type,
                   "What matrices become: f32, f16, bf16, q8_0, q6_K, q5_0, q4_K, q4_1 or q4_0 (default: as they are)")
      ->type_name("DTYPE");
  command->callback([&action, &globals, a] {
    action = [&globals, a] {
      const auto dtype = a->type.empty() ? std::nullopt : std::optional(parse_dtype(a->type));
      std::filesystem::path from = a->from.path(globals);
      if (std::filesystem::is_directory(from)) from /= "model.safetensors";
      std::size_t changed = 0, count = 0;
      for (const ConvertedTensor& tensor : convert_file(from, a->to, dtype)) {
        ++count;
        changed += tensor.from != tensor.to;
        if (!tensor.note.empty() && !globals.quiet) {
          std::printf("%s: %s, so it is %s\n", tensor.name.c_str(), tensor.note.c_str(),
                      std::string(dtype_name(tensor.to)).c_str());
        }
      }
      std::printf("wrote %s: %zu tensors, %zu of them converted, %s\n", a->to.c_str(), count, changed,
                  format_bytes(std::filesystem::file_size(a->to)).c_str());
      return 0;
    };
  });
}

}  // namespace aeshna::cli
