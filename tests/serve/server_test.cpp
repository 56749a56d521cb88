// The server over real sockets, with an engine that needs no model.
#include "serve/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "nn/letters.h"
#include "serve/http_client.h"
#include "support/expect_error.h"

#ifndef _WIN32
namespace aeshna::test {
namespace {

using namespace serve;
using namespace std::chrono_literals;
using nlohmann::json;

/// Answers with the alphabet, a letter for each token, each job on a thread of its own. Words in the prompt make it behave otherwise.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(bool chats = true) : model_{.id = "fake", .tokenizer = letters(), .context = 200} {
    if (chats) {
      model_.chat = ChatTemplate::recognise("<|im_start|>");
    } else {
      model_.why_no_chat = "fake has no chat template";
    }
  }
  ~FakeEngine() override {
    stop = true;
    threads.clear();
  }

  const ServedModel& model() const override { return model_; }
  Admission submit(std::span<const std::shared_ptr<Job>> jobs) override {
    const std::lock_guard lock(mutex);
    if (!broken.empty()) return Admission::Failed;
    if (jobs.size() > limit) return Admission::Never;
    if (active + jobs.size() > limit) return Admission::Full;
    for (const auto& job : jobs) {
      ++active;
      seeds.push_back(job->sampling.seed);
      threads.emplace_back([this, job] { work(*job); });
    }
    return Admission::Taken;
  }
  std::string failure() const override {
    const std::lock_guard lock(mutex);
    return broken;
  }

  bool idle_within(std::chrono::milliseconds time) const {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
      if (active == 0) return true;
      std::this_thread::sleep_for(2ms);
    }
    return active == 0;
  }

  std::size_t limit = 64;
  std::atomic<std::size_t> active = 0, cancelled = 0;
  std::vector<std::uint64_t> seeds;
  mutable std::mutex mutex;
  std::string broken;

 private:
  void work(Job& job) {
    const std::string prompt = model_.tokenizer.decode(job.prompt);
    const auto has = [&](const char* word) { return prompt.find(word) != std::string::npos; };
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(job.max_tokens, 26));
    std::size_t made = 0;
    const auto gone = [&] { return job.cancelled() || stop; };
    if (has("hang"))
      while (!gone()) std::this_thread::sleep_for(1ms);
    while (!gone() && (made < count || has("endless") || has("flood"))) {
      if (has("slow") || has("endless") || has("flood")) std::this_thread::sleep_for(2ms);
      job.on_text(has("flood") ? std::string(65536, 'x') : std::string(1, static_cast<char>('a' + made % 26)));
      ++made;
      if (has("break") && made == 3) break;
    }
    const bool broke = has("break");
    const bool unwanted = job.cancelled();
    if (unwanted) ++cancelled;
    --active;
    if (!unwanted) {
      job.on_end({.end = made < 26 ? Generation::End::Length : Generation::End::Token,
                  .tokens = made,
                  .error = broke  ? std::optional(Error(ErrorCode::NonFinite, "the logit of token 7 is not a number"))
                           : stop ? std::optional(Error(ErrorCode::Io, "the server is shutting down"))
                                  : std::nullopt});
    }
  }

  ServedModel model_;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
};

struct ServeHttp : testing::Test {
  FakeEngine engine;
  std::optional<Server> server;
  std::uint16_t start(ServerOptions options = {}) { return server.emplace(engine, std::move(options)).port(); }
};

/// The objects of a stream of events, without the last, [DONE].
std::vector<json> events(const std::string& body, bool done = true) {
  std::vector<json> all;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    EXPECT_EQ(event.substr(0, 6), "data: ");
    if (event == "data: [DONE]") {
      EXPECT_TRUE(done && at == body.size());
      return all;
    }
    all.push_back(json::parse(event.substr(6)));
  }
  EXPECT_FALSE(done);
  return all;
}

const std::string kChat = R"("messages":[{"role":"user","content":"Hi"}])";

TEST_F(ServeHttp, Completion) {
  const auto port = start();
  const HttpResponse r = http(port, "POST", "/v1/completions", R"({"model":"fake","prompt":"Hello","max_tokens":5})");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-type"), "application/json");
  const json answer = json::parse(r.body);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_GT(answer["created"], 1700000000);
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_EQ(answer["choices"], json::parse(R"([{"index":0,"text":"abcde","finish_reason":"length","logprobs":null}])"));
  EXPECT_EQ(answer["usage"], json::parse(R"({"prompt_tokens":5,"completion_tokens":5,"total_tokens":10})"));
  EXPECT_EQ(json::parse(http(port, "POST", "/v1/completions", R"({"prompt":"x"})").body)["usage"]["completion_tokens"],
            16)
      << "as many as OpenAI's";
  EXPECT_EQ(json::parse(http(port, "POST", "/v1/completions", R"({"prompt":[72,105],"echo":true,"max_tokens":2})")
                            .body)["choices"][0]["text"],
            "Hiab");
}

TEST_F(ServeHttp, Chat) {
  const HttpResponse r = http(start(), "POST", "/v1/chat/completions", "{" + kChat + "}");
  const json answer = json::parse(r.body);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(ServeHttp, Streams) {
  const auto port = start();
  const HttpResponse r =
      http(port, "POST", "/v1/chat/completions",
           "{" + kChat + R"(,"stream":true,"max_tokens":4,"n":2,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(r.whole);
  const std::vector<json> all = events(r.body);
  std::string text[2], finish[2], roles[2];
  for (const json& e : all) {
    EXPECT_EQ(e["id"], all[0]["id"]);
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    for (const json& choice : e["choices"]) {
      EXPECT_TRUE(e["usage"].is_null());
      const auto i = choice["index"].get<std::size_t>();
      EXPECT_EQ(finish[i], "") << "nothing comes after the end";
      text[i] += choice["delta"].value("content", "");
      roles[i] += choice["delta"].value("role", "");
      if (!choice["finish_reason"].is_null()) finish[i] = choice["finish_reason"];
    }
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text[i], "abcd");
    EXPECT_EQ(roles[i], "assistant");
    EXPECT_EQ(finish[i], "length");
  }
  EXPECT_TRUE(all.back()["choices"].empty());
  EXPECT_EQ(all.back()["usage"]["completion_tokens"], 8);

  // Without usage, of a completion, by a client of HTTP/1.0.
  HttpClient old(port);
  const std::string body = R"({"prompt":"slow","echo":true,"max_tokens":3,"stream":true})";
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpResponse plain = old.response();
  EXPECT_FALSE(plain.headers.contains("transfer-encoding"));
  std::string whole;
  for (const json& e : events(plain.body)) {
    EXPECT_FALSE(e.contains("usage"));
    whole += e["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(whole, "slowabc");
}

TEST_F(ServeHttp, SeveralPromptsAndAnswers) {
  const json answer = json::parse(
      http(start(), "POST", "/v1/completions", R"({"prompt":["A","B"],"n":2,"echo":true,"max_tokens":1,"seed":5})")
          .body);
  std::vector<std::string> texts;
  for (const json& choice : answer["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    texts.push_back(choice["text"]);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"Aa", "Aa", "Ba", "Ba"}));
  EXPECT_EQ(engine.seeds, (std::vector<std::uint64_t>{5, 6, 7, 8}));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2) << "once for each prompt";
  // Without a seed each request has one of its own.
  for (int i = 0; i < 2; ++i) http(server->port(), "POST", "/v1/completions", R"({"prompt":"x","max_tokens":1})");
  EXPECT_NE(engine.seeds[4], engine.seeds[5]);
}

TEST_F(ServeHttp, ModelsAndHealth) {
  const auto port = start();
  EXPECT_EQ(http(port, "GET", "/health").body, R"({"status":"ok"})");
  const json models = json::parse(http(port, "GET", "/v1/models?x=y").body);
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(json::parse(http(port, "GET", "/v1/models/fake").body)["object"], "model");
  const HttpResponse other = http(port, "GET", "/v1/models/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(json::parse(other.body)["error"]["code"], "model_not_found");
  EXPECT_EQ(http(port, "POST", "/v1/completions", R"({"model":"gpt-4","prompt":"x"})").status, 404);
  EXPECT_EQ(http(port, "GET", "/").status, 404);
  const HttpResponse method = http(port, "GET", "/v1/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
  EXPECT_EQ(http(port, "POST", "/health").status, 405);
}

/// Nothing follows the header, so that the next answer is where it is looked for.
TEST_F(ServeHttp, Head) {
  const auto port = start();
  HttpClient client(port);
  for (const char* path : {"/health", "/nothing", "/v1/completions"}) client.send("HEAD", path);
  client.send("GET", "/health");
  for (const char* status : {"200", "404", "405"}) {
    const std::string head = client.take_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with(std::string("HTTP/1.1 ") + status)) << head;
    EXPECT_HAS(head, "Content-Length: ");
  }
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
}

TEST_F(ServeHttp, SaysThatTheEngineFailed) {
  const auto port = start();
  engine.broken = "the device was lost";
  const HttpResponse health = http(port, "GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_HAS(health.body, "the device was lost");
  EXPECT_EQ(http(port, "POST", "/v1/completions", R"({"prompt":"x"})").status, 503);
}

TEST_F(ServeHttp, Errors) {
  const auto port = start();
  const HttpResponse bad = http(port, "POST", "/v1/completions", R"({"prompt":"x","temperature":9})");
  EXPECT_EQ(bad.status, 400);
  const json error = json::parse(bad.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "temperature");
  EXPECT_EQ(error["code"], "invalid_value");
  EXPECT_EQ(http(port, "POST", "/v1/completions", "{\"prompt\":\"\xff\"}").status, 400);
  EXPECT_EQ(http(port, "POST", "/v1/completions", "{\"\xff\":\"\"}").status, 400);

  const std::string long_text(300, 'x');
  const HttpResponse longer = http(port, "POST", "/v1/completions", json({{"prompt", long_text}}).dump());
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(json::parse(longer.body)["error"]["code"], "context_length_exceeded");
  EXPECT_HAS(longer.body, "300 tokens, which leaves no room for an answer in a context of 200");
  EXPECT_HAS(http(port, "POST", "/v1/completions", json({{"prompt", std::string(500000, 'x')}}).dump()).body,
             "500000 bytes");
  EXPECT_HAS(http(port, "POST", "/v1/completions", R"({"prompt":["a",[1,260]]})").body,
             "'prompt[1][1]' is 260, which is no token of a vocabulary of 260");
  EXPECT_HAS(http(port, "POST", "/v1/completions", R"({"prompt":[[]]})").body, "at least one token");
  EXPECT_HAS(http(port, "POST", "/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"x"},{"role":"system","content":"y"}]})")
                 .body,
             "message 1 is the system's, which comes first");

  const HttpResponse failed = http(port, "POST", "/v1/completions", R"({"prompt":"break"})");
  EXPECT_EQ(failed.status, 500);
  EXPECT_HAS(failed.body, "the logit of token 7 is not a number");
  const HttpResponse stream = http(port, "POST", "/v1/completions", R"({"prompt":"break","stream":true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.whole);
  EXPECT_EQ(events(stream.body, false).back()["error"]["type"], "server_error");

  const HttpResponse many = http(port, "POST", "/v1/completions", R"({"prompt":["a","b"],"n":64})");
  EXPECT_EQ(many.status, 400);
  EXPECT_HAS(many.body, "128 answers in one request");
}

TEST_F(ServeHttp, AModelThatDoesNotChat) {
  FakeEngine mute(false);
  Server other(mute, {});
  const HttpResponse r = http(other.port(), "POST", "/v1/chat/completions", "{" + kChat + "}");
  EXPECT_EQ(r.status, 400);
  EXPECT_HAS(r.body, "fake has no chat template");
}

TEST_F(ServeHttp, TurnsAwayWhatCannotWait) {
  engine.limit = 2;
  const auto port = start();
  HttpClient first(port);
  first.send("POST", "/v1/completions", R"({"prompt":["hang","hang"]})");
  while (engine.active < 2) std::this_thread::sleep_for(1ms);
  const HttpResponse r = http(port, "POST", "/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("retry-after"), "1");
  first.close();
  EXPECT_TRUE(engine.idle_within(5s));
  EXPECT_EQ(http(port, "POST", "/v1/completions", R"({"prompt":"x"})").status, 200);
}

TEST_F(ServeHttp, AsksForTheKey) {
  const auto port = start({.api_key = "secret"});
  const HttpResponse none = http(port, "GET", "/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(json::parse(none.body)["error"]["code"], "invalid_api_key");
  for (const char* wrong : {"Bearer ", "Bearer secre", "Bearer secrets", "Bearer Secret", "Basic secret", "secret"})
    EXPECT_EQ(http(port, "GET", "/v1/models", "", "Authorization: " + std::string(wrong) + "\r\n").status, 401)
        << wrong;
  EXPECT_EQ(http(port, "GET", "/v1/models", "", "Authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(http(port, "GET", "/health").status, 200) << "open to supervisors";
  // Before the body is read.
  HttpClient client(port);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n");
  EXPECT_EQ(client.response().status, 401);
}

TEST_F(ServeHttp, KeepsPagesOut) {
  const auto port = start();
  const auto status = [&](const std::string& header) {
    HttpClient client(port);
    client.send("GET /v1/models HTTP/1.1\r\n" + header + "\r\n");
    return client.response().status;
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "127.9.9.9"})
    EXPECT_EQ(status("Host: " + std::string(host) + "\r\n"), 200) << host;
  for (const char* host : {"example.com", "example.com:8080", "127.0.0.1.example.com", "[::2]", "10.0.0.1", ""})
    EXPECT_EQ(status("Host: " + std::string(host) + "\r\n"), 403) << host;
  EXPECT_EQ(status(""), 400);
  HttpClient form(port);
  form.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(form.response().status, 415);
  EXPECT_EQ(http(port, "OPTIONS", "/v1/completions").status, 405);
  EXPECT_FALSE(http(port, "GET", "/health").headers.contains("access-control-allow-origin"));

  Server open(engine, {.cors = "https://example.com"});
  const HttpResponse before = http(open.port(), "OPTIONS", "/v1/completions");
  EXPECT_EQ(before.status, 204);
  EXPECT_EQ(before.headers.at("access-control-allow-origin"), "https://example.com");
  EXPECT_HAS(before.headers.at("access-control-allow-headers"), "Authorization");
  EXPECT_EQ(http(open.port(), "POST", "/v1/completions", R"({"prompt":"x","stream":true})")
                .headers.at("access-control-allow-origin"),
            "https://example.com");
}

TEST_F(ServeHttp, FreesWhatALeavingClientOccupied) {
  const auto port = start();
  {
    HttpClient client(port);
    client.send("POST", "/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"endless"}],"stream":true,"n":3})");
    client.take_until("\"content\":\"a");
    EXPECT_EQ(engine.active, 3u);
  }
  EXPECT_TRUE(engine.idle_within(5s));
  EXPECT_EQ(engine.cancelled, 3u);
  {
    HttpClient client(port);
    client.send("POST", "/v1/completions", R"({"prompt":"hang"})");
    while (engine.active == 0) std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(engine.idle_within(5s));
  EXPECT_EQ(engine.cancelled, 4u);
  EXPECT_EQ(http(port, "GET", "/health").status, 200);
}

TEST_F(ServeHttp, CutsOffWhoDoesNotRead) {
  const auto port = start({.transfer = 200ms});
  HttpClient client(port);
  client.send("POST", "/v1/completions", R"({"prompt":"flood","stream":true})");
  while (engine.active == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(engine.idle_within(10s));
  EXPECT_EQ(engine.cancelled, 1u);
}

TEST_F(ServeHttp, ManyClientsAtATime) {
  const auto port = start();
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 16; ++i)
      clients.emplace_back([&, i] {
        HttpClient client(port);
        for (int k = 0; k < 4; ++k) {  // on one connection
          const bool stream = (i + k) % 2 == 0;
          client.send("POST", "/v1/completions",
                      json({{"prompt", "slow"}, {"max_tokens", 10}, {"stream", stream}}).dump());
          const HttpResponse r = client.response();
          std::string text;
          if (!stream) text = json::parse(r.body)["choices"][0]["text"];
          if (stream)
            for (const json& e : events(r.body)) text += e["choices"][0]["text"].get<std::string>();
          right += text == "abcdefghij" ? 1 : 0;
        }
      });
  }
  EXPECT_EQ(right, 64);
  EXPECT_EQ(engine.cancelled, 0u);
}

TEST_F(ServeHttp, KeepsQuietStreamsAlive) {
  HttpClient client(start({.keep_alive = 20ms}));
  client.send("POST", "/v1/completions", R"({"prompt":"hang","stream":true})");
  EXPECT_NE(client.take_until(": still at work\n\n"), "");
  EXPECT_NE(client.take_until(": still at work\n\n"), "");
}

TEST_F(ServeHttp, Pipelining) {
  const auto port = start();
  HttpClient client(port);
  const std::string body = R"({"prompt":"slow","max_tokens":3})";
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send(post + get + post + "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" + get);
  for (const char* part : {"abc", "ok", "abc", "there is no /nothing", "ok"}) EXPECT_HAS(client.response().body, part);
  // In pieces, and chunked.
  for (const char c : post) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.response().status, 200);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n9;ext=1\r\nmpt\":\"x\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
  // Asks before it sends the body.
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 100);
  client.send(body);
  EXPECT_EQ(client.response().status, 200);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
  EXPECT_TRUE(client.closed());
}

TEST_F(ServeHttp, TooLarge) {
  const auto port = start({.body_bytes = 1000, .header_bytes = 2000});
  const HttpResponse body = http(port, "POST", "/v1/completions", std::string(1001, ' '));
  EXPECT_EQ(body.status, 413);
  EXPECT_HAS(body.body, "the body is longer than 1000 bytes");
  EXPECT_EQ(body.headers.at("connection"), "close");
  // Much more than is read, so that the answer could be lost.
  EXPECT_EQ(http(port, "POST", "/v1/completions", std::string(3000000, ' ')).status, 413);
  HttpClient chunks(port);
  chunks.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) chunks.send("64\r\n" + std::string(100, ' ') + "\r\n");
  EXPECT_EQ(chunks.response().status, 413);
  EXPECT_EQ(http(port, "GET", "/health", "", "X: " + std::string(3000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(http(port, "GET", "/" + std::string(3000, 'x')).status, 431);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "a:b\r\n";
  EXPECT_EQ(http(port, "GET", "/health", "", many).status, 431);
  EXPECT_EQ(http(port, "GET", "/health").status, 200);
}

TEST_F(ServeHttp, Garbage) {
  const auto port = start();
  for (const std::string& bytes : {
           std::string("garbage\r\n\r\n"),
           std::string("GET\r\n\r\n"),
           std::string("GET /health HTTP/1.1\nHost: localhost\n\n"),
           std::string("GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n"),
           std::string("GET /hea\0lth HTTP/1.1\r\n\r\n", 26),
           std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // somebody speaks TLS
           std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: -1\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: 99999999999999999999\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: gzip\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: gzip, chunked\r\n\r\nc\r\n{\"prompt\":1}\r\n0\r\n\r\n"),
           std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: localhost\r\nA:b\r\n folded\r\nbad\x01name: x\r\n\r\n"),
       }) {
    HttpClient client(port);
    client.send(bytes);
    const HttpResponse r = client.response();
    EXPECT_TRUE((r.status >= 400 && r.status < 500) || r.status == 505) << bytes << "\n" << r.status;
    EXPECT_TRUE(r.status == 404 || client.closed()) << bytes;
  }
  EXPECT_EQ(http(port, "GET", "/health", "", "Host: elsewhere\r\n").status, 400);
  EXPECT_EQ(http(port, "GET", "/health").status, 200);
}

TEST_F(ServeHttp, SlowClients) {
  const auto port = start({.connections = 4, .idle = 150ms, .transfer = 150ms});
  const auto begin = std::chrono::steady_clock::now();
  HttpClient nothing(port), header(port), body(port);
  header.send("GET /health HTTP/1.1\r\nHos");
  body.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n{");
  // A byte from time to time does not help.
  std::jthread drip([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && header.send("t") && body.send(" ")) std::this_thread::sleep_for(20ms);
  });
  EXPECT_TRUE(nothing.closed());
  EXPECT_EQ(header.response().status, 0);
  EXPECT_EQ(body.response().status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  drip.request_stop();
}

TEST_F(ServeHttp, TooManyConnections) {
  const auto port = start({.connections = 2});
  HttpClient a(port), b(port);
  a.send("GET", "/health");
  b.send("GET", "/health");
  EXPECT_EQ(a.response().status, 200);
  EXPECT_EQ(b.response().status, 200);
  HttpClient c(port);
  const HttpResponse r = c.response();
  EXPECT_EQ(r.status, 503);
  EXPECT_HAS(r.body, "too many connections");
  a.close();
  int status = 0;
  for (int i = 0; i < 1000 && status != 200; ++i) {
    std::this_thread::sleep_for(5ms);
    status = http(port, "GET", "/health").status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(ServeHttp, LetsAnswersEndWhenItStops) {
  const auto port = start();
  HttpClient idle(port), busy(port);
  idle.send("GET", "/health");
  EXPECT_EQ(idle.response().status, 200);
  busy.send("POST", "/v1/completions", R"({"prompt":"slow","stream":true,"max_tokens":26})");
  busy.take_until("\"text\":\"a");
  const auto begin = std::chrono::steady_clock::now();
  server->stop(20s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
  EXPECT_TRUE(idle.closed());
  EXPECT_NE(busy.take_until("data: [DONE]"), "");
  EXPECT_TRUE(engine.idle_within(1s));
  EXPECT_EQ(engine.cancelled, 0u);
  server->stop();  // again: nothing to do
}

TEST_F(ServeHttp, CutsAnswersWhenItMustStop) {
  const auto port = start();
  HttpClient stream(port), whole(port), header(port), body(port);
  stream.send("POST", "/v1/completions", R"({"prompt":"endless","stream":true})");
  whole.send("POST", "/v1/completions", R"({"prompt":"hang"})");
  header.send("GET /heal");
  body.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n{");
  stream.take_until("\"text\":\"a");
  while (engine.active < 2) std::this_thread::sleep_for(1ms);
  const auto begin = std::chrono::steady_clock::now();
  server->stop(50ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_TRUE(engine.idle_within(5s));
  EXPECT_EQ(engine.cancelled, 2u);
  EXPECT_EQ(whole.response().status, 0);
}

TEST_F(ServeHttp, Listening) {
  const auto port = start();
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(port));
  EXPECT_ERROR(Server(engine, {.port = port}), ErrorCode::Io, "cannot listen on 127.0.0.1, port");
  EXPECT_ERROR(Server(engine, {.host = "example.com"}), ErrorCode::InvalidArgument, "'example.com' is no IP address");
  EXPECT_TRUE(is_loopback("localhost") && is_loopback("127.0.0.2") && is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("::") || is_loopback("192.168.0.1"));
}

TEST_F(ServeHttp, Logs) {
  std::mutex mutex;
  std::string log;
  const auto port = start({.log = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    log += std::string(line) + '\n';
  }});
  http(port, "POST", "/v1/completions", R"({"prompt":"my words","max_tokens":2})");
  http(port, "GET", "/\x1b[31m");
  server->stop();
  EXPECT_HAS(log, "POST /v1/completions 200");
  EXPECT_HAS(log, "8+2 tokens");
  EXPECT_EQ(log.find("my words"), std::string::npos);
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace aeshna::test
#endif
