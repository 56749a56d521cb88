#include "aeshna/chat.h"

#include <algorithm>

#include "base/fail.h"

namespace aeshna {

namespace {

/// White space at both ends off, as Jinja's trim.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

/// What a ChatML template says when there is no system message: the literal after the opening of such a turn, with its escapes resolved.
std::string default_system_of(std::string_view jinja) {
  constexpr std::string_view opening = "<|im_start|>system\\n", raw_opening = "<|im_start|>system\n",
                             end = "<|im_end|>";
  for (std::size_t at = 0; (at = jinja.find("<|im_start|>system", at)) != std::string_view::npos; ++at) {
    std::string_view rest = jinja.substr(at);
    if (rest.starts_with(opening)) {
      rest.remove_prefix(opening.size());
    } else if (rest.starts_with(raw_opening)) {
      rest.remove_prefix(raw_opening.size());
    } else {
      continue;
    }
    const std::string_view text = rest.substr(0, rest.find(end));
    if (text.empty() || text.size() == rest.size() || text.find_first_of("'\"{}+") != std::string_view::npos) continue;
    std::string message;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool line = text[i] == '\\' && i + 1 < text.size() && text[i + 1] == 'n';
      message += line ? '\n' : text[i];
      i += line;
    }
    return message;
  }
  return "";
}

class Writer {
 public:
  void special(std::string text) { add(std::move(text), true); }
  void plain(std::string_view text) { add(std::string(text), false); }
  std::vector<TextPart> parts;

 private:
  void add(std::string text, bool is_special) {
    if (!parts.empty() && parts.back().special == is_special) {
      parts.back().text += text;
    } else {
      parts.push_back({std::move(text), is_special});
    }
  }
};

std::string token_text(const Tokenizer& tokenizer, std::optional<std::int32_t> id, std::string_view what) {
  if (!id)
    fail(ErrorCode::InvalidArgument, "the chat format needs the token {}, which the tokenizer does not have", what);
  return tokenizer.bytes(*id);
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view jinja) {
  const auto has = [&](std::string_view part) { return jinja.contains(part); };
  ChatTemplate t;
  t.begins_ = has("bos_token");
  if (has("<|im_start|>")) {
    t.family_ = Family::ChatMl;
    t.default_system_ = default_system_of(jinja);
  } else if (has("<|start_header_id|>")) {
    t.family_ = Family::Llama3;
    t.begins_ = true;  // some write it, some leave it to the tokenizer
    t.dated_ = has("Cutting Knowledge Date");
  } else if (has("<start_of_turn>")) {
    t.family_ = Family::Gemma;
    t.system_ = has("first_user_prefix") ? System::FirstUser : System::None;
  } else if (has("[INST]") && !has("[SYSTEM_PROMPT]") && !has("<<SYS>>")) {
    t.family_ = Family::Mistral;
    t.open_ = has("' [INST] '") || has("\" [INST] \"") ? " [INST] " : has("[INST] ") ? "[INST] " : "[INST]";
    t.close_ = has(" [/INST]") ? " [/INST]" : "[/INST]";
    t.before_answer_ = has("' ' + message") || has("\" \" + message") ? " " : "";
    t.after_answer_ = has("eos_token + ' '") || has("eos_token+ ' '") || has("eos_token + \" \"") ? " " : "";
    t.system_ = !has("system_message")                ? System::None
                : has("loop.last and system_message") ? System::LastUser
                                                      : System::FirstUser;
  } else if (has("<|assistant|>") && has("<|end|>")) {
    t.family_ = Family::Phi3;
  } else {
    fail(ErrorCode::Unsupported,
         "a chat template of no known family (ChatML, Llama 3, Gemma, Mistral, Phi 3): write the prompt in the model's "
         "format yourself; "
         "it starts with '{}'",
         jinja.substr(0, 60));
  }
  return t;
}

std::string_view ChatTemplate::name() const {
  static constexpr std::string_view names[] = {"ChatML", "Llama 3", "Gemma", "Mistral", "Phi 3"};
  return names[static_cast<std::size_t>(family_)];
}

std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                           bool answer) const {
  for (const ChatMessage& m : messages) {
    if (m.role != "system" && m.role != "user" && m.role != "assistant")
      fail(ErrorCode::InvalidArgument, "a chat message has the role '{}'; there are system, user and assistant",
           m.role);
  }
  const bool has_system = !messages.empty() && messages[0].role == "system";
  for (std::size_t i = 1; i < messages.size(); ++i) {
    if (messages[i].role == "system")
      fail(ErrorCode::InvalidArgument, "message {} is the system's, which comes first", i);
  }
  Writer out;
  if (begins_) out.special(token_text(tokenizer, tokenizer.bos(), "bos"));

  const auto turn = [&](const std::string& open, std::string_view content, const std::string& close) {
    out.special(open);
    out.plain(content);
    out.special(close);
  };
  if (family_ == Family::ChatMl) {
    if (!has_system && !default_system_.empty()) turn("<|im_start|>system\n", default_system_, "<|im_end|>\n");
    for (const ChatMessage& m : messages) turn("<|im_start|>" + m.role + "\n", m.content, "<|im_end|>\n");
    if (answer) out.special("<|im_start|>assistant\n");
    return std::move(out.parts);
  }
  if (family_ == Family::Phi3) {
    for (const ChatMessage& m : messages) turn("<|" + m.role + "|>\n", m.content, "<|end|>\n");
    if (answer) out.special("<|assistant|>\n");
    return std::move(out.parts);
  }
  if (family_ == Family::Llama3) {
    const auto header = [](const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; };
    if (dated_) {
      // The date of the published templates, so that a conversation gives the same tokens on every day.
      turn(header("system") + "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
           has_system ? trimmed(messages[0].content) : std::string_view(), "<|eot_id|>");
    }
    for (const ChatMessage& m : messages.subspan(dated_ && has_system ? 1 : 0))
      turn(header(m.role), trimmed(m.content), "<|eot_id|>");
    if (answer) out.special(header("assistant"));
    return std::move(out.parts);
  }

  // Gemma and Mistral have no turn of the system; user and assistant alternate.
  if (has_system && system_ == System::None)
    fail(ErrorCode::InvalidArgument,
         "this model's chat format ({}) has no system message: put it into the user's first message", name());
  const auto turns = messages.subspan(has_system ? 1 : 0);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if ((turns[i].role == "user") != (i % 2 == 0))
      fail(ErrorCode::InvalidArgument,
           "the chat format {} wants user and assistant in turn, the user first; turn {} is the {}'s", name(), i,
           turns[i].role);
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const bool user = turns[i].role == "user";
    std::string content;
    const bool with_system = has_system && (system_ == System::FirstUser ? i == 0 : i + 1 == turns.size() && user);
    if (with_system) content = messages[0].content + "\n\n";
    if (family_ == Family::Gemma) {
      turn(user ? "<start_of_turn>user\n" : "<start_of_turn>model\n", content + std::string(trimmed(turns[i].content)),
           "<end_of_turn>\n");
    } else if (user) {
      turn(open_, content + turns[i].content, close_);
    } else {
      out.plain(before_answer_ + turns[i].content);
      out.special(token_text(tokenizer, tokenizer.eos(), "eos") + after_answer_);
    }
  }
  if (answer && family_ == Family::Gemma) out.special("<start_of_turn>model\n");
  return std::move(out.parts);
}

}  // namespace aeshna
