#include "serve/reply.h"

#include <chrono>
#include <random>

#include <nlohmann/json.hpp>

namespace aeshna::serve {
namespace {

using nlohmann::json;

/// Messages may quote what a client sent, and that may be cut within a character.
std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string event(const json& value) { return "data: " + dumped(value) + "\n\n"; }

std::string_view reason(Generation::End end) {
  return end == Generation::End::Token || end == Generation::End::Stop ? "stop" : "length";
}

json usage_of(Usage usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion}};
}

json error_of(const ApiError& error) {
  constexpr std::size_t longest = 1000;
  std::string message = error.message.substr(0, longest);
  if (message.size() < error.message.size()) message += "...";
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text.substr(0, longest)); };
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status >= 500 ? "server_error"
                                           : "invalid_request_error";
  return {{"error",
           {{"message", message}, {"type", type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}}}};
}

json model_of(std::string_view id, std::int64_t created) {
  return {{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "aeshna"}};
}

json chunk(const ReplyHead& head, json choices) {
  const bool chat = head.endpoint == Endpoint::Chat;
  json value = {{"id", head.id},
                {"object", chat ? "chat.completion.chunk" : "text_completion"},
                {"created", head.created},
                {"model", head.model},
                {"choices", std::move(choices)}};
  if (head.include_usage) value["usage"] = nullptr;
  return value;
}

/// A chunk of one choice; `content`: what a chat calls delta, a completion text.
json chunk(const ReplyHead& head, std::size_t choice, json content, json finish_reason) {
  return chunk(head, json::array({{{"index", choice},
                                   {head.endpoint == Endpoint::Chat ? "delta" : "text", std::move(content)},
                                   {"logprobs", nullptr},
                                   {"finish_reason", std::move(finish_reason)}}}));
}

}  // namespace

ReplyHead reply_head(const ApiRequest& request, std::string model) {
  std::random_device random;
  std::string id = request.endpoint == Endpoint::Chat ? "chatcmpl-" : "cmpl-";
  for (int i = 0; i < 3; ++i) id += formatted("{:08x}", random());
  return {
      .endpoint = request.endpoint,
      .id = std::move(id),
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .model = std::move(model),
      .include_usage = request.include_usage};
}

std::string error_json(const ApiError& error) { return dumped(error_of(error)); }

std::string answer_json(const ReplyHead& head, std::span<const ChoiceText> choices, Usage usage) {
  const bool chat = head.endpoint == Endpoint::Chat;
  json list = json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    json choice = {{"index", i}, {"logprobs", nullptr}, {"finish_reason", reason(choices[i].end)}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", choices[i].text}, {"refusal", nullptr}};
    } else {
      choice["text"] = choices[i].text;
    }
    list.push_back(std::move(choice));
  }
  return dumped({{"id", head.id},
                 {"object", chat ? "chat.completion" : "text_completion"},
                 {"created", head.created},
                 {"model", head.model},
                 {"choices", std::move(list)},
                 {"usage", usage_of(usage)}});
}

std::string models_json(std::string_view id, std::int64_t created) {
  return dumped({{"object", "list"}, {"data", json::array({model_of(id, created)})}});
}

std::string model_json(std::string_view id, std::int64_t created) { return dumped(model_of(id, created)); }

std::string first_event(const ReplyHead& head, std::size_t choice) {
  if (head.endpoint != Endpoint::Chat) return {};
  return event(chunk(head, choice, {{"role", "assistant"}, {"content", ""}}, nullptr));
}

std::string text_event(const ReplyHead& head, std::size_t choice, std::string_view text) {
  return event(chunk(head, choice, head.endpoint == Endpoint::Chat ? json({{"content", text}}) : json(text), nullptr));
}

std::string end_event(const ReplyHead& head, std::size_t choice, Generation::End end) {
  return event(chunk(head, choice, head.endpoint == Endpoint::Chat ? json::object() : json(""), reason(end)));
}

std::string usage_event(const ReplyHead& head, Usage usage) {
  json value = chunk(head, json::array());
  value["usage"] = usage_of(usage);
  return event(value);
}

std::string error_event(const ApiError& error) { return event(error_of(error)); }

}  // namespace aeshna::serve
