// Downloads from a hub: a real client against a server in this process that serves well, badly, and with intent.
#ifndef _WIN32
#include "aeshna/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

#include "base/fail.h"
#include "io/hub/http.h"
#include "io/hub/repository.h"
#include "support/expect_error.h"
#include "support/fake_hub.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string noise(std::size_t bytes, unsigned seed = 1) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    seed = seed * 1664525 + 1013904223;
    text += static_cast<char>(seed >> 24);
  }
  return text;
}

class Hub : public testing::Test {
 protected:
  Hub() {
    unsetenv("HF_TOKEN");
    unsetenv("AESHNA_HUB_URL");
    unsetenv("AESHNA_OFFLINE");
  }
  void SetUp() override { AESHNA_NEED_LIBCURL(); }
  void folder_model() {
    hub_.files = {{"config.json", "{}"},
                  {"tokenizer.json", std::string(300, 't')},
                  {"README.md", "not wanted"},
                  {"model.safetensors", noise(5000)}};
  }
  std::filesystem::path fetch(std::string_view name = "me/tiny") {
    return fetch_model(name, hub_.options(cache_.path()));
  }
  std::string refused(ErrorCode code, std::string_view name = "me/tiny") {
    return message_of(code, [&] { fetch(name); });
  }
  /// Nothing but whole files has a name that a user could meet.
  std::vector<std::string> kept() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache_.path()))
      if (entry.is_regular_file() && entry.path().string().contains(hub_.commit + "/"))
        names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  TempDir cache_;
  FakeHub hub_;
};

TEST_F(Hub, FetchesAFolder) {
  folder_model();
  const std::filesystem::path folder = fetch();
  EXPECT_EQ(kept(), (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
  hub_.files.erase("README.md");
  for (const auto& [name, content] : hub_.files) EXPECT_EQ(read_text(folder / name), content);
  EXPECT_TRUE(folder.string().ends_with("/me/tiny/" + hub_.commit)) << folder;
}

TEST_F(Hub, AsksOnlyForTheCommitWhenAllIsThere) {
  folder_model();
  fetch();
  const std::size_t before = hub_.server.requests().size();
  fetch();
  EXPECT_EQ(hub_.server.requests().size(), before + 1);
  fetch("me/tiny@" + hub_.commit);  // a commit cannot have changed
  EXPECT_EQ(hub_.server.requests().size(), before + 1);
}

TEST_F(Hub, FetchesAGgufFile) {
  hub_.files = {{"sub/a file.gguf", noise(2000)}, {"README.md", "x"}};
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("/sub/a%20file.gguf")) return std::nullopt;
    return FakeHub::serve(request, hub_.files.at("sub/a file.gguf"));
  };
  EXPECT_EQ(read_text(fetch()), hub_.files.at("sub/a file.gguf"));
}

TEST_F(Hub, AsksWhichGgufFile) {
  hub_.files = {{"m-Q4_0.gguf", noise(200)}, {"m-Q8_0.gguf", noise(400, 2)}};
  const std::string said = refused(ErrorCode::NotFound);
  EXPECT_HAS(said, "several GGUF files; name one, as in me/tiny:m-Q4_0.gguf");
  EXPECT_HAS(said, "m-Q8_0.gguf (1 kB)");
  EXPECT_EQ(read_text(fetch("me/tiny:m-Q8_0.gguf")), hub_.files.at("m-Q8_0.gguf"));
  EXPECT_EQ(kept(), (std::vector<std::string>{"m-Q8_0.gguf"}));
  EXPECT_HAS(refused(ErrorCode::NotFound, "me/tiny:m-Q8_1.gguf"), "did you mean 'm-Q8_0.gguf'");
}

TEST_F(Hub, FetchesTheFilesOfAnIndex) {
  folder_model();
  hub_.files.erase("model.safetensors");
  hub_.files["model-1.safetensors"] = noise(700, 1);
  hub_.files["model-2.safetensors"] = noise(800, 2);
  hub_.files["model-3.safetensors"] = noise(900, 3);
  hub_.files["model.safetensors.index.json"] =
      R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-1.safetensors"}})";
  fetch();
  EXPECT_THAT(kept(), testing::IsSupersetOf({"model-1.safetensors", "model-2.safetensors"}));
  EXPECT_THAT(kept(), Not(testing::Contains("model-3.safetensors")));
  hub_.commit.back() = '2';
  hub_.files["model.safetensors.index.json"] = R"({"weight_map":{"a":"../../../escaped"}})";
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "'../../../escaped', no file of the folder");
  hub_.commit.back() = '3';
  hub_.files["model.safetensors.index.json"] = R"({"weight_map":{"a":"absent.safetensors"}})";
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "'a' is in the file 'absent.safetensors', which the repository does not");
}

TEST_F(Hub, RefusesARepositoryOfOtherThings) {
  hub_.files = {{"config.json", "{}"}, {"pytorch_model.bin", noise(300)}};
  EXPECT_HAS(refused(ErrorCode::Unsupported),
             "neither config.json with model.safetensors nor a GGUF file; it has\n  config.json");
}

TEST_F(Hub, FollowsPagesOfTheList) {
  folder_model();
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.contains("/tree/")) return std::nullopt;
    if (request.path.contains("cursor=2"))
      return HttpTestReply{.body = "[" + hub_.entry("model.safetensors", hub_.files.at("model.safetensors")) + "]"};
    return HttpTestReply{.headers = {formatted("Link: <{}{}&cursor=2>; rel=\"next\"", hub_.server.url(), request.path)},
                         .body = "[" + hub_.entry("config.json", "{}") + "]"};
  };
  fetch();
  EXPECT_EQ(kept(), (std::vector<std::string>{"config.json", "model.safetensors"}));
  hub_.commit.back() = '3';
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.contains("/tree/")) return std::nullopt;
    return HttpTestReply{.headers = {"Link: <https://elsewhere.example/x>; rel=\"next\""}, .body = "[]"};
  };
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "is said to be elsewhere");
}

// ---- what goes wrong on the way

TEST_F(Hub, GoesOnAfterACutAtAnyByte) {
  folder_model();
  const std::string content = noise(257);
  hub_.files["model.safetensors"] = content;
  std::atomic<std::int64_t> cut = 0, whole = 0;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("model.safetensors")) return std::nullopt;
    HttpTestReply reply = FakeHub::serve(request, content, "\"one\"");
    if (!request.has("range") && whole++ == 0) reply.send = cut;
    return reply;
  };
  for (cut = 0; cut < 257; cut += 16, whole = 0) {
    const TempDir cache;
    EXPECT_EQ(read_text(fetch_model("me/tiny", hub_.options(cache.path())) / "model.safetensors"), content) << cut;
  }
  const HttpTestRequest last = hub_.server.requests().back();
  EXPECT_EQ(last.headers.at("range"), "bytes=256-");
  EXPECT_EQ(last.headers.at("if-range"), "\"one\"");
}

TEST_F(Hub, ByteByByteIsProgress) {
  folder_model();
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("config.json")) return std::nullopt;
    HttpTestReply reply = FakeHub::serve(request, hub_.files.at("config.json"));
    reply.send = 1;
    return reply;
  };
  hub_.files["config.json"] = "{         }";  // more cuts than attempts
  fetch();
}

TEST_F(Hub, AnotherRunGoesOn) {
  folder_model();
  const std::string content = hub_.files.at("model.safetensors");
  std::atomic<bool> broken = true;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("model.safetensors")) return std::nullopt;
    HttpTestReply reply = FakeHub::serve(request, content);
    if (broken) reply.send = request.has("range") ? 0 : 3000;
    return reply;
  };
  EXPECT_HAS(refused(ErrorCode::Io), "model.safetensors was cut after 3000 of 5000 bytes");
  EXPECT_THAT(kept(), Not(testing::Contains("model.safetensors")));
  broken = false;
  EXPECT_EQ(read_text(fetch() / "model.safetensors"), content);
  EXPECT_EQ(hub_.server.requests().back().headers.at("range"), "bytes=3000-");
}

TEST_F(Hub, DamagedPartIsFetchedAgain) {
  folder_model();
  const std::string content = hub_.files.at("model.safetensors");
  const auto partial =
      cache_.path() / std::filesystem::path(fetch()).parent_path() / "partial" / hash_of<Sha256>(content);
  std::filesystem::remove(fetch() / "model.safetensors");
  for (const std::string& there : {std::string(3000, 'x'), std::string(6000, 'x'), std::string(5000, 'x')}) {
    std::ofstream(partial, std::ios::binary) << there;
    const std::filesystem::path file = fetch() / "model.safetensors";
    EXPECT_EQ(read_text(file), content);
    std::filesystem::remove(file);
  }
}

TEST_F(Hub, ServerWithoutRanges) {
  folder_model();
  const std::string content = hub_.files.at("model.safetensors");
  std::atomic<int> times = 0;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("model.safetensors")) return std::nullopt;
    return HttpTestReply{.body = content, .send = ++times < 3 ? 1000 * times : -1};
  };
  EXPECT_EQ(read_text(fetch() / "model.safetensors"), content);
  EXPECT_EQ(times, 3);
}

TEST_F(Hub, WrongRangeStartsAnew) {
  folder_model();
  const std::string content = hub_.files.at("model.safetensors");
  for (const char* range : {"bytes 0-4999/5000", "bytes 1000-4999/6000", "nonsense"}) {
    const TempDir cache;
    std::atomic<int> times = 0;
    hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
      if (!request.path.ends_with("model.safetensors")) return std::nullopt;
      if (++times == 1) return HttpTestReply{.body = content, .send = 1000};
      if (!request.has("range")) return HttpTestReply{.body = content};
      return HttpTestReply{.status = 206, .headers = {formatted("Content-Range: {}", range)}, .body = content};
    };
    EXPECT_EQ(read_text(fetch_model("me/tiny", hub_.options(cache.path())) / "model.safetensors"), content) << range;
    EXPECT_EQ(times, 3);
  }
}

TEST_F(Hub, EtagChangesBetweenParts) {
  folder_model();
  const std::string content = hub_.files.at("model.safetensors");
  for (const bool honest : {true, false}) {  // whether the server looks at If-Range
    const TempDir cache;
    std::atomic<int> times = 0;
    hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
      if (!request.path.ends_with("model.safetensors")) return std::nullopt;
      HttpTestRequest seen = request;
      if (!honest) seen.headers.erase("if-range");
      HttpTestReply reply =
          FakeHub::serve(seen, ++times == 1 ? std::string(5000, 'o') : content, times == 1 ? "\"old\"" : "\"new\"");
      if (times == 1) reply.send = 2000;
      return reply;
    };
    EXPECT_EQ(read_text(fetch_model("me/tiny", hub_.options(cache.path())) / "model.safetensors"), content) << honest;
  }
}

TEST_F(Hub, WrongHash) {
  folder_model();
  for (const std::string& path : std::vector<std::string>{"config.json", "model.safetensors"}) {
    hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
      if (!request.path.ends_with(path)) return std::nullopt;
      std::string content = hub_.files.at(path);
      content[1] = static_cast<char>(content[1] ^ 1);
      return HttpTestReply{.body = content};
    };
    hub_.commit.back() = path == "config.json" ? 'b' : 'c';
    const std::string said = refused(ErrorCode::CorruptFile);
    EXPECT_HAS(said, "me/tiny: " + path + " has the SHA-");
    EXPECT_HAS(said, "where the hub lists");
    EXPECT_THAT(kept(), Not(testing::Contains(path)));
  }
}

TEST_F(Hub, WrongSize) {
  folder_model();
  std::int64_t bytes = 0;
  bool length = true, endless = false;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.ends_with("model.safetensors")) return std::nullopt;
    return HttpTestReply{.body = noise(static_cast<std::size_t>(bytes)), .length = length, .endless = endless};
  };
  bytes = 4999;
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "has 4999 bytes, where the hub lists 5000");
  length = false;
  bytes = 6000;
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "has more than the 5000 bytes");
  endless = true;
  EXPECT_HAS(refused(ErrorCode::CorruptFile), "has more than the 5000 bytes");
  endless = false;
  bytes = 100;
  EXPECT_HAS(refused(ErrorCode::Io), "was cut after 100 of 5000 bytes");
}

TEST_F(Hub, BusyServersAreAskedAgain) {
  folder_model();
  std::atomic<int> times = 0;
  hub_.before = [&](const HttpTestRequest&) -> std::optional<HttpTestReply> {
    ++times;
    if (times % 3 == 1) return HttpTestReply{.status = 503, .headers = {"Retry-After: 0"}};
    if (times % 3 == 2) return HttpTestReply{.status = 429};
    return std::nullopt;
  };
  fetch();
  hub_.commit.back() = '2';
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    return request.path.contains("/tree/")
               ? std::optional(HttpTestReply{.status = 500, .headers = {"X-Error-Message: on \x1b fire"}})
               : std::nullopt;
  };
  EXPECT_HAS(refused(ErrorCode::Io), "status 500: on ? fire");
}

TEST_F(Hub, StalledServer) {
  folder_model();
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    return request.path.ends_with("config.json") ? std::optional(HttpTestReply{.body = "{}", .stall_seconds = 60})
                                                 : std::nullopt;
  };
  HubOptions options = hub_.options(cache_.path());
  options.stall_seconds = 1;
  options.attempts = 1;
  EXPECT_HAS(message_of(ErrorCode::Io, [&] { fetch_model("me/tiny", options); }),
             "config.json was cut after 0 of 2 bytes");
}

TEST_F(Hub, RefusalsSayWhatToDo) {
  folder_model();
  HttpTestReply reply;
  hub_.before = [&](const HttpTestRequest&) -> std::optional<HttpTestReply> { return reply; };
  reply = {.status = 404, .headers = {"X-Error-Code: RevisionNotFound", "X-Error-Message: Invalid rev id: main"}};
  EXPECT_HAS(refused(ErrorCode::NotFound), "there is no such revision (status 404: Invalid rev id: main)");
  reply = {.status = 404};
  EXPECT_HAS(refused(ErrorCode::NotFound), "me/tiny: not found");
  reply = {.status = 401, .headers = {"X-Error-Code: RepoNotFound"}};
  EXPECT_HAS(refused(ErrorCode::Io), "private or gated and needs a token (HF_TOKEN, or --token-file)");
  reply = {.status = 403, .headers = {"X-Error-Code: GatedRepo"}};
  EXPECT_HAS(refused(ErrorCode::Io), "accept its terms at " + hub_.server.url() + "/me/tiny");
  reply = {.status = 401, .headers = {"X-Error-Code: GatedRepo"}};
  EXPECT_HAS(refused(ErrorCode::Io), "gated");
}

TEST_F(Hub, AnswersThatAreNoAnswers) {
  folder_model();
  std::string body;
  bool tree = false, endless = false;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (request.path.contains("/tree/") != tree) return std::nullopt;
    return HttpTestReply{.body = body, .endless = endless};
  };
  for (const char* text : {"", "<html>", "[1]", "{}", "{\"sha\":1}", "{\"sha\":\"../../x\"}", "{\"sha\":\"ABC\"}"}) {
    body = text;
    refused(ErrorCode::CorruptFile);
  }
  tree = true;
  const std::string hash(40, 'a');
  for (const std::string& text : std::vector<std::string>{
           std::string("{}"), std::string("[1]"), std::string(R"([{"type":"file"}])"),
           std::string(R"([{"type":"file","path":"a","size":-1,"oid":")") + hash + "\"}]",
           std::string(R"([{"type":"file","path":"a","size":1e99,"oid":")") + hash + "\"}]",
           std::string(R"([{"type":"file","path":"a","size":1,"oid":"../x"}])"),
           std::string(R"([{"type":"file","path":7,"size":1,"oid":")") + hash + "\"}]",
           std::string(R"([{"type":"file","path":"a","size":1,"lfs":{"size":1,"oid":")") + hash + "\"}}]",
           std::string(100'000, '[')}) {
    body = text;
    refused(ErrorCode::CorruptFile);
  }
  endless = true;
  body = std::string(1 << 20, ' ');
  EXPECT_HAS(refused(ErrorCode::LimitExceeded), "more than 32 MiB");
}

TEST_F(Hub, HostileNamesAreRefused) {
  folder_model();
  for (const std::string& name :
       std::vector<std::string>{"../a.gguf", "/etc/a.gguf", "a/../../b.gguf", "c:a.gguf", "a\\\\b.gguf", "con.gguf",
                                "a/NUL.b.gguf", "x/.gguf/./a.gguf", "lpt1.gguf", "a //b.gguf", "\\u0007.gguf"}) {
    hub_.files.clear();
    hub_.commit.back() = hub_.commit.back() == '9' ? '1' : static_cast<char>(hub_.commit.back() + 1);
    hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
      if (!request.path.contains("/tree/")) return std::nullopt;
      return HttpTestReply{.body = "[" + hub_.entry(name, noise(200)) + "]"};
    };
    const TempDir cache;
    const std::string said =
        message_of(ErrorCode::CorruptFile, [&] { fetch_model("me/tiny", hub_.options(cache.path())); });
    EXPECT_HAS(said, "which is refused");
  }
}

// ---- who sees the token

TEST_F(Hub, TheTokenStaysWithTheHub) {
  folder_model();
  HttpTestServer elsewhere(
      [&](const HttpTestRequest& request) { return FakeHub::serve(request, hub_.files.at("model.safetensors")); });
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.has("authorization") || request.headers.at("authorization") != "Bearer hf_secret")
      return HttpTestReply{.status = 401};
    if (request.path.ends_with("/moved"))
      return HttpTestReply{.status = 307, .headers = {"Location: " + elsewhere.url() + "/x"}, .body = "moved"};
    if (request.path.ends_with("model.safetensors"))
      return HttpTestReply{.status = 302, .headers = {"Location: /moved"}, .body = "moved"};
    return std::nullopt;
  };
  HubOptions options = hub_.options(cache_.path());
  EXPECT_HAS(refused(ErrorCode::Io), "needs a token");
  options.token = "hf_secret";
  EXPECT_EQ(read_text(fetch_model("me/tiny", options) / "model.safetensors"), hub_.files.at("model.safetensors"));
  ASSERT_EQ(elsewhere.requests().size(), 1u);
  EXPECT_FALSE(elsewhere.requests()[0].has("authorization"));
  EXPECT_FALSE(elsewhere.requests()[0].has("cookie"));

  options.token = "hf_wrong";
  const TempDir other;
  options.cache = other.path();
  const std::string said = message_of(ErrorCode::Io, [&] { fetch_model("me/tiny", options); });
  EXPECT_HAS(said, "the token is not one that may read it");
  EXPECT_THAT(said, Not(HasSubstr("hf_")));
  options.token = "hf_a\r\nX: y";
  EXPECT_THAT(message_of(ErrorCode::InvalidArgument, [&] { fetch_model("me/tiny", options); }), Not(HasSubstr("hf_")));
  options.token = "hf_a";
  options.url = "http://hub.example";
  EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { fetch_model("me/tiny", options); }), "without encryption");
  setenv("HF_TOKEN", "hf_secret", 1);
  options = hub_.options(other.path());
  fetch_model("me/tiny", options);
  unsetenv("HF_TOKEN");
}

TEST_F(Hub, RedirectsAreBounded) {
  folder_model();
  std::string location;
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    return request.path.starts_with("/api")
               ? std::optional(HttpTestReply{
                     .status = 302,
                     .headers = location.empty() ? std::vector<std::string>() : std::vector{"Location: " + location}})
               : std::nullopt;
  };
  location = "/api/again";
  EXPECT_HAS(refused(ErrorCode::Io), "more than 5 redirects");
  location = "file:///etc/passwd";
  EXPECT_HAS(refused(ErrorCode::Io), "which is no URL");
  location = "";
  EXPECT_HAS(refused(ErrorCode::Io), "without a place to go to");
}

// ---- without a connection

TEST_F(Hub, Offline) {
  folder_model();
  HubOptions options = hub_.options(cache_.path());
  options.offline = true;
  std::string notes;
  options.on_note = [&](std::string_view text) { notes += text; };
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { fetch_model("me/tiny", options); }), "is not in the cache");
  EXPECT_EQ(hub_.server.requests().size(), 0u);
  const std::filesystem::path folder = fetch();
  const std::size_t asked = hub_.server.requests().size();
  EXPECT_EQ(fetch_model("me/tiny", options), folder);
  EXPECT_HAS(notes, "me/tiny: offline, using commit aaaaaaaaaaaa in the cache");
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { fetch_model("me/tiny@other", options); }),
             "revision 'other' is not in the cache");
  std::filesystem::remove(folder / "config.json");
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { fetch_model("me/tiny", options); }),
             "'config.json' is not in the cache");
  setenv("AESHNA_OFFLINE", "1", 1);
  options.offline = false;
  EXPECT_ERROR(fetch_model("me/tiny", options), ErrorCode::NotFound, "this is offline");
  unsetenv("AESHNA_OFFLINE");
  EXPECT_EQ(hub_.server.requests().size(), asked);
}

TEST_F(Hub, UnreachableHubAndACopyInTheCache) {
  folder_model();
  std::string url;
  {
    const HttpTestServer gone([](const HttpTestRequest&) { return HttpTestReply{}; });
    url = gone.url();
  }
  HubOptions options = hub_.options(cache_.path());
  options.url = url;
  options.attempts = 2;
  EXPECT_HAS(message_of(ErrorCode::Io, [&] { fetch_model("me/tiny", options); }), "cannot be reached");
  const std::filesystem::path folder = fetch();
  std::string notes;
  options = hub_.options(cache_.path());
  options.on_note = [&](std::string_view text) { notes += text; };
  hub_.before = [](const HttpTestRequest&) -> std::optional<HttpTestReply> { return HttpTestReply{.status = 503}; };
  EXPECT_EQ(fetch_model("me/tiny", options), folder);
  EXPECT_HAS(notes, "cannot be reached (status 503), using commit");
}

TEST_F(Hub, ANewCommitFetchesWhatChanged) {
  folder_model();
  fetch();
  hub_.commit.back() = '7';
  hub_.files["config.json"] = "{ }";
  const std::size_t before = hub_.count("/resolve/");
  const std::filesystem::path folder = fetch();
  EXPECT_EQ(hub_.count("/resolve/"), before + 1);
  EXPECT_EQ(read_text(folder / "config.json"), "{ }");
  EXPECT_EQ(read_text(folder / "model.safetensors"), hub_.files.at("model.safetensors"));
}

TEST_F(Hub, TwoAtOnceFetchOnce) {
  folder_model();
  hub_.before = [](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (request.path.contains("/resolve/")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return std::nullopt;
  };
  std::atomic<int> waited = 0;
  const auto one = [&] {
    HubOptions options = hub_.options(cache_.path());
    options.on_note = [&](std::string_view text) { waited += text.contains("waiting for another process"); };
    EXPECT_EQ(read_text(fetch_model("me/tiny", options) / "model.safetensors"), hub_.files.at("model.safetensors"));
  };
  { const std::jthread a(one), b(one), c(one); }
  EXPECT_EQ(hub_.count("/resolve/"), 3u);
  EXPECT_GE(waited, 1);
}

TEST_F(Hub, ProgressAndInterruption) {
  folder_model();
  HubOptions options = hub_.options(cache_.path());
  std::uint64_t last = 0, total = 0;
  options.on_progress = [&](const HubProgress& p) {
    EXPECT_GE(p.done, last);
    last = p.done, total = p.total;
    if (p.done > 3000) fail(ErrorCode::Io, "enough");
  };
  EXPECT_ERROR(fetch_model("me/tiny", options), ErrorCode::Io, "enough");
  EXPECT_EQ(total, 5302u);
  options.on_progress = [&](const HubProgress& p) { last = p.done; };
  fetch_model("me/tiny", options);
  EXPECT_EQ(last, 5302u - 302u);  // of what was still missing
}

TEST_F(Hub, DisksThatDoNotTakeIt) {
  folder_model();
  TempDir folder;
  HubOptions options = hub_.options(folder.write("file", "x") / "cache");
  EXPECT_ERROR(fetch_model("me/tiny", options), ErrorCode::Io, "the folder cannot be made");
  hub_.before = [&](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (!request.path.contains("/tree/")) return std::nullopt;
    return HttpTestReply{
        .body = formatted(
            R"([{{"type":"file","oid":"{0}","size":1,"path":"a.gguf","lfs":{{"oid":"{1}","size":1125899906842624}}}}])",
            std::string(40, '0'), std::string(64, '0'))};
  };
  EXPECT_HAS(refused(ErrorCode::Io), "1125899906842624 bytes are to be downloaded, and");
}

TEST_F(Hub, AFullDiskAndLaterRoom) {
  folder_model();
  const std::string content = noise(3 << 20);
  hub_.files["model.safetensors"] = content;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // an error of the write instead
  const rlimit small{.rlim_cur = 2 << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = message([&] { fetch(); });
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_HAS(said, "cannot write");
  EXPECT_HAS(said, "of 3145728 bytes): File too large");
  EXPECT_EQ(read_text(fetch() / "model.safetensors"), content);
  EXPECT_TRUE(hub_.server.requests().back().has("range"));
}

// ---- without a server

TEST(HubNames, Parse) {
  const hub::ModelName plain = hub::parse_model_name("HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(plain.model, "HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(plain.revision, "main");
  EXPECT_EQ(plain.file, "");
  const hub::ModelName full = hub::parse_model_name("a/b@refs/pr/1:sub/x y.gguf");
  EXPECT_EQ(full.revision, "refs/pr/1");
  EXPECT_EQ(full.file, "sub/x y.gguf");
  for (const std::string& bad : std::vector<std::string>{
           "", "model", "a/b/c", "/b", "a/", "../b", "a/..", "a/b@", "a/b@../x", "a/b:", "a/b:../x", "a b/c", "a/b\n",
           "-a/b", ".a/b", "a/b?x", "a/b#", "https://huggingface.co/a/b", "nul/b"}) {
    EXPECT_ERROR(hub::parse_model_name(bad), ErrorCode::InvalidArgument, "is no model of the hub");
  }
}

TEST(HubNames, SafePaths) {
  for (const char* good :
       {"a", "a/b.c", "model-00001-of-00002.safetensors", ".gitattributes", "ünïcode", "a b", "common", "com10"})
    EXPECT_EQ(hub::unsafe_path(good), "") << good;
  for (const std::string& bad : std::vector<std::string>{
           std::string(""), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
           std::string("a/.."), std::string("a\\b"), std::string("a:b"), std::string("a\0b", 3), std::string("a\x7f"),
           std::string("\xff"), std::string("a."), std::string("a "), std::string(" a"), std::string("aux"),
           std::string("Com1.txt"), std::string(201, 'a'), std::string("a*")}) {
    EXPECT_NE(hub::unsafe_path(bad), "") << bad;
  }
}

TEST(HubNames, Origins) {
  EXPECT_EQ(origin_of("https://Hub.example/a/b"), (Origin{"https", "hub.example", "443"}));
  EXPECT_EQ(origin_of("HTTPS://hub.example:443"), origin_of("https://HUB.example?x"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("http://hub.example"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("https://hub.example:8443"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("https://hub.example.evil"));
  EXPECT_EQ(origin_of("http://[::1]:80/x"), (Origin{"http", "[::1]", "80"}));
  for (const char* bad : {"", "hub.example", "ftp://hub.example", "https://", "https://u@hub.example",
                          "https://hub.example@evil", "https://hub.example:x", "https://a\\b", "https://a b"})
    EXPECT_FALSE(origin_of(bad)) << bad;
  EXPECT_EQ(url_escaped("a/b c%\xc3\xa9", true), "a/b%20c%25%C3%A9");
  EXPECT_EQ(url_escaped("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(HubNames, ListingsOfTheCache) {
  const std::vector<hub::RemoteFile> files = {{"a\"b", 3, std::string(40, 'a'), false},
                                              {"c", 1ull << 40, std::string(64, 'b'), true}};
  const std::vector<hub::RemoteFile> read = hub::parse_listing(hub::print_listing(files), "x");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].path, "a\"b");
  EXPECT_EQ(read[1].size, 1ull << 40);
  EXPECT_TRUE(read[1].lfs);
  for (const char* bad : {"", "[]", "{}", R"({"aeshna_hub_listing":2,"files":[]})",
                          R"({"aeshna_hub_listing":1,"files":[{"path":"a","size":1,"sha256":"x"}]})"})
    EXPECT_ERROR(hub::parse_listing(bad, "the list"), ErrorCode::CorruptFile, "the list");
}

}  // namespace
}  // namespace aeshna::test
#endif
