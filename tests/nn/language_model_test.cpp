#include "aeshna/language_model.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "base/quant.h"
#include "io/safetensors.h"
#include "ir/interpreter.h"
#include "nn/tiny_language_model.h"
#include "support/expect_error.h"
#include "support/fake_hub.h"
#include "support/graph_values.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

using Ids = std::vector<std::int32_t>;
const Ids kIds = {7, 300, 12, 12, 99, 0, 411};

TensorMap weights_of(const LanguageModel& model) {
  TensorMap leaves;
  for (const auto& [name, type] : model.parameters()) {
    const Literal value = model.weight(name);
    EXPECT_EQ(value.type(), type) << name;
    const Literal numbers = is_quantized(type.dtype) ? dequantize(value) : value;
    leaves.emplace(name, tensor(type, numbers.to_doubles()));
  }
  return leaves;
}

HostTensor ints(Shape shape, const Ids& values) {
  return tensor({DType::i32, shape}, std::vector<double>(values.begin(), values.end()));
}

HostTensor full_logits(const LanguageModel& model, TensorMap leaves, const Ids& ids) {
  Graph graph;
  const Shape shape{1, static_cast<std::int64_t>(ids.size())};
  graph.output("logits", models::llama(graph.input("ids", shape, DType::i32), model.config()));
  leaves.insert_or_assign("ids", ints(shape, ids));
  return interpret(graph, leaves).outputs.at("logits");
}

double largest_difference(const HostTensor& got, const TinyReference::Rows& want) {
  double worst = 0;
  std::size_t i = 0;
  for (const auto& row : want)
    for (const double v : row) worst = std::max(worst, std::abs(got.data.at(i++) - v));
  EXPECT_EQ(i, got.data.size());
  return worst;
}

class LanguageModels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, LanguageModels,
                         testing::Values("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"),
                         [](const auto& info) { return info.param; });

TEST_P(LanguageModels, EqualTheReference) {
  const TempDir dir;
  for (const unsigned seed : {1u, 4u}) {  // other tensors get other types
    const TinyModel tiny = tiny_model(GetParam());
    write_tiny_gguf(dir / "m.gguf", tiny, seed);
    const LanguageModel model = LanguageModel::load_gguf(dir / "m.gguf");
    const auto want = TinyReference(tiny, tiny_tensors(tiny, seed)).logits(kIds);
    EXPECT_LT(largest_difference(full_logits(model, weights_of(model), kIds), want), 2e-6) << seed;
  }
}

/// Chunks of 3, then one by one, over caches; also with the logits of one row alone.
TEST_P(LanguageModels, DecodingEqualsTheWholeText) {
  const TempDir dir;
  write_tiny_gguf(dir / "m.gguf", tiny_model(GetParam()));
  const LanguageModel model = LanguageModel::load_gguf(dir / "m.gguf");
  TensorMap leaves = weights_of(model);
  const HostTensor whole = full_logits(model, leaves, kIds);
  const std::int64_t vocab = model.config().vocab;
  std::size_t done = 0;
  for (const std::int64_t rows : {3, 1, 2, 1}) {
    Graph graph;
    const models::LlamaDecode decode{.position = graph.input("position", {1}, DType::i32), .capacity = 16};
    const Value ids = graph.input("ids", {1, rows}, DType::i32);
    graph.output("logits", models::llama_decode(ids, decode, model.config()));
    for (const Node& node : graph.nodes())
      if (node.op->name == std::string_view("state")) leaves.try_emplace(node.name, HostTensor(node.results[0]));
    leaves.insert_or_assign("ids", ints({1, rows}, Ids(kIds.begin() + static_cast<std::ptrdiff_t>(done),
                                                       kIds.begin() + static_cast<std::ptrdiff_t>(done) + rows)));
    leaves.insert_or_assign("position", ints({1}, {static_cast<std::int32_t>(done)}));
    InterpreterResult result = interpret(graph, leaves);
    const HostTensor& logits = result.outputs.at("logits");
    for (std::size_t i = 0; i < logits.data.size(); ++i)
      ASSERT_NEAR(logits.data[i], whole.data[done * static_cast<std::size_t>(vocab) + i], 1e-9) << done;
    {
      Graph one;
      const models::LlamaDecode last{
          .position = one.input("position", {1}, DType::i32), .capacity = 16, .row = one.input("row", {1}, DType::i32)};
      one.output("logits", models::llama_decode(one.input("ids", {1, rows}, DType::i32), last, model.config()));
      leaves.insert_or_assign("row", ints({1}, {static_cast<std::int32_t>(rows) - 1}));
      const HostTensor row = interpret(one, leaves).outputs.at("logits");
      EXPECT_EQ(row.type.shape, (Shape{1, 1, vocab}));
      EXPECT_TRUE(std::equal(row.data.begin(), row.data.end(), logits.data.end() - vocab));
    }
    for (auto& [name, value] : result.assigned) leaves.insert_or_assign(name, std::move(value));
    done += static_cast<std::size_t>(rows);
  }
}

// ---- the same model as a folder of Hugging Face

std::string hugging_face_name(std::string name, const TinyModel& m) {
  const std::pair<std::string, std::string> parts[] = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"ffn_norm", m.gemma() ? "pre_feedforward_layernorm" : "post_attention_layernorm"},
      {"ffn_up", m.is("phi3") ? "mlp.gate_up_proj" : "mlp.up_proj"}};
  if (name == "output.weight") return "lm_head.weight";
  std::string prefix;
  if (name.starts_with("blk.")) {
    const std::size_t dot = name.find('.', 4);
    prefix = "model.layers." + name.substr(4, dot - 4) + ".";
    name = name.substr(dot + 1);
  }
  const std::string stem = name.substr(0, name.find('.')), rest = name.substr(name.find('.'));
  for (const auto& [from, to] : parts)
    if (stem == from) return prefix + to + rest;
  ADD_FAILURE() << name;
  return name;
}

nlohmann::json hugging_face_config(const TinyModel& m, std::int64_t vocab) {
  nlohmann::json c = {{"model_type", m.is("gemma3") ? "gemma3_text" : m.architecture},
                      {"vocab_size", vocab},
                      {"hidden_size", m.hidden},
                      {"num_hidden_layers", m.layers},
                      {"num_attention_heads", m.heads},
                      {"num_key_value_heads", m.kv_heads},
                      {"intermediate_size", m.ffn},
                      {"head_dim", m.head_dim},
                      {"max_position_embeddings", m.context},
                      {"rms_norm_eps", m.eps},
                      {"rope_theta", m.base},
                      {"rope_scaling", nullptr},
                      {"torch_dtype", "float32"}};
  if (m.window > 0) c["sliding_window"] = m.window;
  if (m.llama3_scaling)
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  if (m.is("gemma2"))
    c["attn_logit_softcapping"] = 5.0, c["final_logit_softcapping"] = 3.0, c["query_pre_attn_scalar"] = m.head_dim;
  if (m.is("gemma3")) c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  if (m.is("qwen2")) c["use_sliding_window"] = false, c["sliding_window"] = 4;
  return c;
}

/// Two files and an index.
void write_hugging_face(const TempDir& dir, const TinyModel& m,
                        const std::function<void(nlohmann::json&, nlohmann::json&)>& change = {}) {
  std::vector<std::pair<std::string, Literal>> tensors;
  for (const auto& [name, value] : tiny_tensors(m)) {
    if (name == "rope_freqs.weight") continue;
    std::vector<double> v = value.to_doubles();
    const auto width = static_cast<std::size_t>(value.type().shape[value.type().shape.rank() - 1]);
    if (m.is("llama") && (name.contains("attn_q.") || name.contains("attn_k."))) {  // neighbours become halves
      const auto d = static_cast<std::size_t>(m.head_dim);
      const std::vector<double> old = v;
      for (std::size_t row = 0; row < v.size() / width; ++row) {
        const std::size_t i = row % d, from = row - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
        std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                    v.begin() + static_cast<std::ptrdiff_t>(row * width));
      }
    }
    if (m.gemma() && name.ends_with("norm.weight"))
      for (double& x : v) x -= 1;
    tensors.emplace_back(hugging_face_name(name, m), Literal::from_doubles(value.type(), v));
  }
  nlohmann::json index;
  for (const std::size_t part : {0u, 1u}) {
    std::vector<SafetensorsTensor> some;
    const std::string file = part == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    for (std::size_t i = part; i < tensors.size(); i += 2) {
      some.push_back({tensors[i].first, tensors[i].second.type(), tensors[i].second.bytes()});
      index["weight_map"][tensors[i].first] = file;
    }
    write_safetensors(dir / file, some);
  }
  nlohmann::json config = hugging_face_config(m, tensors[0].second.type().shape[0]);
  if (change) change(config, index);
  dir.write("config.json", config.dump());
  dir.write("model.safetensors.index.json", index.dump());
  dir.write("tokenizer.json", fixture("gpt2").dump());
  dir.write(
      "tokenizer_config.json",
      R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>", "chat_template": "<|im_start|>"})");
  dir.write("generation_config.json", R"({"eos_token_id": [2, 3]})");
}

TinyModel plain_model(std::string architecture) {
  TinyModel m = tiny_model(std::move(architecture));
  m.all_f32 = true;
  m.hidden = 64;
  m.ffn = 96;
  m.head_dim = 16;
  return m;
}

TEST_P(LanguageModels, FromHuggingFaceAreTheSame) {
  TinyModel tiny = plain_model(GetParam());
  tiny.llama3_scaling = tiny.is("llama");
  const TempDir dir;
  write_hugging_face(dir, tiny);
  const LanguageModel model = LanguageModel::load_hugging_face(dir.path());
  EXPECT_LT(largest_difference(full_logits(model, weights_of(model), kIds),
                               TinyReference(tiny, tiny_tensors(tiny)).logits(kIds)),
            2e-6);
  EXPECT_EQ(model.tokenizer().eos(), model.tokenizer().find("<|im_end|>"));
  EXPECT_EQ(model.tokenizer().bos(), model.tokenizer().find("<|endoftext|>"));
  EXPECT_EQ(model.tokenizer().ends().size(), 4u) << "<|endoftext|>, <|im_end|>, 2 and 3";
  EXPECT_EQ(model.chat_template().family(), ChatTemplate::Family::ChatMl);
}

TEST(LanguageModel, Llama3ScalingOfGguf) {
  TinyModel tiny = plain_model("llama");
  tiny.llama3_scaling = true;
  tiny.base = 500000;
  const TempDir dir;
  write_tiny_gguf(dir / "m.gguf", tiny);
  const LanguageModel model = LanguageModel::load_gguf(dir / "m.gguf");
  EXPECT_EQ(model.config().rope_scaling.kind, RopeScaling::Kind::Llama3);
  EXPECT_EQ(model.config().rope_scaling.factor, 8);
  EXPECT_LT(largest_difference(full_logits(model, weights_of(model), kIds),
                               TinyReference(tiny, tiny_tensors(tiny)).logits(kIds)),
            2e-6);
}

TEST(LanguageModel, SixteenBitWeightsAreWidened) {
  TinyModel tiny = plain_model("qwen3");
  const TempDir dir;
  std::vector<GgufTensor> tensors;
  auto values = tiny_tensors(tiny);
  for (auto& [name, value] : values) {
    value = Literal::from_doubles({name.contains("ffn") ? DType::f16 : DType::bf16, value.type().shape},
                                  value.to_doubles());
    tensors.push_back(gguf_tensor(name, value));
  }
  write_gguf(dir / "m.gguf", tensors, tiny_metadata(tiny));
  const LanguageModel model = LanguageModel::load_gguf(dir / "m.gguf");
  for (const auto& [name, type] : model.parameters()) EXPECT_EQ(type.dtype, DType::f32) << name;
  EXPECT_EQ(model.weight("model.embed_tokens.weight").to_doubles(), values[0].second.to_doubles());
  EXPECT_LT(largest_difference(full_logits(model, weights_of(model), kIds), TinyReference(tiny, values).logits(kIds)),
            2e-6);
}

// ---- refusals

std::string gguf_refusal(
    ErrorCode code, const std::function<void(GgufMetadata&, std::vector<std::pair<std::string, Literal>>&)>& change,
    const std::string& architecture = "llama") {
  const TinyModel tiny = plain_model(architecture);
  GgufMetadata metadata = tiny_metadata(tiny);
  auto tensors = tiny_tensors(tiny);
  change(metadata, tensors);
  std::vector<GgufTensor> written;
  for (const auto& [name, value] : tensors) written.push_back(gguf_tensor(name, value));
  const TempDir dir;
  write_gguf(dir / "m.gguf", written, metadata);
  const std::string text = message_of(code, [&] { (void)LanguageModel::load_gguf(dir / "m.gguf"); });
  EXPECT_HAS(text, "m.gguf");
  return text;
}

void set(GgufMetadata& metadata, const std::string& key, GgufValue value) {
  std::erase_if(metadata, [&](const auto& item) { return item.first == key; });
  metadata.emplace_back(key, std::move(value));
}

TEST(LanguageModel, GgufRefusals) {
  using Metadata = GgufMetadata;
  using Tensors = std::vector<std::pair<std::string, Literal>>;
  const auto unsupported = [](auto change) { return gguf_refusal(ErrorCode::Unsupported, change); };
  const auto corrupt = [](auto change) { return gguf_refusal(ErrorCode::CorruptFile, change); };
  EXPECT_HAS(unsupported([](Metadata& m, Tensors&) { set(m, "general.architecture", GgufValue::text("mamba")); }),
             "the architecture 'mamba'");
  const auto all = unsupported([](Metadata& m, Tensors&) {
    set(m, "llama.new", GgufValue::integer(1));
    set(m, "llama.expert_count", GgufValue::integer(8));
    set(m, "llama.rope.scaling.type", GgufValue::text("longrope"));
    set(m, "other.key", GgufValue::integer(1));
    set(m, "split.count", GgufValue::integer(2));
  });
  for (const char* part : {"the key 'llama.new'", "experts", "'longrope'", "the key 'other.key'", "split.count"})
    EXPECT_HAS(all, part);
  EXPECT_HAS(unsupported([](Metadata&, Tensors& t) { t.emplace_back("blk.0.extra.weight", Literal::scalar(1)); }),
             "the tensor 'blk.0.extra.weight'");
  EXPECT_HAS(unsupported([](Metadata&, Tensors& t) { t.emplace_back("blk.9.attn_norm.weight", Literal::scalar(1)); }),
             "the tensor 'blk.9.attn_norm.weight'");
  EXPECT_HAS(unsupported([](Metadata&, Tensors& t) {
               t[1].second = Literal::from_doubles({DType::i32, {64}}, std::vector<double>(64));
             }),
             "i32 as the dtype of 'output_norm.weight'");
  EXPECT_HAS(
      unsupported([](Metadata&, Tensors& t) {
        t.emplace_back("rope_freqs.weight", Literal::from_doubles({DType::f32, {8}}, std::vector<double>(8, 3.0)));
      }),
      "rope_freqs.weight with other factors");
  EXPECT_HAS(corrupt([](Metadata&, Tensors& t) {
               std::erase_if(t, [](const auto& x) { return x.first == "blk.1.ffn_up.weight"; });
             }),
             "no tensors for model.layers.1.mlp.up_proj.weight");
  EXPECT_HAS(corrupt([](Metadata&, Tensors& t) {
               t[1].second = Literal::from_doubles({DType::f32, {63}}, std::vector<double>(63));
             }),
             "'output_norm.weight' is f32[63], where the model needs f32[64]");
  EXPECT_HAS(corrupt([](Metadata& m, Tensors&) { set(m, "llama.block_count", GgufValue::integer(1 << 19)); }),
             "524288 layers");
  EXPECT_HAS(corrupt([](Metadata& m, Tensors&) { set(m, "llama.embedding_length", GgufValue::integer(0)); }),
             "llama.embedding_length is 0, no size");
  EXPECT_HAS(corrupt([](Metadata& m, Tensors&) { set(m, "llama.context_length", GgufValue::text("x")); }),
             "'llama.context_length' is string");
  EXPECT_HAS(corrupt([](Metadata& m, Tensors&) { set(m, "llama.vocab_size", GgufValue::integer(5)); }),
             "but the embedding has");
  EXPECT_HAS(
      corrupt([](Metadata& m, Tensors&) { set(m, "llama.attention.layer_norm_rms_epsilon", GgufValue::number(0)); }),
      "no positive number");
  EXPECT_HAS(corrupt([](Metadata& m, Tensors&) { set(m, "llama.rope.freq_base", GgufValue::number(NAN)); }),
             "llama.rope.freq_base is nan");
  EXPECT_HAS(
      gguf_refusal(ErrorCode::InvalidArgument,
                   [](Metadata& m, Tensors&) { set(m, "llama.attention.head_count_kv", GgufValue::integer(3)); }),
      "cannot share 3");
}

TEST(LanguageModel, MutatedFilesLoadOrAreRefused) {
  TinyModel tiny = plain_model("gemma2");
  tiny.layers = 1;
  const TempDir dir;
  write_tiny_gguf(dir / "m.gguf", tiny);
  const std::string bytes = read_text(dir / "m.gguf");
  const std::size_t header = bytes.find("tokenizer.ggml.merges"), table = bytes.find("token_embd.weight");
  ASSERT_LT(header, bytes.size());
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string changed = bytes;
    // Mostly the model's own keys, then the table of tensors, then the tokenizer.
    const std::size_t first = i % 4 == 0 ? table : 0, size = i % 4 == 1 ? header : 700;
    for (unsigned n = 1 + random() % 2; n > 0; --n) {
      char& c = changed[first + random() % size];
      c = static_cast<char>(i % 3 == 0   ? 0xFF
                            : i % 3 == 1 ? random()
                                         : static_cast<unsigned char>(c) ^ (1u << random() % 8));
    }
    dir.write("c.gguf", changed);
    try {
      const LanguageModel model = LanguageModel::load_gguf(dir / "c.gguf");
      (void)model.tokenizer().encode("some text");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(LanguageModel, HuggingFaceRefusals) {
  using nlohmann::json;
  const auto refused = [](ErrorCode code, const std::function<void(json&, json&)>& change) {
    const TempDir dir;
    write_hugging_face(dir, plain_model("llama"), change);
    return message_of(code, [&] { (void)LanguageModel::load_hugging_face(dir.path()); });
  };
  const auto unsupported = [&](auto change) { return refused(ErrorCode::Unsupported, change); };
  const auto corrupt = [&](auto change) { return refused(ErrorCode::CorruptFile, change); };
  const auto all = unsupported([](json& c, json&) {
    c["new_key"] = 1;
    c["mlp_bias"] = true;
    c["hidden_act"] = "relu";
    c["quantization_config"] = {{"bits", 4}};
    c["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  });
  for (const char* part : {"\"new_key\"", "mlp_bias", "'relu'", "quantization_config", "'dynamic'"})
    EXPECT_HAS(all, part);
  EXPECT_HAS(unsupported([](json& c, json&) { c["model_type"] = "bert"; }), "the model_type 'bert'");
  EXPECT_HAS(unsupported([](json& c, json&) {
               c["sliding_window"] = 4, c["layer_types"] = {"full_attention", "sliding_attention"};
             }),
             "no regular order");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = "x"; }), "other types than it should");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = 0; }), "\"hidden_size\" of config.json is 0");
  EXPECT_HAS(corrupt([](json& c, json&) { c["num_hidden_layers"] = 1 << 20; }), "1048576 layers");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = "../other.safetensors"; }),
             "'../other.safetensors', which is not in the folder");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = ".."; }), "which is not in the folder");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = "model-00001-of-00002.safetensors"; }),
             "which does not have it");
  EXPECT_HAS(refused(ErrorCode::NotFound, [](json&, json& i) { i["weight_map"]["x"] = "absent.safetensors"; }),
             "absent.safetensors");
}

TEST(LanguageModel, EightBitFloatsAreRefused) {
  const TempDir dir;
  write_hugging_face(dir, plain_model("llama"));
  const SafetensorsFile file(dir / "model-00001-of-00002.safetensors");
  std::vector<Literal> values;
  std::vector<SafetensorsTensor> tensors;
  for (const auto& entry : file.tensors()) values.push_back(file.literal(entry.name));
  for (std::size_t i = 0; i < values.size(); ++i)
    tensors.push_back({file.tensors()[i].name, values[i].type(), values[i].bytes()});
  const std::vector<std::byte> bytes(static_cast<std::size_t>(tensors[0].type.shape.elements()));
  tensors[0].type.dtype = DType::f8e4m3;
  tensors[0].bytes = bytes;
  write_safetensors(dir / "model-00001-of-00002.safetensors", tensors);
  EXPECT_HAS(message_of(ErrorCode::Unsupported, [&] { (void)LanguageModel::load_hugging_face(dir.path()); }),
             "f8e4m3 as the dtype of '" + tensors[0].name + "'");
}

#ifndef _WIN32
/// The whole way: a folder in several files, from a hub, by the loader and by the program.
TEST(LanguageModel, FromAHub) {
  AESHNA_NEED_LIBCURL();
  const TempDir dir, cache;
  write_hugging_face(dir, plain_model("llama"));
  FakeHub hub;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    hub.files[entry.path().filename().string()] = read_text(entry.path());
  const std::filesystem::path folder = fetch_model("me/tiny", hub.options(cache.path()));
  const LanguageModel here = LanguageModel::load_hugging_face(dir.path()),
                      fetched = LanguageModel::load_hugging_face(folder);
  ASSERT_EQ(fetched.parameters(), here.parameters());
  for (const auto& [name, type] : here.parameters()) EXPECT_EQ(fetched.weight(name), here.weight(name)) << name;
  const std::string said = run_program({"info", folder.string()}).out;
  EXPECT_HAS(said, "language model, 2 layers of width 64");
  EXPECT_HAS(said, "model.layers.1.self_attn.q_proj.weight");
}
#endif

}  // namespace
}  // namespace aeshna::test
