#include "cli/model_argument.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "aeshna/hub.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/language_options.h"
#include "cli/secret.h"
#include "cli/text.h"

namespace aeshna::cli {
namespace {

/// "model.safetensors  12 %  1.2 GiB of 9.8 GiB  85.1 MiB/s  1 min 42 s left"
std::string progress_text(const HubProgress& progress, std::uint64_t first, double seconds) {
  std::string text =
      formatted("{}  {} %  {} of {}", progress.file, progress.total == 0 ? 100 : progress.done * 100 / progress.total,
                format_bytes(progress.done), format_bytes(progress.total));
  const double rate = static_cast<double>(progress.done - first) / seconds;
  if (seconds < 1 || rate < 1) return text;
  return text + formatted("  {}/s  {} left", format_bytes(static_cast<std::uint64_t>(rate)),
                          format_seconds(std::ceil(static_cast<double>(progress.total - progress.done) / rate)));
}

}  // namespace

void ModelArgument::add_to(CLI::App& command, const std::string& metavar, const std::string& help) {
  command.add_option("model", name, help)->required()->type_name(metavar);
  command.add_flag(
      "--hub", hub_,
      metavar + " is OWNER/NAME on the Hugging Face hub, with @REVISION or :FILE if need be; it is downloaded once");
  command.add_flag("--offline", offline_, "With --hub: only what was downloaded before (AESHNA_OFFLINE=1)");
  command.add_option("--token-file", token_file_, "With --hub: file with the access token (default: HF_TOKEN)")
      ->type_name("FILE");
  command.add_option("--hub-url", url_, "With --hub: another hub (AESHNA_HUB_URL; default: https://huggingface.co)")
      ->type_name("URL");
}

std::filesystem::path ModelArgument::path(const Globals& globals) const {
  if (!hub_) {
    for (const auto& [given, option] :
         {std::pair(offline_, "--offline"), std::pair(!token_file_.empty(), "--token-file"),
          std::pair(!url_.empty(), "--hub-url")})
      if (given) wrong_arguments("{} is for models of the hub: give --hub too", option);
    return name;
  }
  HubOptions options{.url = url_, .offline = offline_};
  if (!token_file_.empty()) options.token = read_secret("--token-file", token_file_);
  options.on_note = [&](std::string_view text) {
    if (!globals.quiet) std::fprintf(stderr, "%s\n", printable(std::string(text)).c_str());
  };
  ProgressLine line(!globals.quiet);
  const auto start = std::chrono::steady_clock::now();
  std::optional<std::uint64_t> first;
  HubProgress last;
  options.on_progress = [&](const HubProgress& progress) {
    if (!first) first = progress.done;
    last = progress;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (line.due()) line.show(printable(progress_text(progress, *first, seconds)));
  };
  const std::filesystem::path path = fetch_model(name, options);
  line.clear();
  if (first && !globals.quiet)
    std::fprintf(stderr, "downloaded %s: %s into %s\n", name.c_str(), format_bytes(last.total).c_str(),
                 path.string().c_str());
  return path;
}

void LanguageModelArgument::add_to(CLI::App& command) {
  ModelArgument::add_to(command, "MODEL", kLanguageModel);
  command
      .add_option("--adapter", adapter, "Folder of a LoRA adapter: adapter_config.json, adapter_model.safetensors")
      ->type_name("DIR");
}

LanguageModel LanguageModelArgument::open(const std::filesystem::path& path) const {
  const LanguageModel model = LanguageModel::load(path);
  return adapter.empty() ? model : model.with_adapter(adapter);
}

}  // namespace aeshna::cli
