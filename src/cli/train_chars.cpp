// aeshna train chars: a small Llama learns a text, character by character, and then writes some.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "aeshna/generate.h"
#include "aeshna/session.h"
#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/make_folder.h"
#include "base/philox.h"
#include "cli/char_model.h"
#include "cli/classifier.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/train.h"
#include "cli/train_report.h"
#include "gpu/select_device.h"
#include "io/json_writer.h"
#include "nn/language/save_gguf.h"
#include "runtime/checkpoint.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kReportEvery = 5;       ///< steps between two readings of the loss, so that steps can overlap
constexpr std::size_t kHeldOutPart = 10;       ///< the last tenth of the text
constexpr std::int64_t kHeldOutWindows = 24;   ///< measured, evenly spread
constexpr std::uint64_t kMaxText = 64u << 20;  ///< bytes
constexpr std::string_view kExtra = "{\"model\":\"llama\",";  ///< how the text of our own in a checkpoint begins

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
std::string print_extra(const models::LlamaConfig& config, const Vocabulary& vocabulary) {
  return formatted("{}\"heads\":{},\"vocabulary\":\"{}\"}}", kExtra, config.heads, vocabulary.to_hex());
}

/// Before the session compares the tensors, whose names would not tell why they differ.
void check_checkpoint(const fs::path& checkpoint, const std::string& extra) {
  const std::string found = read_checkpoint_info(checkpoint).extra;
  if (found == extra) return;
  if (!found.starts_with(kExtra)) {
    fail(ErrorCode::Unsupported,
         "{} is no checkpoint of this character model (until 0.1 it had learned positions): train anew, without "
         "--resume",
         checkpoint.string());
  }
  fail(ErrorCode::InvalidArgument, "{} is of another text or model: its characters or heads differ",
       checkpoint.string());
}

struct Files {
  fs::path checkpoint, gguf;
};

Training run_training(const CharsArguments& a, const models::LlamaConfig& config, const Vocabulary& vocabulary,
                      const Corpus& corpus, const Device& device, const Files& files, bool quiet) {
  const Interrupt interrupt;
  const std::string extra = print_extra(config, vocabulary);
  Graph graph;
  build_char_training(graph, config, a.batch);
  Weights weights(graph, {.seed = a.seed, .device = device});
  Session session = compile(
      graph, weights,
      {.mode = Mode::Training,
       .optimizer = AdamW{.lr = static_cast<float>(a.lr), .weight_decay = 0.1f},
       .train = {.schedule = Schedule::cosine(a.steps, std::min<std::int64_t>(20, a.steps / 10)), .clip_norm = 1.0f}});
  std::error_code unseen;
  if (a.resume && fs::exists(files.checkpoint, unseen)) {
    check_checkpoint(files.checkpoint, extra);
    session.load(files.checkpoint);
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
  if (t.done > t.first) session.save(files.checkpoint, extra);
  if (!t.interrupted) {
    save_gguf(files.gguf, "aeshna train chars", config, vocabulary.tokenizer(),
              [&](const std::string& parameter) { return weights.get(parameter); });
  }
  return t;
}

/// Mean over evenly spread windows of the text held out.
double held_out_loss(const LanguageModel& model, const Device& device, const std::vector<std::int32_t>& text,
                     std::int64_t window) {
  Graph graph;
  graph.output("logits", models::llama(graph.input("ids", {1, window}, DType::i32), model.config()));
  Weights weights(graph, {.device = device});
  load_weights(model, weights);
  Session session = compile(graph, weights);
  const auto size = static_cast<std::size_t>(window), vocab = static_cast<std::size_t>(model.config().vocab);
  const std::size_t starts = text.size() - size;  // each window needs the character behind it
  const std::size_t count = std::min(starts, static_cast<std::size_t>(kHeldOutWindows));
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * starts / count;
    session.set("ids", std::span(text).subspan(at, size));
    session.step();
    const std::vector<float> logits = session.read("logits");
    for (std::size_t p = 0; p < size; ++p)
      sum += surprise(std::span(logits).subspan(p * vocab, vocab), text[at + p + 1]);
  }
  return sum / static_cast<double>(count * size);
}

/// As `aeshna generate` writes, but without an end: where the window is full, the second half of it is read anew and becomes the first.
std::string write_text(const LanguageModel& model, const Device& device, std::vector<std::int32_t> ids,
                       const CharsArguments& a) {
  Generator generator(model, {.context = a.window, .device = device});
  const auto sampler = host_sampler({.temperature = a.temperature, .seed = a.seed});
  const auto window = static_cast<std::size_t>(a.window);
  std::vector<std::int32_t> written;
  while (std::ssize(written) < a.generate) {
    if (ids.size() > window) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>((window + 1) / 2));
    const std::int64_t room = a.window - std::ssize(ids) + 1;  // the last one need not be read
    const Generation more =
        generator.generate(ids, *sampler, {.max_tokens = std::min(room, a.generate - std::ssize(written))});
    written.insert(written.end(), more.ids.begin(), more.ids.end());
    ids.insert(ids.end(), more.ids.begin(), more.ids.end());
    if (more.end == Generation::End::Token)
      break;  // nothing in the text teaches it; a model that was hardly trained may
  }
  return model.tokenizer().decode(written);
}

}  // namespace

int train_chars(const CharsArguments& a, const Globals& globals) {
  const Text text = read_text(a.text);
  const Vocabulary vocabulary(text.bytes);
  const Corpus corpus = split_text(vocabulary.encode(text.bytes, text.source), text, a.window);
  const std::string first(1, static_cast<char>(text.bytes.front()));
  const std::string& prompt = a.prompt.empty() ? first : a.prompt;
  const std::vector<std::int32_t> prompt_ids = vocabulary.encode(std::as_bytes(std::span(prompt)), "--prompt");
  if (a.width % a.heads != 0) wrong_arguments("--heads {} do not divide --width {}", a.heads, a.width);
  if (a.width / a.heads % 2 != 0) {
    wrong_arguments("--width {} / --heads {} is odd: a position rotates pairs", a.width, a.heads);
  }
  const models::LlamaConfig config = char_config(vocabulary.size(), a.window, a.width, a.layers, a.heads);
  make_folder(a.out_dir);
  const auto file = [&](const std::string& given, const char* name) {
    return given.empty() ? (fs::path(a.out_dir) / name).lexically_normal() : fs::path(given);
  };
  const Files files{.checkpoint = file(a.checkpoint, "chars.safetensors"), .gguf = file(a.gguf, "chars.gguf")};
  const fs::path& checkpoint = files.checkpoint;

  const Device device(globals.request());
  const bool quiet = globals.quiet;
  if (!quiet) {
    Graph graph;
    build_char_training(graph, config, 1);
    report("text", "{}: {} bytes to train on, {} held out, {} different", text.source,
           format_count(std::ssize(corpus.train)), format_count(std::ssize(corpus.held_out)), vocabulary.bytes());
    report("device", "{} ({})", device.info().name, gpu::kind_name(device.info().kind));
    report("model", "Llama of {} layers, width {}, {} heads, window {}, {} parameters; adamw, batch {}, seed {}",
           a.layers, a.width, a.heads, a.window, format_count(count_parameters(graph)), a.batch, a.seed);
    std::error_code unseen;
    if (a.resume && !fs::exists(checkpoint, unseen))
      report("resume", "{} does not exist: starting anew", checkpoint.string());
  }
  const Training t = run_training(a, config, vocabulary, corpus, device, files, quiet);
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
  const LanguageModel model = LanguageModel::load_gguf(files.gguf);
  const double loss = held_out_loss(model, device, corpus.held_out, a.window);
  report("held out", "loss {:.4f}, by a fresh inference session on {}", loss, files.gguf.string());
  if (!std::isfinite(loss)) {
    fail(ErrorCode::NonFinite,
         "the model in {} gives a loss of {} on the text held out: a lower --lr may help (it is {})",
         files.gguf.string(), loss, a.lr);
  }
  if (a.generate > 0) {
    if (!quiet) report("written", "after {} at temperature {}:\n", json_quoted(prompt), a.temperature);
    std::printf("%s\n", printable(prompt + write_text(model, device, prompt_ids, a)).c_str());
  }
  return 0;
}

void add_train_chars(CLI::App& train, const Globals& globals, Action& action) {
  CLI::App* command = train.add_subcommand("chars", "A small Llama learns a text by its characters, and writes");
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
  command->add_option("--gguf", a->gguf,
                      "File, written at the end: the model for `aeshna generate` (default: OUT_DIR/chars.gguf)");
  command->add_flag("--resume", a->resume, "Go on from the checkpoint if it exists");
  command->callback([&globals, &action, a] { action = [&globals, a] { return train_chars(*a, globals); }; });
}

}  // namespace aeshna::cli
