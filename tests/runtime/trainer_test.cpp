#include "aeshna/trainer.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "runtime/tiny_model.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using test::build_tiny;
using test::message_of;

class TrainerSession : public testing::Test {
 protected:
  void SetUp() override {
    AESHNA_NEED_DEVICE();
    build_tiny(graph);
    path = std::filesystem::temp_directory_path() /
           (std::string("aeshna_trainer_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
            ".safetensors");
    std::filesystem::remove(path);
  }
  void TearDown() override { std::filesystem::remove(path); }
  Weights weights(std::uint64_t seed = 1) const {
    return Weights(graph, {.seed = seed, .device = test::test_device().device});
  }
  Session session(const Weights& w, std::uint32_t accumulate = 1) const {
    CompileOptions options{.mode = Mode::Training, .optimizer = Sgd{.lr = 0.1f, .momentum = 0.9f}};
    options.train.accumulate = accumulate;
    return compile(graph, w, options);
  }
  Graph graph;
  std::filesystem::path path;
};

TEST_F(TrainerSession, FitsAndReports) {
  Session s = session(weights());
  const Dataset data = test::tiny_data(22);  // 5 batches; the rest is dropped
  std::vector<Progress> steps, epochs;
  const FitResult result = Trainer(s).fit(data, {.epochs = 6,
                                                 .seed = 3,
                                                 .on_step =
                                                     [&](const Progress& p) {
                                                       steps.push_back(p);
                                                       return true;
                                                     },
                                                 .on_epoch =
                                                     [&](const Progress& p) {
                                                       epochs.push_back(p);
                                                       return true;
                                                     },
                                                 .report_every = 2});
  EXPECT_EQ(result.steps, 30);
  EXPECT_EQ(s.steps(), 30);
  ASSERT_EQ(steps.size(), 30u);
  ASSERT_EQ(epochs.size(), 6u);
  EXPECT_EQ(result.epoch_losses.size(), 6u);
  EXPECT_EQ(steps[7].step, 8);
  EXPECT_EQ(steps[7].steps, 30);
  EXPECT_EQ(steps[7].epoch, 1);
  EXPECT_FALSE(steps[7].epoch_end);
  EXPECT_TRUE(steps[9].epoch_end);
  EXPECT_EQ(steps[29].learning_rate, 0.1f);
  EXPECT_EQ(steps[29].seconds_left, 0);
  EXPECT_LT(result.epoch_losses.back(), 0.7 * result.epoch_losses.front());

  std::vector<std::int64_t> confusion;
  std::vector<std::int32_t> predictions;
  const double share = accuracy(s, data, "logits", "y", &confusion, &predictions);  // 22 rows: the last batch is padded
  EXPECT_GT(share, 0.8);
  ASSERT_EQ(predictions.size(), 22u);
  ASSERT_EQ(confusion.size(), 9u);
  std::int64_t diagonal = 0, total = 0;
  for (std::size_t i = 0; i < 9; ++i) {
    total += confusion[i];
    diagonal += i % 4 == 0 ? confusion[i] : 0;
  }
  EXPECT_EQ(total, 22);
  EXPECT_DOUBLE_EQ(share, static_cast<double>(diagonal) / 22);
  EXPECT_EQ(s.steps(), 30) << "evaluation trains nothing";
}

/// Stopped in the middle of an epoch and of an accumulation, then resumed: the same bits as in one go.
TEST_F(TrainerSession, StoppedAndResumedEqualsUninterrupted) {
  const Dataset data = test::tiny_data(22);
  const Weights straight = weights(1), resumed = weights(8);
  {
    Session s = session(straight, 2);
    const FitResult all = Trainer(s).fit(data, {.epochs = 3, .seed = 3});
    EXPECT_EQ(all.steps, 7);
    EXPECT_EQ(all.losses.size(), 15u);
  }
  {
    Session s = session(weights(1), 2);
    int calls = 0;
    Trainer(s).fit(
        data, {.epochs = 3, .seed = 3, .on_step = [&](const Progress&) { return ++calls < 7; }, .checkpoint = path});
  }
  {
    Session s = session(resumed, 2);
    const FitResult rest = Trainer(s).fit(data, {.epochs = 3, .seed = 1234, .checkpoint = path, .resume = true});
    EXPECT_EQ(rest.losses.size(), 8u) << "the order of rows is the checkpoint's";
  }
  test::expect_equal(straight, resumed);
  {
    Session s = session(resumed, 2);
    const FitResult nothing = Trainer(s).fit(data, {.epochs = 3, .checkpoint = path, .resume = true});
    EXPECT_EQ(nothing.losses.size(), 0u) << "the last epoch's end was saved";
  }
  test::expect_equal(straight, resumed);
}

TEST_F(TrainerSession, ResumeRefusesOtherData) {
  const Weights w = weights();
  Session s = session(w);
  Trainer(s).fit(test::tiny_data(22), {.epochs = 1, .checkpoint = path});
  const auto before = test::snapshot(w);
  const std::string text = message_of(ErrorCode::InvalidArgument, [&] {
    Trainer(s).fit(test::tiny_data(30), {.epochs = 2, .checkpoint = path, .resume = true});
  });
  EXPECT_HAS(text, "22 rows");
  s.save(path, "not a position");
  message_of(ErrorCode::CorruptFile,
             [&] { Trainer(s).fit(test::tiny_data(22), {.epochs = 2, .checkpoint = path, .resume = true}); });
  EXPECT_EQ(test::snapshot(w), before);
}

TEST_F(TrainerSession, NamesWhatDoesNotFit) {
  Session s = session(weights());
  const Dataset data = test::tiny_data(12);
  const Dataset no_labels({data.column("x")});
  EXPECT_HAS(message_of(ErrorCode::NotFound, [&] { Trainer(s).fit(no_labels); }), "'y' i32[4]");
  Dataset::Column wide = data.column("x");
  wide.row = {1};
  wide.f32.resize(12);
  EXPECT_HAS(message_of(ErrorCode::ShapeMismatch,
                        [&] {
                          Trainer(s).fit(Dataset({wide, data.column("y")}));
                        }),
             "'x' expects f32[4, 3]");
  message_of(ErrorCode::ShapeMismatch, [&] { Trainer(s).fit(data, {.batch_size = 5}); });
  message_of(ErrorCode::InvalidArgument, [&] { Trainer(s).fit(data.subset(std::vector<std::int64_t>{0, 1})); });
  message_of(ErrorCode::NotFound, [&] { accuracy(s, data, "logit", "y"); });
  message_of(ErrorCode::ShapeMismatch, [&] { accuracy(s, data, "loss", "y"); });
  Session infer = compile(graph, s.weights());
  message_of(ErrorCode::InvalidArgument, [&] { Trainer(infer).fit(data); });
}

TEST_F(TrainerSession, DiagnosesABadStep) {
  Session s = session(weights());
  Dataset::Column x = test::tiny_data(12).column("x");
  x.f32[13] = std::numeric_limits<float>::infinity();
  const Dataset data({x, test::tiny_data(12).column("y")});
  const std::string text = message_of(ErrorCode::NonFinite, [&] {
    Trainer(s).fit(data, {.epochs = 1, .shuffle = false, .report_every = 100, .diagnose = true});
  });
  EXPECT_HAS(text, "step 2");
  EXPECT_HAS(text, "the first non-finite value is made by [input] 'x'");
}

}  // namespace
}  // namespace aeshna
