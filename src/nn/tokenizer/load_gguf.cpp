#include <algorithm>

#include "aeshna/tokenizer.h"
#include "base/fail.h"
#include "nn/tokenizer/load.h"

namespace aeshna {

namespace {

/// Pre-tokenizers by the names that GGUF files use (tokenizer.ggml.pre).
struct PreTokenizer {
  std::vector<std::string_view> names;
  std::vector<SplitRule> splits;
  bool nfc = false, whole_words = false, begins = false;  ///< begins: with bos unless the file says otherwise
};

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> table = {
      {.names = {"gpt-2", "gpt2", "phi-2"}, .splits = {SplitRule::Gpt2}},
      {.names = {"llama-bpe", "llama3", "llama-v3"},
       .splits = {SplitRule::Llama3},
       .whole_words = true,
       .begins = true},
      {.names = {"dbrx", "smaug-bpe"}, .splits = {SplitRule::Llama3}},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .splits = {SplitRule::Qwen2}, .nfc = true},
      {.names = {"smollm", "starcoder", "refact", "command-r"}, .splits = {SplitRule::Digits, SplitRule::Gpt2}},
      {.names = {"default", ""},
       .splits = {SplitRule::Punctuation, SplitRule::Gpt2, SplitRule::DigitRuns, SplitRule::DigitTriples}},
  };
  return table;
}

constexpr std::string_view kPrefix = "tokenizer.ggml.";
/// Understood, or of no consequence for a model that writes text.
constexpr std::string_view kKeys[] = {"model",
                                      "pre",
                                      "tokens",
                                      "scores",
                                      "token_type",
                                      "merges",
                                      "bos_token_id",
                                      "eos_token_id",
                                      "unknown_token_id",
                                      "padding_token_id",
                                      "eot_token_id",
                                      "eom_token_id",
                                      "separator_token_id",
                                      "seperator_token_id",
                                      "cls_token_id",
                                      "mask_token_id",
                                      "add_bos_token",
                                      "add_eos_token",
                                      "add_space_prefix",
                                      "remove_extra_whitespaces",
                                      "fim_pre_token_id",
                                      "fim_suf_token_id",
                                      "fim_mid_token_id",
                                      "fim_pad_token_id",
                                      "fim_rep_token_id",
                                      "fim_sep_token_id",
                                      "prefix_token_id",
                                      "suffix_token_id",
                                      "middle_token_id",
                                      "token_type_count"};

class Loader {
 public:
  explicit Loader(const GgufFile& file) : file_(file) { spec_.name = file.name(); }

  TokenizerSpec load() {
    for (const auto& [key, value] : file_.metadata()) {
      if (key.starts_with(kPrefix) &&
          std::ranges::find(kKeys, std::string_view(key).substr(kPrefix.size())) == std::end(kKeys))
        refuse("the key '" + key + "'");
    }
    const std::string model = file_.text(key("model")).value_or("");
    bool begins = true;
    if (model == "gpt2") {
      begins = pre_tokenizer();
    } else if (model == "llama") {
      spec_.model = TokenizerSpec::Model::ScoredBpe;
    } else if (model == "t5") {
      spec_.model = TokenizerSpec::Model::Unigram;
      spec_.fuse_unknown = true;
      begins = false;
    } else if (model.empty()) {
      corrupt("there is no {}", key("model"));
    } else {
      refuse("the tokenizer '" + model + "' (gpt2, llama and t5 are supported)");
    }
    if (spec_.model != TokenizerSpec::Model::ByteBpe) {
      spec_.byte_fallback = spec_.space_mark = true;
      if (file_.flag(key("remove_extra_whitespaces")).value_or(false)) refuse("remove_extra_whitespaces");
    }
    if (!refused_.empty())
      fail(ErrorCode::Unsupported, "{}: the tokenizer needs what Aeshna does not have: {}", file_.name(), refused_);

    tokens();
    phi3();
    merges();
    special(begins);
    return std::move(spec_);
  }

 private:
  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }
  void refuse(const std::string& what) { refused_ += (refused_.empty() ? "" : ", ") + what; }
  template <class... Args>
  [[noreturn]] void corrupt(std::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::CorruptFile, "{}: {}", file_.name(), formatted(format, std::forward<Args>(args)...));
  }

  /// Whether texts begin with bos by default.
  bool pre_tokenizer() {
    const std::string name = file_.text(key("pre")).value_or("");
    for (const PreTokenizer& pre : pre_tokenizers()) {
      if (std::ranges::find(pre.names, name) == pre.names.end()) continue;
      spec_.splits = pre.splits;
      spec_.nfc = pre.nfc;
      spec_.whole_words = pre.whole_words;
      return pre.begins;
    }
    refuse("the pre-tokenizer '" + name + "' (gpt-2, llama-bpe, qwen2, smollm and default are supported)");
    return false;
  }

  void tokens() {
    const std::vector<std::string>* texts = file_.texts(key("tokens"));
    if (texts == nullptr || texts->empty() || texts->size() > 1 << 24)
      corrupt("there is no {}, or it is empty or too long", key("tokens"));
    const auto numbers = [&](std::string_view name) -> const GgufValue* {
      const GgufValue* value = file_.find(key(name));
      if (value == nullptr) return nullptr;
      if (!value->array || value->type == GgufType::string || value->size() != texts->size())
        corrupt("{} is no array of {} numbers, one for each token", key(name), texts->size());
      return value;
    };
    const GgufValue *types = numbers("token_type"), *scores = numbers("scores");
    if (spec_.model != TokenizerSpec::Model::ByteBpe && scores == nullptr) corrupt("there is no {}", key("scores"));
    for (std::size_t i = 0; i < texts->size(); ++i) {
      Token token{.text = (*texts)[i]};
      if (scores != nullptr) token.score = static_cast<float>(scores->at(i));
      if (token.score != token.score) corrupt("the score of token {} is not a number", i);
      switch (types == nullptr ? 1 : static_cast<int>(types->at(i))) {
        case 1:
          break;
        case 2:
          token.kind = Token::Kind::Unknown;
          break;
        case 3:
        case 5:  // unused: never in a text
          token.kind = Token::Kind::Control;
          break;
        case 4:
          token.kind = Token::Kind::Added;
          break;
        case 6:
          token.kind = Token::Kind::Byte;
          break;
        default:
          corrupt("token {} has the type {}", i, types->at(i));
      }
      if (token.kind == Token::Kind::Byte && !byte_of_token(token.text))
        corrupt("token {}, '{}', is no byte", i, token.text);
      if (spec_.model == TokenizerSpec::Model::ByteBpe && token.kind == Token::Kind::Normal)
        token.text = bytes_of_byte_level(token.text).value_or(token.text);
      spec_.tokens.push_back(std::move(token));
    }
  }

  /// GGUF does not have what tokenizer.json says of Phi 3's added tokens: they take the white space behind them.
  void phi3() {
    if (spec_.model != TokenizerSpec::Model::ScoredBpe || file_.text("general.architecture") != "phi3") return;
    static constexpr std::string_view others[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (Token& token : spec_.tokens) {
      if ((token.kind == Token::Kind::Control || token.kind == Token::Kind::Added) &&
          std::ranges::find(others, token.text) == std::end(others))
        token.strip_right = true;
    }
  }

  void merges() {
    if (spec_.model != TokenizerSpec::Model::ByteBpe) return;
    const std::vector<std::string>* lines = file_.texts(key("merges"));
    if (lines == nullptr) corrupt("there is no {}", key("merges"));
    for (const std::string& line : *lines) {
      const std::size_t space = line.find(' ', 1);
      if (space == std::string::npos) corrupt("the merge '{}' is no pair", line);
      const auto left = bytes_of_byte_level(line.substr(0, space)), right = bytes_of_byte_level(line.substr(space + 1));
      if (!left || !right) corrupt("the merge '{}' is not of bytes", line);
      spec_.merges.push_back({*left, *right});
    }
  }

  std::optional<std::int32_t> token(std::string_view name) const {
    const auto id = file_.integer(key(name));
    if (!id) return std::nullopt;
    if (*id == 0xFFFFFFFF || *id == -1) return std::nullopt;  // what some writers give for none
    if (*id < 0 || *id >= static_cast<std::int64_t>(spec_.tokens.size()))
      corrupt("{} is {}, but there are {} tokens", key(name), *id, spec_.tokens.size());
    return static_cast<std::int32_t>(*id);
  }

  void special(bool begins) {
    spec_.bos = token("bos_token_id");
    spec_.eos = token("eos_token_id");
    spec_.unknown = token("unknown_token_id");
    if (spec_.space_mark) {  // SentencePiece's defaults
      if (!spec_.unknown) {
        const auto found = std::ranges::find(spec_.tokens, Token::Kind::Unknown, &Token::kind);
        if (found != spec_.tokens.end()) spec_.unknown = static_cast<std::int32_t>(found - spec_.tokens.begin());
      }
      const bool prefixed = file_.flag(key("add_space_prefix")).value_or(true);
      spec_.prefix = prefixed ? TokenizerSpec::Prefix::Always : TokenizerSpec::Prefix::Never;
      spec_.strip_space = prefixed;
    } else if (file_.flag(key("add_space_prefix")).value_or(false)) {
      spec_.prefix = TokenizerSpec::Prefix::Always;
      spec_.prefix_if_missing = true;
    }
    const bool add_bos = file_.flag(key("add_bos_token")).value_or(begins && spec_.bos);
    const bool add_eos = file_.flag(key("add_eos_token")).value_or(spec_.model == TokenizerSpec::Model::Unigram);
    if ((add_bos && !spec_.bos) || (add_eos && !spec_.eos)) corrupt("bos or eos is to be added, but there is none");
    if (add_bos) spec_.before.push_back(*spec_.bos);
    if (add_eos) spec_.after.push_back(*spec_.eos);
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      const auto id = token(name);
      if (id && std::ranges::find(spec_.ends, *id) == spec_.ends.end()) spec_.ends.push_back(*id);
    }
    add_known_ends(spec_);
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
  std::string refused_;
};

}  // namespace

TokenizerSpec tokenizer_of_gguf(const GgufFile& file) { return Loader(file).load(); }

Tokenizer Tokenizer::from_gguf(const std::filesystem::path& file) {
  return Tokenizer(tokenizer_of_gguf(GgufFile(file)));
}

}  // namespace aeshna
