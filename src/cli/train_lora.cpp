// aeshna train lora: an adapter beside the frozen weights of a language model learns a text or a set of answers.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "aeshna/generate.h"
#include "aeshna/lora.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/make_folder.h"
#include "base/philox.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/model_argument.h"
#include "cli/train.h"
#include "cli/train_report.h"
#include "gpu/select_device.h"
#include "io/svg_plot.h"
#include "nn/language/examples.h"
#include "runtime/checkpoint.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kWindow = 512;
constexpr std::uint64_t kHeldOutStream = ~std::uint64_t{0};  ///< epochs take the streams from 0 on

struct LoraArguments {
  ModelArgument model;
  std::string data, out_dir = "lora", loss_svg = {};
  LoraOptions lora;
  std::int64_t window = 0;  ///< 0: kWindow, or the positions that the model was trained for if they are fewer
  std::int64_t batch = 4, accumulate = 1;
  std::int64_t epochs = 1, steps = 0;  ///< steps > 0 counts instead of epochs
  double lr = 2e-4, clip = 1, weight_decay = 0, validation = 0;
  std::string schedule = "cosine";
  std::int64_t warmup = -1;  ///< -1: a thirtieth of the steps
  std::uint64_t seed = 1;
  std::int64_t save_every = 100;
  bool resume = false;
};

std::vector<std::size_t> shuffled(std::vector<std::size_t> items, std::uint64_t seed, std::uint64_t stream) {
  PhiloxStream random(seed, stream);
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.next_below(i)]);
  return items;
}

/// Which examples are learnt and which are held out: a function of the data, the seed and the share alone.
struct Split {
  std::vector<std::size_t> train, held_out;
};

Split split_examples(const Examples& examples, const LoraArguments& a) {
  std::vector<std::size_t> all(examples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (a.validation == 0) return {.train = all, .held_out = {}};
  all = shuffled(std::move(all), a.seed, kHeldOutStream);
  const auto count = static_cast<std::size_t>(std::llround(a.validation * static_cast<double>(all.size())));
  if (count == 0 || count == all.size()) {
    fail(ErrorCode::InvalidArgument, "{}: a share of {} of {} examples holds out {}", a.data, a.validation, all.size(),
         count);
  }
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(count);
  Split split{.train = {middle, all.end()}, .held_out = {all.begin(), middle}};
  std::ranges::sort(split.train);
  std::ranges::sort(split.held_out);
  return split;
}

/// The inputs of each step, a function of its number: passes over the examples, each in an order of its own, one after the other.
class Feed {
 public:
  Feed(const Examples& examples, std::vector<std::size_t> train, const LoraArguments& a)
      : examples_(examples), train_(std::move(train)), a_(a) {}

  void set(Session& session, std::int64_t step, std::int64_t micro) {
    if (micro == 0) scale_ = static_cast<float>(a_.accumulate) / static_cast<float>(tokens(step));
    const auto length = static_cast<std::size_t>(examples_.longest()), batch = static_cast<std::size_t>(a_.batch);
    ids_.resize(batch * length);
    labels_.resize(batch * length);
    for (std::size_t row = 0; row < batch; ++row) {
      examples_.fill(example(first(step, micro) + row), std::span(ids_).subspan(row * length, length),
                     std::span(labels_).subspan(row * length, length));
    }
    session.set("ids", std::span<const std::int32_t>(ids_));
    session.set("labels", std::span<const std::int32_t>(labels_));
    session.set("scale", std::span<const float>(&scale_, 1));
  }

 private:
  std::size_t first(std::int64_t step, std::int64_t micro) const {
    return static_cast<std::size_t>((step * a_.accumulate + micro) * a_.batch);
  }
  /// Ids to be predicted in all micro-steps of a step. Each of them counts the same, however they are spread.
  std::size_t tokens(std::int64_t step) {
    std::size_t sum = 0;
    const std::size_t begin = first(step, 0), end = first(step + 1, 0);
    for (std::size_t i = begin; i < end; ++i) sum += examples_.tokens(example(i));
    return sum;
  }
  std::size_t example(std::size_t index) {
    const std::uint64_t epoch = index / train_.size();
    if (!epoch_ || *epoch_ != epoch) order_ = shuffled(train_, a_.seed, epoch);
    epoch_ = epoch;
    return order_[index % train_.size()];
  }

  const Examples& examples_;
  std::vector<std::size_t> train_, order_;
  const LoraArguments& a_;
  std::optional<std::uint64_t> epoch_;  ///< whose order it is
  float scale_ = 1;
  std::vector<std::int32_t> ids_, labels_;
};

/// "loss": the surprise of the labels that count, summed, times the input "scale".
void build(Graph& graph, const models::LlamaConfig& config, std::int64_t batch, std::int64_t length) {
  const Value logits = models::llama(graph.input("ids", {batch, length}, DType::i32), config);
  const Value labels = graph.input("labels", {batch, length}, DType::i32);
  graph.output("loss", cross_entropy(logits, labels, Reduction::Sum, kIgnored) * graph.input("scale", {}));
}

/// Mean loss over the examples held out, by a session without dropout over the same weights.
class HeldOut {
 public:
  HeldOut(const Examples& examples, std::vector<std::size_t> rows, models::LlamaConfig config, std::int64_t batch,
          const Weights& weights)
      : examples_(examples), rows_(std::move(rows)), batch_(static_cast<std::size_t>(batch)) {
    if (rows_.empty()) return;
    batch_ = std::min(batch_, rows_.size());
    config.adapter_dropout = 0;
    Graph graph;
    build(graph, config, static_cast<std::int64_t>(batch_), examples.longest());
    session_.emplace(compile(graph, weights));
    const float one = 1;
    session_->set("scale", std::span(&one, 1));
  }
  bool empty() const { return rows_.empty(); }
  double loss() {
    const auto length = static_cast<std::size_t>(examples_.longest());
    std::vector<std::int32_t> ids(batch_ * length), labels(ids.size());
    double sum = 0;
    std::size_t tokens = 0;
    for (std::size_t begin = 0; begin < rows_.size(); begin += batch_) {
      std::ranges::fill(labels, kIgnored);  // of rows that a last batch does not fill
      for (std::size_t i = 0; i < batch_ && begin + i < rows_.size(); ++i) {
        examples_.fill(rows_[begin + i], std::span(ids).subspan(i * length, length),
                       std::span(labels).subspan(i * length, length));
        tokens += examples_.tokens(rows_[begin + i]);
      }
      session_->set("ids", std::span<const std::int32_t>(ids));
      session_->set("labels", std::span<const std::int32_t>(labels));
      session_->step();
      sum += static_cast<double>(session_->read_scalar("loss"));
    }
    return sum / static_cast<double>(tokens);
  }

 private:
  const Examples& examples_;
  std::vector<std::size_t> rows_;
  std::size_t batch_;
  std::optional<Session> session_;
};

/// What must be the same when a run goes on, so that it becomes what it would have become.
Json identity(const LoraArguments& a, const LanguageModel& model, const Examples& examples) {
  Hasher base;
  for (const auto& [name, type] : model.parameters()) base.add(name).add(type.to_string());
  base.add(model.weight("model.norm.weight").bytes());
  return {{"base model", base.hex()},
          {"data", examples.fingerprint()},
          {"--window", a.window},
          {"--batch", a.batch},
          {"--accumulate", a.accumulate},
          {"--validation", a.validation},
          {"--seed", a.seed},
          {"--rank", a.lora.rank},
          {"--alpha", a.lora.alpha},
          {"--rslora", a.lora.rank_stabilized},
          {"--dropout", a.lora.dropout},
          {"--targets", a.lora.targets}};
}

void check_identity(const fs::path& checkpoint, const Json& now) {
  const Json then = Json::parse(std::string_view(read_checkpoint_info(checkpoint).extra), nullptr, false);
  std::string changed;
  for (const auto& item : now.items()) {
    if (then.is_object() && then.contains(item.key()) && then[item.key()] == item.value()) continue;
    changed += (changed.empty() ? "" : ", ") + item.key();
  }
  if (!changed.empty())
    fail(ErrorCode::InvalidArgument, "{} is of another run, from which this one cannot go on: these differ: {}",
         checkpoint.string(), changed);
}

/// The run.
class LoraTraining {
 public:
  LoraTraining(const LoraArguments& a, const Globals& globals)
      : a_(a),
        quiet_(globals.quiet),
        out_(a.out_dir),
        device_(globals.request()),
        model_(LanguageModel::load(a.model.path(globals))) {}

  int run() {
    const models::LlamaConfig config = with_lora(model_, a_.lora);  // refuses before anything is read
    if (a_.window == 0) a_.window = config.context > 0 ? std::min(kWindow, config.context) : kWindow;
    if (config.context > 0 && a_.window > config.context) {
      fail(ErrorCode::InvalidArgument, "--window {}: {} was trained for {} positions", a_.window, a_.model.name,
           config.context);
    }
    const Examples examples = read_examples(a_.data, model_, a_.window);
    const Split split = split_examples(examples, a_);
    steps_ = a_.steps > 0 ? a_.steps : steps_of(split.train.size());
    make_files();
    if (!quiet_) introduce(config, examples, split);

    const Interrupt interrupt;
    Graph graph;
    build(graph, config, a_.batch, examples.longest());
    Weights weights(graph, {.seed = a_.seed, .device = device_});
    load_weights(model_, weights);
    Session session = compile(graph, weights, options());
    HeldOut held_out(examples, split.held_out, config, a_.batch, weights);
    if (!quiet_) report_compilation(session);
    identity_ = identity(a_, model_, examples);
    std::error_code unseen;
    if (a_.resume && fs::exists(checkpoint_, unseen)) {
      check_identity(checkpoint_, identity_);
      session.load(checkpoint_);
    }
    return train(session, weights, Feed(examples, split.train, a_), held_out, interrupt);
  }

 private:
  std::int64_t steps_of(std::size_t examples) const {
    const std::int64_t rows = a_.batch * a_.accumulate;
    return (a_.epochs * static_cast<std::int64_t>(examples) + rows - 1) / rows;
  }

  void make_files() {
    make_folder(out_);
    checkpoint_ = out_ / "checkpoint.safetensors";
    loss_svg_ = a_.loss_svg.empty() ? out_ / "loss.svg" : fs::path(a_.loss_svg);
    for (const fs::path& file : {checkpoint_, loss_svg_}) require_file(file);
  }

  CompileOptions options() const {
    const std::int64_t warmup = a_.warmup >= 0 ? a_.warmup : steps_ / 30;
    const Schedule schedule = a_.schedule == "constant" ? Schedule{.warmup = warmup} : Schedule::cosine(steps_, warmup);
    CompileOptions options{
        .mode = Mode::Training,
        .optimizer = AdamW{.lr = static_cast<float>(a_.lr), .weight_decay = static_cast<float>(a_.weight_decay)},
        .train = {.schedule = schedule, .accumulate = static_cast<std::uint32_t>(a_.accumulate)},
        .save_frozen = false};
    if (a_.clip > 0) options.train.clip_norm = static_cast<float>(a_.clip);
    return options;
  }

  void introduce(const models::LlamaConfig& config, const Examples& examples, const Split& split) const {
    std::size_t tokens = 0;
    for (const std::size_t example : split.train) tokens += examples.tokens(example);
    report("data", "{}: {} examples, {} tokens to learn; {} examples held out", a_.data,
           format_count(std::ssize(split.train)), format_count(static_cast<std::int64_t>(tokens)),
           format_count(std::ssize(split.held_out)));
    if (examples.cut() + examples.empty() > 0) {
      report("", "{} examples were cut to the window of {} tokens, {} left out, having no answer in it", examples.cut(),
             a_.window, examples.empty());
    }
    report("device", "{} ({})", device_.info().name, gpu::kind_name(device_.info().kind));
    std::int64_t frozen = 0, trained = 0;
    for (const auto& [name, type] : model_.parameters()) frozen += type.shape.elements();
    for (const auto& [linear, adapter] : config.adapters) {
      const Shape& shape = model_.parameters().at(linear + ".weight").shape;
      trained += adapter.rank * (shape[0] + shape[1]);
    }
    report("model", "{}: {} parameters, frozen", a_.model.name, format_count(frozen));
    report("adapter", "rank {} beside {} linears: {} parameters; adamw, {} x {} sequences of {} tokens, seed {}",
           a_.lora.rank, config.adapters.size(), format_count(trained), a_.accumulate, a_.batch, examples.longest(),
           a_.seed);
    std::error_code unseen;
    if (a_.resume && !fs::exists(checkpoint_, unseen))
      report("resume", "{} does not exist: starting anew", checkpoint_.string());
  }

  void save(const Session& session, const Weights& weights) const {
    // This refuses what is not finite, and then the last good checkpoint stays.
    save_lora(out_, model_, a_.lora, [&](std::string_view name) { return weights.get(name); });
    session.save(checkpoint_, identity_.dump());
  }

  int train(Session& session, const Weights& weights, Feed feed, HeldOut& held_out, const Interrupt& interrupt) {
    const std::int64_t first = session.steps();
    if (first >= steps_) {
      report("resume", "{} has all {} steps already", checkpoint_.string(), steps_);
      return 0;
    }
    StepProgress progress(first, steps_, quiet_);
    std::vector<std::pair<double, double>> losses, held_out_losses;
    std::int64_t done = first;
    feed.set(session, first, 0);
    bool end = interrupt.requested();
    while (!end) {
      double loss = 0;
      for (std::int64_t micro = 0; micro < a_.accumulate; ++micro) {
        session.step();
        const bool last = micro + 1 == a_.accumulate;
        if (!last || done + 1 < steps_) feed.set(session, last ? done + 1 : done, last ? 0 : micro + 1);
        loss += static_cast<double>(session.read_scalar("loss")) / static_cast<double>(a_.accumulate);
      }
      ++done;
      losses.emplace_back(static_cast<double>(done), loss);
      end = done == steps_ || interrupt.requested();  // asked once: what ends the loop has saved
      if (end || done % a_.save_every == 0) {
        save(session, weights);
        if (!held_out.empty() && !interrupt.requested())
          held_out_losses.emplace_back(static_cast<double>(done), held_out.loss());
      }
      std::string text = formatted("loss {:.4f}", loss);
      if (!held_out_losses.empty()) text += formatted("  held out {:.4f}", held_out_losses.back().second);
      progress.show(done, text);
    }
    progress.clear();
    if (done < steps_) {
      if (done == first) {
        report("stopped", "on request, before a step was made");
      } else {
        report("stopped", "on request; {} holds everything: --resume goes on from there", checkpoint_.string());
      }
      return interrupt.status();
    }
    if (!quiet_) {
      report("trained", "{} steps in {}: loss {:.4f} at first, {:.4f} at last", done - first,
             format_seconds(progress.seconds()), losses.front().second, losses.back().second);
    }
    if (!held_out_losses.empty()) {
      const double loss = held_out_losses.back().second;
      report("held out", "loss {:.4f}, perplexity {:.4g}", loss, std::exp(loss));
    }
    write_file_atomic(loss_svg_, render_svg({.title = "aeshna train lora",
                                             .x_label = "step",
                                             .left_label = "loss",
                                             .right_label = "",
                                             .series = {{.label = "training loss", .points = losses, .smooth = true},
                                                        {.label = "held-out loss", .points = held_out_losses}}}));
    if (!quiet_) {
      report("wrote", "{} and {}", (out_ / "adapter_model.safetensors").string(),
             (out_ / "adapter_config.json").string());
    }
    return 0;
  }

  LoraArguments a_;
  bool quiet_;
  fs::path out_, checkpoint_, loss_svg_;
  Device device_;
  LanguageModel model_;
  std::int64_t steps_ = 0;
  Json identity_;
};

}  // namespace

void add_train_lora(CLI::App& train, const Globals& globals, Action& action) {
  CLI::App* command = train.add_subcommand("lora", "Fine-tune a language model: an adapter beside its frozen weights");
  auto a = std::make_shared<LoraArguments>();
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 31);
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 14);  // the numbers of all examples fit 63 bits
  a->model.add_to(*command, "MODEL", kLanguageModel);
  command
      ->add_option(
          "--data", a->data,
          "Text (.txt, .md), or .jsonl whose lines have \"text\", \"prompt\" and \"completion\", or \"messages\"")
      ->required()
      ->type_name("FILE");
  command->add_option("--out,--out-dir", a->out_dir, "Folder of the adapter, made if missing")
      ->capture_default_str()
      ->type_name("DIR");
  command->add_option("--rank", a->lora.rank, "Of the adapter's matrices")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--alpha", a->lora.alpha, "What an adapter adds is times alpha / rank")
      ->check(finite())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--rslora", a->lora.rank_stabilized, "Times alpha / sqrt(rank)");
  command->add_option("--dropout", a->lora.dropout, "Share of an adapter's input that is dropped while training")
      ->check(finite())
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  command
      ->add_option("--targets", a->lora.targets,
                   "Linears with an adapter, such as q_proj,v_proj (default: all linears)")
      ->delimiter(',')
      ->type_name("NAMES");
  command
      ->add_option(
          "--window", a->window,
          "Tokens that the model sees at once; longer examples are cut (default: 512, at most what it was trained for)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--batch", a->batch, "Examples that are computed together")->check(count)->capture_default_str();
  command->add_option("--accumulate", a->accumulate, "Batches of each step")->check(count)->capture_default_str();
  CLI::Option* epochs =
      command->add_option("--epochs", a->epochs, "Passes over the examples")->check(count)->capture_default_str();
  command->add_option("--steps", a->steps, "Updates, instead of --epochs")->check(positive)->excludes(epochs);
  command->add_option("--lr", a->lr, "Highest learning rate")
      ->check(finite())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--schedule", a->schedule, "Of the learning rate after the warm-up: cosine (down to 0) or constant")
      ->check(CLI::IsMember({"cosine", "constant"}))
      ->capture_default_str();
  command->add_option("--warmup", a->warmup, "Steps until the highest learning rate (default: a thirtieth)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command->add_option("--weight-decay", a->weight_decay)
      ->check(finite())
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--clip", a->clip, "Largest norm of the gradient; 0: no bound")
      ->check(finite())
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--validation", a->validation, "Share of the examples that is held out and measured")
      ->check(finite())
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  command->add_option("--save-every", a->save_every, "Steps from one saving and measuring to the next")
      ->check(positive)
      ->capture_default_str();
  command->add_option("--seed", a->seed, "Of the first weights, the order and what is held out")
      ->check(unsigned_number())
      ->capture_default_str();
  command->add_flag("--resume", a->resume, "Go on from the checkpoint in the folder if it exists");
  command->add_option("--loss-svg", a->loss_svg, "Chart of the loss (default: OUT/loss.svg)");
  command->callback([&globals, &action, a] { action = [&globals, a] { return LoraTraining(*a, globals).run(); }; });
}

}  // namespace aeshna::cli
