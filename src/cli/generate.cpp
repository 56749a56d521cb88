// aeshna generate: text from a language model.
#include <algorithm>
#include <cstdio>

#include "aeshna/generate.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/text.h"

namespace aeshna::cli {
namespace {

struct GenerateArguments {
  std::string model, prompt, system;
  bool chat = false;
  GeneratorOptions generator;
  SamplingOptions sampling;
  GenerateOptions generate;
};

std::vector<std::int32_t> prompt_ids(const LanguageModel& model, const GenerateArguments& a) {
  if (!a.chat) {
    if (!a.system.empty()) fail(ErrorCode::InvalidArgument, "--system is part of a conversation: give --chat too");
    return model.tokenizer().encode(a.prompt);
  }
  std::vector<ChatMessage> messages;
  if (!a.system.empty()) messages.push_back({"system", a.system});
  messages.push_back({"user", a.prompt});
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
  }
  return "";
}

int generate(GenerateArguments& a, const Globals& globals) {
  const auto sampler = host_sampler(a.sampling);  // refuses before the model is loaded
  LanguageModel model = open_language_model(a.model);
  const std::vector<std::int32_t> ids = prompt_ids(model, a);
  a.generator.device = Device(globals.request());
  Generator generator(std::move(model), a.generator);
  const Interrupt interrupt;
  a.generate.on_text = [&](std::string_view text) {
    std::fputs(printable(std::string(text)).c_str(), stdout);
    std::fflush(stdout);
    return !interrupt.requested();
  };
  const Generation result = generator.generate(ids, *sampler, a.generate);
  std::fputs("\n", stdout);
  if (!globals.quiet) {
    const auto rate = [](std::size_t count, double seconds) {
      return static_cast<double>(count) / std::max(seconds, 1e-9);
    };
    std::fprintf(stderr, "%s\n",
                 formatted("prompt: {} tokens, {:.1f} tokens/s; answer: {} tokens, {:.1f} tokens/s; {}", ids.size(),
                           rate(ids.size(), result.prompt_seconds), result.ids.size(),
                           rate(result.ids.size(), result.seconds), why(result.end))
                     .c_str());
  }
  return interrupt.requested() ? interrupt.status() : 0;
}

}  // namespace

void add_generate(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command =
      app.add_subcommand("generate", "Write text with a language model, greedily unless told otherwise");
  auto a = std::make_shared<GenerateArguments>();
  add_model_argument(*command, a->model);
  command->add_option("prompt", a->prompt, "The text to go on from, or with --chat what the user says")
      ->required()
      ->type_name("TEXT");
  command->add_flag("--chat", a->chat, "The prompt is a message, in the format that the model was trained on");
  command->add_option("--system", a->system, "With --chat: the system's message")->type_name("TEXT");
  add_answer_options(*command, a->sampling, a->generate);
  add_generator_options(*command, a->generator);
  add_sampling_options(*command, a->sampling);
  command->callback([&action, &globals, a] { action = [&globals, a] { return generate(*a, globals); }; });
}

}  // namespace aeshna::cli
