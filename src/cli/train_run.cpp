#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "aeshna/session.h"
#include "aeshna/trainer.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/make_folder.h"
#include "cli/classifier.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/train.h"
#include "cli/train_report.h"
#include "gpu/select_device.h"
#include "io/svg_plot.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kReportEvery = 5;  ///< steps between two readings of the loss, so that steps can overlap

Optimizer make_optimizer(const TrainArguments& a) {
  const auto lr = static_cast<float>(a.lr);
  if (a.optimizer == "adamw") return AdamW{.lr = lr, .weight_decay = 0.1f};
  if (a.optimizer == "adam") return Adam{.lr = lr};
  if (a.optimizer == "laprop") return LaProp{.lr = lr};
  if (a.optimizer == "sgd") return Sgd{.lr = lr, .momentum = 0.9f};
  fail(ErrorCode::InvalidArgument, "no optimizer '{}': adamw, adam, sgd or laprop", a.optimizer);
}

struct Files {
  fs::path checkpoint, loss_svg;
};

Files make_files(const PictureTask& task, const TrainArguments& a) {
  make_folder(a.out_dir);
  const auto in_folder = [&](const std::string& name) { return (fs::path(a.out_dir) / name).lexically_normal(); };
  Files files{.checkpoint = a.checkpoint.empty() ? in_folder(task.name + ".safetensors") : fs::path(a.checkpoint),
              .loss_svg = a.loss_svg.empty() ? in_folder("loss.svg") : fs::path(a.loss_svg)};
  require_file(files.checkpoint);
  require_file(files.loss_svg);
  return files;
}

/// What the training part leaves behind.
struct Training {
  FitResult result;
  std::vector<std::pair<double, double>> losses;    ///< step, loss
  std::vector<std::pair<double, double>> accuracy;  ///< step, percent held out
  bool interrupted = false;
  int status = 0;
};

/// Progress as text and as curves: a line that is rewritten on a terminal, at most about ten lines in a pipe.
class Progression {
 public:
  Progression(Training& training, const Interrupt& interrupt, bool quiet)
      : training_(training), interrupt_(interrupt), line_(!quiet), quiet_(quiet) {}

  bool step(const Progress& p) {
    // Between reports the loss is that of an earlier step.
    if (++steps_ % kReportEvery == 0 || p.epoch_end) training_.losses.emplace_back(static_cast<double>(p.step), p.loss);
    if (line_.due() && !training_.losses.empty()) line_.show(text(p, p.loss));
    return !interrupt_.requested();
  }
  bool epoch(const Progress& p, double held_out) {
    held_out_ = 100 * held_out;
    training_.accuracy.emplace_back(static_cast<double>(p.step), *held_out_);
    const std::int64_t done = p.epoch + 1, every = std::max<std::int64_t>(1, (p.epochs + 9) / 10);
    if (!quiet_ && !line_.live() && (done % every == 0 || done == p.epochs)) {
      std::printf("%s\n", text(p, p.mean_loss).c_str());
      std::fflush(stdout);
    }
    return !interrupt_.requested();
  }
  void clear() { line_.clear(); }

 private:
  std::string text(const Progress& p, double loss) const {
    std::string text = formatted("epoch {}/{}  step {}/{}  loss {:.4f}", p.epoch + 1, p.epochs, p.step, p.steps, loss);
    if (held_out_) text += formatted("  held out {:.1f} %", *held_out_);
    text += formatted("  {:.0f} steps/s", p.steps_per_second);
    return p.step < p.steps ? text + "  " + format_seconds(std::max(1.0, std::round(p.seconds_left))) + " left" : text;
  }

  Training& training_;
  const Interrupt& interrupt_;
  ProgressLine line_;
  bool quiet_;
  std::int64_t steps_ = 0;
  std::optional<double> held_out_;
};

Training run_training(const PictureTask& task, const TrainArguments& a, const Classifier& model, const Device& device,
                      const Files& files, bool quiet) {
  const Interrupt interrupt;
  Graph graph, evaluation_graph;
  build_classifier(graph, model, a.batch, true);
  build_classifier(evaluation_graph, model, std::min(a.batch, task.held_out.data.size()), false);
  const std::int64_t steps = a.epochs * (task.train.data.size() / a.batch);
  Weights weights(graph, {.seed = a.seed, .device = device});
  Session session = compile(graph, weights,
                            {.mode = Mode::Training,
                             .optimizer = make_optimizer(a),
                             .train = {.schedule = Schedule::cosine(steps, std::min<std::int64_t>(20, steps / 10))}});
  Session evaluation = compile(evaluation_graph, weights);  // the same weights, on the device
  if (!quiet) report_compilation(session);

  Training training;
  Progression progression(training, interrupt, quiet);
  FitOptions options{.epochs = a.epochs,
                     .batch_size = a.batch,
                     .seed = a.seed,
                     .on_step = [&](const Progress& p) { return progression.step(p); },
                     .on_epoch =
                         [&](const Progress& p) {
                           return progression.epoch(p, accuracy(evaluation, task.held_out.data, "logits", "labels"));
                         },
                     .report_every = kReportEvery,
                     .checkpoint = files.checkpoint,
                     .resume = a.resume,
                     .diagnose = a.diagnose};
  training.result = Trainer(session).fit(task.train.data, options);
  progression.clear();
  training.interrupted = interrupt.requested();
  training.status = interrupt.status();
  return training;
}

/// A few pictures of different classes with what the network says of them, a wrong one among them if there is any.
void show_pictures(const PictureSet& set, std::span<const std::int32_t> predictions) {
  const auto& labels = set.data.column("labels").i32;
  const auto& pixels = set.data.column("x").f32;
  const std::size_t area = static_cast<std::size_t>(set.height * set.width);
  const std::size_t count = set.width <= 14 ? 4 : 2;  // that fit in 80 columns
  std::vector<std::size_t> chosen;
  const auto choose = [&](bool right, std::size_t most) {
    for (std::size_t i = 0; i < labels.size() && chosen.size() < most; ++i) {
      const bool new_class =
          std::ranges::none_of(chosen, [&](std::size_t other) { return labels[other] == labels[i]; });
      if ((predictions[i] == labels[i]) == right && new_class) chosen.push_back(i);
    }
  };
  choose(false, 1);
  choose(true, count);
  std::ranges::rotate(chosen, chosen.begin() + 1);  // the wrong one last
  std::vector<Picture> pictures;
  for (const std::size_t i : chosen) {
    pictures.push_back({.pixels = std::span(pixels).subspan(i * area, area),
                        .caption = predictions[i] == labels[i]
                                       ? formatted("read as {}", predictions[i])
                                       : formatted("read as {}, is {}", predictions[i], labels[i])});
  }
  std::printf("\n%s", format_pictures(pictures, set.height, set.width, utf8_locale()).c_str());
}

void write_loss_chart(const PictureTask& task, const Training& training, const fs::path& file) {
  const std::string svg =
      render_svg({.title = formatted("aeshna train {}", task.name),
                  .x_label = "step",
                  .left_label = "training loss",
                  .right_label = "held-out accuracy, %",
                  .series = {{.label = "training loss", .points = training.losses, .smooth = true},
                             {.label = "held-out accuracy", .points = training.accuracy, .right_axis = true}}});
  write_file_atomic(file, svg);
}

/// Loads the file into a new store and a new session, as another program would, and measures it.
void test_saved(const PictureTask& task, const TrainArguments& a, const Classifier& model, const Device& device,
                const Files& files, bool quiet) {
  Graph graph;
  build_classifier(graph, model, std::min(a.batch, task.held_out.data.size()), false);
  Weights weights(graph,
                  {.seed = a.seed + 1, .device = device});  // other first weights: only the file can make them good
  Session session = compile(graph, weights);
  session.load(files.checkpoint);
  std::vector<std::int64_t> confusion;
  std::vector<std::int32_t> predictions;
  const double share = accuracy(session, task.held_out.data, "logits", "labels", &confusion, &predictions);
  const std::int64_t size = task.held_out.data.size();
  report("held out", "{:.2f} %: {} of {} right, by a fresh inference session on {}", 100 * share,
         static_cast<std::int64_t>(std::llround(share * static_cast<double>(size))), size, files.checkpoint.string());
  if (quiet) return;
  std::printf("\n%s", format_confusion(confusion, model.classes).c_str());
  show_pictures(task.held_out, predictions);
  std::printf("\n");
}

}  // namespace

int train_pictures(const PictureTask& task, const TrainArguments& a, const Globals& globals) {
  if (a.batch > task.train.data.size()) {
    fail(ErrorCode::InvalidArgument, "--batch {}: there are only {} pictures to train on", a.batch,
         task.train.data.size());
  }
  const Files files = make_files(task, a);
  const Classifier model{.kind = a.model == "cnn" ? Classifier::Kind::Cnn : Classifier::Kind::Mlp,
                         .height = task.train.height,
                         .width = task.train.width,
                         .classes = task.train.classes,
                         .hidden = a.hidden,
                         .channels = a.channels,
                         .dropout = a.dropout};
  const Device device(globals.request());
  const bool quiet = globals.quiet;
  if (!quiet) {
    report("data", "{}: {} pictures of {}x{} to train on, {} held out", task.data_source, task.train.data.size(),
           task.train.height, task.train.width, task.held_out.data.size());
    report("device", "{} ({})", device.info().name, gpu::kind_name(device.info().kind));
    Graph graph;
    build_classifier(graph, model, 1, false);
    report("model", "{}, {} parameters; {}, batch {}, seed {}", describe(model), format_count(count_parameters(graph)),
           a.optimizer, a.batch, a.seed);
    std::error_code unseen;
    if (a.resume && !fs::exists(files.checkpoint, unseen))
      report("resume", "{} does not exist: starting anew", files.checkpoint.string());
  }

  const Training training = run_training(task, a, model, device, files, quiet);
  const bool trained = !training.losses.empty();
  if (trained && !quiet) {
    const double rate = static_cast<double>(training.result.steps) / std::max(training.result.seconds, 1e-9);
    report("trained", "{} steps in {}: {:.0f} steps/s, loss {:.4f}", training.result.steps,
           format_seconds(training.result.seconds), rate, training.losses.back().second);
  }
  if (training.interrupted) {
    report("stopped", "on request; {} holds everything: --resume goes on from there", files.checkpoint.string());
    return training.status;
  }
  if (!trained) report("resume", "{} has all {} epochs already", files.checkpoint.string(), a.epochs);

  test_saved(task, a, model, device, files, quiet);
  if (trained) {
    write_loss_chart(task, training, files.loss_svg);
    if (!quiet) report("wrote", "{} and {}", files.checkpoint.string(), files.loss_svg.string());
  }
  return 0;
}

}  // namespace aeshna::cli
