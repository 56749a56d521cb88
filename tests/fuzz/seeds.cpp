#include "fuzz/seeds.h"

#include <functional>
#include <regex>

#include "aeshna/aeshna.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "gpu/device.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "nn/tiny_language_model.h"
#include "support/nnef_model.h"
#include "support/onnx_writer.h"
#include "support/temp_dir.h"

namespace aeshna::fuzz {

namespace {

using Files = std::map<std::string, std::string>;
constexpr const char* kNext = "\n~~~~\n";

Literal numbers(DType dtype, Shape shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        dtype == DType::boolean ? static_cast<double>(i % 2) : static_cast<double>(i % 7) - (is_float(dtype) ? 2.5 : 0);
  if (dtype_info(dtype).kind != DTypeInfo::Kind::Quantized) return Literal::from_doubles({dtype, shape}, values);
  return quantize(Literal::from_doubles({DType::f32, shape}, values), dtype);
}

/// The bytes of the file that `write` makes.
std::string written(const std::string& name, const std::function<void(const std::filesystem::path&)>& write) {
  const test::TempDir dir;
  write(dir / name);
  return test::read_text(dir / name);
}

// ---- files of tensors

std::string safetensors(const std::vector<std::pair<std::string, Literal>>& values,
                        const std::map<std::string, std::string, std::less<>>& metadata) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, value] : values) tensors.push_back({name, value.type(), value.bytes()});
  return written("a.safetensors", [&](const auto& path) { write_safetensors(path, tensors, metadata); });
}

Files safetensors_files() {
  std::vector<std::pair<std::string, Literal>> all;
  for (const DType d :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2, DType::i64, DType::i32,
        DType::i16, DType::i8, DType::u64, DType::u32, DType::u16, DType::u8, DType::boolean})
    all.emplace_back(dtype_name(d), numbers(d, {2, 1}));
  return {
      {"two", safetensors({{"a", numbers(DType::f32, {2, 3})}, {"b.w", numbers(DType::f16, {4})}}, {{"k", "v"}})},
      {"dtypes", safetensors(all, {})},
      {"odd", safetensors({{"scalar", Literal::scalar(1)}, {"none", numbers(DType::f32, {0, 4})}}, {{"", "\n\"\\"}})},
      {"empty", safetensors({}, {})}};
}

Files npy_files() {
  const auto file = [](const Literal& value) {
    return written("a.npy", [&](const auto& path) { write_npy(path, value); });
  };
  const auto by_hand = [](const std::string& header, const std::string& data) {
    std::string bytes = "\x93NUMPY\x02";
    bytes += std::string(1, '\0') + std::string(1, static_cast<char>(header.size())) + std::string(3, '\0');
    return bytes + header + data;
  };
  return {{"matrix", file(numbers(DType::f32, {2, 3}))},
          {"flags", file(numbers(DType::boolean, {3}))},
          {"scalar", file(Literal::scalar(7, DType::i64))},
          {"fortran", by_hand("{\"shape\": (2, 2, 1), 'fortran_order': True, 'descr': '<u2'}", "abcdefgh")},
          {"empty", by_hand("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5), }\n", "")}};
}

Files checkpoint_files() {
  Graph graph;  // that of read_checkpoint_file
  const Value x = graph.input("x", {2, 3});
  graph.output("loss", mean(mul(linear(x, graph.parameter("w", {2, 3}), graph.parameter("b", {2})), 2.0), {0, 1}));
  const Weights weights(graph, {.seed = 1, .device = Device(gpu::open_null({}))});
  Session session = compile(graph, weights, {.mode = Mode::Training, .optimizer = Adam{}});
  const std::vector<std::pair<std::string, Literal>> blocks = {{"w", numbers(DType::u8, {2, 34})}};
  return {{"training", written("a.safetensors", [&](const auto& path) { session.save(path, "extra \"text\""); })},
          {"weights", written("a.safetensors", [&](const auto& path) { weights.save(path); })},
          {"quantized", safetensors(blocks, {{"aeshna.quantized", R"({"w": "q8_0"})"}})},
          {"foreign",
           safetensors({{"w", numbers(DType::f32, {2, 3})}, {"b", numbers(DType::f32, {2})}}, {{"format", "pt"}})}};
}

// ---- data

std::string word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// gzip of one stored block: the same bytes with every version of zlib.
std::string gzip_stored(const std::string& text) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  const auto little = [](std::uint32_t v, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
    return out;
  };
  const auto size = static_cast<std::uint32_t>(text.size());
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x01", 11) + little(size, 2) + little(~size, 2) + text +
         little(~crc, 4) + little(size, 4);
}

Files data_files() {
  const std::string table = "1,2.5,-3e2\r\n4,5,6\n";
  std::string digits;
  for (const char* label : {"3\n", "9\n"}) {
    for (int i = 0; i < 64; ++i) digits += formatted("{},", i % 17);
    digits += label;
  }
  const std::string pictures = word(0x0803) + word(2) + word(1) + word(3) + "abcdef",
                    labels = word(0x0801) + word(2) + "\x07\x02";
  return {{"csv", table},
          {"digits", digits},
          {"csv_gz", gzip_stored(table) + gzip_stored("7,8,9\n")},
          {"idx", pictures + kNext + labels},
          {"idx_gz", gzip_stored(pictures) + kNext + labels}};
}

// ---- models of other programs

Files onnx_files() {
  using namespace test::proto;
  const auto external = [](const std::string& location, std::int64_t offset) {
    const auto entry = [](const std::string& key, const std::string& text) {
      return bytes(13, bytes(1, key) + bytes(2, text));
    };
    const std::string w = number(1, 2) + number(1, 2) + number(2, 1) + bytes(8, "w") + entry("location", location) +
                          entry("offset", std::to_string(offset)) + entry("length", "16") + number(14, 1);
    return model({{node("MatMul", {"x", "w"}, {"y"})}, {value("x", 1, {2, 2})}, {value("y", 1, {2, 2})}, {w}});
  };
  const std::string body =
      graph({{node("Add", {"i", "one"}, {"n"}), node("Identity", {"c"}, {"k"}), node("Add", {"s", "s"}, {"t"})},
             {value("i", 7, {}), value("c", 9, {}), value("s", 1, {2})},
             {value("k", 9, {}), value("t", 1, {2})},
             {tensor("one", 7, {}, raw(std::vector<std::int64_t>{1}))}});
  const std::string loop =
      model({{node("Loop", {"trips", "go", "x"}, {"y"}, {graph_attribute("body", body)})},
             {value("x", 1, {2})},
             {value("y", 1, {2})},
             {tensor("trips", 7, {}, raw(std::vector<std::int64_t>{3})), tensor("go", 9, {}, "\1")}});
  const std::string shapes = model(
      {{node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}), node("Unsqueeze", {"n", "axes"}, {"u"}),
        node("Concat", {"u", "minus"}, {"t"}, {attribute("axis", std::int64_t{0})}), node("Reshape", {"x", "t"}, {"r"}),
        node("Slice", {"r", "axes", "u"}, {"p"}), node("ConstantOfShape", {"t2"}, {"c"}),
        node("Range", {"zero", "n", "one"}, {"g"}), node("Expand", {"p", "t2"}, {"e"}), node("Add", {"e", "c"}, {"y"})},
       {value("x", 1, {2, 3, 2})},
       {value("y", 1, {2, 6})},
       {tensor("zero", 7, {}, raw(std::vector<std::int64_t>{0})),
        tensor("one", 7, {}, raw(std::vector<std::int64_t>{1})), ints("axes", {0}), ints("minus", {-1}),
        ints("t2", {2, 6})}});
  const std::string conv = model(
      {{node("Conv", {"x", "w"}, {"c"}, {integers("pads", {1, 1, 1, 1}), integers("strides", {2, 1})}),
        node("MaxPool", {"c"}, {"p"}, {integers("kernel_shape", {2, 2}), attribute("auto_pad", "SAME_UPPER")}),
        node("Resize", {"p", "", "scales"}, {"r"}, {attribute("mode", "linear")}), node("Pad", {"r", "pads"}, {"q"}),
        node("ReduceMean", {"q"}, {"m"}, {integers("axes", {2, 3}), attribute("keepdims", std::int64_t{0})}),
        node("Gemm", {"m", "g"}, {"y"}, {attribute("alpha", 0.5f), attribute("transB", std::int64_t{1})})},
       {value("x", 1, {1, 1, 4, 4})},
       {value("y", 1, {1, 3})},
       {floats("w", {2, 1, 3, 3}, std::vector<float>(18, 1)), floats("scales", {4}, {1, 1, 2, 2}),
        ints("pads", {0, 0, 1, 0, 0, 0, 0, 1}), floats("g", {3, 2}, std::vector<float>(6, 1))}});
  const std::string weights(32, 'w');
  return {{"fields", sample_model()},
          {"external", external("w.bin", 8) + kNext + weights},
          {"outside", external("../outside.bin", 0)},
          {"link", external("link.bin", 0)},
          {"loop", loop},
          {"shapes", shapes},
          {"conv", conv}};
}

Files nnef_files() {
  const std::string a = test::tensor_file(numbers(DType::f32, {2, 2, 1, 1})),
                    b = test::tensor_file(numbers(DType::f32, {2, 2, 3, 3}));
  const std::string ops = test::one_input("[1, 2, 4, 4]", R"(w = variable<scalar>(shape = [2, 2, 1, 1], label = 'a');
c = conv(x, w, 0.0, padding = [(0, 0), (1, 1)], border = 'constant', stride = [1, 2], dilation = [1, 1], groups = 1);
n = local_response_normalization(c, size = [1, 2, 1, 1]);
d = deconv(n, w, padding = [(0, 0), (0, 0)]);
p = pad(d, padding = [(0, 0), (0, 0), (1, 0), (0, 1)], border = 'reflect');
m = multilinear_upsample(slice(p, axes = [2, 3], begin = [0, 0], end = [2, 0]), factor = [2, 2]);
t = transpose(tile(squeeze(mean_reduce(m, axes = [2]), axes = [2]), repeats = [1, 2, 1]), axes = [0, 2, 1]);
k = constant(shape = [1, 1, 4], value = [1.0, 2.0, 3.0, 4.0]);
u = matmul(t, k, transposeB = true);
y = select(gt(u, 0.5), clamp(u, 0.0, 1.0), u / 2.0);)");
  return {{"fragments", test::kSampleModel + kNext + a + kNext + b}, {"ops", ops + kNext + a}};
}

Files graph_files() {
  Graph every;
  {
    const Scope scope(every, "net \"1\"\\\n\x01");
    const Value x = every.input("x", {2, 3});
    const Value w =
        every.parameter("w", {4, 3}, {.init = Init::uniform(-0.1, 1e-300), .lr_scale = 0.1, .decay_scale = -0.0});
    const Value s = every.state("s", {2, 4}, DType::f32, Init::constant(0.5));
    const std::vector<double> halves = {1, -0.0};
    const Value c = every.constant(Literal::from_doubles({DType::f16, {2, 1}}, halves));
    const Value h = matmul(x, w, false, true).named("h");
    const Value y = mul(relu(h), cast(c, DType::f32));
    const Value p = pad(y, {0, 1}, {2, 0}, -1.0);
    every.mutable_node(y.id().node).precision = Precision::Full;
    every.mutable_node(p.id().node).segment = Segment::Backward;
    every.assign(s, y);
    every.mutable_node(every.assigns()[0]).segment = Segment::Update;
    every.output("y", y);
    every.output("padded", p);
  }
  Graph ops;
  const Value x = ops.input("x", {1, 4, 8});
  const Value q = reshape(x, {1, 2, 4, 4});
  const Value a = attention(q, q, q, {.causal = true});
  const Value n = layer_norm(reshape(a, {1, 4, 8}), ops.parameter("g", {8}), ops.parameter("b", {8}));
  const Value t = gather(softmax(n), ops.input("i", {3}, DType::i32), 1);
  ops.output("y", sum(concat({slice(t, {0, 1}, {0, 1}, {1, 3}), t}, 1), {2}));
  const auto text = [](const Graph& g) {  // with one line of a builder, since ours move
    static const std::regex line("@\"[^\"]*\":[0-9]+");
    return std::regex_replace(g.print(), line, "@\"a.cpp\":1");
  };
  return {{"every", text(every)}, {"ops", text(ops)}};
}

// ---- language models

std::string gguf(const std::vector<std::pair<std::string, Literal>>& values, const GgufMetadata& metadata,
                 std::uint32_t version = 3) {
  std::vector<GgufTensor> tensors;
  for (const auto& [name, value] : values) tensors.push_back(test::gguf_tensor(name, value));
  return written("a.gguf", [&](const auto& path) { write_gguf(path, tensors, metadata, version); });
}

constexpr std::int64_t kTokens = 12;

/// A tokenizer of a dozen tokens in place of the tests' own.
void set_tokenizer(GgufMetadata& metadata, const std::string& model) {
  std::erase_if(metadata, [](const auto& item) { return item.first.starts_with("tokenizer.ggml."); });
  const auto add = [&](const char* key, GgufValue value) {
    metadata.emplace_back(std::string("tokenizer.ggml.") + key, std::move(value));
  };
  add("model", GgufValue::text(model));
  if (model == "gpt2") {
    add("pre", GgufValue::text("gpt-2"));
    add("tokens",
        GgufValue::texts({"H", "e", "l", "o", "\xC4\xA0", "\xC4\x8A", "ll", "He", "Hell", "w", "<s>", "<|im_end|>"}));
    add("token_type", GgufValue::ints(std::vector<std::int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3}));
    add("merges", GgufValue::texts({"l l", "H e", "He ll"}));
  } else {
    add("tokens", GgufValue::texts({"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81", "H", "e", "l", "o", "ll",
                                    "\xE2\x96\x81H", "lo"}));
    add("token_type", GgufValue::ints(std::vector<std::int32_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 1}));
    add("scores", GgufValue::floats(std::vector<float>{0, 0, 0, 0, -1, -2, -3, -4, -5, -6, -7, -8.5f}));
    add("add_space_prefix", GgufValue::flag(true));
    add("unknown_token_id", GgufValue::integer(0));
  }
  add("bos_token_id", GgufValue::integer(model == "gpt2" ? 10 : 1));
  add("eos_token_id", GgufValue::integer(model == "gpt2" ? 11 : 2));
  add("add_bos_token", GgufValue::flag(true));
}

std::string language_model(const std::string& architecture, const std::string& tokenizer) {
  test::TinyModel m = test::tiny_model(architecture);
  m.all_f32 = true;
  m.llama3_scaling = m.is("llama");
  m.hidden = 4, m.heads = 2, m.kv_heads = 1, m.head_dim = 2, m.ffn = 4, m.layers = 1;
  GgufMetadata metadata = test::tiny_metadata(m);
  set_tokenizer(metadata, tokenizer);
  auto tensors = test::tiny_tensors(m);
  for (auto& [name, value] : tensors) {
    if (name != "token_embd.weight" && name != "output.weight") continue;
    const auto bytes = value.bytes().first(static_cast<std::size_t>(4 * kTokens * m.hidden));
    value = Literal({DType::f32, {kTokens, m.hidden}}, {bytes.begin(), bytes.end()});
  }
  return gguf(tensors, metadata);
}

Files gguf_files() {
  std::vector<std::pair<std::string, Literal>> all = {{"scalar", Literal::scalar(3)},
                                                      {"empty", numbers(DType::f32, {0, 4})}};
  for (const DType d : {DType::f16, DType::bf16, DType::i32, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0})
    all.emplace_back(dtype_name(d), numbers(d, {1, 32}));
  all.emplace_back("q4_K", numbers(DType::q4_K, {256}));
  all.emplace_back("q6_K", numbers(DType::q6_K, {256}));
  const GgufMetadata metadata = {
      {"flag", GgufValue::flag(true)},
      {"eps", GgufValue::number(1e-5f)},
      {"names", GgufValue::texts({"a", "", "\n\xE2\x96\x81z"})},
      {"scores", GgufValue::floats(std::vector<float>{0, -1.5f})},
      {"wide", {.type = GgufType::i64, .numbers = std::vector<std::byte>(8, std::byte{255})}},
      {"general.alignment", GgufValue::integer(8)}};
  Files files = {{"types", gguf(all, metadata)}, {"version2", gguf({{"a", Literal::scalar(1)}}, {}, 2)}};
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"})
    files[architecture] =
        language_model(architecture, std::string_view(architecture).starts_with("q") ? "gpt2" : "llama");
  GgufMetadata unigram;
  set_tokenizer(unigram, "t5");
  files["unigram"] = gguf({}, unigram);
  return files;
}

/// A fixture with few tokens: those that begin its vocabulary and all that can be merged from them.
std::string small_tokenizer(const std::string& name) {
  nlohmann::json data = test::fixture(name);
  nlohmann::json& model = data["model"];
  std::int64_t next = 0;
  if (model["vocab"].is_array()) {  // unigram: [text, score]
    nlohmann::json few = nlohmann::json::array();
    for (const auto& entry : model["vocab"])
      if (few.size() < 12) few.push_back(entry);
    model["vocab"] = few;
    next = 12;
  } else {
    nlohmann::json vocab = nlohmann::json::object();
    const auto keep = [&](const std::string& text) {
      if (model["vocab"].contains(text) && !vocab.contains(text)) vocab[text] = next++;
    };
    for (const char* text : {"<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "\xE2\x96\x81", "\xC4\xA0", "t", "h", "e", "a",
                             "l", "o", "r", "i", "s"})
      keep(text);
    nlohmann::json merges = nlohmann::json::array();
    for (const auto& merge : model["merges"]) {
      std::string left, right;
      if (merge.is_array()) {
        left = merge[0], right = merge[1];
      } else {
        const auto text = merge.get<std::string>();
        left = text.substr(0, text.find(' ', 1)), right = text.substr(text.find(' ', 1) + 1);
      }
      if (!vocab.contains(left) || !vocab.contains(right) || merges.size() >= 12) continue;
      keep(left + right);
      merges.push_back(merge);
    }
    model["vocab"] = vocab;
    model["merges"] = merges;
  }
  std::map<std::int64_t, std::int64_t> moved;
  for (nlohmann::json& token : data["added_tokens"]) {
    std::int64_t id = -1;
    if (model["vocab"].is_array()) {
      id = token["id"].get<std::int64_t>() < next ? token["id"].get<std::int64_t>() : next++;
    } else {
      const auto found = model["vocab"].find(token["content"].get<std::string>());
      id = found != model["vocab"].end() ? found->get<std::int64_t>() : next++;
    }
    moved[token["id"].get<std::int64_t>()] = id;
    token["id"] = id;
  }
  const std::function<void(nlohmann::json&)> renumber = [&](nlohmann::json& j) {  // the post-processor's ids
    if (j.is_object() && j.contains("ids"))
      for (nlohmann::json& id : j["ids"])
        if (moved.contains(id.get<std::int64_t>())) id = moved[id.get<std::int64_t>()];
    for (auto& item : j.items())
      if (item.value().is_structured()) renumber(item.value());
  };
  renumber(data["post_processor"]);
  return data.dump();
}

Files tokenizer_files() {
  Files files;
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm", "llama2", "gemma", "unigram"})
    files[name] = small_tokenizer(name);
  files["gpt2"] += std::string(kNext) + "the other\r\n\t 12";
  return files;
}

Files hugging_face_files() {
  const auto config = [](const std::string& type, const std::string& more) {
    return formatted(
        "{{\"model_type\": \"{}\", \"vocab_size\": 5, \"hidden_size\": 4, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"intermediate_size\": 6, \"head_dim\": 2, "
        "\"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"torch_dtype\": "
        "\"float32\"{}}}",
        type, more);
  };
  std::string index = "{\"metadata\": {}, \"weight_map\": {\"model.norm.weight\": \"model.safetensors\"";
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"})
    index += formatted(", \"model.layers.0.{}.weight\": \"norms.safetensors\"", norm);
  index += "}}";
  return {
      {"llama",
       config("llama",
              ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
              "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}, \"tie_word_embeddings\": true") +
           kNext + kNext + R"({"eos_token": {"content": "a"}, "bos_token": "b", "chat_template": "<|im_start|>"})" +
           kNext + R"({"eos_token_id": [2, 3]})"},
      {"mistral", config("mistral", ", \"sliding_window\": 4, \"hidden_act\": \"silu\", \"eos_token_id\": 1")},
      {"yarn",
       config("llama",
              ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"attention_factor\": 1.2}, "
              "\"partial_rotary_factor\": 1.0, \"layer_types\": [\"full_attention\"], \"rope_parameters\": null")},
      {"gemma2",
       config("gemma2",
              ", \"attn_logit_softcapping\": 5.0, \"final_logit_softcapping\": 3.0, \"query_pre_attn_scalar\": 2, "
              "\"sliding_window\": 4") +
           kNext + index}};
}

Files chat_files() {
  const auto talk = [](const std::string& jinja) {
    return jinja + kNext + " Hi <|im_end|><s>" + kNext + "Hello\n" + kNext + "[INST] why? </s><end_of_turn>";
  };
  return {
      {"chatml", talk("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a test.<|im_end|>\\n' "
                      "}}{% endif %}{% for "
                      "message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                      "'<|im_end|>' + '\\n'}}{% "
                      "endfor %}")},
      {"llama3",
       talk("{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + "
            "'<|eot_id|>' }}Cutting Knowledge Date")},
      {"gemma", talk("{{ bos_token }}first_user_prefix <start_of_turn>")},
      {"mistral", talk("{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + "
                       "eos_token + ' ' }}")},
      {"mistral3",
       talk("{{ bos_token }}{% if loop.last and system_message is defined %}{{ '[INST] ' + system_message + '\\n\\n' + "
            "message['content'] + '[/INST]' }}{{ ' ' + message['content'] + eos_token }}")},
      {"phi3", talk("{{'<|user|>' '<|assistant|>' '<|end|>'}}")}};
}

}  // namespace

std::map<std::string, std::string> seeds(std::string_view target) {
  static const std::map<std::string_view, Files (*)()> makers = {
      {"chat", chat_files},   {"checkpoint", checkpoint_files},     {"data", data_files},          {"gguf", gguf_files},
      {"graph", graph_files}, {"hugging_face", hugging_face_files}, {"nnef", nnef_files},          {"npy", npy_files},
      {"onnx", onnx_files},   {"safetensors", safetensors_files},   {"tokenizer", tokenizer_files}};
  return makers.at(target)();
}

}  // namespace aeshna::fuzz
