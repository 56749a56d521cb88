#include "serve/prompts.h"

#include <algorithm>

#include "serve/api_error.h"

namespace aeshna::serve {

Prompts::Prompts(const ServedModel& model) : model_(model) {
  for (std::int64_t id = 0; id < model.tokenizer.size(); ++id)
    longest_token_ = std::max(longest_token_, model.tokenizer.bytes(static_cast<std::int32_t>(id)).size());
}

std::vector<PromptIds> Prompts::of(const ApiRequest& request) const {
  if (request.endpoint == Endpoint::Chat) return {of_chat(request)};
  std::vector<PromptIds> all;
  for (std::size_t i = 0; i < request.prompts.size(); ++i)
    all.push_back(
        of_text(request.prompts[i], request.prompts.size() == 1 ? "prompt" : formatted("prompt[{}]", i), request.echo));
  return all;
}

PromptIds Prompts::of_chat(const ApiRequest& request) const {
  const std::string param = "messages";
  if (!model_.chat)
    throw ApiError(400, formatted("{} does not chat: {}", model_.id, model_.why_no_chat), param, "no_chat_template");
  std::size_t bytes = 0;
  for (const ChatMessage& message : request.messages) bytes += message.content.size();
  check_bytes(bytes, param);
  try {
    PromptIds prompt;
    prompt.ids = model_.tokenizer.encode(model_.chat->render(request.messages, model_.tokenizer), false);
    check_length(prompt.ids.size(), param);
    return prompt;
  } catch (const Error& error) {  // turns that the format cannot express
    throw ApiError(400, error.message(), param, "invalid_value");
  }
}

PromptIds Prompts::of_text(const Prompt& prompt, const std::string& param, bool echo) const {
  PromptIds p;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    check_bytes(text->size(), param);
    p.ids = model_.tokenizer.encode(*text);
    if (echo) p.text = *text;
  } else {
    p.ids = std::get<std::vector<std::int32_t>>(prompt);
    check_length(p.ids.size(), param);
    for (std::size_t i = 0; i < p.ids.size(); ++i)
      if (p.ids[i] >= model_.tokenizer.size())
        refuse(param, "'{}[{}]' is {}, which is no token of a vocabulary of {}", param, i, p.ids[i],
               model_.tokenizer.size());
    if (echo) p.text = model_.tokenizer.decode(p.ids);
  }
  if (p.ids.empty()) refuse(param, "'{}' is empty: the model needs at least one token to go on from", param);
  check_length(p.ids.size(), param);
  return p;
}

void Prompts::check_bytes(std::size_t bytes, const std::string& param) const {
  // What normalization adds or takes away is far less than this allows.
  if (bytes / longest_token_ / 4 > static_cast<std::size_t>(model_.context))
    throw ApiError(400,
                   formatted("'{}' has {} bytes, which cannot be less than the {} tokens of the context", param, bytes,
                             model_.context),
                   param, "context_length_exceeded");
}

void Prompts::check_length(std::size_t tokens, const std::string& param) const {
  if (tokens >= static_cast<std::size_t>(model_.context))
    throw ApiError(400,
                   formatted("'{}' has {} tokens, which leaves no room for an answer in a context of {}", param, tokens,
                             model_.context),
                   param, "context_length_exceeded");
}

}  // namespace aeshna::serve
