// aeshna chat and aeshna serve as a user meets them.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "nn/tiny_language_model.h"
#include "support/run_program.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

#ifdef __linux__
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

namespace aeshna::test {
namespace {

void write_model(const TempDir& dir, const std::string& architecture = "llama") {
  TinyModel small = tiny_model(architecture);
  small.all_f32 = true;
  small.hidden = 64, small.ffn = 96, small.head_dim = 16;
  write_tiny_gguf(dir / "m.gguf", small);
}

ProgramResult run(std::vector<std::string> arguments, const TempDir& dir) {
  return run_program(std::move(arguments), dir.path());
}

/// `aeshna chat m.gguf OPTIONS` with this on its standard input.
ProgramResult chat(const TempDir& dir, const std::string& input, const std::string& options) {
  dir.write("input", input);
  return run_program({"-c", "AESHNA_LOG=0 " AESHNA_CLI " chat m.gguf " + options + " < input"}, dir.path(), "",
                     "/bin/sh");
}

TEST(CliChatDevice, ReadsFromAPipe) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  const std::string options = "--max-tokens 6 --context 120 --chunk 8";
  const ProgramResult one = chat(dir, "Hello\n", options);
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, run({"generate", "m.gguf", "Hello", "--chat", "--max-tokens", "6", "--chunk", "8"}, dir).out);
  EXPECT_EQ(one.err, "(the answer ends here: --max-tokens)\n");

  // Two messages; a reset; what the system says; the last line has no end.
  const ProgramResult talk =
      chat(dir, "Hello\n\n \nHello\r\n/reset\nHello\n/system Be brief.\n/reset\nHello", options + " -q");
  EXPECT_EQ(talk.err, "");
  std::vector<std::string> answers;
  for (std::size_t at = 0; at < talk.out.size();) {
    const std::size_t end = talk.out.find('\n', at);
    answers.push_back(talk.out.substr(at, end - at));
    at = end + 1;
  }
  ASSERT_EQ(answers.size(), 4u) << talk.out;
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_NE(answers[0], answers[3]);
  EXPECT_EQ(chat(dir, "Hello", options + " -q --system 'Be brief.'").out, answers[3] + "\n");
  EXPECT_EQ(chat(dir, "/exit\nHello\n", options).out, "");
}

TEST(CliChatDevice, ForgetsWhenTheContextIsFull) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  std::string input;
  for (int i = 0; i < 8; ++i) input += "Hello\n";
  const ProgramResult r = chat(dir, input, "--max-tokens 6 --context 100 --chunk 8");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.err, "(the context is full: the model has forgotten the first ");

  const ProgramResult cut = chat(dir, "Hello\n", "--context 64 --chunk 8");
  EXPECT_HAS(cut.err, "(the answer ends here: the context is full, see --context)");

  const ProgramResult longer = chat(dir, std::string(300, 'x') + "\nHello\n", "--context 64 --chunk 8");
  EXPECT_EQ(longer.status, 1);
  EXPECT_HAS(longer.err, "tokens; the context holds 64");
  EXPECT_EQ(longer.out, "");
}

TEST(CliChatDevice, Errors) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  const ProgramResult unknown = chat(dir, "/help\nHello\n", "--context 64");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_HAS(unknown.err, "there is no command '/help' (/system TEXT");
  EXPECT_EQ(chat(dir, "", "--top-p 0").err, "aeshna: sampling: top_p is 0\nsee aeshna chat --help\n");
  EXPECT_HAS(run({"chat", "none.gguf"}, dir).err, "none.gguf");
  EXPECT_EQ(run({"chat"}, dir).status, 2);
}

/// The program in a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const TempDir& dir, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "aeshna");
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      if (::chdir(dir.path().c_str()) == 0) ::execv(AESHNA_CLI, argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(terminal_);
  }
  void type(std::string_view text) { EXPECT_EQ(::write(terminal_, text.data(), text.size()), ssize_t(text.size())); }
  /// Reads until this has come; what came before it and was not taken yet.
  std::string until(const std::string& text) {
    std::size_t at;
    while ((at = seen_.find(text)) == std::string::npos)
      if (!more()) {
        ADD_FAILURE() << "'" << text << "' did not come, but: " << seen_;
        return "";
      }
    std::string before = seen_.substr(0, at);
    seen_.erase(0, at + text.size());
    return before;
  }
  void anything() { EXPECT_TRUE(!seen_.empty() || more()); }
  int status() {
    while (more()) {}
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  bool more() {
    pollfd wait = {.fd = terminal_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, 60000) <= 0) return false;
    char block[4096];
    const ssize_t count = ::read(terminal_, block, sizeof block);
    if (count <= 0) return false;
    seen_.append(block, static_cast<std::size_t>(count));
    return true;
  }
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string seen_;
};

TEST(CliChatDevice, InATerminal) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  Terminal t(dir, {"chat", "m.gguf", "--context", "2000", "--max-tokens", "1900", "--chunk", "8"});
  t.until("/exit\r\n> ");
  t.type("Hello\n");
  t.until("Hello\r\n");
  t.anything();
  t.type("\x03");
  EXPECT_EQ(t.until("\r\n> ").find("the answer ends here"), std::string::npos) << "it was stopped long before";
  t.type("/what\n");
  t.until("there is no command '/what'");
  t.until("> ");
  t.type("\x03");
  t.until("Ctrl-C once more");
  t.until("> ");
  t.type("/reset\n");
  t.until("> ");
  t.type("\x03");
  t.until("Ctrl-C once more");
  t.type("\x04");
  EXPECT_EQ(t.status(), 0);

  Terminal twice(dir, {"chat", "m.gguf", "--context", "64"});
  twice.until("> ");
  twice.type("\x03");
  twice.until("Ctrl-C once more");
  twice.type("\x03");
  EXPECT_EQ(twice.status(), -SIGINT);
}

TEST(CliServeDevice, ServesUntilItIsStopped) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  const ProgramResult r =
      run_program({"serve", "m.gguf", "--port", "0", "--context", "64"}, dir.path(), "listening on http://127.0.0.1:");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.err, "model m, context 64\nshutting down\n");
}

TEST(CliServeDevice, Errors) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  write_model(dir);
  const ProgramResult open = run({"serve", "m.gguf", "--host", "0.0.0.0"}, dir);
  EXPECT_EQ(open.status, 2);
  EXPECT_HAS(open.err, "give --api-key, or --without-key");
  EXPECT_HAS(run({"serve", "m.gguf", "--host", "somewhere"}, dir).err, "'somewhere' is no IP address");
  EXPECT_HAS(run({"serve", "m.gguf", "--api-key", ""}, dir).err, "the key is empty");
  EXPECT_HAS(run({"serve", "m.gguf", "--api-key", "@no-such-file"}, dir).err, "no-such-file");
  dir.write("key", " \n");
  EXPECT_HAS(run({"serve", "m.gguf", "--api-key", "@key"}, dir).err, "--api-key key: the file is empty");
  EXPECT_EQ(run({"serve", "m.gguf", "--port", "65536"}, dir).status, 2);
  EXPECT_HAS(run({"serve", "m.gguf", "--temperature", "-1"}, dir).err, "the temperature is -1");
}

}  // namespace
}  // namespace aeshna::test
#endif
