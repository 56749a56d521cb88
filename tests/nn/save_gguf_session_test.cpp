// A trained model as a GGUF file: what is read back writes the same text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "aeshna/aeshna.h"
#include "aeshna/generate.h"
#include "gpu/device.h"
#include "io/convert_file.h"
#include "io/gguf.h"
#include "nn/language/save_gguf.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::string_view kText = "the cat sat on the mat; the rat ate the oats.\n";

/// The bytes of kText, and one token for all others.
TokenizerSpec byte_tokenizer() {
  std::string bytes(kText);
  std::ranges::sort(bytes);
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  TokenizerSpec spec;
  for (const char c : bytes) spec.tokens.push_back({.text = std::string(1, c)});
  spec.bos = spec.eos = spec.unknown = static_cast<std::int32_t>(bytes.size());
  spec.tokens.push_back({.text = "<|endoftext|>", .kind = Token::Kind::Control});
  spec.splits = {SplitRule::Gpt2};
  return spec;
}

models::LlamaConfig byte_config() {
  models::LlamaConfig c{.hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 64, .context = 24};
  c.vocab = static_cast<std::int64_t>(byte_tokenizer().tokens.size());
  c.rope_interleaved = c.trainable = true;
  return c;
}

/// Trains on windows of kText, one behind the other; the weights.
Weights trained(const Tokenizer& tokenizer, int steps) {
  const models::LlamaConfig config = byte_config();
  std::string text;
  while (text.size() < 400) text += kText;
  const Ids ids = tokenizer.encode(text);
  Graph graph;
  const Value in = graph.input("ids", {4, config.context}, DType::i32);
  graph.output("loss", cross_entropy(models::llama(in, config), graph.input("next", {4, config.context}, DType::i32)));
  Weights weights(graph, {.seed = 3, .device = *test_device().device});
  Session session = compile(graph, weights, {.mode = Mode::Training, .optimizer = AdamW{.lr = 0.01f}});
  for (int step = 0; step < steps; ++step) {
    Ids rows, next;
    for (int row = 0; row < 4; ++row) {
      const std::ptrdiff_t at = (step * 7 + row * 11) % 300;
      rows.insert(rows.end(), ids.begin() + at, ids.begin() + at + config.context);
      next.insert(next.end(), ids.begin() + at + 1, ids.begin() + at + 1 + config.context);
    }
    session.set("ids", rows);
    session.set("next", next);
    session.step();
  }
  EXPECT_LT(session.read_scalar("loss"), 1.5) << "of log(" << config.vocab << ") at first";
  return weights;
}

TEST(SaveGgufSession, WhatIsReadBackWritesTheSameText) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const TokenizerSpec spec = byte_tokenizer();
  const Tokenizer tokenizer(spec);
  const Weights weights = trained(tokenizer, 60);
  save_gguf(dir / "a.gguf", "a test", byte_config(), spec, [&](const std::string& name) { return weights.get(name); });

  // The trained weights themselves, the whole text anew for each token.
  constexpr std::int64_t kRows = 24;
  Graph graph;
  graph.output("logits", models::llama(graph.input("ids", {1, kRows}, DType::i32), byte_config()));
  Session session = compile(graph, weights);
  const Ids prompt = tokenizer.encode("the c");
  Ids ids = prompt;
  std::vector<float> last;
  while (std::ssize(ids) < kRows) {
    Ids rows = ids;
    rows.resize(kRows, 0);
    session.set("ids", rows);
    session.step();
    const std::vector<float> logits = session.read("logits");
    const auto vocab = static_cast<std::ptrdiff_t>(byte_config().vocab);
    last.assign(logits.begin() + (std::ssize(ids) - 1) * vocab, logits.begin() + std::ssize(ids) * vocab);
    ids.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
  }
  const Ids written(ids.begin() + std::ssize(prompt), ids.end());

  const LanguageModel model = LanguageModel::load_gguf(dir / "a.gguf");
  EXPECT_EQ(model.config().context, byte_config().context);
  for (const auto& [name, type] : model.parameters()) EXPECT_EQ(model.weight(name), weights.get(name)) << name;
  EXPECT_EQ(model.tokenizer().encode("the c"), prompt);
  EXPECT_EQ(model.tokenizer().encode("tXe"), (Ids{prompt[0], *spec.unknown, prompt[2]}))
      << "a byte that the text lacks";
  const auto generator = [&](const std::string& file) {
    return Generator(LanguageModel::load_gguf(dir / file),
                     {.context = kRows, .chunk = 8, .device = *test_device().device});
  };
  const auto greedy = host_sampler({});
  Generator exact = generator("a.gguf");
  const Generation generation = exact.generate(prompt, *greedy, {.max_tokens = std::ssize(written)});
  EXPECT_EQ(generation.ids, written);
  EXPECT_EQ(generation.text, tokenizer.decode(written));
  EXPECT_EQ(generation.text.substr(0, 6), "at sat") << "it has learnt something";

  const Ids before(ids.begin(), ids.end() - 1);
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-5}, {DType::f16, 5e-3}, {DType::q8_0, 5e-2}}) {
    convert_file(dir / "a.gguf", dir / "b.gguf", dtype);
    EXPECT_EQ(GgufFile(dir / "b.gguf").find_tensor("blk.0.ffn_up.weight")->type.dtype, dtype);
    Generator converted = generator("b.gguf");
    const std::vector<float> got = converted.logits(before);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < last.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(last[i])));
      largest = std::max(largest, std::abs(static_cast<double>(last[i])));
    }
    EXPECT_LT(worst, tolerance * largest) << dtype_name(dtype);
  }
}

TEST(SaveGguf, MetadataIsWhatOtherReadersExpect) {
  const TempDir dir;
  Graph graph;
  models::llama(graph.input("ids", {1, 1}, DType::i32), byte_config());
  const Weights weights(graph, {.seed = 1, .device = Device(gpu::open_null({}))});
  save_gguf(dir / "a.gguf", "a test", byte_config(), byte_tokenizer(), [&](const std::string& name) {
    const TensorType& type = weights.type(name);
    return Literal(type, std::vector<std::byte>(static_cast<std::size_t>(type.bytes())));
  });
  const GgufFile file(dir / "a.gguf");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(file.integer("llama.rope.dimension_count"), 8);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "gpt2");
  ASSERT_NE(file.texts("tokenizer.ggml.merges"), nullptr);
  EXPECT_TRUE(file.texts("tokenizer.ggml.merges")->empty());
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens")->front(), "\xC4\x8A") << "a line break as GPT-2 writes it";
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens")->back(), "<|endoftext|>");
  EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), file.integer("tokenizer.ggml.unknown_token_id"));
  EXPECT_NE(file.find_tensor("blk.1.ffn_norm.weight"), nullptr);
  EXPECT_EQ(file.find_tensor("output.weight"), nullptr) << "tied";
}

TEST(SaveGguf, WhatTheFormatCannotSayIsRefused) {
  const TempDir dir;
  const auto refused = [&](ErrorCode code, const std::function<void(models::LlamaConfig&, TokenizerSpec&)>& change) {
    models::LlamaConfig config = byte_config();
    TokenizerSpec spec = byte_tokenizer();
    change(config, spec);
    const std::string text = message_of(
        code, [&] { save_gguf(dir / "a.gguf", "a", config, spec, [](const std::string&) { return Literal(); }); });
    EXPECT_HAS(text, "a.gguf");
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    return text;
  };
  const auto unsupported = [&](auto change) {
    return refused(ErrorCode::Unsupported, [&](models::LlamaConfig& c, TokenizerSpec&) { change(c); });
  };
  using Config = models::LlamaConfig;
  EXPECT_HAS(unsupported([](Config& c) { c.rope_interleaved = false; }), "rotate halves");
  EXPECT_HAS(unsupported([](Config& c) { c.rope_scaling.kind = RopeScaling::Kind::Linear; }), "scaled positions");
  EXPECT_HAS(unsupported([](Config& c) { c.window = 4; }), "sliding windows");
  EXPECT_HAS(unsupported([](Config& c) { c.logits_softcap = 30; }), "softcaps");
  EXPECT_HAS(unsupported([](Config& c) { c.qk_norm = true; }), "norms of q and k");
  EXPECT_HAS(unsupported([](Config& c) { c.fused_qkv = true; }), "fused projections");
  EXPECT_HAS(unsupported([](Config& c) { c.gelu = true; }), "GELU");
  EXPECT_HAS(refused(ErrorCode::InvalidArgument, [](Config& c, TokenizerSpec&) { c.vocab = 7; }), "the model 7");
  EXPECT_HAS(refused(ErrorCode::InvalidArgument, [](Config& c, TokenizerSpec&) { c.context = 0; }), "context");
  EXPECT_HAS(
      refused(ErrorCode::Unsupported, [](Config&, TokenizerSpec& s) { s.model = TokenizerSpec::Model::Unigram; }),
      "tokenizers like GPT-2's");
}

}  // namespace
}  // namespace aeshna::test
