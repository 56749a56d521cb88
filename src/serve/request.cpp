#include "serve/request.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "base/names.h"
#include "serve/api_error.h"

namespace aeshna::serve {
namespace {

using nlohmann::json;

constexpr int kDepth = 32;
constexpr std::size_t kPrompts = 128, kStops = 16, kStopBytes = 256;
constexpr std::int64_t kAnswers = 128;

/// Neither deep nor ambiguous: a bound on nesting, no member twice.
json parse_json(std::string_view body) {
  std::vector<std::set<std::string>> seen;  // members of the objects that are open, by depth
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kDepth) throw ApiError(400, formatted("the body is nested deeper than {}", kDepth));
    seen.resize(static_cast<std::size_t>(kDepth) + 2);
    if (event == json::parse_event_t::object_start) seen[static_cast<std::size_t>(depth) + 1].clear();
    if (event == json::parse_event_t::key &&
        !seen[static_cast<std::size_t>(depth)].insert(value.get_ref<const std::string&>()).second)
      refuse(value.get<std::string>(), "'{}' stands twice in an object", value.get_ref<const std::string&>());
    return true;
  };
  try {
    return json::parse(body, check);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, ..."
    const std::string_view text = error.what();
    const std::size_t end = text.find("] ");
    throw ApiError(400,
                   "the body is not JSON: " + std::string(end == std::string_view::npos ? text : text.substr(end + 2)),
                   {}, "invalid_json");
  }
}

[[noreturn]] void wrong_type(const json& value, const std::string& path, std::string_view wanted) {
  throw ApiError(400, formatted("'{}' is {}; it must be {}", path, value.type_name(), wanted), path, "invalid_type");
}

const std::string& text_of(const json& value, const std::string& path) {
  if (!value.is_string()) wrong_type(value, path, "a string");
  return value.get_ref<const std::string&>();
}

bool flag_of(const json& value, const std::string& path) {
  if (!value.is_boolean()) wrong_type(value, path, "true or false");
  return value.get<bool>();
}

double number_of(const json& value, const std::string& path, double low, double high) {
  if (!value.is_number()) wrong_type(value, path, "a number");
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) refuse(path, "'{}' is {}; it must be from {} to {}", path, number, low, high);
  return number;
}

std::int64_t integer_of(const json& value, const std::string& path, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) wrong_type(value, path, "a whole number");
  const bool large = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
  const std::int64_t number = large ? INT64_MAX : value.get<std::int64_t>();
  if (large || number < low || number > high)
    refuse(path, "'{}' is {}; it must be from {} to {}", path, value.dump(), low, high);
  return number;
}

/// null, "", [], {}: as if the field were not there.
bool nothing(const json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

std::vector<std::int32_t> ids_of(const json& value, const std::string& path) {
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!id.is_number_integer()) wrong_type(id, formatted("{}[{}]", path, ids.size()), "a token's id");
    ids.push_back(static_cast<std::int32_t>(integer_of(id, formatted("{}[{}]", path, ids.size()), 0, INT32_MAX)));
  }
  return ids;
}

void read_prompt(ApiRequest& r, const json& value, const std::string& path) {
  if (value.is_string()) {
    r.prompts.emplace_back(value.get<std::string>());
    return;
  }
  if (!value.is_array()) wrong_type(value, path, "a string, an array of strings, or token ids");
  if (value.empty()) refuse(path, "'{}' is empty", path);
  if (value[0].is_number()) {
    r.prompts.emplace_back(ids_of(value, path));
    return;
  }
  if (value.size() > kPrompts) refuse(path, "'{}' has {} prompts; a request may have {}", path, value.size(), kPrompts);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string item = formatted("{}[{}]", path, i);
    if (value[i].is_string()) {
      r.prompts.emplace_back(value[i].get<std::string>());
    } else if (value[i].is_array()) {
      r.prompts.emplace_back(ids_of(value[i], item));
    } else {
      wrong_type(value[i], item, "a string, or an array of token ids");
    }
  }
}

/// A string, or parts of type text, which become lines.
std::string content_of(const json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) wrong_type(value, path, "a string, or an array of parts of type text");
  std::string content;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string part = formatted("{}[{}]", path, i);
    if (!value[i].is_object()) wrong_type(value[i], part, "an object");
    const auto type = value[i].find("type"), text = value[i].find("text");
    if (type == value[i].end()) refuse(part + ".type", "'{}.type' is missing", part);
    if (text_of(*type, part + ".type") != "text")
      refuse(part + ".type", "'{}' is of type {}; this model reads text alone", part, type->dump());
    if (text == value[i].end()) refuse(part + ".text", "'{}.text' is missing", part);
    if (i > 0) content += '\n';
    content += text_of(*text, part + ".text");
  }
  return content;
}

void read_messages(ApiRequest& r, const json& value, const std::string& path) {
  if (!value.is_array()) wrong_type(value, path, "an array of messages");
  if (value.empty()) refuse(path, "'{}' is empty", path);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string message = formatted("{}[{}]", path, i);
    if (!value[i].is_object()) wrong_type(value[i], message, "an object");
    ChatMessage& m = r.messages.emplace_back();
    bool has_content = false;
    for (const auto& item : value[i].items()) {
      const std::string member = message + '.' + item.key();
      if (item.key() == "role") {
        m.role = text_of(item.value(), member);
        if (m.role == "developer") m.role = "system";  // OpenAI's newer name of it
        if (m.role != "system" && m.role != "user" && m.role != "assistant")
          refuse(member, "'{}' is {}; there are system, developer, user and assistant", member, item.value().dump());
      } else if (item.key() == "content") {
        m.content = content_of(item.value(), member);
        has_content = true;
      } else if (!nothing(item.value())) {
        // An answer sent back has "refusal": null, "annotations": [] and the like.
        throw ApiError(400, formatted("'{}' is not supported", member), member, "unsupported_parameter");
      }
    }
    if (m.role.empty()) refuse(message + ".role", "'{}.role' is missing", message);
    if (!has_content) refuse(message + ".content", "'{}.content' is missing", message);
  }
}

void read_stop(ApiRequest& r, const json& value, const std::string& path) {
  const auto add = [&](const json& item, const std::string& at) {
    const std::string& text = text_of(item, at);
    if (text.empty()) refuse(at, "'{}' is empty", at);
    if (text.size() > kStopBytes) refuse(at, "'{}' has {} bytes; it may have {}", at, text.size(), kStopBytes);
    r.stop.push_back(text);
  };
  if (value.is_string()) return add(value, path);
  if (!value.is_array()) wrong_type(value, path, "a string or an array of strings");
  if (value.size() > kStops) refuse(path, "'{}' has {} texts; it may have {}", path, value.size(), kStops);
  for (std::size_t i = 0; i < value.size(); ++i) add(value[i], formatted("{}[{}]", path, i));
}

void read_max_tokens(ApiRequest& r, const json& value, const std::string& path) {
  const std::int64_t count = integer_of(value, path, 1, INT64_MAX);
  if (r.max_tokens && *r.max_tokens != count)
    refuse(path, "'max_tokens' and 'max_completion_tokens' say different things");
  r.max_tokens = count;
}

void read_seed(ApiRequest& r, const json& value, const std::string& path) {
  if (!value.is_number_integer()) wrong_type(value, path, "a whole number of 64 bits");
  r.sampling.seed =
      value.is_number_unsigned() ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>());
  r.seeded = true;
}

void read_stream_options(ApiRequest& r, const json& value, const std::string& path) {
  if (!value.is_object()) wrong_type(value, path, "an object");
  for (const auto& item : value.items()) {
    const std::string member = path + '.' + item.key();
    if (item.key() == "include_usage") {
      r.include_usage = flag_of(item.value(), member);
    } else if (item.key() != "include_obfuscation") {
      throw ApiError(400, formatted("'{}' is not known", member), member, "unknown_parameter");
    }
  }
}

struct Field {
  std::string_view name;
  enum class Of : std::uint8_t { Both, Completions, Chat } of;
  void (*read)(ApiRequest& request, const json& value, const std::string& name);
};

constexpr double kLeastTopP = 1e-6;  // 0, which OpenAI takes, means the same: the most likely token alone

constexpr Field kHonoured[] = {
    {"model", Field::Of::Both, [](ApiRequest& r, const json& v, const std::string& n) { r.model = text_of(v, n); }},
    {"prompt", Field::Of::Completions, read_prompt},
    {"messages", Field::Of::Chat, read_messages},
    {"max_tokens", Field::Of::Both, read_max_tokens},
    {"max_completion_tokens", Field::Of::Chat, read_max_tokens},
    {"temperature", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) { r.sampling.temperature = number_of(v, n, 0, 2); }},
    {"top_p", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) {
       r.sampling.top_p = std::max(number_of(v, n, 0, 1), kLeastTopP);
     }},
    {"top_k", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) {
       r.sampling.top_k = std::max<std::int64_t>(integer_of(v, n, -1, INT32_MAX), 0);
     }},
    {"min_p", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) { r.sampling.min_p = number_of(v, n, 0, 1); }},
    {"repetition_penalty", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) {
       r.sampling.repetition_penalty = number_of(v, n, 0.01, 100);
     }},
    {"seed", Field::Of::Both, read_seed},
    {"stop", Field::Of::Both, read_stop},
    {"n", Field::Of::Both,
     [](ApiRequest& r, const json& v, const std::string& n) { r.n = integer_of(v, n, 1, kAnswers); }},
    {"stream", Field::Of::Both, [](ApiRequest& r, const json& v, const std::string& n) { r.stream = flag_of(v, n); }},
    {"stream_options", Field::Of::Both, read_stream_options},
    {"echo", Field::Of::Completions,
     [](ApiRequest& r, const json& v, const std::string& n) { r.echo = flag_of(v, n); }},
};

/// Fields that would change the answer and are not supported: the values that they may have, since these change nothing.
struct Neutral {
  std::string_view name, values;  // a JSON array
};

constexpr Neutral kNeutral[] = {
    {"add_generation_prompt", "[true]"},
    {"audio", "[]"},
    {"best_of", "[1]"},
    {"chat_template", "[]"},
    {"chat_template_kwargs", "[{}]"},
    {"continue_final_message", "[false]"},
    {"frequency_penalty", "[0]"},
    {"function_call", R"(["none", "auto"])"},
    {"functions", "[[]]"},
    {"ignore_eos", "[false]"},
    {"length_penalty", "[1]"},
    {"logit_bias", "[{}]"},
    {"logprobs", "[false]"},
    {"min_tokens", "[0]"},
    {"modalities", R"([["text"]])"},
    {"presence_penalty", "[0]"},
    {"reasoning_effort", R"(["none"])"},
    {"response_format", R"([{"type": "text"}])"},
    {"skip_special_tokens", "[true]"},
    {"stop_token_ids", "[[]]"},
    {"suffix", R"([""])"},
    {"tool_choice", R"(["none", "auto"])"},
    {"tools", "[[]]"},
    {"top_logprobs", "[0]"},
    {"use_beam_search", "[false]"},
    {"verbosity", R"(["medium"])"},
    {"web_search_options", "[]"},
};

/// What says who asks and how the service should treat it, or helps to answer faster: none of it changes the answer.
constexpr std::string_view kIgnored[] = {"metadata",
                                         "parallel_tool_calls",
                                         "prediction",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "safety_identifier",
                                         "service_tier",
                                         "store",
                                         "user"};

const Field* honoured(std::string_view name, Endpoint endpoint) {
  const auto of = endpoint == Endpoint::Chat ? Field::Of::Chat : Field::Of::Completions;
  for (const Field& field : kHonoured)
    if (field.name == name && (field.of == Field::Of::Both || field.of == of)) return &field;
  return nullptr;
}

[[noreturn]] void unknown_field(const std::string& name, Endpoint endpoint) {
  std::vector<std::string> known;
  if (name.size() < 64)  // else it resembles none
    for (const Field& field : kHonoured)
      if (honoured(field.name, endpoint) != nullptr) known.emplace_back(field.name);
  const std::vector<std::string> near = near_names(name, known);
  throw ApiError(400,
                 formatted("'{}' is not known here{}", name, near.empty() ? "" : "; did you mean '" + near[0] + "'?"),
                 name, "unknown_parameter");
}

}  // namespace

ApiRequest parse_request(Endpoint endpoint, std::string_view body, const SamplingOptions& defaults) {
  const json top = parse_json(body);
  if (!top.is_object()) throw ApiError(400, formatted("the body is {}; it must be an object", top.type_name()));
  ApiRequest r;
  r.endpoint = endpoint;
  r.sampling = defaults;
  for (const auto& item : top.items()) {
    const std::string& name = item.key();
    const json& value = item.value();
    if (const Field* field = honoured(name, endpoint)) {
      if (!value.is_null()) field->read(r, value, name);
    } else if (const auto* neutral = std::ranges::find(kNeutral, name, &Neutral::name); neutral != std::end(kNeutral)) {
      const json values = json::parse(neutral->values);
      if (!value.is_null() && std::ranges::find(values, value) == values.end())
        throw ApiError(400, formatted("'{}' is not supported", name), name, "unsupported_parameter");
    } else if (std::ranges::find(kIgnored, name) == std::end(kIgnored) && !value.is_null()) {
      unknown_field(name, endpoint);
    }
  }
  if (endpoint == Endpoint::Completions && r.prompts.empty())
    throw ApiError(400, "'prompt' is missing", "prompt", "missing_parameter");
  if (endpoint == Endpoint::Chat && r.messages.empty())
    throw ApiError(400, "'messages' is missing", "messages", "missing_parameter");
  if (const auto options = top.find("stream_options"); options != top.end() && !options->is_null() && !r.stream)
    refuse("stream_options", "'stream_options' needs 'stream': true");
  return r;
}

}  // namespace aeshna::serve
