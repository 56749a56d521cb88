#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "aeshna/data.h"
#include "aeshna/session.h"

namespace aeshna {

struct Progress {
  std::int64_t epoch = 0, epochs = 0;
  std::int64_t step = 0, steps = 0;  ///< updates done and planned
  double loss = 0;                   ///< of the last step
  double mean_loss = 0;              ///< over the epoch so far
  double learning_rate = 0;
  double steps_per_second = 0;
  double seconds_left = 0;
  bool epoch_end = false;
};

struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 0;  ///< 0: the leading dimension of the graph's inputs
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// Called after each step (loss is read every `report_every` steps so that steps can overlap); return false to stop.
  std::function<bool(const Progress&)> on_step = {};
  std::function<bool(const Progress&)> on_epoch = {};
  std::int64_t report_every = 1;
  std::filesystem::path checkpoint = {};  ///< written at each epoch's end, and when stopped, if set
  bool resume = false;                    ///< load `checkpoint` first if it exists
  bool diagnose = false;                  ///< on a non-finite step, name the first node that made it
};

struct FitResult {
  std::vector<double> losses;       ///< one per report
  std::vector<double> epoch_losses;
  std::int64_t steps = 0;
  double seconds = 0;
};

/// The training loop over a session: batches in, losses out.
class Trainer {
 public:
  explicit Trainer(Session& session) : session_(session) {}
  FitResult fit(const Dataset& data, FitOptions options = {});

 private:
  Session& session_;
};

/// Share of rows whose argmax of output `logits` equals the label. `confusion`, if given, becomes classes x classes counts (row: truth).
double accuracy(Session& session, const Dataset& data, std::string_view logits, std::string_view label_column,
                std::vector<std::int64_t>* confusion = nullptr, std::vector<std::int32_t>* predictions = nullptr);

}  // namespace aeshna
