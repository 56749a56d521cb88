// aeshna generate: text from a language model.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>

#include "aeshna/generate.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/model_argument.h"
#include "cli/text.h"
#include "io/json_writer.h"

namespace aeshna::cli {
namespace {

struct GenerateArguments {
  LanguageModelArgument model;
  std::string prompt, prompts, system;
  bool chat = false;
  std::int64_t sequences = 0;  ///< 0: as many as there are prompts, up to 8
  GeneratorOptions generator;
  SamplingOptions sampling;
  GenerateOptions generate;
};

std::vector<std::int32_t> prompt_ids(const LanguageModel& model, const GenerateArguments& a,
                                     const std::string& prompt) {
  if (!a.chat) return model.tokenizer().encode(prompt);
  std::vector<ChatMessage> messages;
  if (!a.system.empty()) messages.push_back({"system", a.system});
  messages.push_back({"user", prompt});
  return model.tokenizer().encode(model.chat_template().render(messages, model.tokenizer()), false);
}

std::string_view why(Generation::End end) {
  switch (end) {
    case Generation::End::Token:
      return "the model ended";
    case Generation::End::Stop:
      return "a stop text";
    case Generation::End::Length:
      return "--max-tokens";
    case Generation::End::Context:
      return "the context is full";
    case Generation::End::Caller:
      return "interrupted";
    case Generation::End::Error:
      return "an error";
  }
  return "";
}

/// The lines of a file that hold something.
std::vector<std::string> read_prompts(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::NotFound, "{} cannot be opened", path);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) prompts.push_back(line);
  }
  if (file.bad()) fail(ErrorCode::Io, "{} cannot be read", path);
  if (prompts.empty()) fail(ErrorCode::InvalidArgument, "{} has no prompt: one on each line is expected", path);
  return prompts;
}

double rate(std::size_t count, double seconds) { return static_cast<double>(count) / std::max(seconds, 1e-9); }

/// One answer as it comes.
int generate_one(const GenerateArguments& a, LanguageModel model, const Globals& globals, const Interrupt& interrupt) {
  const std::vector<std::int32_t> ids = prompt_ids(model, a, a.prompt);
  Generator generator(std::move(model), a.generator);
  GenerateOptions options = a.generate;
  options.on_text = [&](std::string_view text) {
    std::fputs(printable(std::string(text)).c_str(), stdout);
    std::fflush(stdout);
    return !interrupt.requested();
  };
  const Generation result = generator.generate(ids, a.sampling, options);
  std::fputs("\n", stdout);
  if (!globals.quiet) {
    std::fprintf(stderr, "%s\n",
                 formatted("prompt: {} tokens, {:.1f} tokens/s; answer: {} tokens, {:.1f} tokens/s; {}", ids.size(),
                           rate(ids.size(), result.prompt_seconds), result.ids.size(),
                           rate(result.ids.size() - std::min<std::size_t>(result.ids.size(), 1), result.seconds),
                           why(result.end))
                     .c_str());
  }
  return interrupt.requested() ? interrupt.status() : 0;
}

/// A line of JSON for each prompt, in their order.
int generate_all(GenerateArguments& a, LanguageModel model, const Globals& globals, const Interrupt& interrupt) {
  const std::vector<std::string> prompts = read_prompts(a.prompts);
  std::vector<Request> requests;
  for (const std::string& prompt : prompts) {
    Request& request = requests.emplace_back(
        Request{.prompt = prompt_ids(model, a, prompt), .sampling = a.sampling, .options = a.generate});
    request.options.on_text = [&](std::string_view) { return !interrupt.requested(); };
  }
  const auto most = static_cast<std::int64_t>(prompts.size());
  a.generator.sequences = std::min(a.sequences == 0 ? 8 : a.sequences, most);
  Generator generator(std::move(model), a.generator);
  const auto start = std::chrono::steady_clock::now();
  std::size_t tokens = 0, failed = 0, next = 0;
  std::vector<std::optional<Generation>> ended(prompts.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].on_end = [&, i](Generation g) {
      ended[i] = std::move(g);
      for (; next < ended.size() && ended[next]; ++next) {  // those before it have come out
        const Generation& done = *ended[next];
        tokens += done.ids.size();
        std::string error;
        if (done.error) {
          ++failed;
          try {
            std::rethrow_exception(done.error);
          } catch (const std::exception& e) {
            error = formatted(", \"error\": {}", json_quoted(e.what()));
          }
        }
        std::printf("%s\n", formatted("{{\"prompt\": {}, \"text\": {}, \"tokens\": {}, \"end\": {}{}}}",
                                      json_quoted(prompts[next]), json_quoted(done.text), done.ids.size(),
                                      json_quoted(why(done.end)), error)
                                .c_str());
        std::fflush(stdout);
      }
    };
  }
  generator.generate(requests);
  if (!globals.quiet) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::fprintf(stderr, "%s\n",
                 formatted("{} prompts, {} at a time: {} tokens in {:.2f} s, {:.1f} tokens/s", prompts.size(),
                           a.generator.sequences, tokens, seconds, rate(tokens, seconds))
                     .c_str());
  }
  return interrupt.requested() ? interrupt.status() : failed == 0 ? 0 : 1;
}

int generate(GenerateArguments& a, const Globals& globals) {
  if (a.prompt.empty() == a.prompts.empty()) wrong_arguments("give either a text or --prompts FILE");
  if (!a.chat && !a.system.empty()) wrong_arguments("--system is part of a conversation: give --chat too");
  if (a.prompts.empty() && a.sequences != 0) wrong_arguments("--sequences is for several prompts: give --prompts too");
  check_options(a.sampling);  // before the model is loaded
  a.generator.device = Device(globals.request());
  const Interrupt interrupt;
  LanguageModel model = a.model.open(a.model.path(globals));
  return a.prompts.empty() ? generate_one(a, std::move(model), globals, interrupt)
                           : generate_all(a, std::move(model), globals, interrupt);
}

}  // namespace

void add_generate(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command =
      app.add_subcommand("generate", "Write text with a language model, greedily unless told otherwise");
  auto a = std::make_shared<GenerateArguments>();
  a->model.add_to(*command);
  command->add_option("prompt", a->prompt, "The text to go on from, or with --chat what the user says")
      ->type_name("TEXT");
  command
      ->add_option("--prompts", a->prompts,
                   "Instead of TEXT: a file with a prompt on each line; answers come as lines of JSON")
      ->type_name("FILE");
  command
      ->add_option("--sequences", a->sequences,
                   "With --prompts: prompts that are answered at the same time; 0: up to 8")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--chat", a->chat, "The prompt is a message, in the format that the model was trained on");
  command->add_option("--system", a->system, "With --chat: the system's message")->type_name("TEXT");
  add_answer_options(*command, a->sampling, a->generate);
  add_generator_options(*command, a->generator);
  add_sampling_options(*command, a->sampling);
  command->callback([&action, &globals, a] { action = [&globals, a] { return generate(*a, globals); }; });
}

}  // namespace aeshna::cli
