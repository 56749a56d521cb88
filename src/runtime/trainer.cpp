#include "aeshna/trainer.h"

#include <chrono>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "compile/training.h"
#include "io/json_field.h"
#include "runtime/batches.h"
#include "runtime/checkpoint.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

using Json = nlohmann::json;

/// The `extra` of a checkpoint of fit(): where the data stands, and what it must be for the position to mean the same.
std::string print_position(const DataLoader& loader, const DataPosition& position, bool shuffle) {
  return Json{{"seed", position.seed},        {"epoch", position.epoch},           {"batch", position.batch},
              {"rows", loader.data().size()}, {"batch_size", loader.batch_size()}, {"shuffle", shuffle}}
      .dump();
}

DataPosition parse_position(const std::string& text, const DataLoader& loader, bool shuffle, const std::string& file) {
  std::int64_t rows = 0, batch_size = 0;
  bool shuffled = false;
  DataPosition position;
  try {
    const Json json = parse_json(text, "\"extra\"");
    const auto count = [&json](const char* key) {
      const auto value = json_integer(json.at(key));
      if (!value || *value < 0) throw std::out_of_range(key);
      return *value;
    };
    if (!json.at("seed").is_number_unsigned()) throw std::out_of_range("seed");
    position = {json.at("seed").get<std::uint64_t>(), count("epoch"), count("batch")};
    rows = count("rows");
    batch_size = count("batch_size");
    shuffled = json.at("shuffle").get<bool>();
    // Steps are counted in 64 bits.
    if (position.epoch > INT64_MAX / 2 / std::max<std::int64_t>(1, loader.batches_per_epoch()))
      throw std::out_of_range("epoch");
  } catch (const std::exception& e) {
    fail(ErrorCode::CorruptFile, "{} holds no data position of a Trainer: {}", file, e.what());
  }
  if (rows != loader.data().size() || batch_size != loader.batch_size() || shuffled != shuffle) {
    fail(ErrorCode::InvalidArgument,
         "{} was written with {} rows in {} batches of {}; now there are {} rows in {} batches of {}", file, rows,
         shuffled ? "shuffled" : "ordered", batch_size, loader.data().size(), shuffle ? "shuffled" : "ordered",
         loader.batch_size());
  }
  return position;
}

std::int64_t batches_before(const DataPosition& position, const DataLoader& loader) {
  return position.epoch * loader.batches_per_epoch() + position.batch;
}

/// Mean of the losses reported in this epoch.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

}  // namespace

FitResult Trainer::fit(const Dataset& data, FitOptions options) {
  Session::Impl& session = session_.impl();
  if (!session.training() || !session.options.update) {
    fail(ErrorCode::InvalidArgument, "fit needs a session that was compiled with Mode::Training and with updates");
  }
  if (options.epochs < 0 || options.report_every < 1) {
    fail(ErrorCode::InvalidArgument, "fit for {} epochs with a report every {} steps", options.epochs,
         options.report_every);
  }
  BatchFeeder feeder(session_, data);
  if (options.batch_size != 0 && options.batch_size != feeder.batch_size()) {
    fail(ErrorCode::ShapeMismatch, "batch_size {} for a graph whose inputs have {} rows", options.batch_size,
         feeder.batch_size());
  }
  const std::string loss_name = find_loss(*session.graph, session.options.loss).name;
  const auto accumulate = static_cast<std::int64_t>(session.options.train.accumulate);

  DataLoader loader(data, feeder.batch_size(), options.shuffle, options.seed);
  std::error_code no_checkpoint;  // what cannot be looked at is reported when it is read or written
  if (options.resume && std::filesystem::exists(options.checkpoint, no_checkpoint)) {
    const std::string extra = read_checkpoint_info(options.checkpoint).extra;
    loader.seek(parse_position(extra, loader, options.shuffle, options.checkpoint.string()));
    session_.load(options.checkpoint);
  }
  const std::int64_t total = options.epochs * loader.batches_per_epoch();
  DataPosition position = loader.position();
  const std::int64_t first = batches_before(position, loader);

  FitResult result;
  Progress progress;
  progress.epochs = options.epochs;
  progress.steps = total / accumulate;
  Mean mean;
  const auto start = std::chrono::steady_clock::now();
  const auto save = [&] {
    if (!options.checkpoint.empty())
      session_.save(options.checkpoint, print_position(loader, position, options.shuffle));
  };
  /// Runs what may meet a bad step; names the first non-finite node if asked to.
  const auto guarded = [&](auto&& f) {
    try {
      f();
    } catch (Error& e) {
      if (!options.diagnose || e.code() != ErrorCode::NonFinite) throw;
      const std::string node = session_.diagnose();
      throw e.context(node.empty() ? "the interpreter finds no non-finite value in that step"
                                   : "the first non-finite value is made by " + node);
    }
  };

  if (first < total) feeder.set(loader.next());
  for (std::int64_t batch = first; batch < total; ++batch) {
    progress.epoch = batch / loader.batches_per_epoch();
    progress.learning_rate = session.learning_rate();
    session_.step();
    position = {position.seed, (batch + 1) / loader.batches_per_epoch(), (batch + 1) % loader.batches_per_epoch()};
    // The next rows are gathered and written while the device works.
    if (batch + 1 < total) feeder.set(loader.next());

    progress.step = (batch + 1) / accumulate;
    progress.epoch_end = position.batch == 0;
    result.steps = progress.step - first / accumulate;
    const bool report = (batch - first + 1) % options.report_every == 0 || progress.epoch_end;
    if (report) {
      guarded([&] { progress.loss = session_.read_scalar(loss_name); });
      result.losses.push_back(progress.loss);
      mean.add(progress.loss);
    } else if (options.diagnose) {
      guarded([&] { session_.wait(); });  // before the next step changes what the interpreter needs
    }
    progress.mean_loss = mean.value();
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.steps_per_second = result.seconds > 0 ? static_cast<double>(result.steps) / result.seconds : 0;
    progress.seconds_left = progress.steps_per_second > 0
                                ? static_cast<double>(progress.steps - progress.step) / progress.steps_per_second
                                : 0;

    bool go_on = !options.on_step || options.on_step(progress);
    if (progress.epoch_end) {
      result.epoch_losses.push_back(mean.value());
      if (options.on_epoch && !options.on_epoch(progress)) go_on = false;
      mean = {};
    }
    if (progress.epoch_end || !go_on) save();
    if (!go_on) break;
  }
  guarded([&] { session_.wait(); });
  return result;
}

double accuracy(Session& session, const Dataset& data, std::string_view logits, std::string_view label_column,
                std::vector<std::int64_t>* confusion, std::vector<std::int32_t>* predictions) {
  const Dataset::Column& labels = data.column(label_column);
  if (labels.dtype != DType::i32 || labels.row.elements() != 1) {
    fail(ErrorCode::DTypeMismatch, "column '{}' must hold one i32 label per row", label_column);
  }
  BatchFeeder feeder(session, data);
  const std::int64_t batch = feeder.batch_size();
  if (batch < 1) fail(ErrorCode::InvalidArgument, "accuracy of a graph with batch size {}", batch);
  std::int64_t classes = 0, right = 0;
  if (predictions != nullptr) predictions->clear();
  if (confusion != nullptr) confusion->clear();

  std::vector<std::int64_t> rows(static_cast<std::size_t>(batch));
  for (std::int64_t first = 0; first < data.size(); first += batch) {
    const std::int64_t count = std::min(batch, data.size() - first);
    for (std::int64_t i = 0; i < batch; ++i)
      rows[static_cast<std::size_t>(i)] = first + std::min(i, count - 1);  // pads with the last row
    feeder.set(rows);
    session.forward();
    const Literal output = session.read_literal(logits);
    const Shape& shape = output.type().shape;
    if (!is_float(output.type().dtype) || shape.rank() != 2 || shape[0] != batch || shape[1] < 1) {
      fail(ErrorCode::ShapeMismatch, "output '{}' of type {} does not hold logits of {} rows", logits,
           output.type().to_string(), batch);
    }
    classes = shape[1];
    if (confusion != nullptr) confusion->resize(static_cast<std::size_t>(classes * classes));
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < classes; ++c) {
        const double value = output.at(i * classes + c), top = output.at(i * classes + best);
        if (value > top || (std::isnan(value) && !std::isnan(top)))
          best = c;  // as argmax: first maximum, NaN the largest
      }
      const std::int32_t truth = labels.i32[static_cast<std::size_t>(first + i)];
      if (truth < 0 || truth >= classes) {
        fail(ErrorCode::OutOfRange, "column '{}', row {}: label {} with {} classes", label_column, first + i, truth,
             classes);
      }
      right += best == truth ? 1 : 0;
      if (predictions != nullptr) predictions->push_back(static_cast<std::int32_t>(best));
      if (confusion != nullptr) ++(*confusion)[static_cast<std::size_t>(truth * classes + best)];
    }
  }
  return data.size() == 0 ? 0 : static_cast<double>(right) / static_cast<double>(data.size());
}

}  // namespace aeshna
