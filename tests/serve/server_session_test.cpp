// The engine with a model on a device, and the server on top of it.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/unicode.h"
#include "nn/tiny_language_model.h"
#include "serve/http_client.h"
#include "serve/server.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

#ifndef _WIN32
namespace aeshna::test {
namespace {

using namespace serve;
using nlohmann::json;

/// One model for all tests of the suite.
struct ServeSession : testing::Test {
  static LanguageModel model() {
    static const TempDir dir;
    static const LanguageModel loaded = [] {
      TinyModel small = tiny_model("llama");
      small.all_f32 = true;
      small.hidden = 64, small.ffn = 96, small.head_dim = 16;
      write_tiny_gguf(dir / "m.gguf", small);
      return LanguageModel::load_gguf(dir / "m.gguf");
    }();
    return loaded;
  }
  static GeneratorOptions generator() { return {.context = 600, .chunk = 8, .device = *test_device().device}; }
  static std::unique_ptr<Engine> engine(std::size_t waiting = 64, std::int64_t sequences = 1) {
    GeneratorOptions options = generator();
    options.sequences = sequences;
    return model_engine(model(), {.id = "tiny", .waiting = waiting, .generator = options});
  }
};

/// A job that keeps what it gets.
struct Kept {
  std::shared_ptr<Job> job = std::make_shared<Job>();
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  std::size_t pieces = 0;
  std::optional<JobEnd> end;

  explicit Kept(std::int64_t max_tokens) {
    job->prompt = ServeSession::model().tokenizer().encode("Hello, world!");
    job->max_tokens = max_tokens;
    job->on_text = [this](std::string_view more) {
      const std::lock_guard lock(mutex);
      text += more;
      ++pieces;
      changed.notify_all();
    };
    job->on_end = [this](const JobEnd& e) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(end) << "twice";
      end = e;
      changed.notify_all();
    };
  }
  void wait_for_end() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return end.has_value(); }));
  }
  void wait_for_text() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return pieces > 1; }));
  }
};

TEST_F(ServeSession, Engine) {
  AESHNA_NEED_DEVICE();
  const auto e = engine(2);
  EXPECT_EQ(e->model().id, "tiny");
  EXPECT_TRUE(e->model().chat);
  Kept a(20), b(20), c(20);
  EXPECT_EQ(e->submit(std::vector{a.job, b.job, c.job}), Engine::Admission::Never);
  EXPECT_EQ(e->submit(std::vector{a.job, b.job}), Engine::Admission::Taken);
  a.wait_for_end(), b.wait_for_end();
  const auto greedy = host_sampler({});
  const Generation want = Generator(model(), generator()).generate(a.job->prompt, *greedy, {.max_tokens = 20});
  for (const Kept* k : {&a, &b}) {
    EXPECT_EQ(k->text, want.text);
    EXPECT_EQ(k->end->end, Generation::End::Length);
    EXPECT_EQ(k->end->tokens, 20u);
    EXPECT_FALSE(k->end->error);
  }

  // One at work, two waiting: no more. A waiting one that is cancelled makes room.
  Kept busy(500), first(5), second(5), late(5);
  e->submit(std::vector{busy.job});
  busy.wait_for_text();
  EXPECT_EQ(e->submit(std::vector{first.job, second.job}), Engine::Admission::Taken);
  EXPECT_EQ(e->submit(std::vector{late.job}), Engine::Admission::Full);
  first.job->cancel();
  EXPECT_EQ(e->submit(std::vector{late.job}), Engine::Admission::Taken);
  busy.job->cancel();
  late.wait_for_end();
  EXPECT_TRUE(second.end);
  EXPECT_FALSE(first.end || busy.end) << "cancelled";
  EXPECT_EQ(first.pieces, 0u);
  EXPECT_LT(busy.pieces, 400u) << "it was cut off";

  // An error of one is not the others'.
  Kept bad(5), good(5);
  bad.job->prompt = {-1};
  e->submit(std::vector{bad.job, good.job});
  good.wait_for_end();
  ASSERT_TRUE(bad.end && bad.end->error);
  EXPECT_EQ(bad.end->error->code(), ErrorCode::OutOfRange);
  EXPECT_FALSE(good.end->error);
  EXPECT_EQ(e->failure(), "");
}

TEST_F(ServeSession, SeveralSequences) {
  AESHNA_NEED_DEVICE();
  const auto e = engine(8, 3);
  Kept lasting(500), first(20), second(20), third(20);
  e->submit(std::vector{lasting.job});
  lasting.wait_for_text();
  e->submit(std::vector{first.job, second.job, third.job});
  for (Kept* k : {&first, &second, &third}) k->wait_for_end();
  EXPECT_FALSE(lasting.end) << "they were generated beside it";
  lasting.job->cancel();
  const auto greedy = host_sampler({});
  const Generation want = Generator(model(), generator()).generate(first.job->prompt, *greedy, {.max_tokens = 20});
  for (const Kept* k : {&first, &second, &third}) EXPECT_EQ(k->text, want.text);
}

TEST_F(ServeSession, EngineEndsWhatItHasWhenItEnds) {
  AESHNA_NEED_DEVICE();
  auto e = engine();
  Kept busy(500), waiting(5);
  e->submit(std::vector{busy.job, waiting.job});
  busy.wait_for_text();
  e.reset();
  for (const Kept* k : {&busy, &waiting}) {
    ASSERT_TRUE(k->end && k->end->error);
    EXPECT_HAS(k->end->error->message(), "shutting down");
  }
}

TEST_F(ServeSession, Server) {
  AESHNA_NEED_DEVICE();
  const auto e = engine(64, 2);
  Server server(*e, {.sampling = {}});
  const auto port = server.port();
  const Tokenizer& tokenizer = e->model().tokenizer;
  Generator alone(model(), generator());
  const auto greedy = host_sampler({});
  const Generation want = alone.generate(tokenizer.encode("Hello, world!"), *greedy, {.max_tokens = 12});
  ASSERT_GT(want.text.size(), 4u);

  // Several clients, whole and streamed.
  std::vector<std::string> texts(6);
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < texts.size(); ++i)
      clients.emplace_back([&, i] {
        const bool stream = i % 2 == 0;
        const HttpResponse r = http(port, "POST", "/v1/completions",
                                    json({{"prompt", "Hello, world!"}, {"max_tokens", 12}, {"stream", stream}}).dump());
        if (!stream) texts[i] = json::parse(r.body)["choices"][0]["text"];
        for (std::size_t at = 0; stream && (at = r.body.find("data: {", at)) != std::string::npos; ++at)
          texts[i] += json::parse(r.body.substr(at + 6, r.body.find('\n', at) - at - 6))["choices"][0]["text"];
      });
  }
  for (const std::string& text : texts) EXPECT_EQ(text, want.text);

  // The second character, which begins and ends where UTF-8 lets it.
  const std::size_t second = utf8_at(want.text, 0).bytes;
  const std::string stop = want.text.substr(second, utf8_at(want.text, second).bytes);
  const json stopped = json::parse(http(port, "POST", "/v1/completions",
                                        json({{"prompt", "Hello, world!"}, {"max_tokens", 12}, {"stop", stop}}).dump())
                                       .body);
  EXPECT_EQ(stopped["choices"][0]["text"], want.text.substr(0, want.text.find(stop)));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");

  // A chat, to the end of the context.
  const json chat = json::parse(http(port, "POST", "/v1/chat/completions",
                                     R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}]})")
                                    .body);
  const std::vector<ChatMessage> messages = {{"system", "S"}, {"user", "U"}};
  const auto prompt = tokenizer.encode(e->model().chat->render(messages, tokenizer), false);
  const Generation answer = alone.generate(prompt, *greedy, {.max_tokens = 10000});
  EXPECT_EQ(chat["choices"][0]["message"]["content"], answer.text);
  EXPECT_EQ(chat["usage"]["prompt_tokens"], prompt.size());
  EXPECT_EQ(chat["usage"]["completion_tokens"], answer.ids.size());

  // The same seed, the same text; n answers differ.
  const std::string hot = R"({"prompt":"Hello","temperature":1.5,"seed":7,"n":2,"max_tokens":12})";
  const json a = json::parse(http(port, "POST", "/v1/completions", hot).body);
  const json b = json::parse(http(port, "POST", "/v1/completions", hot).body);
  EXPECT_EQ(a["choices"], b["choices"]);
  EXPECT_NE(a["choices"][0]["text"], a["choices"][1]["text"]);

  // A client that leaves in the middle.
  {
    HttpClient client(port);
    client.send("POST", "/v1/completions", R"({"prompt":"Hello","max_tokens":550,"stream":true})");
    EXPECT_NE(client.take_until("data: {"), "");
  }
  EXPECT_EQ(http(port, "POST", "/v1/completions", hot).status, 200);
}

}  // namespace
}  // namespace aeshna::test
#endif
