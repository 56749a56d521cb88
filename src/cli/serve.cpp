// aeshna serve: OpenAI's API over HTTP. docs/serve.md describes it.
#include "serve/server.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/model_argument.h"
#include "cli/secret.h"

namespace aeshna::cli {
namespace {

using namespace std::chrono_literals;

struct ServeArguments {
  LanguageModelArgument model;
  std::optional<std::string> key;
  bool without_key = false;
  serve::EngineOptions engine;
  serve::ServerOptions server;
};

/// The key itself, or what stands in a file: "@FILE".
std::string key_of(const std::string& option) {
  if (option.starts_with('@')) return read_secret("--api-key", option.substr(1));
  if (option.empty()) wrong_arguments("--api-key: the key is empty");
  return option;
}

/// The name that clients know the model by: OWNER/NAME of the hub, or that of the folder, or of the file without its extension.
std::string model_id(const std::string& name, const std::filesystem::path& path) {
  if (path != name) return name.substr(0, name.find_first_of("@:"));
  std::filesystem::path p = path.lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  return (std::filesystem::is_directory(path) ? p.filename() : p.stem()).string();
}

int serve(ServeArguments& a, const Globals& globals) {
  if (a.key) a.server.api_key = key_of(*a.key);
  if (!serve::is_loopback(a.server.host) && a.server.api_key.empty() && !a.without_key)
    wrong_arguments(
        "{} can be reached by other machines: give --api-key, or --without-key if everyone may use the model",
        a.server.host);
  check_options(a.server.sampling);  // refuses before the model is loaded
  const std::filesystem::path path = a.model.path(globals);
  LanguageModel model = a.model.open(path);
  if (a.engine.id.empty()) a.engine.id = model_id(a.model.name, path);
  a.engine.generator.device = Device(globals.request());
  a.server.body_bytes += 8 * static_cast<std::uint64_t>(a.engine.generator.context);
  if (!globals.quiet)
    a.server.log = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };

  const Interrupt interrupt;  // before it says that it listens
  const auto engine = serve::model_engine(std::move(model), a.engine);
  serve::Server server(*engine, a.server);
  std::printf("listening on %s\n", server.url().c_str());
  std::fflush(stdout);
  if (!globals.quiet)
    std::fprintf(stderr, "model %s, context %lld%s\n", engine->model().id.c_str(),
                 static_cast<long long>(engine->model().context),
                 engine->model().chat ? "" : (", no chat: " + engine->model().why_no_chat).c_str());
  while (!interrupt.requested()) std::this_thread::sleep_for(50ms);
  if (!globals.quiet) std::fputs("shutting down\n", stderr);
  server.stop(5s);
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("serve", "Serve a language model over HTTP, as OpenAI's API");
  auto a = std::make_shared<ServeArguments>();
  a->server.port = 8080;
  a->engine.generator.sequences = 4;
  a->model.add_to(*command);
  command->add_option("--host", a->server.host, "Address to listen on")->capture_default_str()->type_name("ADDRESS");
  command->add_option("--port", a->server.port, "0: any; it is printed")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--api-key", a->key, "What clients must send; @FILE: what stands in a file")->type_name("KEY");
  command->add_flag("--without-key", a->without_key, "Other machines may use the server without a key");
  command->add_option("--name", a->engine.id, "Of the model, for clients (default: the file's)")->type_name("NAME");
  command->add_option("--sequences", a->engine.generator.sequences, "Answers that are generated at the same time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--waiting", a->engine.waiting, "Answers that may wait; more are refused")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--cors", a->server.cors, "Pages of this origin may use the server; '*': all")
      ->type_name("ORIGIN");
  add_generator_options(*command, a->engine.generator);
  add_sampling_options(*command, a->server.sampling);
  command->footer("Sampling options are for requests that say nothing about them.");
  command->callback([&action, &globals, a] { action = [&globals, a] { return serve(*a, globals); }; });
}

}  // namespace aeshna::cli
