// Adapters beside frozen weights on a device: gradients through quantized products, and what training changes.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/generate.h"
#include "nn/lora_support.h"
#include "support/expect_error.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

constexpr std::int64_t kRows = 2, kLength = 5;
const Ids kText = {7, 300, 12, 12, 99, 0, 411, 3, 58, 7}, kNext = {300, 12, -100, 99, 0, -100, 3, 58, 7, 300};

Value build_loss(Graph& g, const models::LlamaConfig& config) {
  const Value ids = g.input("ids", {kRows, kLength}, DType::i32),
              labels = g.input("labels", {kRows, kLength}, DType::i32);
  const Value loss = cross_entropy(models::llama(ids, config), labels);
  g.output("loss", loss);
  return loss;
}

void set_inputs(Session& session) {
  session.set("ids", std::span<const std::int32_t>(kText));
  session.set("labels", std::span<const std::int32_t>(kNext));
}

/// A store with a model and an adapter of random values, as if it had been trained.
Weights store_of(const Graph& g, const LanguageModel& model, const models::LlamaConfig& config,
                 TensorMap* leaves = nullptr) {
  Weights weights(g, {.seed = 4, .device = test_device().device});
  load_weights(model, weights);
  for (const auto& [linear, adapter] : config.adapters) {
    for (const char* part : {".lora_A.weight", ".lora_B.weight"}) {
      const std::string name = linear + part;
      const Literal value = adapter_value(weights.type(name), name);
      weights.set(name, value);
      if (leaves != nullptr) leaves->insert_or_assign(name, tensor(value.type(), value.to_doubles()));
    }
  }
  return weights;
}

LanguageModel open(const TempDir& dir, const TinyModel& tiny, unsigned seed = 1) {
  write_tiny_gguf(dir / "m.gguf", tiny, seed);
  return LanguageModel::load(dir / "m.gguf");
}

/// Weights of every type that files have, among them the embedding that is the last layer's weight too; heads that share keys, the
/// interleaved rotation, scores with a softcap, fused linears.
class LoraSession : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, LoraSession, testing::Values("llama", "gemma2", "phi3"),
                         [](const auto& info) { return info.param; });

TEST_P(LoraSession, GradientsEqualTheInterpreters) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  TinyModel tiny = tiny_model(GetParam());
  tiny.layers = 2;
  const LanguageModel model = open(dir, tiny, 2);
  std::set<DType> dtypes;
  for (const auto& [name, type] : model.parameters()) dtypes.insert(type.dtype);
  EXPECT_GE(dtypes.size(), GetParam() == "phi3" ? 5u : 7u);
  const models::LlamaConfig config = with_lora(model, {.rank = 3, .alpha = 4});
  Graph g;
  build_loss(g, config);
  TensorMap leaves = weights_of(model);
  const Weights weights = store_of(g, model, config, &leaves);
  Session session = compile(g, weights, {.mode = Mode::Training, .update = false});
  set_inputs(session);
  session.step();

  Graph reference;
  const Value loss = build_loss(reference, config);
  std::vector<std::string> names;
  std::vector<Value> wrt;
  for (const auto& [linear, adapter] : config.adapters) {
    for (const char* part : {".lora_A.weight", ".lora_B.weight"}) {
      names.push_back(linear + part);
      wrt.push_back(reference.find(names.back()));
    }
  }
  const std::vector<Value> found = gradients(loss, wrt);
  for (std::size_t i = 0; i < found.size(); ++i) reference.output(names[i], found[i]);
  leaves.insert_or_assign("ids", ints({kRows, kLength}, kText));
  leaves.insert_or_assign("labels", ints({kRows, kLength}, kNext));
  const InterpreterResult want = interpret(reference, leaves);
  EXPECT_NEAR(session.read_scalar("loss"), want.outputs.at("loss").data[0], 2e-5);
  for (const std::string& name : names) {
    const std::vector<float> got = session.read("grad/" + name);
    const std::vector<double>& expected = want.outputs.at(name).data;
    double largest = 0, worst = 0;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
    EXPECT_GT(largest, 1e-5) << name;
    EXPECT_LT(worst, 3e-5 * largest) << name;
  }

  // The interpreter's own, of one element in each linear of the first layer, against central differences.
  Graph forward;
  build_loss(forward, config);
  for (const std::string& name : names) {
    if (!name.contains("layers.0.")) continue;
    const std::size_t at = want.outputs.at(name).data.size() / 2;
    double& x = leaves.at(name).data[at];
    const double before = x, h = 1e-4;
    double difference = 0;
    for (const int side : {1, -1}) {
      x = before + side * h;
      difference += side * interpret(forward, leaves).outputs.at("loss").data[0] / (2 * h);
    }
    x = before;
    EXPECT_NEAR(want.outputs.at(name).data[at], difference, 1e-6) << name;
  }
}

TEST(LoraTrainingSession, ChangesTheAdapterAlone) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const LanguageModel model = open(dir, tiny_model("llama"));
  const models::LlamaConfig config = with_lora(model, {.rank = 4, .alpha = 8, .dropout = 0.1});
  Graph g;
  build_loss(g, config);
  Weights weights(g, {.seed = 4, .device = test_device().device});
  load_weights(model, weights);
  for (const auto& [linear, adapter] : config.adapters) {
    for (const double v : weights.get(linear + ".lora_B.weight").to_doubles()) ASSERT_EQ(v, 0);
    const Literal a = weights.get(linear + ".lora_A.weight");
    const double bound = 1 / std::sqrt(static_cast<double>(a.type().shape[1]));
    double largest = 0;
    for (const double v : a.to_doubles()) largest = std::max(largest, std::abs(v));
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.9 * bound);
  }
  CompileOptions options{.mode = Mode::Training,
                         .optimizer = AdamW{.lr = 0.01f, .weight_decay = 0},
                         .train = {.clip_norm = 1.0f},
                         .save_frozen = false};
  Session session = compile(g, weights, options);
  set_inputs(session);
  session.step();
  const float first = session.read_scalar("loss");
  for (int i = 0; i < 30; ++i) session.step();
  EXPECT_LT(session.read_scalar("loss"), 0.5f * first);
  for (const auto& [name, type] : model.parameters()) EXPECT_EQ(weights.get(name), model.weight(name)) << name;

  // No moment of a frozen weight exists, and a checkpoint has none of both.
  session.save(dir / "c.safetensors");
  for (const std::string& name : weights.names())
    EXPECT_TRUE(!name.starts_with("aeshna.opt.") || name.contains(".lora_")) << name;
  const SafetensorsFile file(dir / "c.safetensors");
  EXPECT_EQ(file.tensors().size(), 3 * 2 * config.adapters.size() + 2) << "values and two moments; step and seed";
  const std::uint64_t adapter_bytes = [&] {
    std::uint64_t sum = 0;
    for (const auto& entry : file.tensors()) sum += entry.end - entry.begin;
    return sum;
  }();
  std::uint64_t base = 0;
  for (const auto& [name, type] : model.parameters()) base += static_cast<std::uint64_t>(type.bytes());
  EXPECT_LT(session.memory().pinned_bytes, base + adapter_bytes + base / 20) << "no gradient, no copy of the base";

  // It goes on over other weights of the same model, which it leaves alone.
  Weights other(g, {.seed = 5, .device = test_device().device});
  load_weights(model, other);
  Session resumed = compile(g, other, options);
  resumed.load(dir / "c.safetensors");
  for (Session* s : {&session, &resumed}) {
    set_inputs(*s);
    for (int i = 0; i < 3; ++i) s->step();
    s->wait();
  }
  for (const std::string& name : weights.names()) EXPECT_EQ(weights.get(name), other.get(name)) << name;
  options.save_frozen = true;
  Session whole = compile(g, other, options);
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { whole.load(dir / "c.safetensors"); }),
             "missing: 'model.embed_tokens.weight'");

  // What was learnt is the same when it is loaded as an adapter, and when it is merged into the model.
  save_lora(dir / "a", model, {.rank = 4, .alpha = 8, .dropout = 0.1},
            [&](std::string_view name) { return weights.get(name); });
  const LanguageModel tuned = model.with_adapter(dir / "a");
  for (const auto& [linear, adapter] : config.adapters)
    EXPECT_EQ(tuned.weight(linear + ".lora_B.weight"), weights.get(linear + ".lora_B.weight")) << linear;
  Generator generator(tuned, {.context = 16, .chunk = 4, .device = test_device().device});
  const std::vector<float> got = generator.logits(std::span(kText).first(kLength));
  const HostTensor want = full_logits(tuned, weights_of(tuned), Ids(kText.begin(), kText.begin() + kLength));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want.data[want.data.size() - got.size() + i], 2e-3) << i;
}

}  // namespace
}  // namespace aeshna::test
