// aeshna train chars: a small transformer learns a text, character by character, and then writes some.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "aeshna/session.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "cli/char_model.h"
#include "cli/classifier.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/train.h"
#include "cli/train_report.h"
#include "gpu/select_device.h"
#include "io/json_writer.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kReportEvery = 5;       ///< steps between two readings of the loss, so that steps can overlap
constexpr std::size_t kHeldOutPart = 10;       ///< the last tenth of the text
constexpr std::int64_t kHeldOutWindows = 24;   ///< measured, evenly spread
constexpr std::uint64_t kMaxText = 64u << 20;  ///< bytes
constexpr std::uint64_t kSamplingStream = ~std::uint64_t{0};  ///< steps take the streams from 0 on

struct Text {
  std::vector<std::byte> bytes;
  std::string source;  ///< for the report
};

/// The files one after the other; without any, the documentation of Aeshna itself.
Text read_text(const std::vector<std::string>& given) {
  std::vector<fs::path> files(given.begin(), given.end());
  std::string source;
  if (files.empty()) {
    const fs::path folder = find_resource("docs", "--text");
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
    if (error) fail(ErrorCode::Io, "{}: {}", folder.string(), error.message());
    if (files.empty()) fail(ErrorCode::NotFound, "{} holds no *.md; give a text with --text", folder.string());
    std::ranges::sort(files);
    source = (folder / "*.md").string();
  }
  Text text;
  for (const fs::path& file : files) {
    const std::vector<std::byte> part = read_file(file, kMaxText);
    text.bytes.insert(text.bytes.end(), part.begin(), part.end());
    if (!given.empty()) source += (source.empty() ? "" : ", ") + file.string();
  }
  text.source = source;
  return text;
}

/// Ids of the characters, the end held out.
struct Corpus {
  std::vector<std::int32_t> train, held_out;
};

Corpus split_text(const std::vector<std::int32_t>& ids, const Text& text, std::int64_t window) {
  const auto least = static_cast<std::size_t>(window) + 1;
  const std::size_t held_out = std::max(ids.size() / kHeldOutPart, least);
  if (ids.size() < held_out + least) {
    fail(
        ErrorCode::InvalidArgument,
        "{}: {} bytes are too short: a window of {} needs at least {}, {} of them held out (--window makes it shorter)",
        text.source, ids.size(), window, 2 * least, least);
  }
  const auto middle = ids.end() - static_cast<std::ptrdiff_t>(held_out);
  return {.train = {ids.begin(), middle}, .held_out = {middle, ids.end()}};
}

/// A batch of windows at random places and what follows each of their characters: a function of seed and step alone.
class Batches {
 public:
  Batches(const Corpus& corpus, const CharsArguments& a) : text_(corpus.train), a_(a) {}
  void set(Session& session, std::int64_t step) {
    PhiloxStream stream(a_.seed, static_cast<std::uint64_t>(step));
    ids_.clear();
    next_.clear();
    const auto window = static_cast<std::ptrdiff_t>(a_.window);
    for (std::int64_t row = 0; row < a_.batch; ++row) {
      const auto at = text_.begin() +
                      static_cast<std::ptrdiff_t>(stream.next_below(text_.size() - static_cast<std::size_t>(window)));
      ids_.insert(ids_.end(), at, at + window);
      next_.insert(next_.end(), at + 1, at + 1 + window);
    }
    session.set("ids", std::span<const std::int32_t>(ids_));
    session.set("next", std::span<const std::int32_t>(next_));
  }

 private:
  const std::vector<std::int32_t>& text_;
  const CharsArguments& a_;
  std::vector<std::int32_t> ids_, next_;
};

struct Training {
  std::int64_t first = 0, done = 0;  ///< steps before, and after
  double seconds = 0, first_loss = 0, loss = 0;
  bool interrupted = false;
  int status = 0;
};

/// What must agree for a checkpoint to go on.
std::string print_extra(const CharModel& model, const Vocabulary& vocabulary) {
  return formatted("{{\"heads\":{},\"vocabulary\":\"{}\"}}", model.heads, vocabulary.to_hex());
}

Training run_training(const CharsArguments& a, const CharModel& model, const Corpus& corpus, const Device& device,
                      const fs::path& checkpoint, const std::string& extra, bool quiet) {
  const Interrupt interrupt;
  Graph graph;
  build_char_model(graph, model, a.batch, true);
  Weights weights(graph, {.seed = a.seed, .device = device});
  Session session = compile(
      graph, weights,
      {.mode = Mode::Training,
       .optimizer = AdamW{.lr = static_cast<float>(a.lr), .weight_decay = 0.1f},
       .train = {.schedule = Schedule::cosine(a.steps, std::min<std::int64_t>(20, a.steps / 10)), .clip_norm = 1.0f}});
  std::error_code unseen;
  if (a.resume && fs::exists(checkpoint, unseen)) {
    if (session.load(checkpoint) != extra)
      fail(ErrorCode::InvalidArgument, "{} is of another text or model: its characters or heads differ",
           checkpoint.string());
  }

  Training t;
  t.first = t.done = session.steps();
  Batches batches(corpus, a);
  StepProgress progress(t.first, a.steps, quiet);
  if (t.done < a.steps) batches.set(session, t.done);
  while (t.done < a.steps && !interrupt.requested()) {
    session.step();
    if (++t.done < a.steps) batches.set(session, t.done);  // while the device works
    if (t.done % kReportEvery != 0 && !progress.milestone(t.done) && t.done != t.first + 1) continue;
    t.loss = session.read_scalar("loss");
    if (t.done == t.first + 1) t.first_loss = t.loss;
    t.seconds = progress.seconds();
    progress.show(t.done, formatted("loss {:.4f}", t.loss));
  }
  session.wait();
  progress.clear();
  t.interrupted = interrupt.requested() && t.done < a.steps;
  t.status = interrupt.status();
  if (t.done > t.first) session.save(checkpoint, extra);
  return t;
}

/// Logits of every position of one window, from a fresh session on the saved file.
class Reader {
 public:
  Reader(const CharModel& model, const Device& device, const fs::path& checkpoint, std::uint64_t seed) : model_(model) {
    build_char_model(graph_, model, 1, false);
    weights_ = std::make_unique<Weights>(
        graph_, WeightsOptions{.seed = seed, .device = device});  // only the file makes them good
    session_ = std::make_unique<Session>(compile(graph_, *weights_));
    session_->load(checkpoint);
  }
  /// `ids`: at most a window; what is behind them does not matter, since attention is causal.
  const std::vector<float>& read(std::span<const std::int32_t> ids) {
    std::vector<std::int32_t> window(ids.begin(), ids.end());
    window.resize(static_cast<std::size_t>(model_.window), 0);
    session_->set("ids", std::span<const std::int32_t>(window));
    session_->step();
    return logits_ = session_->read("logits");
  }
  std::span<const float> row(std::size_t position) const {
    const auto size = static_cast<std::size_t>(model_.vocabulary);
    return std::span(logits_).subspan(position * size, size);
  }

 private:
  CharModel model_;
  Graph graph_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Session> session_;
  std::vector<float> logits_;
};

/// Mean over evenly spread windows of the text held out.
double held_out_loss(Reader& reader, const std::vector<std::int32_t>& text, std::int64_t window) {
  const auto size = static_cast<std::size_t>(window);
  const std::size_t starts = text.size() - size;  // each window needs the character behind it
  const std::size_t count = std::min(starts, static_cast<std::size_t>(kHeldOutWindows));
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * starts / count;
    reader.read(std::span(text).subspan(at, size));
    for (std::size_t p = 0; p < size; ++p) sum += surprise(reader.row(p), text[at + p + 1]);
  }
  return sum / static_cast<double>(count * size);
}

std::string write_text(Reader& reader, std::vector<std::int32_t> ids, const Vocabulary& vocabulary,
                       const CharsArguments& a) {
  PhiloxStream stream(a.seed, kSamplingStream);
  std::string written;
  for (std::int64_t i = 0; i < a.generate; ++i) {
    const std::size_t size = std::min(ids.size(), static_cast<std::size_t>(a.window));
    reader.read(std::span(ids).last(size));
    ids.push_back(sample(reader.row(size - 1), a.temperature, stream.next_uniform()));
    written += vocabulary.decode(ids.back());
  }
  return written;
}

}  // namespace

int train_chars(const CharsArguments& a, const Globals& globals) {
  const Text text = read_text(a.text);
  const Vocabulary vocabulary(text.bytes);
  const Corpus corpus = split_text(vocabulary.encode(text.bytes, text.source), text, a.window);
  const std::string first(1, static_cast<char>(text.bytes.front()));
  const std::string& prompt = a.prompt.empty() ? first : a.prompt;
  const std::vector<std::int32_t> prompt_ids = vocabulary.encode(std::as_bytes(std::span(prompt)), "--prompt");
  if (a.width % a.heads != 0) fail(ErrorCode::InvalidArgument, "--heads {} do not divide --width {}", a.heads, a.width);
  const CharModel model{.vocabulary = vocabulary.size(),
                        .window = a.window,
                        .width = a.width,
                        .layers = a.layers,
                        .heads = a.heads,
                        .dropout = a.dropout};
  std::error_code error;
  fs::create_directories(a.out_dir, error);
  if (error) fail(ErrorCode::Io, "{}: the folder cannot be made: {}", a.out_dir, error.message());
  const fs::path checkpoint =
      a.checkpoint.empty() ? (fs::path(a.out_dir) / "chars.safetensors").lexically_normal() : fs::path(a.checkpoint);

  const Device device(globals.request());
  const bool quiet = globals.quiet;
  if (!quiet) {
    Graph graph;
    build_char_model(graph, model, 1, false);
    report("text", "{}: {} bytes to train on, {} held out, {} different", text.source,
           format_count(std::ssize(corpus.train)), format_count(std::ssize(corpus.held_out)), vocabulary.size());
    report("device", "{} ({})", device.info().name, gpu::kind_name(device.info().kind));
    report("model", "transformer of {} layers, width {}, {} heads, window {}, {} parameters; adamw, batch {}, seed {}",
           a.layers, a.width, a.heads, a.window, format_count(count_parameters(graph)), a.batch, a.seed);
    std::error_code unseen;
    if (a.resume && !fs::exists(checkpoint, unseen))
      report("resume", "{} does not exist: starting anew", checkpoint.string());
  }
  const std::string extra = print_extra(model, vocabulary);
  const Training t = run_training(a, model, corpus, device, checkpoint, extra, quiet);
  if (t.interrupted) {
    report("stopped", "on request; {} holds everything: --resume goes on from there", checkpoint.string());
    return t.status;
  }
  if (t.done == t.first) {
    report("resume", "{} has all {} steps already", checkpoint.string(), a.steps);
  } else if (!quiet) {
    report("trained", "{} steps in {}: loss {:.4f} at first, {:.4f} at last", t.done - t.first,
           format_seconds(t.seconds), t.first_loss, t.loss);
  }
  Reader reader(model, device, checkpoint, a.seed + 1);
  const double loss = held_out_loss(reader, corpus.held_out, a.window);
  report("held out", "loss {:.4f}, by a fresh inference session on {}", loss, checkpoint.string());
  if (!std::isfinite(loss)) {
    fail(ErrorCode::NonFinite, "the model in {} gives a loss of {} on the text held out: a lower --lr may help (it is {})",
         checkpoint.string(), loss, a.lr);
  }
  if (a.generate > 0) {
    if (!quiet) report("written", "after {} at temperature {}:\n", json_quoted(prompt), a.temperature);
    std::printf("%s\n", printable(prompt + write_text(reader, prompt_ids, vocabulary, a)).c_str());
  }
  return 0;
}

void add_train_chars(CLI::App& train, const Globals& globals, Action& action) {
  CLI::App* command = train.add_subcommand("chars", "A small transformer learns a text by its characters, and writes");
  auto a = std::make_shared<CharsArguments>();
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 31);
  command->add_option("--text", a->text, "Files, read as bytes one after the other (default: the docs/*.md of Aeshna)")
      ->type_name("FILE");
  command->add_option("--steps", a->steps)->check(positive)->capture_default_str();
  command->add_option("--batch", a->batch, "Windows per step")->check(positive)->capture_default_str();
  command->add_option("--window", a->window, "Characters that the model sees at once")
      ->check(positive)
      ->capture_default_str();
  command->add_option("--width", a->width)->check(positive)->capture_default_str();
  command->add_option("--layers", a->layers)->check(positive)->capture_default_str();
  command->add_option("--heads", a->heads, "Of attention; they divide the width")
      ->check(positive)
      ->capture_default_str();
  command->add_option("--dropout", a->dropout)->check(finite())->check(CLI::Range(0.0, 0.99))->capture_default_str();
  command->add_option("--lr", a->lr, "Highest learning rate; it falls to 0 along a cosine")
      ->check(finite())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", a->seed, "Of the first weights, of the places of the windows and of what is written")
      ->check(unsigned_number())
      ->capture_default_str();
  command->add_option("--generate", a->generate, "Characters to write at the end")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31))
      ->capture_default_str();
  command->add_option("--temperature", a->temperature, "Of what is written; 0: always the likeliest")
      ->check(finite())
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--prompt", a->prompt,
                      "What is written goes on from here (default: the first character of the text)");
  command->add_option("--out-dir", a->out_dir, "Folder of the files written; made if missing")->capture_default_str();
  command->add_option("--checkpoint", a->checkpoint,
                      "File, written at the end and when stopped (default: OUT_DIR/chars.safetensors)");
  command->add_flag("--resume", a->resume, "Go on from the checkpoint if it exists");
  command->callback([&globals, &action, a] { action = [&globals, a] { return train_chars(*a, globals); }; });
}

}  // namespace aeshna::cli
