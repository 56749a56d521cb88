// What comes with language models: GGUF files, tokenizers, configurations, chat templates.
#include <algorithm>
#include <optional>

#include "aeshna/chat.h"
#include "aeshna/language_model.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "fuzz/target.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "ir/verify.h"
#include "nn/tokenizer/load.h"

namespace aeshna::fuzz {

namespace {

constexpr std::string_view kText =
    "Hello, world! 12345 \xC3\xA9\xE2\x96\x81 <s></s><|im_end|>\n\n  x \xFF\xF0\x9F\x98\x80 it's";

/// Texts become ids of the vocabulary and come back without harm.
void check_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.special = special});
    for (const std::int32_t id : ids)
      require(id >= 0 && id < tokenizer.size(), formatted("the id {} of {}", id, tokenizer.size()));
    const std::string decoded = tokenizer.decode(ids, special);
    TextStream stream(tokenizer, special);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    require(streamed + stream.finish() == decoded, "token by token another text than at once");
  }
  for (const std::int32_t id : tokenizer.ends()) require(id >= 0 && id < tokenizer.size(), "an end outside");
}

void check_model(const LanguageModel& model) {
  Graph graph;
  graph.output("logits", models::llama(graph.input("ids", {1, 2}, DType::i32), model.config()));
  verify(graph, "load");
  for (const auto& [name, type] : model.parameters()) {
    const Literal value = model.weight(name);
    require(value.type() == type && value.bytes().size() == static_cast<std::size_t>(type.bytes()),
            "a weight of another type: " + name);
  }
  check_tokenizer(model.tokenizer(), kText);
  if (model.has_chat_template()) {
    const std::vector<ChatMessage> talk = {{"user", "Hi"}};
    (void)model.tokenizer().encode(model.chat_template().render(talk, model.tokenizer()), false);
  }
}

bool same(const GgufFile& a, const GgufFile& b) {
  if (a.metadata() != b.metadata() || a.version() != b.version() || a.tensors().size() != b.tensors().size())
    return false;
  for (std::size_t i = 0; i < a.tensors().size(); ++i) {
    const GgufEntry &x = a.tensors()[i], &y = b.tensors()[i];
    if (x.name != y.name || x.type != y.type || a.read(x) != b.read(y)) return false;
  }
  return true;
}

}  // namespace

void read_gguf(Bytes input) {
  static const Folder folder("gguf");
  const GgufFile file({input.begin(), input.end()}, "fuzz.gguf");
  std::vector<GgufTensor> tensors;
  for (const GgufEntry& entry : file.tensors()) {
    require(file.find_tensor(entry.name) == &entry, "a tensor is not found by its name");
    const Literal value = file.literal(entry.name);
    require(value.bytes().size() == entry.bytes && value.type() == entry.type, "a tensor of another length");
    tensors.push_back({entry.name, entry.type, [&file, &entry] { return file.read(entry); }});
  }
  for (const auto& [key, value] : file.metadata()) (void)value.to_string();

  if (file.alignment() * (tensors.size() + 1) <= 4u << 20) {  // the padding is not what is tested
    try {
      write_gguf(folder / "again.gguf", tensors, file.metadata(), file.version());
    } catch (const Error& e) {
      throw Violation(formatted("what was read is not written: {}", e.what()));
    }
    const GgufFile again(folder / "again.gguf");
    require(same(file, again), "another file after writing and reading");
  }
  if (file.find("general.architecture") == nullptr && file.find("tokenizer.ggml.model") == nullptr) return;
  folder.put("fuzz.gguf", input);
  Attempts attempts;
  attempts.attempt([&] { check_tokenizer(Tokenizer(tokenizer_of_gguf(file)), kText); });
  attempts.attempt([&] { check_model(LanguageModel::load_gguf(folder / "fuzz.gguf")); });
  attempts.finish();
}

void read_tokenizer_json(Bytes input) {
  const std::vector<Bytes> parts = parts_of(input);
  const Tokenizer tokenizer(tokenizer_of_json(text_of(parts[0]), "fuzz.json"));
  check_tokenizer(tokenizer, parts.size() > 1 ? text_of(parts[1]) : kText);
}

namespace {

constexpr std::int64_t kHidden = 4, kVocab = 5, kFfn = 6;

/// A folder with what the inputs do not have: a vocabulary of five letters, and the weights of one layer of every architecture.
const Folder& hugging_face_folder() {
  static const Folder folder = [] {
    Folder made("fuzz_model");
    const std::string tokenizer =
        R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": {"a": 0, "b": 1, "l": 2, "o": 3, "e": 4}, "merges": []}})";
    made.put("tokenizer.json", std::as_bytes(std::span(tokenizer)));
    const std::vector<std::byte> zeros(4 * kFfn * kHidden);
    std::vector<SafetensorsTensor> tensors;
    const auto add = [&](std::string name, Shape shape) {
      const TensorType type{DType::f32, shape};
      tensors.push_back({std::move(name), type, std::span(zeros).first(static_cast<std::size_t>(type.bytes()))});
    };
    add("model.embed_tokens.weight", {kVocab, kHidden});
    add("model.norm.weight", {kHidden});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      add(formatted("model.layers.0.{}.weight", norm), {kHidden});
    for (const char* name : {"q", "k", "v", "o"})
      add(formatted("model.layers.0.self_attn.{}_proj.weight", name), {kHidden, kHidden});
    add("model.layers.0.mlp.gate_proj.weight", {kFfn, kHidden});
    add("model.layers.0.mlp.up_proj.weight", {kFfn, kHidden});
    add("model.layers.0.mlp.down_proj.weight", {kHidden, kFfn});
    write_safetensors(made / "model.safetensors", tensors);
    std::vector<SafetensorsTensor> norms;  // what Gemma has beyond the others
    for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      const TensorType type{DType::f32, {kHidden}};
      norms.push_back({formatted("model.layers.0.{}.weight", norm), type, std::span(zeros).first(4 * kHidden)});
    }
    write_safetensors(made / "norms.safetensors", norms);
    return made;
  }();
  return folder;
}

}  // namespace

void read_hugging_face(Bytes input) {
  const Folder& folder = hugging_face_folder();
  const std::vector<Bytes> parts = parts_of(input);
  static constexpr std::string_view files[] = {"config.json", "model.safetensors.index.json", "tokenizer_config.json",
                                               "generation_config.json"};
  for (std::size_t i = 0; i < std::size(files); ++i) {
    if (i < parts.size() && !parts[i].empty()) {
      folder.put(files[i], parts[i]);
    } else {
      folder.remove(files[i]);
    }
  }
  check_model(LanguageModel::load_hugging_face(folder.path()));
}

namespace {

/// All bytes, and the control tokens of the known formats.
const Tokenizer& byte_tokenizer() {
  static const Tokenizer tokenizer = [] {
    TokenizerSpec spec;
    spec.name = "bytes";
    for (int b = 0; b < 256; ++b) spec.tokens.push_back({.text = std::string(1, static_cast<char>(b))});
    for (const char* text :
         {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
          "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"})
      spec.tokens.push_back({.text = text, .kind = Token::Kind::Control});
    spec.bos = 256;
    spec.eos = 257;
    return Tokenizer(spec);
  }();
  return tokenizer;
}

}  // namespace

void read_chat_template(Bytes input) {
  const std::vector<Bytes> parts = parts_of(input);
  const ChatTemplate format = ChatTemplate::recognise(text_of(parts[0]));
  const auto controls = [&](bool innocent) {
    std::vector<ChatMessage> messages;
    for (std::size_t i = 1; i < std::max<std::size_t>(parts.size(), 2); ++i) {
      const std::string content(i < parts.size() && !innocent ? text_of(parts[i]) : "x");
      messages.push_back({i % 2 == 1 ? "user" : "assistant", content});
    }
    const auto ids = byte_tokenizer().encode(format.render(messages, byte_tokenizer()), false);
    return std::ranges::count_if(ids, [](std::int32_t id) { return id >= 256; });
  };
  require(controls(false) == controls(true), "a message's text became control tokens");
}

}  // namespace aeshna::fuzz
