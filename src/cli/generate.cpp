// aeshna generate: text from a language model.
#include <algorithm>
#include <cstdio>

#include "aeshna/generate.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/text.h"

namespace aeshna::cli {
namespace {

struct GenerateArguments {
  ModelArgument model;
  std::string prompt, system;
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
  LanguageModel model = open_language_model(a.model.path(globals));
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
  a->model.add_to(*command, "MODEL", "A GGUF file, or a folder with config.json, safetensors and tokenizer.json");
  command->add_option("prompt", a->prompt, "The text to go on from, or with --chat what the user says")
      ->required()
      ->type_name("TEXT");
  command->add_flag("--chat", a->chat, "The prompt is a message, in the format that the model was trained on");
  command->add_option("--system", a->system, "With --chat: the system's message")->type_name("TEXT");
  command->add_option("--max-tokens", a->generate.max_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--stop", a->generate.stop, "Ends before this text; may be given several times")
      ->type_name("TEXT");
  command->add_option("--context", a->generator.context, "Tokens of prompt and answer together at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--chunk", a->generator.chunk, "Tokens of the prompt that one step reads")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--temperature", a->sampling.temperature, "0: the most likely token always")
      ->check(finite())
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--top-k", a->sampling.top_k, "Of the K most likely tokens; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->type_name("K");
  command->add_option("--top-p", a->sampling.top_p, "Of the most likely tokens with this probability together")
      ->check(finite())
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--min-p", a->sampling.min_p, "Of tokens with this share of the best one's probability")
      ->check(finite())
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--repetition-penalty", a->sampling.repetition_penalty, "Divides logits of recent tokens")
      ->check(finite())
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--seed", a->sampling.seed)->check(unsigned_number())->capture_default_str()->type_name("N");
  command->callback([&action, &globals, a] { action = [&globals, a] { return generate(*a, globals); }; });
}

}  // namespace aeshna::cli
