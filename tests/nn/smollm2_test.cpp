// SmolLM2 against plain loops, and decoding against the forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aeshna/models.h"
#include "base/format.h"
#include "nn/workload_support.h"
#include "support/expect_error.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::SmolLm2Config;
using models::Workload;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

/// The model for one sequence, as its formulas are written.
class PlainSmolLm2 {
 public:
  PlainSmolLm2(const SmolLm2Config& config, const TensorMap& leaves) : c_(config), leaves_(leaves) {}

  Rows logits(const Row& ids) const {
    Rows x;
    for (const double id : ids) x.push_back(embedding(static_cast<std::int64_t>(id)));
    for (std::int64_t i = 0; i < c_.layers; ++i) {
      const std::string name = formatted("model.layers.{}.", i);
      add(x, attention(normalized(x, name + "input_layernorm"), name + "self_attn."));
      add(x, feed_forward(normalized(x, name + "post_attention_layernorm"), name + "mlp."));
    }
    return product(normalized(x, "model.norm"), "model.embed_tokens");
  }

 private:
  const Row& weight(const std::string& name) const { return leaves_.at(name + ".weight").data; }

  Row embedding(std::int64_t id) const {
    const auto first = weight("model.embed_tokens").begin() + id * c_.hidden;
    return {first, first + c_.hidden};
  }

  static void add(Rows& x, const Rows& y) {
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (std::size_t i = 0; i < x[s].size(); ++i) x[s][i] += y[s][i];
    }
  }

  /// y[o] = sum over i of x[i] w[o][i]
  Rows product(const Rows& x, const std::string& name) const {
    const Row& w = weight(name);
    const std::size_t in = x[0].size(), out = w.size() / in;
    Rows y(x.size(), Row(out));
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) y[s][o] += x[s][i] * w[o * in + i];
      }
    }
    return y;
  }

  Rows normalized(Rows x, const std::string& name) const {
    for (Row& row : x) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + c_.eps);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] *= factor * weight(name)[i];
    }
    return x;
  }

  void rotate(Rows& x, std::int64_t heads) const {
    const auto d = static_cast<std::size_t>(c_.head_dim), half = d / 2;
    for (std::size_t position = 0; position < x.size(); ++position) {
      for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
        for (std::size_t i = 0; i < half; ++i) {
          const double frequency = std::pow(c_.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
          const double angle = static_cast<double>(position) * frequency;
          double &a = x[position][h * d + i], &b = x[position][h * d + i + half];
          const double first = a;
          a = first * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + first * std::sin(angle);
        }
      }
    }
  }

  Rows attention(const Rows& x, const std::string& name) const {
    Rows q = product(x, name + "q_proj"), k = product(x, name + "k_proj");
    const Rows v = product(x, name + "v_proj");
    rotate(q, c_.heads);
    rotate(k, c_.kv_heads);
    const auto d = static_cast<std::size_t>(c_.head_dim);
    Rows out(x.size(), Row(q[0].size()));
    for (std::size_t h = 0; h < static_cast<std::size_t>(c_.heads); ++h) {
      const std::size_t kv = h / static_cast<std::size_t>(c_.heads / c_.kv_heads);
      for (std::size_t s = 0; s < x.size(); ++s) {
        Row weights;
        double total = 0;
        for (std::size_t t = 0; t <= s; ++t) {
          double score = 0;
          for (std::size_t i = 0; i < d; ++i) score += q[s][h * d + i] * k[t][kv * d + i];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
          total += weights.back();
        }
        for (std::size_t t = 0; t <= s; ++t) {
          for (std::size_t i = 0; i < d; ++i) out[s][h * d + i] += weights[t] / total * v[t][kv * d + i];
        }
      }
    }
    return product(out, name + "o_proj");
  }

  Rows feed_forward(const Rows& x, const std::string& name) const {
    Rows gate = product(x, name + "gate_proj");
    const Rows up = product(x, name + "up_proj");
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (std::size_t i = 0; i < gate[s].size(); ++i) gate[s][i] *= up[s][i] / (1 + std::exp(-gate[s][i]));
    }
    return product(gate, name + "down_proj");
  }

  const SmolLm2Config& c_;
  const TensorMap& leaves_;
};

TEST(SmolLm2, EqualsPlainLoops) {
  const Workload& w = models::find_workload("smollm2", true);
  const TensorMap leaves = random_samples(w, 1);
  const SmolLm2Config config = SmolLm2Config::small();
  Row want;
  for (const Row& row : PlainSmolLm2(config, leaves).logits(leaves.at("ids").data))
    want.insert(want.end(), row.begin(), row.end());
  const auto outputs = interpret(*workload_graph(w, Phase::Full, 1), leaves).outputs;
  EXPECT_LT(relative_l2(outputs.at("output").data, want), 1e-6) << "the rotation's tables are f32";
}

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
      const Row part(got.begin() + static_cast<std::ptrdiff_t>(b * size),
                     got.begin() + static_cast<std::ptrdiff_t>((b + 1) * size));
      const Row want(all.begin() + static_cast<std::ptrdiff_t>(from),
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

}  // namespace
}  // namespace aeshna::test
