// Checkpoints: exact resume on the test device; everything about files over the Null device.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/byte_reader.h"
#include "gpu/device.h"
#include "io/safetensors.h"
#include "runtime/tiny_model.h"
#include "support/test_device.h"

#ifdef __unix__
#include <sys/resource.h>
#include <csignal>

#include "base/format.h"
#endif

namespace aeshna {
namespace {

namespace fs = std::filesystem;
using test::build_tiny;
using test::message_of;
using test::set_rows;

class CheckpointSession : public testing::Test {
 protected:
  void SetUp() override {
    dir = fs::temp_directory_path() /
          (std::string("aeshna_checkpoint_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir);
    fs::create_directories(dir);
    path = dir / "model.safetensors";
    build_tiny(graph);
  }
  void TearDown() override { fs::remove_all(dir); }

  Weights null_weights(std::uint64_t seed = 1) const {
    return Weights(graph, {.seed = seed, .device = Device(gpu::open_null({}))});
  }
  void overwrite(std::span<const std::byte> bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  fs::path dir, path;
  Graph graph;
};

CompileOptions training(Optimizer optimizer = Adam{}) { return {.mode = Mode::Training, .optimizer = optimizer}; }

std::string loader_text(const DataPosition& p) { return formatted("{} {} {}", p.seed, p.epoch, p.batch); }

DataPosition parse_loader(const std::string& text) {
  DataPosition p;
  EXPECT_EQ(std::sscanf(text.c_str(), "%lu %ld %ld", &p.seed, &p.epoch, &p.batch), 3);
  return p;
}

/// Interrupted in the middle of an epoch and of an accumulation, resumed into another store: the same bits.
TEST_F(CheckpointSession, ResumeIsExact) {
  AESHNA_NEED_DEVICE();
  const Dataset data = test::tiny_data(22);
  CompileOptions options = training(Sgd{.lr = 0.05f, .momentum = 0.9f});
  options.train.accumulate = 3;
  options.train.schedule = Schedule::cosine(10, 3);
  options.train.clip_norm = 1.0f;
  const auto train = [&](Session& s, DataLoader& loader, int micro_steps) {
    for (int i = 0; i < micro_steps; ++i) {
      const Dataset batch = data.subset(loader.next());
      s.set("x", std::span<const float>(batch.column("x").f32));
      s.set("y", std::span<const std::int32_t>(batch.column("y").i32));
      s.step();
    }
    s.wait();
  };
  const auto weights = [&](std::uint64_t seed) {
    return Weights(graph, {.seed = seed, .device = test::test_device().device});
  };

  const Weights straight = weights(1);
  {
    Session s = compile(graph, straight, options);
    DataLoader loader(data, test::kBatch, true, 5);
    train(s, loader, 20);
  }
  {
    Session s = compile(graph, weights(1), options);
    DataLoader loader(data, test::kBatch, true, 5);
    train(s, loader, 11);  // 3 updates, 2 micro-steps, in the third epoch
    s.save(path, loader_text(loader.position()));
  }
  const Weights resumed = weights(99);
  {
    Session s = compile(graph, resumed, options);
    DataLoader loader(data, test::kBatch, true, 0);
    loader.seek(parse_loader(s.load(path)));
    EXPECT_EQ(s.steps(), 3);
    train(s, loader, 9);
    EXPECT_EQ(s.steps(), 6);
  }
  test::expect_equal(straight, resumed);
}

TEST_F(CheckpointSession, AdamResumesExactlyAndInferenceTakesTheParameters) {
  AESHNA_NEED_DEVICE();
  const Dataset data = test::tiny_data(12);
  const auto weights = [&](std::uint64_t seed) {
    return Weights(graph, {.seed = seed, .device = test::test_device().device});
  };
  const auto train = [&](Session& s, int from, int to) {
    for (int i = from; i < to; ++i) {
      set_rows(s, data, i * 4);
      s.step();
    }
    s.wait();
  };
  const Weights straight = weights(1), resumed = weights(2);
  Session a = compile(graph, straight, training());
  train(a, 0, 4);
  a.save(path);
  train(a, 4, 8);
  Session b = compile(graph, resumed, training());
  b.load(path);
  train(b, 4, 8);
  test::expect_equal(straight, resumed);
  b.save(path);

  Graph inference_graph;
  build_tiny(inference_graph, false);
  Session infer = compile(inference_graph, Weights(inference_graph, {.seed = 7, .device = test::test_device().device}));
  infer.load(path);
  EXPECT_EQ(infer.weights().get("w1"), resumed.get("w1"));
  EXPECT_FALSE(infer.weights().contains("aeshna.opt.m/w1"));
  set_rows(infer, data, 0, false);
  set_rows(b, data, 0);
  infer.step();
  b.forward();
  const std::vector<float> want = b.read("logits"), got = infer.read("logits");
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
}

TEST_F(CheckpointSession, HoldsWhatTheDocumentSays) {
  Session s = compile(graph, null_weights(0x1122334455667788ull), training());
  s.save(path, R"({"mine": "\n"})");
  const SafetensorsFile file(path);
  for (const char* name : {"w1", "b1", "w2", "aeshna.opt.m/w1", "aeshna.opt.v/w1", "aeshna.state/aeshna.step"}) {
    EXPECT_NE(file.find(name), nullptr) << name;
  }
  EXPECT_EQ(file.tensors().size(), 3u + 6u + 1u) << "no status, no accumulators";
  const std::string& text = file.metadata().at("aeshna");
  EXPECT_HAS(text, "\"version\":1");
  EXPECT_HAS(text, "\"optimizer\":\"adam\"");
  EXPECT_HAS(text, std::to_string(0x1122334455667788ull));
  Session other = compile(graph, null_weights(), training());
  EXPECT_EQ(other.load(path), R"({"mine": "\n"})");
}

TEST_F(CheckpointSession, EveryProblemIsListedAndNothingChanges) {
  Session s = compile(graph, null_weights(), training());
  s.save(path);
  Graph other;
  other.output("loss",
               sum(linear(other.input("x", {1, 4}), other.parameter("w1", {8, 4})) * other.parameter("new", {8})));
  const Weights weights(other, {.seed = 1, .device = Device(gpu::open_null({}))});
  Session wrong = compile(other, weights, training(Sgd{}));
  const auto before = test::snapshot(weights);
  const std::string text = message_of(ErrorCode::InvalidArgument, [&] { wrong.load(path); });
  EXPECT_HAS(text, path.string());
  EXPECT_HAS(text, "expected 'sgd', found 'adam'");
  EXPECT_HAS(text, "'w1': expected f32[8, 4], found f32[8, 3]");
  EXPECT_HAS(text, "missing: 'new'");
  EXPECT_HAS(text, "unknown: 'w2'");
  EXPECT_HAS(text, "unknown: 'aeshna.opt.m/w2'");
  EXPECT_EQ(test::snapshot(weights), before);
}

TEST_F(CheckpointSession, RefusesOtherVersionsAndForeignMetadata) {
  const Weights weights = null_weights();
  Session s = compile(graph, weights, training());
  s.save(path);
  std::vector<std::byte> bytes = read_file(path);
  const std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto with = [&](std::string_view from, std::string_view to) {
    ASSERT_EQ(from.size(), to.size());
    const std::size_t at = whole.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::vector<std::byte> changed = bytes;
    std::memcpy(changed.data() + at, to.data(), to.size());
    overwrite(changed);
  };
  with(R"(\"version\":1)", R"(\"version\":2)");
  EXPECT_HAS(message_of(ErrorCode::Unsupported, [&] { s.load(path); }), "version 2");
  with(R"(\"version\":1)", R"(\"versi_n\":1)");
  message_of(ErrorCode::CorruptFile, [&] { s.load(path); });
  with(R"(\"step\":0)", R"(\"step\":x)");
  message_of(ErrorCode::CorruptFile, [&] { s.load(path); });
  with(R"(\"micro_step\":0)", R"(\"micro_step\":7)");
  EXPECT_HAS(message_of(ErrorCode::InvalidArgument, [&] { s.load(path); }), "7 micro-steps");
}

TEST_F(CheckpointSession, HostileMetadata) {
  const Weights weights = null_weights();
  Weights any(Device(gpu::open_null({})));
  const auto refused = [&](const std::string& key, const std::string& text, Shape shape = {2, 34}) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(shape.elements()));
    const SafetensorsTensor tensor{"w", {DType::u8, shape}, bytes};
    write_safetensors(path, std::span(&tensor, 1), {{key, text}});
    const std::string message = message_of(ErrorCode::CorruptFile, [&] { any.load(path); });
    EXPECT_NE(message.find("model.safetensors: the metadata \"" + key), std::string::npos) << message;
    return message;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  has(refused("aeshna", deep), "nested deeper than 64 levels");
  has(refused("aeshna", R"({"version": 1, "step": )" + deep), "nested deeper than 64 levels");
  has(refused("aeshna", R"({"version": 1, "step": 18446744073709551615})"), "is not what Aeshna writes");
  has(refused("aeshna.quantized", deep), "nested deeper than 64 levels");
  has(refused("aeshna.quantized", "[]"), "is no JSON object");
  has(refused("aeshna.quantized", R"({"w": "q9"})"), "'q9' is no dtype");
  has(refused("aeshna.quantized", R"({"v": "q8_0"})"), "speaks of 'v'");
  has(refused("aeshna.quantized", R"({"w": "q8_0"})", {2, 35}), "calls 'w' q8_0");
  // 256 elements for 144 bytes: their number would not fit 64 bits, although there are none.
  has(refused("aeshna.quantized", R"({"w": "q4_K"})", {0, INT64_MAX / 144 * 144}), "calls 'w' q4_K");
}

TEST_F(CheckpointSession, CorruptionIsAnErrorOrAnExactLoad) {
  Graph g;
  g.output("loss", sum(g.parameter("w", {2}) * g.parameter("v", {2})));
  const Weights weights(g, {.seed = 1, .device = Device(gpu::open_null({}))});
  Session s = compile(g, weights, training(Sgd{.lr = 1, .momentum = 0.5f}));
  s.save(path);
  const std::vector<std::byte> good = read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  Weights(weights).set("w", Literal::from_doubles({DType::f32, {2}}, std::vector<double>{7, 8}));
  const auto before = test::snapshot(weights);

  for (std::size_t size = 0; size < good.size(); ++size) {
    overwrite(std::span(good).first(size));
    EXPECT_THROW(s.load(path), Error) << size;
  }
  EXPECT_EQ(test::snapshot(weights), before);

  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < (8 + header) * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    overwrite(bad);
    try {
      s.load(path);  // a metadata value, a space of the padding: a valid file
      for (const auto& [name, value] : before) Weights(weights).set(name, value);
    } catch (const Error&) {
      ++refused;
      if (bit % 64 == 0) {
        EXPECT_EQ(test::snapshot(weights), before) << bit;
      }
    }
  }
  EXPECT_EQ(test::snapshot(weights), before);
  EXPECT_GT(refused, header * 8 / 2);
}

#ifdef __unix__
/// A limit on file sizes makes the write fail half-way, as a full disk does.
TEST_F(CheckpointSession, FullDiskKeepsThePreviousOne) {
  const Weights weights = null_weights();
  Session s = compile(graph, weights, training());
  s.save(path, "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{300, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string text;
  try {
    s.save(path, "new");
  } catch (const Error& e) {
    text = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_HAS(text, path.string());
  EXPECT_EQ(s.load(path), "old");
}
#endif

/// Running statistics and counters of the model are part of it; a cache that the file lacks is not.
TEST_F(CheckpointSession, UserStates) {
  Graph train_graph, infer_graph;
  for (Graph* g : {&train_graph, &infer_graph}) {
    const Value x = g->input("x", {2}), w = g->parameter("w", {2}),
                mean = g->state("mean", {2}, DType::f32, Init::constant(3));
    const Value y = (x - mean) * w;
    g->output("y", y);
    if (g == &train_graph) {
      g->assign(mean, mean * 0.5 + x * 0.5);
      g->output("loss", sum(y));
    } else {
      const Value cache = g->state("cache", {2});
      g->assign(cache, cache + x);
    }
  }
  const Device device(gpu::open_null({}));
  Weights trained(train_graph, {.seed = 1, .device = device});
  Session s = compile(train_graph, trained, training());
  trained.set("mean", Literal::from_doubles({DType::f32, {2}}, std::vector<double>{5, 6}));
  s.save(path);
  EXPECT_NE(SafetensorsFile(path).find("aeshna.state/mean"), nullptr);
  const Weights fresh(infer_graph, {.seed = 2, .device = device});
  Session infer = compile(infer_graph, fresh);
  infer.load(path);
  EXPECT_EQ(fresh.get("mean").at(1), 6);
  EXPECT_EQ(fresh.get("w"), trained.get("w"));
  EXPECT_EQ(fresh.get("cache").at(0), 0);
}

}  // namespace
}  // namespace aeshna
