// Hugging Face's tokenizer.json: a pipeline of normalizer, pre-tokenizer, model, post-processor and decoder, of which the forms are
// known that language models use. All that is not is listed in one refusal.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "aeshna/tokenizer.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "io/json_field.h"
#include "nn/tokenizer/load.h"

namespace aeshna {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxBytes = 256ull << 20;
constexpr std::size_t kMaxTokens = 1 << 24;

struct Pattern {
  std::string_view text;
  SplitRule split;
};
constexpr std::array<Pattern, 5> kPatterns = {{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", SplitRule::Gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::Llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::Qwen2},
    {R"(\p{N})", SplitRule::Digits},
    {R"(\p{N}+)", SplitRule::DigitRuns},
}};

class Loader {
 public:
  Loader(std::string name, std::string_view text) {
    spec_.name = std::move(name);
    root_ = parse_json(text, spec_.name);
    if (!root_.is_object()) fail(ErrorCode::CorruptFile, "{}: no JSON object", spec_.name);
  }

  TokenizerSpec load() {
    try {
      // Truncation and padding belong to a call, not to the vocabulary.
      known(root_, "tokenizer",
            {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
      each(root_, "normalizer", "normalizers", [&](const Json& part) { normalizer(part); });
      each(root_, "pre_tokenizer", "pretokenizers", [&](const Json& part) { pre_tokenizer(part); });
      each(root_, "decoder", "decoders", [&](const Json& part) { decoder(part); });
      model(at(root_, "model"));
      added_tokens();
      each(root_, "post_processor", "processors", [&](const Json& part) { post_processor(part); });
    } catch (const Json::exception& e) {
      fail(ErrorCode::CorruptFile, "{}: {}", spec_.name, e.what());
    }
    if (!refused_.empty())
      fail(ErrorCode::Unsupported, "{}: the tokenizer needs what Aeshna does not have: {}", spec_.name, refused_);
    return std::move(spec_);
  }

 private:
  [[noreturn]] void corrupt(const std::string& message) const {
    fail(ErrorCode::CorruptFile, "{}: {}", spec_.name, message);
  }
  void refuse(const std::string& what) { refused_ += (refused_.empty() ? "" : ", ") + what; }

  const Json& at(const Json& object, const char* key) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end()) corrupt(formatted("there is no \"{}\"", key));
    return *found;
  }
  std::int64_t integer(const Json& value, std::string_view what) const {
    const auto number = json_integer(value);
    if (!number) corrupt(formatted("{} is {}, no whole number", what, value.dump()));
    return *number;
  }
  template <class T>
  static T value(const Json& object, const char* key, T fallback) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? fallback : found->get<T>();
  }
  void known(const Json& object, const std::string& what, std::initializer_list<std::string_view> keys) {
    if (!object.is_object()) corrupt(what + " is no object");
    for (const auto& item : object.items())
      if (std::ranges::find(keys, item.key()) == keys.end()) refuse(formatted("\"{}\" of {}", item.key(), what));
  }
  /// A stage of the pipeline: absent, one part or a "Sequence" of them.
  template <class F>
  void each(const Json& object, const char* key, const char* list, F take) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return;
    if (value<std::string>(*found, "type", "") != "Sequence") return take(*found);
    for (const Json& part : at(*found, list)) take(part);
  }
  static std::string type_of(const Json& part) { return value<std::string>(part, "type", "?"); }

  void normalizer(const Json& part) {
    const std::string type = type_of(part);
    if (type == "NFC") {
      spec_.nfc = true;
    } else if (type == "Prepend" && at(part, "prepend") == kSpaceMark) {
      spec_.prefix = TokenizerSpec::Prefix::Always;
    } else if (type == "Replace" && value<std::string>(at(part, "pattern"), "String", "") == " " &&
               at(part, "content") == kSpaceMark) {
      spec_.space_mark = true;
    } else {
      refuse("the normalizer " + part.dump());
    }
  }

  void prefix_scheme(const Json& part) {
    const std::string scheme =
        value<std::string>(part, "prepend_scheme", value(part, "add_prefix_space", true) ? "always" : "never");
    spec_.prefix = scheme == "always"  ? TokenizerSpec::Prefix::Always
                   : scheme == "first" ? TokenizerSpec::Prefix::First
                                       : TokenizerSpec::Prefix::Never;
    spec_.prefix_if_missing = true;
    if (scheme != "always" && scheme != "first" && scheme != "never") refuse("the prepend_scheme '" + scheme + "'");
  }

  void pre_tokenizer(const Json& part) {
    const std::string type = type_of(part);
    if (type == "ByteLevel") {
      byte_level_ = true;
      if (value(part, "add_prefix_space", true)) {
        if (!spec_.splits.empty()) refuse("add_prefix_space behind another pre-tokenizer");
        spec_.prefix = TokenizerSpec::Prefix::Always;
        spec_.prefix_if_missing = true;
      }
      if (value(part, "use_regex", true)) spec_.splits.push_back(SplitRule::Gpt2);
    } else if (type == "Digits") {
      spec_.splits.push_back(value(part, "individual_digits", false) ? SplitRule::Digits : SplitRule::DigitRuns);
    } else if (type == "Metaspace" && value<std::string>(part, "replacement", "") == kSpaceMark) {
      spec_.space_mark = true;
      prefix_scheme(part);
      if (value(part, "split", true)) spec_.splits.push_back(SplitRule::SpaceMark);
    } else if (type == "Split") {
      split(part);
    } else {
      refuse("the pre-tokenizer " + part.dump());
    }
  }

  void split(const Json& part) {
    const Json& pattern = at(part, "pattern");
    const std::string regex = value<std::string>(pattern, "Regex", ""),
                      text = value<std::string>(pattern, "String", "");
    const std::string behavior = value<std::string>(part, "behavior", "");
    const bool invert = value(part, "invert", false);
    const auto found = std::ranges::find(kPatterns, regex, &Pattern::text);
    // The first three find everything, so that removing what they do not find removes nothing.
    const bool whole =
        found != kPatterns.end() && found->split != SplitRule::Digits && found->split != SplitRule::DigitRuns;
    if (found != kPatterns.end() &&
        ((behavior == "Isolated" && !invert) || (whole && behavior == "Removed" && invert))) {
      spec_.splits.push_back(found->split);
    } else if (!(text == " " && spec_.space_mark && behavior == "MergedWithPrevious" &&
                 !invert)) {  // no space is left there
      refuse("the pre-tokenizer " + part.dump());
    }
  }

  void decoder(const Json& part) {
    const std::string type = type_of(part);
    if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return;
    if (type == "Replace" && value<std::string>(at(part, "pattern"), "String", "") == kSpaceMark &&
        at(part, "content") == " ")
      return;
    if (type == "Metaspace") {
      const std::string scheme =
          value<std::string>(part, "prepend_scheme", value(part, "add_prefix_space", true) ? "always" : "never");
      spec_.strip_space = scheme != "never";
    } else if (type == "Strip" && at(part, "content") == " " && value(part, "start", 0) == 1 &&
               value(part, "stop", 0) == 0) {
      spec_.strip_space = true;
    } else {
      refuse("the decoder " + part.dump());
    }
  }

  Token& token_at(std::int64_t id) {
    if (id < 0 || id >= static_cast<std::int64_t>(kMaxTokens)) corrupt(formatted("a token has the id {}", id));
    while (spec_.tokens.size() <= static_cast<std::size_t>(id)) spec_.tokens.push_back({.kind = Token::Kind::Control});
    return spec_.tokens[static_cast<std::size_t>(id)];
  }

  std::int32_t find(const std::string& text) const {
    const auto found = std::ranges::find(spec_.tokens, text, &Token::text);
    if (found == spec_.tokens.end()) corrupt(formatted("'{}' is no token", text));
    return static_cast<std::int32_t>(found - spec_.tokens.begin());
  }

  std::string bytes(std::string text) const { return byte_level_ ? bytes_of_byte_level(text).value_or(text) : text; }

  void model(const Json& model) {
    // Old files have no type: they are BPE.
    const std::string type = value<std::string>(model, "type", model.contains("merges") ? "BPE" : "?");
    if (type == "BPE") return bpe(model);
    if (type == "Unigram") return unigram(model);
    refuse("the model " + type);
  }

  void add_token(std::int64_t id, const std::string& text, float score) {
    Token& token = token_at(id);
    const bool byte = spec_.byte_fallback && byte_of_token(text);
    token = {.text = byte ? text : bytes(text), .kind = byte ? Token::Kind::Byte : Token::Kind::Normal, .score = score};
  }

  void bpe(const Json& model) {
    known(model, "the model",
          {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
           "byte_fallback", "ignore_merges", "vocab", "merges"});
    spec_.model = byte_level_ ? TokenizerSpec::Model::ByteBpe : TokenizerSpec::Model::CharBpe;
    spec_.byte_fallback = value(model, "byte_fallback", false);
    spec_.fuse_unknown = value(model, "fuse_unk", false);
    spec_.whole_words = value(model, "ignore_merges", false);
    if (value(model, "dropout", 0.0) != 0) refuse("dropout of the model");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!value<std::string>(model, key, "").empty()) refuse(formatted("{} of the model", key));
    for (const auto& item : at(model, "vocab").items()) {
      const std::int64_t id = integer(item.value(), "an id");
      // Ids need not be dense, but far beyond their number they are nonsense.
      if (id > static_cast<std::int64_t>(2 * model["vocab"].size() + 65536))
        corrupt(formatted("token '{}' has the id {}", item.key(), id));
      add_token(id, item.key(), 0);
    }
    const auto unknown = value<std::string>(model, "unk_token", "");
    if (!unknown.empty()) spec_.unknown = find(bytes(unknown));
    for (const Json& merge : at(model, "merges")) {
      std::array<std::string, 2> pair;
      if (merge.is_string()) {
        const auto line = merge.get<std::string>();
        const std::size_t space = line.find(' ', 1);
        if (space == std::string::npos) corrupt(formatted("the merge '{}' is no pair", line));
        pair = {line.substr(0, space), line.substr(space + 1)};
      } else if (merge.is_array() && merge.size() == 2) {
        pair = {merge[0].get<std::string>(), merge[1].get<std::string>()};
      } else {
        corrupt("a merge is no pair");
      }
      spec_.merges.push_back({bytes(pair[0]), bytes(pair[1])});
    }
  }

  void unigram(const Json& model) {
    known(model, "the model", {"type", "unk_id", "vocab", "byte_fallback"});
    spec_.model = TokenizerSpec::Model::Unigram;
    spec_.byte_fallback = value(model, "byte_fallback", false);
    spec_.fuse_unknown = true;
    const Json& vocab = at(model, "vocab");
    if (vocab.size() > kMaxTokens) corrupt("too many tokens");
    std::int64_t id = 0;
    for (const Json& entry : vocab) {
      if (!entry.is_array() || entry.size() != 2) corrupt(formatted("token {} is no pair of text and score", id));
      add_token(id++, entry[0].get<std::string>(), entry[1].get<float>());
    }
    if (model.contains("unk_id") && !model["unk_id"].is_null()) {
      const std::int64_t unknown = integer(model["unk_id"], "unk_id");
      if (unknown < 0 || unknown >= id) corrupt(formatted("unk_id is {}, but there are {} tokens", unknown, id));
      spec_.unknown = static_cast<std::int32_t>(unknown);
      spec_.tokens[static_cast<std::size_t>(unknown)].kind = Token::Kind::Unknown;
    }
  }

  void added_tokens() {
    const auto list = root_.find("added_tokens");
    if (list == root_.end() || list->is_null()) return;
    const auto bound = static_cast<std::int64_t>(2 * (spec_.tokens.size() + list->size()) + 65536);
    for (const Json& entry : *list) {
      known(entry, "an added token", {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      const std::int64_t id = integer(at(entry, "id"), "an id");
      if (id > bound) corrupt(formatted("an added token has the id {}", id));
      const auto content = at(entry, "content").get<std::string>();
      if (value(entry, "single_word", false)) refuse(formatted("single_word of the token '{}'", content));
      Token& token = token_at(id);
      const bool unknown = spec_.unknown && *spec_.unknown == id;
      token = {.text = content,
               .kind = value(entry, "special", false) ? Token::Kind::Control : Token::Kind::Added,
               .score = token.score,
               .strip_left = value(entry, "lstrip", false),
               .strip_right = value(entry, "rstrip", false)};
      if (unknown && token.kind != Token::Kind::Added) token.kind = Token::Kind::Control;
    }
    add_known_ends(spec_);
  }

  void post_processor(const Json& part) {
    const std::string type = type_of(part);
    if (type == "ByteLevel") return;  // moves offsets only
    if (type != "TemplateProcessing") return refuse("the post-processor " + type);
    const Json& tokens = at(part, "special_tokens");
    bool behind = false;
    for (const Json& item : at(part, "single")) {
      if (item.contains("Sequence")) {
        if (behind) refuse("a template that repeats its text");
        behind = true;
        continue;
      }
      const auto name = at(at(item, "SpecialToken"), "id").get<std::string>();
      for (const Json& id : at(at(tokens, name.c_str()), "ids")) {
        const std::int64_t number = integer(id, "an id");
        if (number < 0 || number >= static_cast<std::int64_t>(spec_.tokens.size()))
          corrupt(formatted("the template has the token {}", number));
        (behind ? spec_.after : spec_.before).push_back(static_cast<std::int32_t>(number));
      }
    }
  }

  Json root_;
  TokenizerSpec spec_;
  std::string refused_;
  bool byte_level_ = false;
};

}  // namespace

TokenizerSpec tokenizer_of_json(std::string_view text, std::string name) {
  return Loader(std::move(name), text).load();
}

TokenizerSpec tokenizer_of_json(const std::filesystem::path& file) {
  const std::vector<std::byte> bytes = read_file(file, kMaxBytes);
  return tokenizer_of_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
}

Tokenizer Tokenizer::from_json(const std::filesystem::path& file) { return Tokenizer(tokenizer_of_json(file)); }

}  // namespace aeshna
