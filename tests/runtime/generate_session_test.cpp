// Generation on a device.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/generate.h"
#include "nn/tiny_language_model.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Ids = std::vector<std::int32_t>;

LanguageModel tiny(const TempDir& dir, const TinyModel& model) {
  write_tiny_gguf(dir / "m.gguf", model);
  return LanguageModel::load_gguf(dir / "m.gguf");
}

Ids some_ids(std::size_t count) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * 97 + 5) % 400));
  return ids;
}

/// Quantized weights of every type, a prompt in chunks that do not divide it, then single tokens.
class GenerateSession : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, GenerateSession, testing::Values("llama", "qwen3", "gemma2"),
                         [](const auto& info) { return info.param; });

TEST_P(GenerateSession, LogitsEqualTheReference) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const TinyModel model = tiny_model(GetParam());
  const TinyReference reference(model, tiny_tensors(model));
  Generator generator(tiny(dir, model), {.context = 21, .chunk = 8, .device = *test_device().device});
  const Ids ids = some_ids(21);
  const auto want = reference.logits(ids);
  // Ten, one more, then beyond the last whole chunk; then back to where another text begins.
  for (const std::size_t count : {10u, 11u, 21u, 5u}) {
    const std::vector<float> got = generator.logits(std::span(ids).first(count));
    ASSERT_EQ(got.size(), want[count - 1].size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[count - 1][i]));
      largest = std::max(largest, std::abs(want[count - 1][i]));
    }
    EXPECT_LT(worst, 2e-5 * std::max(1.0, largest)) << count;
  }
}

TEST(GenerationSession, GreedyStopsAndStreams) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  TinyModel small = tiny_model("llama");
  small.all_f32 = true;
  small.hidden = 64, small.ffn = 96, small.head_dim = 16;
  Generator generator(tiny(dir, small), {.context = 40, .chunk = 8, .device = *test_device().device});
  const auto greedy = host_sampler({});
  const Ids prompt = generator.model().tokenizer().encode("Hello, world!");
  std::string streamed;
  const Generation all = generator.generate(
      prompt, *greedy, {.max_tokens = 12, .on_text = [&](std::string_view t) { return streamed += t, true; }});
  EXPECT_EQ(all.text, streamed);
  EXPECT_EQ(all.text, generator.model().tokenizer().decode(all.ids));
  ASSERT_EQ(all.ids.size(), 12u);
  EXPECT_EQ(all.end, Generation::End::Length);
  // The same from the reference, token by token.
  const TinyReference reference(small, tiny_tensors(small));
  Ids ids = prompt;
  for (const std::int32_t id : all.ids) {
    const auto row = reference.logits(ids).back();
    EXPECT_EQ(id, std::ranges::max_element(row) - row.begin());
    ids.push_back(id);
  }
  // Again, from caches that hold it already.
  EXPECT_EQ(generator.generate(prompt, *greedy, {.max_tokens = 12}).ids, all.ids);

  ASSERT_GT(all.text.size(), 4u);
  const std::string stop = all.text.substr(2, 3);
  const Generation stopped = generator.generate(prompt, *greedy, {.max_tokens = 12, .stop = {"never so", stop}});
  EXPECT_EQ(stopped.end, Generation::End::Stop);
  EXPECT_EQ(stopped.text, all.text.substr(0, all.text.find(stop)));
  EXPECT_EQ(
      generator.generate(prompt, *greedy, {.max_tokens = 12, .on_text = [](std::string_view) { return false; }}).end,
      Generation::End::Caller);
  EXPECT_EQ(generator.generate(prompt, *greedy, {.max_tokens = 1000}).end, Generation::End::Context);
  EXPECT_TRUE(generator.generate(prompt, *greedy, {.max_tokens = 0}).ids.empty());

  EXPECT_ERROR(generator.logits({}), ErrorCode::InvalidArgument, "at least one token");
  EXPECT_ERROR(generator.logits(some_ids(41)), ErrorCode::LimitExceeded, "41 tokens in a context of 40");
  EXPECT_ERROR(generator.logits(Ids{-1}), ErrorCode::OutOfRange, "-1 is no token");
  EXPECT_ERROR(Generator(tiny(dir, small), {.context = 0, .device = *test_device().device}), ErrorCode::InvalidArgument,
               "a context of 0");
}

TEST(Sampling, Greedy) {
  const auto greedy = host_sampler({});
  EXPECT_EQ(greedy->next(std::vector<float>{0, 3, -1, 3}, {}), 1) << "the first of equals";
  const auto penalized = host_sampler({.repetition_penalty = 2, .repetition_window = 1});
  EXPECT_EQ(penalized->next(std::vector<float>{0, 3, 2}, Ids{2, 1}), 2);
  EXPECT_EQ(penalized->next(std::vector<float>{0, 3, 2}, Ids{1, 2}), 1) << "1 is out of the window";
  EXPECT_EQ(host_sampler({.repetition_penalty = 2})->next(std::vector<float>{-3, -2}, Ids{1}), 0)
      << "negative logits are multiplied";
}

TEST(Sampling, FollowsTheProbabilities) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  const auto shares = [&](SamplingOptions o) {
    o.temperature = o.temperature == 0 ? 1 : o.temperature;
    const auto sampler = host_sampler(o);
    std::vector<double> counts(3);
    for (int i = 0; i < 20000; ++i) counts[static_cast<std::size_t>(sampler->next(logits, {}))] += 1.0 / 20000;
    return counts;
  };
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], want[i], want[i] == 0 ? 0 : 0.015) << i;
  };
  expect(shares({}), {0.1, 0.6, 0.3});
  expect(shares({.temperature = 0.5}), {0.01 / 0.46, 0.36 / 0.46, 0.09 / 0.46});
  expect(shares({.top_k = 2}), {0, 2.0 / 3, 1.0 / 3});
  expect(shares({.top_p = 0.65}), {0, 2.0 / 3, 1.0 / 3});
  expect(shares({.top_p = 0.5}), {0, 1, 0});
  expect(shares({.min_p = 0.4}), {0, 2.0 / 3, 1.0 / 3});
  EXPECT_EQ(shares({.seed = 5}), shares({.seed = 5}));
  EXPECT_NE(shares({.seed = 5}), shares({.seed = 6}));
}

TEST(Sampling, Refusals) {
  EXPECT_ERROR(host_sampler({})->next(std::vector<float>{0, NAN}, {}), ErrorCode::NonFinite, "the logit of token 1");
  EXPECT_EQ(host_sampler({.temperature = 1})->next(std::vector<float>{-INFINITY, 0}, {}), 1);
  EXPECT_ERROR(host_sampler({.temperature = -1}), ErrorCode::InvalidArgument, "the temperature is -1");
  EXPECT_ERROR(host_sampler({.temperature = NAN}), ErrorCode::InvalidArgument, "the temperature is nan");
  EXPECT_ERROR(host_sampler({.repetition_penalty = 0}), ErrorCode::InvalidArgument, "the repetition penalty is 0");
  EXPECT_ERROR(host_sampler({.top_k = -1}), ErrorCode::InvalidArgument, "top_k is -1");
  EXPECT_ERROR(host_sampler({.top_p = 0}), ErrorCode::InvalidArgument, "top_p is 0");
  EXPECT_ERROR(host_sampler({.min_p = 2}), ErrorCode::InvalidArgument, "min_p is 2");
}

}  // namespace
}  // namespace aeshna::test
