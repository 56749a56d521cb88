// The program `aeshna`: global options, the commands, and what becomes of errors. docs/cli.md describes it.
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "aeshna/error.h"
#include "base/env.h"
#include "cli/command.h"

namespace aeshna::cli {

CLI::Validator finite() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && std::isfinite(value) ? "" : text + " is no finite number";
      },
      "");
}

CLI::Validator unsigned_number() {
  return CLI::Validator(
      [](const std::string& text) {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc() && end == text.data() + text.size()
                   ? ""
                   : text + " is no whole number from 0 to 18446744073709551615";
      },
      "");
}

namespace {

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;  // the innermost one chosen
  std::string path = "aeshna";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += ' ' + command->get_name();
  }
  const std::vector<std::string> rest = app.remaining();
  if (command == &app && !rest.empty() && !rest.front().starts_with('-')) {
    std::fprintf(stderr, "aeshna: there is no command '%s'\nsee aeshna --help\n", rest.front().c_str());
  } else {
    std::fprintf(stderr, "aeshna: %s\nsee %s --help\n", error.what(), path.c_str());
  }
  return kUsage;
}

int run(int argc, char** argv) {
  Globals globals;
  Action action;
  CLI::App app("Trains and runs neural networks on any GPU through Vulkan.", "aeshna");
  app.set_version_flag("--version", "aeshna " AESHNA_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // global options may stand after the command
  app.add_option("--device", globals.device,
                 "Device to use: index, UUID or a part of the name (default: AESHNA_DEVICE, else the best GPU); 'null' "
                 "plans only")
      ->type_name("SEL");
  app.add_flag("--validation", globals.validation, "Run under the Khronos validation layer; any message is an error");
  app.add_flag("-q,--quiet", globals.quiet, "Print results only");

  add_devices(app, globals, action);
  add_info(app, globals, action);
  add_convert(app, globals, action);
  add_generate(app, globals, action);
  add_chat(app, globals, action);
  add_serve(app, globals, action);
  add_train(app, globals, action);
  add_dump(app, globals, action);
  add_check(app, globals, action);
  add_profile(app, globals, action);
  add_run(app, globals, action);
  add_ops(app, globals, action);
  add_bench(app, globals, action);

  int status = 0;
  try {
    app.parse(argc, argv);
    status = action();
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("aeshna: standard output could not be written\n", stderr);
    return kFailed;
  }
  return status;
}

}  // namespace
}  // namespace aeshna::cli

int main(int argc, char** argv) {
  const auto failed = [](const char* what) {
    std::fflush(stdout);
    std::fprintf(stderr, "aeshna: %s\n", what);
    return aeshna::cli::kFailed;
  };
#ifdef SIGXFSZ
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, not the end of the program
#endif
  try {
    aeshna::env_use_own_pipeline_cache();
    return aeshna::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return failed("out of memory");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}
