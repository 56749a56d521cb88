// aeshna chat: a conversation with a language model, line by line.
#include "aeshna/chat.h"

#include <algorithm>
#include <cstdio>

#include "aeshna/generate.h"
#include "base/fail.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/line_input.h"
#include "cli/model_argument.h"
#include "cli/text.h"

namespace aeshna::cli {
namespace {

constexpr std::string_view kHelp = "/system TEXT: what the system says; /reset: a new conversation; /exit";

struct ChatArguments {
  LanguageModelArgument model;
  std::string system;
  GeneratorOptions generator;
  SamplingOptions sampling;
  GenerateOptions generate = {.max_tokens = 1024};
};

/// What was said, and how much of it the model still sees.
class Conversation {
 public:
  Conversation(const LanguageModel& model, std::int64_t context, std::int64_t max_tokens)
      : template_(model.chat_template()),
        tokenizer_(model.tokenizer()),
        context_(static_cast<std::size_t>(context)),
        answer_(std::min(static_cast<std::size_t>(max_tokens), context_ / 4)) {}

  const ChatTemplate& format() const { return template_; }

  /// Error(InvalidArgument) if the format has no system message; then all is as before. "" takes it away.
  void set_system(const std::string& text) {
    std::vector<ChatMessage> first;
    if (!text.empty()) first.push_back({"system", text});
    first.push_back({"user", "x"});
    template_.render(first, tokenizer_);
    first.pop_back();
    system_ = std::move(first);
  }
  void reset() { turns_.clear(); }

  /// The ids that ask for an answer to `message`. The oldest exchanges are forgotten, half a context at once, if they leave too little room;
  /// `forgotten`: messages. Error(LimitExceeded) if the message itself leaves none; then all is as before.
  std::vector<std::int32_t> ask(const std::string& message, std::size_t& forgotten) {
    std::vector<ChatMessage> turns = turns_;
    turns.push_back({"user", message});
    std::vector<std::int32_t> ids = encode(turns);
    forgotten = 0;
    if (ids.size() + answer_ > context_) {
      while (turns.size() > 1 && ids.size() > context_ / 2) {
        turns.erase(turns.begin(), turns.begin() + 2);
        forgotten += 2;
        ids = encode(turns);
      }
    }
    if (ids.size() >= context_)
      fail(ErrorCode::LimitExceeded, "the message and what stands before it have {} tokens; the context holds {}",
           ids.size(), context_);
    turns_ = std::move(turns);
    return ids;
  }
  void answered(std::string text) { turns_.push_back({"assistant", std::move(text)}); }
  void unasked() { turns_.pop_back(); }

 private:
  std::vector<std::int32_t> encode(const std::vector<ChatMessage>& turns) const {
    std::vector<ChatMessage> all = system_;
    all.insert(all.end(), turns.begin(), turns.end());
    return tokenizer_.encode(template_.render(all, tokenizer_), false);
  }

  ChatTemplate template_;
  Tokenizer tokenizer_;
  std::size_t context_, answer_;
  std::vector<ChatMessage> system_, turns_;  // turns: user and assistant alternate
};

class Chat {
 public:
  Chat(Conversation conversation, Generator generator, const ChatArguments& arguments, bool quiet)
      : conversation_(std::move(conversation)),
        generator_(std::move(generator)),
        sampling_(arguments.sampling),
        options_(arguments.generate),
        quiet_(quiet) {}

  int run() {
    if (terminal_)
      note(formatted("{}, {}. Ctrl-C stops an answer.\n{}", generator_.model().name(), conversation_.format().name(),
                     kHelp));
    while (!ended_) {
      prompt();
      std::string line;
      switch (input_.next(line, [&] { return interrupt_.requested() && !told_; })) {
        case LineInput::Event::End:
          if (terminal_) std::fputs("\n", stdout);
          return 0;
        case LineInput::Event::Interrupted:
          if (!terminal_ || !interrupt_.by_key()) return interrupt_.status();
          std::fputs("\n", stdout);
          note("Ctrl-C once more, Ctrl-D or /exit ends the program");
          told_ = true;
          break;
        case LineInput::Event::Line:
          told_ = false;
          interrupt_.rearm();
          take(line);
          if (interrupt_.requested() && (!terminal_ || !interrupt_.by_key())) return interrupt_.status();
          interrupt_.rearm();
      }
    }
    return 0;
  }

 private:
  void prompt() const {
    if (!terminal_) return;
    std::fputs("> ", stdout);
    std::fflush(stdout);
  }
  void note(std::string_view text) const {
    std::fflush(stdout);
    if (!quiet_) std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }

  void take(const std::string& line) {
    try {
      if (line.starts_with('/')) {
        command(line);
      } else if (line.find_first_not_of(" \t") != std::string::npos) {
        say(line);
      }
    } catch (const Error& error) {
      // A person can say something else; a script would go on without knowing.
      const bool ours = error.code() == ErrorCode::InvalidArgument || error.code() == ErrorCode::LimitExceeded ||
                        error.code() == ErrorCode::NotFound;
      if (!terminal_ || !ours) throw;
      std::fprintf(stderr, "%s\n", error.message().c_str());
    }
  }

  void command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::size_t rest = space == std::string::npos ? space : line.find_first_not_of(' ', space);
    const std::string text = rest == std::string::npos ? "" : line.substr(rest);
    if (name == "/exit" && text.empty()) {
      ended_ = true;
    } else if (name == "/reset" && text.empty()) {
      conversation_.reset();
    } else if (name == "/system") {
      conversation_.set_system(text);
    } else {
      fail(ErrorCode::NotFound, "there is no command '{}' ({}); a message that begins with '/' needs a space before it",
           printable(line), kHelp);
    }
  }

  void say(const std::string& message) {
    std::size_t forgotten = 0;
    const std::vector<std::int32_t> ids = conversation_.ask(message, forgotten);
    if (forgotten > 0)
      note(formatted("(the context is full: the model has forgotten the first {} messages)", forgotten));
    GenerateOptions options = options_;
    options.on_text = [&](std::string_view text) {
      std::fputs(printable(std::string(text)).c_str(), stdout);
      std::fflush(stdout);
      return !interrupt_.requested();
    };
    Generation answer;
    try {
      answer = generator_.generate(ids, sampling_, options);
    } catch (...) {
      conversation_.unasked();
      throw;
    }
    std::fputs("\n", stdout);
    std::fflush(stdout);
    if (answer.end == Generation::End::Length) note("(the answer ends here: --max-tokens)");
    if (answer.end == Generation::End::Context) note("(the answer ends here: the context is full, see --context)");
    conversation_.answered(std::move(answer.text));
  }

  Conversation conversation_;
  Generator generator_;
  SamplingOptions sampling_;
  GenerateOptions options_;
  bool quiet_, terminal_ = LineInput::is_terminal(), ended_ = false;
  bool told_ = false;  ///< how to end; the next Ctrl-C does
  LineInput input_;
  Interrupt interrupt_;
};

int chat(ChatArguments& a, const Globals& globals) {
  check_options(a.sampling);  // refuses before the model is loaded
  LanguageModel model = a.model.open(a.model.path(globals));
  Conversation conversation(model, a.generator.context, a.generate.max_tokens);
  if (!a.system.empty()) conversation.set_system(a.system);
  a.generator.device = Device(globals.request());
  return Chat(std::move(conversation), Generator(std::move(model), a.generator), a, globals.quiet).run();
}

}  // namespace

void add_chat(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a language model, line by line");
  auto a = std::make_shared<ChatArguments>();
  a->model.add_to(*command);
  command->add_option("--system", a->system, "What the system says first")->type_name("TEXT");
  add_answer_options(*command, a->sampling, a->generate);
  add_generator_options(*command, a->generator);
  add_sampling_options(*command, a->sampling);
  command->callback([&action, &globals, a] { action = [&globals, a] { return chat(*a, globals); }; });
}

}  // namespace aeshna::cli
