// Sampling on the host: what nn::sample() does on the device, written plainly.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "aeshna/generate.h"
#include "base/fail.h"
#include "base/philox.h"

namespace aeshna {

namespace {

class HostSampler final : public Sampler {
 public:
  explicit HostSampler(const SamplingOptions& options) : o_(options) {}

  std::int32_t next(std::span<const float> logits, std::span<const std::int32_t> history) override {
    scores_.assign(logits.begin(), logits.end());
    bool some = false;
    for (std::size_t i = 0; i < scores_.size(); ++i) {  // an order needs numbers
      if (!(scores_[i] < std::numeric_limits<float>::infinity()))
        fail(ErrorCode::NonFinite, "the logit of token {} is {}", i, scores_[i]);
      some |= std::isfinite(scores_[i]);
    }
    if (!some) fail(ErrorCode::NonFinite, "no logit is finite");
    penalize(history);
    if (o_.temperature == 0) return static_cast<std::int32_t>(std::ranges::max_element(scores_) - scores_.begin());
    order_.resize(scores_.size());
    std::iota(order_.begin(), order_.end(), 0);
    // Equal scores in order of their ids, so that the result depends on nothing but the logits.
    const auto better = [&](std::int32_t a, std::int32_t b) {
      const float x = score(a), y = score(b);
      return x != y ? x > y : a < b;
    };
    if (o_.top_k > 0 && static_cast<std::size_t>(o_.top_k) < order_.size()) {
      std::partial_sort(order_.begin(), order_.begin() + o_.top_k, order_.end(), better);
      order_.resize(static_cast<std::size_t>(o_.top_k));
    } else {
      std::ranges::sort(order_, better);
    }
    return draw(history.size());
  }

 private:
  float score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }

  void penalize(std::span<const std::int32_t> history) {
    if (o_.repetition_penalty == 1) return;
    const std::size_t count = std::min(history.size(), static_cast<std::size_t>(o_.repetition_window));
    const auto recent = history.last(count);
    const std::unordered_set<std::int32_t> ids(recent.begin(), recent.end());
    for (const std::int32_t id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= scores_.size()) continue;
      float& x = scores_[static_cast<std::size_t>(id)];
      x = static_cast<float>(x > 0 ? x / o_.repetition_penalty : x * o_.repetition_penalty);
    }
  }

  /// One of `order_`, which is sorted, by probability. One without any never comes out.
  std::int32_t draw(std::size_t position) {
    const double best = score(order_[0]);
    std::vector<double> weights;
    double total = 0;
    for (const std::int32_t id : order_) total += weights.emplace_back(std::exp((score(id) - best) / o_.temperature));
    std::size_t kept = 0;
    double sum = 0;
    const auto keeps = [&](double weight) { return sum < o_.top_p * total && weight >= o_.min_p && weight > 0; };
    while (kept < weights.size() && (kept == 0 || keeps(weights[kept]))) sum += weights[kept++];
    double left = uniform(position) * sum;
    for (std::size_t i = 0; i + 1 < kept; ++i) {
      if (left < weights[i]) return order_[i];
      left -= weights[i];
    }
    return order_[kept - 1];
  }

  /// As the op philox: of the seed and the position.
  float uniform(std::size_t position) const {
    const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
    return uniform_from_bits(philox4x32_10({low(position), 0, 0, 0}, {low(o_.seed), low(o_.seed >> 32)})[0]);
  }

  SamplingOptions o_;
  std::vector<float> scores_;
  std::vector<std::int32_t> order_;
};

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto require = [](bool ok, std::string_view what, double value) {
    if (!ok) fail(ErrorCode::InvalidArgument, "sampling: {} is {}", what, value);
  };
  constexpr double largest = 1e6;  // devices compute in f32, where products with logits must stay finite
  require(o.temperature >= 0 && o.temperature <= largest, "the temperature", o.temperature);
  require(o.repetition_penalty >= 1 / largest && o.repetition_penalty <= largest, "the repetition penalty",
          o.repetition_penalty);
  require(o.repetition_window >= 0, "the repetition window", static_cast<double>(o.repetition_window));
  require(o.top_k >= 0, "top_k", static_cast<double>(o.top_k));
  require(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p);
}

std::unique_ptr<Sampler> host_sampler(const SamplingOptions& options) {
  check_sampling(options);
  return std::make_unique<HostSampler>(options);
}

}  // namespace aeshna
