#include "aeshna/tokenizer.h"

#include <filesystem>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "aeshna/error.h"
#include "base/byte_reader.h"
#include "base/unicode.h"
#include "io/gguf.h"
#include "nn/tokenizer/load.h"
#include "nn/tokenizer/split.h"
#include "nn/tokenizers/fixtures.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

using nlohmann::json;
using test::fixture;
using test::gguf_of;
using test::kFixtures;

constexpr const char* kNames[] = {"gpt2", "llama3", "qwen2", "smollm", "llama2", "gemma", "unigram"};

// ---- Unicode

TEST(Unicode, Utf8) {
  EXPECT_EQ(valid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(valid_utf8("\x80"), r);
  EXPECT_EQ(valid_utf8("\xC0\xAF"), r + r) << "overlong";
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), r + r + r + r) << "above U+10FFFF";
  EXPECT_EQ(valid_utf8("\xE2\x82"), r) << "one for the longest valid start";
  EXPECT_EQ(valid_utf8("\xF0\x9F\x98x"), r + "x");
  EXPECT_EQ(valid_utf8("\xE2\x82\xE2\x82\xAC"), r + "\xE2\x82\xAC");
  EXPECT_EQ(incomplete_utf8(""), 0u);
  EXPECT_EQ(incomplete_utf8("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8("a\xF0\x9F"), 2u);
  EXPECT_EQ(incomplete_utf8("a\xC3"), 1u);
  EXPECT_EQ(incomplete_utf8("\xC3\xA9"), 0u);
  EXPECT_EQ(incomplete_utf8("\xED\xA0"), 0u) << "nothing completes it";
  for (const char32_t c :
       {U'\0', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xD7FF', U'\xE000', U'\xFFFF', U'\x10000', U'\x10FFFF'}) {
    std::string text;
    append_utf8(text, c);
    const Utf8Code back = utf8_at(text, 0);
    EXPECT_TRUE(back.valid && back.code == c && back.bytes == text.size()) << static_cast<unsigned>(c);
  }
}

TEST(Unicode, Classes) {
  EXPECT_EQ(code_class('a'), CodeClass::Letter);
  EXPECT_EQ(code_class(0x4E00), CodeClass::Letter);
  EXPECT_EQ(code_class(0x2A6DF), CodeClass::Letter);
  EXPECT_EQ(code_class(0x0661), CodeClass::Number);
  EXPECT_EQ(code_class(0xBD), CodeClass::Number);
  EXPECT_EQ(code_class(0x3000), CodeClass::Space);
  EXPECT_EQ(code_class(0x200B), CodeClass::Other);
  EXPECT_EQ(code_class(0x2026), CodeClass::Punctuation);
  EXPECT_EQ(code_class('$'), CodeClass::Other);
  EXPECT_EQ(code_class(0x1F600), CodeClass::Other);
  EXPECT_EQ(code_class(0x10FFFF), CodeClass::Other);
}

TEST(Unicode, CanonicalComposition) {
  const json data = fixture("splits");
  for (std::size_t i = 0; i < data["texts"].size(); ++i)
    EXPECT_EQ(to_nfc(data["texts"][i].get<std::string>()), data["nfc"][i].get<std::string>()) << i;
  EXPECT_EQ(to_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C") << "Hangul";
  EXPECT_EQ(to_nfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87") << "marks are ordered";
  EXPECT_EQ(to_nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC") << "excluded from composition";
  EXPECT_EQ(to_nfc("\xE2\x84\xA6"), "\xCE\xA9") << "a singleton";
}

// ---- pre-tokenizers, against regular expressions

TEST(TokenizerSplits, AreThoseOfTheExpressions) {
  const json data = fixture("splits");
  const std::vector<std::pair<std::string, std::vector<SplitRule>>> rules = {
      {"gpt2", {SplitRule::Gpt2}},
      {"llama3", {SplitRule::Llama3}},
      {"qwen2", {SplitRule::Qwen2}},
      {"smollm", {SplitRule::Digits, SplitRule::Gpt2}},
      {"default", {SplitRule::Punctuation, SplitRule::Gpt2, SplitRule::DigitRuns, SplitRule::DigitTriples}}};
  for (const auto& [name, splits] : rules) {
    for (std::size_t i = 0; i < data["texts"].size(); ++i) {
      const auto text = data["texts"][i].get<std::string>();
      std::vector<std::size_t> lengths;
      for (const auto piece : split_text(text, splits)) lengths.push_back(piece.size());
      EXPECT_EQ(lengths, data["splits"][name][i].get<std::vector<std::size_t>>()) << name << ": " << json(text).dump();
    }
  }
}

// ---- whole tokenizers, against the reference

TEST(Tokenizer, AgreesWithTheReference) {
  const json data = fixture("expected");
  for (const char* name : kNames) {
    const Tokenizer tokenizer = Tokenizer::from_json(kFixtures / (std::string(name) + ".json"));
    for (std::size_t i = 0; i < data["texts"].size(); ++i) {
      const auto text = data["texts"][i].get<std::string>();
      const auto ids = data["expected"][name]["ids"][i].get<std::vector<std::int32_t>>();
      EXPECT_EQ(tokenizer.encode(text, {.special = true}), ids) << name << ": " << json(text).dump();
      EXPECT_EQ(tokenizer.decode(ids), data["expected"][name]["decoded"][i].get<std::string>())
          << name << ": " << json(text).dump();
    }
  }
}

Tokenizer from_metadata(const GgufMetadata& metadata) {
  const test::TempDir dir;
  write_gguf(dir.path() / "t.gguf", {}, metadata);
  return Tokenizer::from_gguf(dir.path() / "t.gguf");
}

TEST(Tokenizer, FromGgufIsTheSame) {
  const json data = fixture("expected");
  for (const auto& [name, pre] :
       {std::pair("gpt2", "gpt-2"), {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"smollm", "smollm"}}) {
    const Tokenizer tokenizer = from_metadata(gguf_of(name, pre));
    for (std::size_t i = 0; i < data["texts"].size(); ++i) {
      EXPECT_EQ(tokenizer.encode(data["texts"][i].get<std::string>(), {.special = true}),
                data["expected"][name]["ids"][i].get<std::vector<std::int32_t>>())
          << name << ": " << data["texts"][i].dump();
    }
    EXPECT_EQ(tokenizer.eos(), tokenizer.find("<|im_end|>"));
    EXPECT_EQ(tokenizer.ends().size(), 2u) << "eos and <|endoftext|>";
  }
}

/// SentencePiece's vocabulary: "▁hello" = he + llo by score, bytes, control tokens.
GgufMetadata sentence_piece() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  const auto add = [&](std::string text, float score, std::int32_t type = 1) {
    tokens.push_back(std::move(text));
    scores.push_back(score);
    types.push_back(type);
  };
  constexpr char hex[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) add({'<', '0', 'x', hex[b / 16], hex[b % 16], '>'}, 0, 6);
  float score = -1;  // 259 on
  for (const char* text : {"ll", "he", "\xE2\x96\x81he", "llo", "hell", "\xE2\x96\x81hello", "\xE2\x96\x81", "h", "e",
                           "l", "o", "\xC3\xA9", "ab", "bc"})
    add(text, score--);
  return {
      {"tokenizer.ggml.model", GgufValue::text("llama")},     {"tokenizer.ggml.tokens", GgufValue::texts(tokens)},
      {"tokenizer.ggml.scores", GgufValue::floats(scores)},   {"tokenizer.ggml.token_type", GgufValue::ints(types)},
      {"tokenizer.ggml.bos_token_id", GgufValue::integer(1)}, {"tokenizer.ggml.eos_token_id", GgufValue::integer(2)}};
}

TEST(Tokenizer, SentencePieceMergesByScore) {
  const Tokenizer tokenizer = from_metadata(sentence_piece());
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(tokenizer.encode("hello"), (Ids{1, 264}));
  // "ll" and "he" first, then "llo", so that "hell" never comes up; the space merges behind them.
  EXPECT_EQ(tokenizer.encode("hello hell", {.add_special = false}), (Ids{264, 261, 259}));
  EXPECT_EQ(tokenizer.encode("abc", {.add_special = false}), (Ids{265, 271, 3 + 'c'}))
      << "the leftmost and best, then a byte";
  EXPECT_EQ(tokenizer.encode("\xC3\xA9\xE4\xBD\xA0", {.add_special = false}),
            (Ids{265, 270, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0}));
  EXPECT_EQ(tokenizer.encode("</s>", {.add_special = false}).size(), 5u) << "text like any other";
  EXPECT_EQ(tokenizer.encode("h</s>h", {.special = true, .add_special = false}), (Ids{265, 266, 2, 265, 266}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 264, 261, 259, 2}), "hello hell");
  EXPECT_EQ(tokenizer.decode(Ids{1, 264}, true), "<s> hello") << "shown as it stands";
  EXPECT_EQ(tokenizer.encode(""), (Ids{1}));
  EXPECT_EQ(tokenizer.bytes(3 + 10), "\n");
}

TEST(Tokenizer, TokensOfPhi3TakeTheSpaceBehindThem) {
  GgufMetadata metadata = sentence_piece();
  metadata.emplace_back("general.architecture", GgufValue::text("phi3"));
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(from_metadata(metadata).encode("</s> \n h", {.special = true, .add_special = false}), (Ids{2, 265, 266}));
  EXPECT_EQ(from_metadata(metadata).encode("<s> h", {.special = true, .add_special = false}), (Ids{1, 265, 265, 266}));
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const Tokenizer tokenizer = from_metadata(sentence_piece());
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.push(264), "hello");
  EXPECT_EQ(stream.push(3 + 0xE4), "");
  EXPECT_EQ(stream.push(3 + 0xBD), "");
  EXPECT_EQ(stream.push(3 + 0xA0), "\xE4\xBD\xA0");
  EXPECT_EQ(stream.push(3 + 0xF0), "");
  EXPECT_EQ(stream.push(2), "") << "a control token";
  EXPECT_EQ(stream.push(266), "\xEF\xBF\xBDh") << "never completed";
  EXPECT_EQ(stream.push(3 + 0xE4), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, InvalidTextBecomesReplacements) {
  for (const char* name : kNames) {
    const Tokenizer tokenizer = Tokenizer::from_json(kFixtures / (std::string(name) + ".json"));
    EXPECT_EQ(tokenizer.encode("a\xFF\xC3(\xE2\x82"), tokenizer.encode("a\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD"))
        << name;
  }
}

TEST(Tokenizer, AnyBytesRoundTripOrAreReplaced) {
  std::mt19937 random(3);
  for (const char* name : {"gpt2", "llama3", "smollm", "llama2", "gemma"}) {
    const Tokenizer tokenizer = Tokenizer::from_json(kFixtures / (std::string(name) + ".json"));
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (unsigned n = random() % 40; n > 0; --n)
        text += static_cast<char>(i % 2 == 0 ? random() : 32 + random() % 90);
      const auto ids = tokenizer.encode(text, {.add_special = false});
      EXPECT_EQ(tokenizer.decode(ids), valid_utf8(text)) << name;
    }
  }
}

TEST(Tokenizer, SpecialTokensOnlyOnRequest) {
  const Tokenizer tokenizer = Tokenizer::from_json(kFixtures / "gpt2.json");
  const auto special = *tokenizer.find("<|im_end|>"), user = *tokenizer.find("quick brown");
  const auto has = [](const std::vector<std::int32_t>& ids, std::int32_t id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  EXPECT_FALSE(has(tokenizer.encode("a<|im_end|>"), special));
  EXPECT_TRUE(has(tokenizer.encode("a<|im_end|>", {.special = true}), special));
  EXPECT_TRUE(has(tokenizer.encode("a quick brown fox"), user));
  EXPECT_TRUE(tokenizer.is_control(special));
  EXPECT_FALSE(tokenizer.is_control(user));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<|im_end|>b", {.special = true})), "ab");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<|im_end|>b", {.special = true}), true), "a<|im_end|>b");
  EXPECT_ERROR((void)tokenizer.decode(std::vector<std::int32_t>{-1}), ErrorCode::OutOfRange, "-1 is no token");
  EXPECT_ERROR((void)tokenizer.bytes(100000), ErrorCode::OutOfRange, "100000 is no token");
}

TEST(Tokenizer, LongTextsTakeNoQuadraticTime) {
  const Tokenizer tokenizer = Tokenizer::from_json(kFixtures / "llama2.json");
  EXPECT_GT(tokenizer.encode(std::string(200'000, 'a')).size(), 1000u);
}

// ---- refusals

std::string refused(const std::function<void(json&)>& change, ErrorCode code = ErrorCode::Unsupported) {
  json data = fixture("gpt2");
  change(data);
  return test::message_of(code, [&] { (void)Tokenizer(tokenizer_of_json(data.dump(), "t.json")); });
}

TEST(Tokenizer, JsonRefusals) {
  const auto all = refused([](json& j) {
    j["normalizer"] = {{"type", "Lowercase"}};
    j["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
    j["model"]["end_of_word_suffix"] = "</w>";
    j["new"] = 1;
  });
  for (const char* part : {"t.json", "Lowercase", "BertPreTokenizer", "end_of_word_suffix", "\"new\" of tokenizer"})
    EXPECT_HAS(all, part);
  EXPECT_HAS(refused([](json& j) { j["model"]["type"] = "WordPiece"; }), "the model WordPiece");
  EXPECT_HAS(refused([](json& j) { j["model"]["dropout"] = 0.1; }), "dropout");
  EXPECT_HAS(refused([](json& j) { j["added_tokens"][0]["single_word"] = true; }),
             "single_word of the token '<|endoftext|>'");
  EXPECT_HAS(refused([](json& j) { j["decoder"] = {{"type", "WordPiece"}}; }), "the decoder");
  EXPECT_HAS(refused([](json& j) {
               j["post_processor"] = {{"type", "BertProcessing"}};
             }),
             "the post-processor BertProcessing");
  EXPECT_HAS(refused([](json& j) {
               j["pre_tokenizer"] = {
                   {"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}};
             }),
             "\\\\w+");
  const auto corrupt = [](const std::function<void(json&)>& change) { return refused(change, ErrorCode::CorruptFile); };
  EXPECT_HAS(corrupt([](json& j) { j["model"].erase("merges"); }), "\"merges\"");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["merges"].push_back("zzz qqq"); }), "which is no token");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["merges"].push_back("alone"); }), "'alone' is no pair");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["vocab"]["x"] = -1; }), "has the id -1");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["vocab"]["xx"] = 1 << 30; }), "the id 1073741824");
  EXPECT_HAS(corrupt([](json& j) { j["added_tokens"][0]["id"] = 1 << 30; }), "the id 1073741824");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["vocab"]["x"] = "y"; }), "an id is \"y\", no whole number");
  EXPECT_HAS(corrupt([](json& j) { j["model"]["vocab"]["x"] = 1.5; }), "an id is 1.5, no whole number");
  EXPECT_HAS(corrupt([](json& j) { j["added_tokens"][0]["id"] = 18446744073709551615u; }), "no whole number");
  EXPECT_HAS(corrupt([](json& j) { j = json::array(); }), "no JSON object");
  EXPECT_ERROR((void)tokenizer_of_json(std::string_view("{"), "t.json"), ErrorCode::CorruptFile, "t.json");
}

TEST(Tokenizer, JsonNestedTenThousandDeep) {
  constexpr std::size_t kDeep = 10'000;
  const auto refused = [](const std::string& text) {
    return test::message_of(ErrorCode::CorruptFile, [&] { (void)tokenizer_of_json(text, "t.json"); });
  };
  const std::string open(kDeep, '['), close(kDeep, ']');
  // Whole ones, which a parser would accept, and cut off ones; where the message would print them, and where nobody looks.
  for (const std::string& deep : {open + close, open}) {
    EXPECT_HAS(refused(deep), "t.json: JSON nested deeper than 64 levels");
    EXPECT_HAS(refused(R"({"normalizer": {"type": "Odd", "what": )" + deep + "}}"), "nested deeper than 64 levels");
    EXPECT_HAS(refused(R"({"version": )" + deep + "}"), "nested deeper than 64 levels");
  }
  std::string objects;
  for (std::size_t i = 0; i < kDeep; ++i) objects += R"({"\\\"[": )";
  EXPECT_HAS(refused(objects), "nested deeper than 64 levels");
  EXPECT_HAS(refused("[\"" + open + "\"]"), "no JSON object") << "brackets in a text are no nesting";
}

TEST(Tokenizer, GgufRefusals) {
  const auto changed = [](std::string key, std::optional<GgufValue> value, ErrorCode code = ErrorCode::CorruptFile) {
    GgufMetadata metadata = sentence_piece();
    std::erase_if(metadata, [&](const auto& item) { return item.first == "tokenizer.ggml." + key; });
    if (value) metadata.emplace_back("tokenizer.ggml." + key, *value);
    return test::message_of(code, [&] { (void)from_metadata(metadata); });
  };
  EXPECT_HAS(changed("model", GgufValue::text("bert"), ErrorCode::Unsupported), "the tokenizer 'bert'");
  EXPECT_HAS(changed("new", GgufValue::integer(1), ErrorCode::Unsupported), "the key 'tokenizer.ggml.new'");
  EXPECT_HAS(changed("precompiled_charsmap", GgufValue::text(""), ErrorCode::Unsupported), "precompiled_charsmap");
  EXPECT_HAS(changed("model", std::nullopt), "there is no tokenizer.ggml.model");
  EXPECT_HAS(changed("tokens", std::nullopt), "there is no tokenizer.ggml.tokens");
  EXPECT_HAS(changed("scores", std::nullopt), "there is no tokenizer.ggml.scores");
  EXPECT_HAS(changed("scores", GgufValue::floats(std::vector<float>{1})), "is no array of 273 numbers");
  EXPECT_HAS(changed("token_type", GgufValue::ints(std::vector<std::int32_t>(273, 9))), "token 0 has the type 9");
  EXPECT_HAS(changed("token_type", GgufValue::ints(std::vector<std::int32_t>(273, 6))), "is no byte");
  EXPECT_HAS(changed("bos_token_id", GgufValue::integer(273)), "is 273, but there are 273 tokens");
  GgufMetadata bpe = gguf_of("gpt2", "tekken");
  EXPECT_HAS(test::message_of(ErrorCode::Unsupported, [&] { (void)from_metadata(bpe); }), "the pre-tokenizer 'tekken'");
  bpe = gguf_of("gpt2", "gpt-2");
  bpe[4].second.strings.push_back("x");
  EXPECT_HAS(test::message_of(ErrorCode::CorruptFile, [&] { (void)from_metadata(bpe); }), "the merge 'x' is no pair");
}

}  // namespace
}  // namespace aeshna
