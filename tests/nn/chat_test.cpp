#include "aeshna/chat.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "nn/letters.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

std::string rendered(std::string_view jinja, const std::vector<ChatMessage>& messages, bool answer = true) {
  std::string text;
  for (const TextPart& part : ChatTemplate::recognise(jinja).render(messages, letters(), answer)) text += part.text;
  return text;
}

const std::vector<ChatMessage> kTalk = {{"user", "Hi"}, {"assistant", "Hello"}, {"user", "Why?"}};
const std::vector<ChatMessage> kWithSystem = {{"system", "Be brief."}, {"user", " Hi "}};

TEST(Chat, ChatMl) {
  const char* plain =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n'}}{% endfor %}";
  EXPECT_EQ(rendered(plain, kTalk),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>"
            "\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered(plain, kWithSystem, false),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n");
  const std::string with_default = std::string(
                                       "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a "
                                       "test.<|im_end|>\\n' }}{% endif %}") +
                                   plain;
  EXPECT_EQ(rendered(with_default, {{"user", "Hi"}}, false),
            "<|im_start|>system\nYou are a test.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(rendered(with_default, kWithSystem, false), rendered(plain, kWithSystem, false));
}

TEST(Chat, Llama3) {
  const char* jinja =
      "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + "
      "'<|eot_id|>' }}";
  EXPECT_EQ(rendered(jinja, kWithSystem),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
            "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(rendered(std::string(jinja) + "Cutting Knowledge Date", {{"user", "Hi"}}, false),
            "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 "
            "Jul 2024\n\n<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
}

TEST(Chat, Gemma) {
  const char* two =
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{{ "
      "'<start_of_turn>' }}";
  EXPECT_EQ(rendered(two, kTalk),
            "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>"
            "user\nWhy?<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_ERROR(rendered(two, kWithSystem), ErrorCode::InvalidArgument, "(Gemma) has no system message");
  EXPECT_EQ(rendered("{{ bos_token }}first_user_prefix <start_of_turn>", kWithSystem, false),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n");
}

TEST(Chat, Mistral) {
  const char* first =
      "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token + ' ' }}";
  EXPECT_EQ(rendered(first, kTalk), "<s>[INST] Hi [/INST]Hello</s> [INST] Why? [/INST]");
  const char* third =
      "{{ bos_token }}{% if loop.last and system_message is defined %}{{ '[INST] ' + system_message + '\\n\\n' + "
      "message['content'] + '[/INST]' }}{{ ' ' + message['content'] + eos_token }}";
  EXPECT_EQ(rendered(third, kTalk), "<s>[INST] Hi[/INST] Hello</s>[INST] Why?[/INST]");
  EXPECT_EQ(rendered(third, {{"system", "S"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}}),
            "<s>[INST] a[/INST] b</s>[INST] S\n\nc[/INST]");
  EXPECT_ERROR(rendered(first, kWithSystem), ErrorCode::InvalidArgument, "no system message");
}

TEST(Chat, Phi3) {
  EXPECT_EQ(rendered("{{'<|user|>' '<|assistant|>' '<|end|>'}}", kWithSystem),
            "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\n");
}

TEST(Chat, MessagesNeverBecomeControlTokens) {
  const Tokenizer tokenizer = letters();
  const std::vector<ChatMessage> messages = {{"user", "a<|im_end|>b"}};
  const auto ids = tokenizer.encode(ChatTemplate::recognise("<|im_start|>").render(messages, tokenizer), false);
  EXPECT_EQ(std::ranges::count(ids, 259), 1);
  EXPECT_EQ(std::ranges::count(ids, 258), 2);
  EXPECT_EQ(tokenizer.decode(ids), "user\na<|im_end|>b\nassistant\n");
  // Not even together with what stands beside them.
  const std::vector<TextPart> parts = {{"<|im_", true}, {"end|>", false}, {"<|im_end|>", true}};
  EXPECT_EQ(std::ranges::count(tokenizer.encode(parts, false), 259), 1);
}

TEST(Chat, Refusals) {
  EXPECT_ERROR(ChatTemplate::recognise("{{ 'Human: ' }}"), ErrorCode::Unsupported, "it starts with '{{ 'Human: ' }}'");
  EXPECT_ERROR(rendered("<|im_start|>", {{"tool", "x"}}), ErrorCode::InvalidArgument, "the role 'tool'");
  EXPECT_ERROR(rendered("<|im_start|>", {{"user", "x"}, {"system", "x"}}), ErrorCode::InvalidArgument,
               "message 1 is the system's");
  EXPECT_ERROR(rendered("<start_of_turn>", {{"assistant", "x"}}), ErrorCode::InvalidArgument,
               "turn 0 is the assistant's");
}

}  // namespace
}  // namespace aeshna::test
