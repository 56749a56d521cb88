#include "aeshna/language_model.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "base/quant.h"
#include "io/safetensors.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"
#include "nn/language_model_support.h"
#include "runtime/session_impl.h"
#include "support/expect_error.h"
#include "support/fake_hub.h"
#include "support/graph_values.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

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

TEST(LanguageModel, SixteenBitMatricesStayVectorsAreWidened) {
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
  for (const auto& [name, type] : model.parameters()) {
    const DType matrix = name.find("mlp") != std::string::npos ? DType::f16 : DType::bf16;
    EXPECT_EQ(type.dtype, type.shape.rank() == 2 ? matrix : DType::f32) << name;
  }
  EXPECT_EQ(model.weight("model.embed_tokens.weight").to_doubles(), values[0].second.to_doubles());
  EXPECT_LT(largest_difference(full_logits(model, weights_of(model), kIds), TinyReference(tiny, values).logits(kIds)),
            2e-6);
}

// A copy of the weights in f32 would be a kernel of its own: none is added, neither to a prompt nor to a token.
TEST(LanguageModelNullDevice, SixteenBitMatricesAreReadAsTheyAre) {
  for (const std::int64_t rows : {1, 7}) {
    const auto steps = [&](DType dtype) {
      models::LlamaConfig c{
          .vocab = 97, .hidden = 64, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96};
      Graph names;
      models::llama(names.input("ids", {1, rows}, DType::i32), c);
      for (const Node& node : names.nodes())
        if (is_parameter(node) && node.results[0].shape.rank() == 2) c.dtypes[node.name] = dtype;
      Graph graph;
      const Value ids = graph.input("ids", {1, rows}, DType::i32);
      const models::LlamaDecode decode{.position = graph.input("position", {1}, DType::i32), .capacity = 32};
      graph.output("logits", models::llama_decode(ids, decode, c));
      Weights weights(Device{DeviceRequest{.selector = "null"}});
      return compile(graph, weights).impl().plan.steps.size();
    };
    EXPECT_EQ(steps(DType::f16), steps(DType::f32)) << rows;
    EXPECT_EQ(steps(DType::bf16), steps(DType::f32)) << rows;
  }
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
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = "x"; }), "\"hidden_size\" of config.json is \"x\", no");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = 64.5; }), "\"hidden_size\" of config.json is 64.5, no");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = 18446744073709551615u; }), "no whole number");
  EXPECT_HAS(corrupt([](json& c, json&) { c["rms_norm_eps"] = "x"; }), "'rms_norm_eps' is string, not a number");
  EXPECT_HAS(corrupt([](json& c, json&) { c["mlp_bias"] = 1; }), "'mlp_bias' is number, not true or false");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_act"] = 1; }), "'hidden_act' is number, not a string");
  EXPECT_HAS(corrupt([](json& c, json&) { c["layer_types"] = {1}; }), "'layer_types[0]' is number, not a string");
  EXPECT_HAS(corrupt([](json& c, json&) { c["rope_scaling"] = "x"; }), "'rope_scaling' is string, not an object");
  EXPECT_HAS(corrupt([](json& c, json&) {
               c["rope_scaling"] = {{"type", "linear"}, {"factor", "x"}};
             }),
             "'rope_scaling.factor' is string, not a number");
  EXPECT_HAS(unsupported([](json& c, json&) {
               c["rope_scaling"] = {{"type", "yarn"}, {"factor", 2.0}, {"truncate", false}};
             }),
             "\"rope_scaling.truncate\" of config.json");
  EXPECT_HAS(unsupported([](json& c, json&) {
               c["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e6}}}};
             }),
             "\"rope_parameters.full_attention\" of config.json");
  EXPECT_HAS(corrupt([](json& c, json&) {
               c["rope_parameters"] = {{"partial_rotary_factor", 2.0}};
             }),
             "\"partial_rotary_factor\" of config.json is 2");
  EXPECT_HAS(corrupt([](json& c, json&) { c["rope_theta"] = 0; }), "\"rope_theta\" of config.json is 0, no positive");
  EXPECT_HAS(corrupt([](json& c, json&) { c["partial_rotary_factor"] = 1e300; }), "\"partial_rotary_factor\"");
  EXPECT_HAS(corrupt([](json& c, json&) { c["query_pre_attn_scalar"] = -1; }), "no positive number");
  EXPECT_HAS(corrupt([](json& c, json&) { c["hidden_size"] = 0; }), "\"hidden_size\" of config.json is 0");
  EXPECT_HAS(corrupt([](json& c, json&) { c["num_hidden_layers"] = 1 << 20; }), "1048576 layers");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = "../other.safetensors"; }),
             "'weight_map.x' is '../other.safetensors', no file of the folder");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = ".."; }), "'..', no file of the folder");
  EXPECT_HAS(corrupt([](json&, json& i) { i["weight_map"]["x"] = "model-00001-of-00002.safetensors"; }),
             "'x' is not in model-00001-of-00002.safetensors");
  EXPECT_HAS(refused(ErrorCode::NotFound, [](json&, json& i) { i["weight_map"]["x"] = "absent.safetensors"; }),
             "absent.safetensors");
}

TEST(LanguageModel, JsonNestedTenThousandDeep) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  const TempDir dir;
  write_hugging_face(dir, plain_model("llama"));
  for (const char* file : {"config.json", "model.safetensors.index.json", "tokenizer_config.json",
                           "generation_config.json", "tokenizer.json"}) {
    const std::string good = read_text(dir / file);
    dir.write(file, R"({"eos_token_id": )" + deep + ", " + good.substr(1));
    const std::string text =
        message_of(ErrorCode::CorruptFile, [&] { (void)LanguageModel::load_hugging_face(dir.path()); });
    EXPECT_HAS(text, std::string(file) + ": JSON nested deeper than 64 levels");
    dir.write(file, good);
  }
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
