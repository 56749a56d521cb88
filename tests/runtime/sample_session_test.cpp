// nn::sample on a device beside the sampler on the host.
#include "aeshna/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "aeshna/generate.h"
#include "base/format.h"
#include "base/philox.h"
#include "support/expect_error.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// A session that samples B rows of V logits, with the tokens of `window` positions as recent ones.
class Sampled {
 public:
  Sampled(std::int64_t batch, std::int64_t vocab, std::int64_t window)
      : batch_(batch), window_(window), session_(compiled(batch, vocab, window)) {}

  /// `histories`: of each row. The host's semantics: the last `repetition_window` ids are recent, the draw is their number.
  Ids next(const std::vector<float>& logits, const std::vector<SamplingOptions>& options,
           const std::vector<Ids>& histories) {
    const auto b = static_cast<std::size_t>(batch_), w = static_cast<std::size_t>(window_);
    std::vector<float> penalty(b), temperature(b), top_p(b), min_p(b);
    Ids recent(b * w, -1), top_k(b), seed(2 * b), draw(b);
    for (std::size_t i = 0; i < b; ++i) {
      const SamplingOptions& o = options[i];
      penalty[i] = static_cast<float>(o.repetition_penalty), temperature[i] = static_cast<float>(o.temperature);
      top_p[i] = static_cast<float>(o.top_p), min_p[i] = static_cast<float>(o.min_p);
      top_k[i] = static_cast<std::int32_t>(o.top_k), draw[i] = static_cast<std::int32_t>(histories[i].size());
      seed[2 * i] = static_cast<std::int32_t>(o.seed), seed[2 * i + 1] = static_cast<std::int32_t>(o.seed >> 32);
      const std::size_t n = std::min({histories[i].size(), w, static_cast<std::size_t>(o.repetition_window)});
      std::copy(histories[i].end() - static_cast<std::ptrdiff_t>(n), histories[i].end(),
                recent.begin() + static_cast<std::ptrdiff_t>(i * w));
    }
    session_.set("logits", logits);
    session_.set("penalty", penalty), session_.set("temperature", temperature), session_.set("top_p", top_p),
        session_.set("min_p", min_p);
    session_.set("recent", recent), session_.set("top_k", top_k), session_.set("seed", seed),
        session_.set("draw", draw);
    session_.step();
    Ids ids;
    for (const double id : session_.read_literal("next").to_doubles()) ids.push_back(static_cast<std::int32_t>(id));
    return ids;
  }

 private:
  static Session compiled(std::int64_t batch, std::int64_t vocab, std::int64_t window) {
    Graph g;
    const auto column = [&](const char* name, DType dtype = DType::f32) { return g.input(name, {batch}, dtype); };
    g.output("next",
             nn::sample(g.input("logits", {batch, vocab}), {.repetition_penalty = column("penalty"),
                                                            .recent = g.input("recent", {batch, window}, DType::i32),
                                                            .temperature = column("temperature"),
                                                            .top_k = column("top_k", DType::i32),
                                                            .top_p = column("top_p"),
                                                            .min_p = column("min_p"),
                                                            .seed = g.input("seed", {batch, 2}, DType::i32),
                                                            .draw = column("draw", DType::i32)}));
    return compile(g, Weights(*test_device().device));
  }

  std::int64_t batch_, window_;
  Session session_;
};

/// How far the random number of a draw is from one that would choose another token, and how far the bounds of what is kept are from moving: a
/// share of the mass. Below some 1e-6 the device may round to the other side.
double margin(std::vector<float> logits, const SamplingOptions& o, const Ids& history) {
  const std::size_t n = std::min(history.size(), static_cast<std::size_t>(o.repetition_window));
  Ids recent(history.end() - static_cast<std::ptrdiff_t>(n), history.end());
  std::ranges::sort(recent);
  recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
  for (const std::int32_t id : recent) {
    float& x = logits[static_cast<std::size_t>(id)];
    x = static_cast<float>(x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty);
  }
  std::ranges::stable_sort(logits, std::greater<>());
  double closest = 1;
  if (o.top_k > 0 && static_cast<std::size_t>(o.top_k) < logits.size()) {
    const double a = logits[static_cast<std::size_t>(o.top_k - 1)], b = logits[static_cast<std::size_t>(o.top_k)];
    if (o.repetition_penalty != 1 && a != b) closest = std::min(closest, (a - b) / std::max(1.0, std::abs(a)));
    logits.resize(static_cast<std::size_t>(o.top_k));
  }
  if (o.temperature == 0)
    return logits.size() > 1 && o.repetition_penalty != 1
               ? static_cast<double>(logits[0]) - static_cast<double>(logits[1])
               : 1;
  std::vector<double> weights;
  double total = 0;
  for (const float x : logits)
    total += weights.emplace_back(std::exp((static_cast<double>(x) - logits[0]) / o.temperature));
  double sum = 0;
  std::size_t kept = 0;
  for (; kept < weights.size(); sum += weights[kept++]) {
    if (kept > 0) {
      if (o.top_p < 1) closest = std::min(closest, std::abs(sum / total - o.top_p));
      if (o.min_p > 0) closest = std::min(closest, std::abs(weights[kept] - o.min_p));
    }
    if (kept > 0 && !(sum < o.top_p * total && weights[kept] >= o.min_p && weights[kept] > 0)) break;
  }
  const auto low = static_cast<std::uint32_t>(o.seed), high = static_cast<std::uint32_t>(o.seed >> 32);
  const double target = static_cast<double>(uniform_from_bits(
                            philox4x32_10({static_cast<std::uint32_t>(history.size()), 0, 0, 0}, {low, high})[0])) *
                        sum;
  double edge = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    edge += weights[i];
    closest = std::min(closest, std::abs(edge - target) / sum);
  }
  return closest;
}

class SampleSession : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Vocab, SampleSession, testing::Values(1, 7, 640, 40000),
                         [](const auto& info) { return std::to_string(info.param); });

/// Random logits with ties and -inf, random options; rows of one batch have different ones.
TEST_P(SampleSession, ChoosesAsTheHostDoes) {
  AESHNA_NEED_DEVICE();
  const std::int64_t vocab = GetParam();
  const std::size_t batch = vocab > 10000 ? 3 : 16, rounds = vocab > 10000 ? 6 : 64;
  constexpr std::int64_t window = 8;
  Sampled device(static_cast<std::int64_t>(batch), vocab, window);
  std::mt19937_64 random(static_cast<std::uint64_t>(vocab));
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[below(values.size())]; };
  std::size_t close = 0, differ = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<float> logits;
    std::vector<SamplingOptions> options;
    std::vector<Ids> histories;
    Ids want;
    for (std::size_t b = 0; b < batch; ++b) {
      const bool ties = below(3) == 0, holes = below(3) == 0;
      const double scale = one_of({0.1, 2, 10});
      std::vector<float> row;
      for (std::int64_t v = 0; v < vocab; ++v) {
        const double x = static_cast<double>(below(2001)) / 1000 - 1;
        row.push_back(holes && v != vocab / 2 && below(2) == 0
                          ? -kInf
                          : static_cast<float>(ties ? std::round(x * 3) : x * scale));
      }
      options.push_back(
          {.repetition_penalty = one_of({1, 1, 1.25, 0.5, 2}),
           .repetition_window = below(window + 1),
           .temperature = one_of({0, 0.3, 0.7, 1, 1.5}),
           .top_k = one_of({0, 0, 1, 2, 40, 1e6}) == 0 ? 0 : static_cast<std::int64_t>(one_of({1, 2, 40, 1e6})),
           .top_p = one_of({1, 1, 0.9, 0.5, 1e-6}),
           .min_p = one_of({0, 0, 0.05, 0.5, 1}),
           .seed = random()});
      Ids history;
      for (std::int64_t n = below(12); n > 0; --n)
        history.push_back(static_cast<std::int32_t>(below(static_cast<std::uint64_t>(vocab))));
      want.push_back(host_sampler(options.back())->next(row, history));
      logits.insert(logits.end(), row.begin(), row.end());
      histories.push_back(std::move(history));
    }
    const Ids got = device.next(logits, options, histories);
    for (std::size_t b = 0; b < batch; ++b) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(b) * vocab;
      const double distance = margin({first, first + vocab}, options[b], histories[b]);
      close += distance < 1e-5;
      if (got[b] == want[b]) continue;
      ++differ;
      EXPECT_LT(distance, 1e-5) << formatted(
          "round {}, row {}: {} and on the host {}; penalty {}, temperature {}, top_k {}, top_p {}, min_p {}", round, b,
          got[b], want[b], options[b].repetition_penalty, options[b].temperature, options[b].top_k, options[b].top_p,
          options[b].min_p);
    }
  }
  EXPECT_LE(differ, 2u) << "of " << close << " draws close to a bound";
  EXPECT_LT(close, batch * rounds / 4) << "most draws must mean something";
}

TEST(SampleOneSession, OnlyNumbersAreChosen) {
  AESHNA_NEED_DEVICE();
  Sampled device(5, 4, 1);
  const std::vector<float> logits = {NAN,   0,     1,          2, /**/ 0, 1,     kInf,   0, /**/ -kInf, -kInf,
                                     -kInf, -kInf, /**/ -kInf, 3, -kInf,  -kInf, /**/ 0, 0, 0,          1};
  for (const double temperature : {0.0, 1.0}) {
    std::vector<SamplingOptions> options(5, {.temperature = temperature});
    options[4].top_k = 1;
    EXPECT_EQ(device.next(logits, options, std::vector<Ids>(5, Ids{0})), (Ids{-1, -1, -1, 1, 3})) << temperature;
  }
  Graph g;
  g.output("next", nn::most_likely(g.input("logits", {5, 4})));
  Session greedy = compile(g, Weights(*test_device().device));
  greedy.set("logits", logits);
  greedy.step();
  EXPECT_EQ(greedy.read_literal("next").to_doubles(), (std::vector<double>{-1, -1, -1, 1, 3}));
}

TEST(SampleRefusals, NameWhatIsWrong) {
  Graph g;
  const Value logits = g.input("logits", {2, 5}), f = g.input("f", {2}), i = g.input("i", {2}, DType::i32),
              seed = g.input("seed", {2, 2}, DType::i32), recent = g.input("recent", {2, 3}, DType::i32);
  const nn::SampleOptions good{f, recent, f, i, f, f, seed, i};
  EXPECT_EQ(nn::sample(logits, good).type(), (TensorType{DType::i32, {2}}));
  EXPECT_ERROR(nn::most_likely(g.input("flat", {5})), ErrorCode::ShapeMismatch,
               "[nn::most_likely] needs logits [batch, vocab]");
  EXPECT_ERROR(nn::most_likely(i), ErrorCode::DTypeMismatch, "needs logits in f32");
  nn::SampleOptions bad = good;
  bad.top_k = f;
  EXPECT_ERROR(nn::sample(logits, bad), ErrorCode::DTypeMismatch, "needs top_k as i32");
  bad = good;
  bad.seed = recent;
  EXPECT_ERROR(nn::sample(logits, bad), ErrorCode::ShapeMismatch, "needs seed of shape [2, 2], not [2, 3]");
  bad = good;
  bad.min_p = {};
  EXPECT_ERROR(nn::sample(logits, bad), ErrorCode::InvalidArgument, "needs min_p");
}

}  // namespace
}  // namespace aeshna::test
