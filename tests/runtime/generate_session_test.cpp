// Generation on a device.
#include <gtest/gtest.h>

#include <cmath>

#include "aeshna/generate.h"
#include "base/format.h"
#include "gpu/device.h"
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

void expect_logits(Generator& generator, std::span<const std::int32_t> ids, const std::vector<double>& want) {
  const std::vector<float> got = generator.logits(ids);
  ASSERT_EQ(got.size(), want.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  EXPECT_LT(worst, 2e-5 * std::max(1.0, largest)) << ids.size();
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
  for (const std::size_t count : {10u, 11u, 21u, 5u})
    expect_logits(generator, std::span(ids).first(count), want[count - 1]);
}

/// Prompts that each of three recorded steps reads, and one near the end of the context, where the longest does not fit.
TEST(GenerationSession, PromptsOfAllLengths) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const TinyModel model = tiny_model("llama");
  const TinyReference reference(model, tiny_tensors(model));
  Generator generator(tiny(dir, model), {.context = 210, .chunk = 150, .device = *test_device().device});
  const Ids ids = some_ids(210);
  const auto want = reference.logits(ids);
  const auto compare = [&](std::size_t count) {
    expect_logits(generator, std::span(ids).first(count), want[count - 1]);
  };
  const auto recorded = [&] { return test_device().device->impl().counters().lists_recorded; };
  // What recordings a request causes: steps for what the caches do not hold of its prompt, each size once, and one for sampling.
  const auto records = [&](std::size_t prompt, double temperature) {
    const std::uint64_t before = recorded();
    generator.add({.prompt = some_ids(prompt), .sampling = {.temperature = temperature}, .options = {.max_tokens = 1}});
    EXPECT_EQ(recorded(), before);
    while (generator.advance()) {}
    return recorded() - before;
  };
  const std::uint64_t smallest = records(20, 0);
  EXPECT_GT(smallest, 0u);
  EXPECT_EQ(records(45, 0), 0u) << "24 more";
  EXPECT_GT(records(45, 1), 0u);
  EXPECT_EQ(records(45, 1), 0u);
  EXPECT_GT(records(130, 0), 0u) << "84 more: a step of 128";
  const std::uint64_t before = recorded();
  generator.prepare();
  const std::uint64_t prepared = recorded();
  EXPECT_GT(prepared, before) << "a step of 150";
  for (const std::size_t count : {33u, 34u, 34u + 128u, 209u, 210u}) compare(count);
  generator.logits(some_ids(1));  // another text begins
  for (const std::size_t count : {150u, 151u, 210u}) compare(count);
  EXPECT_EQ(recorded(), prepared) << "prepare() has recorded all of them";
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
  for (const std::int64_t context : {std::int64_t{0}, std::int64_t{1} << 31, INT64_MAX})
    EXPECT_ERROR(Generator(tiny(dir, small), {.context = context, .device = *test_device().device}),
                 ErrorCode::InvalidArgument, formatted("a context of {}", context));
}

/// A model whose embedding of token 7 is not a number; nothing else sees it.
LanguageModel small_model(const TempDir& dir, bool bad_token = false) {
  TinyModel m = tiny_model("llama");
  m.all_f32 = true;
  m.hidden = 64, m.ffn = 96, m.head_dim = 16;
  std::vector<GgufTensor> tensors;
  for (auto& [name, value] : tiny_tensors(m)) {
    if (bad_token && name == "token_embd.weight") {
      std::vector<double> values = value.to_doubles();
      values[7 * 64] = NAN;
      value = Literal::from_doubles(value.type(), values);
    }
    tensors.push_back(gguf_tensor(name, value));
  }
  write_gguf(dir / "small.gguf", tensors, tiny_metadata(m));
  return LanguageModel::load_gguf(dir / "small.gguf");
}

std::vector<Request> some_requests(std::size_t count) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    Request r{.prompt = some_ids(3 + 5 * i % 17)};
    r.prompt.back() = static_cast<std::int32_t>(20 + i);
    r.options.max_tokens = static_cast<std::int64_t>(4 + 3 * i % 11);
    if (i % 3 == 1) r.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = i};
    if (i % 3 == 2)
      r.sampling = {.repetition_penalty = 1.3,
                    .repetition_window = 5,
                    .temperature = i % 2 == 0 ? 0.0 : 1.2,
                    .top_k = 9,
                    .seed = i};
    requests.push_back(std::move(r));
  }
  return requests;
}

/// More requests than sequences, greedy and sampled ones mixed.
TEST(GenerateBatchSession, WhatElseRunsDoesNotMatter) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const GeneratorOptions options{.context = 48, .chunk = 4, .sequences = 3, .device = *test_device().device};
  Generator together(small_model(dir), options), alone(small_model(dir), options);
  std::vector<Request> requests = some_requests(8);
  std::vector<std::string> streamed(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].options.on_text = [&text = streamed[i]](std::string_view t) { return text += t, true; };
  const std::vector<Generation> got = together.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i].text, streamed[i]);
    EXPECT_EQ(static_cast<std::int64_t>(got[i].ids.size()), requests[i].options.max_tokens);
    requests[i].options.on_text = {};
    const Request& r = requests[i];
    EXPECT_EQ(alone.generate(r.prompt, r.sampling, r.options).ids, got[i].ids) << i;
    const auto host = host_sampler(r.sampling);
    EXPECT_EQ(alone.generate(r.prompt, *host, r.options).ids, got[i].ids) << i << ": the host, from the logits";
  }
  Generator fresh(small_model(dir), options);
  const Ids other = {399, 1, 2, 3, 4, 5, 6};  // which no cache holds
  EXPECT_EQ(together.logits(other), fresh.logits(other)) << "bit for bit";
}

TEST(GenerateBatchSession, OneSequenceHasTheSameTextAsThree) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  Generator three(small_model(dir), {.context = 48, .chunk = 8, .sequences = 3, .device = *test_device().device});
  Generator one(small_model(dir), {.context = 48, .chunk = 8, .device = staged_device()});
  for (const Request& r : some_requests(4)) {
    const Generation a = three.generate(r.prompt, r.sampling, r.options),
                     b = one.generate(r.prompt, r.sampling, r.options);
    EXPECT_EQ(a.ids, b.ids);
    const std::vector<float> x = three.logits(r.prompt), y = one.logits(r.prompt);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-4);
  }
}

TEST(GenerateBatchSession, OneBadRequestLeavesTheOthersAlone) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  Generator generator(
      small_model(dir, true),
      {.context = 48, .chunk = 4, .sequences = 2, .repetition_window = 16, .device = *test_device().device});
  std::vector<Request> requests = some_requests(5);
  const std::vector<Generation> good = generator.generate(requests);
  requests[1].prompt = {3, 7, 5};
  requests[2].options.on_text = [](std::string_view) -> bool { throw std::runtime_error("the caller's own"); };
  const std::vector<Generation> mixed = generator.generate(requests);
  for (const std::size_t i : {0u, 3u, 4u}) EXPECT_EQ(mixed[i].ids, good[i].ids) << i;
  EXPECT_EQ(mixed[1].end, Generation::End::Error);
  EXPECT_ERROR(std::rethrow_exception(mixed[1].error), ErrorCode::NonFinite, "the logits of a token are not finite");
  EXPECT_EQ(mixed[2].end, Generation::End::Error);
  EXPECT_THROW(std::rethrow_exception(mixed[2].error), std::runtime_error);
  EXPECT_ERROR(generator.generate(Ids{3, 7, 5}, SamplingOptions{}), ErrorCode::NonFinite, "not finite");
  EXPECT_EQ(generator.generate(requests[0].prompt, requests[0].sampling, requests[0].options).ids, good[0].ids);

  EXPECT_ERROR(generator.add({.prompt = some_ids(49)}), ErrorCode::LimitExceeded, "49 tokens in a context of 48");
  EXPECT_ERROR(generator.add({.prompt = {}}), ErrorCode::InvalidArgument, "at least one token");
  EXPECT_ERROR(generator.add({.prompt = {1}, .sampling = {.temperature = -1}}), ErrorCode::InvalidArgument,
               "the temperature is -1");
  EXPECT_ERROR(generator.add({.prompt = {1}, .sampling = {.repetition_penalty = 2, .repetition_window = 17}}),
               ErrorCode::InvalidArgument, "the repetition window is 17; this generator keeps 16");
  EXPECT_FALSE(generator.advance());
}

TEST(GenerateBatchSession, RequestsComeAndGo) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  Generator generator(small_model(dir), {.context = 48, .chunk = 4, .sequences = 2, .device = *test_device().device});
  const std::vector<Request> requests = some_requests(4);
  const std::vector<Generation> want = generator.generate(requests);
  std::map<std::uint64_t, Generation> ended;
  std::vector<std::uint64_t> numbers;
  const auto add = [&](std::size_t i) {
    Request r = requests[i];
    r.on_end = [&ended, &numbers, n = numbers.size()](Generation g) { ended[numbers[n]] = std::move(g); };
    numbers.push_back(generator.add(std::move(r)));  // no token comes before the next advance()
  };
  add(0), add(1), add(2);
  generator.advance();
  EXPECT_ERROR(generator.logits(Ids{1}), ErrorCode::InvalidArgument, "requests are under way");
  add(3);                        // waits with the third
  generator.cancel(numbers[2]);  // while it waits
  generator.advance();
  generator.cancel(numbers[1]);  // while it runs
  generator.cancel(12345);
  while (generator.advance()) {}
  ASSERT_EQ(ended.size(), 4u);
  EXPECT_EQ(ended[numbers[0]].ids, want[0].ids);
  EXPECT_EQ(ended[numbers[1]].end, Generation::End::Caller);
  EXPECT_LT(ended[numbers[1]].ids.size(), want[1].ids.size());
  EXPECT_EQ(ended[numbers[2]].end, Generation::End::Caller);
  EXPECT_TRUE(ended[numbers[2]].ids.empty());
  EXPECT_EQ(ended[numbers[3]].ids, want[3].ids);

  Request nested = requests[0];
  nested.options.max_tokens = 1;
  nested.on_end = [&](Generation) {
    EXPECT_ERROR(generator.advance(), ErrorCode::InvalidArgument, "may add and cancel requests, and nothing else");
    EXPECT_ERROR(generator.logits(Ids{1}), ErrorCode::InvalidArgument, "may add and cancel");
    add(3);
  };
  generator.add(nested);
  while (generator.advance()) {}
  EXPECT_EQ(ended[numbers.back()].ids, want[3].ids);

  // What an on_end throws comes out of advance(), and the others go on.
  Request thrower = requests[0];
  thrower.on_end = [](Generation) { throw std::runtime_error("from on_end"); };
  thrower.options.max_tokens = 1;
  generator.add(thrower);
  add(3);
  EXPECT_THROW(while (generator.advance()){}, std::runtime_error);
  while (generator.advance()) {}
  EXPECT_EQ(ended[numbers.back()].ids, want[3].ids);
}

/// Whatever callback asks for it, and wherever the request is.
TEST(GenerateBatchSession, CallbacksCancel) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  Generator generator(small_model(dir), {.context = 48, .chunk = 4, .device = *test_device().device});
  const Request plain = some_requests(1)[0];
  const auto ends = [&](bool cancel_first, std::int64_t first_tokens) {
    std::vector<Generation::End> ended;
    std::uint64_t second = 0;
    Request first = plain, other = plain;
    first.options.max_tokens = first_tokens;
    first.on_end = [&](Generation g) {
      ended.push_back(g.end);
      generator.cancel(second);
    };
    other.on_end = [&](Generation g) { ended.push_back(g.end); };
    const std::uint64_t number = generator.add(first);
    second = generator.add(other);
    if (cancel_first) generator.cancel(number);
    while (generator.advance()) {}
    return ended;
  };
  using enum Generation::End;
  EXPECT_EQ(ends(true, 5), (std::vector{Caller, Caller})) << "while the first waits";
  EXPECT_EQ(ends(false, 0), (std::vector{Length, Caller})) << "by one that never starts";
  EXPECT_EQ(ends(false, 2), (std::vector{Length, Caller}));
  EXPECT_EQ(generator.generate(plain.prompt, plain.sampling, plain.options).end, Length);
}

/// Rows of a request that was not finite lie behind the position of the next one in its place.
TEST(GenerateBatchSession, BadRowsBehindTheTextDoNotMatter) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  Generator generator(small_model(dir, true),
                      {.context = 300, .chunk = 64, .sequences = 2, .device = *test_device().device});
  const std::vector<Request> requests = some_requests(3);
  const std::vector<Generation> good = generator.generate(requests);
  for (const Generation& g : generator.generate(std::vector<Request>(2, {.prompt = Ids(280, 7)})))
    EXPECT_EQ(g.end, Generation::End::Error);
  const std::vector<Generation> again = generator.generate(requests);
  for (std::size_t i = 0; i < good.size(); ++i) EXPECT_EQ(again[i].ids, good[i].ids) << i;
}

TEST(GenerateBatchSession, ATokenRecordsAndAllocatesNothing) {
  AESHNA_NEED_DEVICE();
  const TempDir dir;
  const Device device = *test_device().device;
  Generator generator(small_model(dir), {.context = 64, .chunk = 4, .sequences = 2, .device = device});
  for (Request& r : std::vector<Request>{some_requests(2)})
    generator.generate(r.prompt, r.sampling, r.options);  // compiles
  for (Request r : some_requests(2)) {
    r.options.max_tokens = 30;
    generator.add(r);
  }
  for (int i = 0; i < 6; ++i) generator.advance();  // prompts are read
  const gpu::DeviceCounters before = device.impl().counters();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(generator.advance());
  const gpu::DeviceCounters after = device.impl().counters();
  EXPECT_EQ(after.buffers_created, before.buffers_created);
  EXPECT_EQ(after.kernels_created, before.kernels_created);
  EXPECT_EQ(after.lists_recorded, before.lists_recorded);
  EXPECT_EQ(after.submissions, before.submissions + 10) << "one for each token, and no transfer besides";
  while (generator.advance()) {}
}

/// On the Null device, whose tokens are all 0.
TEST(Generating, ALostDeviceEndsAllRequestsAndSaysSo) {
  const TempDir dir;
  const auto run = [&](Device device, std::uint64_t rounds) {
    Generator generator(small_model(dir), {.context = 48, .chunk = 4, .sequences = 2, .device = device});
    int ended = 0;
    for (Request r : some_requests(3)) {
      r.on_end = [&](Generation g) {
        EXPECT_EQ(g.ids, Ids(g.ids.size(), 0));
        ++ended;
      };
      generator.add(std::move(r));
    }
    for (std::uint64_t i = 0; i < rounds; ++i) generator.advance();
    const std::uint64_t submissions = device.impl().counters().submissions;
    while (generator.advance()) {}
    EXPECT_EQ(ended, 3);
    return submissions;
  };
  const std::uint64_t some = run(Device(gpu::open_null({})), 5);
  for (const std::uint64_t at : {some, some + 1}) {
    const Device lost(gpu::with_faults(gpu::open_null({}), {.lose_at_submit = at}));
    EXPECT_ERROR(run(lost, 0), ErrorCode::DeviceLost, "lost");
  }
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
    std::vector<double> counts(3);
    Ids history;
    for (int i = 0; i < 20000; ++i) {
      if (i % 100 == 0) ++o.seed, history.clear();
      counts[static_cast<std::size_t>(host_sampler(o)->next(logits, history))] += 1.0 / 20000;
      history.push_back(0);
    }
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
  EXPECT_NE(shares({.seed = 5}), shares({.seed = 500}));
}

TEST(Sampling, Refusals) {
  EXPECT_ERROR(host_sampler({})->next(std::vector<float>{0, NAN}, {}), ErrorCode::NonFinite,
               "the logit of token 1 is nan");
  EXPECT_ERROR(host_sampler({})->next(std::vector<float>{INFINITY, 0}, {}), ErrorCode::NonFinite,
               "the logit of token 0 is inf");
  EXPECT_ERROR(host_sampler({})->next(std::vector<float>{-INFINITY, -INFINITY}, {}), ErrorCode::NonFinite,
               "no logit is finite");
  EXPECT_EQ(host_sampler({.temperature = 1})->next(std::vector<float>{-INFINITY, 0}, {}), 1);
  EXPECT_ERROR(host_sampler({.temperature = -1}), ErrorCode::InvalidArgument, "the temperature is -1");
  EXPECT_ERROR(host_sampler({.temperature = NAN}), ErrorCode::InvalidArgument, "the temperature is nan");
  EXPECT_ERROR(host_sampler({.repetition_penalty = 0}), ErrorCode::InvalidArgument, "the repetition penalty is 0");
  EXPECT_ERROR(host_sampler({.temperature = 1e300}), ErrorCode::InvalidArgument, "the temperature is 1e+300");
  for (const double penalty : {1e-300, 1e300, -1.0, double{INFINITY}, double{NAN}})
    EXPECT_ERROR(host_sampler({.repetition_penalty = penalty}), ErrorCode::InvalidArgument,
                 "the repetition penalty is");
  EXPECT_ERROR(host_sampler({.top_k = -1}), ErrorCode::InvalidArgument, "top_k is -1");
  EXPECT_ERROR(host_sampler({.top_p = 0}), ErrorCode::InvalidArgument, "top_p is 0");
  EXPECT_ERROR(host_sampler({.min_p = 2}), ErrorCode::InvalidArgument, "min_p is 2");
}

}  // namespace
}  // namespace aeshna::test
