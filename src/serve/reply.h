#pragma once
// What a client gets: JSON bodies and events in the shapes of OpenAI's API.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "aeshna/generate.h"
#include "serve/api_error.h"
#include "serve/request.h"

namespace aeshna::serve {

/// What all chunks of an answer have in common.
struct ReplyHead {
  Endpoint endpoint = Endpoint::Completions;
  std::string id;            ///< "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  ///< Unix time
  std::string model;
  bool include_usage = false;  ///< chunks have the member "usage"
};
/// A new head, with an id of its own.
ReplyHead reply_head(const ApiRequest& request, std::string model);

struct Usage {
  std::size_t prompt = 0, completion = 0;  ///< tokens
};

struct ChoiceText {
  std::string text;
  Generation::End end = Generation::End::Length;
};

std::string error_json(const ApiError& error);
std::string answer_json(const ReplyHead& head, std::span<const ChoiceText> choices, Usage usage);
std::string models_json(std::string_view id, std::int64_t created);  ///< the list of one
std::string model_json(std::string_view id, std::int64_t created);

// Server-sent events, each with its empty line.
std::string first_event(const ReplyHead& head, std::size_t choice);  ///< chats begin with the role
std::string text_event(const ReplyHead& head, std::size_t choice, std::string_view text);
std::string end_event(const ReplyHead& head, std::size_t choice, Generation::End end);
std::string usage_event(const ReplyHead& head, Usage usage);
std::string error_event(const ApiError& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace aeshna::serve
