// Decoding with SmolLM2 over key-value caches, against the forward pass.
#include <gtest/gtest.h>

#include <optional>

#include "aeshna/models.h"
#include "nn/workload_support.h"
#include "support/expect_error.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::SmolLm2Config;
using models::Workload;

class SmolLm2Session : public testing::Test {
 protected:
  /// A session over the shared weights and caches.
  Session decoder(std::int64_t rows) {
    Graph g;
    const Value ids = g.input("ids", {2, rows}, DType::i32), position = g.input("position", {2}, DType::i32);
    g.output("logits", models::smollm2_decode(ids, position, 16, SmolLm2Config::small()));
    return compile(g, *weights_);
  }

  /// The logits of these positions of both sequences, from the ids there.
  std::vector<float> decode(Session& session, std::int64_t rows, std::vector<std::int32_t> position) {
    std::vector<std::int32_t> ids;
    for (std::size_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < rows; ++i) ids.push_back(id(b, position[b] + i));
    }
    session.set("ids", ids);
    session.set("position", position);
    session.step();
    session.wait();
    return session.read("logits");
  }

  std::int32_t id(std::size_t sequence, std::int64_t position) const {
    return static_cast<std::int32_t>(leaves_.at("ids").data[sequence * 16 + static_cast<std::size_t>(position)]);
  }

  const Workload& workload_ = models::find_workload("smollm2", true);
  TensorMap leaves_ = random_samples(workload_, 2);
  std::optional<Weights> weights_;
};

TEST_F(SmolLm2Session, DecodingEqualsTheForwardPass) {
  AESHNA_NEED_DEVICE();
  weights_.emplace(*test_device().device);
  Session forward = compile(*workload_graph(workload_, Phase::Full, 2), *weights_);
  set_leaves(forward, leaves_);
  forward.step();
  const std::vector<float> all = forward.read("output");
  Session chunks = decoder(4), single = decoder(1);
  const auto expect_equal = [&](Session& session, std::int64_t rows, std::vector<std::int32_t> position) {
    const std::vector<float> got = decode(session, rows, position);
    for (std::size_t b = 0; b < 2; ++b) {
      const auto size = static_cast<std::size_t>(rows) * 67,
                 from = (b * 16 + static_cast<std::size_t>(position[b])) * 67;
      const std::vector<double> part(got.begin() + static_cast<std::ptrdiff_t>(b * size),
                                     got.begin() + static_cast<std::ptrdiff_t>((b + 1) * size));
      const std::vector<double> want(all.begin() + static_cast<std::ptrdiff_t>(from),
                                     all.begin() + static_cast<std::ptrdiff_t>(from + size));
      EXPECT_LT(relative_l2(part, want), 1e-5) << "sequence " << b << " at " << position[b] << ", " << rows << " rows";
    }
  };
  expect_equal(chunks, 4, {0, 0});
  expect_equal(chunks, 4, {2, 4});  // the first sequence writes two positions again
  for (std::int32_t i = 0; i < 3; ++i) expect_equal(single, 1, {6 + i, 8 + i});
  expect_equal(chunks, 4, {9, 11});
  expect_equal(single, 1, {13, 15});

  chunks.set("position", std::vector<std::int32_t>{9, 13});
  chunks.step();
  EXPECT_ERROR(chunks.wait(), ErrorCode::OutOfRange, "smollm2_test.cpp:");
}

/// All 30 layers of the published model, narrower: errors do not grow with the depth.
TEST_F(SmolLm2Session, ThirtyLayersDeepToo) {
  AESHNA_NEED_DEVICE();
  SmolLm2Config config = SmolLm2Config::small();
  config.layers = 30;
  Graph whole, one;
  whole.output("logits", models::smollm2(whole.input("ids", {2, 16}, DType::i32), config));
  one.output("logits", models::smollm2_decode(one.input("ids", {2, 1}, DType::i32),
                                              one.input("position", {2}, DType::i32), 16, config));
  Weights weights(whole, {.seed = 5, .device = *test_device().device});
  Session forward = compile(whole, weights), decode = compile(one, weights);
  std::vector<std::int32_t> ids;
  for (std::size_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 16; ++i) ids.push_back(id(b, i));
  forward.set("ids", ids);
  forward.step();
  const std::vector<float> all = forward.read("logits");
  const std::size_t vocab = all.size() / 32;
  for (std::size_t i = 0; i < 16; ++i) {
    const auto position = static_cast<std::int32_t>(i);
    decode.set("ids", std::vector<std::int32_t>{ids[i], ids[16 + i]});
    decode.set("position", std::vector<std::int32_t>{position, position});
    decode.step();
    const std::vector<float> got = decode.read("logits");
    for (std::size_t b = 0; b < 2; ++b) {
      const auto from = static_cast<std::ptrdiff_t>((16 * b + i) * vocab),
                 mine = static_cast<std::ptrdiff_t>(b * vocab), size = static_cast<std::ptrdiff_t>(vocab);
      EXPECT_LT(relative_l2(std::vector<double>(got.begin() + mine, got.begin() + mine + size),
                            std::vector<double>(all.begin() + from, all.begin() + from + size)),
                1e-4)
          << "sequence " << b << " at " << i;
    }
  }
}

}  // namespace
}  // namespace aeshna::test
