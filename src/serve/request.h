#pragma once
// What a client asks for: the JSON bodies of OpenAI's API. docs/serve.md has the table of fields.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aeshna/chat.h"
#include "aeshna/generate.h"

namespace aeshna::serve {

enum class Endpoint : std::uint8_t { Completions, Chat };

/// One text to go on from, or its ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct ApiRequest {
  Endpoint endpoint = Endpoint::Completions;
  std::string model;                  ///< empty: not named
  std::vector<ChatMessage> messages;  ///< of Endpoint::Chat
  std::vector<Prompt> prompts;        ///< of Endpoint::Completions
  SamplingOptions sampling;
  std::optional<std::int64_t> max_tokens;  ///< at least 1
  std::vector<std::string> stop;
  std::int64_t n = 1;   ///< answers to each prompt
  bool seeded = false;  ///< the request names a seed
  bool stream = false, include_usage = false, echo = false;
};

/// Reads a body. `defaults`: the sampling of requests that say nothing about it. Every known field is honoured, or refused unless it has the
/// value that changes nothing, or ignored because it cannot change the answer; unknown fields are refused. Throws ApiError (400) that names
/// the field: not JSON, not UTF-8, nested deeper than 32, a field twice, wrong types, values out of range.
ApiRequest parse_request(Endpoint endpoint, std::string_view body, const SamplingOptions& defaults);

}  // namespace aeshna::serve
