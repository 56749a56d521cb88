// The digits that come with Aeshna: a short training learns them, and an interrupted one resumes exactly.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "aeshna/aeshna.h"
#include "io/datasets.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

constexpr std::int64_t kBatch = 50, kEpochs = 6, kSteps = kEpochs * 30;

void build(Graph& graph, bool loss) {
  const Value logits = nn::mlp(graph.input("x", {kBatch, 64}), {64, 32}, 10, "mlp");
  graph.output("logits", logits);
  if (loss) graph.output("loss", cross_entropy(logits, graph.input("labels", {kBatch}, DType::i32)));
}

const Split& digits() {
  static const Split split = stratified_split(
      read_digits(std::filesystem::path(AESHNA_SOURCE_DIR) / "data" / "optdigits.csv.gz").data, "labels", 297, 2024);
  return split;
}

/// A training from the beginning or from a checkpoint, with its own graph, weights and session.
struct TrainingRun {
  Graph graph;
  std::optional<Weights> weights;
  std::optional<Session> session;
  TrainingRun() {
    build(graph, true);
    weights.emplace(graph, WeightsOptions{.seed = 5, .device = *test::test_device().device});
    session.emplace(compile(graph, *weights,
                            {.mode = Mode::Training,
                             .optimizer = AdamW{.lr = 5e-3f},
                             .train = {.schedule = Schedule::cosine(kSteps, 10), .clip_norm = 1.0f}}));
  }
  FitResult fit(FitOptions options) {
    options.epochs = kEpochs;
    options.seed = 9;
    return Trainer(*session).fit(digits().train, options);
  }
  bool same_tensors(const TrainingRun& other) const {
    EXPECT_EQ(weights->names(), other.weights->names());
    for (const std::string& name : weights->names()) {
      const Literal a = weights->get(name), b = other.weights->get(name);
      if (a.bytes().size() != b.bytes().size() ||
          std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) != 0) {
        ADD_FAILURE() << name << " differs";
        return false;
      }
    }
    return true;
  }
};

TEST(DigitsSession, LearnsIsSavedAndResumesExactly) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  TrainingRun whole;
  const FitResult result = whole.fit({.checkpoint = dir / "whole.safetensors"});
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(result.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(whole.session->steps(), kSteps);
  EXPECT_NEAR(result.losses.front(), 2.303, 0.3);  // about log(10): nothing learnt yet
  EXPECT_LT(result.epoch_losses.back(), result.epoch_losses.front() / 3);

  // What it learnt is in the file: a fresh session with other first weights classifies the held-out part.
  {
    Graph graph;
    build(graph, false);
    Weights weights(graph, {.seed = 77, .device = *test::test_device().device});
    Session session = compile(graph, weights);
    EXPECT_LT(accuracy(session, digits().test, "logits", "labels"), 0.5);
    session.load(dir / "whole.safetensors");
    std::vector<std::int64_t> confusion;
    const double share = accuracy(session, digits().test, "logits", "labels", &confusion);
    EXPECT_GE(share, 0.90);
    std::int64_t right = 0, all = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      all += confusion.at(i);
      right += i / 10 == i % 10 ? confusion.at(i) : 0;
    }
    EXPECT_EQ(all, 297);
    EXPECT_DOUBLE_EQ(static_cast<double>(right) / 297, share);
  }

  // Stopped in the middle of the second epoch, then in the third, and resumed each time by a new session.
  const auto file = dir / "parts.safetensors";
  const auto stop_after = [](std::int64_t step) { return [step](const Progress& p) { return p.step < step; }; };
  {
    TrainingRun part;
    EXPECT_EQ(part.fit({.on_step = stop_after(41), .checkpoint = file}).steps, 41);
  }
  {
    TrainingRun part;
    EXPECT_EQ(part.fit({.on_step = stop_after(75), .checkpoint = file, .resume = true}).steps, 34);
  }
  TrainingRun part;
  const FitResult rest = part.fit({.checkpoint = file, .resume = true});
  EXPECT_EQ(rest.steps, kSteps - 75);
  EXPECT_EQ(part.session->steps(), kSteps);
  EXPECT_TRUE(std::equal(rest.losses.rbegin(), rest.losses.rend(), result.losses.rbegin())) << "the losses differ";
  EXPECT_TRUE(part.same_tensors(whole));
  EXPECT_EQ(test::read_text(file), test::read_text(dir / "whole.safetensors"));  // to the last byte
}

}  // namespace
}  // namespace aeshna
