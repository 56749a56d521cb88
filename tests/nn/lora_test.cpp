#include "nn/lora_support.h"

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/half.h"
#include "nn/language/merge.h"
#include "support/expect_error.h"

namespace aeshna::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Largest |a - b| of all logits.
double distance(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.data.size(), b.data.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) worst = std::max(worst, std::abs(a.data[i] - b.data.at(i)));
  return worst;
}

HostTensor logits(const LanguageModel& model) { return full_logits(model, weights_of(model), kIds); }

json read(const fs::path& path) {
  const auto bytes = read_file(path);
  return json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

class LoraModels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, LoraModels, testing::Values("llama", "qwen3", "gemma2", "phi3"),
                         [](const auto& info) { return info.param; });

/// One adapter file on the same base in both forms: GGUF's llama has other rows of q and k. The reference knows adapters only as the
/// weights that they make.
TEST_P(LoraModels, OneAdapterFitsBothForms) {
  const TempDir dir, folder;
  const TinyModel tiny = plain_model(GetParam());
  write_hugging_face(folder, tiny);
  write_tiny_gguf(dir / "m.gguf", tiny);
  const LanguageModel published = LanguageModel::load(folder.path()), gguf = LanguageModel::load(dir / "m.gguf");
  save_random_adapter(dir / "adapter", published, {.rank = 3, .alpha = 6});
  const LanguageModel a = published.with_adapter(dir / "adapter"), b = gguf.with_adapter(dir / "adapter");
  const HostTensor adapted = logits(a);
  EXPECT_LT(distance(adapted, logits(b)), 1e-6);
  EXPECT_GT(distance(adapted, logits(published)), 0.05);

  auto tensors = tiny_tensors(tiny);
  for (auto& [name, value] : tensors) {
    for (const auto& [linear, adapter] : b.config().adapters) {
      if (b.tensor_name(linear + ".weight") != name) continue;
      EXPECT_EQ(adapter.rank, 3);
      EXPECT_EQ(adapter.scale, 2);
      std::vector<double> w = value.to_doubles();
      const std::vector<double> down = b.weight(linear + ".lora_A.weight").to_doubles(),
                                up = b.weight(linear + ".lora_B.weight").to_doubles();
      const std::size_t in = down.size() / 3;
      for (std::size_t i = 0; i < w.size(); ++i)
        for (std::size_t r = 0; r < 3; ++r) w[i] += 2 * up[i / in * 3 + r] * down[r * in + i % in];
      value = Literal::from_doubles({DType::f64, value.type().shape}, w);
    }
  }
  EXPECT_LT(largest_difference(adapted, TinyReference(tiny, tensors).logits(kIds)), 2e-6);

  // Back to a file from the interleaved rows: the same bytes.
  save_lora(dir / "again", gguf, {.rank = 3, .alpha = 6}, [&](std::string_view name) { return b.weight(name); });
  EXPECT_EQ(read_file(dir / "adapter/adapter_model.safetensors"), read_file(dir / "again/adapter_model.safetensors"));
}

TEST_P(LoraModels, MergedEqualsAdapted) {
  const TempDir dir, folder;
  const TinyModel tiny = plain_model(GetParam());
  write_hugging_face(folder, tiny);
  write_tiny_gguf(dir / "m.gguf", tiny);
  const LanguageModel base = LanguageModel::load(dir / "m.gguf");
  save_random_adapter(dir / "adapter", base, {.rank = 4, .alpha = 3, .rank_stabilized = true});
  const LanguageModel tuned = base.with_adapter(dir / "adapter");
  EXPECT_EQ(tuned.config().adapters.begin()->second.scale, 1.5);
  const HostTensor want = logits(tuned);
  const auto report = merge_adapter(dir / "m.gguf", dir / "adapter", dir / "merged.gguf");
  EXPECT_LT(distance(logits(LanguageModel::load(dir / "merged.gguf")), want), 1e-5);
  EXPECT_EQ(std::ranges::count(report, true, &ConvertedTensor::edited),
            static_cast<std::ptrdiff_t>(tuned.config().adapters.size()));

  merge_adapter(folder.path(), dir / "adapter", dir / "merged");
  EXPECT_LT(distance(logits(LanguageModel::load(dir / "merged")), want), 1e-5);
  EXPECT_TRUE(fs::exists(dir / "merged/generation_config.json"));
}

TEST(Lora, FilesArePeftsOwn) {
  const TempDir dir;
  write_tiny_gguf(dir / "m.gguf", plain_model("llama"));
  const LanguageModel model = LanguageModel::load(dir / "m.gguf");
  save_random_adapter(dir / "a", model, {.rank = 2, .alpha = 5, .dropout = 0.25, .targets = {"v_proj", "mlp.up_proj"}});
  const json config = read(dir / "a/adapter_config.json");
  for (const auto& [key, value] : std::map<std::string, json>{{"peft_type", "LORA"},
                                                              {"task_type", "CAUSAL_LM"},
                                                              {"r", 2},
                                                              {"lora_alpha", 5},
                                                              {"lora_dropout", 0.25},
                                                              {"bias", "none"},
                                                              {"use_rslora", false},
                                                              {"target_modules", {"mlp.up_proj", "v_proj"}},
                                                              {"base_model_name_or_path", (dir / "m.gguf").string()}})
    EXPECT_EQ(config.at(key), value) << key;
  const SafetensorsFile file(dir / "a/adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 8u);
  const auto type = [&](const char* name) { return file.literal(name).type(); };
  EXPECT_EQ(type("base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"), (TensorType{DType::f32, {2, 64}}));
  EXPECT_EQ(type("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"), (TensorType{DType::f32, {32, 2}}));
  EXPECT_EQ(type("base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"), (TensorType{DType::f32, {96, 2}}));
  EXPECT_EQ(model.with_adapter(dir / "a").config().adapters.size(), 4u);

  // All linears, by their own names.
  save_random_adapter(dir / "b", model, {});
  EXPECT_EQ(read(dir / "b/adapter_config.json").at("target_modules"),
            json({"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
}

#ifdef AESHNA_PYTHON
TEST(Lora, PythonOpensTheFile) {
  const TempDir dir;
  write_tiny_gguf(dir / "m.gguf", plain_model("llama"));
  save_random_adapter(dir / "a", LanguageModel::load(dir / "m.gguf"), {.rank = 2, .targets = {"q_proj"}});
  const auto python = [&](const std::string& program) {
    return std::system(
        (std::string(AESHNA_PYTHON) + " -c \"" + program + "\" 2> /dev/null").c_str());  // NOLINT: a test
  };
  if (python("import numpy, safetensors.numpy") != 0) GTEST_SKIP() << AESHNA_PYTHON << " lacks numpy or safetensors";
  EXPECT_EQ(python("import json; from safetensors import safe_open\n"
                   "d = '" +
                   (dir / "a").string() +
                   "/'\n"
                   "f = safe_open(d + 'adapter_model.safetensors', 'np')\n"
                   "n = 'base_model.model.model.layers.0.self_attn.q_proj.lora_'\n"
                   "assert f.get_tensor(n + 'A.weight').shape == (2, 64) and len(f.keys()) == 4\n"
                   "assert f.get_tensor(n + 'B.weight').shape == (128, 2) and f.metadata()['format'] == 'pt'\n"
                   "assert json.load(open(d + 'adapter_config.json'))['target_modules'] == ['q_proj']\n"),
            0);
}
#endif

TEST(Lora, MergedBlocksKeepTheirTypes) {
  const TempDir dir;
  const TinyModel tiny = tiny_model("llama");  // matrices of all types
  write_tiny_gguf(dir / "m.gguf", tiny);
  const LanguageModel base = LanguageModel::load(dir / "m.gguf");
  save_random_adapter(dir / "a", base, {.rank = 2, .alpha = 2, .targets = {"o_proj", "k_proj"}});
  merge_adapter(dir / "m.gguf", dir / "a", dir / "merged.gguf");
  const GgufFile before(dir / "m.gguf"), after(dir / "merged.gguf");
  EXPECT_EQ(before.metadata(), after.metadata());
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  const LanguageModel tuned = base.with_adapter(dir / "a");
  std::set<std::string> merged;
  for (const auto& [linear, adapter] : tuned.config().adapters) merged.insert(tuned.tensor_name(linear + ".weight"));
  EXPECT_EQ(merged.size(), 4u);
  for (const GgufEntry& entry : before.tensors()) {
    EXPECT_EQ(after.find_tensor(entry.name)->type, entry.type) << entry.name;
    EXPECT_EQ(after.read(*after.find_tensor(entry.name)) != before.read(entry), merged.contains(entry.name))
        << entry.name;
  }
  // As floats the sum is exact to a rounding.
  for (const ConvertedTensor& t : merge_adapter(dir / "m.gguf", dir / "a", dir / "wide.gguf", DType::f32))
    EXPECT_EQ(t.to, DType::f32) << t.name;
  EXPECT_LT(distance(logits(LanguageModel::load(dir / "wide.gguf")), logits(tuned)), 1e-5);
  // A second one goes on top of the first.
  merge_adapter(dir / "wide.gguf", dir / "a", dir / "twice.gguf");
  EXPECT_GT(distance(logits(LanguageModel::load(dir / "twice.gguf")), logits(tuned)), 0.01);
}

TEST(Lora, MergedFolders) {
  const TempDir dir, folder;
  write_hugging_face(folder, plain_model("llama"), [](json& config, json&) { config["torch_dtype"] = "float32"; });
  const LanguageModel base = LanguageModel::load(folder.path());
  save_random_adapter(dir / "a", base, {.rank = 2});
  merge_adapter(folder.path(), dir / "a", dir / "out", DType::bf16);
  EXPECT_EQ(read(dir / "out/config.json").at("torch_dtype"), "bfloat16");
  std::uint64_t bytes = 0;
  for (const char* part : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    const SafetensorsFile file(dir / "out" / part);
    for (const auto& entry : file.tensors()) {
      bytes += entry.end - entry.begin;
      EXPECT_EQ(entry.type.dtype, entry.type.shape.rank() == 2 ? DType::bf16 : DType::f32) << entry.name;
    }
  }
  EXPECT_EQ(read(dir / "out/model.safetensors.index.json").at("metadata").at("total_size"), bytes);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  EXPECT_NE(LanguageModel::load(dir / "out").weight(name), base.weight(name));

  EXPECT_ERROR(merge_adapter(folder.path(), dir / "a", dir / "x", DType::q8_0), ErrorCode::Unsupported, "not q8_0");
  EXPECT_ERROR(merge_adapter(folder.path(), dir / "a", dir / "x.gguf"), ErrorCode::InvalidArgument, "x.gguf is not");
  EXPECT_ERROR(merge_adapter(folder.path(), dir / "a", folder.path()), ErrorCode::InvalidArgument,
               "is the folder that is read");
  write_tiny_gguf(dir / "m.gguf", plain_model("llama"));
  EXPECT_ERROR(merge_adapter(dir / "m.gguf", dir / "a", dir / "x"), ErrorCode::InvalidArgument, "x is not");
  EXPECT_ERROR(merge_adapter(dir / "m.gguf", dir / "a", dir / "m.gguf"), ErrorCode::InvalidArgument,
               "is the file that is read");
}

// ---- what is refused

/// An adapter for a small llama whose parts can be changed before it is loaded.
class AdapterFiles : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_gguf(dir / "m.gguf", plain_model("llama"));
    model.emplace(LanguageModel::load(dir / "m.gguf"));
    save_random_adapter(dir / "a", *model, {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}});
    config = read(dir / "a/adapter_config.json");
    const SafetensorsFile file(dir / "a/adapter_model.safetensors");
    for (const auto& entry : file.tensors()) tensors.emplace(entry.name, file.literal(entry.name));
  }
  LanguageModel load() const {
    dir.write("a/adapter_config.json", config.dump());
    std::vector<SafetensorsTensor> written;
    for (const auto& [name, value] : tensors) written.push_back({name, value.type(), value.bytes()});
    write_safetensors(dir / "a/adapter_model.safetensors", written);
    return model->with_adapter(dir / "a");
  }
  std::string refusal(ErrorCode code) const {
    return message_of(code, [&] { (void)load(); });
  }
  /// The refusal of one other member.
  std::string refusal(const char* key, const json& value, ErrorCode code = ErrorCode::Unsupported) {
    const json before = config;
    config[key] = value;
    const std::string text = refusal(code);
    config = before;
    return text;
  }
  TempDir dir;
  std::optional<LanguageModel> model;
  json config;
  std::map<std::string, Literal> tensors;
  const std::string layer = "base_model.model.model.layers.1.";
};

TEST_F(AdapterFiles, SettingsAreHonouredOrRefused) {
  EXPECT_HAS(refusal("peft_type", "LOHA"), "\"peft_type\" LOHA (LORA is) is not supported");
  EXPECT_HAS(refusal("task_type", "SEQ_CLS"), "\"task_type\" SEQ_CLS");
  EXPECT_HAS(refusal("bias", "lora_only"), "\"bias\" lora_only");
  EXPECT_HAS(refusal("init_lora_weights", "pissa_niter_16"),
             "pissa_niter_16, which trains against changed base weights");
  EXPECT_HAS(refusal("rank_pattern", {{"^model.*", 8}}), "regular expression '^model.*' in \"rank_pattern\"");
  EXPECT_HAS(refusal("target_modules", {"q_proj", "down_proj", "lm_head"}), "the target 'lm_head'");
  EXPECT_HAS(refusal("some_new_feature", 3), "\"some_new_feature\"");
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) EXPECT_HAS(refusal(key, true), key);
  for (const char* key : {"modules_to_save", "layer_replication", "trainable_token_indices", "target_parameters"})
    EXPECT_HAS(refusal(key, {"x"}), key);
  config["use_dora"] = true, config["bias"] = "all", config["modules_to_save"] = {"lm_head"};
  const std::string all = refusal(ErrorCode::Unsupported);
  for (const char* part : {"use_dora", "\"bias\" all", "modules_to_save", "m.gguf"}) EXPECT_HAS(all, part);
}

TEST_F(AdapterFiles, WrongTypesAreSaid) {
  const auto corrupt = [&](const char* key, const json& value) { return refusal(key, value, ErrorCode::CorruptFile); };
  EXPECT_HAS(corrupt("r", 0), "'r' is no rank");
  EXPECT_HAS(corrupt("r", -4), "'r' is number, not a whole number");
  EXPECT_HAS(corrupt("r", 1 << 20), "'r' is no rank");
  EXPECT_HAS(corrupt("lora_alpha", "x"), "'lora_alpha' is string, not a number");
  EXPECT_HAS(corrupt("target_modules", {1}), "'target_modules[0]' is number, not a string");
  EXPECT_HAS(corrupt("use_rslora", 1), "'use_rslora' is number");
  EXPECT_HAS(corrupt("layers_to_transform", {"x"}), "'layers_to_transform[0]'");
  config.erase("r");
  EXPECT_HAS(refusal(ErrorCode::CorruptFile), "'r' is missing");
  dir.write("a/adapter_config.json", "{");
  EXPECT_ERROR(model->with_adapter(dir / "a"), ErrorCode::CorruptFile, "adapter_config.json: not JSON");
  dir.write("a/adapter_config.json", "[]");
  EXPECT_ERROR(model->with_adapter(dir / "a"), ErrorCode::CorruptFile, "no JSON object");
  EXPECT_ERROR(model->with_adapter(dir / "none"), ErrorCode::NotFound, "none/adapter_config.json");
}

TEST_F(AdapterFiles, PatternsAndLayers) {
  const std::string q = "model.layers.1.self_attn.q_proj", down = "model.layers.1.mlp.down_proj";
  config["rank_pattern"] = {{"layers.1.self_attn.q_proj", 2}};
  config["alpha_pattern"] = {{"down_proj", 16}};
  EXPECT_HAS(refusal(ErrorCode::CorruptFile), "q_proj.lora_A.weight' is f32[4, 64], where the model needs [2, 64]");
  tensors[layer + "self_attn.q_proj.lora_A.weight"] = adapter_value({DType::f32, {2, 64}}, "a");
  tensors[layer + "self_attn.q_proj.lora_B.weight"] = adapter_value({DType::f32, {128, 2}}, "b");
  const LanguageModel tuned = load();
  EXPECT_EQ(tuned.config().adapters.at(q).rank, 2);
  EXPECT_EQ(tuned.config().adapters.at(q).scale, 4);
  EXPECT_EQ(tuned.config().adapters.at(down).scale, 4);
  EXPECT_EQ(tuned.config().adapters.at("model.layers.0.self_attn.q_proj").scale, 2);
  EXPECT_HAS(refusal("alpha_pattern", {{"down_proj", 16}, {"mlp.down_proj", 8}}),
             "which the patterns 'down_proj' and 'mlp.down_proj' give different values");
  EXPECT_HAS(refusal("rank_pattern", {{"q_proj", 2.5}}, ErrorCode::CorruptFile), "the rank 2.5");

  config["rank_pattern"] = json::object();
  config["layers_to_transform"] = {1};
  tensors[layer + "self_attn.q_proj.lora_A.weight"] = adapter_value({DType::f32, {4, 64}}, "a");
  tensors[layer + "self_attn.q_proj.lora_B.weight"] = adapter_value({DType::f32, {128, 4}}, "b");
  EXPECT_HAS(refusal(ErrorCode::CorruptFile), "'model.layers.0.mlp.down_proj' has tensors, but is no target");
  std::erase_if(tensors, [](const auto& item) { return item.first.contains("layers.0."); });
  EXPECT_EQ(load().config().adapters.size(), 2u);
  config["layers_to_transform"] = 1;
  EXPECT_EQ(load().config().adapters.size(), 2u);
  for (const json& all : {json(nullptr), json::array()}) {
    config["layers_to_transform"] = all;
    EXPECT_HAS(refusal(ErrorCode::CorruptFile), "there are no tensors for 'model.layers.0.self_attn.q_proj'");
  }
  config["target_modules"] = "all-linear";  // as an expression: what the file holds counts
  EXPECT_EQ(load().config().adapters.size(), 2u);
}

TEST_F(AdapterFiles, EveryTensorMustFit) {
  tensors[layer + "self_attn.q_proj.lora_A.weight"] = adapter_value({DType::f32, {4, 63}}, "a");
  tensors.erase(layer + "mlp.down_proj.lora_B.weight");
  const std::string wrong = refusal(ErrorCode::CorruptFile);
  EXPECT_HAS(wrong, "q_proj.lora_A.weight' is f32[4, 63], where the model needs [4, 64]");
  EXPECT_HAS(wrong, "there is no tensor 'base_model.model.model.layers.1.mlp.down_proj.lora_B.weight'");
  tensors["base_model.model.lm_head.lora_A.weight"] = adapter_value({DType::f32, {4, 64}}, "l");
  tensors[layer + "mlp.down_proj.lora_magnitude_vector"] = adapter_value({DType::f32, {64, 1}}, "m");
  const std::string more = refusal(ErrorCode::Unsupported);
  for (const char* part : {"lm_head", "lora_magnitude_vector", "[4, 63]"}) EXPECT_HAS(more, part);
  tensors.clear();
  EXPECT_HAS(refusal(ErrorCode::CorruptFile), "adapter_model.safetensors is empty");
}

TEST_F(AdapterFiles, HalvesAreWidened) {
  const std::string name = "model.layers.1.mlp.down_proj.lora_A.weight";
  Literal& value = tensors["base_model.model." + name];
  value = Literal::from_doubles({DType::bf16, value.type().shape}, value.to_doubles());
  const LanguageModel tuned = load();
  EXPECT_EQ(tuned.parameters().at(name).dtype, DType::f32);
  EXPECT_EQ(tuned.weight(name).to_doubles(), value.to_doubles());
  EXPECT_ERROR(tuned.with_adapter(dir / "a"), ErrorCode::InvalidArgument, "has an adapter already");
  EXPECT_ERROR(with_lora(tuned, {}), ErrorCode::InvalidArgument, "has an adapter already");
}

TEST_F(AdapterFiles, MutatedFilesLoadOrAreRefused) {
  std::mt19937 random(3);
  for (const char* name : {"a/adapter_config.json", "a/adapter_model.safetensors"}) {
    const std::string bytes = read_text(dir / name);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::string changed = bytes;
      for (unsigned n = 1 + random() % 2; n > 0; --n)
        changed[random() % std::min<std::size_t>(bytes.size(), 1200)] = static_cast<char>(i % 2 == 0 ? random() : '9');
      dir.write(name, changed);
      try {
        const LanguageModel tuned = model->with_adapter(dir / "a");
        for (const auto& [parameter, type] : tuned.parameters()) {
          if (parameter.contains("lora")) {
            EXPECT_EQ(tuned.weight(parameter).type(), type);
          }
        }
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 60) << name;
    dir.write(name, bytes);
  }
}

TEST_F(AdapterFiles, NewAdapters) {
  EXPECT_EQ(with_lora(*model, {}).adapters.size(), 14u);
  EXPECT_EQ(with_lora(*model, {.targets = {"layers.0.mlp.up_proj", "o_proj"}}).adapters.size(), 3u);
  EXPECT_ERROR(with_lora(*model, {.targets = {"qkv_proj", "o_proj", "roj"}}), ErrorCode::InvalidArgument,
               "no linears for the LoRA targets 'qkv_proj', 'roj'; its layers have down_proj, gate_proj, k_proj");
  EXPECT_ERROR(with_lora(*model, {.rank = 0}), ErrorCode::InvalidArgument, "LoRA of rank 0");
  EXPECT_ERROR(with_lora(*model, {.alpha = NAN}), ErrorCode::InvalidArgument, "an alpha of nan");
  EXPECT_ERROR(with_lora(*model, {.dropout = 1}), ErrorCode::InvalidArgument, "a dropout of 1");
  models::LlamaConfig other = model->config();
  other.adapters["model.layers.7.mlp.up_proj"] = {};
  Graph graph;
  EXPECT_ERROR(models::llama(graph.input("ids", {1, 1}, DType::i32), other), ErrorCode::InvalidArgument,
               "an adapter for 'model.layers.7.mlp.up_proj', which is no linear");
  EXPECT_ERROR(save_lora(dir / "b", *model, {.rank = 1, .targets = {"layers.0.mlp.up_proj"}},
                         [](std::string_view) {
                           return Literal::from_doubles({DType::f32, {1, 64}}, std::vector<double>(64, INFINITY));
                         }),
               ErrorCode::NonFinite, "'model.layers.0.mlp.up_proj.lora_A.weight' holds inf");
  EXPECT_FALSE(fs::exists(dir / "b"));
}

}  // namespace
}  // namespace aeshna::test
