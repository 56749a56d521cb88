// What clients may ask for, and how what they may not is refused.
#include "serve/request.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

using namespace serve;

ApiRequest completion(std::string_view body) { return parse_request(Endpoint::Completions, body, {.temperature = 1}); }
ApiRequest chat(std::string_view body) { return parse_request(Endpoint::Chat, body, {.temperature = 1}); }

/// What is said about a chat with these further members.
ApiError chat_error(const std::string& members, Endpoint endpoint = Endpoint::Chat) {
  const std::string needed =
      endpoint == Endpoint::Chat ? R"("messages":[{"role":"user","content":"x"}])" : R"("prompt":"x")";
  try {
    parse_request(endpoint, "{" + needed + "," + members + "}", {});
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << members << " was taken";
  return ApiError(0, "");
}

ApiError body_error(std::string_view body, Endpoint endpoint = Endpoint::Chat) {
  try {
    parse_request(endpoint, body, {});
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << body << " was taken";
  return ApiError(0, "");
}

TEST(ServeRequest, Completions) {
  const ApiRequest plain = completion(R"({"prompt": "Once"})");
  ASSERT_EQ(plain.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(plain.prompts[0]), "Once");
  EXPECT_EQ(plain.sampling.temperature, 1) << "the default";
  EXPECT_FALSE(plain.max_tokens);
  EXPECT_FALSE(plain.seeded);
  EXPECT_EQ(plain.n, 1);

  const ApiRequest full = completion(
      R"({"model":"m","prompt":["a","b"],"max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
          "repetition_penalty":1.1,"seed":18446744073709551615,"stop":["x","yz"],"n":2,"stream":true,"echo":true,
          "stream_options":{"include_usage":true,"include_obfuscation":false},"user":"u","best_of":null,"logprobs":null})");
  EXPECT_EQ(full.model, "m");
  ASSERT_EQ(full.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(full.prompts[1]), "b");
  EXPECT_EQ(full.max_tokens, 7);
  EXPECT_EQ(full.sampling.temperature, 0.5);
  EXPECT_EQ(full.sampling.top_p, 0.9);
  EXPECT_EQ(full.sampling.top_k, 40);
  EXPECT_EQ(full.sampling.min_p, 0.1);
  EXPECT_EQ(full.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(full.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(full.seeded);
  EXPECT_EQ(full.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(full.n, 2);
  EXPECT_TRUE(full.stream && full.include_usage && full.echo);

  EXPECT_EQ(std::get<std::vector<std::int32_t>>(completion(R"({"prompt":[3,1,2]})").prompts.at(0)),
            (std::vector<std::int32_t>{3, 1, 2}));
  const ApiRequest two = completion(R"({"prompt":[[3],[1,2]],"stop":"end","seed":-1,"top_k":-1,"top_p":0})");
  EXPECT_EQ(two.prompts.size(), 2u);
  EXPECT_EQ(two.stop, std::vector<std::string>{"end"});
  EXPECT_EQ(two.sampling.seed, UINT64_MAX);
  EXPECT_EQ(two.sampling.top_k, 0);
  EXPECT_GT(two.sampling.top_p, 0);
}

TEST(ServeRequest, Chats) {
  const ApiRequest r = chat(R"({"messages":[{"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"One."},{"type":"text","text":"Two."}]},
      {"role":"assistant","content":"Yes","refusal":null,"annotations":[],"tool_calls":null},
      {"role":"user","content":""}],"max_completion_tokens":5,"max_tokens":5,"stop":null,"tools":[],
      "tool_choice":"none","response_format":{"type":"text"},"presence_penalty":0,"frequency_penalty":0.0,
      "logit_bias":{},"logprobs":false,"metadata":{"a":"b"},"store":true,"some_new_thing":null})");
  ASSERT_EQ(r.messages.size(), 4u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "One.\nTwo.");
  EXPECT_EQ(r.messages[2].content, "Yes");
  EXPECT_EQ(r.max_tokens, 5);
}

TEST(ServeRequest, NamesTheFieldAtFault) {
  const struct {
    const char* members;
    const char* param;
    const char* message;
  } cases[] = {
      {R"("temperature":2.5)", "temperature", "'temperature' is 2.5; it must be from 0 to 2"},
      {R"("temperature":-0.1)", "temperature", "from 0 to 2"},
      {R"("temperature":"hot")", "temperature", "'temperature' is string; it must be a number"},
      {R"("temperature":true)", "temperature", "boolean"},
      {R"("top_p":1.01)", "top_p", "from 0 to 1"},
      {R"("top_k":1.5)", "top_k", "must be a whole number"},
      {R"("top_k":-2)", "top_k", "from -1 to"},
      {R"("top_k":99999999999999999999999)", "top_k", "must be a whole number"},
      {R"("min_p":2)", "min_p", "from 0 to 1"},
      {R"("repetition_penalty":0)", "repetition_penalty", "from 0.01 to 100"},
      {R"("max_tokens":0)", "max_tokens", "'max_tokens' is 0; it must be from 1"},
      {R"("max_tokens":18446744073709551615)", "max_tokens", "is 18446744073709551615; it must be from 1"},
      {R"("max_tokens":1,"max_completion_tokens":2)", "max_tokens", "say different things"},
      {R"("seed":1.5)", "seed", "whole number"},
      {R"("seed":"1")", "seed", "whole number"},
      {R"("stop":"")", "stop", "'stop' is empty"},
      {R"("stop":[1])", "stop[0]", "'stop[0]' is number"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop", "17 texts"},
      {R"("n":0)", "n", "from 1 to 128"},
      {R"("n":129)", "n", "from 1 to 128"},
      {R"("stream":1)", "stream", "'stream' is number; it must be true or false"},
      {R"("stream_options":{"include_usage":true})", "stream_options", "needs 'stream': true"},
      {R"("stream":true,"stream_options":{"all":true})", "stream_options.all", "not known"},
      {R"("stream":true,"stream_options":[])", "stream_options", "must be an object"},
      {R"("model":3)", "model", "must be a string"},
      {R"("tools":[{"type":"function"}])", "tools", "'tools' is not supported"},
      {R"("tool_choice":"required")", "tool_choice", "not supported"},
      {R"("response_format":{"type":"json_object"})", "response_format", "not supported"},
      {R"("logprobs":true)", "logprobs", "not supported"},
      {R"("logit_bias":{"5":-100})", "logit_bias", "not supported"},
      {R"("presence_penalty":0.5)", "presence_penalty", "not supported"},
      {R"("prompt":"x")", "prompt", "not known here"},
      {R"("echo":true)", "echo", "not known here"},
      {R"("temprature":1)", "temprature", "did you mean 'temperature'?"},
  };
  for (const auto& c : cases) {
    const ApiError error = chat_error(c.members);
    EXPECT_EQ(error.status, 400) << c.members;
    EXPECT_EQ(error.param, c.param) << c.members;
    EXPECT_HAS(error.message, c.message);
  }
  EXPECT_EQ(chat_error(R"("suffix":"x")", Endpoint::Completions).param, "suffix");
  EXPECT_EQ(chat_error(R"("logprobs":0)", Endpoint::Completions).param, "logprobs");
  EXPECT_EQ(chat_error(R"("messages":[])", Endpoint::Completions).param, "messages");
  EXPECT_EQ(chat_error(R"("best_of":2)", Endpoint::Completions).code, "unsupported_parameter");
}

TEST(ServeRequest, Messages) {
  const struct {
    const char* messages;
    const char* param;
  } cases[] = {
      {R"("hi")", "messages"},
      {R"([])", "messages"},
      {R"(["hi"])", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"tool","content":"x"}])", "messages[0].role"},
      {R"([{"role":["user"],"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x","name":"Ann"}])", "messages[0].name"},
      {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{}]}])",
       "messages[1].tool_calls"},
  };
  for (const auto& c : cases) {
    const ApiError error = body_error(std::string(R"({"messages":)") + c.messages + "}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, c.param) << c.messages << ": " << error.message;
  }
}

TEST(ServeRequest, Prompts) {
  for (const auto& [prompt, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {"null", "prompt"},
           {"7", "prompt"},
           {"[]", "prompt"},
           {"{}", "prompt"},
           {"[null]", "prompt[0]"},
           {R"(["a",1])", "prompt[1]"},
           {R"([1,"a"])", "prompt[1]"},
           {"[1,-1]", "prompt[1]"},
           {"[1.5]", "prompt[0]"},
           {"[4294967296]", "prompt[0]"},
           {"[[1],[[2]]]", "prompt[1][0]"},
       }) {
    const ApiError error = body_error(std::string(R"({"prompt":)") + prompt + "}", Endpoint::Completions);
    EXPECT_EQ(error.param, param) << prompt << ": " << error.message;
  }
  std::string many = R"({"prompt":[)";
  for (int i = 0; i < 129; ++i) many += i == 0 ? "\"a\"" : ",\"a\"";
  EXPECT_HAS(body_error(many + "]}", Endpoint::Completions).message, "129 prompts");
}

TEST(ServeRequest, HostileBodies) {
  for (const std::string& body : {
           std::string(),
           std::string("{"),
           std::string("nonsense"),
           std::string("{}{}"),
           std::string("{\"prompt\":\"\xff\"}"),
           std::string("{\"prompt\":\"\xc3\"}"),
           std::string("{\"prompt\":\"\xed\xa0\x80\"}"),  // a surrogate
           std::string(R"({"prompt":"\ud800"})"),
           std::string(R"({"prompt":"x","temperature":1e999})"),
           std::string(R"({"prompt":"x","temperature":NaN})"),
           std::string(R"({"prompt":"x","top_k":-})"),
           std::string("{\"prompt\":\"a\0b\"}", 16),
           std::string("\xef\xbb\xbf\xef\xbb\xbf{}"),
           std::string(1 << 20, '['),
           std::string(40, '[') + std::string(40, ']'),
       }) {
    const ApiError error = body_error(body, Endpoint::Completions);
    EXPECT_EQ(error.status, 400);
    EXPECT_NE(error.message, "");
  }
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += R"({"a":)";
  EXPECT_HAS(body_error(deep).message, "nested deeper than 32");
  EXPECT_HAS(body_error("[1]").message, "the body is array; it must be an object");
  EXPECT_HAS(body_error(R"({"prompt":"x","prompt":"y"})", Endpoint::Completions).message, "'prompt' stands twice");
  EXPECT_EQ(body_error(R"({"messages":[{"role":"user","role":"user","content":"x"}]})").param, "role");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":"y"}]})").messages.size(), 2u)
      << "the same member in another object";
  EXPECT_EQ(std::get<std::string>(completion("{\"prompt\":\"a\\u0000b\"}").prompts[0]), std::string("a\0b", 3));
  EXPECT_EQ(chat_error("\"" + std::string(100000, 'x') + "\":1").code, "unknown_parameter");
}

}  // namespace
}  // namespace aeshna::test
