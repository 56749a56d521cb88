#pragma once
// One small classifier for the tests of the runtime, so that they share kernels.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "aeshna/aeshna.h"
#include "support/expect_error.h"

namespace aeshna::test {

inline constexpr std::int64_t kBatch = 4, kFeatures = 3, kClasses = 3, kHidden = 8;

/// x [4, 3] -> linear 8 -> relu -> linear 3; outputs "logits", and "loss" if `loss`.
inline void build_tiny(Graph& g, bool loss = true) {
  const Value x = g.input("x", {kBatch, kFeatures});
  const Value h = relu(linear(x, g.parameter("w1", {kHidden, kFeatures}), g.parameter("b1", {kHidden})));
  const Value logits = linear(h, g.parameter("w2", {kClasses, kHidden}));
  g.output("logits", logits);
  if (loss) g.output("loss", cross_entropy(logits, g.input("y", {kBatch}, DType::i32)));
}

/// Rows whose largest feature says the class, with some noise; the same on every machine.
inline Dataset tiny_data(std::int64_t rows) {
  Dataset::Column x{"x", DType::f32, {kFeatures}, {}, {}}, y{"y", DType::i32, {}, {}, {}};
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto label = static_cast<std::int32_t>(i % kClasses);
    for (std::int64_t f = 0; f < kFeatures; ++f) {
      x.f32.push_back((f == label ? 1.0f : 0.0f) + 0.1f * static_cast<float>((i * 7 + f * 5) % 11) - 0.5f);
    }
    y.i32.push_back(label);
  }
  return Dataset({x, y});
}

inline void set_rows(Session& session, const Dataset& data, std::int64_t first, bool labels = true) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kBatch; ++i) rows.push_back((first + i) % data.size());
  const Dataset batch = data.subset(rows);
  session.set("x", std::span<const float>(batch.column("x").f32));
  if (labels) session.set("y", std::span<const std::int32_t>(batch.column("y").i32));
}

/// Every tensor of the store, for comparison bit for bit.
inline std::vector<std::pair<std::string, Literal>> snapshot(const Weights& weights) {
  std::vector<std::pair<std::string, Literal>> result;
  for (const std::string& name : weights.names()) result.emplace_back(name, weights.get(name));
  return result;
}

inline void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.names(), b.names());
  for (const std::string& name : a.names()) EXPECT_EQ(a.get(name), b.get(name)) << name;
}

}  // namespace aeshna::test
