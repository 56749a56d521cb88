// What a model is trained on: windows of texts, completions, answers in conversations.
#include "nn/language/examples.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "nn/language_model_support.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

using nlohmann::json;

constexpr std::size_t kWindow = 24;

/// A model with a tokenizer and a chat template; its weights are never read.
class ExampleFiles : public testing::Test {
 protected:
  void use(const std::string& chat_template) {
    const TinyModel tiny = plain_model("llama");
    GgufMetadata metadata = tiny_metadata(tiny);
    for (auto& [key, value] : metadata)
      if (key == "tokenizer.chat_template") value = GgufValue::text(chat_template);
    std::vector<GgufTensor> tensors;
    for (const auto& [name, value] : tiny_tensors(tiny)) tensors.push_back(gguf_tensor(name, value));
    write_gguf(dir / "m.gguf", tensors, metadata);
    model.emplace(LanguageModel::load(dir / "m.gguf"));
  }
  void SetUp() override { use("{{ '<|im_start|>' }}"); }

  Examples read(const std::vector<json>& lines, std::int64_t window = 200) const {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    dir.write("data.jsonl", text);
    return read_examples(dir / "data.jsonl", *model, window);
  }
  std::string refusal(ErrorCode code, const std::string& text) const {
    dir.write("data.jsonl", text);
    return message_of(code, [&] { (void)read_examples(dir / "data.jsonl", *model, 200); });
  }
  /// What the model sees of a sequence, and what of it is to be predicted, as text with '|' between the parts.
  std::string seen(const Examples& examples, std::size_t i) const {
    const auto [ids, labels] = filled(examples, i);
    return model->tokenizer().decode(ids, true);
  }
  std::string learnt(const Examples& examples, std::size_t i) const {
    const auto [ids, labels] = filled(examples, i);
    std::string text;
    for (std::size_t at = 0; at < labels.size(); ++at) {
      if (labels[at] == kIgnored) {
        if (!text.empty() && !text.ends_with('|')) text += '|';
      } else {
        text += model->tokenizer().decode(std::span(&labels[at], 1), true);
      }
    }
    while (text.ends_with('|')) text.pop_back();
    return text;
  }
  static std::pair<Ids, Ids> filled(const Examples& examples, std::size_t i) {
    Ids ids(static_cast<std::size_t>(examples.longest())), labels(ids.size());
    examples.fill(i, ids, labels);
    return {ids, labels};
  }

  TempDir dir;
  std::optional<LanguageModel> model;
};

TEST_F(ExampleFiles, TextIsCutIntoWindowsThatPredictEveryTokenOnce) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i * i) + " ";
  dir.write("t.txt", text);
  const Ids all = model->tokenizer().encode(text);
  for (const std::size_t window : {kWindow, all.size() - 1, all.size() + 5, std::size_t{1}}) {
    const Examples examples = read_examples(dir / "t.txt", *model, static_cast<std::int64_t>(window));
    EXPECT_EQ(examples.size(), (all.size() - 1 + window - 1) / window);
    EXPECT_EQ(examples.tokens(), all.size() - 1);
    EXPECT_EQ(examples.longest(), static_cast<std::int64_t>(std::min(window, all.size() - 1)));
    std::size_t at = 0;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const auto [ids, labels] = filled(examples, i);
      EXPECT_EQ(examples.tokens(i), std::min(window, all.size() - 1 - at));
      for (std::size_t j = 0; j < ids.size(); ++j) {
        const bool inside = j < examples.tokens(i);
        ASSERT_EQ(ids[j], inside ? all[at] : 0);
        ASSERT_EQ(labels[j], inside ? all[at + 1] : kIgnored);
        at += inside;
      }
    }
    EXPECT_EQ(at, all.size() - 1);
  }
}

TEST_F(ExampleFiles, CompletionsAndTexts) {
  const Examples examples = read({{{"prompt", "What is 2 + 2?"}, {"completion", " It is 4."}, {"id", 7}},
                                  {{"text", "A text."}},
                                  {{"prompt", ""}, {"completion", "only this"}}});
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(learnt(examples, 0), " It is 4.<|im_end|>");
  EXPECT_TRUE(seen(examples, 0).starts_with("What is 2 + 2? It is 4."));
  EXPECT_EQ(learnt(examples, 1), " text.<|im_end|>");
  EXPECT_TRUE(std::string_view("only this<|im_end|>").ends_with(learnt(examples, 2))) << learnt(examples, 2);
  EXPECT_EQ(examples.cut(), 0u);
  EXPECT_EQ(examples.tokens(), examples.tokens(0) + examples.tokens(1) + examples.tokens(2));
}

TEST_F(ExampleFiles, AnswersInConversations) {
  const json talk = {{{"role", "system"}, {"content", "Be brief."}},   {{"role", "user"}, {"content", "Hi <|im_end|>"}},
                     {{"role", "assistant"}, {"content", "Hello."}},   {{"role", "user"}, {"content", "Who?"}},
                     {{"role", "assistant"}, {"content", "A model."}}, {{"role", "user"}, {"content", "Bye"}}};
  const Examples examples = read({{{"messages", talk}}});
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(learnt(examples, 0), "Hello.<|im_end|>|A model.<|im_end|>");
  EXPECT_TRUE(
      seen(examples, 0).starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>"));
  EXPECT_FALSE(seen(examples, 0).contains("Bye")) << "nothing comes after the last answer";
  // Just what the model is given when it answers.
  const std::vector<ChatMessage> before = {{"system", "Be brief."}, {"user", "Hi <|im_end|>"}};
  const Ids prompt = model->tokenizer().encode(model->chat_template().render(before, model->tokenizer()), false);
  const auto [ids, labels] = filled(examples, 0);
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), ids.begin()));
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i) EXPECT_EQ(labels[i], kIgnored);
  EXPECT_EQ(labels[prompt.size() - 1], ids[prompt.size()]) << "the first token of the answer";
}

/// Mistral's later formats put the system's message into the last message of the user: what came before an answer is then not the start of
/// the whole conversation.
TEST_F(ExampleFiles, AFormatThatRewritesWhatCameBefore) {
  use("{{ bos_token }}{%- if system_message and loop.last and system_message %} [INST] ' [/INST] ' eos_token");
  const json talk = {{{"role", "system"}, {"content", "Rule"}},
                     {{"role", "user"}, {"content", "one"}},
                     {{"role", "assistant"}, {"content", "ONE"}},
                     {{"role", "user"}, {"content", "two"}},
                     {{"role", "assistant"}, {"content", "TWO"}}};
  const Examples examples = read({{{"messages", talk}}});
  const std::string end = model->tokenizer().decode(Ids{*model->tokenizer().eos()}, true);
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_TRUE(learnt(examples, 0).ends_with("ONE" + end)) << learnt(examples, 0);
  EXPECT_TRUE(learnt(examples, 1).ends_with("TWO" + end)) << learnt(examples, 1);
  EXPECT_FALSE(learnt(examples, 1).contains("ONE"));
  EXPECT_TRUE(seen(examples, 0).contains("Rule\n\none")) << seen(examples, 0);
  EXPECT_TRUE(seen(examples, 1).contains("Rule\n\ntwo") && !seen(examples, 1).contains("Rule\n\none"))
      << seen(examples, 1);
}

TEST_F(ExampleFiles, LongOnesAreCutAndCounted) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += " word";
  const json long_answer = {{"prompt", "short"}, {"completion", words}},
             late = {{"prompt", words}, {"completion", "x"}};
  const Examples examples = read({long_answer, late, {{"prompt", "a"}, {"completion", " b"}}}, kWindow);
  EXPECT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples.cut(), 2u);
  EXPECT_EQ(examples.empty(), 1u) << "its answer begins beyond the window";
  EXPECT_EQ(examples.longest(), static_cast<std::int64_t>(kWindow));
  EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { (void)read({late}, kWindow); }),
             "nothing to learn: every answer begins beyond the window");
  EXPECT_NE(examples.fingerprint(), read({long_answer}, kWindow).fingerprint());
  EXPECT_EQ(examples.fingerprint(),
            read({long_answer, late, {{"prompt", "a"}, {"completion", " b"}}}, kWindow).fingerprint());
}

TEST_F(ExampleFiles, ErrorsNameLineAndField) {
  const auto corrupt = [&](const std::string& text) { return refusal(ErrorCode::CorruptFile, text); };
  EXPECT_HAS(corrupt("{\"text\": \"x\"}\n{\"text\""), "data.jsonl:2: not JSON");
  EXPECT_HAS(corrupt("\n[1]\n"), "data.jsonl:2: the line is no JSON object");
  EXPECT_HAS(corrupt("{\"prompt\": \"x\"}"), "data.jsonl:1: the line needs one of 'text', 'prompt' with 'completion'");
  EXPECT_HAS(corrupt("{\"text\": \"x\", \"messages\": []}"), "needs one of");
  EXPECT_HAS(corrupt("{\"completion\": \"x\"}"), "'prompt' is missing");
  EXPECT_HAS(corrupt("{\"prompt\": 1, \"completion\": \"x\"}"), "'prompt' is number, not a string");
  EXPECT_HAS(corrupt("{\"messages\": \"x\"}"), "'messages' is string, not an array");
  EXPECT_HAS(corrupt("{\"messages\": [{\"role\": \"user\"}]}"), "'messages[0].content' is missing");
  EXPECT_HAS(corrupt("{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}"), "'messages[0].content' is array");
  EXPECT_HAS(corrupt("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"),
             "without any message of the assistant");
  EXPECT_HAS(corrupt("{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{}]}]}"),
             "'messages[0].tool_calls' is no part of a message here");
  EXPECT_HAS(refusal(ErrorCode::InvalidArgument,
                     R"({"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]})"),
             "the role 'tool'");
  EXPECT_HAS(refusal(ErrorCode::InvalidArgument,
                     R"({"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]})"),
             "data.jsonl:1");
  EXPECT_HAS(refusal(ErrorCode::InvalidArgument, "\n\n"), "data.jsonl: there is nothing to learn");
  dir.write("t.txt", "");
  EXPECT_ERROR(read_examples(dir / "t.txt", *model, 8), ErrorCode::InvalidArgument, "t.txt: there is nothing to learn");
  EXPECT_ERROR(read_examples(dir / "t.csv", *model, 8), ErrorCode::Unsupported, "t.csv: text to train on is .txt");
  EXPECT_ERROR(read_examples(dir / "none.jsonl", *model, 8), ErrorCode::NotFound, "none.jsonl");
  EXPECT_ERROR(read_examples(dir / "t.txt", *model, 0), ErrorCode::InvalidArgument, "a window of 0");
  // Depth, and bytes that are not UTF-8.
  EXPECT_HAS(corrupt("{\"text\": " + std::string(100000, '[')), "data.jsonl:1: JSON nested deeper than 64 levels");
  EXPECT_HAS(corrupt("{\"text\": \"\xff\"}"), "not JSON");
  use("no known format");
  EXPECT_HAS(refusal(ErrorCode::Unsupported, R"({"messages": [{"role": "assistant", "content": "y"}]})"),
             "a chat template of no known family");
}

TEST_F(ExampleFiles, MutatedLinesAreReadOrRefused) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes \u00e9"}], "text": null})";
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string changed = line + "\n" + line;
    for (unsigned n = 1 + random() % 3; n > 0; --n) changed[random() % changed.size()] = static_cast<char>(random());
    dir.write("data.jsonl", changed);
    try {
      EXPECT_GT(read_examples(dir / "data.jsonl", *model, 200).tokens(), 0u);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace aeshna::test
